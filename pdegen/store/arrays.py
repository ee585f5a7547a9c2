"""The arrays of a store, parsed from their Zarr metadata, and the limits on their sizes.

A store may come from an untrusted source. Sizes are therefore checked here, before memory is
allocated or values are decoded. Only the part of the Zarr format that pdegen writes is accepted.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass as typed

from pdegen.domains import NAMES as SPACE

SAMPLES = 2**24  # largest number of samples, and of shards
SHARD_BYTES = 2**31
CHUNK_BYTES = 2**30  # largest size of a chunk, and of all coordinates together
AXIS_BYTES = 8 * SAMPLES  # largest size of a coordinate along one axis, such as `sample`
LEADING = (
    "sample",
    "level",
    "time",
    "channel",
)  # axes of a variable that are not axes of the domain

Compressor = Literal["lz4", "zstd", "none"]
DType = Literal[
    "bool", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
Json = dict[str, Any]
Values = np.ndarray[Any, np.dtype[Any]]

BLOSC = {"clevel": 5, "blocksize": 0}  # together with a byte shuffle

_crc32c: Any = importlib.import_module("google_crc32c")  # compiled, without types
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC32C = {"name": "crc32c"}
KEYS = {"name": "default", "configuration": {"separator": "/"}}


class MetadataError(ValueError):
    """The metadata of a store are damaged or do not follow the store format. The message says where
    and why."""


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a name has letters, digits, _ and -, got {name!r:.80}")
    return name


Name = Annotated[str, AfterValidator(_named)]
Shape = Annotated[tuple[Annotated[int, Field(ge=1, le=SHARD_BYTES)], ...], Field(max_length=16)]


def _unit(units: str) -> str:
    if " since " in units:
        raise ValueError(f"xarray would read these units as dates: {units!r:.80}")
    return units


def _undecoded(value: object) -> None:
    raise ValueError(f"xarray would change values on reading, got {value!r:.80}")


_Absent = Annotated[None, BeforeValidator(_undecoded)]


@typed(frozen=True, config=ConfigDict(strict=True, extra="ignore", defer_build=True))
class ArrayMetadata:
    """The attributes of an array that readers of the store use."""

    long_name: str = ""
    units: Annotated[str, AfterValidator(_unit)] = ""
    role: str = ""  # input, target, geometry, parameter, quality, weight or count
    grid: str = ""  # grid of an axis of a box: "periodic", "cell" or "nodal"
    coordinates: str = ""  # names of further coordinates, by the CF conventions
    type_in_file: str = ""  # type in the imported file, if it differs
    channels: tuple[str, ...] = ()  # names along its axis `channel`
    # must be absent: readers that follow the CF conventions would change values by these
    scale_factor: _Absent = None
    add_offset: _Absent = None
    missing_value: _Absent = None
    fill_value: _Absent = Field(default=None, validation_alias="_FillValue")


_CLOSED = ConfigDict(strict=True, extra="forbid", defer_build=True)


@typed(frozen=True, config=_CLOSED)
class _Cut:
    chunk_shape: Shape


@typed(frozen=True, config=_CLOSED)
class _Grid:
    name: Literal["regular"]
    configuration: _Cut


@typed(frozen=True, config=_CLOSED)
class ZarrArray:
    """The Zarr metadata of an array, restricted to what pdegen writes."""

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: Shape
    data_type: DType
    chunk_grid: _Grid
    chunk_key_encoding: Json
    fill_value: Any
    codecs: list[Json]
    attributes: ArrayMetadata
    dimension_names: tuple[Name, ...] | None = None
    storage_transformers: tuple[()] = ()


@dataclass(frozen=True)
class Array:
    """An array of a store."""

    name: str  # name in the store
    dims: tuple[str, ...]  # names of its axes
    shape: tuple[int, ...]  # points along each axis
    dtype: np.dtype[Any]  # type of the values
    shard: tuple[int, ...]  # shape of the values in one object
    chunk: tuple[int, ...]  # shape of the values that are compressed together
    compressor: Compressor = "none"  # how chunks are compressed
    metadata: ArrayMetadata = field(default_factory=ArrayMetadata)  # its checked attributes

    @property
    def axes(self) -> tuple[str, ...]:
        """The dimensions that are not in `LEADING`. For a function, these are the axes of its
        domain."""
        return tuple(dim for dim in self.dims if dim not in LEADING)

    @property
    def nbytes(self) -> int:
        """Size of the uncompressed values in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def limit(self) -> int:
        """Largest allowed size in bytes of a stored object of this array, compressed or not."""
        return 2**20 + 2 * self.dtype.itemsize * math.prod(self.shard)

    @property
    def fill(self) -> float:
        """The fill value. Readers return it where no values were written."""
        return fill(self.dtype)

    def key(self, shard: int = 0) -> str:
        """Key of the object that stores a shard of a variable, or a whole coordinate.

        >>> Array("u", ("sample", "x"), (9, 5), np.dtype("f4"), (3, 5), (3, 5)).key(2)
        'u/c/2/0'
        """
        position = [shard, *[0] * (len(self.shape) - 1)] if self.shape else []
        return "/".join([self.name, "c", *map(str, position)])

    def decode(self, data: bytes) -> Values:
        """Decode the values of a coordinate from the bytes of its object. Raises MetadataError if
        the bytes have the wrong size or differ from their checksum."""
        if len(data) != self.nbytes + 4:
            raise MetadataError(f"{self.key()} has {self.nbytes + 4:,} bytes, got {len(data):,}")
        if checksum(data[:-4]) != data[-4:]:
            raise MetadataError(f"{self.key()} differs from its checksum")
        stored = np.frombuffer(data[:-4], self.dtype.newbyteorder("<"))
        return stored.astype(self.dtype).reshape(self.shape)

    @classmethod
    def of(cls, name: str, zarr: ZarrArray, sizes: tuple[int, int] | None) -> Array:
        """Build an array from its Zarr metadata.

        Args:
            name: Name of the array.
            zarr: Zarr metadata of the array.
            sizes: Number of samples in the store, and number in a shard. None for a coordinate.

        Raises:
            MetadataError: If pdegen does not write such metadata.
            KeyError, TypeError, IndexError: If the name of a codec is missing or not a string.
        """
        dims, dtype = zarr.dimension_names or (), np.dtype(zarr.data_type)
        shard = zarr.chunk_grid.configuration.chunk_shape
        if len(set(dims)) != len(dims) or len(dims) != len(zarr.shape):
            refuse(f"{name} has a name for each axis of {zarr.shape}, got {dims}")
        _check(same(zarr.chunk_key_encoding, KEYS), f"{name}: keys", zarr.chunk_key_encoding)
        array = cls(name, dims, zarr.shape, dtype, shard, shard, "none", zarr.attributes)
        fill_value = array.fill
        expected = "NaN" if math.isnan(fill_value) else np.array(fill_value).astype(dtype).item()
        _check(same(zarr.fill_value, expected), f"{name}: fill value", zarr.fill_value)
        if sizes is None:
            return _coordinate(array, zarr.codecs)
        return _variable(array, zarr.codecs, *sizes)


