"""What is known of a published file, and the store that is made of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Domain
from pdegen.foreign.arrays import Contents, ForeignError
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.plan import Field, Plan, View, box, numbers, split_sizes
from pdegen.store.format import Drawing, Physics
from pdegen.store.variables import positions, times


@dataclass(frozen=True)
class FileEntry:
    """A variable of a published file: its key and axes, and its meaning.

    `frames`, `part`, `backwards`, `along` and `number` are those of `pdegen.foreign.plan.View`,
    `channels` neighbouring ones with their numbers; without a role a is the input and u the target.
    """

    name: str
    key: str
    axes: tuple[str, ...]
    long_name: str
    frames: tuple[int, int] | None = None
    part: int | None = None
    role: str = ""
    channels: Mapping[str, int] = field(default_factory=dict[str, int])
    backwards: tuple[str, ...] = ()
    along: tuple[tuple[str, int], ...] = ()
    units: str = "1"
    number: Callable[[np.ndarray], np.ndarray] | None = None

    def view(self, contents: Contents) -> View:
        """Where it is in a file."""
        numbers = [*self.channels.values()]
        return View(
            contents.array(self.key), self.axes, self.frames, self.part,
            (numbers[0], numbers[-1] + 1) if numbers else None, self.backwards, self.along,
            self.number,
        )  # fmt: skip


@dataclass(frozen=True)
class Published:
    """What is known of a file.

    Args:
        name, title, equation, source: As of `pdegen.foreign.plan.Plan`.
        grid: What the points are, as of `pdegen.foreign.plan.box`.
        entries: Its variables.
        splits: Splits of the literature, as sizes or as ranges, by the numbers of samples of the
            files.
        parameters: Of the equation; attributes of the variables.
        points: Along axes that have not the length 1.
        times: Of the target.
        physics: What is known of the equation.
        domain: Where the points are no grid.
    """

    name: str
    title: str
    equation: str
    source: str
    grid: str
    entries: tuple[FileEntry, ...]
    splits: Callable[[list[int]], Mapping[str, int | tuple[int, int]]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    times: Sequence[float] | np.ndarray = ()
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    domain: Domain | None = None


BURGERS_EQUATION = "u_t + u u_x = viscosity u_xx, x on the circle of length 1"
DARCY_EQUATION = "-div(a grad u) = source on (0,1)^2, u = 0 on the boundary"
BURGERS = Physics(
    symmetries=("shift", "odd-reflection"), drawing={"a": Drawing("a"), "u": Drawing("u")}
)


def darcy_physics(low: float, high: float) -> Physics:
    """What is known of Darcy's equation with a coefficient of two values, a = low or high."""
    return Physics(
        boundary={"u": 0.0},
        symmetries=("square",),
        loss_weight="a",
        phases={"a": (low, high)},
        drawing={"a": Drawing("a", "phases", log=True), "u": Drawing("u")},
    )


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
        alike = one.points.keys() == known.points.keys() and np.array_equal(one.times, known.times)
        alike &= all(np.array_equal(one.points[dim], x) for dim, x in known.points.items())
        if one.name != known.name or not alike:
            raise ForeignError(
                f"{contents.path.name} ({one.name}) and {files[0].path.name} ({known.name}) have "
                "other points or times: they cannot be joined"
            )
    fields = tuple(
        Field(
            entry.name,
            tuple(one.entries[i].view(file) for one, file in zip(found, files, strict=True)),
            _attributes(entry, known),
            "float64" if entry.number else "",
        )
        for i, entry in enumerate(known.entries)
    )
    if known.domain is not None and declaration.grid is not None:
        raise ForeignError(
            f"{files[0].path.name}: the points are a {known.domain.kind}, not a grid: leave "
            f"{declaration.grid!r} out"
        )
    domain = known.domain or box(declaration.grid or known.grid, fields[0].space, known.points)
    return Plan(
        name=known.name,
        title=known.title,
        equation=known.equation,
        source=known.source,
        fields=fields,
        coordinates=(
            numbers(fields[0].samples),
            *positions(domain),
            *([times(known.times)] if len(known.times) else []),
        ),
        splits=_splits(known, fields[0], declaration),
        domain=domain,
        physics=known.physics,
    )


def _attributes(entry: FileEntry, known: Published) -> dict[str, Any]:
    role = entry.role or {"a": "input", "u": "target"}[entry.name]
    timed = entry.name == "u" and len(known.times) > 0
    domain, words = known.domain, ["time"] if timed else []
    of_points = entry.number is None and domain is not None and set(entry.axes) & set(domain.axes)
    if domain is not None and role != "geometry" and of_points:
        words += NAMES[: domain.dim]
    return {
        "long_name": entry.long_name,
        "role": role,
        "units": entry.units,
        **({"channels": [*entry.channels]} if entry.channels else {}),
        **({"coordinates": " ".join(words)} if words else {}),
        **(known.parameters if role in ("input", "target") else {}),
    }


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
