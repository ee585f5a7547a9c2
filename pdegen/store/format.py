"""The metadata of a store. They are the attributes of its Zarr group in `zarr.json`, typed and
checked.

A store may come from an untrusted source. Its attributes are checked before they are used, so that
each value has the expected type.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NoReturn, Self, cast

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic import model_validator as validator
from pydantic.dataclasses import dataclass as typed

from pdegen.domains import GRIDS, Box, Domain, Grid, from_attributes
from pdegen.domains import NAMES as SPACE
from pdegen.schema import explained

# The arrays of a store, parsed from their Zarr metadata, and the limits on their sizes.


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
        """The dimensions that are not in `LEADING`."""
        return tuple(dim for dim in self.dims if dim not in LEADING)

    @property
    def parts(self) -> int:
        """Number of chunks of a sample, which are parts along its axis `time`; 1 for most."""
        return self.shape[1] // self.chunk[1] if self.chunk[1:] != self.shape[1:] else 1

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
        _possible(same(zarr.chunk_key_encoding, KEYS), f"{name}: keys", zarr.chunk_key_encoding)
        array = cls(name, dims, zarr.shape, dtype, shard, shard, "none", zarr.attributes)
        fill_value = array.fill
        expected = "NaN" if math.isnan(fill_value) else np.array(fill_value).astype(dtype).item()
        _possible(same(zarr.fill_value, expected), f"{name}: fill value", zarr.fill_value)
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
    _possible(array.dims[:1] == ("sample",), f"{name}: dimensions", array.dims)
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
    parts = shape[1:2] if array.dims[1:2] == ("time",) and same(chunk[:1], [1]) else ()
    divided = zip((shard, *parts), chunk, strict=False)
    after = 1 + len(parts)
    whole = array.shard == (shard, *shape[1:]) and same(chunk[after:], shape[after:])
    if (
        len(chunk) < after
        or not whole
        or any(type(k) is not int or k < 1 or n % k for n, k in divided)
    ):
        refuse(
            f"{name} has shards {array.shard} of chunks {tuple(chunk)}: a shard has {shard} whole "
            "samples, and a chunk a divisor of that number, or one sample at a divisor of its times"
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
    """Zarr metadata of the two codecs of an uncompressed array."""
    values: Json = {"name": "bytes"} if array.dtype.itemsize == 1 else _BYTES
    return [values, _CRC32C]


def _listed(codecs: list[Json]) -> str:
    """The names of codecs on one line."""
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
    _possible(total <= CHUNK_BYTES, "the size of all coordinates", total)
    along = {dim: array.shape for dim, array in coordinates.items() if array.dims in ((), (dim,))}
    sizes = dict[str, int]()
    for name, array in (*variables.items(), *coordinates.items()):
        for dim, n in zip(array.dims, array.shape, strict=True):
            shape = along.get(dim, (sizes.setdefault(dim, n),))
            if shape != (n,) and (dim, n, shape) != ("time", 1, ()):
                refuse(f"{name} has {n} points along {dim}, the coordinate has shape {shape}")
    used = {dim for array in variables.values() for dim in array.dims[1:]}
    for dim in used & {*SPACE, "level", "time"}:
        _possible(dim in along, "an axis without a coordinate", dim)
    for name in coordinates.keys() & {*SPACE, "sample", "level", "time"}:
        array, space = coordinates[name], name in SPACE
        if space and domain and name not in (*array.dims, *used):
            continue  # positions along other axes
        _possible(
            name in along and bool(array.dims or not space), f"{name}: dimensions", array.dims
        )
        _possible(not space or name in used, "an axis that no variable has", name)
        _possible(not space or bool(array.metadata.grid), f"{name}: grid", array.metadata.grid)


def same(value: object, expected: object) -> bool:
    """Whether two values have the same JSON text. For example, 1, 1.0 and true are three different
    values."""
    return json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _possible(sound: bool, claim: str, value: object) -> None:
    if not sound:
        refuse(f"{claim} cannot be {value!r:.80}")


def refuse(message: str) -> NoReturn:
    """Raise MetadataError with this message."""
    raise MetadataError(message)


# SHA-256 of stored objects, and JSON documents that end with their own SHA-256.


SHORT_DIGITS = 16  # digits of the SHA-256 of a record that the seal holds
_END = 77  # bytes of `,"sha256":"..."}`


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def short_digest(record: bytes) -> str:
    """The first digits of the SHA-256 of a record. The seal stores these digits for every
    record."""
    return sha256(record)[:SHORT_DIGITS]


def short_digest_of(digests: str, shard: int) -> str:
    """The short digest of the record of a shard, from the string of all short digests. Empty if the
    string is too short."""
    return digests[shard * SHORT_DIGITS : (shard + 1) * SHORT_DIGITS]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for `json` that refuses repeated keys.

    Some JSON readers use the first value of a repeated key, others the last.

    Raises:
        ValueError: If a key is repeated.

    >>> json.loads('{"train": [0, 4], "test": [4, 6]}', object_pairs_hook=unique_keys)
    {'train': [0, 4], 'test': [4, 6]}
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r:.80} is repeated")
    return content


def with_digest(content: dict[str, Any]) -> bytes:
    """Encode JSON and append its SHA-256 as the last entry. Any changed byte is then detected.

    >>> without_digest(with_digest({"shard": 3}))
    {'shard': 3}
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b'%s,"sha256":"%s"}' % (text[:-1], sha256(text).encode())


