"""Arrays of imported files, and limits on their size for all formats. Arrays are memory-mapped and
read in slices."""

from __future__ import annotations

import hashlib
import math
import re
import struct
import uuid
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np

# SHA-256 of the values of an array. It does not depend on the file format that stores the
# array.


BLOCK = 2**24  # bytes to read at a time


@dataclass(frozen=True)
class Digest:
    """SHA-256 of the values of an array. The values are little-endian and in C order. A bool is one
    byte with the value 0 or 1.

    >>> u, whole, parts = np.arange(6.0).reshape(3, 2), Digest(), Digest()
    >>> whole.add(np.asfortranarray(u))
    >>> parts.add(u[:1])
    >>> parts.add(u[1:])
    >>> whole.hex == parts.hex
    True
    """

    _sha256: Any = field(default_factory=hashlib.sha256)

    def add(self, values: np.ndarray) -> None:
        """Add the next values along the first axis. An array without axes is added in one call."""
        stored = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
        self._sha256.update(stored.tobytes())

    @property
    def hex(self) -> str:
        """The digest of the values that were added, as 64 hexadecimal digits."""
        return self._sha256.hexdigest()


Index = tuple[slice, ...]

# deflate expands by a factor of at most 1032; a larger claim is false
LARGEST_EXPANSION = 1100
SMALL_BYTES = 2**24  # largest array that is read as a whole, such as a coordinate
MOST_ARRAYS = 10_000
# marks of exported files: name of the array with their metadata, value and text of a second mark
KEY, MARK, WRITTEN = "pdegen", "export", "written by pdegen"
MESH = "mesh"  # format of files with points and cells
MESHES = {  # their beginnings, and the names of their formats in meshio
    b"# vtk DataFile": "vtk", b"$MeshFormat": "gmsh", b"<VTKFile": "vtu", b"<Xdmf": "xdmf",
}  # fmt: skip
REFERENCES = "@references"  # attribute of a mesh: the files beside it that have its numbers
PAIR = "PyTorch pair"  # format of a tuple of two tensors: the input and the target
SINGLE = ("NumPy", "PyTorch tensor")  # formats of files with one array, named as the file
KINDS = "biufc"  # of types: bool, integers, floats and complex numbers
NUMBERS = "arrays of numbers can be imported"
NAMED = "has a name with other characters than letters, digits and _ .,=+-"

_PART = r"[A-Za-z0-9_][A-Za-z0-9_ .,=+-]{0,127}"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,7}}")


def is_name(name: str) -> bool:
    """Whether an array may have this name, which cannot be mistaken for a path.

    >>> is_name("t0_fields/density"), is_name("../density"), is_name("velocity (m/s)")
    (True, False, False)
    """
    return bool(_NAME.fullmatch(name))


class FormatError(ValueError):
    """A file cannot be imported, or a store cannot be exported. The message has one line."""

    exit_status = 2


@dataclass(frozen=True)
class Location:
    """Position and type of the numbers of an array in a file. The numbers are contiguous."""

    file: Path  # the imported file, or the file to which the array was unpacked
    offset: int  # first byte
    order: Literal["C", "F"]  # "C": the last axis varies fastest; "F": the first axis
    stored: np.dtype  # type of the numbers, in the byte order of the file


_CF = {"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"}
_VALID = {"valid_range", "valid_min", "valid_max"}


