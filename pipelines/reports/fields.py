"""Pictures of functions on all kinds of domains: curves, images, meshes and point clouds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from textwrap import fill
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from operators.data import Channel, distinguished
from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pdegen.store.format import SurfaceCurve
from pipelines.reports.figures import TIMES, WIDE, colour_bar, legend, styled
from pipelines.reports.palette import MODEL, QUIET, TRUTH

# Light sand to dark blue: the phases differ in print and for colour-blind readers.
MEDIUM: Colormap = LinearSegmentedColormap.from_list("medium", ["#F3E7CB", "#8FB3B0", "#173F5F"])
_MAPS: dict[str, Colormap] = {
    "phases": MEDIUM,
    "sequential": TIMES,
    "diverging": colormaps["RdBu_r"],
    "error": colormaps["magma_r"],
}
_MOST = 160  # points drawn along an axis: bounds the size of a picture
RIM = 0.03  # margin around a mesh, as a fraction of its longest side
_LEVELS = 16  # contour lines
Ends = tuple[np.ndarray, np.ndarray]  # lower and upper, of the first two axes of space
_LONG = 4.0  # domains of a larger aspect ratio are not drawn with equal axes


@dataclass(frozen=True)
class Look:
    """How a variable is drawn.

    Args:
        name: Symbol or name.
        log: Whether the scale may be logarithmic. It is logarithmic if all values are positive and
            the largest exceeds 30 times the smallest.
        phases: The two values of a two-phase medium; None for other variables.
        moves: Whether the components are displacements. They are drawn at the displaced points.
        contours: Whether contour lines are drawn.
        along: Scaling of the values drawn along the surfaces of bodies; None to omit these values.
        falls: Downward speed of a rigid body. The variable is the height of the lower side of this
            body at t = 0. None for other variables.
    """

    name: str
    colours: Literal["sequential", "diverging", "phases", "error"] = "sequential"
    log: bool = False
    phases: tuple[float, float] | None = None
    moves: bool = False
    contours: bool = False
    along: SurfaceCurve | None = None
    falls: float | None = None

    @property
    def map(self) -> Colormap:
        return _MAPS[self.colours]

    def scale(self, field: np.ndarray, *others: np.ndarray) -> Normalize:
        """The common colour scale of several arrays. Whether the scale is logarithmic depends only
        on `field`."""
        low, high = float(field.min()), float(field.max())
        if self.log and 0 < 30 * low < high:
            return LogNorm(low, high, clip=True)  # predictions may be negative
        low = min(low, *[float(f.min()) for f in others], low)
        high = max(high, *[float(f.max()) for f in others], high)
        if self.colours == "diverging":
            size = max(abs(low), abs(high)) or 1.0
            return Normalize(-size, size)
        return Normalize(low, high)


def line(domain: Domain, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (n,) of a one-dimensional domain in ascending order, and the values (n, ...) at these
    points. On a circle, the first point is repeated at the end."""
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

    On a box, each point is a rectangle without smoothing; with more than 160 points along an axis,
    points are skipped. On a mesh, colours are interpolated between the nodes. Of a
    three-dimensional box, the middle layer is drawn. A point cloud is viewed along the z axis.
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
    framed(axes, [ends_of(domain)], 0.0 if isinstance(domain, Box) else RIM)
    return image


def framed(axes: Axes, ends: Sequence[Ends], rim: float) -> Ends:
    """Set the limits of axes so that they contain all domains and a margin. Returns the limits
    without the margin.

    Args:
        ends: Lower and upper ends of each domain.
        rim: Width of the margin, as a fraction of the longest side.
    """
    low = np.min([low for low, _ in ends], axis=0)
    high = np.max([high for _, high in ends], axis=0)
    rim *= (high - low).max()
    axes.set(xlim=(low[0] - rim, high[0] + rim), ylim=(low[1] - rim, high[1] + rim))
    axes.set_aspect("equal" if sides(low, high)[1] else "auto")
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


def contours(axes: Axes, domain: Domain, values: np.ndarray, scale: Normalize) -> None:
    """Draw contour lines of values, shape (*grid,), on a plane box or mesh, or on a cloud with
    cells."""
    low, high = float(scale.vmin or 0.0), float(scale.vmax or 1.0)
    levels = MaxNLocator(_LEVELS).tick_values(low, high)[1:-1]
    if domain.dim != 2 or not values.min() < values.max():
        return
    style: dict[str, Any] = {"levels": levels, "colors": "white", "linewidths": 0.4}
    if isinstance(domain, Cloud):
        triangles = domain.triangles
        if triangles is not None and len(triangles):
            x, y = domain.points.T
            axes.tricontour(Triangulation(x, y, triangles), values, **style)
        return
    points = domain.points
    if isinstance(domain, Curvilinear):
        points, values = _closed(points, domain), _closed(values, domain)
    axes.contour(points[..., 0], points[..., 1], values, **style)


