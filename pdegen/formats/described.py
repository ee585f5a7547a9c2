"""Plans for files that the user describes: which arrays are input and target, along which axes,
and at which points and times. Files that are not described are listed."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pdegen.domains import Box, Cloud, Curvilinear, Domain
from pdegen.formats.arrays import MESH, PAIR, SMALL_BYTES, Array, Contents, FormatError, printable
from pdegen.formats.plan import (
    AXES,
    SPACE,
    FieldPlan,
    ImportOptions,
    Plan,
    View,
    Window,
    box,
    numbers,
    split_sizes,
)
from pdegen.store.format import Json, Physics
from pdegen.store.layout import Coordinate, positions, times


class NotDescribedError(FormatError):
    """A file is not recognised, and its description is not complete."""


_POINTS = ("point", *SPACE)  # names of the axes of points in descriptions
_MESH_AXES = {"cloud": {"x": "point"}, "curvilinear": {"x": "i", "y": "j"}}
_Axes = tuple[str, ...]


def described_plan(files: Sequence[Contents], options: ImportOptions) -> Plan:
    """The import plan of files whose arrays, grid and splits are described by the user.

    If the file names the axes of an array, these names are used. Otherwise the axis of samples is
    the first one, or the last one if `options.samples` is "last", and the other axes are those of
    space. If the target has one axis more than the input, the additional axis is that of times.
    `options.times` says where it is, if the shapes do not determine this. If an array has other
    axes, `options.input_axes` or `options.target_axes` names all its axes. Several arrays are the
    channels of one variable. An array without some axes of space, such as a number of each sample,
    is repeated along them.

    With `options.window`, each window of a trajectory is a sample (`View.window`). Its first frame
    is the input and the others are the target. Windows that would share a time with another split
    are left out.

    Positions and times are those of the file, if it has them (`_along`, `_meshed`). Otherwise an
    axis has the length 1, and times are counted. `Plan.positions_text` says which. Of a tuple of
    two tensors, the first is the input and the second the target.

    Raises:
        FormatError: If an option is missing (the message lists the contents of the file), or does
            not fit the arrays.
    """
    file = files[0]
    if file.format == PAIR and options.input is None and options.target is None:
        options = replace(options, input="0", target="1")
    if file.format == MESH and options.grid is None:
        options = replace(options, grid="cloud")
    _check_complete(file, options)
    assert options.grid is not None
    assert options.splits is not None
    same = options.inputs == options.targets
    of_input, of_target = _axes(file, options)
    first = file.array(options.inputs[0])
    _check_samples(file, first, of_input[options.inputs[0]], options)
    sizes = _sizes(file, {**of_input, **of_target})
    space = {axis: n for axis, n in sizes.items() if axis in _POINTS}
    window = _window(file, sizes, options)
    frames = _frames(first, of_input[options.inputs[0]], same, window)

    def planned(name: str, axes: Mapping[str, _Axes], k: int) -> FieldPlan:
        views = [
            [
                View(
                    part, axes[key], frames[k] if "time" in axes[key] else None, window=window,
                    along=tuple((a, n) for a, n in space.items() if a not in axes[key]),
                )
                for file in files for part in file.parts(key)
            ]
            for key in axes
        ]  # fmt: skip
        joined = tuple(replace(one, beside=tuple(more)) for one, *more in zip(*views, strict=True))
        return FieldPlan(name, joined, _attributes_of(file, [*axes], ("input", "target")[k]))

    fields = [planned("a", of_input, 0), planned("u", of_target, 1)]
    places, meshed, fields = _placed(files, options, sizes, fields, {**of_input, **of_target})
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(*fields, *meshed.geometry),
        coordinates=(
            numbers(fields[0].samples),
            *(places.with_units(c) for c in positions(meshed.domain)),
            *(places.with_units(c) for c in places.times(same, window)),
        ),
        splits=_splits(options.splits, fields[0].samples, window),
        domain=meshed.domain,
        physics=Physics(boundary={} if options.boundary is None else {"u": options.boundary}),
        positions_text="; ".join([*meshed.words, *places.words()]),
        position_arrays=(*meshed.arrays, *places.arrays),
    )


def _placed(
    files: Sequence[Contents], options: ImportOptions, sizes: Mapping[str, int],
    fields: list[FieldPlan], axes: Mapping[str, _Axes],
) -> tuple[_Places, _Domain, list[FieldPlan]]:  # fmt: skip
    """The positions and times of the axes, the domain, and the fields as they lie on it."""
    places = _Places(files, options, sizes, axes)
    if places.inferred:
        places.check_inferred(files[0].array(options.inputs[0]))
    if options.grid == "curvilinear":
        fields = [one.renamed(_MESH_AXES["curvilinear"]) for one in fields]
    meshed = places.box() if options.grid not in _MESH_AXES else _meshed(files, options, fields[1])
    fields = [one.reversed(meshed.backwards).renamed(meshed.names) for one in fields]
    if not isinstance(meshed.domain, Box):
        at = {"coordinates": " ".join(SPACE[: meshed.domain.dim])}
        fields = [replace(one, attributes={**one.attributes, **at}) for one in fields]
    return places, meshed, fields


def _check_complete(file: Contents, options: ImportOptions) -> None:
    """Raise NotDescribedError if an option is missing; the message lists the contents."""
    required = {
        "--input": (options.input, "name of an array"),
        "--target": (options.target, "name of an array"),
        "--grid": (options.grid, "periodic, cell, nodal, curvilinear or cloud"),
        "--split": (options.splits, "NAME=SIZE, of train, validation and test"),
    }
    missing = [f"{name} ({help})" for name, (value, help) in required.items() if value is None]
    if missing:
        raise NotDescribedError(f"{file.summary}: not a recognised file: give {', '.join(missing)}")
    given = {"points": options.points, "cells": options.cells, "edge": options.edge}
    for name, value in given.items():
        kinds = ("cloud", "curvilinear") if name == "points" else ("cloud",)
        if value is not None and options.grid not in kinds:
            raise FormatError(f"--{name} needs --grid {' or '.join(kinds)}, not {options.grid}")


def _attributes_of(file: Contents, names: Sequence[str], role: str) -> Json:
    """The attributes of a variable: units and meaning as the file has them."""
    units = {str(file.attributes.get(f"{name}@units", "1")) for name in names}
    meaning = file.attributes.get(f"{names[0]}@long_name") if len(names) == 1 else None
    plain = [name.replace("/", ".") for name in names]
    if file.array(names[0]).dtype.kind == "c":
        plain = [f"{part}.{name}" for name in plain for part in ("real", "imaginary")]
    return {
        "long_name": printable(meaning or f"{', '.join(names)} of {file.path.name}"),
        "role": role,
        "units": printable(units.pop()) if len(units) == 1 else "1",
        **({"channels": plain} if len(plain) > 1 else {}),
    }


MISSING = "missing"  # mask of the points at which the first sample lacks values


def mask_of(file: Contents, plan: Plan, name: str) -> np.ndarray:
    """The points of a plan's domain that have values, by an array of the file or by the values of
    the first sample. Raises FormatError if the array is no such mask, or if no point is left."""
    domain = plan.domain
    if not isinstance(domain, Box | Curvilinear) or domain.moves:
        raise FormatError(f"--mask {name}: a mask needs a grid, or a mesh that all samples share")
    view, axes = plan.fields[1].views[0], domain.axes
    if name == MISSING:
        first = [field.read(range(1))[0] for field in plan.fields]
        leading = [tuple(range(values.ndim - len(axes))) for values in first]
        finite = [np.isfinite(v).all(axis=k) for v, k in zip(first, leading, strict=True)]
        inside = np.logical_and.reduce(finite)
    else:
        order = tuple(axis for axis in view.axes if axis in axes)
        array = file.array(name)
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


def within(plan: Plan, inside: np.ndarray, others_missing: bool) -> Plan:
    """A plan on the points of a mask alone, which are a cloud.

    Args:
        plan: The plan, on a grid or mesh.
        inside: The mask, in the shape of the domain.
        others_missing: Whether the other points must lack values in all samples.
    """
    domain, count = plan.domain, int(inside.sum())
    assert domain is not None, plan.name
    cloud = Cloud((count,), domain.dim, domain.points[inside], None, domain.boundary[inside])
    at = {"coordinates": " ".join(SPACE[: domain.dim])}
    fields = [
        replace(
            one, inside=inside, others_missing=others_missing, attributes={**one.attributes, **at}
        )
        for one in plan.fields
    ]
    kept = [one for one in plan.coordinates if one.name not in SPACE]
    words = f"{count} of {inside.size} points have values: they are a cloud"
    return replace(
        plan, fields=tuple(fields), coordinates=(*kept, *positions(cloud)), domain=cloud,
        positions_text=f"{plan.positions_text}; {words}",
    )  # fmt: skip


# Axes and samples.

_Span = tuple[int, int] | None


def _sizes(file: Contents, axes: Mapping[str, _Axes]) -> dict[str, int]:
    """Number of points along each axis of space, and of times. Raises FormatError if arrays are on
    different grids."""
    sizes: dict[str, int] = {}
    held: dict[str, Array] = {}
    for key, names in axes.items():
        array = file.array(key)
        for axis, n in zip(names, array.shape, strict=True):
            if axis == "time" or axis in _POINTS:
                if sizes.setdefault(axis, n) != n:
                    raise FormatError(
                        f"{held[axis].where} {held[axis].shape} and {array.where} {array.shape} "
                        f"are on different grids: they have {sizes[axis]} and {n} points along "
                        f"{axis}"
                    )
                held.setdefault(axis, array)
    order = (*_POINTS, "time")
    return {axis: sizes[axis] for axis in sorted(sizes, key=order.index)}


def _window(file: Contents, sizes: Mapping[str, int], options: ImportOptions) -> Window | None:
    """Frames of a window, the distance between the first frames of two windows, and their number
    in a trajectory."""
    if options.window is None:
        if options.stride is not None:
            raise FormatError("--stride needs --window, the number of frames of a sample")
        return None
    count, length, stride = sizes.get("time", 0), options.window, options.stride or options.window
    if not 2 <= length <= count or stride < 1:
        raise FormatError(
            f"--window {length} --stride {stride}: {file.path.name} has {count} times, a window "
            f"has from 2 to as many, and a stride is at least 1; the axis of times is named by "
            "--input-axes and --target-axes"
        )
    return Window(length, stride, (count - length) // stride + 1)


def _splits(
    sizes: Mapping[str, int], samples: int, window: Window | None
) -> dict[str, tuple[int, int]]:
    """The ranges of the splits. No window shares a time with one of another split."""
    ranges = split_sizes(sizes, samples)
    if window is None:
        return ranges
    length, stride, count = window.length, window.stride, window.count
    gap = -(-length // stride) - 1  # windows between two that share no time

    def before(start: int) -> int:
        """The end of the last split before one that begins at `start`."""
        of_trajectory = start // count * count
        return start if start == of_trajectory else max(start - gap, of_trajectory)

    if "validation" in ranges and "test" in ranges:
        stop = before(ranges["test"][0])
        ranges["validation"] = (stop - sizes["validation"], stop)
    following = next((ranges[name][0] for name in ("validation", "test") if name in ranges), None)
    if following is not None and not 0 < ranges["train"][1] <= before(following):
        raise FormatError(
            f"{samples} windows cannot be split into "
            f"{', '.join(f'{name} {n}' for name, n in sizes.items())}, because those that share a "
            f"time with another split are left out: train has at most {max(before(following), 0)}"
        )
    return ranges


def _frames(array: Array, axes: _Axes, same: bool, window: Window | None) -> tuple[_Span, _Span]:
    """The frames of the input and of the target, where they are of the same array or a window."""
    if window is not None:
        return (0, 1), (1, window.length)
    if not same:
        return None, None
    if "time" not in axes:
        raise FormatError(
            f"{array.where} {array.shape} is input and target, but has no axis of times: name its "
            "axes by --input-axes, or give another target"
        )
    count = array.shape[axes.index("time")]
    if count < 2:
        raise FormatError(f"{array.where} {array.shape} has a single time")
    return (0, 1), (1, count)


def _axes(file: Contents, options: ImportOptions) -> tuple[dict[str, _Axes], dict[str, _Axes]]:
    """Names of the axes of each array of the input and of the target."""
    a, u = file.array(options.inputs[0]), file.array(options.targets[0])
    of_a, of_u = _axes_of_pair(file, a, u, options)
    found = tuple[dict[str, _Axes], dict[str, _Axes]](({}, {}))
    sides = ((options.inputs, of_a), (options.targets, of_u))
    for axes, (names, first) in zip(found, sides, strict=True):
        reference = file.array(names[0])
        for name in names:
            array = file.array(name)
            own = None if name == names[0] else _file_axes(file, name, None)
            outside = bool(file.groups) or options.samples == "none"
            if own is None and len(array.shape) == len(reference.shape):
                own = first
            elif own is None and len(array.shape) == (0 if outside else 1):
                own = () if outside else ("sample",)
            if own is None:
                raise FormatError(
                    f"{reference.where} {reference.shape} and {name} {array.shape} have different "
                    "axes, which the file does not name: they cannot be channels of one variable"
                )
            if "point" in own and options.grid != "cloud":
                raise FormatError(
                    f"{array.where} has values of points, which are no grid: give --grid cloud, "
                    f"not {options.grid}"
                )
            names_of_mesh = _MESH_AXES["cloud"] if options.grid == "cloud" else {}
            axes[name] = tuple(names_of_mesh.get(axis, axis) for axis in own)
    return found


def _axes_of_pair(
    file: Contents, a: Array, u: Array, options: ImportOptions
) -> tuple[_Axes, _Axes]:
    """Names of the axes of the first array of the input, and of that of the target."""
    same = options.inputs == options.targets
    if file.groups or options.samples == "none":  # samples have no axis in the file
        whole = replace(file, groups=0, dims={
            name: ("sample", *axes) for name, axes in file.dims.items()
        })  # fmt: skip
        count = file.groups or 1
        a, u = (replace(one, shape=(count, *one.shape), location=None) for one in (a, u))
        given = (options.input_axes, options.target_axes)
        input_axes, target_axes = (axes and ("sample", *axes) for axes in given)
        options = replace(options, input_axes=input_axes, target_axes=target_axes, samples="first")
        of_a, of_u = _axes_of_pair(whole, a, u, options)
        return of_a[1:], of_u[1:]
    of_a = _file_axes(file, options.inputs[0], options.input_axes)
    of_u = _file_axes(file, options.targets[0], options.target_axes)
    if of_a is not None and of_u is not None:
        return of_a, of_u
    space = SPACE[: len(u.shape if len(a.shape) == 1 else a.shape) - (2 if same else 1)]
    position = options.times or ("first" if same else _position_of_times(a, u, options))
    timed = ("time", *space) if position == "first" else (*space, "time")
    target = timed if same or len(u.shape) > len(a.shape) > 1 else space
    source = timed if same else () if len(a.shape) == 1 else space
    before, after = (("sample",), ()) if options.samples == "first" else ((), ("sample",))
    named = (
        options.input_axes or (*before, *source, *after),
        options.target_axes or (*before, *target, *after),
    )
    given = (("--input-axes", options.input_axes), ("--target-axes", options.target_axes))
    for array, axes, (option, words) in zip((a, u), named, given, strict=True):
        known = len(set(axes)) == len(axes) == len(array.shape) and set(axes) <= {*AXES, "point"}
        if known and "sample" in axes and ({*_POINTS} & set(axes) or array is a):
            continue
        if words is not None:
            raise FormatError(
                f"{option} {','.join(words)}: {array.where} {array.shape} needs "
                f"{len(array.shape)} different names from {', '.join(AXES)}, point: sample "
                "(without --samples none), and at least one of x, y, z, point"
            )
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to "
            "three axes of space, a target the same and possibly times; otherwise name the "
            f"axes, from {', '.join(AXES)}"
        )
    return named


def _check_samples(file: Contents, array: Array, axes: _Axes, options: ImportOptions) -> None:
    """Refuse to take times for samples: an axis that is not named, but as long as the times that
    the file has."""
    lengths = dict(zip(axes, array.shape, strict=True))
    count = lengths.get("sample")
    if options.input_axes or count == lengths.get("time"):
        return
    for name, other in file.arrays.items():
        if axis_of(name) == "time" and math.prod(other.shape) == max(other.shape) == count:
            raise FormatError(
                f"{array.where} {array.shape} has as many samples as {name} has times: name its "
                "axes by --input-axes"
            )


def _file_axes(file: Contents, key: str, given: _Axes | None) -> _Axes | None:
    """Names of the axes of an array by those that it has in the file. None if they do not tell.
    Raises FormatError if they contradict the given ones."""
    names, array = file.dims.get(key, ()), file.array(key)
    axes = tuple(axis_of(name) or "" for name in names)
    for axis, name, word in zip(axes, names, given or (), strict=False):
        if axis and word != axis:
            raise FormatError(
                f"{array.where} has the axes {', '.join(names)}: {name} is not {word}, leave the "
                "names of the axes out"
            )
    complete = "" not in axes and len(set(axes)) == len(axes) and "sample" in axes
    return axes if complete and set(axes) & {*_POINTS} else None


def _position_of_times(a: Array, u: Array, options: ImportOptions) -> str:
    """The position of the axis of times, "first" or "last"."""
    if options.target_axes or len(a.shape) == 1:
        return "first"
    of_sample = slice(1, None) if options.samples == "first" else slice(None, -1)
    space, timed = a.shape[of_sample], u.shape[of_sample]
    candidates = (("first", timed[1:]), ("last", timed[:-1]))
    fits = [position for position, shape in candidates if shape == space]
    if len(timed) == len(space) + 1 and len(fits) != 1:
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: say whether the times are first (after "
            "the samples) or last"
        )
    return fits[0] if fits else "first"


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
_POINT_ARRAYS = r"points?|nodes?|positions?|pos|coord(inate)?s?|xyz?|mesh|x_?star|vertices|grid"


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
class _Domain:
    """The points of a plan, and how its variables lie on them."""

    domain: Domain
    backwards: _Axes = ()  # axes of the file that fall, and are read in reverse order
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # other names of axes
    geometry: tuple[FieldPlan, ...] = ()  # positions that differ from sample to sample
    words: tuple[str, ...] = ()  # where the points come from
    arrays: _Axes = ()  # names of the arrays with positions


class _Places:
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
        axes: Mapping[str, _Axes],
    ) -> None:  # fmt: skip
        self.files, self.options, self.sizes = files, options, sizes
        dims, target = files[0].dims, options.targets[0]
        self.inferred = () if target in dims or options.target_axes else axes[target]
        dimensions = {
            axis: dim for key in axes
            for axis, dim in zip(axes[key], dims.get(key, ()), strict=False)
        }  # fmt: skip
        on_grid = options.grid not in _MESH_AXES
        self.lines = {
            axis: _along(files, axis, sizes, dimensions.get(axis, ""), options)
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
    def arrays(self) -> _Axes:
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

    def box(self) -> _Domain:
        """The box of the positions. A nodal grid whose points are not at equal distances is a
        curvilinear mesh."""
        kind = str(self.options.grid)
        points = {a: x for a, (_, x) in self.lines.items() if a != "time" and x is not None}
        backwards = tuple(axis for axis, x in points.items() if x[0] > x[-1])
        points |= {axis: points[axis][::-1] for axis in backwards}
        sizes = {axis: n for axis, n in self.sizes.items() if axis != "time"}
        uneven = [axis for axis, x in points.items() if _is_uneven(x)]
        if not uneven or kind != "nodal":
            return _Domain(box(kind, sizes, points, self.options.lengths), backwards)
        if len(sizes) > 2:
            raise FormatError(
                f"the points along {uneven[0]} ({self.lines[uneven[0]][0]}) do not rise by equal "
                "steps, and a mesh has one or two axes: give --grid cloud and --points"
            )
        unit = box(kind, sizes, {a: x for a, x in points.items() if a not in uneven})
        axes = [points.get(a, grid.x) for a, grid in zip(sizes, unit.grids, strict=True)]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        words = f"{' and '.join(uneven)} rise by unequal steps: the points are a mesh"
        names = _MESH_AXES["curvilinear"]
        return _Domain(Curvilinear.of(nodes), backwards, names, words=(words,))

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
        """Which positions and times are those of the file and which are assumed."""
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
    """Whether numbers do not rise by equal steps, within the rounding to float32."""
    steps = np.diff(x)
    rounding = 8 * np.finfo(np.float32).eps * np.abs(x).max()
    return bool(len(x) > 2 and np.ptp(steps) > 1e-3 * np.abs(steps).mean() + rounding)


def _along(
    files: Sequence[Contents],
    axis: str,
    sizes: Mapping[str, int],
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
        if wanted and (values := _line(files, name, axis, sizes)) is not None:
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
    files: Sequence[Contents], name: str, axis: str, sizes: Mapping[str, int]
) -> np.ndarray | None:
    """The positions along an axis that an array of all files has; None if its shape does not
    fit."""
    n, space = sizes[axis], [size for name, size in sizes.items() if name != "time"]
    lines = list[np.ndarray]()
    for file in files:
        array = file.arrays.get(name)
        if array is None or math.prod(array.shape) not in (n, math.prod(space)):
            return None
        values = array.values().squeeze().astype(float)
        if values.ndim > 1:
            meshes = [np.moveaxis(values, k, 0) for k in range(values.ndim)]
            fits = [m.reshape(n, -1) for m in meshes if len(m) == n]
            values = next((m[:, 0] for m in fits if (m == m[:, :1]).all()), values)
        if values.shape != (n,):
            return None
        lines.append(values)
    if any(not np.array_equal(line, lines[0]) for line in lines):
        raise FormatError(f"{name} differs between the files: they cannot be joined")
    return lines[0]


def _meshed(files: Sequence[Contents], options: ImportOptions, target: FieldPlan) -> _Domain:
    """The mesh or cloud of the points of described files.

    The positions are those of `options.points`, an array with the positions along all axes; or
    those of `options.coordinates`, one array for each axis. Otherwise they are those of an array
    whose name and shape fit. They may differ from sample to sample.

    Raises:
        FormatError: If there are no positions, or if positions, cells or edges do not fit.
    """
    names = _MESH_AXES[str(options.grid)]
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
    return _Domain(domain, geometry=geometry if moves else (), words=words, arrays=arrays)


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
            if re.fullmatch(_POINT_ARRAYS, name.rpartition("/")[2].lower())
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
        layout = _layout(array, sizes, samples, parts=has_parts)
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


def _layout(array: Array, sizes: Mapping[str, int], samples: int, *, parts: bool) -> _Axes | None:
    """Names of the axes of an array of positions; None if its shape does not fit.

    Args:
        array: The array.
        sizes: Number of points along each axis.
        samples: Number of samples in the file.
        parts: Whether it has the positions along all axes of space, along an axis `part`.
    """
    part, space = ("part",) if parts else (), tuple(sizes)
    known = {**sizes, "sample": samples, "": 1}
    candidates = [
        (*space, *part), (*part, *space), ("sample", *space, *part), ("sample", *part, *space),
        (*space, *part, "sample"), (*part, *space, "sample"), (*space, ""), ("", *space),
    ]  # fmt: skip
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
    words = list[str]()
    if cells is not None:
        if cells.ndim != 2 or (cells.dtype.kind != "f" and cells.dtype.kind not in "iu") or (
            cells != np.round(cells)
        ).any():  # fmt: skip
            raise FormatError(f"--cells {names[0]}: rows of whole numbers are needed")
        cells = cells.T if cells.shape[0] in (3, 4) and cells.shape[1] > 4 else cells
        cells = cells.astype(np.int64)
        if cells.min() == 1 and cells.max() == count:
            cells, words = cells - 1, [f"points of {names[0]} are counted from 1"]
    if edge is not None:
        edge = edge.squeeze()
        if edge.dtype.kind == "b" or {*np.unique(edge).tolist()} <= {0, 1}:
            edge = edge.astype(bool)
        else:  # numbers of points
            marked, first = np.zeros(count, bool), int(edge.min() == 1 and edge.max() == count)
            marked[edge.astype(np.int64) - first] = True
            edge = marked
    return cells, edge, words


# The listing of a file that has to be described.

_INPUTS = r"a|in|inputs?|x|x_train|f|k|nu|coeff\w*|initial|init\w*|u_?0|ic|perm\w*|source|forcing"
_TARGETS = r"u|v|w|out|outputs?|y|y_train|sol\w*|final|p|pressure|h|phi|temperature|usol|u_?1"


def listed(file: Contents, arrays: Mapping[str, Array], words: Sequence[str]) -> list[str]:
    """The contents of a file, line by line, and the command that imports it.

    The lines state the shape, type, axes, units and range of each array. The range of a large array
    is that of its first entry along the first axis. The last line is the command. Its options are
    guesses from the names, shapes and values, for the user to check.

    Args:
        file: The contents.
        arrays: The same arrays, unpacked.
        words: The files, as words of the command.
    """
    lines = [f"{file.path.name} ({file.format}) holds"]
    if file.groups > 1:
        lines = [f"{file.path.name} ({file.format}) holds {file.groups} groups, each with"]
    lines += [f"  {_line_of(file, key, array)}" for key, array in arrays.items()]
    lines += [f"  {key} {why}" for key, why in file.unreadable.items()]
    ready = replace(file, arrays=arrays)
    guess = _guess(ready)
    if guess is None:
        return [*lines, "no array has samples and points: nothing can be imported"]
    try:
        described_plan([ready], guess)
        text = "it is no published file that pdegen knows; if the guesses are right, import it by"
    except FormatError as error:
        text = f"it is no published file that pdegen knows; correct the command ({error})"
    command = ["pdegen import", *words, *_words_of(guess)]
    return [*lines, text, " ".join([*command, f"--out data/{shlex.quote(file.path.stem)}.zarr"])]


def _line_of(file: Contents, key: str, array: Array) -> str:
    first = array.read((slice(0, 1), *[slice(None)] * (len(array.shape) - 1))[: len(array.shape)])
    small = array.bytes <= SMALL_BYTES
    values = array.values() if small else first
    values = np.abs(values) if values.dtype.kind == "c" else values
    ends = [f"{float(f(values)):.4g}" for f in (np.min, np.max)] if values.size else []
    units = file.attributes.get(f"{key}@units")
    axes = file.dims.get(key)
    return ", ".join([
        f"{key} {array.shape} {array.dtype}",
        *([f"axes {' '.join(axes)}"] if axes else []),
        *([f"{ends[0]} to {ends[1]}{'' if small else ' in its first entry'}"] if ends else []),
        *([f"in {printable(units)}"] if units else []),
    ])  # fmt: skip


def _guess(file: Contents) -> ImportOptions | None:
    """A description of a file by names, shapes and values; None if nothing in it may be a
    dataset."""
    lines = {
        axis: max(array.shape)
        for name, array in file.arrays.items()
        if (axis := axis_of(name)) and math.prod(array.shape) == max(array.shape, default=0) > 1
    }
    count, points = _cloud(file)
    axes_of_samples = 0 if file.groups else 1
    fields = [
        name for name, array in file.arrays.items()
        if name not in ("cells", "edge", points) and axis_of(name) is None
        and len(array.shape) > axes_of_samples
        and math.prod(array.shape) > (1 if file.groups else max(array.shape))
    ]  # fmt: skip
    if not fields:
        return None

    def first_of(pattern: str, names: Sequence[str]) -> str:
        found = [n for n in names if re.fullmatch(pattern, n.rpartition("/")[2].lower())]
        return (found or [*names])[0]

    no_targets = [name for name in fields if not re.fullmatch(_TARGETS, name.lower())]
    a = first_of(_INPUTS, no_targets or fields)
    axes = _guessed_axes(file, a, lines, count)
    options = ImportOptions(a, a, points=points)
    if axes is not None and "sample" not in axes and not file.groups:  # a single trajectory
        a = first_of(_TARGETS, fields)
        axes = _guessed_axes(file, a, lines, count) or ()
        options = ImportOptions(a, a, points=points, samples="none")
    else:
        first = file.array(a).shape[0]
        rest = [n for n in fields if n != a and (file.groups or file.array(n).shape[0] == first)]
        options = replace(options, target=first_of(_TARGETS, rest) if rest else a)
    target = file.array(options.targets[0])
    axes = _guessed_axes(file, options.targets[0], lines, count)
    known = all(axis_of(n) for n in file.dims.get(options.targets[0], ("",)))
    if axes is not None and not known and {*axes} & {"time", "channel", "point"}:
        options = replace(options, target_axes=axes)
        options = replace(options, input_axes=_guessed_axes(file, a, lines, count))
    samples = file.groups or target.shape[axes.index("sample") if axes and "sample" in axes else 0]
    if options.samples == "none":
        times = target.shape[axes.index("time")] if axes and "time" in axes else 1
        window = max(2, min(10, times // 10))
        samples = times // window
        options = replace(options, window=window if times > 3 else None)
    grid = "cloud" if count else _guessed_grid(target, axes)
    tenth, splits = max(1, samples // 10), {"train": max(samples, 1)}
    if samples > 2:
        splits = {"train": samples - 2 * tenth, "validation": tenth, "test": tenth}
    return replace(options, grid=grid, splits=splits)


def _cloud(file: Contents) -> tuple[int, str | None]:
    """Number of the points of a cloud, and name of the array with their positions. 0 if the file
    does not seem to have a cloud."""
    if file.format == MESH:
        return file.arrays["points"].shape[0], None
    for name, array in file.arrays.items():
        n, small = max(array.shape, default=0), min(array.shape, default=0)
        is_list = len(array.shape) == 2 and small in (2, 3) and n > 8
        if is_list and re.fullmatch(_POINT_ARRAYS, name.rpartition("/")[2].lower()):
            others = [a for key, a in file.arrays.items() if key != name and n in a.shape]
            if any(len(other.shape) > 1 for other in others):
                return n, name
    return 0, None


def _guessed_axes(file: Contents, name: str, lines: Mapping[str, int], count: int) -> _Axes | None:
    """Names of the axes of an array by their lengths; None if these do not tell."""
    array, dims = file.array(name), file.dims.get(name, ())
    if dims and all(axis_of(dim) for dim in dims):
        return tuple(axis_of(dim) or "" for dim in dims)
    axes = list[str]()
    for n in array.shape:
        fits = [axis for axis in SPACE if lines.get(axis) == n and axis not in axes][:1]
        fits += ["time"] if lines.get("time") == n else []
        fits = ["point"] if n == count else fits
        axes.append(fits[0] if len(fits) == 1 else "")
    known = {*lines} | ({"point"} if count else set[str]())
    for k, n in enumerate(array.shape):
        may_be = k == len(axes) - 1 or axes.count("") == 1
        if not axes[k] and may_be and n <= 4 and {*axes} & known:
            axes[k] = "channel"
    if axes.count("") == 1 and not file.groups:
        axes[axes.index("")] = "sample"
    return tuple(axes) if "" not in axes and len({*axes}) == len(axes) else None


def _guessed_grid(u: Array, axes: _Axes | None) -> str:
    """Periodic if the values continue from the end of the last axis of space at its beginning."""
    whole = axes is not None and axes[0] != "sample"
    values = u.read((slice(None) if whole else slice(0, 1), *[slice(None)] * (len(u.shape) - 1)))
    last = max((k for k, axis in enumerate(axes or ()) if axis in SPACE), default=len(u.shape) - 1)
    values = np.moveaxis(values, last, -1).reshape(-1, u.shape[last])
    if values.shape[-1] < 3:
        return "nodal"
    steps, closing = np.abs(np.diff(values, axis=-1)), np.abs(values[:, 0] - values[:, -1])
    return "periodic" if closing.mean() <= 2 * steps.mean() and closing.max() > 0 else "nodal"


def _words_of(options: ImportOptions) -> list[str]:
    """The options of the command that describe a file."""
    words = [f"--input {shlex.quote(name)}" for name in options.inputs]
    words += [f"--target {shlex.quote(name)}" for name in options.targets]
    words += [f"--samples {options.samples}"] if options.samples != "first" else []
    words += [f"--input-axes {','.join(options.input_axes)}"] if options.input_axes else []
    words += [f"--target-axes {','.join(options.target_axes)}"] if options.target_axes else []
    words += [f"--grid {options.grid}"]
    words += [f"--points {shlex.quote(options.points)}"] if options.points else []
    words += [f"--window {options.window}"] if options.window else []
    return words + [f"--split {name}={size}" for name, size in (options.splits or {}).items()]
