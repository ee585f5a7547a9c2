"""Files that are not known, read as is said by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdegen.formats.arrays import Array, Contents, FormatError
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.plan import AXES, SPACE, Field, Plan, View, box, numbers, split_sizes
from pdegen.store.format import Physics
from pdegen.store.variables import positions, times


def described_plan(files: Sequence[Contents], import_options: ImportOptions) -> Plan:
    """The plan of files whose arrays, grid and splits are given.

    Axes are samples first (or last, by `import_options.samples`), then space; a target with an axis
    more than the input has times, whose place follows from the shapes or is `import_options.times`.
    Others, and channels, are named by `import_options.input_axes` and `import_options.target_axes`.
    Raises FormatError if something is not given (it lists what the file holds), or does not fit.
    """
    needed = {
        "--input": (import_options.input, "name of an array"),
        "--target": (import_options.target, "name of an array"),
        "--grid": (import_options.grid, "periodic, cell or nodal"),
        "--split": (import_options.splits, "NAME=SIZE, of train, validation and test"),
    }
    missing = [f"{word} ({what})" for word, (value, what) in needed.items() if value is None]
    if missing:
        raise FormatError(f"{files[0].summary}: no file that is known. Give {', '.join(missing)}")
    assert import_options.input is not None
    assert import_options.target is not None
    assert import_options.grid is not None
    assert import_options.splits is not None
    inputs = [file.array(import_options.input) for file in files]
    targets = [file.array(import_options.target) for file in files]
    axes = _axes(inputs[0], targets[0], import_options)
    frames = (None, None)
    if import_options.input == import_options.target:
        count = inputs[0].shape[axes[0].index("time")]
        if count < 2:
            raise FormatError(f"{inputs[0].where} {inputs[0].shape} has a single time")
        frames = ((0, 1), (1, count))
    a, u = (
        Field(
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
    domain = box(import_options.grid, a.space, {})
    count = max(dict(zip(one.dims, one.shape, strict=True)).get("time", 0) for one in (a, u))
    known = {} if import_options.boundary is None else {"u": import_options.boundary}
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(a, u),
        coordinates=(
            numbers(a.samples),
            *positions(domain),
            *((times(np.arange(count)),) if count else ()),
        ),
        splits=split_sizes(import_options.splits, a.samples),
        domain=domain,
        physics=Physics(boundary=known),
    )


def _axes(
    a: Array, u: Array, import_options: ImportOptions
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the axes of input and target."""
    same = a.name == u.name
    first = SPACE[: len(a.shape) - (2 if same else 1)]
    where = import_options.times or ("first" if same else _where_times_are(a, u, import_options))
    timed = ("time", *first) if where == "first" else (*first, "time")
    guessed = timed if same or len(u.shape) > len(a.shape) else first
    ends = (("sample",), ()) if import_options.samples == "first" else ((), ("sample",))
    found = (
        import_options.input_axes or (*ends[0], *(timed if same else first), *ends[1]),
        import_options.target_axes or (*ends[0], *guessed, *ends[1]),
    )
    for array, axes in ((a, found[0]), (u, found[1])):
        told = len(set(axes)) == len(axes) == len(array.shape) and set(axes) <= set(AXES)
        if not told or "sample" not in axes or not set(SPACE) & set(axes):
            raise FormatError(
                f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to "
                "three axes of space, a target the same and perhaps times; of others, say the "
                f"axes, of {', '.join(AXES)}"
            )
    return found


def _where_times_are(a: Array, u: Array, import_options: ImportOptions) -> str:
    """The place of the times, where the shapes tell."""
    if import_options.target_axes:
        return "first"
    cut = slice(1, None) if import_options.samples == "first" else slice(None, -1)
    space, both = a.shape[cut], u.shape[cut]
    fits = [where for where, rest in (("first", both[1:]), ("last", both[:-1])) if rest == space]
    if len(both) == len(space) + 1 and len(fits) != 1:
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: say whether the times are first (after "
            "the samples) or last"
        )
    return fits[0] if fits else "first"