def layer(domain: Domain, values: np.ndarray) -> tuple[np.ndarray, str]:
    """The part of a function that is drawn, and text that describes the view. In fewer than three
    dimensions, all values are drawn and the text is empty."""
    if domain.dim < 3:
        return values, ""
    if not isinstance(domain, Box):
        return values, "seen along z"
    z = domain.grids[2].x
    middle = len(z) // 2
    return values[:, :, middle], f"at z = {z[middle]:.3g}"


def _closed(values: np.ndarray, domain: Curvilinear) -> np.ndarray:
    """Values on a mesh. Along closed axes, the first values are repeated at the end."""
    for axis, closed in enumerate(domain.closed):
        if closed:
            values = np.concatenate([values, values.take([0], axis=axis)], axis=axis)
    return values


def ends_of(domain: Domain) -> Ends:
    """Lower and upper ends of a domain along the first two space axes."""
    if isinstance(domain, Box):
        start = np.array([grid.start for grid in domain.grids[:2]])
        return start, start + [grid.length for grid in domain.grids[:2]]
    x = domain.points.reshape(-1, domain.dim)[:, :2]
    return x.min(axis=0), x.max(axis=0)


def sides(low: np.ndarray, high: np.ndarray) -> tuple[float, bool]:
    """Ratio of height to width of a picture, and whether the domain has the same ratio."""
    width, height = (high - low).tolist()
    ratio = height / width if width > 0 else 1.0
    return (ratio, True) if 1 / _LONG <= ratio <= _LONG else (1.0, False)


def bar(image: ScalarMappable, axes: Axes, look: Look, label: str = "") -> None:
    """Draw the colour bar of an image to its right, with the same height."""
    inset = axes.inset_axes((1.04, 0.0, 0.055, 1.0))
    figure = axes.get_figure(root=True)
    assert figure is not None
    drawn = colour_bar(figure, image, cax=inset)
    drawn.set_label(label, labelpad=4)
    if look.phases is not None:
        mark_phases(drawn, look.phases)
    elif not isinstance(image.norm, LogNorm):
        inset.yaxis.set_major_locator(MaxNLocator(4))
    inset.tick_params(labelsize=7, length=2)
    inset.yaxis.get_offset_text().set(size=7, horizontalalignment="left")


def mark_phases(bar: Colorbar, phases: tuple[float, float]) -> None:
    """Make the values of two phases the ticks of a colour bar."""
    bar.set_ticks(list(phases), labels=[f"{value:.4g}" for value in phases])
    bar.minorticks_off()


Loop = Int[np.ndarray, " n"]  # numbers of points of a closed curve, in order