def without_digest(data: bytes) -> dict[str, Any]:
    """Decode JSON that `with_digest` has written, and remove the digest. Raises ValueError if any
    byte was changed."""
    text, end = data[:-_END], data[-_END:]
    if end != b',"sha256":"%s"}' % sha256(text + b"}").encode():
        raise ValueError("it differs from its own digest")
    try:
        return json.loads(text + b"}", object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error!r:.120}") from None


# The coordinate `channel`. Its values are the names of the components, by which xarray can select
# them.


CHANNEL = "channel"


@dataclass(frozen=True)
class Labels:
    """Names along the axis `channel`. All variables with this axis share them."""

    names: tuple[str, ...]  # names of the components, each once

    KEY = f"{CHANNEL}/c/0"

    @classmethod
    def common(
        cls, variables: Iterable[tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]]
    ) -> Self | None:
        """The common channel names of all variables.

        The result is None if no variable has channels, if two variables have different channel
        names, or if names are missing or repeated.

        Args:
            variables: Dimensions, shape and channel names of each variable.

        >>> Labels.common([(("x",), (8,), ()), (("channel", "x"), (2, 8), ("u", "v"))])
        Labels(names=('u', 'v'))
        """
        counted = {
            (shape[dims.index(CHANNEL)], names) for dims, shape, names in variables
            if CHANNEL in dims
        }  # fmt: skip
        if len(counted) != 1:
            return None
        ((count, names),) = counted
        if not len(names) == len(set(names)) == count:
            return None
        try:
            "".join(names).encode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can hold
            return None
        return cls(names)

    @property
    def attributes(self) -> Json:
        """The attributes of the coordinate."""
        return {"long_name": "names of the channels"}

    @property
    def zarr_metadata(self) -> Json:
        """The Zarr metadata of the coordinate."""
        shape = [len(self.names)]
        return {
            "shape": shape,
            "data_type": "string",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": KEYS,
            "fill_value": "",
            "codecs": [{"name": "vlen-utf8", "configuration": {}}, {"name": "crc32c"}],
            "attributes": self.attributes,
            "dimension_names": [CHANNEL],
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }

    @property
    def data(self) -> bytes:
        """The bytes of the stored object. They consist of the number of names, the length and text
        of each name, and a CRC-32C checksum.

        >>> Labels(("rho", "m")).data[:15]
        b'\\x02\\x00\\x00\\x00\\x03\\x00\\x00\\x00rho\\x01\\x00\\x00\\x00'
        """
        parts = [len(self.names).to_bytes(4, "little")]
        for name in self.names:
            text = name.encode()
            parts += [len(text).to_bytes(4, "little"), text]
        data = b"".join(parts)
        return data + checksum(data)


