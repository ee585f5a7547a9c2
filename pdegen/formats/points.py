"""The points and times of files that the user describes: those that the files have, meshes, clouds
and masks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pdegen.formats.arrays import MESH, Array, Contents, FormatError, printable
from pdegen.formats.plan import SPACE, FieldPlan, ImportOptions, Plan, View, Window, box
from pdegen.store.layout import Coordinate, positions, times

POINTS = ("point", *SPACE)  # names of the axes of points in descriptions
MESH_AXES = {"cloud": {"x": "point"}, "curvilinear": {"x": "i", "y": "j"}}
Axes = tuple[str, ...]


# Positions and times. They are those of the file if it has them.

_AXIS_NAMES = {
    "sample": r"samples?|batch|trajector(y|ies)|runs?|realizations?|members?|ensemble|n_?samples",
    "time": r"t|tt|ts|times?|t[-_ ]?coord(inate)?s?|time[-_ ]?steps?|t_?(axis|grid|span)|t_?star",
    "channel": r"channels?|components?|variables?|features?",
    "point": r"points?|n_?points|nodes?|n_?nodes",
    "x": r"x|xs|xx|x[-_ ]?coord(inate)?s?|x_?(axis|grid|points)|grid_?x|lon(gitude)?s?",
    "y": r"y|ys|yy|y[-_ ]?coord(inate)?s?|y_?(axis|grid|points)|grid_?y|lat(itude)?s?",
    "z": r"z|zs|zz|z[-_ ]?coord(inate)?s?|z_?(axis|grid|points)|grid_?z|levels?|depth|altitude",
}
_ONE_AXIS = r"grid|points|positions|coord(inate)?s?|mesh"  # of x, if there is no other axis
POINT_ARRAYS = r"points?|nodes?|positions?|pos|coord(inate)?s?|xyz?|mesh|x_?star|vertices|grid"


def axis_of(name: str, only_x: bool = False) -> str | None:
    """The axis of stores that an array or axis of a file with this name stands for, if any.

    >>> axis_of("grid/x-coordinate"), axis_of("lat"), axis_of("grid"), axis_of("grid", only_x=True)
    ('x', 'y', None, 'x')
    """
    last = name.rpartition("/")[2].lower()
    if only_x and re.fullmatch(_ONE_AXIS, last):
        return "x"
    for axis, pattern in _AXIS_NAMES.items():
        if re.fullmatch(pattern, last):
            return axis
    return None


@dataclass(frozen=True)
class PlacedPoints:
    """The points of a plan, and how its variables lie on them."""

    domain: Domain
    backwards: Axes = ()  # axes of the file that fall, and are read in reverse order
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # other names of axes
    geometry: tuple[FieldPlan, ...] = ()  # positions that differ from sample to sample
    words: tuple[str, ...] = ()  # where the points come from
    arrays: Axes = ()  # names of the arrays with positions


class Places:
    """The positions and times along the axes of described files: those of the file, if it has
    them.

    Attributes:
        lines: Name and values of the array with the positions along each axis (`_along`).
        inferred: The axes of the target if neither the file nor an option names them.

    Raises:
        FormatError: See `_along`. Also if a length is given for an axis that is absent, or whose
            positions are known.
    """

    def __init__(
        self, files: Sequence[Contents], options: ImportOptions, sizes: Mapping[str, int],
        axes: Mapping[str, Axes],
    ) -> None:  # fmt: skip
        self.files, self.options, self.sizes = files, options, sizes
        dims, target = files[0].dims, options.targets[0]
        self.inferred = () if target in dims or options.target_axes else axes[target]
        dimensions = {
            axis: dim for key in axes
            for axis, dim in zip(axes[key], dims.get(key, ()), strict=False)
        }  # fmt: skip
        order = tuple(axis for axis in axes[target] if axis in POINTS)
        on_grid = options.grid not in MESH_AXES
        self.lines = {
            axis: _along(files, axis, sizes, order, dimensions.get(axis, ""), options)
            for axis in sizes if on_grid or axis == "time"
        }  # fmt: skip
        for axis, length in options.lengths.items():
            name, x = self.lines.get(axis, ("", None))
            if axis not in self.lines or axis == "time":
                known = ", ".join(axis for axis in self.lines if axis != "time")
                raise FormatError(f"--length {axis}: there is no such axis, known are {known}")
            if x is not None:
                raise FormatError(
                    f"--length {axis}={length:g}: its positions are those of {name}: leave the "
                    f"length out, or give --coordinate {axis}=none"
                )

    @property
    def arrays(self) -> Axes:
        """Names of the arrays of the file that have positions or times."""
        return tuple(name for name, x in self.lines.values() if x is not None)

    def check_inferred(self, array: Array) -> None:
        """Raise FormatError if the file has positions along some axes of space and none along the
        last one, which was inferred: it may be channels or times."""
        known = [axis for axis, (_, x) in self.lines.items() if axis != "time" and x is not None]
        if self.options.coordinates or self.options.lengths:
            return
        axis = ["", *(axis for axis in self.lines if axis != "time")][-1]
        if known and axis not in known:
            raise FormatError(
                f"{array.where} {array.shape}: the file has positions along {', '.join(known)}, "
                f"and none along a further axis of {self.sizes[axis]} points: name the axes by "
                f"--input-axes and --target-axes, or give --coordinate {axis}=none"
            )

    def box(self) -> PlacedPoints:
        """The box of the positions. A nodal grid whose points are not at equal distances is a
        curvilinear mesh."""
        kind = str(self.options.grid)
        points = {a: x for a, (_, x) in self.lines.items() if a != "time" and x is not None}
        backwards = tuple(axis for axis, x in points.items() if x[0] > x[-1])
        points |= {axis: points[axis][::-1] for axis in backwards}
        sizes = {axis: n for axis, n in self.sizes.items() if axis != "time"}
        uneven = [axis for axis, x in points.items() if _is_uneven(x)]
        if not uneven or {*kind.split(",")} != {"nodal"}:
            return PlacedPoints(box(kind, sizes, points, self.options.lengths), backwards)
        if len(sizes) > 2:
            raise FormatError(
                f"the points along {uneven[0]} ({self.lines[uneven[0]][0]}) do not rise by equal "
                "steps, and a mesh has one or two axes: give --grid cloud and --points"
            )
        for axis in uneven:
            if not (np.diff(points[axis]) > 0).all():
                raise FormatError(
                    f"the points along {axis} ({self.lines[axis][0]}) neither rise nor fall: sort "
                    f"them, or give --coordinate {axis}=none"
                )
        even = {axis: x for axis, x in points.items() if axis not in uneven}
        unit = box(kind, sizes, even, self.options.lengths)
        axes = [points.get(a, grid.x) for a, grid in zip(sizes, unit.grids, strict=True)]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        words = f"{' and '.join(uneven)} rise by unequal steps: the points are a mesh"
        names = MESH_AXES["curvilinear"]
        return PlacedPoints(Curvilinear.of(nodes), backwards, names, words=(words,))

    def times(self, same: bool, window: Window | None) -> tuple[Coordinate, ...]:
        """The coordinate of the times of the target, if it has times."""
        count = self.sizes.get("time", 0)
        if not count:
            return ()
        moments, where = self.options.moments, "--times"
        if moments is None:
            where, moments = self.lines["time"]
        values = np.arange(count) if moments is None else np.asarray(moments, float)
        if values.shape != (count,) or not (np.diff(values) > 0).all():
            raise FormatError(f"{where}: {count} times are needed, each later than the one before")
        if window is None:
            return (times(values[1:] if same else values),)
        if _is_uneven(values):
            raise FormatError(f"{where}: windows of the times need equal steps between these")
        return (times(values[1 : window.length] - values[0]),)

    def with_units(self, coordinate: Coordinate) -> Coordinate:
        """A coordinate with the units that the file gives. Of "hours since 2000-01-01", the date
        and its calendar are attributes of their own: the values stay numbers."""
        attributes, name = self.files[0].attributes, self.lines.get(coordinate.name, ("",))[0]
        units, _, date = str(attributes.get(f"{name}@units", "")).partition(" since ")
        calendar = attributes.get(f"{name}@calendar", "standard")
        given = {"units": units} if units else {}
        if date and self.options.window is None:
            given |= {"since": date, "of_calendar": str(calendar)}
        own = {key: printable(value) for key, value in given.items()}
        return replace(coordinate, attributes={**coordinate.attributes, **own})

    def words(self) -> list[str]:
        """The positions and times that are those of the file, and those that are assumed, for
        people."""
        read = [f"{axis} from {name}" for axis, (name, x) in self.lines.items() if x is not None]
        assumed = [
            "times are counted" if axis == "time" else f"{axis} from 0 to 1"
            for axis, (_, x) in self.lines.items()
            if x is None and axis not in self.options.lengths
            and not (axis == "time" and self.options.moments is not None)
        ]  # fmt: skip
        parts = [", ".join(read)] if read else []
        if len({*self.inferred} & {*SPACE}) > 1:
            parts.append(f"axes taken as {', '.join(self.inferred)}")
        if assumed:
            parts.append(
                f"assumed, because the file does not say: {', '.join(assumed)} (--coordinate, "
                "--length and --times give others)"
            )
        return parts


def _is_uneven(x: np.ndarray) -> bool:
    """Whether numbers do not rise by equal steps, within their rounding, to float32 if they are
    such numbers."""
    steps = np.diff(x)
    kind = np.float32 if np.array_equal(x.astype(np.float32), x) else np.float64
    rounding = 8 * np.finfo(kind).eps * np.abs(x).max()
    return bool(len(x) > 2 and np.ptp(steps) > 1e-3 * np.abs(steps).mean() + rounding)


def _along(
    files: Sequence[Contents],
    axis: str,
    sizes: Mapping[str, int],
    order: Axes,
    dimension: str,
    options: ImportOptions,
) -> tuple[str, np.ndarray | None]:
    """The name and the values of the array with the positions along an axis.

    The array is that of `options.coordinates`, or the one with the name `dimension` of the axis in
    the file. Otherwise it is one whose name stands for the axis (`axis_of`) and whose shape fits: a
    line, or a mesh that is constant along the other axes. The values are None if there is no such
    array, or if `options.coordinates` is "none" for the axis.

    Raises:
        FormatError: If the named array does not fit, if an array fits another axis instead, if
            several arrays fit and differ, or if the files differ.
    """
    given = options.coordinates.get(axis)
    if given == "none":
        return "", None
    if given is None and dimension in files[0].arrays:
        given = dimension
    only_x = [name for name in sizes if name != "time"] == ["x"]
    taken = {*options.inputs, *options.targets}
    lines: dict[str, np.ndarray] = {}
    for name in files[0].arrays:
        wanted = name == given if given else axis_of(name, only_x) == axis and name not in taken
        if wanted and (values := _line(files, name, axis, sizes, order)) is not None:
            lines[name] = values
    if given and not lines:
        array = files[0].array(given)
        raise FormatError(
            f"--coordinate {axis}={given}: {array.where} {array.shape} does not have the "
            f"{sizes[axis]} positions along {axis}"
        )
    if not lines:
        others = {n: other for other, n in sizes.items() if other != axis}
        for name, array in files[0].arrays.items():
            n = math.prod(array.shape)
            if axis_of(name, only_x) == axis and n == max(array.shape, default=0) and n in others:
                raise FormatError(
                    f"{array.where} has {n} positions, as many as there are along {others[n]}, but "
                    f"{sizes[axis]} are needed along {axis}: name the axes in their order by "
                    "--input-axes and --target-axes"
                )
        return "", None
    name, values = next(iter(lines.items()))
    if any(not np.array_equal(values, other) for other in lines.values()):
        raise FormatError(
            f"{files[0].path.name}: {' and '.join(lines)} both fit the axis {axis}: give one by "
            f"--coordinate {axis}=NAME"
        )
    return name, values


def _line(
    files: Sequence[Contents], name: str, axis: str, sizes: Mapping[str, int], order: Axes
) -> np.ndarray | None:
    """The positions along an axis that an array of all files has; None if its shape does not fit.
    Raises FormatError if they are no numbers, differ, or vary along another axis of a mesh.

    Args:
        files: The files.
        name: Name of the array.
        axis: The axis.
        sizes: Number of points along each axis.
        order: The axes of space in the order in which the files have them.
    """
    n, space = sizes[axis], [size for name, size in sizes.items() if name != "time"]
    lines = list[np.ndarray]()
    if any(name not in file.arrays for file in files):
        return None
    for array in [part for file in files for part in file.parts(name)]:
        if math.prod(array.shape) not in (n, math.prod(space)):
            return None
        values = array.values().squeeze()
        if values.dtype.kind == "c":
            raise FormatError(f"{array.where} has complex numbers, which are no positions")
        values = values.astype(float)
        if values.ndim > 1:  # a mesh whose positions along this axis are the same on each line
            meshes = [np.moveaxis(values, k, 0).reshape(len_k, -1)
                      for k, len_k in enumerate(values.shape)]  # fmt: skip
            along = [k for k, m in enumerate(meshes) if (m == m[:, :1]).all()]
            fits = values.shape == tuple(sizes[a] for a in order) and axis in order
            if along and (not fits or along != [order.index(axis)]):
                raise FormatError(
                    f"{array.where} {array.shape} varies along its axis {along[0] + 1}, which is "
                    f"not that of {axis}: name the axes in their order by --input-axes and "
                    f"--target-axes, or give --coordinate {axis}=none"
                )
            values = meshes[along[0]][:, 0] if along else values
        if values.shape != (n,):
            return None
        if not np.isfinite(values).all():
            raise FormatError(f"{array.where} has positions that are not finite numbers")
        lines.append(values)
    if any(not np.array_equal(line, lines[0]) for line in lines):
        raise FormatError(
            f"{name} differs between the files or samples: they cannot be joined, unless it is "
            f"left out by --coordinate {axis}=none"
        )
    return lines[0]


def meshed(files: Sequence[Contents], options: ImportOptions, target: FieldPlan) -> PlacedPoints:
    """The mesh or cloud of the points of described files.

    The positions are those of `options.points`, an array with the positions along all axes; or
    those of `options.coordinates`, one array for each axis. Otherwise they are those of an array
    whose name and shape fit. They may differ from sample to sample.

    Raises:
        FormatError: If there are no positions, or if positions, cells or edges do not fit.
    """
    names = MESH_AXES[str(options.grid)]
    axes = tuple(names[axis] for axis in SPACE if names.get(axis) in (*target.dims,))
    sizes = {axis: n for axis, n in zip(target.dims, target.shape, strict=True) if axis in axes}
    found = _positions(files, sizes, target, options)
    if len(axes) > 1 and len(found) != len(axes):
        raise FormatError(
            f"a mesh of {len(axes)} axes has positions along as many, got {', '.join(found)}"
        )
    arrays = tuple(dict.fromkeys(views[0].array.name for views in found.values()))
    cells, edge, of_cells = _cells(files, options, sizes)
    size, dim = tuple(sizes.values()), len(found)
    moves = any("sample" in views[0].axes for views in found.values())
    lines = {
        axis: [replace(view, window=None).read(0, 1)[0] for view in views]
        for axis, views in found.items() if not moves
    }  # fmt: skip
    moves = moves or any(len({x.tobytes() for x in parts}) > 1 for parts in lines.values())
    points = None if moves else np.stack([first for first, *_ in lines.values()], axis=-1)
    if points is not None and not np.isfinite(points).all():
        raise FormatError(f"{', '.join(arrays)} has positions that are not finite numbers")
    try:
        domain: Domain = (
            Cloud(size, dim, points, cells, edge)
            if options.grid == "cloud"
            else Curvilinear(size, dim, points)
        )
    except ValueError as error:
        raise FormatError(f"{files[0].path.name}: {error}") from None
    geometry = tuple(
        FieldPlan(axis, views, {
            "long_name": f"position {axis} of each point", "role": "geometry",
            "units": printable(files[0].attributes.get(f"{views[0].array.name}@units", "1")),
        })
        for axis, views in found.items()
    )  # fmt: skip
    where = "of each sample" if moves else "of all samples"
    words = (f"{', '.join(found)} {where} from {', '.join(arrays)}", *of_cells)
    return PlacedPoints(domain, geometry=geometry if moves else (), words=words, arrays=arrays)


def _positions(
    files: Sequence[Contents], sizes: Mapping[str, int], target: FieldPlan, options: ImportOptions
) -> dict[str, tuple[View, ...]]:
    """The views of the positions along each axis of space."""
    taken, file = {*options.inputs, *options.targets}, files[0]
    samples, window = target.views[0].sizes["sample"], target.views[0].window
    samples //= 1 if window is None else window.count
    lines = {a: n for a, n in options.coordinates.items() if a != "time" and n != "none"}
    wanted = [options.points] if options.points else []
    if not lines and not wanted:
        others = [name for name in file.arrays if name not in taken]
        wanted = [
            name for name in others
            if re.fullmatch(POINT_ARRAYS, name.rpartition("/")[2].lower())
            and _layout(file.array(name), sizes, samples, parts=True)
        ][:1]  # fmt: skip
        lines = {} if wanted else {
            axis: name for axis in SPACE for name in others
            if axis_of(name) == axis and _layout(file.array(name), sizes, samples, parts=False)
        }  # fmt: skip
    if not lines and not wanted:
        raise FormatError(
            f"{file.summary}: the positions of the {' x '.join(map(str, sizes.values()))} points "
            "are needed: give --points NAME, or --coordinate x=NAME and the other axes"
        )
    found: dict[str, tuple[View, ...]] = {}
    for axis, name in (lines or {"": wanted[0]}).items():
        array, has_parts = file.array(name), not lines
        last = options.samples == "last"
        layout = _layout(array, sizes, samples, parts=has_parts, last=last)
        if array.location is None and "sample" not in (layout or ("sample",)):
            array.values()  # raises FormatError: it is large
        if layout is None:
            raise FormatError(
                f"{array.where} {array.shape} does not have the positions of the "
                f"{' x '.join(map(str, sizes.values()))} points"
            )
        of_all = [part for file in files for part in file.parts(name)]
        dim = array.shape[layout.index("part")] if has_parts else 1
        for k in range(dim):
            found[SPACE[k] if has_parts else axis] = tuple(
                View(part, layout, part=k if has_parts else None, window=window) for part in of_all
            )
    if [*found] != [*SPACE[: len(found)]]:
        raise FormatError(f"positions are given along {', '.join(found)}: x comes first, then y, z")
    return found


def _layout(
    array: Array, sizes: Mapping[str, int], samples: int, *, parts: bool, last: bool = False
) -> Axes | None:
    """Names of the axes of an array of positions; None if its shape does not fit.

    Args:
        array: The array.
        sizes: Number of points along each axis.
        samples: Number of samples in the file.
        parts: Whether it has the positions along all axes of space, along an axis `part`.
        last: Whether the axis of samples is the last one, if the shape allows both.
    """
    part, space = ("part",) if parts else (), tuple(sizes)
    known = {**sizes, "sample": samples, "": 1}
    candidates = [
        (*space, *part), (*part, *space), ("sample", *space, *part), ("sample", *part, *space),
        (*space, *part, "sample"), (*part, *space, "sample"), (*space, ""), ("", *space),
    ]  # fmt: skip
    if last:  # layouts whose last axis is that of samples come first
        candidates.sort(key=lambda axes: axes[-1] != "sample")
    for axes in candidates:
        if len(axes) == len(array.shape) and ("part" in axes) == parts and all(
            n in (1, 2, 3) if axis == "part" else n == known[axis]
            for axis, n in zip(axes, array.shape, strict=True)
        ):  # fmt: skip
            return axes
    return None


def _cells(
    files: Sequence[Contents], options: ImportOptions, sizes: Mapping[str, int]
) -> tuple[np.ndarray | None, np.ndarray | None, list[str]]:
    """The cells and the edge of a cloud, and words on how they are numbered."""
    file, count = files[0], math.prod(sizes.values())
    of_mesh = {name: name if name in file.arrays else None for name in ("cells", "edge")}
    if file.format != MESH:
        of_mesh = dict.fromkeys(of_mesh)
    names = options.cells or of_mesh["cells"], options.edge or of_mesh["edge"]
    values: dict[str, np.ndarray] = {}
    for name in filter(None, names):
        first, *others = [part.values() for f in files for part in f.parts(name)]
        if any(not np.array_equal(other, first) for other in others):
            raise FormatError(f"{name} differs between the samples, which share their cells")
        values[name] = first
    cells, edge = (values.get(name or "") for name in names)
    numbered = dict[str, np.ndarray]()
    if cells is not None:
        if cells.ndim != 2:
            raise FormatError(f"--cells {names[0]}: rows of numbers of points, got {cells.shape}")
        cells = cells.T if cells.shape[0] in (3, 4) and cells.shape[1] > 4 else cells
        numbered["cells"] = cells
    if edge is not None:
        edge = edge.squeeze()
        is_mark = edge.size == count and {*np.unique(edge).tolist()} <= {0, 1}
        numbered |= {} if is_mark else {"edge": edge}
    first = _first_number(file, numbered, count)
    if cells is not None:
        cells = np.where(cells < 0, -1, cells - first).astype(np.int64)
    if edge is not None:
        marked = np.zeros(count, bool)
        marked[edge.astype(bool) if "edge" not in numbered else edge.astype(np.int64) - first] = (
            True
        )
        edge = marked
    words = [f"points are counted from {first} in {' and '.join(filter(None, names))}"]
    return cells, edge, words if numbered and file.format != MESH else []


def _first_number(file: Contents, numbered: Mapping[str, np.ndarray], count: int) -> int:
    """The number of the first point, 0 or 1. That of MATLAB is 1, unless the numbers tell. Raises
    FormatError if they are no numbers of points; -1 fills up rows of cells."""
    least, most = count, 0
    for name, values in numbered.items():
        sound = np.isfinite(values) & (values == np.round(values))
        if not sound.all() or values.min() < (-1 if name == "cells" else 0):
            raise FormatError(f"--{name}: whole numbers of points are needed, from 0 or 1")
        least = min(least, int(values[values >= 0].min(initial=count)))
        most = max(most, int(values.max()))
    if most > count or (most == count and least == 0):
        raise FormatError(
            f"--{' and --'.join(numbered)}: the numbers of points are {least} to {most}, but there "
            f"are {count} points"
        )
    if least == 0:
        return 0
    return 1 if most == count or file.format.startswith("MATLAB") else 0


# Masks.

MISSING = "missing"  # mask of the points at which the first sample lacks values


def mask_of(file: Contents, plan: Plan, name: str) -> np.ndarray:
    """The points of a plan's domain that have values, by an array of the file or by the values of
    the first sample. Raises FormatError if the array is no such mask, or if no point is left."""
    domain, view = plan.domain, plan.fields[0].views[0]
    if name != MISSING:
        file.array(name)
    if not isinstance(domain, Box | Curvilinear) or domain.moves:
        raise FormatError(f"--mask {name}: a mask needs a grid, or a mesh that all samples share")
    if name == MISSING:
        inside = np.logical_and.reduce([_with_values(field, domain) for field in plan.fields])
    else:
        array = file.array(name)
        order = tuple(axis for axis in view.axes if axis in domain.axes)
        key = next((k for k, a in file.arrays.items() if a.name == view.array.name), "")
        names = dict(zip(file.dims.get(key, ()), view.axes, strict=False))
        if own := file.dims.get(name):
            order = tuple(names.get(dim, dim) for dim in own)
        if {*order} != {*domain.axes}:
            raise FormatError(f"--mask {name} has the axes {', '.join(own or order)}")
        if array.shape != tuple(view.sizes[axis] for axis in order):
            raise FormatError(
                f"--mask {name}: {array.where} {array.shape} has not the axes {', '.join(order)} "
                f"of {view.array.name} {view.array.shape}"
            )
        array.values()  # raises FormatError if it is large
        values = View(array, order, backwards=view.backwards).read(0, 1)[0].astype(float)
        if not np.isin(values[np.isfinite(values)], (0, 1)).all():
            raise FormatError(f"--mask {name}: {array.where} has other numbers than 0 and 1")
        inside = values == 1
    if inside.sum() < 2:
        raise FormatError(f"--mask {name}: {inside.sum()} points are left")
    return inside


def _with_values(field: FieldPlan, domain: Domain) -> np.ndarray:
    """The points at which the first sample of a field has values."""
    values = field.read(range(1))[0]
    return np.isfinite(values).all(axis=tuple(range(values.ndim - len(domain.axes))))


def within(plan: Plan, inside: np.ndarray, missing: Sequence[bool]) -> Plan:
    """A plan on the points of a mask alone, which are a cloud. Points next to others count as
    boundary. A mask of all points changes nothing.

    Args:
        plan: The plan, on a grid or mesh.
        inside: The mask, in the shape of the domain.
        missing: For each field, whether the other points must lack values in all samples.
    """
    domain, count = plan.domain, int(inside.sum())
    assert domain is not None, plan.name
    if inside.all():
        return plan
    edge = domain.boundary.copy()
    for axis, kind in enumerate(domain.kinds):
        for step in (1, -1):
            beside = np.roll(inside, step, axis)
            if kind != "periodic":
                np.moveaxis(beside, axis, 0)[0 if step == 1 else -1] = True
            edge |= ~beside
    cloud = Cloud((count,), domain.dim, domain.points[inside], None, edge[inside])
    at = {"coordinates": " ".join(SPACE[: domain.dim])}
    fields = [
        replace(one, inside=inside, others_missing=others, attributes={**one.attributes, **at})
        for one, others in zip(plan.fields, missing, strict=True)
    ]
    kept = [one for one in plan.coordinates if one.name not in SPACE]
    words = f"{count} of {inside.size} points have values: they are a cloud"
    return replace(
        plan, fields=tuple(fields), coordinates=(*kept, *positions(cloud)), domain=cloud,
        positions_text=f"{plan.positions_text}; {words}",
    )  # fmt: skip


def masked(file: Contents, plan: Plan, ready: Plan, name: str) -> tuple[Plan, Plan]:
    """A plan, and the same plan that reads unpacked arrays, on the points of a mask."""
    inside, missing = mask_of(file, ready, name), [False] * len(plan.fields)
    if name == MISSING and ready.domain is not None:
        missing = [not _with_values(field, ready.domain).all() for field in ready.fields]
    return within(plan, inside, missing), within(ready, inside, missing)