def fill(dtype: np.dtype[Any]) -> float:
    """Fill value of a dtype: NaN for floats, -1 for signed integers, 0 for all others."""
    if dtype.kind == "f":
        return math.nan
    return -1 if dtype.kind == "i" else 0


def checksum(data: Any) -> bytes:
    """The CRC-32C checksum of some data: the four bytes that are stored after the data."""
    return _crc32c.value(data).to_bytes(4, "little")


def _coordinate(array: Array, codecs: list[Json]) -> Array:
    name, size = array.name, array.nbytes
    if not same(codecs, _plain(array)):
        refuse(f"{name} has codecs {_listed(codecs)}: allowed are {_listed(_plain(array))}")
    allowed = AXIS_BYTES if len(array.shape) <= 1 else CHUNK_BYTES
    if size > allowed:
        refuse(f"{name} has {size:,} bytes: allowed are {allowed:,}")
    if array.shard != array.shape:
        refuse(
            f"{name} has shape {array.shape} in chunks of {array.shard}: a coordinate is one chunk"
        )
    return array


def _variable(array: Array, codecs: list[Json], samples: int, shard: int) -> Array:
    name, shape, item = array.name, array.shape, array.dtype.itemsize
    _check(array.dims[:1] == ("sample",), f"{name}: dimensions", array.dims)
    if shape[:1] != (samples,):
        refuse(f"{name} has shape {shape}: the store has samples = {samples}")
    values, crc32c = _plain(array)
    codecs_of: dict[Compressor, list[Json]] = {
        "lz4": [values, _blosc(item, "lz4"), crc32c],
        "zstd": [values, _blosc(item, "zstd"), crc32c],
        "none": [values, crc32c],
    }
    sharding: Json = codecs[0].get("configuration", {})
    chunk: list[Any] = sharding.get("chunk_shape", [0])
    compressor = next(
        (name for name in codecs_of if same(codecs, [_sharding(chunk, codecs_of[name])])), None
    )
    if compressor is None:
        refuse(
            f"{name} has codecs {_listed(codecs)}: allowed is sharding_indexed of "
            f"{_listed(codecs_of['lz4'])}, its index bytes little, crc32c at the end; or the same "
            "without blosc"
        )
    for part, part_shape, limit in (
        ("chunks", chunk, CHUNK_BYTES), ("shards", array.shard, SHARD_BYTES)
    ):  # fmt: skip
        if (size := item * math.prod(part_shape)) > limit:
            refuse(f"{name} has {part} of {size:,} bytes: allowed are {limit:,}")
    whole = array.shard == (shard, *shape[1:]) and same(chunk[1:], shape[1:])
    if not whole or type(chunk[0]) is not int or chunk[0] < 1 or shard % chunk[0]:
        refuse(
            f"{name} has shards {array.shard} of chunks {tuple(chunk)}: a shard has {shard} whole "
            "samples, and a chunk a divisor of that number"
        )
    return replace(array, chunk=tuple(chunk), compressor=compressor)


