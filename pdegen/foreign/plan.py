"""What a store takes from files: which axes of which arrays, joined along the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pdegen.domains import CellGrid, NodalGrid
from pdegen.foreign.arrays import Array, ForeignError
from pdegen.store.variables import Coordinate, Variable
from pdegen.store.variables import times as times

GridKind = Literal["periodic", "cell", "nodal"]

SPACE = ("x", "y", "z")
# what numbers are kept in: exactly, though wider where a store has no such type
_KEPT = {
    "float32": "float32", "float64": "float64", "float16": "float32", "bool": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64",
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """An array with its axes named.

    Args:
        array: The array.
        axes: Names of its axes: "sample", "time", "x", "y", "z", or others; "" of one with a
            single point.
        frames: First and one past the last point of the axis time; all by default. An axis time
            with a single frame is left out.

    Raises:
        ForeignError: If the array has other axes.
    """

    array: Array
    axes: tuple[str, ...]
    frames: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        shape = self.array.shape
        fits = len(self.axes) == len(shape) and all(
            axis or n == 1 for axis, n in zip(self.axes, shape, strict=True)
        )
        if not fits or 0 in shape:
            names = ", ".join(axis or "1" for axis in self.axes)
            raise ForeignError(f"{self.array.where} should have the axes {names}, has {shape}")

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes after the samples, in the order of a store: space last."""
        one_frame = self.frames is not None and self.frames[1] - self.frames[0] == 1
        dropped = {"", "sample", *(("time",) if one_frame else ())}
        others = tuple(axis for axis in self.axes if axis not in {*dropped, *SPACE})
        return (*others, *(dim for dim in SPACE if dim in self.axes))

    @property
    def sizes(self) -> dict[str, int]:
        """Points along each axis."""
        sizes = dict(zip(self.axes, self.array.shape, strict=True))
        if self.frames is not None:
            sizes["time"] = self.frames[1] - self.frames[0]
        return sizes

    def read(self, start: int, stop: int) -> np.ndarray:
        """The values of some samples, shape (samples, *dims)."""
        taken = {"sample": slice(start, stop)}
        if self.frames is not None:
            taken["time"] = slice(*self.frames)
        values = self.array.read(tuple(taken.get(axis, slice(None)) for axis in self.axes))
        kept = ("sample", *self.dims)
        dropped = tuple(i for i, axis in enumerate(self.axes) if axis not in kept)
        axes = [axis for axis in self.axes if axis in kept]
        return values.squeeze(axis=dropped).transpose([axes.index(dim) for dim in kept])


@dataclass(frozen=True)
class Field:
    """A variable of a store: the same array of several files, one after the other.

    Args:
        name: Name in the store.
        views: One of each file.
        attributes: long_name, units, role and parameters.

    Raises:
        ForeignError: If the files do not fit together.
    """

    name: str
    views: tuple[View, ...]
    attributes: Mapping[str, Any]

    def __post_init__(self) -> None:
        first = self.views[0]
        if first.array.dtype.name not in _KEPT:
            raise ForeignError(
                f"{first.array.where} is of type {first.array.dtype}, which floats do not hold "
                "exactly"
            )
        for view in self.views[1:]:
            one, other = first.array, view.array
            if (first.dims, self.shape, one.dtype) != (view.dims, _shape(view), other.dtype):
                raise ForeignError(
                    f"{one.where} {one.shape} and {other.where} {other.shape} differ"
                )

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes after the samples."""
        return self.views[0].dims

    @property
    def shape(self) -> tuple[int, ...]:
        return _shape(self.views[0])

    @property
    def samples(self) -> int:
        return sum(view.sizes["sample"] for view in self.views)

    @property
    def variable(self) -> Variable:
        """What a store is told of it."""
        found = self.views[0].array.dtype.name
        attributes = dict(self.attributes)
        if found != _KEPT[found]:
            attributes["type_in_file"] = found
        return Variable(self.name, self.dims, self.shape, _KEPT[found], attributes)

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


def _shape(view: View) -> tuple[int, ...]:
    return tuple(view.sizes[dim] for dim in view.dims)


@dataclass(frozen=True)
class Plan:
    """A store that is made of files.

    Args:
        name, title, equation: For people.
        source: Where the facts about the files come from.
        fields: The variables.
        coordinates: Coordinates, the number of the sample among them.
        splits: First and one past the last sample of each split.
        attributes: Further attributes of the store.
        skipped: Samples whose values are NaN, and why.

    Raises:
        ForeignError: If the variables have different numbers of samples.
    """

    name: str
    title: str
    equation: str
    source: str
    fields: tuple[Field, ...]
    coordinates: tuple[Coordinate, ...]
    splits: Mapping[str, tuple[int, int]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {field.name: field.samples for field in self.fields}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} has {n}" for name, n in counts.items())
            raise ForeignError(f"the variables have different numbers of samples: {found}")
        for name, (start, stop) in self.splits.items():
            if not 0 <= start < stop <= self.samples:
                raise ForeignError(
                    f"the split {name} is samples {start} to {stop - 1}, there are {self.samples}: "
                    "give the sizes of train, validation and test"
                )
        if "train" not in self.splits:
            raise ForeignError("a store has a split train")

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


def points(kind: GridKind, dims: Sequence[str], shape: Sequence[int]) -> tuple[Coordinate, ...]:
    """Coordinates of a grid on the unit interval, square or cube.

    Raises:
        ForeignError: If an axis has too few points for the grid.
    """
    result = []
    for dim, n in zip(dims, shape, strict=True):
        try:
            x = {
                "periodic": lambda n: np.arange(n) / n,
                "cell": lambda n: CellGrid(n).x,
                "nodal": lambda n: NodalGrid(n).x,
            }[kind](n)
        except ValueError as error:
            raise ForeignError(f"the axis {dim} has {n} points: {error}") from None
        result.append(axis(dim, x, kind))
    return tuple(result)


def axis(dim: str, values: np.ndarray, kind: GridKind, long_name: str = "") -> Coordinate:
    """The points of an axis."""
    where = {
        "periodic": "on the circle", "cell": "cell centres", "nodal": "nodes, both ends included"
    }[kind]  # fmt: skip
    text = long_name or f"position {dim}, {where}"
    return Coordinate(dim, (dim,), values, {"long_name": text, "units": "1", "grid": kind})


def numbers(samples: int) -> Coordinate:
    """The coordinate sample."""
    attributes = {"long_name": "number of the sample"}
    return Coordinate("sample", ("sample",), np.arange(samples), attributes)


def split_sizes(sizes: Mapping[str, int], samples: int) -> dict[str, tuple[int, int]]:
    """Splits of these sizes: train from the front, test from the end, validation before test.

    Raises:
        ForeignError: If they do not fit, or have other names.

    >>> split_sizes({"train": 6, "test": 2}, 10)
    {'train': (0, 6), 'test': (8, 10)}
    """
    if set(sizes) - {"train", "validation", "test"} or sizes.get("train", 0) < 1:
        raise ForeignError(
            f"splits are the sizes of train, validation and test, train at least 1, got {sizes}"
        )
    if min(sizes.values()) < 0 or sum(sizes.values()) > samples:
        wanted = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise ForeignError(
            f"{samples} samples cannot be split into {wanted}: give the sizes of train, "
            "validation and test"
        )
    test = samples - sizes.get("test", 0)
    ranges = {
        "train": (0, sizes["train"]),
        "validation": (test - sizes.get("validation", 0), test),
        "test": (test, samples),
    }
    return {name: ends for name, ends in ranges.items() if ends[0] < ends[1]}
