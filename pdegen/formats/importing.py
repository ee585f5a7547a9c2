"""Import of files of other projects. Their arrays are written to a sealed store, shard by shard."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.checks.check import contradictions
from pdegen.equations.base import SampleError
from pdegen.formats.arrays import (
    PAIR,
    SMALL_BYTES,
    Array,
    Contents,
    FormatError,
    Packing,
    printable,
)
from pdegen.formats.export_metadata import exported_plan, folder_contents
from pdegen.formats.plan import (
    AXES,
    SPACE,
    FieldPlan,
    ImportOptions,
    Plan,
    View,
    box,
    numbers,
    split_sizes,
)
from pdegen.formats.recognised import recognised_plan
from pdegen.formats.sandbox import ImportedFile, is_zarr, merged, open_file, unpacked
from pdegen.generation.generate import Job, Options, provenance, write
from pdegen.store.format import Json, Physics
from pdegen.store.layout import Coordinate, Layout, positions, times
from pdegen.store.reading import Store


class NotDescribedError(FormatError):
    """A file is not recognised, and its description is not complete."""


def described_plan(files: Sequence[Contents], options: ImportOptions) -> Plan:
    """The import plan of files whose arrays, grid and splits are described by the user.

    If the file names the axes of an array, these names are used. Otherwise the axis of samples is
    the first one, or the last one if `options.samples` is "last", and the other axes are those of
    space. If the target has one axis more than the input, the additional axis is that of times.
    `options.times` says where it is, if the shapes do not determine this. If an array has other
    axes, `options.input_axes` or `options.target_axes` names all its axes. Several arrays are the
    channels of one variable.

    Positions and times are those of the file, if it has them (`_along`). Otherwise an axis has the
    length 1, and times are counted. `Plan.positions_text` says which. Of a tuple of two tensors,
    the first is the input and the second the target.

    Raises:
        FormatError: If an option is missing (the message lists the contents of the file), or does
            not fit the arrays.
    """
    if files[0].format == PAIR and options.input is None and options.target is None:
        options = replace(options, input="0", target="1")
    _check_complete(files[0], options)
    assert options.grid is not None
    assert options.splits is not None
    first, last = files[0].array(options.inputs[0]), files[0].array(options.targets[0])
    axes = _axes(files[0], first, last, options)
    same = options.inputs == options.targets
    _check_samples(files[0], first, axes[0], options)
    frames = _frames(first, axes[0], same)

    def field(name: str, names: tuple[str, ...], k: int) -> FieldPlan:
        views = [
            View(one, axes[k], frames[k], beside=tuple(more))
            for file in files
            for one, *more in zip(*map(file.parts, names), strict=True)
        ]
        return FieldPlan(
            name, tuple(views), _attributes_of(files[0], names, ("input", "target")[k])
        )

    a, u = field("a", options.inputs, 0), field("u", options.targets, 1)
    if a.space != u.space:
        raise FormatError(
            f"{first.where} {first.shape} and {last.where} {last.shape} are on different grids"
        )
    timed = [
        array.shape[names.index("time")]
        for array, names in zip((first, last), axes, strict=True)
        if "time" in names
    ]
    sizes = a.space | ({"time": timed[-1]} if timed else {})
    named = dict(zip(axes[0], files[0].dims.get(first.name, ()), strict=False))
    places = {axis: _along(files, axis, sizes, named.get(axis, ""), options) for axis in sizes}
    points = {axis: x for axis, (_, x) in places.items() if axis != "time" and x is not None}
    backwards = tuple(axis for axis, x in points.items() if x[0] > x[-1])
    points |= {axis: points[axis][::-1] for axis in backwards}
    domain = box(options.grid, a.space, points, _lengths(places, options))
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(a.reversed(backwards), u.reversed(backwards)),
        coordinates=(
            numbers(a.samples),
            *(_with_units(one, files[0], places) for one in (
                *positions(domain), *_times(sizes.get("time", 0), places, same, options)
            )),
        ),
        splits=split_sizes(options.splits, a.samples),
        domain=domain,
        physics=Physics(boundary={} if options.boundary is None else {"u": options.boundary}),
        positions_text=_words_of_positions(places, () if named else axes[1], options),
        position_arrays=tuple(name for name, x in places.values() if x is not None),
    )  # fmt: skip


def _check_complete(file: Contents, options: ImportOptions) -> None:
    """Raise NotDescribedError if an option is missing; the message lists the contents."""
    required = {
        "--input": (options.input, "name of an array"),
        "--target": (options.target, "name of an array"),
        "--grid": (options.grid, "periodic, cell or nodal"),
        "--split": (options.splits, "NAME=SIZE, of train, validation and test"),
    }
    missing = [f"{name} ({help})" for name, (value, help) in required.items() if value is None]
    if missing:
        raise NotDescribedError(f"{file.summary}: not a recognised file: give {', '.join(missing)}")


def _attributes_of(file: Contents, names: Sequence[str], role: str) -> Json:
    """The attributes of a variable: units and meaning as the file has them."""
    units = {str(file.attributes.get(f"{name}@units", "1")) for name in names}
    meaning = file.attributes.get(f"{names[0]}@long_name") if len(names) == 1 else None
    return {
        "long_name": printable(meaning or f"{', '.join(names)} of {file.path.name}"),
        "role": role,
        "units": printable(units.pop()) if len(units) == 1 else "1",
        **({"channels": [name.replace("/", ".") for name in names]} if len(names) > 1 else {}),
    }


_Span = tuple[int, int] | None


def _frames(array: Array, axes: tuple[str, ...], same: bool) -> tuple[_Span, _Span]:
    """The frames of the input and of the target, where they are of the same array."""
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


def _axes(
    file: Contents, a: Array, u: Array, options: ImportOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the axes of the input and of the target."""
    same = a.name == u.name
    if file.groups:  # each is a sample, which has no axis in the file
        whole = replace(file, groups=0)
        a, u = (replace(one, shape=(file.groups, *one.shape), location=None) for one in (a, u))
        given = (options.input_axes, options.target_axes)
        input_axes, target_axes = (axes and ("sample", *axes) for axes in given)
        options = replace(options, input_axes=input_axes, target_axes=target_axes, samples="first")
        of_a, of_u = _axes(whole, a, u, options)
        return of_a[1:], of_u[1:]
    of_a, of_u = _file_axes(file, a, options.input_axes), _file_axes(file, u, options.target_axes)
    if of_a is not None and of_u is not None:
        return of_a, of_u
    space = SPACE[: len(a.shape) - (2 if same else 1)]
    position = options.times or ("first" if same else _position_of_times(a, u, options))
    timed = ("time", *space) if position == "first" else (*space, "time")
    target = timed if same or len(u.shape) > len(a.shape) else space
    before, after = (("sample",), ()) if options.samples == "first" else ((), ("sample",))
    named = (
        options.input_axes or (*before, *(timed if same else space), *after),
        options.target_axes or (*before, *target, *after),
    )
    given = (("--input-axes", options.input_axes), ("--target-axes", options.target_axes))
    for array, axes, (option, words) in zip((a, u), named, given, strict=True):
        fits = len(set(axes)) == len(axes) == len(array.shape) and set(axes) <= set(AXES)
        if fits and "sample" in axes and set(SPACE) & set(axes):
            continue
        if words is not None:
            raise FormatError(
                f"{option} {','.join(words)}: {array.where} {array.shape} needs "
                f"{len(array.shape)} different names from {', '.join(AXES)}: sample, and at least "
                "one of x, y, z"
            )
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to "
            "three axes of space, a target the same and possibly times; otherwise name the "
            f"axes, from {', '.join(AXES)}"
        )
    return named


