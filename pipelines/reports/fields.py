"""A function on any domain -> a picture: curves, images, meshes and clouds, on sheets of panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, TypeVar

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.tri import Triangulation

from operators.data import Channel
from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pipelines.reports.figures import TIMES, WIDE, styled

# Light sand to dark blue: two phases are told apart in print and by colour-blind readers.
MEDIUM: Colormap = LinearSegmentedColormap.from_list("medium", ["#F3E7CB", "#8FB3B0", "#173F5F"])
_MAPS: dict[str, Colormap] = {
    "phases": MEDIUM,
    "sequential": TIMES,
    "diverging": colormaps["RdBu_r"],
    "error": colormaps["magma_r"],
}
_MOST = 160  # points of an axis that are drawn: bounds the size of a picture
_T = TypeVar("_T")
_LONG = 4.0  # sides of a domain whose quotient is larger are not drawn to one scale


@dataclass(frozen=True)
class Look:
    """How a variable is drawn.

    Args:
        name: What it is called.
        colours: Of its values.
        log: Its scale is logarithmic where positive values span many magnitudes.
        phases: Its two values, where it has just two.
        moves: Its components displace the points, and it is drawn where they are.
    """

    name: str
    colours: Literal["sequential", "diverging", "phases", "error"] = "sequential"
    log: bool = False
    phases: tuple[float, float] | None = None
    moves: bool = False

    @property
    def map(self) -> Colormap:
        return _MAPS[self.colours]

    def scale(self, field: np.ndarray, *others: np.ndarray) -> Normalize:
        """One scale of colours for all; whether it is logarithmic depends on the first."""
        low, high = float(field.min()), float(field.max())
        if self.log and 0 < 30 * low < high:
            return LogNorm(low, high)
        low = min(low, *[float(f.min()) for f in others], low)
        high = max(high, *[float(f.max()) for f in others], high)
        if self.colours == "diverging":
            size = max(abs(low), abs(high)) or 1.0
            return Normalize(-size, size)
        return Normalize(low, high)


@dataclass(frozen=True)
class Functions:
    """The functions of some samples, and where they live.

    Args:
        look: How they are drawn.
        values: Shape (samples, *grid, channels).
        channels: What the channels are.
        domain: Of all samples.
        positions: Of each sample, shape (samples, *grid, dim); None where they are the domain's.
        counts: Points of each sample, the others being padding; None where there is no padding.
    """

    look: Look
    values: np.ndarray
    channels: tuple[Channel, ...]
    domain: Domain
    positions: np.ndarray | None = None
    counts: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        """Of the channels."""
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
        """All of them, rising; empty where there is none."""
        return sorted({t for times in self.components.values() for t in times if t is not None})

    def chosen(self, most: int) -> list[int]:
        """A few channels: of each of the first components as many times, evenly chosen."""
        components = list(self.components.values())[:most]
        each = max(1, most // len(components))
        return [channel for one in components for channel in few(list(one.values()), each)]

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
        """One channel of one sample."""
        values = self.of(i, channel)
        place = self.moved(i, channel) if self.look.moves else self.place(i)
        return Panel(place, values, self.look, scale or self.look.scale(values), title)

    def moved(self, i: int, channel: int) -> Domain:
        """Where the points of one sample are, which its components displace, at a channel's time;
        where they were if components are missing."""
        place, time = self.place(i), self.channels[channel].time
        by = [times[time] for times in self.components.values() if time in times]
        if len(by) != place.dim:
            return place
        x = place.points + self.of(i, by)
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


def line(domain: Domain, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (n,) of a line in rising order, and the values (n, ...) there; at the end of a circle
    the first point is again."""
    x = domain.points[..., 0]
    if isinstance(domain, Box):
        if domain.grid == "periodic":
            return np.append(x, x[0] + domain.grids[0].length), np.concatenate([values, values[:1]])
        return x, values
    order = np.argsort(x, kind="stable")
    return x[order], values[order]


