"""Files that are not known, read as is said by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdegen.foreign.arrays import Array, Contents, ForeignError
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.plan import (
    SPACE,
    Field,
    Plan,
    View,
    numbers,
    points,
    split_sizes,
    times,
)


def declared(files: Sequence[Contents], declaration: Declaration) -> Plan:
    """The plan of files whose arrays, grid and splits are given.

    Axes are samples first (or last, by `declaration.samples`), then space; a target with one axis
    more than the input has times, whose place follows from the shapes or is `declaration.times`.

    Raises:
        ForeignError: If something is not given (it lists what the file holds), or does not fit.
    """
    given = {
        "input": declaration.input, "target": declaration.target, "grid": declaration.grid,
        "splits": declaration.splits,
    }  # fmt: skip
    missing = [word for word, value in given.items() if value is None]
    if missing:
        raise ForeignError(
            f"{files[0].summary}: no file that is known. Give {', '.join(missing)} (names of two "
            "arrays; periodic, cell or nodal; sizes of train, validation and test)"
        )
    assert declaration.input is not None
    assert declaration.target is not None
    assert declaration.grid is not None
    assert declaration.splits is not None
    inputs = [file.array(declaration.input) for file in files]
    targets = [file.array(declaration.target) for file in files]
    axes = _axes(inputs[0], targets[0], declaration)
    frames = (None, None)
    if declaration.input == declaration.target:
        count = inputs[0].shape[axes[0].index("time")]
        if count < 2:
            raise ForeignError(f"{inputs[0].where} {inputs[0].shape} has a single time")
        frames = ((0, 1), (1, count))
    fields = tuple(
        Field(
            name,
            tuple(View(array, axes[i], frames[i]) for array in arrays),
            {"long_name": f"{arrays[0].name} of {files[0].path.name}", "role": role, "units": "1"},
        )
        for i, (name, arrays, role) in enumerate((("a", inputs, "input"), ("u", targets, "target")))
    )
    a, u = fields
    space = [dim for dim in SPACE if dim in a.dims]
    sizes = [n for dim, n in zip(a.dims, a.shape, strict=True) if dim in space]
    if sizes != [n for dim, n in zip(u.dims, u.shape, strict=True) if dim in space]:
        raise ForeignError(
            f"{inputs[0].where} {inputs[0].shape} and {targets[0].where} {targets[0].shape} are "
            "on different grids"
        )
    count = dict(zip(u.dims, u.shape, strict=True)).get("time", 0)
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=fields,
        coordinates=(
            numbers(a.samples),
            *points(declaration.grid, space, sizes),
            *((times(np.arange(count)),) if count else ()),
        ),
        splits=split_sizes(declaration.splits, a.samples),
    )


def _axes(a: Array, u: Array, declaration: Declaration) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the axes of input and target."""
    timed = len(u.shape) - len(a.shape)
    if a.name == u.name:
        space = SPACE[: len(a.shape) - 2]
        axes = _with_samples(_with_time(space, declaration.times or "first"), declaration)
        known = axes, axes
    else:
        space = SPACE[: len(a.shape) - 1]
        where = declaration.times or _where_times_are(a, u, declaration)
        known = (
            _with_samples(space, declaration),
            _with_samples(_with_time(space, where) if timed else space, declaration),
        )
    if not space or timed not in (0, 1) or len(known[0]) != len(a.shape):
        raise ForeignError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to three "
            "axes of space, a target the same and perhaps times"
        )
    return known


def _with_samples(axes: tuple[str, ...], declaration: Declaration) -> tuple[str, ...]:
    return ("sample", *axes) if declaration.samples == "first" else (*axes, "sample")


def _with_time(space: tuple[str, ...], where: str) -> tuple[str, ...]:
    return ("time", *space) if where == "first" else (*space, "time")


def _where_times_are(a: Array, u: Array, declaration: Declaration) -> str:
    """The place of the times, where the shapes tell."""
    cut = slice(1, None) if declaration.samples == "first" else slice(None, -1)
    space, both = a.shape[cut], u.shape[cut]
    fits = [where for where, rest in (("first", both[1:]), ("last", both[:-1])) if rest == space]
    if len(both) == len(space) + 1 and len(fits) != 1:
        raise ForeignError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: say whether the times are first (after "
            "the samples) or last"
        )
    return fits[0] if fits else "first"
