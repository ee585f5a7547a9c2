"""What is known of published files, how they are recognised, and the store that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Domain
from pdegen.formats.arrays import Contents, FormatError
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.plan import Field, Plan, View, box, numbers, split_sizes
from pdegen.store.arrays import Json
from pdegen.store.format import Physics
from pdegen.store.variables import positions, times


@dataclass(frozen=True)
class FileEntry:
    """A variable of a published file: its key and axes, and its meaning.

    `part`, `backwards`, `along` and `number` are those of `pdegen.formats.plan.View`; `frames` that
    end with None go up to the last one; `channels` are neighbouring ones with their numbers.
    Without a role a is the input and u the target. A file may lack an optional variable.
    """

    name: str
    key: str
    axes: tuple[str, ...]
    long_name: str
    frames: tuple[int, int | None] | None = None
    part: int | None = None
    role: str = ""
    channels: Mapping[str, int] = field(default_factory=dict[str, int])
    backwards: tuple[str, ...] = ()
    along: tuple[tuple[str, int], ...] = ()
    units: str = "1"
    number: Callable[[np.ndarray], np.ndarray] | None = None
    optional: bool = False

    def view(self, contents: Contents) -> View:
        """Where it is in a file."""
        array, numbers, frames = contents.array(self.key), [*self.channels.values()], self.frames
        if frames is not None:
            frames = (frames[0], frames[1] or array.shape[self.axes.index("time")])
        return View(
            array, self.axes, frames, self.part,
            (numbers[0], numbers[-1] + 1) if numbers else None, self.backwards, self.along,
            self.number,
        )  # fmt: skip


Facts = Json  # fields of `Published` that depend on the file


def no_facts(contents: Contents, sizes: Mapping[str, int]) -> Facts:
    """Change nothing: the default of `Published.facts`."""
    return {}


@dataclass(frozen=True)
class Published:
    """A published dataset."""

    # name, title, equation, source: as of `pdegen.formats.plan.Plan`
    name: str
    title: str
    equation: str
    source: str
    entries: tuple[FileEntry, ...]  # its variables
    # splits of the literature, as sizes or as ranges, by the numbers of samples of the files
    splits: Callable[[list[int]], Mapping[str, int | tuple[int, int]]]
    grid: str = ""  # what the points are, as of `pdegen.formats.plan.box`
    # numbers of points that axes have
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    # other values of these fields, from a file and the sizes of all axes; None where the file is
    # another
    facts: Callable[[Contents, Mapping[str, int]], Facts | None] = no_facts
    # of the equation; attributes of the variables
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # along axes that have not the length 1
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    times: Sequence[float] | np.ndarray = ()  # of the target
    # what is known of the equation
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    domain: Domain | None = None  # where the points are no grid

    def of(self, contents: Contents) -> Published | None:
        """What is known of a file of this dataset; None where it is another: where arrays are
        missing, or axes of one name differ in their points."""
        sizes: dict[str, int] = {}
        entries = [e for e in self.entries if e.key in contents.arrays or not e.optional]
        for entry in entries:
            array = contents.arrays.get(entry.key)
            if array is None or len(array.shape) != len(entry.axes):
                return None
            for axis, n in zip(entry.axes, array.shape, strict=True):
                if sizes.setdefault(axis, n) != n:
                    return None
        if any(sizes[axis] != n for axis, n in self.sizes.items()):
            return None
        facts = self.facts(contents, sizes)
        return None if facts is None else replace(self, entries=tuple(entries), **facts)


def plan(
    found: Sequence[Published], files: Sequence[Contents], import_options: ImportOptions
) -> Plan:
    """The store of files of one kind, their samples one after the other. Raises FormatError if the
    files do not fit together, or are not as published."""
    known = found[0]
    for one, contents in zip(found, files, strict=True):
        alike = one.points.keys() == known.points.keys() and np.array_equal(one.times, known.times)
        alike &= all(np.array_equal(one.points[dim], x) for dim, x in known.points.items())
        if one.name != known.name or not alike:
            raise FormatError(
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
    if known.domain is not None and import_options.grid is not None:
        raise FormatError(
            f"{files[0].path.name}: the points are a {known.domain.kind}, not a grid: leave "
            f"{import_options.grid!r} out"
        )
    domain = known.domain or box(import_options.grid or known.grid, fields[0].space, known.points)
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
        splits=_splits(known, fields[0], import_options),
        domain=domain,
        physics=known.physics,
    )


def _attributes(entry: FileEntry, known: Published) -> Json:
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


def _splits(
    known: Published, field: Field, import_options: ImportOptions
) -> dict[str, tuple[int, int]]:
    if import_options.splits is not None:
        return split_sizes(import_options.splits, field.samples)
    literature = known.splits([view.sizes["sample"] for view in field.views])
    ranges = {name: ends for name, ends in literature.items() if isinstance(ends, tuple)}
    sizes = {name: size for name, size in literature.items() if isinstance(size, int)}
    return ranges or split_sizes(sizes, field.samples)
