"""Descriptions of published datasets. They say how files are recognised and imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Domain
from pdegen.formats.arrays import Contents, FormatError
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.plan import FieldPlan, Plan, View, box, numbers, split_sizes
from pdegen.store.format import Json, Physics
from pdegen.store.layout import positions, times


@dataclass(frozen=True)
class FileEntry:
    """A variable of a published dataset, and the array of the file that contains it.

    The fields `part`, `backwards`, `along` and `number` have the same meaning as in
    `pdegen.formats.plan.View`. If the end of `frames` is None, all later frames are read.
    `channels` maps the names of channels to their indices, which are adjacent. If `role` is empty,
    the variable `a` is the input and `u` the target. If `optional` is True, the file may lack the
    variable.
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
        """The view of this variable in the contents of a file."""
        array, channels, frames = contents.array(self.key), [*self.channels.values()], self.frames
        if frames is not None:
            frames = (frames[0], frames[1] or array.shape[self.axes.index("time")])
        return View(
            array, self.axes, frames, self.part,
            (channels[0], channels[-1] + 1) if channels else None, self.backwards, self.along,
            self.number,
        )  # fmt: skip


Facts = Json  # fields of `Published` that depend on the file


def no_facts(contents: Contents, sizes: Mapping[str, int]) -> Facts:
    """Return no facts. This is the default of `Published.facts`."""
    return {}


@dataclass(frozen=True)
class Published:
    """The description of a published dataset."""

    # name, title, equation and source, as in `pdegen.formats.plan.Plan`
    name: str
    title: str
    equation: str
    source: str
    entries: tuple[FileEntry, ...]  # the variables
    # splits of the literature, as sizes or ranges, from the number of samples in each file
    splits: Callable[[list[int]], Mapping[str, int | tuple[int, int]]]
    grid: str = ""  # grid, as in `pdegen.formats.plan.box`
    # required number of points along axes, by name
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    # values of further fields, from a file and the sizes of all axes; None if the file is not of
    # this dataset
    facts: Callable[[Contents, Mapping[str, int]], Facts | None] = no_facts
    # parameters of the equation, stored as attributes of the variables
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # positions of points along axes whose length is not 1, by name
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    times: Sequence[float] | np.ndarray = ()  # times of the target
    # facts on the equation
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    domain: Domain | None = None  # domain, if the points are not a grid
    warning: str = ""  # what is wrong with the published values, in one line

    def of(self, contents: Contents) -> Published | None:
        """A copy of this description with the facts of a file added. None if the file is not of
        this dataset, because arrays are missing or axes have other lengths."""
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
    datasets: Sequence[Published], files: Sequence[Contents], import_options: ImportOptions
) -> Plan:
    """The import plan of published files. Their samples are joined.

    Args:
        datasets: The description of each file.
        files: The contents of each file.
        import_options: Grid and splits that replace the published ones.

    Raises:
        FormatError: If the files do not fit together, or differ from the published files.
    """
    first = datasets[0]
    for dataset, contents in zip(datasets, files, strict=True):
        same = dataset.points.keys() == first.points.keys()
        same = same and np.array_equal(dataset.times, first.times)
        same = same and all(np.array_equal(dataset.points[k], x) for k, x in first.points.items())
        same = same and dict(dataset.parameters) == dict(first.parameters)
        if dataset.name != first.name or not same:
            raise FormatError(
                f"{contents.path.name} ({dataset.name}) and {files[0].path.name} ({first.name}) "
                "have different points, times or parameters: they cannot be joined"
            )
    fields = tuple(
        FieldPlan(
            entry.name,
            tuple(d.entries[i].view(file) for d, file in zip(datasets, files, strict=True)),
            _attributes(entry, first),
            "float64" if entry.number else "",
        )
        for i, entry in enumerate(first.entries)
    )
    if first.domain is not None and import_options.grid is not None:
        raise FormatError(
            f"{files[0].path.name}: the points are a {first.domain.kind}, not a grid: leave "
            f"{import_options.grid!r} out"
        )
    domain = first.domain or box(import_options.grid or first.grid, fields[0].space, first.points)
    return Plan(
        name=first.name,
        title=first.title,
        equation=first.equation,
        source=first.source,
        fields=fields,
        coordinates=(
            numbers(fields[0].samples),
            *positions(domain),
            *([times(first.times)] if len(first.times) else []),
        ),
        splits=_splits(first, fields[0], import_options),
        domain=domain,
        physics=first.physics,
        warning=first.warning,
    )


def _attributes(entry: FileEntry, dataset: Published) -> Json:
    role = entry.role or {"a": "input", "u": "target"}[entry.name]
    timed = entry.name == "u" and len(dataset.times) > 0
    domain, coordinates = dataset.domain, ["time"] if timed else []
    of_points = entry.number is None and domain is not None and set(entry.axes) & set(domain.axes)
    if domain is not None and role != "geometry" and of_points:
        coordinates += NAMES[: domain.dim]
    return {
        "long_name": entry.long_name,
        "role": role,
        "units": entry.units,
        **({"channels": [*entry.channels]} if entry.channels else {}),
        **({"coordinates": " ".join(coordinates)} if coordinates else {}),
        **(dataset.parameters if role in ("input", "target") else {}),
    }


def _splits(
    dataset: Published, field: FieldPlan, import_options: ImportOptions
) -> dict[str, tuple[int, int]]:
    if import_options.splits is not None:
        return split_sizes(import_options.splits, field.samples)
    literature = dataset.splits([view.sizes["sample"] for view in field.views])
    ranges = {name: ends for name, ends in literature.items() if isinstance(ends, tuple)}
    sizes = {name: size for name, size in literature.items() if isinstance(size, int)}
    return ranges or split_sizes(sizes, field.samples)