def bodies(domain: Domain) -> list[Loop]:
    """Boundaries of the holes of a mesh: all its boundary loops except the outer one.

    Points at the same position count as one point. Therefore a cut, such as that of a C-grid behind
    its aerofoil, is not a boundary. If boundary loops touch each other, the result is empty.

    >>> around = 2 * np.pi * np.arange(8) / 8
    >>> circle = np.stack([np.cos(around), np.sin(around)], axis=-1)
    >>> ring = Curvilinear.of(np.stack([circle, 2 * circle]), (False, True))
    >>> [sorted(loop.tolist()) for loop in bodies(ring)]
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    cells = _cells(domain)
    if cells is None or not len(cells):
        return []
    points = domain.points.reshape(-1, 2)
    _, first, same = np.unique(points, axis=0, return_index=True, return_inverse=True)
    loops = [first[loop] for loop in _loops(same.reshape(-1)[cells])]
    sizes = [_area(points[loop]) for loop in loops]
    return [loop for loop, size in zip(loops, sizes, strict=True) if size < max(sizes)]


def _cells(domain: Domain) -> Int[np.ndarray, "cells corners"] | None:
    """Point numbers of the corners of each cell, in order around the cell."""
    if isinstance(domain, Curvilinear) and domain.dim == 2:
        number = np.arange(np.prod(domain.shape)).reshape(domain.shape)
        for axis, closed in enumerate(domain.closed):
            if closed:
                number = np.concatenate([number, number.take([0], axis=axis)], axis=axis)
        corners = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
        return np.stack(corners, axis=-1).reshape(-1, 4)
    if isinstance(domain, Cloud) and domain.dim == 2 and domain.cells is not None:
        return np.where(domain.cells < 0, domain.cells[:, :1], domain.cells)
    return None


def _loops(cells: Int[np.ndarray, "cells corners"]) -> list[Loop]:
    """Closed curves formed by the edges that belong to only one cell."""
    edges = np.sort(np.stack([cells, np.roll(cells, -1, axis=1)], axis=-1).reshape(-1, 2), axis=1)
    unique, counts = np.unique(edges[edges[:, 0] < edges[:, 1]], axis=0, return_counts=True)
    beside = defaultdict[int, list[int]](list)
    for a, b in unique[counts == 1].tolist():
        beside[a].append(b)
        beside[b].append(a)
    if any(len(ends) != 2 for ends in beside.values()):
        return []
    loops = list[Loop]()
    while beside:
        loop, point = list[int](), next(iter(beside))
        while point in beside:
            loop.append(point)
            before, after = beside.pop(point)
            point = before if before in beside else after
        loops.append(np.array(loop))
    return loops


def _area(polygon: Float[np.ndarray, "n 2"]) -> float:
    x, y = polygon.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


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
        axes.set_title("\n".join(word for word in words if word))


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
    for name, cells in zip(names, axes, strict=False):
        cell, titles = cells[0], [cell.get_title(loc="left").splitlines() for cell in cells]
        if name and above:  # above all titles of the row
            free = max(map(len, titles)) - len(titles[0])
            cell.set_title("\n".join([name.replace("\n", ", "), *[""] * free, *titles[0]]))
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
        """Channel numbers, keyed by component and then by time."""
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


_COLUMNS = 4  # times in a picture
_LINES = 6  # mesh lines across the shorter side


def curves_along(
    truth: Functions, numbers: Sequence[int], predicted: np.ndarray | None = None
) -> list[Curves]:
    """Curves of the first channel along the surfaces of bodies. Each sample has its own panel."""
    scaling = truth.look.along
    assert scaling is not None
    panels = []
    for i in numbers:
        domain, lines = truth.place(i), []
        for loop in bodies(domain):
            loop = np.append(loop, loop[0])
            x = domain.points.reshape(-1, domain.dim)[loop, 0]
            drawn = [(truth.values, TRUTH, "-", "truth")]
            if predicted is not None:
                drawn.append((predicted, MODEL, "--", "prediction"))
            for values, ink, dashes, name in drawn:
                v = replace(truth, values=values).of(i, 0).reshape(-1)[loop]
                lines.append((x, (v - scaling.offset) / scaling.scale, ink, dashes, name))
        panels.append(Curves(lines, label="" if panels else scaling.symbol))
    return panels


def along(truth: Functions, predicted: np.ndarray, titles: Mapping[str, int]) -> Figure:
    """Truth and prediction along the surfaces of bodies. `titles` maps the title of each panel to
    the position of its sample in `truth`."""
    curves = curves_along(truth, list(titles.values()), predicted)
    panels = [replace(panel, title=title) for panel, title in zip(curves, titles, strict=True)]
    return sheet([[replace(panels[0], named=True), *panels[1:]]])


@styled
def deformed(truth: Functions, predicted: np.ndarray, samples: Mapping[str, int]) -> Figure:
    """True and predicted deformed blocks below the rigid body, at a few times."""
    assert isinstance(truth.domain, Box)
    assert truth.above is not None
    times = few(truth.times, _COLUMNS + 1)[-_COLUMNS:]
    prediction = replace(truth, values=predicted)
    last = next(iter(truth.components.values()))[times[-1]]
    x = np.concatenate([blocks.moved(i, last).points.reshape(-1, 2)
                        for blocks in (truth, prediction) for i in samples.values()])  # fmt: skip
    (low, bottom), (high, top) = x.min(axis=0), [x[:, 0].max(), truth.above.heights.max()]
    height = WIDE / len(times) * (top - bottom) / (high - low) + 0.35
    figure = Figure(figsize=(WIDE, 0.6 + height * len(samples)))
    axes = figure.subplots(len(samples), len(times), squeeze=False, sharex=True, sharey=True)
    for time, cell in zip(times, axes[0], strict=True):
        cell.set_title(f"t = {time:g}")
    for row, (name, i) in zip(axes, samples.items(), strict=True):
        row[0].set_ylabel(name)
        for cell, time in zip(row, times, strict=True):
            channel = next(iter(truth.components.values()))[time]
            cell.fill(*truth.above.at(i, time).T, facecolor=QUIET, edgecolor="none")
            x = truth.moved(i, channel).points
            cell.fill(*_around(x).T, facecolor=BODY, edgecolor=TRUTH, lw=0.8)
            _lines(cell, prediction.moved(i, channel).points)
            cell.set(xlim=(low, high), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[])
            cell.grid(False)
            cell.spines[:].set_visible(False)
    first = axes[0, 0]
    first.fill([], [], facecolor=BODY, edgecolor=TRUTH, lw=0.8, label="truth")
    first.plot([], [], color=MODEL, lw=0.7, label="prediction p")
    legend(figure, first)
    return figure


def _around(x: np.ndarray) -> np.ndarray:
    """The boundary points of a plane grid x, shape (n, m, 2), in the order along the boundary."""
    return np.concatenate([x[:, 0], x[-1, 1:], x[-2::-1, -1], x[0, -2:0:-1]])


def _lines(axes: Axes, x: np.ndarray) -> None:
    """Draw a few lines of a plane grid x, shape (n, m, 2), including the outermost lines."""
    n, m = x.shape[:2]
    for k in few(range(m), _LINES):
        axes.plot(*x[:, k].T, color=MODEL, lw=0.7)
    for k in few(range(n), max(2, _LINES * n // m)):
        axes.plot(*x[k].T, color=MODEL, lw=0.7)
