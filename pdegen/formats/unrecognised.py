"""The import plan of files that are not recognised, made from the options of the user."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdegen.formats.arrays import Array, Contents, FormatError
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.plan import AXES, SPACE, FieldPlan, Plan, View, box, numbers, split_sizes
from pdegen.store.format import Physics
from pdegen.store.layout import positions, times


def described_plan(files: Sequence[Contents], options: ImportOptions) -> Plan:
    """The import plan of files whose arrays, grid and splits are described by the user.

    The axis of samples is the first one, or the last one if `options.samples` is "last". The other
    axes are those of space. If the target has one axis more than the input, the additional axis is
    that of times. `options.times` says where it is, if the shapes do not determine this. If an
    array has other axes, `options.input_axes` or `options.target_axes` names all its axes.

    Raises:
        FormatError: If an option is missing (the message lists the contents of the file), or does
            not fit the arrays.
    """
    required = {
        "--input": (options.input, "name of an array"),
        "--target": (options.target, "name of an array"),
        "--grid": (options.grid, "periodic, cell or nodal"),
        "--split": (options.splits, "NAME=SIZE, of train, validation and test"),
    }
    missing = [f"{name} ({help})" for name, (value, help) in required.items() if value is None]
    if missing:
        raise FormatError(f"{files[0].summary}: not a recognised file: give {', '.join(missing)}")
    assert options.input is not None
    assert options.target is not None
    assert options.grid is not None
    assert options.splits is not None
    inputs = [file.array(options.input) for file in files]
    targets = [file.array(options.target) for file in files]
    axes = _axes(inputs[0], targets[0], options)
    frames = (None, None)
    if options.input == options.target:
        count = inputs[0].shape[axes[0].index("time")]
        if count < 2:
            raise FormatError(f"{inputs[0].where} {inputs[0].shape} has a single time")
        frames = ((0, 1), (1, count))
    a, u = (
        FieldPlan(
            name,
            tuple(View(array, axes[i], frames[i]) for array in arrays),
            {"long_name": f"{arrays[0].name} of {files[0].path.name}", "role": role, "units": "1"},
        )
        for i, (name, arrays, role) in enumerate((("a", inputs, "input"), ("u", targets, "target")))
    )
    if a.space != u.space:
        raise FormatError(
            f"{inputs[0].where} {inputs[0].shape} and {targets[0].where} {targets[0].shape} are "
            "on different grids"
        )
    domain = box(options.grid, a.space, {})
    count = max(dict(zip(f.dims, f.shape, strict=True)).get("time", 0) for f in (a, u))
    first = 1 if options.input == options.target else 0  # the input is the frame 0
    boundary = {} if options.boundary is None else {"u": options.boundary}
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(a, u),
        coordinates=(
            numbers(a.samples),
            *positions(domain),
            *((times(np.arange(first, first + count)),) if count else ()),
        ),
        splits=split_sizes(options.splits, a.samples),
        domain=domain,
        physics=Physics(boundary=boundary),
    )


def _axes(a: Array, u: Array, options: ImportOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the axes of the input and of the target."""
    same = a.name == u.name
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


def _position_of_times(a: Array, u: Array, options: ImportOptions) -> str:
    """The position of the axis of times, "first" or "last". Raises FormatError if it does not
    follow from the shapes."""
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