def _check_samples(
    file: Contents, array: Array, axes: tuple[str, ...], options: ImportOptions
) -> None:
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


def _file_axes(
    file: Contents, array: Array, given: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Names of the axes of an array by those that it has in the file. None if they do not tell.
    Raises FormatError if they contradict the given ones."""
    names = file.dims.get(array.name, ())
    axes = tuple(axis_of(name) or "" for name in names)
    for axis, name, word in zip(axes, names, given or (), strict=False):
        if axis and word != axis:
            raise FormatError(
                f"{array.where} has the axes {', '.join(names)}: {name} is not {word}, leave the "
                "names of the axes out"
            )
    complete = "" not in axes and len(set(axes)) == len(axes) and "sample" in axes
    return axes if complete and set(axes) & set(SPACE) else None


def _position_of_times(a: Array, u: Array, options: ImportOptions) -> str:
    """The position of the axis of times, "first" or "last"."""
    if options.target_axes:
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
    "time": r"t|tt|ts|times?|t[-_ ]?coord(inate)?s?|time[-_ ]?steps?|t_?(axis|grid|span)",
    "channel": r"channels?|components?|variables?|features?",
    "x": r"x|xs|xx|x[-_ ]?coord(inate)?s?|x_?(axis|grid|points)|grid_?x|lon(gitude)?s?",
    "y": r"y|ys|yy|y[-_ ]?coord(inate)?s?|y_?(axis|grid|points)|grid_?y|lat(itude)?s?",
    "z": r"z|zs|zz|z[-_ ]?coord(inate)?s?|z_?(axis|grid|points)|grid_?z|levels?|depth|altitude",
}
_ONE_AXIS = r"grid|points|positions|coord(inate)?s?|mesh"  # of x, if there is no other axis


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


_Places = Mapping[str, tuple[str, np.ndarray | None]]
"""Name and values of the positions along each axis, as `_along` has found them."""


def _lengths(places: _Places, options: ImportOptions) -> dict[str, float]:
    """The length of each axis whose positions are not in the file."""
    for axis, (name, x) in places.items():
        if x is not None and axis in options.lengths:
            raise FormatError(
                f"--length {axis}={options.lengths[axis]:g}: its positions are those of {name}: "
                f"leave the length out, or give --coordinate {axis}=none"
            )
    if wrong := [axis for axis in options.lengths if axis not in places or axis == "time"]:
        axes = ", ".join(axis for axis in places if axis != "time")
        raise FormatError(f"--length {wrong[0]}: there is no such axis, known are {axes}")
    return dict(options.lengths)


def _times(
    count: int, places: _Places, same: bool, options: ImportOptions
) -> tuple[Coordinate, ...]:
    """The coordinate of the times of the target, if it has times."""
    if not count:
        return ()
    moments, where = options.moments, "--times"
    if moments is None:
        where, moments = places["time"]
    values = np.arange(count) if moments is None else np.asarray(moments, float)
    if values.shape != (count,) or not (np.diff(values) > 0).all():
        raise FormatError(f"{where}: {count} times are needed, each later than the one before")
    return (times(values[1:] if same else values),)


def _with_units(coordinate: Coordinate, file: Contents, places: _Places) -> Coordinate:
    """A coordinate with the units that the file gives. Of "hours since 2000-01-01", the date and
    its calendar are attributes of their own: the values stay numbers."""
    name, _ = places.get(coordinate.name, ("", None))
    units, _, date = str(file.attributes.get(f"{name}@units", "")).partition(" since ")
    calendar = file.attributes.get(f"{name}@calendar", "standard")
    given = {"units": units} if units else {}
    given |= {"since": date, "of_calendar": calendar} if date else {}
    attributes = {key: printable(value) for key, value in given.items()}
    return replace(coordinate, attributes={**coordinate.attributes, **attributes})


def _words_of_positions(places: _Places, axes: tuple[str, ...], options: ImportOptions) -> str:
    """One line that says which positions and times are those of the file and which are assumed.

    Args:
        places: What was found along each axis.
        axes: The axes of the target if neither the file nor an option names them.
        options: The options of the import.
    """
    read = [f"{axis} from {name}" for axis, (name, x) in places.items() if x is not None]
    assumed = [
        "times are counted" if axis == "time" else f"{axis} from 0 to 1"
        for axis, (_, x) in places.items()
        if x is None and axis not in options.lengths
        and not (axis == "time" and options.moments is not None)
    ]  # fmt: skip
    parts = [", ".join(read)] if read else []
    if len({*axes} & {*SPACE}) > 1 and not options.target_axes:
        parts.append(f"axes taken as {', '.join(axes)}")
    if assumed:
        parts.append(
            f"assumed, because the file does not say: {', '.join(assumed)} (--coordinate, --length "
            "and --times give others)"
        )
    return "; ".join(parts)


# The listing of a file that has to be described.

_INPUTS = r"a|in|inputs?|x|x_train|f|k|nu|coeff\w*|initial|init\w*|u_?0|ic|perm\w*|source|forcing"
_TARGETS = r"u|v|w|out|outputs?|y|y_train|sol\w*|final|p|pressure|h|phi|temperature|usol|u_?1"


def listing(paths: Sequence[Path | str]) -> list[str]:
    """The contents of files, line by line, and the command that imports them.

    The lines state the shape, type, axes, units and range of each array. The range of a large array
    is that of its first entry along the first axis. The last line is the command. Its input, target
    and grid are guesses from the names and the values, for the user to check.

    Raises:
        FormatError: If a file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        files, _ = _read([Path(path).absolute() for path in paths], Path(name))
        file = files[0]
        arrays = {
            key: array if array.location else unpacked([array], Path(name))[array]
            for key, array in file.arrays.items()
        }
        lines = [f"{file.path.name} ({file.format}) holds"]
        if file.groups:
            lines = [f"{file.path.name} ({file.format}) holds {file.groups} groups, each with"]
        lines += [f"  {_line_of(file, key, array)}" for key, array in arrays.items()]
        lines += [f"  {key} {why}" for key, why in file.unreadable.items()]
        return [*lines, *_suggested(file, arrays, [shlex.quote(str(path)) for path in paths])]


def _line_of(file: Contents, key: str, array: Array) -> str:
    first = array.read((slice(0, 1), *[slice(None)] * (len(array.shape) - 1))[: len(array.shape)])
    small = array.bytes <= SMALL_BYTES
    values = array.values() if small else first
    ends = [f"{float(f(values)):.4g}" for f in (np.min, np.max)] if values.size else []
    units = file.attributes.get(f"{key}@units")
    axes = file.dims.get(key)
    return ", ".join([
        f"{key} {array.shape} {array.dtype}",
        *([f"axes {' '.join(axes)}"] if axes else []),
        *([f"{ends[0]} to {ends[1]}{'' if small else ' in its first entry'}"] if ends else []),
        *([f"in {printable(units)}"] if units else []),
    ])  # fmt: skip


def _suggested(file: Contents, arrays: Mapping[str, Array], words: list[str]) -> list[str]:
    """The command that imports a file, if some of its arrays may be a dataset."""
    keys = {array: key for key, array in arrays.items()}
    fields = [a for a in keys if len(a.shape) > 1 and axis_of(a.name) is None]
    fields = [a for a in fields if max(a.shape) < math.prod(a.shape)]
    if not fields:
        return ["no array has samples and points: nothing can be imported"]

    def named(pattern: str, others: Sequence[Array]) -> Array:
        found = [a for a in others if re.fullmatch(pattern, a.name.rpartition("/")[2].lower())]
        return (found or [*others])[0]

    a = named(_INPUTS, [f for f in fields if not re.fullmatch(_TARGETS, f.name.lower())] or fields)
    rest = [f for f in fields if f is not a and f.shape[0] == a.shape[0]]
    u = named(_TARGETS, rest) if rest else a
    samples = file.groups or a.shape[0]
    tenth = max(1, samples // 10)
    splits = {"train": samples}
    if samples > 2:
        splits = {"train": samples - 2 * tenth, "validation": tenth, "test": tenth}
    options = [f"--input {shlex.quote(keys[a])}", f"--target {shlex.quote(keys[u])}"]
    # periodic if the values continue from the end of the last axis at its beginning
    index = (slice(0, 1), *[slice(None)] * (len(u.shape) - 1))
    values = u.read(index)[0].astype(float).reshape(-1, u.shape[-1])
    steps, closing = np.abs(np.diff(values, axis=-1)), np.abs(values[:, 0] - values[:, -1])
    closes = closing.mean() <= 2 * steps.mean() and closing.max() > 0
    options += [f"--grid {'periodic' if closes else 'nodal'}"]
    options += [f"--split {name}={size}" for name, size in splits.items()]
    out = f"--out data/{shlex.quote(file.path.stem)}.zarr"
    return [
        "it is no published file that pdegen knows; if the guesses are right, import it by",
        " ".join(["pdegen import", *words, *options, out]),
    ]


# Part of every fingerprint: raised when a change of this code changes the stored values.
ALGORITHM_VERSION = 2

_SHARD_BYTES = 2**24  # largest size of a shard of one variable
_LARGEST = 1e150  # squares of such numbers, and their sums, are finite in float64


def import_files(
    files: Sequence[Path | str],
    url: str,
    import_options: ImportOptions = ImportOptions(),  # noqa: B008, it is frozen
    tell: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Store:
    """Write the arrays of files to a sealed store. The input is named `a` and the target `u`.
    Values keep the dtype that they have in the file.

    Recognised files (`pdegen.formats.recognised`) and exports of `pdegen.formats.exporting` need no
    options. Several files of the same kind are joined along the samples, in the given order. If
    operators cannot read a dtype, its values are converted to floats without rounding, such as bool
    to float32.

    Args:
        files: MATLAB, HDF5, netCDF, .npy, .npz and .pt files, Zarr groups, or an exported folder of
            .npy or Parquet files.
        url: Path or URL of the store.
        import_options: Description of the arrays in files that are not recognised. For recognised
            files, `grid` and `splits` replace the known ones.
        tell: Called with one line before anything is written. It says as what the files were
            recognised and why, or which positions and times are assumed.
        options: The fields of `pdegen.generation.generate.Options`.

    Raises:
        FormatError: If a file cannot be read, is hostile or damaged, is neither recognised nor
            described, does not fit its description, or is a modified export. Also if the values of
            the first sample contradict its description. The message has one line.
        SampleError: If a value is not finite, is larger than 1e150, or contradicts the description.
        StoreError, OSError, ...: See `pdegen.generation.generate.write`.
    """
    paths = [Path(file).absolute() for file in files]
    if not paths:
        raise FormatError("there are no files to import")
    # arrays that cannot be read in slices from their file are unpacked to this folder
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        folder = Path(name)
        contents, sources = _read(paths, folder)
        plan, ready = _plan(contents, import_options, folder)
        for field in ready.fields:
            field.check()
        job = ImportJob(ready, tuple(sources), _summary(contents, sources, plan))
        if plan.recognised_by:
            tell(
                f"recognised as {plan.title}, by {plan.recognised_by}; to describe it yourself, "
                "give --input and --target"
            )
        if plan.positions_text:
            tell(plan.positions_text)
        if not options.get("skip_failed"):
            try:  # before anything is written
                job.values(range(1))
            except SampleError as error:
                raise FormatError(f"{contents[0].path.name}: {error}") from None
        return write(job, url, Options(**options))


def _read(paths: list[Path], folder: Path) -> tuple[list[Contents], list[ImportedFile]]:
    if any(path.is_dir() and not is_zarr(path) for path in paths):
        if len(paths) > 1:
            raise FormatError("a folder cannot be imported with other files")
        contents, files = folder_contents(paths[0], folder)
        return [contents], [ImportedFile.of(file) for file in files]
    return merged([open_file(path, folder) for path in paths]), [
        ImportedFile.of(path) for path in paths
    ]


def _plan(
    contents: list[Contents], import_options: ImportOptions, folder: Path
) -> tuple[Plan, Plan]:
    """The import plan of files, and the same plan that reads the unpacked arrays."""

    def ready(plan: Plan) -> tuple[Plan, Plan]:
        return plan, plan.reading(unpacked(plan.arrays, folder))

    plan = exported_plan(contents)
    if plan is not None:
        if not import_options.is_default:
            raise FormatError(
                f"{contents[0].path.name} was exported by pdegen: it is imported without options"
            )
        return ready(plan)
    # whether it is a published file is known before its splits are asked for
    published = recognised_plan(contents, replace(import_options, splits={"train": 1}))
    if published is None:
        return ready(described_plan(contents, import_options))
    arrays = unpacked(published.arrays, folder)
    fault = published.contradiction(published.reading(arrays).sample(0))
    if not fault:
        plan = recognised_plan(contents, import_options)
        assert plan is not None
        return plan, plan.reading(arrays)
    try:
        return ready(described_plan(contents, import_options))
    except NotDescribedError as error:
        raise NotDescribedError(
            f"{error} (its arrays have the names and sizes of {published.title}, but {fault})"
        ) from None


def _summary(contents: list[Contents], sources: list[ImportedFile], plan: Plan) -> Json:
    """The attribute `imported`."""
    taken = {array.name for array in plan.arrays}
    taken |= {name for file in contents for name, a in file.arrays.items() if a.name in taken}
    taken |= {*plan.position_arrays}
    names = {name for file in contents for name in [*file.arrays, *file.unreadable]}
    return {
        "files": [
            {"name": file.path.name, "bytes": file.bytes, "sha256": file.sha256} for file in sources
        ],
        "format": contents[0].format,
        "variables": {
            field.name: {
                "key": field.views[0].array.name,
                "axes": list(field.views[0].axes),
                "frames": None if field.views[0].frames is None else list(field.views[0].frames),
                **field.views[0].selection,
                "type": field.views[0].array.dtype.name,
            }
            for field in plan.fields
        },
        "left_out": sorted(names - taken),
        "source": plan.source,
        **({"recognised_by": plan.recognised_by} if plan.recognised_by else {}),
        **({"positions": plan.positions_text} if plan.positions_text else {}),
        **({"warning": plan.warning} if plan.warning else {}),
    }


@dataclass(frozen=True)
class ImportJob(Job):
    """The job that writes an imported store."""

    plan: Plan  # the arrays of each variable
    sources: tuple[ImportedFile, ...]  # the imported files
    summary: Json  # the attribute `imported`

    @property
    def shard(self) -> int:
        """Number of samples in a shard."""
        largest = max(
            int(np.prod(f.shape)) * np.dtype(f.variable.dtype).itemsize for f in self.plan.fields
        )
        return max(1, min(_SHARD_BYTES // max(largest, 1), self.plan.samples))

    @property
    def fingerprint(self) -> str:
        content = {
            "files": [source.sha256 for source in self.sources],
            "variables": self.summary["variables"],
            "coordinates": [
                [c.name, hashlib.sha256(np.ascontiguousarray(c.values).tobytes()).hexdigest(),
                 c.attributes.get("grid")]
                for c in self.plan.coordinates
            ],
            "physics": self.plan.physics.attributes(),
            "splits": {name: list(ends) for name, ends in self.plan.splits.items()},
            "shard": self.shard,
            "algorithm": ALGORITHM_VERSION,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def check(self) -> None:
        for source in self.sources:
            source.check()

    def layout(self) -> Layout:
        plan = self.plan
        return Layout(
            samples=plan.samples,
            shard=self.shard,
            variables=tuple(field.variable for field in plan.fields),
            coordinates=plan.coordinates,
            attributes={
                "title": plan.title,
                "equation": plan.equation,
                "recipe": {"name": plan.name},
                **({"physics": physics} if (physics := plan.physics.attributes()) else {}),
                **plan.attributes,
                "splits": {name: list(ends) for name, ends in plan.splits.items()},
                "fingerprint": self.fingerprint,
                "imported": self.summary,
                "provenance": provenance(),
            },
            domain=plan.domain,
        )

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        self.check()
        return self.values(samples)

    def values(self, samples: range) -> dict[str, np.ndarray]:
        """The values of samples. Raises SampleError if they are not finite, are too large, or
        contradict the declared physics."""
        values = {field.name: field.read(samples) for field in self.plan.fields}
        for name, array in values.items():
            rows = array.reshape(len(array), -1)
            sound = np.isfinite(rows).all(axis=1)
            if rows.dtype == np.float64:
                sound &= (np.abs(rows) <= _LARGEST).all(axis=1)
            sound |= np.isin(np.array(samples), list(self.plan.skipped))
            if not sound.all():
                row = int(np.flatnonzero(~sound)[0])
                problem = "not finite"
                if np.isfinite(rows[row]).all():
                    problem = f"larger than {_LARGEST:g}"
                elif (packing := self._packing(name)) is not None:
                    problem = f"missing, or not finite, by {packing.words}"
                raise SampleError(samples[row], f"{name} is {problem} in the file")
        for name, row, fault in contradictions(self.plan.physics, self.plan.domain, values):
            raise SampleError(samples[row], f"{name} {fault}")
        return values

    def _packing(self, name: str) -> Packing | None:
        (field,) = [field for field in self.plan.fields if field.name == name]
        return field.views[0].array.packing

    def skipped(self, samples: range) -> Mapping[int, str]:
        return {i: why for i, why in self.plan.skipped.items() if i in samples}

    def difference(self, store: Store) -> str:
        imported = store.metadata.imported
        names = ", ".join(source.path.name for source in self.sources)
        if imported is None:
            return f"{store.url} was not imported from {names}"
        digests = [file.sha256 for file in imported.files]
        if digests == [source.sha256 for source in self.sources]:
            return f"{store.url} was imported from {names} with other options"
        return f"{store.url} was imported from other files than {names}"
