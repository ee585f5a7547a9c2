"""Plans for files that the user describes: which arrays are input and target, along which axes.
Files that are not described are listed."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pdegen.domains import Box
from pdegen.formats.arrays import MESH, PAIR, SMALL_BYTES, Array, Contents, FormatError, printable
from pdegen.formats.plan import (
    AXES,
    SPACE,
    FieldPlan,
    ImportOptions,
    Plan,
    View,
    Window,
    numbers,
    split_sizes,
)
from pdegen.formats.points import (
    MESH_AXES,
    POINT_ARRAYS,
    POINTS,
    Axes,
    PlacedPoints,
    Places,
    axis_of,
    meshed,
)
from pdegen.store.format import Json, Physics
from pdegen.store.layout import positions


class NotDescribedError(FormatError):
    """A file is not recognised, and its description is not complete."""


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

    Positions and times are those of the file, if it has them (`pdegen.formats.points`). Otherwise
    an axis has the length 1, and times are counted. `Plan.positions_text` says which. An input on a
    finer grid is read at the points of the target (`_steps`). Of a tuple of two tensors, the first
    is the input and the second the target.

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
    same = bool({*options.inputs} & {*options.targets})
    of_input, of_target = _axes(file, options)
    first = file.array(options.inputs[0])
    for key in {**of_input, **of_target}:
        if any(other.dims.get(key) != file.dims.get(key) for other in files):
            raise FormatError(f"{key} has other axes in some files: import them one by one")
    _check_samples(file, first, of_input[options.inputs[0]], options)
    sizes = _sizes(file, of_target)
    finer = {key: _steps(file, key, of_input[key], sizes, options) for key in of_input}
    on_target = {key: axes for key, axes in of_input.items() if not finer[key]}
    sizes = _sizes(file, {**on_target, **of_target})
    _check_used(sizes, options)
    space = {axis: n for axis, n in sizes.items() if axis in POINTS}
    window = _window(file, sizes, options)
    frames = _frames(file, of_input, of_target, window)

    def planned(name: str, axes: Mapping[str, Axes], k: int) -> FieldPlan:
        views = [
            [
                View(
                    part, axes[key], frames[k] if "time" in axes[key] else None, window=window,
                    steps=finer[key] if k == 0 else (),
                    along=tuple((a, n) for a, n in space.items() if a not in axes[key]),
                )
                for file in files for part in file.parts(key)
            ]
            for key in axes
        ]  # fmt: skip
        joined = tuple(replace(one, beside=tuple(more)) for one, *more in zip(*views, strict=True))
        attributes = _attributes_of(files, [*axes], joined[0], ("input", "target")[k])
        return FieldPlan(name, joined, attributes)

    fields = _separated([planned("a", of_input, 0), planned("u", of_target, 1)])
    places, placed, fields = _placed(files, options, sizes, fields, {**of_input, **of_target})
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(*fields, *placed.geometry),
        coordinates=(
            numbers(fields[0].samples),
            *(places.with_units(c) for c in positions(placed.domain)),
            *(places.with_units(c) for c in places.times(same, window)),
        ),
        splits=_splits(options.splits, fields[0].samples, window),
        domain=placed.domain,
        physics=Physics(boundary={} if options.boundary is None else {"u": options.boundary}),
        positions_text="; ".join([*_words_of_steps(finer), *placed.words, *places.words()]),
        position_arrays=(*placed.arrays, *places.arrays),
    )


def _separated(fields: list[FieldPlan]) -> list[FieldPlan]:
    """The fields, with an input variable for each channel if input and target differ in the number
    of channels: a store has one axis of channels. Raises FormatError if a channel is complex."""
    a, u = fields
    counts = [dict(zip(f.dims, f.shape, strict=True)).get("channel") for f in fields]
    if None in counts or counts[0] == counts[1]:
        return fields
    parts = [view.parts for view in a.views]
    names = a.attributes.get("channels") or [f"c{k}" for k in range(counts[0] or 0)]
    separate = list[tuple[View, ...]]()
    for of_files in zip(*parts, strict=True):
        if of_files[0].array.dtype.kind == "c":
            raise FormatError(
                f"the input has {counts[0]} channels and the target {counts[1]}, which a store "
                "cannot have beside complex numbers: give the real and imaginary parts as arrays"
            )
        if "channel" not in of_files[0].axes:
            separate.append(of_files)
            continue
        axes = tuple("part" if axis == "channel" else axis for axis in of_files[0].axes)
        for k in range(of_files[0].sizes["channel"]):
            separate.append(tuple(replace(view, axes=axes, part=k) for view in of_files))
    single = {key: value for key, value in a.attributes.items() if key != "channels"}
    inputs = [
        FieldPlan(f"a_{re.sub(r'[^A-Za-z0-9]+', '_', name)}", views, {**single, "long_name": name})
        for name, views in zip(names, separate, strict=True)
    ]
    if len({field.name for field in inputs}) < len(inputs):
        inputs = [replace(field, name=f"a_{k}") for k, field in enumerate(inputs)]
    return [*inputs, u]


def _placed(
    files: Sequence[Contents], options: ImportOptions, sizes: Mapping[str, int],
    fields: list[FieldPlan], axes: Mapping[str, Axes],
) -> tuple[Places, PlacedPoints, list[FieldPlan]]:  # fmt: skip
    """The positions and times of the axes, the domain, and the fields as they lie on it."""
    places = Places(files, options, sizes, axes)
    if places.inferred:
        places.check_inferred(files[0].array(options.inputs[0]))
    if options.grid == "curvilinear":
        fields = [one.renamed(MESH_AXES["curvilinear"]) for one in fields]
    on_mesh = options.grid in MESH_AXES
    placed = meshed(files, options, fields[-1]) if on_mesh else places.box()
    fields = [one.reversed(placed.backwards).renamed(placed.names) for one in fields]
    if not isinstance(placed.domain, Box):
        at = {"coordinates": " ".join(SPACE[: placed.domain.dim])}
        fields = [replace(one, attributes={**one.attributes, **at}) for one in fields]
    return places, placed, fields


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


def _attributes_of(files: Sequence[Contents], names: Sequence[str], views: View, role: str) -> Json:
    """The attributes of a variable: units and meaning as the files have them, and the names of its
    channels. Raises FormatError if the files differ in the units."""
    of_files = [[printable(f.attributes.get(f"{n}@units", "1")) for n in names] for f in files]
    if any(units != of_files[0] for units in of_files):
        raise FormatError(f"{', '.join(names)} has different units in the files: {of_files}")
    units, file = dict.fromkeys(of_files[0]), files[0]
    meaning = file.attributes.get(f"{names[0]}@long_name") if len(names) == 1 else None
    channels, is_complex = list[str](), views.array.dtype.kind == "c"
    for name, part in zip(names, views.parts, strict=True):
        parts = ["real.", "imaginary."] if part.array.dtype.kind == "c" else [""]
        count = part.sizes.get("channel", len(parts)) // len(parts)
        numbers = [""] if count == 1 else [f".{k}" for k in range(count)]
        channels += [f"{half}{name.replace('/', '.')}{k}" for half in parts for k in numbers]
    return {
        "long_name": printable(meaning or f"{', '.join(names)} of {file.path.name}"),
        "role": role,
        "units": ", ".join(units),
        **({"channels": channels} if len(names) > 1 or is_complex else {}),
    }


# Axes and samples.

_Span = tuple[int, int] | None


def _sizes(file: Contents, axes: Mapping[str, Axes]) -> dict[str, int]:
    """Number of points along each axis of space, and of times. Raises FormatError if arrays are on
    different grids."""
    sizes: dict[str, int] = {}
    held: dict[str, Array] = {}
    for key, names in axes.items():
        array = file.array(key)
        for axis, n in zip(names, array.shape, strict=True):
            if axis == "time" or axis in POINTS:
                if sizes.setdefault(axis, n) != n:
                    raise FormatError(
                        f"{held[axis].where} {held[axis].shape} and {array.where} {array.shape} "
                        f"are on different grids: they have {sizes[axis]} and {n} points along "
                        f"{axis}"
                    )
                held.setdefault(axis, array)
    order = (*POINTS, "time")
    return {axis: sizes[axis] for axis in sorted(sizes, key=order.index)}


def _steps(
    file: Contents, key: str, axes: Axes, sizes: Mapping[str, int], options: ImportOptions
) -> tuple[tuple[str, int, int], ...]:
    """First point and step along the axes on which an input has more points than the target, whose
    points are among them. Empty if it has as many.

    Raises:
        FormatError: If they are not, or a grid has no steps.
    """
    array, steps = file.array(key), list[tuple[str, int, int]]()
    kinds = str(options.grid).split(",")
    of_axis = dict(zip([axis for axis in SPACE if axis in sizes], kinds * 3, strict=False))
    for axis, n in zip(axes, array.shape, strict=True):
        m, kind = sizes.get(axis, n), of_axis.get(axis, "cloud")
        if axis not in POINTS or m == n:
            continue
        intervals = (n - 1, m - 1) if kind == "nodal" else (n, m)
        step, rest = divmod(intervals[0], max(intervals[1], 1))
        rule = {
            "periodic": f"r * {m}", "cell": f"r * {m}, r odd", "nodal": f"r * {m - 1} + 1",
        }.get(kind)  # fmt: skip
        if rule is None or rest or step < 2 or (kind == "cell" and step % 2 == 0):
            others = f": {rule} points of a finer grid have them" if rule else ""
            raise FormatError(
                f"{array.where} {array.shape} is on a different grid: it has {n} points along "
                f"{axis}, the target {m}{others}"
            )
        steps.append((axis, step // 2 if kind == "cell" else 0, step))
    return tuple(steps)


def _words_of_steps(finer: Mapping[str, tuple[tuple[str, int, int], ...]]) -> list[str]:
    """The inputs that are read at the points of the target alone, for people."""
    return [
        f"{key} is read at every {'. and '.join(str(step) for *_, step in steps)}. point, which "
        "the target has"
        for key, steps in finer.items()
        if steps
    ]


def _check_used(sizes: Mapping[str, int], options: ImportOptions) -> None:
    """Raise FormatError if an option describes an axis that no array has, or nothing."""
    axes = {*sizes} | ({"x", "y", "z"} if options.grid in MESH_AXES else set[str]())
    for axis in options.coordinates:
        if axis not in axes:
            raise FormatError(
                f"--coordinate {axis}={options.coordinates[axis]}: there is no such axis, known "
                f"are {', '.join(sizes)}"
            )
    if "time" not in sizes and (options.times or options.moments):
        raise FormatError("--times: no array has an axis of times: name it by --target-axes")
    if options.points and {*options.coordinates} - {"time"}:
        raise FormatError("--points and --coordinate both give positions: leave one out")


def _window(file: Contents, sizes: Mapping[str, int], options: ImportOptions) -> Window | None:
    """Frames of a window, the distance between the first frames of two windows, and their number
    in a trajectory."""
    if options.window is None:
        if options.stride is not None:
            raise FormatError("--stride needs --window, the number of frames of a sample")
        return None
    count, length, stride = sizes.get("time", 0), options.window, options.stride
    stride = length if stride is None else stride
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


def _frames(
    file: Contents, of_input: Mapping[str, Axes], of_target: Mapping[str, Axes],
    window: Window | None,
) -> tuple[_Span, _Span]:  # fmt: skip
    """The frames of the input and of the target, where an array is both or there are windows."""
    if window is not None:
        return (0, 1), (1, window.length)
    shared = [key for key in of_input if key in of_target]
    if not shared:
        return None, None
    array, axes = file.array(shared[0]), of_input[shared[0]]
    if "time" not in axes:
        raise FormatError(
            f"{array.where} {array.shape} is input and target, but has no axis of times: name its "
            "axes by --input-axes, or give another target"
        )
    count = array.shape[axes.index("time")]
    if count < 2:
        raise FormatError(f"{array.where} {array.shape} has a single time")
    return (0, 1), (1, count)


def _axes(file: Contents, options: ImportOptions) -> tuple[dict[str, Axes], dict[str, Axes]]:
    """Names of the axes of each array of the input and of the target."""
    a, u = file.array(options.inputs[0]), file.array(options.targets[0])
    of_a, of_u = _axes_of_pair(file, a, u, options)
    found = tuple[dict[str, Axes], dict[str, Axes]](({}, {}))
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
            axes[name] = own
    used = {axis for axes in found for own in axes.values() for axis in own}
    names_of_space = dict(zip([axis for axis in SPACE if axis in used], SPACE, strict=False))
    if options.grid == "cloud":
        if len(names_of_space) > 1:
            raise FormatError(
                f"{a.where} {a.shape} and {u.where} {u.shape}: the points of a cloud have one axis "
                "beside those of samples, times and channels: name the axes by --input-axes"
            )
        names_of_space = dict.fromkeys(names_of_space, "point")
    for axes in found:
        for name, own in axes.items():
            axes[name] = tuple(names_of_space.get(axis, axis) for axis in own)
    return found


def _axes_of_pair(file: Contents, a: Array, u: Array, options: ImportOptions) -> tuple[Axes, Axes]:
    """Names of the axes of the first array of the input, and of that of the target."""
    same = bool({*options.inputs} & {*options.targets})
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
        may_lack_space = array is a and not same
        if known and "sample" in axes and ({*POINTS} & set(axes) or may_lack_space):
            continue
        if words is not None:
            raise FormatError(
                f"{option} {','.join(words)}: {array.where} {array.shape} needs "
                f"{len(array.shape)} different names from {', '.join(AXES)}, point: sample "
                "(without --samples none), and at least one of x, y, z, point"
            )
        if same:
            raise FormatError(
                f"{a.where} {a.shape} is input and target, but has no axis of times: name its axes "
                "by --input-axes, or give another target"
            )
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to "
            "three axes of space, a target the same and possibly times; otherwise name the "
            f"axes, from {', '.join(AXES)}"
        )
    _check_names(file, options, named)
    return named


def _check_names(file: Contents, options: ImportOptions, axes: tuple[Axes, Axes]) -> None:
    """Raise FormatError if axes that were inferred contradict the names that the file has: an axis
    of a known name is taken for another, or one name for two axes."""
    taken: dict[str, str] = {}
    for key, named in zip((options.inputs[0], options.targets[0]), axes, strict=True):
        dims = file.dims.get(key, ())
        for dim, axis in zip(dims, named, strict=False):
            if dim and (taken.setdefault(dim, axis) != axis or (axis_of(dim) or axis) != axis):
                raise FormatError(
                    f"{file.array(key).where} has the axes {', '.join(dims)}, of which {dim} would "
                    f"be taken for {axis}: name the axes by --input-axes and --target-axes"
                )


def _check_samples(file: Contents, array: Array, axes: Axes, options: ImportOptions) -> None:
    """Refuse to take times for samples: an axis that is not named, but as long as the times that
    the file has."""
    lengths = dict(zip(axes, array.shape, strict=True))
    count = lengths.get("sample")
    if options.input_axes or count == lengths.get("time"):
        return
    for name, other in file.arrays.items():
        n = math.prod(other.shape)
        if axis_of(name) == "time" and other.shape and n == max(other.shape) == count:
            raise FormatError(
                f"{array.where} {array.shape} has as many samples as {name} has times: name its "
                "axes by --input-axes"
            )


def _file_axes(file: Contents, key: str, given: Axes | None) -> Axes | None:
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
    return axes if complete and set(axes) & {*POINTS} else None


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
            "the samples) or last, or name the axes by --target-axes"
        )
    return fits[0] if fits else "first"


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
        if is_list and re.fullmatch(POINT_ARRAYS, name.rpartition("/")[2].lower()):
            others = [a for key, a in file.arrays.items() if key != name and n in a.shape]
            if any(len(other.shape) > 1 for other in others):
                return n, name
    return 0, None


def _guessed_axes(file: Contents, name: str, lines: Mapping[str, int], count: int) -> Axes | None:
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


def _guessed_grid(u: Array, axes: Axes | None) -> str:
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
