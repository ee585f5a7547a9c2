"""The arrays of a store, as Zarr's metadata describe them: all that may be said, and the limits.

A store may come from a stranger: nothing is allocated or decoded before its size is checked here.
The package `zarr-metadata` parses what any Zarr store may say; this module accepts what ours say.
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

SAMPLES = 2**24  # and so many shards, at most
SHARD_BYTES = 2**31
CHUNK_BYTES = 2**30  # of a chunk, and of all coordinates together
AXIS_BYTES = 8 * SAMPLES  # of a coordinate along one axis: the numbers of the samples are one
LEADING = ("sample", "level", "time", "channel")  # axes of a variable that are none of the domain

Compressor = Literal["lz4", "zstd", "none"]
DType = Literal[
    "bool", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
Json = dict[str, Any]
Values = np.ndarray[Any, np.dtype[Any]]

BLOSC = {"clevel": 5, "blocksize": 0}  # beside a shuffle of bytes

_crc32c: Any = importlib.import_module("google_crc32c")  # compiled, without types
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC32C = {"name": "crc32c"}
KEYS = {"name": "default", "configuration": {"separator": "/"}}


class MetadataError(ValueError):
    """Metadata of a store that are damaged or not ours; says where and what."""


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"letters, digits, _ and - make a name: a name cannot be {name!r:.80}")
    return name


Name = Annotated[str, AfterValidator(_named)]
Shape = Annotated[tuple[Annotated[int, Field(ge=1, le=SHARD_BYTES)], ...], Field(max_length=16)]


def _unit(units: str) -> str:
    if " since " in units:
        raise ValueError(f"xarray would read dates: a unit cannot be {units!r:.80}")
    return units


def _undecoded(value: object) -> None:
    raise ValueError(f"xarray would read other values than the stored ones, got {value!r:.80}")


_Absent = Annotated[None, BeforeValidator(_undecoded)]


@typed(frozen=True, config=ConfigDict(strict=True, extra="ignore", defer_build=True))
class ArrayMetadata:
    """What an array says of itself to all readers."""

    long_name: str = ""
    units: Annotated[str, AfterValidator(_unit)] = ""
    role: str = ""  # what it is for: input, target, geometry, parameter, quality, weight or count
    grid: str = ""  # of an axis of a box: "periodic", "cell" or "nodal"
    coordinates: str = ""  # names of coordinates beside those of its axes, as CF has them
    type_in_file: str = ""
    channels: tuple[str, ...] = ()  # names along its axis `channel`
    # scale_factor, add_offset, missing_value, fill_value: absent: by these, as CF has them, readers
    # change values
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
    """Zarr's metadata of an array, as far as all of our arrays have them alike."""

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

    name: str  # its name
    dims: tuple[str, ...]  # names of its axes
    shape: tuple[int, ...]  # points along each of these
    dtype: np.dtype[Any]  # type of its values
    shard: tuple[int, ...]  # shape of what one object holds
    chunk: tuple[int, ...]  # shape of what is compressed at a time
    compressor: Compressor = "none"  # how it is compressed
    metadata: ArrayMetadata = field(default_factory=ArrayMetadata)  # what it says of itself

    @property
    def axes(self) -> tuple[str, ...]:
        """The dimensions that are not among `LEADING`: of a function, those of its domain."""
        return tuple(dim for dim in self.dims if dim not in LEADING)

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def limit(self) -> int:
        """Bytes that one of its objects cannot exceed, compressed or not."""
        return 2**20 + 2 * self.dtype.itemsize * math.prod(self.shard)

    @property
    def fill(self) -> float:
        """What is read where nothing was written."""
        return fill(self.dtype)

    def key(self, shard: int = 0) -> str:
        """The key of the object that holds a shard, or a coordinate.

        >>> Array("u", ("sample", "x"), (9, 5), np.dtype("f4"), (3, 5), (3, 5)).key(2)
        'u/c/2/0'
        """
        place = [shard, *[0] * (len(self.shape) - 1)] if self.shape else []
        return "/".join([self.name, "c", *map(str, place)])

    def decode(self, data: bytes) -> Values:
        """The values of a coordinate in the bytes of its object. Raises MetadataError if they are
        too many or too few, or differ from their checksum."""
        if len(data) != self.nbytes + 4:
            raise MetadataError(f"{self.key()} has {self.nbytes + 4:,} bytes, got {len(data):,}")
        if checksum(data[:-4]) != data[-4:]:
            raise MetadataError(f"{self.key()} differs from its checksum")
        stored = np.frombuffer(data[:-4], self.dtype.newbyteorder("<"))
        return stored.astype(self.dtype).reshape(self.shape)

    @classmethod
    def of(cls, name: str, said: ZarrArray, cut: tuple[int, int] | None) -> Array:
        """An array from Zarr's metadata of it; `cut`, samples of the store and of a shard, is None
        for a coordinate. Raises MetadataError if they are not those of the format, and KeyError,
        TypeError or IndexError if a codec has no name, or one that is no text."""
        dims, dtype = said.dimension_names or (), np.dtype(said.data_type)
        shard = said.chunk_grid.configuration.chunk_shape
        if len(set(dims)) != len(dims) or len(dims) != len(said.shape):
            refuse(f"{name} has a name for each axis of {said.shape}, got {dims}")
        _check(same(said.chunk_key_encoding, KEYS), f"{name}: keys", said.chunk_key_encoding)
        array = cls(name, dims, said.shape, dtype, shard, shard, "none", said.attributes)
        empty = array.fill
        expected = "NaN" if math.isnan(empty) else np.array(empty).astype(dtype).item()
        _check(same(said.fill_value, expected), f"{name}: fill value", said.fill_value)
        if cut is None:
            return _coordinate(array, said.codecs)
        return _variable(array, said.codecs, *cut)


