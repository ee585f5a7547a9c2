"""What a store takes from files: which axes of which arrays, joined along the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pdegen.domains import GRIDS, Box, Domain, Grid
from pdegen.domains import NAMES as SPACE
from pdegen.formats.array_digests import BLOCK, Digest
from pdegen.formats.arrays import Array, FormatError
from pdegen.store.arrays import LEADING, Json
from pdegen.store.format import Physics
from pdegen.store.splits import splits_fault
from pdegen.store.variables import Coordinate, Variable
from pdegen.store.variables import times as times

AXES = ("sample", "time", "channel", *SPACE)  # in the order of a store
# what numbers are kept in: exactly, though wider where a store has no such type
_KEPT = {
    "float32": "float32", "float64": "float64", "float16": "float32", "bool": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64",
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """An array with its axes named. Raises FormatError if the array has other axes."""

    array: Array  # the array
    # names of its axes: "sample", "time", "channel", "x", "y", "z", or others; "" of one with a
    # single point
    axes: tuple[str, ...]
    # first and one past the last point of the axis time; all by default. An axis time with a single
    # frame is left out
    frames: tuple[int, int] | None = None
    part: int | None = None  # which point of the axis "part" is taken; that axis is left out
    # first and one past the last point of the axis channel; all by default
    channels: tuple[int, int] | None = None
    backwards: tuple[str, ...] = ()  # axes that are read from their ends
    # axes that the array has not, and their points: its values are the same in all
    along: tuple[tuple[str, int], ...] = ()
    # what is made of the values of samples, one number of each; by default they are kept
    number: Callable[[np.ndarray], np.ndarray] | None = None

    def __post_init__(self) -> None:
        shape = self.array.shape
        fits = len(self.axes) == len(shape) and all(
            axis or n == 1 for axis, n in zip(self.axes, shape, strict=True)
        )
        if not fits or 0 in shape:
            names = ", ".join(axis or "1" for axis in self.axes)
            raise FormatError(f"{self.array.where} should have the axes {names}, has {shape}")

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes after the samples, in the order of a store: time, channel, space."""
        return () if self.number else self._read

    @property
    def _read(self) -> tuple[str, ...]:
        """Those of what is read of the array."""
        one_frame = self.frames is not None and self.frames[1] - self.frames[0] == 1
        dropped = {"", "sample", "part", *(("time",) if one_frame else ())}
        axes = (*self.axes, *dict(self.along))
        return tuple(sorted((axis for axis in axes if axis not in dropped), key=_place))

    @property
    def sizes(self) -> dict[str, int]:
        """Points along each axis."""
        sizes = dict(zip(self.axes, self.array.shape, strict=True)) | dict(self.along)
        for axis, taken in (("time", self.frames), ("channel", self.channels)):
            if taken is not None:
                sizes[axis] = taken[1] - taken[0]
        return sizes

    @property
    def said(self) -> Json:
        """What is taken of the array, where it is not all as it stands there."""
        taken: Json = {
            "part": self.part,
            "channels": self.channels and list(self.channels),
            "backwards": list(self.backwards) or None,
            "along": dict(self.along) or None,
            "number": self.number and self.number.__name__,
        }
        return {name: value for name, value in taken.items() if value is not None}

    def read(self, start: int, stop: int) -> np.ndarray:
        """The values of some samples, shape (samples, *dims)."""
        taken = {"sample": slice(start, stop)}
        if self.frames is not None:
            taken["time"] = slice(*self.frames)
        if self.part is not None:
            taken["part"] = slice(self.part, self.part + 1)
        if self.channels is not None:
            taken["channel"] = slice(*self.channels)
        values = self.array.read(tuple(taken.get(axis, slice(None)) for axis in self.axes))
        kept = ("sample", *self._read)
        dropped = tuple(i for i, axis in enumerate(self.axes) if axis not in kept)
        axes = [axis for axis in self.axes if axis in kept]
        values = values.squeeze(axis=dropped).transpose(
            [axes.index(dim) for dim in kept if dim in axes]
        )
        values = np.flip(values, tuple(kept.index(axis) for axis in self.backwards))
        there = [axis for axis in kept if axis not in axes]
        values = np.expand_dims(values, [kept.index(axis) for axis in there])
        sizes = self.sizes | {"sample": len(values)}
        values = np.broadcast_to(values, [sizes[dim] for dim in kept])
        return self.number(values) if self.number else values