def show(
    axes: Axes, domain: Domain, values: np.ndarray, colours: Colormap | str, scale: Normalize
) -> ScalarMappable:
    """Draw values (*grid,) on a domain of two or three dimensions.

    Each point of a box is a rectangle, and nothing is smoothed; of more than 160 points of an axis
    every r-th is drawn. Between the nodes of a mesh colours are interpolated. Of a box in three
    dimensions the middle layer is drawn, and a cloud is seen along z.
    """
    axes.grid(False)
    axes.spines[:].set_visible(False)
    if isinstance(domain, Box):
        image = _show_box(axes, domain, values, colours, scale)
    elif isinstance(domain, Curvilinear):
        image = axes.pcolormesh(
            *np.moveaxis(_closed(domain.points, domain), -1, 0), _closed(values, domain),
            cmap=colours, norm=scale, shading="gouraud", rasterized=True,
        )  # fmt: skip
    else:
        image = _show_cloud(axes, domain, values, colours, scale)
    axes.set(xticks=[], yticks=[])
    _frame(axes, [domain])
    return image


def _frame(axes: Axes, domains: Sequence[Domain]) -> tuple[np.ndarray, np.ndarray]:
    """Give axes the limits that hold domains, which are returned without a rim for marks."""
    ends = [_ends(domain) for domain in domains]
    low = np.min([low for low, _ in ends], axis=0)
    high = np.max([high for _, high in ends], axis=0)
    rim = 0.0 if all(isinstance(domain, Box) for domain in domains) else 0.03 * (high - low).max()
    axes.set(xlim=(low[0] - rim, high[0] + rim), ylim=(low[1] - rim, high[1] + rim))
    axes.set_aspect("equal" if _sides(low, high)[1] else "auto")
    return low, high


