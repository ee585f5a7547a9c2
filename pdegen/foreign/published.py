"""What is known of a published file, and the store that is made of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdegen.foreign.arrays import Contents, ForeignError
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.plan import (
    SPACE,
    Field,
    GridKind,
    Plan,
    View,
    axis,
    numbers,
    points,
    split_sizes,
)
from pdegen.store.layout import Coordinate


@dataclass(frozen=True)
class Entry:
    """A variable of a published file: its key and axes, and its meaning."""

    name: str
    key: str
    axes: tuple[str, ...]
    long_name: str
    frames: tuple[int, int] | None = None


@dataclass(frozen=True)
class Published:
    """What is known of a file.

    Args:
        name, title, equation, source: As of `pdegen.foreign.plan.Plan`.
        grid: What the points are.
        entries: Its variables.
        splits: Splits of the literature, as sizes or as ranges, by the numbers of samples of the
            files.
        parameters: Of the equation; attributes of the variables.
        coordinates: Points and times, where they are not those of the grid; by their names.
    """

    name: str
    title: str
    equation: str
    source: str
    grid: GridKind
    entries: tuple[Entry, ...]
    splits: Callable[[list[int]], Mapping[str, int | tuple[int, int]]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    coordinates: tuple[Coordinate, ...] = ()


def plan(found: Sequence[Published], files: Sequence[Contents], declaration: Declaration) -> Plan:
    """The store of files of one kind, their samples one after the other.

    Args:
        found: What is known of each file.
        files: The files.
        declaration: `grid` and `splits` go before what is known.

    Raises:
        ForeignError: If the files do not fit together, or are not as published.
    """
    known = found[0]
    for one, contents in zip(found, files, strict=True):
        if one.name != known.name or not _same(one.coordinates, known.coordinates):
            raise ForeignError(
                f"{contents.path.name} ({one.name}) and {files[0].path.name} ({known.name}) have "
                "other points or times: they cannot be joined"
            )
    fields = tuple(
        Field(
            entry.name,
            tuple(
                View(contents.array(one.entries[i].key), one.entries[i].axes, one.entries[i].frames)
                for one, contents in zip(found, files, strict=True)
            ),
            _attributes(entry, known),
        )
        for i, entry in enumerate(known.entries)
    )
    return Plan(
        name=known.name,
        title=known.title,
        equation=known.equation,
        source=known.source,
        fields=fields,
        coordinates=_coordinates(fields, known, declaration),
        splits=_splits(known, fields[0], declaration),
    )


def _attributes(entry: Entry, known: Published) -> dict[str, Any]:
    role = {"a": "input", "u": "target"}[entry.name]
    timed = entry.name == "u" and any(one.name == "time" for one in known.coordinates)
    return {
        "long_name": entry.long_name,
        "role": role,
        "units": "1",
        **({"coordinates": "time"} if timed else {}),
        **known.parameters,
    }


def _same(one: Sequence[Coordinate], other: Sequence[Coordinate]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a.values, b.values) for a, b in zip(one, other, strict=True)
    )


def _coordinates(
    fields: Sequence[Field], known: Published, declaration: Declaration
) -> tuple[Coordinate, ...]:
    given = {one.name: one for one in known.coordinates}
    shape = {dim: n for field in fields for dim, n in zip(field.dims, field.shape, strict=True)}
    space = [dim for dim in SPACE if dim in shape]
    kind = declaration.grid or known.grid
    regular = {one.name: one for one in points(kind, space, [shape[dim] for dim in space])}
    result = [numbers(fields[0].samples)]
    for name in space:
        one = given.pop(name, regular[name])
        result.append(axis(name, one.values, kind, one.attributes["long_name"]))
    return (*result, *given.values())


def _splits(known: Published, field: Field, declaration: Declaration) -> dict[str, tuple[int, int]]:
    if declaration.splits is not None:
        return split_sizes(declaration.splits, field.samples)
    literature = known.splits([view.sizes["sample"] for view in field.views])
    ranges = {name: ends for name, ends in literature.items() if isinstance(ends, tuple)}
    sizes = {name: size for name, size in literature.items() if isinstance(size, int)}
    return ranges or split_sizes(sizes, field.samples)


def shapes(contents: Contents, *keys: str) -> list[tuple[int, ...]] | None:
    """Shapes of these arrays; None where one is missing."""
    if any(key not in contents.arrays for key in keys):
        return None
    return [contents.arrays[key].shape for key in keys]


def named(contents: Contents, pattern: str) -> str | None:
    """What a pattern finds in the file's name."""
    match = re.search(pattern, contents.path.name)
    return match.group(1) if match else None