# The splits of a store, which are named, disjoint ranges of its samples.


def splits_fault(splits: Mapping[str, Sequence[int]], samples: int) -> str | None:
    """The reason why some ranges cannot be the splits of a store. None if they can be.

    There must be a split named train. Each split must contain at least one sample. Splits must not
    overlap, because scores on training samples are meaningless. Some samples may be in no split.

    Args:
        splits: Range (start, stop) of the samples in each split, by name.
        samples: Number of samples in the store.

    >>> splits_fault({"train": (0, 6), "test": (7, 10)}, 10)
    >>> splits_fault({"train": (0, 6), "test": (5, 10)}, 10)
    'splits share no sample, got train [0, 6] and test [5, 10]'
    """
    if "train" not in splits:
        return f"splits has a range for train, got {', '.join(splits) or 'none'}"
    for name, (start, stop) in splits.items():
        if not 0 <= start < stop <= samples:
            return f"split {name} is a range of 0 to {samples}, got {[start, stop]}"
    ranges = sorted((start, stop, name) for name, (start, stop) in splits.items())
    for (start, stop, name), (next_start, next_stop, next_name) in itertools.pairwise(ranges):
        if next_start < stop:
            return (
                f"splits share no sample, got {name} {[start, stop]} and "
                f"{next_name} {[next_start, next_stop]}"
            )
    return None


FORMAT = "pdegen"
FORMAT_VERSION = 4
READABLE = (3, 4)  # version 3 has no labels of channels
ROOT = "zarr.json"
METADATA_BYTES = 2**26  # largest size of zarr.json, a record, the seal or the card

# `zarr.json` of a store whose layout is not finished
UNFINISHED_ROOT = json.dumps(
    {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": FORMAT, "format_version": FORMAT_VERSION, "sealed": False},
    }
).encode()


Finite = Annotated[float, Field(allow_inf_nan=False)]
_TYPED = ConfigDict(strict=True, extra="ignore", defer_build=True)


@typed(frozen=True, config=_TYPED)
class Provenance:
    """The version of pdegen that made a store, and the PyTorch device if one was used."""

    pdegen: str
    device: str = ""


@typed(frozen=True, config=_TYPED)
class StoredRecipe:
    """The recipe of a store. `problem` is empty if pdegen did not solve the samples."""

    name: str
    problem: Json = field(default_factory=Json)


@typed(frozen=True, config=_TYPED)
class Parent:
    """The parent store from which a derived store was made."""

    recipe: str
    fingerprint: str
    content: str
    provenance: Json


@typed(frozen=True, config=_TYPED)
class AddedNoise:
    """The noise of a derived store. `deviation` is the SHA-256 of the standard deviation σ(x)."""

    variable: str
    kind: str
    deviation: str
    levels: tuple[Finite, ...]


@typed(frozen=True, config=_TYPED)
class SourceFile:
    """A file that was imported into a store, or that contains the code of its equation."""

    name: str
    sha256: str

    def __str__(self) -> str:
        """Name of the file and the first digits of its SHA-256."""
        return f"{self.name} (SHA-256 {self.sha256[:12]}...)"


@typed(frozen=True, config=_TYPED)
class Imported:
    """The files from which a store was imported."""

    files: tuple[SourceFile, ...]


@typed(frozen=True, config=_TYPED)
class LabelError:
    """The errors of the labels of the first samples. The error of a label is its relative L²
    difference from a solution on a finer grid."""

    relative_l2: Annotated[tuple[float, ...], Field(min_length=1)]
    reference: str