@dataclass(frozen=True)
class Packing:
    """How numbers in a file stand for others, by the CF conventions and the NetCDF user guide.

    The values are stored * scale_factor + add_offset. They are NaN where the stored number is
    _FillValue or missing_value, or outside the valid range.
    """

    attributes: tuple[tuple[str, object], ...]
    stored: np.dtype  # type in the file

    @classmethod
    def of(cls, attributes: Mapping[str, object], stored: np.dtype) -> Packing | None:
        """The packing that the attributes of an array describe, if any. Raises FormatError if they
        are no numbers."""
        packing: dict[str, object] = {}
        for key in attributes.keys() & (_CF | _VALID):
            value = attributes[key]
            if key != "_Unsigned":
                words = value.split(",") if isinstance(value, str) else np.ravel(np.array(value))
                try:
                    numbers = [float(word) for word in words]
                except ValueError:
                    numbers = []
                if len(numbers) != (2 if key == "valid_range" else 1) and key != "missing_value":
                    raise FormatError(f"the attribute {key} is {value!r}, which is no packing")
                value = value if not isinstance(value, str | list) else tuple(numbers)
                value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
            packing[key] = value
        return cls(tuple(sorted(packing.items())), stored) if packing else None

    @property
    def words(self) -> str:
        """The attributes, for people."""
        return ", ".join(f"{key} {value}" for key, value in self.attributes)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        """The physical values of stored ones."""
        from xarray import Variable, conventions

        attributes = {key: value for key, value in self.attributes if key in _CF}
        ends = {key: np.array([value]).ravel() for key, value in self.attributes if key in _VALID}
        low, high = ends.get("valid_range", (None, None))
        low, high = ends.get("valid_min", [low])[0], ends.get("valid_max", [high])[0]
        names = [f"d{k}" for k in range(values.ndim)]
        with warnings.catch_warnings(action="ignore"):  # of several values that mean missing
            decoded = conventions.decode_cf_variable(
                "values", Variable(names, values, attributes), decode_times=False
            ).values
        outside = (values < low if low is not None else False) | (
            values > high if high is not None else False
        )
        return np.where(outside, np.nan, decoded) if np.any(outside) else np.asarray(decoded)


