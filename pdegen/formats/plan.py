"""Import plans. A plan describes which arrays and axes of files become the variables of a store."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from pdegen.domains import GRIDS, Box, Domain, Grid
from pdegen.domains import NAMES as SPACE
from pdegen.files import exchanged, flush_folder, foreign_files
from pdegen.formats.arrays import BLOCK, Array, Digest, FormatError
from pdegen.store.format import LEADING, Json, Physics, splits_fault
from pdegen.store.layout import Coordinate, Variable


@dataclass(frozen=True)
class ImportOptions:
    """The user's description of files that pdegen does not recognise. For recognised files, it
    replaces some of the defaults."""

    # names of the arrays in the file; several are the channels of one variable. If an array is
    # both, the first frame of its trajectory is the input and the others are the target
    input: str | tuple[str, ...] | None = None
    target: str | tuple[str, ...] | None = None
    # grid: "periodic", "cell" or "nodal"; or one of these for each axis, as in "periodic,nodal".
    # "curvilinear" for a mesh of nodes x[i, j], "cloud" for points in any order
    grid: str | None = None
    # number of samples of train (the first), validation (before test) and test (the last)
    splits: Mapping[str, int] | None = None
    # whether the axis of samples is the "first" or the "last"; "none" if the file is one sample or
    # one trajectory, "files" if each file is a sample
    samples: Literal["first", "last", "none", "files"] = "first"
    # whether the axis of times is the "first" (after the samples) or the "last"
    times: Literal["first", "last"] | None = None
    # names of all axes, from "sample", "time", "channel", "x", "y", "z", in place of `samples` and
    # `times`; required for channels
    input_axes: tuple[str, ...] | None = None
    target_axes: tuple[str, ...] | None = None
    boundary: float | None = None  # known value of the target on the boundary
    # name of the array with the positions along an axis, or with the times, by "x", "y", "z" or
    # "time"; "none" if they are not those of the file
    coordinates: Mapping[str, str] = field(default_factory=dict[str, str])
    # length of an axis, by name
    lengths: Mapping[str, float] = field(default_factory=dict[str, float])
    moments: tuple[float, ...] | None = None  # the times of all frames
    # names of the arrays with the points of a mesh or cloud, with the corners of the cells of a
    # cloud, and with marks or numbers of its points on the boundary
    points: str | None = None
    cells: str | None = None
    edge: str | None = None
    # name of an array that is 0 or missing at points without values, or "missing" for the points at
    # which the first sample lacks values
    mask: str | None = None
    # number of frames of a window, and distance between the first frames of two windows
    window: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.boundary is not None and not math.isfinite(self.boundary):
            raise FormatError(f"--boundary must be a finite number, got {self.boundary}")

    @property
    def is_default(self) -> bool:
        """Whether nothing is described."""
        return self == ImportOptions()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays of the input."""
        return (self.input,) if isinstance(self.input, str) else self.input or ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the arrays of the target."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()


# Atomic replacement of a file or folder.


_NEW, _OLD, _SCRATCH = "new", "old", "new.arrays"  # names in the hidden folder


