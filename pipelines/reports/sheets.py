"""Functions of some samples -> panels on sheets, of one scale where they are compared."""

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

from operators.data import Channel
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
    """One function as it is drawn on a sheet.

    Args:
        label: Of its colour bar; None for a panel without a bar.
        over: Outline of a body beside.
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
        """Of the frame, in shares of its longest side."""
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
    """Curves on a sheet, in a place of a panel."""

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
        axes.tick_params(labelsize=7.5)
        if self.named:
            axes.legend(fontsize=7.5)


@styled
def sheet(
    rows: Sequence[Sequence[Panel | Curves | None]],
    names: Sequence[str] = (),
    title: str = "",
    width: float = WIDE,
) -> Figure:
    """Panels in rows, all on one part of space, whose ends are written on the outer ones.

    Args:
        rows: The panels, and curves among them; None leaves a place empty.
    """
    columns = max(map(len, rows))
    panels = [panel for row in rows for panel in row if isinstance(panel, Panel)]
    ends, rim = [panel.ends for panel in panels], max((panel.rim for panel in panels), default=0.0)
    ratio = sides(*framed(Figure().subplots(), ends, rim))[0] if panels else _CURVES
    height = (width / max(columns, 2) - 0.75) * ratio + (0.35 if len(rows) > 1 else 0.5)
    height = max(height, 1.45 if any(names) else 1.0)
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
                panel = replace(panel, label=fill(panel.label, max(10, int(14 * height))))
            panel.draw(cell)
            low, high = framed(cell, ends, rim)
            cell.tick_params(labelsize=7.5, length=2)
            if cell in axes[-1]:
                cell.set_xticks([low[0], high[0]], _written(low[0], high[0]))
                cell.set_xlabel("x", labelpad=-6)
            if cell is cells[0]:
                cell.set_yticks([low[1], high[1]], _written(low[1], high[1]))
                cell.set_ylabel("y", rotation=0, labelpad=2)
    for name, cell in zip(names, axes[:, 0], strict=False):
        if name:
            cell.set_ylabel(name, rotation=90, labelpad=2)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


def _written(low: float, high: float) -> list[str]:
    """The ends of an interval, without what is rounding."""
    return [f"{round(end / (high - low), 6) * (high - low):.2g}" for end in (low, high)]


def wrapped(panels: Sequence[_T]) -> list[list[_T]]:
    """Panels in rows of at most four."""
    return [list(panels[k : k + 4]) for k in range(0, len(panels), 4)]


@dataclass(frozen=True)
class Above:
    """A rigid body over what moves, in each of some samples; it comes down.

    Args:
        heights: Of its lower side there at t = 0, shape (samples, n).
    """

    x: np.ndarray
    heights: np.ndarray
    speed: float

    @classmethod
    def of(cls, functions: Functions) -> Above | None:
        """That whose lower side these functions are; None where they are of no body."""
        speed, domain = functions.look.falls, functions.domain
        if speed is None or not isinstance(domain, Box) or domain.dim != 2:
            return None
        return cls(domain.points[:, -1, 0], functions.values[:, :, -1, 0], speed)

    def at(self, i: int, time: float) -> np.ndarray:
        """Its outline (n, 2) over a sample; up to a little above its lower side."""
        low = self.heights[i] - self.speed * time
        top = low.max() + 0.1 * np.ptp(self.x)
        ends = np.array([[self.x[-1], top], [self.x[0], top]])
        return np.concatenate([np.stack([self.x, low], axis=-1), ends])


@dataclass(frozen=True)
class Functions:
    """The functions of some samples, and where they live.

    Args:
        values: Shape (samples, *grid, channels).
        positions: Of each sample, shape (samples, *grid, dim); None where they are the domain's.
        counts: Points of each sample, the others being padding; None where there is no padding.
        near: Lower and upper ends of the part of the plane that is drawn; None for all.
        by: What displaces the points; None for the values themselves.
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
        return [channel.name for channel in self.channels]

    @property
    def components(self) -> dict[str, dict[float | None, int]]:
        """Channels by component and time, which is None where there is one function for all."""
        found: dict[str, dict[float | None, int]] = {}
        for number, one in enumerate(self.channels):
            found.setdefault(one.component or one.variable, {})[one.time] = number
        return {
            component: dict(sorted(times.items(), key=lambda one: one[0] or 0.0))
            for component, times in found.items()
        }

    @property
    def times(self) -> list[float]:
        return sorted({t for times in self.components.values() for t in times if t is not None})

    def chosen(self, most: int) -> list[int]:
        """A few channels: of each of the first components as many times, evenly chosen."""
        components = [list(times.values()) for times in self.components.values()][:most]
        each = max(1, most // len(components))
        late = int(self.look.moves)  # points that have hardly moved are seen in no colour
        return [channel for one in components for channel in few(one, each + late)[-each:]]

    def like(self, channel: int) -> list[int]:
        """The channels of its component, which have one scale."""
        return next(
            list(times.values()) for times in self.components.values() if channel in times.values()
        )

    def of(self, i: int, channels: int | list[int]) -> np.ndarray:
        """Values of one sample without padding."""
        values = self.values[i][..., channels]
        return values if self.counts is None else values[: self.counts[i]]

    def place(self, i: int) -> Domain:
        """Where one sample lives, without padding."""
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
        """Where the points of one sample are, which its components displace, at a channel's time;
        where they were if components are missing."""
        place, time = self.place(i), self.channels[channel].time
        channels = [times[time] for times in self.components.values() if time in times]
        if len(channels) != place.dim:
            return place
        moving = self if self.by is None else replace(self, values=self.by)
        x = place.points + moving.of(i, channels)
        return Curvilinear.of(x) if isinstance(place, Box) else place.at(x)

    def scale(self, channel: int) -> Normalize:
        """One scale for a component in all samples, at all times."""
        like = self.like(channel)
        return self.look.scale(np.concatenate([
            self.of(i, like).ravel() for i in range(len(self.values))
        ]))  # fmt: skip


def few(of: Sequence[_T], most: int) -> list[_T]:
    """At most so many, evenly chosen, with both ends; one is the last.

    >>> few(range(10), 4), few(range(10), 1)
    ([0, 3, 6, 9], [9])
    """
    places = np.linspace(len(of) - 1, 0, min(most, len(of))).round().astype(int)[::-1]
    return [of[place] for place in places]


def in_columns(functions: Sequence[Functions], most: int, titles: Sequence[str]) -> tuple[
    list[list[Panel]], list[str]
]:  # fmt: skip
    """A row for each of a few channels, a column for each sample; a row has one scale of
    colours."""
    rows, names = [], []
    for one in functions:
        for channel in one.chosen(most):
            scale = one.scale(channel)
            row = [
                one.panel(i, channel, scale, "" if rows else word) for i, word in enumerate(titles)
            ]
            bars = [*[None] * (len(row) - 1), one.look.name]
            rows.append([replace(p, label=b) for p, b in zip(row, bars, strict=True)])
            names.append(one.names[channel] if len(one.names) > 1 else "")
    return rows, names