@typed(frozen=True, config=_TYPED)
class SampledInputs:
    """Facts about inputs that have too few stored points to determine them."""

    # points along each axis, and the largest wave number of the inputs
    points: int
    modes: int
    # relative L² differences between labels of the first samples and solutions for the
    # trigonometric interpolants of the stored inputs
    relative_l2: tuple[Finite, ...] = ()

    @property
    def sentence(self) -> str:
        """The description as one sentence, for the dataset card."""
        modes = f"wave numbers up to {self.modes} on {self.points} points"
        meaning = f"{modes}: the label belongs to the function, not to its sampled values"
        if not self.relative_l2:
            return meaning
        return (
            f"{meaning}; for the interpolant of the stored input it would differ by up to "
            f"{max(self.relative_l2):.1e} in relative L2 ({len(self.relative_l2)} samples)"
        )


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError("expected another number than 0")
    return value


@typed(frozen=True, config=_TYPED)
class SurfaceCurve:
    """A curve that shows (v - offset)/scale along the surface of the bodies inside a mesh. v is the
    variable."""

    symbol: Annotated[str, Field(min_length=1)]  # symbol of the curve
    # offset and scale of the formula; the scale is not 0
    offset: Finite = 0.0
    scale: Annotated[Finite, AfterValidator(_not_zero)] = 1.0


@typed(frozen=True, config=_TYPED)
class Drawing:
    """How pictures show a variable."""

    symbol: str = ""  # symbol of the variable in formulas; empty: its name
    # colour map: "phases" of a coefficient, "sequential" or "diverging"
    colours: Literal["phases", "sequential", "diverging"] = "sequential"
    log: bool = False  # whether the colour scale is logarithmic
    moves: bool = (
        False  # whether its channels displace the points, so that it is drawn on moved points
    )
    contours: bool = False  # whether contour lines are drawn over the colours
    along: SurfaceCurve | None = None  # its curve along bodies, if it has one
    # speed of descent of a body above points that move, if the variable is the height of that body
    # over the first axis
    falls: Finite | None = None


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:
        raise ValueError(f"expected two rising numbers, got {pair}")
    return pair


Pair = Annotated[tuple[Finite, Finite], AfterValidator(_rising)]
Axis = Literal["x", "y", "z"]