def _blosc(typesize: int, compressor: Compressor) -> Json:
    """Zarr metadata of the Blosc codec, which compresses chunks."""
    options = {"typesize": typesize, "cname": compressor, "shuffle": "shuffle", **BLOSC}
    return {"name": "blosc", "configuration": options}


def _sharding(chunk: object, codecs: list[Json]) -> Json:
    index = {"index_codecs": [_BYTES, _CRC32C], "index_location": "end"}
    options = {"chunk_shape": chunk, "codecs": codecs, **index}
    return {"name": "sharding_indexed", "configuration": options}


def _plain(array: Array) -> list[Json]:
    """Zarr metadata of the two codecs of an uncompressed array. The first stores the values, the
    second appends a checksum."""
    values: Json = {"name": "bytes"} if array.dtype.itemsize == 1 else _BYTES
    return [values, _CRC32C]


def _listed(codecs: list[Json]) -> str:
    """The names of codecs on one line. After the name of a codec come its byte order and its inner
    codecs, if it has any."""
    words = list[str]()
    for codec in codecs:
        options = codec.get("configuration", {})
        inner = f"of {_listed(options['codecs'])}" if "codecs" in options else ""
        words.append(" ".join(filter(None, [codec["name"], options.get("endian"), inner])))
    return ", ".join(words)[:120]


def check_axes(
    variables: Mapping[str, Array], coordinates: Mapping[str, Array], domain: bool
) -> None:
    """Check that each axis has the same length in all arrays, and that the axes of space, level and
    time have coordinates.

    Args:
        variables, coordinates: The arrays, by name.
        domain: Whether the store describes its domain. If so, an axis may have another name than x,
            y or z, and the coordinates x, y and z may give the positions along this axis.

    Raises:
        MetadataError: If an axis has different lengths in two arrays, or a coordinate is missing or
            has the wrong axes.
    """
    total = sum(array.nbytes for array in coordinates.values())
    _check(total <= CHUNK_BYTES, "the size of all coordinates", total)
    along = {dim: array.shape for dim, array in coordinates.items() if array.dims in ((), (dim,))}
    sizes = dict[str, int]()
    for name, array in (*variables.items(), *coordinates.items()):
        for dim, n in zip(array.dims, array.shape, strict=True):
            shape = along.get(dim, (sizes.setdefault(dim, n),))
            if shape != (n,) and (dim, n, shape) != ("time", 1, ()):
                refuse(f"{name} has {n} points along {dim}, the coordinate has shape {shape}")
    used = {dim for array in variables.values() for dim in array.dims[1:]}
    for dim in used & {*SPACE, "level", "time"}:
        _check(dim in along, "an axis without a coordinate", dim)
    for name in coordinates.keys() & {*SPACE, "sample", "level", "time"}:
        array, space = coordinates[name], name in SPACE
        if space and domain and name not in (*array.dims, *used):
            continue  # positions along other axes
        _check(name in along and bool(array.dims or not space), f"{name}: dimensions", array.dims)
        _check(not space or name in used, "an axis that no variable has", name)
        _check(not space or bool(array.metadata.grid), f"{name}: grid", array.metadata.grid)


def same(value: object, expected: object) -> bool:
    """Whether two values have the same JSON text. For example, 1, 1.0 and true are three different
    values."""
    return json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _check(sound: bool, claim: str, value: object) -> None:
    if not sound:
        refuse(f"{claim} cannot be {value!r:.80}")


def refuse(message: str) -> NoReturn:
    """Raise MetadataError with this message."""
    raise MetadataError(message)