def _show_box(
    axes: Axes, domain: Box, values: np.ndarray, colours: Colormap | str, scale: Normalize
) -> ScalarMappable:
    values, grids = layer(domain, values)[0], domain.grids[:2]
    every = [-(-grid.n // _MOST) for grid in grids]
    extent = [
        end
        for grid, r in zip(grids, every, strict=True)
        for x in [grid.x[::r]]
        for end in (x[0] - r * grid.spacing / 2, x[-1] + r * grid.spacing / 2)
    ]
    return axes.imshow(
        values[:: every[0], :: every[1]].T, cmap=colours, norm=scale, origin="lower",
        extent=(extent[0], extent[1], extent[2], extent[3]), interpolation="none",
    )  # fmt: skip


def _show_cloud(
    axes: Axes, domain: Domain, values: np.ndarray, colours: Colormap | str, scale: Normalize
) -> ScalarMappable:
    x = domain.points
    triangles = domain.triangles if isinstance(domain, Cloud) else None
    if triangles is not None and len(triangles):
        return axes.tripcolor(
            Triangulation(x[:, 0], x[:, 1], triangles), values, cmap=colours, norm=scale,
            shading="gouraud", rasterized=True,
        )  # fmt: skip
    order = np.argsort(x[:, -1], kind="stable") if domain.dim == 3 else np.arange(len(x))
    return axes.scatter(
        x[order, 0], x[order, 1], float(np.clip(8e3 / len(x), 2, 30)), values[order],
        cmap=colours, norm=scale, linewidths=0, rasterized=True,
    )  # fmt: skip


def layer(domain: Domain, values: np.ndarray) -> tuple[np.ndarray, str]:
    """What is drawn of a function, and in words where that is not all of it."""
    if domain.dim < 3:
        return values, ""
    if not isinstance(domain, Box):
        return values, "seen along z"
    z = domain.grids[2].x
    middle = len(z) // 2
    return values[:, :, middle], f"at z = {z[middle]:.3g}"


def _closed(values: np.ndarray, domain: Curvilinear) -> np.ndarray:
    """Values on a mesh, with the first ones again where it closes."""
    for axis, closed in enumerate(domain.closed):
        if closed:
            values = np.concatenate([values, values.take([0], axis=axis)], axis=axis)
    return values


def _ends(domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper ends of the first two axes of space."""
    if isinstance(domain, Box):
        start = np.array([grid.start for grid in domain.grids[:2]])
        return start, start + [grid.length for grid in domain.grids[:2]]
    x = domain.points.reshape(-1, domain.dim)[:, :2]
    return x.min(axis=0), x.max(axis=0)


def _sides(low: np.ndarray, high: np.ndarray) -> tuple[float, bool]:
    """Height over width of a picture, and whether that is the quotient in space."""
    width, height = (high - low).tolist()
    ratio = height / width if width > 0 else 1.0
    return (ratio, True) if 1 / _LONG <= ratio <= _LONG else (1.0, False)


def bar(image: ScalarMappable, axes: Axes, look: Look, label: str = "") -> None:
    """The colour bar of an image, at its right and as high; it may be that of others as well."""
    place = axes.inset_axes((1.04, 0.0, 0.055, 1.0))
    figure = axes.get_figure(root=True)
    assert figure is not None
    drawn = figure.colorbar(image, cax=place, label=label)
    scale = image.norm
    if look.phases is not None:
        drawn.set_ticks(list(look.phases), labels=[f"{value:.4g}" for value in look.phases])
    elif isinstance(scale, LogNorm):  # three numbers, whatever the range
        low, high = float(scale.vmin or 1), float(scale.vmax or 1)
        drawn.set_ticks([low, (low * high) ** 0.5, high])
        place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))
        place.yaxis.set_minor_formatter(NullFormatter())
    else:
        place.yaxis.set_major_locator(MaxNLocator(4))
    drawn.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    place.tick_params(labelsize=7.5, length=2)
    place.yaxis.get_offset_text().set(size=7.5, horizontalalignment="left")


@dataclass(frozen=True)
class Panel:
    """One function as it is drawn on a sheet.

    Args:
        domain, values, look, scale: What, where, and how.
        title: Above it.
        label: Of its colour bar; None for a panel without a bar.
    """

    domain: Domain
    values: np.ndarray
    look: Look
    scale: Normalize
    title: str = ""
    label: str | None = ""

    def draw(self, axes: Axes) -> None:
        image = show(axes, self.domain, self.values, self.look.map, self.scale)
        if self.label is not None:
            bar(image, axes, self.look, self.label)
        words = (self.title, layer(self.domain, self.values)[1])
        axes.set_title(", ".join(word for word in words if word))


@styled
def sheet(
    rows: Sequence[Sequence[Panel | None]],
    names: Sequence[str] = (),
    title: str = "",
    width: float = WIDE,
) -> Figure:
    """Panels in rows, all on one part of space, whose ends are written on the outer ones.

    Args:
        rows: The panels; None leaves a place empty.
        names: Of the rows, written before them.
        title: Of the picture.
        width: In inches.
    """
    columns = max(map(len, rows))
    domains = [panel.domain for row in rows for panel in row if panel]
    ratio = _sides(*_frame(Figure().subplots(), domains))[0]
    height = (width / max(columns, 2) - 0.75) * ratio + (0.35 if len(rows) > 1 else 0.5)
    height = max(height, 1.45 if any(names) else 1.0)
    figure = Figure(figsize=(width, len(rows) * height + 0.4 + 0.25 * title.count("\n")))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row, cells in zip(rows, axes, strict=True):
        for panel, cell in zip_longest(row, cells):
            if panel is None:
                cell.set_axis_off()
                continue
            panel.draw(cell)
            low, high = _frame(cell, domains)
            cell.tick_params(labelsize=7.5, length=2)
            if cell in axes[-1]:
                cell.set_xticks([low[0], high[0]], _written(low[0], high[0]))
                cell.set_xlabel("x", labelpad=-6)
            if cell is cells[0]:
                cell.set_yticks([low[1], high[1]], _written(low[1], high[1]))
                cell.set_ylabel("y", rotation=0, labelpad=2)
    for name, cell in zip(names, axes[:, 0], strict=False):
        cell.set_ylabel(name or "y", rotation=90 if name else 0, labelpad=2)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure


def _written(low: float, high: float) -> list[str]:
    """The ends of an interval, without what is rounding."""
    return [f"{round(end / (high - low), 6) * (high - low):.2g}" for end in (low, high)]


def wrapped(panels: Sequence[Panel], columns: int = 4) -> list[list[Panel]]:
    """Panels in rows of at most so many."""
    return [list(panels[k : k + columns]) for k in range(0, len(panels), columns)]


def in_columns(functions: Sequence[Functions], most: int, titles: Sequence[str]) -> tuple[
    list[list[Panel]], list[str]
]:  # fmt: skip
    """A row for each of a few channels, a column for each sample; a row has one scale of colours.

    Returns:
        The rows, and their names where a variable has several channels.
    """
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