def check_replaceable(folder: Path) -> None:
    """Raise FormatError if a folder contains files that no export has written, or that were edited
    afterwards (`pdegen.files`). Examples are the .git folder of a clone and an edited card."""
    foreign = foreign_files(folder)
    foreign += sorted(path.name for path in folder.iterdir() if path.is_dir() and not any(
        inner.is_file() for inner in path.rglob("*")))  # fmt: skip
    if foreign:
        raise FormatError(
            f"{folder} holds {foreign[0]}, which no export has written or which was edited since: "
            "it is not replaced, move that or choose another --out"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, at which the caller writes a file or folder. At the end of the
    context, the file or folder is renamed to `path`.

    The temporary path is in the hidden folder .NAME.partial, which has the same parent as `path`.
    This folder is locked during the context and removed at the end. If the process is killed, the
    lock ends, and the next process removes the folder. The renamed file or folder survives a power
    loss.

    Raises:
        FormatError: If another process is writing to `path`.
        OSError: If the location cannot be written.
    """
    path = Path(os.path.abspath(path))
    folder = path.with_name(f".{path.name}.partial")
    lock = _locked(folder, path)
    try:
        # a process that moved the older folder away may have been killed
        if os.path.lexists(folder / _OLD) and not os.path.lexists(path):
            os.rename(folder / _OLD, path)
        _emptied(folder)
        yield folder / _NEW
        _synced(folder / _NEW)
        if not path.is_dir():
            os.replace(folder / _NEW, path)
        elif not exchanged(folder / _NEW, path):
            os.rename(path, folder / _OLD)
            os.rename(folder / _NEW, path)
        flush_folder(path.parent)
    finally:
        try:
            _emptied(folder)
            with suppress(OSError):  # files of others stay
                folder.rmdir()
        finally:
            os.close(lock)


def _locked(folder: Path, path: Path) -> int:
    """Make and lock the hidden folder."""
    while True:
        try:
            with suppress(FileExistsError):
                folder.mkdir()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # the previous process has just removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise FormatError(f"{path} is being written by another process") from None
        except FileNotFoundError:  # it was removed before it was locked
            pass
        os.close(descriptor)


def _emptied(folder: Path) -> None:
    for name in (_NEW, _OLD, _SCRATCH):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _synced(path: Path) -> None:
    """Flush a file, or all files of a folder, to the disk, so that they survive a power loss."""
    if path.is_dir():
        for inner in path.iterdir():
            _synced(inner)
        flush_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())


AXES = ("sample", "time", "channel", *SPACE)  # in the order of stores
# type in the store of each type in a file, which holds all its numbers exactly
_STORED_TYPES = {
    "float32": "float32",
    "float64": "float64",
    "float16": "float32",
    "bool": "float32",
    "int8": "float32",
    "uint8": "float32",
    "int16": "float32",
    "uint16": "float32",
    "int32": "float64",
    "uint32": "float64",
    "int64": "float64",
    "uint64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}
_LARGEST_INTEGER = 2**53  # float64 holds all whole numbers up to this one  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Windows of a trajectory, each of which is a sample."""

    length: int  # number of frames
    stride: int  # distance between the first frames of two windows
    count: int  # number of windows in a trajectory


@dataclass(frozen=True)
class View:
    """A part of an array in a file, with names for the axes of the array. Raises FormatError if the
    names do not fit the shape of the array. A complex array has two channels for each of its own:
    the real and the imaginary part."""

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
    # views whose channels follow those of this one
    beside: tuple[View, ...] = ()
    # first point and step along axes of which not all points are read
    steps: tuple[tuple[str, int, int], ...] = ()
    # windows, each of which is a sample; `frames` are counted from the first frame of the window
    window: Window | None = None

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
        for other in self.beside:
            if self._shape_of_one != other._shape_of_one:
                raise FormatError(
                    f"{self.array.where} {shape} and {other.array.name} {other.array.shape} cannot "
                    "be channels of one variable: they differ"
                )

    @property
    def _shape_of_one(self) -> dict[str, int]:
        """The sizes that views beside each other share."""
        names = {"sample", *self._read} - {"channel"}
        return {axis: n for axis, n in self.sizes.items() if axis in names}

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes of the variable, without the axis of samples."""
        return () if self.number else self._read

    @property
    def parts(self) -> tuple[View, ...]:
        """This view by itself, and those beside it."""
        return (replace(self, beside=()), *self.beside) if self.beside else (self,)

    @property
    def dtype(self) -> np.dtype:
        """The type of a float that holds the numbers of all parts exactly, as a store has it.
        Raises FormatError if there is none."""
        return np.result_type(*(stored_type(part.array) for part in self.parts))

    @property
    def _is_complex(self) -> bool:
        return self.array.dtype.kind == "c"

    @property
    def _read(self) -> tuple[str, ...]:
        """The axes of the values that are read, before `number` is applied."""
        one_frame = self.frames is not None and self.frames[1] - self.frames[0] == 1
        dropped = {"", "sample", "part", *(("time",) if one_frame else ())}
        added = [*dict(self.along), *(["channel"] if self.beside or self._is_complex else [])]
        axes = [axis for axis in dict.fromkeys([*self.axes, *added]) if axis not in dropped]
        order = (*LEADING, "", *SPACE)
        return tuple(sorted(axes, key=lambda axis: order.index(axis if axis in order else "")))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of points along each axis. An array without an axis of samples is one sample."""
        sizes = {"sample": 1, **dict(zip(self.axes, self.array.shape, strict=True))}
        sizes |= dict(self.along)
        sizes |= {axis: len(range(start, sizes[axis], step)) for axis, start, step in self.steps}
        if self.window is not None:
            sizes["sample"] *= self.window.count
            if "time" in sizes:
                sizes["time"] = self.window.length
        for axis, span in (("time", self.frames), ("channel", self.channels)):
            if span is not None:
                sizes[axis] = span[1] - span[0]
        if self._is_complex:
            sizes["channel"] = 2 * sizes.get("channel", 1)
        if self.beside:
            sizes["channel"] = sum(part.sizes.get("channel", 1) for part in self.parts)
        return sizes

    @property
    def selection(self) -> Json:
        """A JSON object that describes which values of the array are read."""
        selection: Json = {
            "part": self.part,
            "channels": self.channels and list(self.channels),
            "backwards": list(self.backwards) or None,
            "along": dict(self.along) or None,
            "steps": [list(step) for step in self.steps] or None,
            "number": self.number and self.number.__name__,
            "beside": [view.array.name for view in self.beside] or None,
            "window": self.window and asdict(self.window),
        }
        return {name: value for name, value in selection.items() if value is not None}

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the values of the samples `start`, ..., `stop` - 1. Returns an array of shape
        (samples, *dims). Of complex numbers, the real parts of all channels come before the
        imaginary parts."""
        if self.beside:
            dims = ("sample", *self._read)
            values = [
                part.read(start, stop) if "channel" in part.dims
                else np.expand_dims(part.read(start, stop), dims.index("channel"))
                for part in self.parts
            ]  # fmt: skip
            return np.concatenate(values, dims.index("channel"))
        if self.window is None:
            return self._of(slice(start, stop), self.frames)
        first, last = self.frames or (0, self.window.length)
        stride, count = self.window.stride, self.window.count
        places = [divmod(k, count) for k in range(start, stop)]
        return np.concatenate([
            self._of(slice(k, k + 1), (w * stride + first, w * stride + last)) for k, w in places
        ])  # fmt: skip

    def _of(self, samples: slice, frames: tuple[int, int] | None) -> np.ndarray:
        """Read these frames of samples of the file."""
        slices = {"sample": samples}
        slices |= {axis: slice(start, None, step) for axis, start, step in self.steps}
        if frames is not None:
            slices["time"] = slice(*frames)
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
        added = [axis for axis in dims if axis not in axes]
        values = np.expand_dims(values, [dims.index(axis) for axis in added])
        values = np.flip(values, tuple(dims.index(axis) for axis in self.backwards))
        if self._is_complex:
            values = np.concatenate([np.real(values), np.imag(values)], dims.index("channel"))
        sizes = self.sizes | {"sample": len(values)}
        values = np.broadcast_to(values, [sizes[dim] for dim in dims])
        return self.number(values) if self.number else values


def stored_type(array: Array) -> str:
    """The type of a float that holds the numbers of an array exactly. Raises FormatError if there
    is none."""
    if (stored := _STORED_TYPES.get(array.dtype.name)) is None:
        raise FormatError(
            f"{array.where} is of type {array.dtype}, which floats do not hold exactly"
        )
    return stored


@dataclass(frozen=True)
class FieldPlan:
    """A variable to import. Each file, or group of a file, has a view of its values, and the
    samples of all are joined. Raises FormatError if the views have different dtypes, axes or
    lengths."""

    name: str  # name in the store
    views: tuple[View, ...]  # one view for each file
    attributes: Mapping[str, Any]  # long_name, units, role and parameters
    dtype: str = ""  # type in the store; empty: a float that holds the numbers exactly
    sha256: str = ""  # digest of all values, if the file has one
    # which points of the axes of space belong to the variable, and whether the others must lack
    # values in all samples; None for all
    inside: np.ndarray | None = field(default=None, compare=False, repr=False)
    others_missing: bool = False

    def __post_init__(self) -> None:
        first = self.views[0]
        if not self.dtype:
            assert first.dtype.kind == "f", first.dtype
        for view in self.views[1:]:
            a, b = first.array, view.array
            shapes = _shape(first), _shape(view)
            types = [[part.array.dtype for part in one.parts] for one in (first, view)]
            if (first.dims, shapes[0], types[0]) != (view.dims, shapes[1], types[1]):
                raise FormatError(f"{a.where} {a.shape} and {b.where} {b.shape} differ")

    def reversed(self, axes: tuple[str, ...]) -> FieldPlan:
        """This field, read in reverse order along the given axes."""

        def flipped(view: View) -> View:
            own = tuple(axis for axis in axes if axis in view.axes)
            return replace(view, backwards=own, beside=tuple(map(flipped, view.beside)))

        return replace(self, views=tuple(map(flipped, self.views)))

    def renamed(self, names: Mapping[str, str]) -> FieldPlan:
        """This field with other names for some axes."""

        def with_names(view: View) -> View:
            return replace(
                view,
                axes=tuple(names.get(axis, axis) for axis in view.axes),
                backwards=tuple(names.get(axis, axis) for axis in view.backwards),
                along=tuple((names.get(axis, axis), n) for axis, n in view.along),
                steps=tuple((names.get(axis, axis), *step) for axis, *step in view.steps),
                beside=tuple(map(with_names, view.beside)),
            )

        return replace(self, views=tuple(map(with_names, self.views)))

    @property
    def dims(self) -> tuple[str, ...]:
        """The axes of the variable, without the axis of samples."""
        dims = self.views[0].dims
        return dims if self.inside is None else (*dims[: -self.inside.ndim], "point")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each of `dims`."""
        shape = _shape(self.views[0])
        if self.inside is None:
            return shape
        return (*shape[: -self.inside.ndim], int(self.inside.sum()))

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
        dtype = self.dtype or self.views[0].dtype.name
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
        values = np.concatenate(parts).astype(self.variable.dtype, copy=False)
        if self.inside is None:
            return values
        values = values.reshape(*values.shape[: -self.inside.ndim], -1)
        others = values[..., ~self.inside.ravel()]
        if self.others_missing and np.isfinite(others).any():
            raise FormatError(
                f"{self.views[0].array.where} has values where its first sample lacks them: give "
                "the array of a mask by --mask NAME"
            )
        return np.ascontiguousarray(values[..., self.inside.ravel()])

    def check(self) -> None:
        """Raise FormatError if the values differ from the digest that the file contains, or are
        whole numbers of 64 bits that float64 does not hold."""
        first = self.views[0].array
        types = [] if self.dtype else [part.array.dtype for part in self.views[0].parts]
        large = any(dtype.itemsize == 8 and dtype.kind in "iu" for dtype in types)
        if not self.sha256 and not large and not self.others_missing:
            return
        row = math.prod(self.shape) * np.dtype(self.variable.dtype).itemsize
        rows = max(1, BLOCK // row)
        digest, largest = Digest(), 0.0
        for start in range(0, self.samples, rows):
            values = self.read(range(start, min(start + rows, self.samples)))
            largest = max(largest, float(np.abs(values).max()) if large else 0.0)
            digest.add(values)
        if largest >= _LARGEST_INTEGER:
            raise FormatError(
                f"{first.where} is {first.dtype} and holds {largest:g}: floats hold whole numbers "
                "below 2^53 = 9.0e15 exactly"
            )
        if self.sha256:
            check_digest(first, digest, self.sha256)


def check_digest(array: Array, digest: Digest, sha256: str) -> None:
    """Raise FormatError if the computed digest of an array differs from the recorded SHA-256."""
    if digest.hex != sha256:
        raise FormatError(f"{array.where} differs from its SHA-256: the file was changed")


def _shape(view: View) -> tuple[int, ...]:
    return tuple(view.sizes[dim] for dim in view.dims)


Sample = Mapping[str, np.ndarray]
"""The values of a sample in float64, by name of the variable."""


def no_contradiction(sample: Sample) -> str:
    """Return the empty text. This is the default of `Plan.contradiction`."""
    return ""


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
    # what a recognised file was recognised by, in words; empty for other files
    recognised_by: str = ""
    # function from a sample to what contradicts, in words, that the file is what it was recognised
    # as; the empty text if nothing does
    contradiction: Callable[[Sample], str] = no_contradiction
    # which positions and times are those of the file, and which are assumed, in one line
    positions_text: str = ""
    position_arrays: tuple[str, ...] = ()  # names of the arrays with positions and times
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

    def sample(self, number: int) -> dict[str, np.ndarray]:
        """The values of a sample, by name of the variable."""
        return {f.name: f.read(range(number, number + 1))[0].astype(float) for f in self.fields}

    @property
    def arrays(self) -> list[Array]:
        """The arrays of all variables."""
        views = [view for field in self.fields for view in field.views]
        return [part.array for view in views for part in view.parts]

    def reading(self, arrays: Mapping[Array, Array]) -> Plan:
        """A copy of this plan that reads other arrays, such as unpacked ones. `arrays` maps each
        array of this plan to its replacement."""

        def ready(view: View) -> View:
            beside = tuple(map(ready, view.beside))
            return replace(view, array=arrays[view.array], beside=beside)

        return replace(self, fields=tuple(
            replace(field, views=tuple(map(ready, field.views))) for field in self.fields
        ))  # fmt: skip


def box(
    grid: str,
    sizes: Mapping[str, int],
    points: Mapping[str, np.ndarray],
    lengths: Mapping[str, float] = MappingProxyType({}),
) -> Box:
    """Make a box from the names of its grids and the number of points.

    Args:
        grid: "periodic", "cell" or "nodal"; or one of these for each axis, such as
            "periodic,nodal".
        sizes: Number of points along each axis, by name.
        points: Positions of the points along each axis, by name of the axis.
        lengths: Lengths of axes without positions, by name; 1 by default.

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
        _grid(dim, GRIDS[kind], n, points.get(dim), lengths.get(dim, 1.0))
        for (dim, n), kind in zip(sizes.items(), kinds, strict=True)
    ))  # fmt: skip


def _grid(dim: str, kind: type[Grid], n: int, x: np.ndarray | None, length: float) -> Grid:
    """Make the grid of an axis from the given points, or of the given length."""
    if n < 2:
        raise FormatError(f"the axis {dim} has {n} point: an axis of space has at least 2")
    try:
        unit = kind(n, length)
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