@typed(frozen=True, config=_TYPED)
class ParameterLaw:
    """The law of a number that differs from sample to sample, on (low, high)."""

    law: Literal["uniform", "log-uniform"]
    low: Finite
    high: Finite

    @validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"expected the ends of a range, got {self.low} and {self.high}")
        return self

    @property
    def log(self) -> bool:
        """Whether the logarithm of the number is uniform."""
        return self.law == "log-uniform"

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the number, or of its logarithm if this is uniform.

        >>> ParameterLaw("uniform", 1.0, 3.0).moments
        (2.0, 0.5773502691896258)
        """
        ends = self.low, self.high
        low, high = map(math.log, ends) if self.log else ends
        return (low + high) / 2, (high - low) / math.sqrt(12)


@typed(frozen=True, config=_TYPED)
class Physics:
    """The attribute `physics`. It contains facts about the fields for readers that do not know the
    equation.

    >>> Physics.of({"physics": {"boundary": {"u": 0.0}}}).boundary
    {'u': 0.0}
    """

    # value of a variable on the boundary of the domain, by name
    boundary: Mapping[Name, Finite] = field(default_factory=dict[str, float])
    # symmetries of the solution map: "shift", "odd-reflection", "square", "diagonal-shift", and
    # "wave-4-shift" and "wave-4-reflection" for each wave number of a Kolmogorov flow
    symmetries: tuple[str, ...] = ()
    # variable that weights the derivative in the loss weighted-h1
    loss_weight: Name | None = None
    # the two values of a variable that takes only two, by name
    phases: Mapping[Name, Pair] = field(default_factory=dict[str, tuple[float, float]])
    # a part of the recipe in words, by key of the recipe
    sentences: Mapping[Name, str] = field(default_factory=dict[str, str])
    # how a variable is drawn, by name
    drawing: Mapping[Name, Drawing] = field(default_factory=dict[str, Drawing])
    # box, as lower and upper end by axis, for whose points reports give a separate error
    near: Mapping[Axis, Pair] = field(default_factory=dict[Axis, tuple[float, float]])
    # laws of the variables with the role parameter that are conditions of a sample, such as a
    # viscosity, by name
    parameters: Mapping[Name, ParameterLaw] = field(default_factory=dict[str, ParameterLaw])

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """Read the attribute `physics` of a group. Without this attribute, the result is empty.

        Unknown keys are ignored. Raises MetadataError if a value is impossible.
        """
        try:
            return TypeAdapter(cls).validate_json(json.dumps(attributes.get("physics", {})))
        except ValidationError as error:
            raise MetadataError(f"physics: {explained(error)}") from None

    def attributes(self) -> Json:
        """The value of the attribute `physics`, without empty entries."""
        content = TypeAdapter(type(self)).dump_python(self, mode="json")
        content["drawing"] = {
            name: {key: value for key, value in drawing.items() if value}
            for name, drawing in content["drawing"].items()
        }
        return {key: value for key, value in content.items() if value}


@typed(frozen=True, config=_TYPED, kw_only=True)
class StoreMetadata:
    """The attributes of the Zarr group of a store."""

    sealed: bool  # whether the store is complete
    # title and equation, as text for people
    title: str
    equation: str
    recipe: StoredRecipe  # the recipe of the store
    fingerprint: str  # SHA-256 of everything that the numbers depend on
    # number of samples, and of samples in a shard
    samples: Annotated[int, Field(ge=1, le=SAMPLES)]
    shard: Annotated[int, Field(ge=1)]
    # names of the arrays with values of each sample
    variables: Annotated[tuple[Name, ...], Field(min_length=1)]
    # first and one past the last sample of each split; splits share no sample
    splits: Mapping[Name, tuple[int, int]]
    provenance: Provenance  # software and device that made the store
    content: str = ""  # SHA-256 of the data; empty before the store is sealed
    # "mean" and "std" of each variable over the training split
    statistics: Mapping[Name, Mapping[str, Finite]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    skipped: tuple[int, ...] = ()  # samples that could not be computed, in rising order
    parent: Parent | None = None
    noise: AddedNoise | None = None
    imported: Imported | None = None
    label_error: LabelError | None = None
    sampled_inputs: SampledInputs | None = (
        None  # present if the stored points do not determine the inputs
    )
    physics: Physics = field(default_factory=Physics)
    # `pdegen.domains.Domain.attributes`; None if the coordinates determine the domain
    domain: Json | None = None
    equation_file: SourceFile | None = (
        None  # the file of the option --plugin that computed the samples
    )

    @property
    def job(self) -> str:
        """Identity of the job that computed the samples (`job_of`)."""
        return job_of(self.fingerprint, self.provenance.device)

    @validator(mode="after")
    def _agrees(self) -> Self:
        samples = self.samples
        _check(self.shard <= samples, f"shard is 1 to samples = {samples}", self.shard)
        once = len(set(self.variables)) == len(self.variables)
        _check(once, "variables is a list of names, each once", self.variables)
        if fault := splits_fault(self.splits, samples):
            raise MetadataError(fault)
        rising = all(i < j for i, j in itertools.pairwise([-1, *self.skipped, samples]))
        _check(rising, f"skipped has samples 0 to {samples - 1} in order", [*self.skipped])
        for name, moments in self.statistics.items():
            _check(name in self.variables, "statistics are of variables", name)
            _check({"mean", "std"} <= moments.keys(), f"{name} has mean and std", [*moments])
        return self


def job_of(fingerprint: str, device: str | None) -> str:
    """Identity of a job. It consists of the fingerprint, and of the PyTorch device if there is one.
    Jobs with the same identity compute the same samples, bit for bit."""
    return f"{fingerprint}@{device}" if device else fingerprint


def _check(sound: bool, claim: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{claim}, got {value!r:.80}")


# The parsed `zarr.json` of a store. It has the metadata of the store and of all its arrays.


# errors of an access to nested JSON in which keys are missing or types are wrong
_MALFORMED = (KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)


class UnfinishedMetadataError(MetadataError):
    """The store is unfinished: the process that laid it out was interrupted."""


@typed(frozen=True, config=_CLOSED)
class _Arrays:
    kind: Literal["inline"]
    must_understand: Literal[False]
    metadata: Annotated[Mapping[Name, ZarrArray], Field(max_length=256)]


@typed(frozen=True, config=_CLOSED)
class _Group:
    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: StoreMetadata
    consolidated_metadata: _Arrays


@dataclass(frozen=True)
class Description:
    """Metadata and arrays of a store."""

    raw: Json  # the JSON of `zarr.json`
    version: int  # version of the store format
    metadata: StoreMetadata  # the checked attributes of the store
    # variables: arrays with values of each sample; coordinates: arrays that all samples share
    variables: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    # the coordinate `channel`; not among `coordinates`, as its values are text
    labels: Labels | None = None

    @property
    def raw_attributes(self) -> Json:
        """The attributes of the store as JSON."""
        return self.raw["attributes"]

    @property
    def zarr_metadata(self) -> Mapping[str, Json]:
        """A dictionary that maps the names of all arrays to their Zarr metadata in JSON."""
        return self.raw["consolidated_metadata"]["metadata"]

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """A dictionary that maps names to variables and coordinates."""
        return {**self.variables, **self.coordinates}

    @property
    def shards(self) -> int:
        """Number of shards of each variable."""
        return math.ceil(self.metadata.samples / self.metadata.shard)

    def axes_of(self, array: Array) -> tuple[str, ...]:
        """The axes of an array that are axes of the domain. The tuple is empty if they are not its
        last axes, or if the array has no axis for the samples."""
        attributes = self.metadata.domain or {}
        axes: object = attributes.get("axes", list(SPACE))
        listed = cast("list[object]", axes) if isinstance(axes, list) else []
        names = [
            cast(Json, axis).get("name") if isinstance(axis, dict) else axis for axis in listed
        ]
        dims = tuple(dim for dim in array.dims if dim in names)
        last = array.dims[len(array.dims) - len(dims) :] == dims
        return dims if last and array.dims[:1] == ("sample",) else ()

    def domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        """The domain on which functions with these axes are defined.

        Args:
            axes: Names of the axes of a variable that belong to the domain.
            values: Values of all coordinates, by name.

        Raises:
            MetadataError: If the store describes no domain, or the described domain has other axes
                or points.
        """
        try:
            domain = self._domain(axes, values)
            sizes = {
                d: n for a in self.arrays.values() for d, n in zip(a.dims, a.shape, strict=True)
            }
            shape = tuple(sizes[axis] for axis in axes)
            if (axes, shape) != (domain.axes, domain.shape):
                raise MetadataError(
                    f"it has axes {domain.axes} of {domain.shape} points, not {axes} of {shape}"
                )
            grids = domain.grids if isinstance(domain, Box) else ()
            for axis, grid in zip(axes, grids, strict=False):
                if not np.allclose(values[axis], grid.x, rtol=0, atol=1e-3 * grid.spacing):
                    raise MetadataError(f"the points of {axis} are not those of its grid")
        except (ValueError, *_MALFORMED) as error:  # DomainError is a ValueError
            raise MetadataError(f"the domain is damaged: {error}") from None
        return domain

    def _domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        attributes = self.metadata.domain
        if attributes is None:
            return Box(tuple(self._grid(axis, values) for axis in axes))
        shared = [values[name] for name in SPACE if name in values]
        positions = np.stack(shared, axis=-1) if attributes.get("moves") is False else None
        return from_attributes(attributes, positions, values.get("cells"), values.get("edge"))

    def _grid(self, axis: str, values: Mapping[str, Values]) -> Grid:
        array = self.coordinates.get(axis)
        kind = "" if array is None else array.metadata.grid
        if kind not in GRIDS:
            raise MetadataError(f"the grid of {axis} is {kind!r}: known are {', '.join(GRIDS)}")
        return GRIDS[kind].through(values[axis])


def parse(data: bytes) -> Description:
    """Parse the bytes of a `zarr.json`. Raises MetadataError if they do not describe a store that
    this version can read."""
    try:
        raw: object = json.loads(data, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    if not isinstance(raw, dict) or cast(Json, raw).get("node_type") != "group":
        raise MetadataError("not a pdegen store")
    content = cast(Json, raw)
    attributes: object = content.get("attributes")
    if not isinstance(attributes, dict) or cast(Json, attributes).get("format") != FORMAT:
        raise MetadataError("a Zarr group, but not a pdegen store")
    version: object = cast(Json, attributes).get("format_version")
    if type(version) is not int or version not in READABLE:
        got = str(version)[:20] if type(version) is int else type(version).__name__
        readable = " and ".join(map(str, READABLE))
        raise MetadataError(f"format version {got}, this version reads {readable}")
    if "consolidated_metadata" not in content:
        raise UnfinishedMetadataError("its layout was interrupted: start again with --resume")
    try:
        return _described(content, cast(Json, attributes), version)
    except MetadataError as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    except ValidationError as error:
        problem = explained(error).removeprefix("attributes.")
        problem = problem.removeprefix("consolidated_metadata.metadata.")[:200]
        raise MetadataError(f"the metadata are damaged: {problem}") from None
    except _MALFORMED as error:
        raise MetadataError(f"the metadata are damaged: {repr(error)[:120]}") from None


def _described(raw: Json, attributes: Json, version: int) -> Description:
    group = _GROUP.validate_json(json.dumps(_without_labels(raw)))
    metadata, zarr_arrays = group.attributes, group.consolidated_metadata.metadata
    required = ("content", "statistics") if metadata.sealed else ()
    absent = [name for name in required if name not in attributes]
    absent += [name for name in _OPTIONAL if attributes.get(name, "") is None]
    _check(not absent, "the attributes of the format have values", absent)
    arrays = dict[str, Array]()
    for name, array in zarr_arrays.items():
        for value in raw["consolidated_metadata"]["metadata"][name]["attributes"].values():
            fits = type(value) is not int or abs(value) < 2**64  # titles print it as a float
            _check(fits, f"{name}: numbers are below 2**64", value)
        sizes = (metadata.samples, metadata.shard) if name in metadata.variables else None
        arrays[name] = Array.of(name, array, sizes)
    _check(set(metadata.variables) <= arrays.keys(), "variables are arrays", metadata.variables)
    variables = {name: arrays[name] for name in metadata.variables}
    coordinates = {name: array for name, array in arrays.items() if name not in variables}
    check_axes(variables, coordinates, metadata.domain is not None)
    labels = None
    if version > 3 and CHANNEL not in arrays:
        labels = Labels.common((a.dims, a.shape, a.metadata.channels) for a in variables.values())
    stored = None if CHANNEL in arrays else raw["consolidated_metadata"]["metadata"].get(CHANNEL)
    expected = None if labels is None else labels.zarr_metadata
    _check(same(stored, expected), "channel is the coordinate of channel names", stored)
    return Description(raw, version, metadata, variables, coordinates, labels)


def _without_labels(raw: Json) -> Json:
    """The JSON of `zarr.json` without the coordinate `channel`, whose values are strings."""
    consolidated = raw["consolidated_metadata"]
    arrays = consolidated["metadata"]
    if CHANNEL not in arrays or arrays[CHANNEL]["data_type"] != "string":
        return raw
    others = {name: array for name, array in arrays.items() if name != CHANNEL}
    return {**raw, "consolidated_metadata": {**consolidated, "metadata": others}}


_GROUP = TypeAdapter(_Group)
_OPTIONAL = (
    "parent", "noise", "imported", "label_error", "sampled_inputs", "domain", "equation_file",
)  # fmt: skip