@dataclass(frozen=True)
class Array:
    """An array in a file, whose values are read on demand. Raises FormatError if the name could be
    mistaken for a path, if the type is not bool, integer, float or complex, or if the file is
    shorter than the array."""

    path: Path  # the imported file
    name: str  # name in the file
    # shape and type in the file; the type has the byte order of this machine
    shape: tuple[int, ...]
    dtype: np.dtype
    location: Location | None = None  # location of the numbers; None before they are unpacked
    packing: Packing | None = None  # how numbers in the file stand for the values of type `dtype`

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise FormatError(
                f"{self.path.name}: an array is named {self.name[:80]!r}: names have letters, "
                "digits and _ .,=+-, in groups separated by /"
            )
        if self.dtype.kind not in KINDS:
            raise FormatError(
                f"{self.where} is of type {self.dtype}: bool, integers, floats and complex numbers "
                "can be imported"
            )
        if any(n < 0 for n in self.shape):
            raise FormatError(f"{self.where} has the impossible shape {self.shape}")
        if self.location is not None:
            need = self.location.offset + math.prod(self.shape) * self.location.stored.itemsize
            size = self.location.file.stat().st_size
            if need > size:
                raise FormatError(
                    f"{self.where} of shape {self.shape} ends at byte {need:,}, the file has "
                    f"{size:,}: it is cut off"
                )

    @property
    def where(self) -> str:
        """The names of the file and of the array, for error messages."""
        return f"{self.path.name}: {self.name}"

    @property
    def bytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, index: Index) -> np.ndarray:
        """Read the values in a slice of each axis."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)[index]
        assert self.location is not None, f"{self.where} is not unpacked"
        file, offset = self.location.file, self.location.offset
        order, stored = self.location.order, self.location.stored
        values = np.memmap(file, stored, "r", offset, self.shape, order)
        if self.packing is not None:
            values = self.packing.unpacked(values[index].astype(self.packing.stored))
            return values.astype(self.dtype)
        return values[index].astype(self.dtype)

    def decoded(self, attributes: Mapping[str, object]) -> Array:
        """This array with the packing that its attributes describe."""
        try:
            packing = Packing.of(attributes, self.dtype)
        except FormatError as error:
            raise FormatError(f"{self.where}: {error}") from None
        if packing is None or self.dtype.kind in "bc":
            return self
        dtype = packing.unpacked(np.zeros(1, self.dtype)).dtype
        missing = dtype.kind != "f" and {key for key, _ in packing.attributes} - {"_Unsigned"}
        return replace(self, dtype=np.dtype(float) if missing else dtype, packing=packing)

    @property
    def undecoded(self) -> Array:
        """This array as it is in the file."""
        return (
            self if self.packing is None else replace(self, dtype=self.packing.stored, packing=None)
        )

    def values(self) -> np.ndarray:
        """Read all values of a small array, such as a coordinate. Raises FormatError if the array
        is large."""
        if self.bytes > SMALL_BYTES or self.location is None:
            raise FormatError(
                f"{self.where} has {self.bytes:,} bytes: a coordinate has at most {SMALL_BYTES:,}"
            )
        return self.read(tuple(slice(None) for _ in self.shape))

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"


@dataclass(frozen=True)
class Contents:
    """The contents of a file."""

    path: Path  # the file, or the folder of several files
    format: str  # name of the format, for people
    arrays: Mapping[str, Array]  # arrays of numbers, by name
    # reason why further contents are not arrays of numbers, by name
    unreadable: Mapping[str, str] = field(default_factory=dict)
    # attributes that are texts, numbers or a few numbers, by "group@attribute"
    attributes: Mapping[str, str | float | list[float]] = field(default_factory=dict)
    # names of the axes of arrays, by the name of the array, where the file has them
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # parts of the arrays in further files, whose samples follow, by name
    further: Mapping[str, tuple[Array, ...]] = field(default_factory=dict)
    groups: int = 0  # number of groups if each is a sample: arrays then have no axis of samples

    def parts(self, name: str) -> tuple[Array, ...]:
        """The array with this name, and its parts in further files or groups."""
        return (self.array(name), *self.further.get(name, ()))

    @property
    def decoded(self) -> Contents:
        """A copy of the contents, in which each array has the packing of its attributes."""
        attributes: dict[str, dict[str, object]] = {}
        for key, value in self.attributes.items():
            name, _, attribute = key.rpartition("@")
            attributes.setdefault(name, {})[attribute] = value
        arrays = {
            name: array.decoded(attributes.get(name, {})) for name, array in self.arrays.items()
        }
        return replace(self, arrays=arrays)

    def array(self, name: str) -> Array:
        """The array with this name. Raises FormatError if there is none; its message lists the
        contents."""
        if name in self.unreadable:
            raise FormatError(f"{self.path.name}: {name} {self.unreadable[name]}")
        if name not in self.arrays:
            raise FormatError(f"{self.path.name} has no array {name!r}: {self.summary}")
        return self.arrays[name]

    @property
    def summary(self) -> str:
        """A description of the contents in one line."""
        arrays = [str(array) for array in self.arrays.values()]
        unreadable = [f"{name} (which {why})" for name, why in self.unreadable.items()]
        if self.groups:
            arrays = [f"{name} {a.shape} {a.dtype}" for name, a in self.arrays.items()]
            arrays[0] = f"{self.groups} samples in groups, each with {arrays[0]}"
        shown = [*arrays, *unreadable][:20]
        more = len(arrays) + len(unreadable) - len(shown)
        rest = f" and {more} more" if more else ""
        return f"{self.path.name} ({self.format}) holds {', '.join(shown) or 'nothing'}{rest}"


def check_expansion(array: Array, stored: int) -> None:
    """Raise FormatError if an array is too large to be unpacked from `stored` compressed bytes."""
    if array.bytes > LARGEST_EXPANSION * max(stored, 1):
        raise FormatError(
            f"{array.where} claims {array.bytes:,} bytes from {stored:,} in the file: at most "
            f"{LARGEST_EXPANSION} times as many are possible"
        )


def plain_attribute(value: object) -> str | float | list[float] | None:
    """An attribute of a file as text, a number, or two numbers; None for others."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iuf" or value.size not in (1, 2):
            return None
        value = value.tolist() if value.size == 2 else value.reshape(-1)[0]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list):
        return (
            value if len(value) == 2 and all(isinstance(v, (int, float)) for v in value) else None
        )
    return (
        value[:1000]
        if isinstance(value, str)
        else value
        if isinstance(value, (int, float))
        else None
    )