def fill(dtype: np.dtype[Any]) -> float:
    """What is read where nothing was written: no value, if the type has one that is none."""
    if dtype.kind == "f":
        return math.nan
    return -1 if dtype.kind == "i" else 0


def checksum(data: Any) -> bytes:
    """The CRC-32C that ends a chunk or an index, as four bytes."""
    return _crc32c.value(data).to_bytes(4, "little")


def _coordinate(array: Array, codecs: list[Json]) -> Array:
    name, size = array.name, array.nbytes
    if not same(codecs, _plain(array)):
        refuse(f"{name} has codecs {_listed(codecs)}: allowed are {_listed(_plain(array))}")
    allowed = AXIS_BYTES if len(array.shape) <= 1 else CHUNK_BYTES
    if size > allowed:
        refuse(f"{name} has {size:,} bytes: allowed are {allowed:,}")
    if array.shard != array.shape:
        refuse(f"{name} has shape {array.shape} in chunks {array.shard}: allowed is a whole one")
    return array


def _variable(array: Array, codecs: list[Json], samples: int, shard: int) -> Array:
    name, shape, item = array.name, array.shape, array.dtype.itemsize
    _check(array.dims[:1] == ("sample",), f"{name}: dimensions", array.dims)
    if shape[:1] != (samples,):
        refuse(f"{name} has shape {shape}: the store has samples = {samples}")
    values, crc32c = _plain(array)
    known: dict[Compressor, list[Json]] = {
        "lz4": [values, _blosc(item, "lz4"), crc32c],
        "zstd": [values, _blosc(item, "zstd"), crc32c],
        "none": [values, crc32c],
    }
    sharding: Json = codecs[0].get("configuration", {})
    chunk: list[Any] = sharding.get("chunk_shape", [0])
    found = next((one for one in known if same(codecs, [_sharding(chunk, known[one])])), None)
    if found is None:
        refuse(
            f"{name} has codecs {_listed(codecs)}: allowed is sharding_indexed of "
            f"{_listed(known['lz4'])}, its index bytes little, crc32c at the end; or the same "
            "without blosc"
        )
    for what, one, most in (("chunks", chunk, CHUNK_BYTES), ("shards", array.shard, SHARD_BYTES)):
        if (size := item * math.prod(one)) > most:
            refuse(f"{name} has {what} of {size:,} bytes: allowed are {most:,}")
    whole = array.shard == (shard, *shape[1:]) and same(chunk[1:], shape[1:])
    if not whole or type(chunk[0]) is not int or chunk[0] < 1 or shard % chunk[0]:
        refuse(
            f"{name} has shards {array.shard} of chunks {tuple(chunk)}: a shard has {shard} whole "
            "samples, and a chunk a divisor of these"
        )
    return replace(array, chunk=tuple(chunk), compressor=found)


