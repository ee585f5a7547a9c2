"""Panels of functions of several samples, arranged in rows and columns of one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from textwrap import fill
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from operators.data import Channel, distinguished
from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pipelines.reports.fields import (
    RIM,
    Ends,
    Look,
    bar,
    bodies,
    contours,
    ends_of,
    framed,
    layer,
    show,
    sides,
)
from pipelines.reports.figures import WIDE, styled
from pipelines.reports.palette import QUIET

_T = TypeVar("_T")
_CURVES = 0.7  # height of a panel of curves over its width
BODY = "#D5D5D5"


@dataclass(frozen=True)
class Panel:
    """One function in a figure of several panels.

    Args:
        label: Label of the colour bar; None for a panel without a bar.
        near: Lower and upper ends of the part of the plane that is drawn; None for the whole
            domain.
        over: Outline of a rigid body, shape (n, 2).
    """

    domain: Domain
    values: np.ndarray
    look: Look
    scale: Normalize
    title: str = ""
    label: str | None = ""
    near: Ends | None = None
    over: np.ndarray | None = None

    @property
    def ends(self) -> Ends:
        if self.near is not None:
            return self.near
        low, high = ends_of(self.domain)
        if self.over is not None:
            low, high = (np.minimum(low, self.over.min(axis=0)),
                         np.maximum(high, self.over.max(axis=0)))  # fmt: skip
        return low, high

    @property
    def rim(self) -> float:
        """Width of the margin around the domain, as a fraction of its longest side."""
        return 0.0 if self.near is not None or isinstance(self.domain, Box) else RIM

    def draw(self, axes: Axes) -> None:
        image = show(axes, self.domain, self.values, self.look.map, self.scale)
        if self.look.contours:
            contours(axes, self.domain, self.values, self.scale)
        x = self.domain.points.reshape(-1, self.domain.dim)
        outlines = [x[loop] for loop in bodies(self.domain)]
        for outline in outlines if self.over is None else [*outlines, self.over]:
            axes.fill(*outline.T, facecolor=BODY, edgecolor=QUIET, lw=0.6)
        if self.label is not None:
            bar(image, axes, self.look, self.label)
        words = (self.title, layer(self.domain, self.values)[1])
        axes.set_title(", ".join(word for word in words if word))


@dataclass(frozen=True)
class Curves:
    """Curves that replace a panel in a figure.

    Args:
        lines: One tuple for each curve: points, values, colour, line style and legend entry.
        named: Whether a legend is drawn.
    """

    lines: Sequence[tuple[np.ndarray, np.ndarray, str, str, str]]
    title: str = ""
    label: str = ""
    named: bool = False

    def draw(self, axes: Axes) -> None:
        for x, values, ink, dashes, name in self.lines:
            axes.plot(x, values, color=ink, ls=dashes, lw=1.2, label=name)
        axes.set_xlabel("x")
        axes.set_ylabel(self.label)
        axes.set_title(self.title)
        axes.tick_params(labelsize=7)
        if self.named:
            axes.legend(fontsize=7)


@styled
def sheet(
    rows: Sequence[Sequence[Panel | Curves | None]],
    names: Sequence[str] = (),
    title: str = "",
    width: float = WIDE,
) -> Figure:
    """A figure of panels that all show the same part of space. Ticks mark only the ends of this
    part.

    Args:
        rows: Panels and curves; None leaves a cell empty.
        names: Name of each row. It is written to the left of the first panel of the row, or above
            this panel if it is too long.
        width: Width of the figure in inches.
    """
    columns = max(map(len, rows))
    panels = [panel for row in rows for panel in row if isinstance(panel, Panel)]
    ends, rim = [panel.ends for panel in panels], max((panel.rim for panel in panels), default=0.0)
    ratio = sides(*framed(Figure().subplots(), ends, rim))[0] if panels else _CURVES
    side = (width / max(columns, 2) - 0.65) * ratio
    letters = max((len(line) for name in names for line in name.splitlines()), default=0)
    above = 0.065 * letters > side
    height = max(side + (0.35 if len(rows) > 1 else 0.5) + 0.15 * above, 1.0)
    figure = Figure(figsize=(width, len(rows) * height + 0.4 + 0.25 * title.count("\n")))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, cells in zip(rows, axes, strict=True):
        for panel, cell in zip_longest(row, cells):
            if panel is None:
                cell.set_axis_off()
                continue
            if not isinstance(panel, Panel):
                panel.draw(cell)
                continue
            if panel.label:
                panel = replace(panel, label=fill(panel.label, max(10, int(15 * (side + 0.3)))))
            panel.draw(cell)
            low, high = framed(cell, ends, rim)
            cell.tick_params(labelsize=7, length=2)
            if cell in axes[-1]:
                cell.set_xticks([low[0], high[0]], _written(low[0], high[0]))
                cell.set_xlabel("x", labelpad=-6)
            if cell is cells[0]:
                cell.set_yticks([low[1], high[1]], _written(low[1], high[1]))
                cell.set_ylabel("y", rotation=0, labelpad=2)
    for name, cell in zip(names, axes[:, 0], strict=False):
        if name and above:
            words = [name.replace("\n", ", "), cell.get_title(loc="left")]
            cell.set_title("\n".join(word for word in words if word))
        elif name:
            cell.set_ylabel(name, rotation=90, labelpad=2)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    return figure


def _written(low: float, high: float) -> list[str]:
    """Labels for both ends of an interval, without rounding errors."""
    return [f"{round(end / (high - low), 6) * (high - low):.2g}" for end in (low, high)]


def wrapped(panels: Sequence[_T]) -> list[list[_T]]:
    """Panels arranged in rows of at most four panels."""
    return [list(panels[k : k + 4]) for k in range(0, len(panels), 4)]


@dataclass(frozen=True)
class Above:
    """A rigid body that moves down onto a deformable block, in several samples.

    Args:
        x: Abscissas of the lower side of the rigid body, shape (n,).
        heights: Heights of this side at t = 0, shape (samples, n).
        speed: Downward speed of the rigid body.
    """

    x: np.ndarray
    heights: np.ndarray
    speed: float

    @classmethod
    def of(cls, functions: Functions) -> Above | None:
        """The body whose lower side `functions` describe; None if they do not describe a body."""
        speed, domain = functions.look.falls, functions.domain
        if speed is None or not isinstance(domain, Box) or domain.dim != 2:
            return None
        return cls(domain.points[:, -1, 0], functions.values[:, :, -1, 0], speed)

    def at(self, i: int, time: float) -> np.ndarray:
        """Outline of the lower part of the rigid body in sample `i` at a time, shape (n + 2, 2)."""
        low = self.heights[i] - self.speed * time
        top = low.max() + 0.1 * np.ptp(self.x)
        ends = np.array([[self.x[-1], top], [self.x[0], top]])
        return np.concatenate([np.stack([self.x, low], axis=-1), ends])


@dataclass(frozen=True)
class Functions:
    """Functions of several samples and their domains.

    Args:
        values: Values, shape (samples, *grid, channels).
        positions: Points of each sample, shape (samples, *grid, dim). None if all samples have the
            points of the domain.
        counts: Number of points of each sample without padding; None if there is no padding.
        near: Lower and upper ends of the part of the plane that is drawn; None for the whole
            domain.
        above: Rigid body above the domain; None if there is none.
        by: Displacements of the points, in the shape of `values`. None if `values` themselves are
            displacements, or if points are not displaced.
    """

    look: Look
    values: np.ndarray
    channels: tuple[Channel, ...]
    domain: Domain
    positions: np.ndarray | None = None
    counts: np.ndarray | None = None
    near: Ends | None = None
    above: Above | None = None
    by: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        return [channel.name for channel in distinguished(self.channels)]

    @property
    def components(self) -> dict[str, dict[float | None, int]]:
        """Channel numbers, keyed by component and then by time. The time is None for functions
        without time."""
        numbers: dict[str, dict[float | None, int]] = {}
        for number, channel in enumerate(distinguished(self.channels)):
            name = channel.component or channel.variable
            numbers.setdefault(name, {})[channel.time] = number
        return {
            component: dict(sorted(times.items(), key=lambda item: item[0] or 0.0))
            for component, times in numbers.items()
        }

    @property
    def times(self) -> list[float]:
        return sorted({t for times in self.components.values() for t in times if t is not None})

    def chosen(self, most: int) -> list[int]:
        """Numbers of the channels to draw: the first components at evenly spaced times. There are
        at most `most` channels."""
        components = [list(times.values()) for times in self.components.values()][:most]
        each = max(1, most // len(components))
        late = int(self.look.moves)  # the first displacements are too small to be seen
        return [channel for times in components for channel in few(times, each + late)[-each:]]

    def like(self, channel: int) -> list[int]:
        """Numbers of all channels of the component to which `channel` belongs. They share one
        scale."""
        return next(
            list(times.values()) for times in self.components.values() if channel in times.values()
        )

    def symbol(self, channel: int) -> str:
        """Symbol of the component to which `channel` belongs."""
        if len(self.components) == 1:
            return self.channels[channel].component or self.look.name
        return next(name for name, like in self.components.items() if channel in like.values())

    def of(self, i: int, channels: int | list[int]) -> np.ndarray:
        """Values of one sample in some channels, without padding."""
        values = self.values[i][..., channels]
        return values if self.counts is None else values[: self.counts[i]]

    def place(self, i: int) -> Domain:
        """Domain of one sample, without padding."""
        domain = self.domain if self.positions is None else self.domain.at(self.positions[i])
        if self.counts is None or not isinstance(domain, Cloud):
            return domain
        n = int(self.counts[i])
        cells = domain.cells
        if cells is not None:
            cells = cells[(cells < n).all(axis=1)]
        edge = None if domain.edge is None else domain.edge[:n]
        return Cloud((n,), domain.dim, domain.points[:n], cells, edge)

    def panel(self, i: int, channel: int, scale: Normalize | None = None, title: str = "") -> Panel:
        values = self.of(i, channel)
        place = self.moved(i, channel) if self.look.moves else self.place(i)
        time, over = self.channels[channel].time, None
        if self.above is not None and time is not None:
            over = self.above.at(i, time)
        scale = scale or self.look.scale(values)
        return Panel(place, values, self.look, scale, title, near=self.near, over=over)

    def moved(self, i: int, channel: int) -> Domain:
        """Domain of one sample, with points displaced by the displacement at the time of a channel.
        Points are not displaced if the channels lack a component of the displacement."""
        place, time = self.place(i), self.channels[channel].time
        channels = [times[time] for times in self.components.values() if time in times]
        if len(channels) != place.dim:
            return place
        moving = self if self.by is None else replace(self, values=self.by)
        x = place.points + moving.of(i, channels)
        return Curvilinear.of(x) if isinstance(place, Box) else place.at(x)

    def scale(self, channel: int) -> Normalize:
        """The colour scale of a channel's component, common to all samples and times."""
        like = self.like(channel)
        return self.look.scale(np.concatenate([
            self.of(i, like).ravel() for i in range(len(self.values))
        ]))  # fmt: skip


def few(items: Sequence[_T], most: int) -> list[_T]:
    """Evenly spaced items, at most `most`, including the first and the last. If `most` is 1, only
    the last item is returned.

    >>> few(range(10), 4), few(range(10), 1)
    ([0, 3, 6, 9], [9])
    """
    places = np.linspace(len(items) - 1, 0, min(most, len(items))).round().astype(int)[::-1]
    return [items[place] for place in places]


def in_columns(functions: Sequence[Functions], most: int, titles: Sequence[str]) -> tuple[
    list[list[Panel]], list[str]
]:  # fmt: skip
    """Rows of panels of several variables, and the names of these rows. Each sample has a column.
    Each of a few channels has a row, in which all panels share one scale."""
    rows, names = [], []
    for variable in functions:
        for channel in variable.chosen(most):
            scale = variable.scale(channel)
            row = [
                variable.panel(i, channel, scale, "" if rows else title)
                for i, title in enumerate(titles)
            ]
            labels = [*[None] * (len(row) - 1), variable.look.name]
            rows.append([replace(p, label=label) for p, label in zip(row, labels, strict=True)])
            names.append(variable.names[channel] if len(variable.names) > 1 else "")
    return rows, names