def printable(text: object) -> str:
    """Convert a string from a file to one line of printable characters.

    >>> printable("two\\nlines")
    'two lines'
    """
    line = " ".join(str(text).split())[:200]
    return line if line.isprintable() else ascii(line)


@dataclass(frozen=True)
class Request:
    """A request to the child process, with its limits."""

    path: str  # path of the file
    folder: str  # folder to which arrays are unpacked
    # "hdf5", "libraries", "mat", "npz", "parquet" or "pt": the module whose `read` is called
    reader: str
    names: Collection[str] = ()  # arrays to unpack; empty: list all, unpack the small ones
    small: int = 0  # largest size of a small array in bytes
    # limits of processor time in seconds, and of memory and written files in bytes
    seconds: int = 0
    memory: int = 0
    written: int = 0

    @property
    def file(self) -> Path:
        """The path of the file to read."""
        return Path(self.path)

    def target(self) -> Path:
        """A new path, at which an array can be written."""
        return Path(self.folder, uuid.uuid4().hex)

    def wanted(self, arrays: Iterable[Array]) -> list[str]:
        """Names of the arrays that this request has to unpack, in order of increasing size."""
        packed = [array for array in arrays if array.location is None]
        packed.sort(key=lambda array: array.bytes)
        if self.names:
            return [array.name for array in packed if array.name in self.names]
        totals = accumulate(array.bytes for array in packed)
        return [
            array.name
            for array, total in zip(packed, totals, strict=True)
            if array.bytes <= self.small and total <= 4 * self.small
        ]


# The entries of ZIP archives. Files of the formats .pt and .npz are such archives. This module
# runs in the child process of `pdegen.formats.sandbox`.


_LOCAL_HEADER = 30
_ENCRYPTED = 1
_BLOCK = 2**22
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveEntry:
    """An entry of an archive, with a verified checksum."""

    name: str  # name in the archive
    # first byte of the entry in the file, and one past the last
    start: int
    stop: int
    bytes: int  # unpacked size
    compressed: bool  # whether the entry is compressed


def entries(path: Path) -> list[ArchiveEntry]:
    """Verify the checksums of an archive and return its entries.

    Raises:
        FormatError: If a name is repeated, or an entry is encrypted, uses another compression than
            deflate, states an impossible size, or differs from its checksum.
        zipfile.BadZipFile: If the archive is damaged.
    """
    checked = list[ArchiveEntry]()
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        if len(set(names)) < len(names) or len(names) > MOST_ARRAYS:
            raise FormatError(
                f"{path.name}: a name is repeated, or there are more than {MOST_ARRAYS:,}"
            )
        for info in infos:
            where = f"{path.name}: the entry {printable(info.filename)}"
            if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
                raise FormatError(f"{where} is encrypted, or not compressed by deflate")
            if info.file_size > LARGEST_EXPANSION * max(info.compress_size, 1):
                raise FormatError(f"{where} claims {info.file_size:,} bytes, more than possible")
            file.seek(info.header_offset)
            start = info.header_offset + _LOCAL_HEADER
            start += sum(struct.unpack("<26xHH", file.read(_LOCAL_HEADER)))
            if _damaged(archive, info):
                raise FormatError(f"{where} differs from its checksum: the file was changed")
            compressed = info.compress_type != zipfile.ZIP_STORED
            stop = start + info.compress_size
            checked.append(ArchiveEntry(info.filename, start, stop, info.file_size, compressed))
    return checked


def _damaged(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Whether the content of an entry differs from the recorded checksum or size."""
    remaining = entry.file_size
    try:
        with archive.open(entry) as content:  # compares the checksum at the end
            while block := content.read(_BLOCK):
                remaining -= len(block)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return True
    return remaining != 0