def _blosc(typesize: int, compressor: Compressor) -> Json:
    """Zarr's metadata of the codec that compresses chunks."""
    options = {"typesize": typesize, "cname": compressor, "shuffle": "shuffle", **BLOSC}
    return {"name": "blosc", "configuration": options}


def _sharding(chunk: object, codecs: list[Json]) -> Json:
    index = {"index_codecs": [_BYTES, _CRC32C], "index_location": "end"}
    options = {"chunk_shape": chunk, "codecs": codecs, **index}
    return {"name": "sharding_indexed", "configuration": options}


def _plain(array: Array) -> list[Json]:
    """The codecs of values as they are, and of their checksum, which every reader checks."""
    values: Json = {"name": "bytes"} if array.dtype.itemsize == 1 else _BYTES
    return [values, _CRC32C]


def _listed(codecs: list[Json]) -> str:
    """Names of codecs, with the order of bytes and the inner codecs of those that have them."""
    words = list[str]()
    for codec in codecs:
        options = codec.get("configuration", {})
        inner = f"of {_listed(options['codecs'])}" if "codecs" in options else ""
        words.append(" ".join(filter(None, [codec["name"], options.get("endian"), inner])))
    return ", ".join(words)[:120]


def check_axes(
    variables: Mapping[str, Array], coordinates: Mapping[str, Array], domain: bool
) -> None:
    """Each axis is as long in all arrays, and those of space, level and time have a coordinate.
    Where the store describes its domain, axes may have other names than x, y, z, and x, y, z may be
    positions along these. Raises MetadataError where arrays contradict each other."""
    held = sum(array.nbytes for array in coordinates.values())
    _check(held <= CHUNK_BYTES, "the size of all coordinates", held)
    own = {dim: array.shape for dim, array in coordinates.items() if array.dims in ((), (dim,))}
    sizes = dict[str, int]()
    for name, array in (*variables.items(), *coordinates.items()):
        for dim, n in zip(array.dims, array.shape, strict=True):
            found = own.get(dim, (sizes.setdefault(dim, n),))
            if found != (n,) and (dim, n, found) != ("time", 1, ()):
                refuse(f"{name} has {n} points along {dim}, the coordinate has shape {found}")
    used = {dim for array in variables.values() for dim in array.dims[1:]}
    for dim in used & {*SPACE, "level", "time"}:
        _check(dim in own, "an axis without a coordinate", dim)
    for name in coordinates.keys() & {*SPACE, "sample", "level", "time"}:
        array, space = coordinates[name], name in SPACE
        if space and domain and name not in (*array.dims, *used):
            continue  # positions along other axes
        _check(name in own and bool(array.dims or not space), f"{name}: dimensions", array.dims)
        _check(not space or name in used, "an axis that no variable has", name)
        _check(not space or bool(array.metadata.grid), f"{name}: grid", array.metadata.grid)


def same(value: object, expected: object) -> bool:
    """Whether both are the same JSON, where 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _check(sound: bool, what: str, value: object) -> None:
    if not sound:
        refuse(f"{what} cannot be {value!r:.80}")


def refuse(what: str) -> NoReturn:
    raise MetadataError(what)