def _place(axis: str) -> int:
    """Of an axis among the others; axes of meshes stay as they are."""
    order = (*LEADING, "", *SPACE)
    return order.index(axis if axis in order else "")


@dataclass(frozen=True)
class Field:
    """A variable of a store: the same array of several files, one after the other. Raises
    FormatError if the files do not fit together."""

    name: str  # name in the store
    views: tuple[View, ...]  # one of each file
    attributes: Mapping[str, Any]  # long_name, units, role and parameters
    dtype: str = ""  # type in the store; by default a float that holds the numbers
    sha256: str = ""  # digest of all values, where the file has it

    def __post_init__(self) -> None:
        first = self.views[0]
        if not self.dtype and first.array.dtype.name not in _KEPT:
            raise FormatError(
                f"{first.array.where} is of type {first.array.dtype}, which floats do not hold "
                "exactly"
            )
        for view in self.views[1:]:
            one, other = first.array, view.array
            if (first.dims, self.shape, one.dtype) != (view.dims, _shape(view), other.dtype):
                raise FormatError(f"{one.where} {one.shape} and {other.where} {other.shape} differ")

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes after the samples."""
        return self.views[0].dims

    @property
    def shape(self) -> tuple[int, ...]:
        return _shape(self.views[0])

    @property
    def space(self) -> dict[str, int]:
        """Points along the axes of space."""
        return {dim: n for dim, n in zip(self.dims, self.shape, strict=True) if dim in SPACE}

    @property
    def samples(self) -> int:
        return sum(view.sizes["sample"] for view in self.views)

    @property
    def variable(self) -> Variable:
        """What a store is told of it."""
        found = self.views[0].array.dtype.name
        attributes = dict(self.attributes)
        if "channel" in self.dims and "channels" not in attributes:
            count = self.shape[self.dims.index("channel")]
            attributes["channels"] = [f"c{k}" for k in range(count)]  # of all fields alike
        kept = self.dtype or _KEPT[found]
        if found != kept and not self.views[0].number:
            attributes["type_in_file"] = found
        return Variable(self.name, self.dims, self.shape, kept, attributes)

    def read(self, samples: range) -> np.ndarray:
        """The values of some samples, in the type they are kept in."""
        parts, first = [], 0
        for view in self.views:
            count = view.sizes["sample"]
            start, stop = max(samples.start - first, 0), min(samples.stop - first, count)
            if start < stop:
                parts.append(view.read(start, stop))
            first += count
        return np.concatenate(parts).astype(self.variable.dtype, copy=False)

    def check(self) -> None:
        """Raise FormatError where the values differ from their digest."""
        if not self.sha256:
            return
        row = math.prod(self.shape) * np.dtype(self.variable.dtype).itemsize
        rows = max(1, BLOCK // row)
        found = Digest()
        for start in range(0, self.samples, rows):
            found.add(self.read(range(start, min(start + rows, self.samples))))
        check_digest(self.views[0].array, found, self.sha256)


def check_digest(array: Array, found: Digest, sha256: str) -> None:
    """Raise FormatError where the digest of an array is not that of its description."""
    if found.hex != sha256:
        raise FormatError(f"{array.where} differs from its SHA-256: the file was changed")


def _shape(view: View) -> tuple[int, ...]:
    return tuple(view.sizes[dim] for dim in view.dims)


@dataclass(frozen=True)
class Plan:
    """A store that is made of files. Raises FormatError if the variables have different numbers of
    samples, or the splits cannot be."""

    # name, title, equation: for people
    name: str
    title: str
    equation: str
    source: str  # where the facts about the files come from
    fields: tuple[Field, ...]  # the variables
    coordinates: tuple[Coordinate, ...]  # coordinates, the number of the sample among them
    # first and one past the last sample of each split; no sample is in two
    splits: Mapping[str, tuple[int, int]]
    # where the variables are functions; None where `attributes` say it
    domain: Domain | None = None
    # what is known of the equation
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    attributes: Mapping[str, Any] = field(default_factory=dict)  # further attributes of the store
    # samples whose values are NaN, and why
    skipped: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {field.name: field.samples for field in self.fields}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} has {n}" for name, n in counts.items())
            raise FormatError(f"the variables have different numbers of samples: {found}")
        if fault := splits_fault(self.splits, self.samples):
            raise FormatError(f"{fault}: give sizes by --split NAME=SIZE")

    @property
    def samples(self) -> int:
        return self.fields[0].samples

    @property
    def arrays(self) -> list[Array]:
        """What the variables are read from."""
        return [view.array for field in self.fields for view in field.views]

    def reading(self, arrays: Mapping[Array, Array]) -> Plan:
        """The same, of other arrays."""
        return replace(self, fields=tuple(
            replace(field, views=tuple(
                replace(view, array=arrays[view.array]) for view in field.views
            ))
            for field in self.fields
        ))  # fmt: skip


def box(grid: str, sizes: Mapping[str, int], points: Mapping[str, np.ndarray]) -> Box:
    """The box of these sizes along its axes.

    Args:
        grid: "periodic", "cell" or "nodal"; or a word for each axis, as "periodic,nodal".
        sizes: By the names of the axes.
        points: Along axes that have not the length 1.

    Raises:
        FormatError: If a word is unknown, or points do not belong to such a grid.

    >>> box("periodic,nodal", {"x": 8, "y": 5}, {"y": np.linspace(-1, 1, 5)}).grids[1].length
    2.0
    """
    kinds = grid.split(",") if "," in grid else [grid] * len(sizes)
    if len(kinds) != len(sizes) or set(kinds) - set(GRIDS):
        raise FormatError(
            f"the grid is {grid!r}: periodic, cell or nodal, or one of these for each of "
            f"{', '.join(sizes)}"
        )
    return Box(tuple(
        _grid(dim, GRIDS[kind], n, points.get(dim))
        for (dim, n), kind in zip(sizes.items(), kinds, strict=True)
    ))  # fmt: skip


def _grid(dim: str, kind: type[Grid], n: int, x: np.ndarray | None) -> Grid:
    """The grid of an axis; points in float32 are known to a part of the spacing."""
    try:
        unit = kind(n)
        if x is None or _near(unit, x):
            return unit
        found = kind.through(np.linspace(float(x[0]), float(x[-1]), n))
        if _near(found, x):
            return found
        raise ValueError("they do not rise by equal steps")
    except ValueError as error:
        raise FormatError(f"the axis {dim} has {n} points: {error}") from None


def _near(grid: Grid, x: np.ndarray) -> bool:
    return bool(np.abs(grid.x - x).max() <= 1e-3 * grid.spacing)


def numbers(samples: int) -> Coordinate:
    """The coordinate sample."""
    attributes = {"long_name": "number of the sample"}
    return Coordinate("sample", ("sample",), np.arange(samples), attributes)


def split_sizes(sizes: Mapping[str, int], samples: int) -> dict[str, tuple[int, int]]:
    """Splits of these sizes: train from the front, test from the end, validation before test.

    Raises:
        FormatError: If they do not fit, or have other names.

    >>> split_sizes({"train": 6, "test": 2}, 10)
    {'train': (0, 6), 'test': (8, 10)}
    """
    if set(sizes) - {"train", "validation", "test"} or sizes.get("train", 0) < 1:
        raise FormatError(
            f"splits are the sizes of train, validation and test, train at least 1, got {sizes}"
        )
    if min(sizes.values()) < 0 or sum(sizes.values()) > samples:
        wanted = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise FormatError(
            f"{samples} samples cannot be split into {wanted}: give the sizes of train, "
            "validation and test by --split NAME=SIZE"
        )
    test = samples - sizes.get("test", 0)
    ranges = {
        "train": (0, sizes["train"]),
        "validation": (test - sizes.get("validation", 0), test),
        "test": (test, samples),
    }
    return {name: ends for name, ends in ranges.items() if ends[0] < ends[1]}
