"""Import plans. A plan describes which arrays and axes of files become the variables of a store."""

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
from pdegen.store.format import LEADING, Json, Physics, splits_fault
from pdegen.store.layout import Coordinate, Variable
from pdegen.store.layout import times as times

AXES = ("sample", "time", "channel", *SPACE)  # in the order of stores
# type in the store of each type in a file, which holds all its numbers exactly
_STORED_TYPES = {
    "float32": "float32", "float64": "float64", "float16": "float32", "bool": "float32",
    "int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32",
    "int32": "float64", "uint32": "float64",
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """A part of an array in a file, with names for the axes of the array. Raises FormatError if the
    names do not fit the shape of the array."""

    array: Array  # the array of the file
    # names of its axes: "sample", "time", "channel", "x", "y", "z" or others; "" for an axis with a
    # single point
    axes: tuple[str, ...]
    # first and one past the last frame; None for all. A single frame has no axis
    frames: tuple[int, int] | None = None
    part: int | None = None  # index along the axis "part", which is dropped
    # first and one past the last channel; None for all
    channels: tuple[int, int] | None = None
    backwards: tuple[str, ...] = ()  # axes that are read in reverse order
    # further axes, with their number of points, along which the values are repeated
    along: tuple[tuple[str, int], ...] = ()
    # function from the values of samples to one number each; None to keep the values
    number: Callable[[np.ndarray], np.ndarray] | None = None

    def __post_init__(self) -> None:
        shape = self.array.shape
        fits = len(self.axes) == len(shape) and all(
            axis or n == 1 for axis, n in zip(self.axes, shape, strict=True)
        )
        if fits and 0 in shape:
            raise FormatError(f"{self.array.where} is empty: its shape is {shape}")
        if not fits:
            names = ", ".join(axis or "1" for axis in self.axes)
            raise FormatError(f"{self.array.where} should have the axes {names}, has {shape}")

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes of the variable, without the axis of samples. They have the order of a store:
        time, channel, space."""
        return () if self.number else self._read

    @property
    def _read(self) -> tuple[str, ...]:
        """The axes of the values that are read, before `number` is applied. The axis of samples is
        left out."""
        one_frame = self.frames is not None and self.frames[1] - self.frames[0] == 1
        dropped = {"", "sample", "part", *(("time",) if one_frame else ())}
        axes = (*self.axes, *dict(self.along))
        return tuple(sorted((axis for axis in axes if axis not in dropped), key=_position))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of points along each axis."""
        sizes = dict(zip(self.axes, self.array.shape, strict=True)) | dict(self.along)
        for axis, span in (("time", self.frames), ("channel", self.channels)):
            if span is not None:
                sizes[axis] = span[1] - span[0]
        return sizes

    @property
    def selection(self) -> Json:
        """A JSON object that describes which values of the array are read. Empty if the whole array
        is read unchanged."""
        selection: Json = {
            "part": self.part,
            "channels": self.channels and list(self.channels),
            "backwards": list(self.backwards) or None,
            "along": dict(self.along) or None,
            "number": self.number and self.number.__name__,
        }
        return {name: value for name, value in selection.items() if value is not None}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the values of the samples `start`, ..., `stop` - 1. Returns an array of shape
        (samples, *dims)."""
        slices = {"sample": slice(start, stop)}
        if self.frames is not None:
            slices["time"] = slice(*self.frames)
        if self.part is not None:
            slices["part"] = slice(self.part, self.part + 1)
        if self.channels is not None:
            slices["channel"] = slice(*self.channels)
        values = self.array.read(tuple(slices.get(axis, slice(None)) for axis in self.axes))
        dims = ("sample", *self._read)
        dropped = tuple(i for i, axis in enumerate(self.axes) if axis not in dims)
        axes = [axis for axis in self.axes if axis in dims]
        values = values.squeeze(axis=dropped).transpose(
            [axes.index(dim) for dim in dims if dim in axes]
        )
        values = np.flip(values, tuple(dims.index(axis) for axis in self.backwards))
        added = [axis for axis in dims if axis not in axes]
        values = np.expand_dims(values, [dims.index(axis) for axis in added])
        sizes = self.sizes | {"sample": len(values)}
        values = np.broadcast_to(values, [sizes[dim] for dim in dims])
        return self.number(values) if self.number else values


def _position(axis: str) -> int:
    """Sort key for the axes of a variable. All axes of a mesh have the same key, so that sorting
    does not change their order."""
    order = (*LEADING, "", *SPACE)
    return order.index(axis if axis in order else "")


@dataclass(frozen=True)
class FieldPlan:
    """A variable to import. Each file has one array of its values, and the samples of all files are
    joined. Raises FormatError if the arrays have different dtypes, axes or lengths."""

    name: str  # name in the store
    views: tuple[View, ...]  # one view for each file
    attributes: Mapping[str, Any]  # long_name, units, role and parameters
    dtype: str = ""  # type in the store; empty: a float that holds the numbers exactly
    sha256: str = ""  # digest of all values, if the file has one

    def __post_init__(self) -> None:
        first = self.views[0]
        if not self.dtype and first.array.dtype.name not in _STORED_TYPES:
            raise FormatError(
                f"{first.array.where} is of type {first.array.dtype}, which floats do not hold "
                "exactly"
            )
        for view in self.views[1:]:
            a, b = first.array, view.array
            if (first.dims, self.shape, a.dtype) != (view.dims, _shape(view), b.dtype):
                raise FormatError(f"{a.where} {a.shape} and {b.where} {b.shape} differ")

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes of the variable, without the axis of samples."""
        return self.views[0].dims

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each of `dims`."""
        return _shape(self.views[0])

    @property
    def space(self) -> dict[str, int]:
        """Number of points along each axis of space."""
        return {dim: n for dim, n in zip(self.dims, self.shape, strict=True) if dim in SPACE}

    @property
    def samples(self) -> int:
        """Number of samples in all files together."""
        return sum(view.sizes["sample"] for view in self.views)

    @property
    def variable(self) -> Variable:
        """The variable of the store to which this field is written."""
        in_file = self.views[0].array.dtype.name
        attributes = dict(self.attributes)
        if "channel" in self.dims and "channels" not in attributes:
            count = self.shape[self.dims.index("channel")]
            attributes["channels"] = [f"c{k}" for k in range(count)]  # the same names in all fields
        dtype = self.dtype or _STORED_TYPES[in_file]
        if in_file != dtype and not self.views[0].number:
            attributes["type_in_file"] = in_file
        return Variable(self.name, self.dims, self.shape, dtype, attributes)

    def read(self, samples: range) -> np.ndarray:
        """Read the values of samples. They are converted to the dtype of the store."""
        parts, first = [], 0
        for view in self.views:
            count = view.sizes["sample"]
            start, stop = max(samples.start - first, 0), min(samples.stop - first, count)
            if start < stop:
                parts.append(view.read(start, stop))
            first += count
        return np.concatenate(parts).astype(self.variable.dtype, copy=False)

    def check(self) -> None:
        """Raise FormatError if the values differ from the digest that the file contains."""
        if not self.sha256:
            return
        row = math.prod(self.shape) * np.dtype(self.variable.dtype).itemsize
        rows = max(1, BLOCK // row)
        digest = Digest()
        for start in range(0, self.samples, rows):
            digest.add(self.read(range(start, min(start + rows, self.samples))))
        check_digest(self.views[0].array, digest, self.sha256)


def check_digest(array: Array, digest: Digest, sha256: str) -> None:
    """Raise FormatError if the computed digest of an array differs from the recorded SHA-256."""
    if digest.hex != sha256:
        raise FormatError(f"{array.where} differs from its SHA-256: the file was changed")


def _shape(view: View) -> tuple[int, ...]:
    return tuple(view.sizes[dim] for dim in view.dims)


@dataclass(frozen=True)
class Plan:
    """The plan of an import. Raises FormatError if the variables have different numbers of samples,
    or if the splits are impossible."""

    # name, title and equation, as text for people
    name: str
    title: str
    equation: str
    source: str  # source of the facts on the files
    fields: tuple[FieldPlan, ...]  # the variables
    coordinates: tuple[Coordinate, ...]  # the coordinates, with the numbers of the samples
    # first and one past the last sample of each split; no sample is in two
    splits: Mapping[str, tuple[int, int]]
    # domain of the variables; None if `attributes` has it
    domain: Domain | None = None
    # facts on the equation
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    attributes: Mapping[str, Any] = field(default_factory=dict)  # further attributes of the store
    warning: str = ""  # what is wrong with the published values, in one line
    # reason for each sample without values, by number
    skipped: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {field.name: field.samples for field in self.fields}
        if len(set(counts.values())) > 1:
            sizes = ", ".join(f"{name} has {n}" for name, n in counts.items())
            raise FormatError(f"the variables have different numbers of samples: {sizes}")
        if fault := splits_fault(self.splits, self.samples):
            raise FormatError(f"{fault}: give sizes by --split NAME=SIZE")

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.fields[0].samples

    @property
    def arrays(self) -> list[Array]:
        """The arrays of all variables."""
        return [view.array for field in self.fields for view in field.views]

    def reading(self, arrays: Mapping[Array, Array]) -> Plan:
        """A copy of this plan that reads other arrays, such as unpacked ones. `arrays` maps each
        array of this plan to its replacement."""
        return replace(self, fields=tuple(
            replace(field, views=tuple(
                replace(view, array=arrays[view.array]) for view in field.views
            ))
            for field in self.fields
        ))  # fmt: skip


def box(grid: str, sizes: Mapping[str, int], points: Mapping[str, np.ndarray]) -> Box:
    """Make a box from the names of its grids and the number of points.

    Args:
        grid: "periodic", "cell" or "nodal"; or one of these for each axis, such as
            "periodic,nodal".
        sizes: Number of points along each axis, by name.
        points: Positions of the points along each axis, by name of the axis. An axis without
            positions has length 1.

    Raises:
        FormatError: If a grid is unknown, or if the points do not form such a grid.

    >>> box("periodic,nodal", {"x": 8, "y": 5}, {"y": np.linspace(-1, 1, 5)}).grids[1].length
    2.0
    """
    kinds = grid.split(",") if "," in grid else [grid] * len(sizes)
    if len(kinds) != len(sizes) or set(kinds) - set(GRIDS):
        raise FormatError(
            f"the grid is {grid!r}, expected periodic, cell or nodal, or one of these for each of "
            f"{', '.join(sizes)}"
        )
    return Box(tuple(
        _grid(dim, GRIDS[kind], n, points.get(dim))
        for (dim, n), kind in zip(sizes.items(), kinds, strict=True)
    ))  # fmt: skip


def _grid(dim: str, kind: type[Grid], n: int, x: np.ndarray | None) -> Grid:
    """Make the grid of an axis from the given points. These may be rounded, and so differ from the
    points of the grid by a small part of the spacing."""
    if n < 2:
        raise FormatError(f"the axis {dim} has {n} point: an axis of space has at least 2")
    try:
        unit = kind(n)
        if x is None or _near(unit, x):
            return unit
        fitted = kind.through(np.linspace(float(x[0]), float(x[-1]), n))
        if _near(fitted, x):
            return fitted
        raise ValueError("they do not rise by equal steps")
    except ValueError as error:
        raise FormatError(f"the axis {dim} has {n} points: {error}") from None


def _near(grid: Grid, x: np.ndarray) -> bool:
    return bool(np.abs(grid.x - x).max() <= 1e-3 * grid.spacing)


def numbers(samples: int) -> Coordinate:
    """The coordinate `sample`, whose values are the numbers of the samples."""
    attributes = {"long_name": "number of the sample"}
    return Coordinate("sample", ("sample",), np.arange(samples), attributes)


def split_sizes(sizes: Mapping[str, int], samples: int) -> dict[str, tuple[int, int]]:
    """The ranges of the splits with the given sizes. The split train has the first samples, test
    has the last, and validation has those just before test.

    Raises:
        FormatError: If a size or name is impossible.

    >>> split_sizes({"train": 6, "test": 2}, 10)
    {'train': (0, 6), 'test': (8, 10)}
    """
    if set(sizes) - {"train", "validation", "test"} or sizes.get("train", 0) < 1:
        raise FormatError(
            f"splits are the sizes of train, validation and test, train at least 1, got {sizes}"
        )
    if min(sizes.values()) < 0 or sum(sizes.values()) > samples:
        listed = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise FormatError(
            f"{samples} samples cannot be split into {listed}: give the sizes of train, "
            "validation and test by --split NAME=SIZE"
        )
    test = samples - sizes.get("test", 0)
    ranges = {
        "train": (0, sizes["train"]),
        "validation": (test - sizes.get("validation", 0), test),
        "test": (test, samples),
    }
    return {name: ends for name, ends in ranges.items() if ends[0] < ends[1]}
