"""Pictures of functions on all kinds of domains: curves, images, meshes and point clouds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pdegen.store.format import SurfaceCurve
from pipelines.reports.figures import TIMES, colour_bar

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
    """Point numbers of the corners of each cell, in order around the cell. None if the domain is
    not a plane mesh."""
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
