"""The reader of stores. The packages pdegen and operators both use it.

When a store is opened, its metadata and coordinates are compared with the seal. When a shard is
read, it is compared with its record (`pdegen.store.reading`).
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pdegen.domains import Domain
from pdegen.schema import explained
from pdegen.store.format import (
    BLOSC,
    METADATA_BYTES,
    ROOT,
    SHORT_DIGITS,
    Array,
    Description,
    Json,
    Labels,
    MetadataError,
    StoreMetadata,
    UnfinishedMetadataError,
    Values,
    checksum,
    parse,
    sha256,
    short_digest,
    short_digest_of,
    with_digest,
    without_digest,
)
from pdegen.store.objects import Bytes, Digesting, Objects, Opened, TooLargeError

# Encoding and decoding of shards and their chunks. The bytes are those that the Zarr library
# writes.


_blosc: Any = importlib.import_module("numcodecs.blosc")  # compiled, without types
_HEADER = (
    16  # bytes of a Blosc header: version, flags, and sizes of values, blocks and compressed data
)
_ABSENT = (
    2**64 - 1
)  # offset and length of a chunk that was not written, as all its values are fill values


def index_bytes(array: Array) -> int:
    """Size in bytes of the index at the end of a shard, including its checksum."""
    return 16 * (array.shard[0] // array.chunk[0]) * array.parts + 4


def spans(array: Array, index: bytes | Values) -> list[tuple[int, int] | None]:
    """Byte range (start, stop) of each chunk in the object that stores a shard. None for a chunk
    that is not stored.

    Args:
        array: The variable.
        index: The last `index_bytes(array)` bytes of the object.

    Raises:
        ValueError: If the index is damaged.
    """
    if len(index) != index_bytes(array) or checksum(index[:-4]) != bytes(index[-4:]):
        raise ValueError("the index of the shard is damaged")
    largest = math.prod(array.chunk) * array.dtype.itemsize + _HEADER + 4
    bounds = list[tuple[int, int] | None]()
    for start, size in np.frombuffer(index[:-4], "<u8").reshape(-1, 2).tolist():
        if start == size == _ABSENT:
            bounds.append(None)
        elif size > largest or start >= 2**62:
            raise ValueError("the index of the shard is damaged")
        else:
            bounds.append((start, start + size))
    return bounds


def adjacent(
    spans: Sequence[tuple[int, int] | None], chunks: Sequence[int], at_most: int
) -> Iterator[list[int]]:
    """Group chunks so that the chunks of a group are adjacent in the object. One read then returns
    the whole group.

    A chunk that is not stored forms a group of its own. A group of several chunks has at most
    `at_most` bytes.

    >>> list(adjacent([(0, 8), (8, 12), None, (12, 20)], [0, 1, 2, 3], at_most=100))
    [[0, 1], [2], [3]]
    """
    group = list[int]()
    for k in chunks:
        if group:
            first, last, span = spans[group[0]], spans[group[-1]], spans[k]
            if (
                first is None or last is None or span is None
                or span[0] != last[1] or span[1] - first[0] > at_most
            ):  # fmt: skip
                yield group
                group = []
        group.append(k)
    if group:
        yield group


def decode(array: Array, stored: Values, out: Values, *, checked: bool = False) -> None:
    """Decompress a chunk into `out`, a contiguous array with the shape and dtype of the chunk.

    Args:
        array: The variable.
        stored: The bytes of the chunk, with their checksum.
        checked: Whether the bytes agree with a digest, so that the checksum is not needed.

    Raises:
        ValueError, RuntimeError: If the chunk is damaged.
    """
    stored, end = stored[:-4], stored[-4:]
    if not checked:
        check(stored, end)
    if array.compressor == "none":
        if len(stored) != out.nbytes:
            raise ValueError("a chunk is damaged")
        np.copyto(out, stored.view(out.dtype.newbyteorder("<")).reshape(out.shape))
        return
    sizes: list[int] = stored[4:_HEADER].view("<u4").tolist() if len(stored) >= _HEADER else []
    if sizes[:1] != [out.nbytes] or sizes[2:] != [len(stored)]:
        raise ValueError("a chunk is damaged")
    _blosc.decompress(stored, out)


def check(stored: Values, end: Values) -> None:
    """Raise ValueError if the bytes of a chunk differ from their checksum `end`."""
    if checksum(stored) != bytes(end):
        raise ValueError("a chunk differs from its checksum")


def encoded_shard(array: Array, rows: Values) -> bytes:
    """The bytes of the object that stores a shard.

    The shard is divided into chunks along its first axis, and each sample into parts if it is
    large (`Array.parts`). The last chunk is padded with fill values. A chunk that contains only
    fill values is not stored. The object ends with an index, which lists the offset and size of
    each chunk, and the checksum of the index.
    """
    size, fill = array.chunk[0], array.fill
    stored = np.ascontiguousarray(rows, dtype=array.dtype.newbyteorder("<"))
    stored = stored.reshape(len(rows) * array.parts, *array.chunk[1:])
    index = np.full((array.shard[0] // size * array.parts, 2), _ABSENT, dtype="<u8")
    parts, offset = list[bytes](), 0
    for number, start in enumerate(range(0, len(stored), size)):
        values = stored[start : start + size]
        if len(values) < size:
            padded = np.full(array.chunk, fill, dtype=stored.dtype)
            padded[: len(values)] = values
            values = padded
        if _is_all(values, fill):
            continue
        chunk = _chunk(values, array)
        index[number] = offset, sum(map(len, chunk))
        offset += int(index[number, 1])
        parts += chunk
    encoded_index = index.tobytes()
    return b"".join([*parts, encoded_index, checksum(encoded_index)])


def _chunk(values: Values, array: Array) -> list[bytes]:
    """Encode the values of a chunk. Returns the encoded values and their checksum."""
    if array.compressor == "none":
        data = values.tobytes()
    else:  # Blosc takes the item size from the array
        level, shuffle, blocks = BLOSC["clevel"], _blosc.SHUFFLE, BLOSC["blocksize"]
        data: bytes = _blosc.compress(values, array.compressor.encode(), level, shuffle, blocks)
    return [data, checksum(data)]


def _is_all(values: Values, fill: float) -> bool:
    """Whether all values equal the fill value."""
    if values.dtype.kind == "f":
        return bool(np.isnan(values.flat[0])) and bool(np.isnan(values).all())
    return bool(values.flat[0] == fill) and bool((values == fill).all())


# The record of a written shard, the summary of all records, and the seal of a store.


_BLOCK = 2**15  # points whose float64 copy fits in the cache of a core


@cache
def _validator(kind: type[Any]) -> TypeAdapter[Any]:
    """The validator of a class. It is cached, because building it takes longer than using it."""
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Record:
    """The record of one written shard: digests, moments and skipped samples."""

    shard: int  # number of the shard
    samples: tuple[int, int]  # first and one past the last sample
    digest: dict[str, str]  # SHA-256 of the stored object of each variable
    # mean and mean square of each sample, by variable, in float64 over the stored values; None for
    # a skipped sample
    mean: dict[str, list[float | None]]
    mean_square: dict[str, list[float | None]]
    skipped: dict[int, str]  # reason for each sample that could not be computed
    job: str  # identity of the job that computed them (`pdegen.store.format.job_of`)

    @staticmethod
    def key(shard: int) -> str:
        """Key of the object that stores the record of a shard."""
        return f"records/{shard:06d}.json"

    @staticmethod
    def number(name: str) -> int | None:
        """Number of the shard whose record has this file name. None if no record can have this
        name."""
        digits = name.removesuffix(".json")
        if not digits.isdecimal() or len(digits) > 18:
            return None
        return int(digits) if Record.key(int(digits)) == f"records/{name}" else None

    def encode(self) -> bytes:
        """The record as JSON that ends with its own SHA-256."""
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Record:
        """Parse the bytes of a record. Raises ValueError if they are not those of a record, or were
        changed."""
        try:
            return _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no record: {explained(error)}") from None


@dataclass(frozen=True)
class Summary:
    """Digests and statistics of all records. They are computed in one pass, with one record at a
    time in memory."""

    content: str  # SHA-256 over the digests of all shards, which identifies the data
    records: str  # SHA-256 over the records
    shards: str  # the `short_digest` of each record, concatenated
    skipped: list[int]  # numbers of the skipped samples
    # mean and standard deviation of each variable over the training split, in float64. Sums over
    # samples are rounded once, so that they do not depend on the size of shards
    statistics: dict[str, dict[str, float]]

    @classmethod
    def of(
        cls, records: Iterable[Record], variables: list[str], split: tuple[int, int], samples: int
    ) -> Summary:
        """Compute the summary of records.

        Args:
            records: The records of all shards, in order.
            variables: Names of the variables.
            split: Range (start, stop) of the training samples.
            samples: Number of samples in the store.

        Raises:
            ValueError: If all training samples were skipped.
        """
        content, whole, short_digests = hashlib.sha256(), hashlib.sha256(), list[str]()
        skipped = list[int]()
        # arrays, because Python floats would take four times the memory
        moments = {name: np.full((2, samples), np.nan) for name in variables}
        for record in records:
            content.update(json.dumps(sorted(record.digest.items())).encode())
            encoded = record.encode()
            whole.update(encoded)
            short_digests.append(short_digest(encoded))
            skipped += sorted(record.skipped)
            for name, values in moments.items():
                values[0, slice(*record.samples)] = record.mean[name]
                values[1, slice(*record.samples)] = record.mean_square[name]
        return cls(
            content=content.hexdigest(),
            records=whole.hexdigest(),
            shards="".join(short_digests),
            skipped=skipped,
            statistics={
                name: _statistics(values[:, slice(*split)]) for name, values in moments.items()
            },
        )


def _statistics(moments: np.ndarray) -> dict[str, float]:
    means, squares = moments[:, ~np.isnan(moments[0])]
    if not len(means):
        raise ValueError("every training sample was skipped")
    mean = math.fsum(means) / len(means)
    return {"mean": mean, "std": math.sqrt(max(math.fsum(squares) / len(means) - mean**2, 0.0))}


@dataclass(frozen=True)
class Seal:
    """The seal of a complete store. It contains the digests of all objects that the records do not
    cover."""

    objects: dict[
        str, str
    ]  # SHA-256 of metadata, coordinates, card and Croissant description, by key
    metadata: dict[str, str]  # text of the Zarr metadata by key, to repair damaged ones
    records: str  # SHA-256 over the records
    # the `short_digest` of each record, concatenated, to find changed records
    shards: str

    KEY = "seal.json"

    @classmethod
    def of(cls, objects: Mapping[str, bytes], records: str, shards: str) -> Seal:
        """Make a seal.

        Args:
            objects: The bytes of the objects that the seal covers. Keys are the keys of the
                objects.
            records: Digest of all records (`Summary.records`).
            shards: Short digests of the records (`Summary.shards`).
        """
        return cls(
            objects={key: sha256(objects[key]) for key in sorted(objects)},
            metadata={
                key: objects[key].decode() for key in sorted(objects) if key.endswith("zarr.json")
            },
            records=records,
            shards=shards,
        )

    def encode(self) -> bytes:
        """The seal as JSON that ends with its own SHA-256."""
        return with_digest(vars(self))

    @classmethod
    def parse(cls, data: bytes) -> Seal:
        """Parse the bytes of a seal. Raises ValueError if they are not those of a seal, or were
        changed."""
        try:
            seal: Seal = _validator(cls).validate_python(without_digest(data))
        except ValidationError as error:
            raise ValueError(f"it is no seal: {explained(error)}") from None
        for key, text in seal.metadata.items():
            if seal.objects.get(key) != sha256(text.encode()):
                raise ValueError(f"its copy of {key} differs from the digest")
        return seal


def sample_moments(values: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """Mean and mean square of each sample, in float64. None for a skipped sample, whose values are
    all NaN.

    NumPy sums the values of each sample separately. The result therefore has the same bits for any
    number of samples in a call.
    """
    rows = values.reshape(len(values), -1)
    size = max(1, _BLOCK // rows.shape[1])
    means, squares = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        # by blocks, without a float64 copy of all values
        values64 = rows[block].astype(np.float64, order="C")
        with np.errstate(invalid="ignore"):  # infinities of both signs have no mean
            values64.mean(axis=1, out=means[block])
            values64 *= values64
            values64.mean(axis=1, out=squares[block])
    skipped = np.isnan(means).tolist()
    return _or_none(means, skipped), _or_none(squares, skipped)


def _or_none(values: np.ndarray, skipped: list[bool]) -> list[float | None]:
    return [None if nan else value for value, nan in zip(values.tolist(), skipped, strict=True)]


# Reading of stored shards. Chunks are decoded directly into the array of the caller.


WHOLE_BYTES = 2**24  # largest compressed shard that is kept in memory while it is verified
_REMEMBERED = 2**14  # largest number of verified shards that a process remembers

Read = Callable[..., None]  # arguments: position of the first byte, arrays to fill


@dataclass(frozen=True)
class Verified:
    """A shard whose bytes agree with its record."""

    identity: str  # identity of the object
    unknown: frozenset[int]  # numbers of the samples that may have a NaN or infinite value


@dataclass(frozen=True)
class Shards:
    """The shards of a variable. The object keeps no file or connection open."""

    url: str  # URL of the store
    array: Array  # the variable
    record: Callable[[int], Record]  # the record of a shard, by its number
    content: str  # identity of the data, under which verified shards are remembered

    @property
    def samples(self) -> int:
        """Number of samples in a shard."""
        return self.array.shard[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the stored values."""
        return self.array.dtype.newbyteorder("<")

    def pieces(
        self, samples: np.ndarray, out: Values | None = None
    ) -> Iterator[tuple[slice, Values]]:
        """Read samples of one shard, chunk by chunk.

        A shard that is read for the first time has been verified when the iterator ends; its values
        are to be used only then.

        Args:
            samples: Numbers of the samples, in increasing order.
            out: Array to read into, shape (samples, ...). If it is contiguous and has the stored
                dtype, whole chunks are decoded directly into it.

        Yields:
            The slice of `samples` that lies in one chunk, and the values of these samples.

        Raises:
            OSError: If the shard cannot be read.
            ValueError, RuntimeError: If the shard is missing, damaged, or differs from its record.
        """
        array = self.array
        shard = int(samples[0]) // self.samples
        inside = samples - shard * self.samples
        if array.parts == 1:
            yield from self._pieces(shard, inside, out)
            return
        direct = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        for row, sample in enumerate(inside):
            piece = slice(row, row + 1)
            values: Values = np.empty((1, *array.shape[1:]), self.dtype)
            if out is not None and direct:
                values = out[piece]
            parts = sample * array.parts + np.arange(array.parts)
            for _ in self._pieces(shard, parts, values.reshape(-1, *array.chunk[1:])):
                pass
            if out is not None and not direct:
                out[piece] = values
            yield piece, values

    def _pieces(
        self, shard: int, inside: np.ndarray, out: Values | None
    ) -> Iterator[tuple[slice, Values]]:
        """Read rows of one shard, each a sample or a part of one, chunk by chunk."""
        array, rows = self.array, self.array.chunk[0]
        chunks = inside // rows
        cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(inside)]
        slices = {int(chunks[i]): slice(i, j) for i, j in itertools.pairwise(cuts)}
        direct = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        whole = {k for k, piece in slices.items() if direct and piece.stop - piece.start == rows}

        def memory(k: int) -> Values:
            return (
                out[slices[k]]
                if out is not None and k in whole
                else np.empty(array.chunk, self.dtype)
            )

        for k, chunk in self._chunks(shard, [*slices], memory):
            piece = slices[k]
            if k in whole:
                yield piece, chunk
                continue
            values = chunk[_as_slice(inside[piece] - k * rows)]
            if out is not None:
                out[piece] = values
            yield piece, values

    def finite(self, samples: np.ndarray) -> bool:
        """Whether the record says that samples of one shard have finite values. The shard must have
        been read. False if the record does not say it."""
        verified = verified_shards().get(self._entry(int(samples[0]) // self.samples))
        return verified is not None and verified.unknown.isdisjoint(samples.tolist())

    def decoded(self, shard: int, data: bytes) -> Values:
        """Decode the values of a shard from the bytes of its object. Raises ValueError or
        RuntimeError if the bytes are damaged."""
        array = self.array
        values, stored = np.full(array.shard, array.fill, self.dtype), np.frombuffer(data, np.uint8)
        chunks = values.reshape(-1, *array.chunk[1:])
        for k, span in enumerate(spans(array, data[-index_bytes(array) :])):
            if span is not None:
                rows = slice(k * array.chunk[0], (k + 1) * array.chunk[0])
                decode(array, stored[slice(*span)], chunks[rows])
        return values[: array.shape[0] - shard * self.samples]

    def _entry(self, shard: int) -> tuple[str, str, str]:
        return self.url, self.content, self.array.key(shard)

    def _chunks(
        self, shard: int, chunks: list[int], memory: Callable[[int], Values]
    ) -> Iterator[tuple[int, Values]]:
        """Yield the numbers and the values of chunks of a shard."""
        try:
            with Objects(self.url).open(self.array.key(shard)) as opened:
                index, verified = self._index(opened), verified_shards().get(self._entry(shard))
                if verified is not None and verified.identity == opened.identity:
                    yield from self._read(opened.read, opened.at_once, index, chunks, memory)
                else:
                    yield from self._compared(opened, shard, index, chunks, memory)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{self.array.name}, shard {shard}: the data are missing") from None

    def _index(self, opened: Opened) -> Bytes:
        """The index at the end of an object."""
        index = np.empty(index_bytes(self.array), np.uint8)
        if opened.size < len(index):
            raise ValueError("the index of the shard is damaged")
        opened.read(opened.size - len(index), index)
        return index

    def _compared(
        self,
        opened: Opened,
        shard: int,
        index: Bytes,
        chunks: list[int],
        memory: Callable[[int], Values],
    ) -> Iterator[tuple[int, Values]]:
        """Yield chunks of a shard, and compare the shard with its record."""
        record, digesting, at_once = self.record(shard), Digesting(opened), opened.at_once
        if self.array.compressor == "none":
            yield from self._read(digesting.read, at_once, index, chunks, memory, checked=True)
            self._compare(digesting.digest(index), record, opened.identity)
        elif opened.size <= WHOLE_BYTES:
            whole = np.empty(opened.size - len(index), np.uint8)
            digesting.read(0, whole)
            self._compare(digesting.digest(index), record, opened.identity)
            read = partial(_copy, whole)
            yield from self._read(read, at_once, index, chunks, memory, checked=True)
        else:
            self._compare(digesting.digest(index), record, opened.identity)
            yield from self._read(opened.read, at_once, index, chunks, memory)

    def _compare(self, digest: str, record: Record, identity: str) -> None:
        """Compare the digest of a shard with its record, and remember that they agree."""
        name, shard = self.array.name, record.shard
        if record.digest.get(name) != digest:
            raise ValueError(f"{name}, shard {shard}: the data differ from the recorded digest")
        means = record.mean.get(name, [None] * len(range(*record.samples)))
        finite = np.isfinite(np.array(means, dtype=float))  # finite means imply finite values
        unknown = frozenset((record.samples[0] + np.flatnonzero(~finite)).tolist())
        if len(verified_shards()) >= _REMEMBERED:
            verified_shards().clear()
        verified_shards()[self._entry(shard)] = Verified(identity, unknown)

    def _read(
        self,
        read: Read,
        at_once: int,
        index: Bytes,
        chunks: list[int],
        memory: Callable[[int], Values],
        *,
        checked: bool = False,
    ) -> Iterator[tuple[int, Values]]:
        """Yield the numbers and the values of chunks."""
        array, plain = self.array, self.array.compressor == "none"
        bounds = spans(array, index)
        in_order = sorted(chunks, key=lambda k: bounds[k] or (-1, -1))
        for group in adjacent(bounds, in_order, at_once):
            values = {k: memory(k) for k in group}
            stored = [span for k in group if (span := bounds[k]) is not None]
            if not stored:
                values[group[0]][...] = array.fill
            elif plain:
                _read_plain(read, stored, [*values.values()], checked)
            else:
                first, last = stored[0][0], stored[-1][1]
                data = np.empty(last - first, np.uint8)
                read(first, data)
                for (start, stop), chunk in zip(stored, values.values(), strict=True):
                    decode(array, data[start - first : stop - first], chunk, checked=checked)
            yield from values.items()


def _read_plain(
    read: Read, stored: list[tuple[int, int]], chunks: list[Values], checked: bool
) -> None:
    """Read adjacent chunks that are not compressed directly into arrays."""
    data = [chunk.reshape(-1).view(np.uint8) for chunk in chunks]
    if any(len(v) + 4 != stop - start for v, (start, stop) in zip(data, stored, strict=True)):
        raise ValueError("a chunk is damaged")
    ends = np.empty((len(chunks), 4), np.uint8)
    read(stored[0][0], *(part for pair in zip(data, ends, strict=True) for part in pair))
    for v, end in () if checked else zip(data, ends, strict=True):
        check(v, end)


def _copy(data: Bytes, start: int, *parts: Bytes) -> None:
    """Fill arrays with consecutive values of `data`, from the index `start` on."""
    for part in parts:
        part[:] = data[start : start + len(part)]
        start += len(part)


@cache
def verified_shards() -> dict[tuple[str, str, str], Verified]:
    """The shards that this process has compared with their records. The keys are (URL, content
    digest, key of the object)."""
    return {}


def _as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """Convert increasing row numbers to a slice if they are consecutive."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


_RECORDS_AT_ONCE = 256  # records read at a time


class StoreError(ValueError):
    """A store is missing, damaged, unfinished or of another format, or the URL of a new store is
    occupied. The message has one line."""

    exit_status = 2


class UnfinishedLayoutError(StoreError):
    """The store is unfinished: the process that laid it out was interrupted."""


@dataclass(frozen=True)
class Store:
    """A store at a URL or path. It keeps no file or connection open. The first use raises
    StoreError if there is no pdegen store at the URL."""

    url: str  # URL or path of the store
    # bytes of `zarr.json` to use in place of the stored ones
    root: bytes | None = field(default=None, repr=False)
    # the seal that records and coordinates must match; None to read them as they are
    seal: Seal | None = field(default=None, repr=False)

    def __getstate__(self) -> Json:
        """The fields to pickle, without cached values. Another process reads the coordinates
        again."""
        return {"url": self.url, "root": self.root, "seal": self.seal}

    @property
    def objects(self) -> Objects:
        return Objects(self.url)  # a new one at each use: connections do not survive a fork

    @cached_property
    def description(self) -> Description:
        """The parsed `zarr.json`: metadata of the store and all its arrays."""
        try:
            return parse(_root_bytes(self.objects) if self.root is None else self.root)
        except MetadataError as error:
            unfinished = isinstance(error, UnfinishedMetadataError)
            kind = UnfinishedLayoutError if unfinished else StoreError
            raise kind(f"{self.url}: {error}") from None

    @property
    def metadata(self) -> StoreMetadata:
        """The checked, typed attributes of the store."""
        return self.description.metadata

    @property
    def raw_attributes(self) -> Json:
        """The attributes of the store as JSON, unchanged from `zarr.json`."""
        return self.description.raw_attributes

    @property
    def sealed(self) -> bool:
        """Whether the store is complete."""
        return self.metadata.sealed

    @property
    def version(self) -> int:
        """Version of the store format."""
        return self.description.version

    @property
    def derived(self) -> bool:
        """Whether the store was made from a parent store (`pdegen.generation.derived`)."""
        return self.metadata.parent is not None

    @property
    def command(self) -> str:
        """The pdegen command that made the store."""
        if self.derived:
            return "noise"
        return "import" if self.metadata.imported else "generate"

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.metadata.samples

    @property
    def shard_size(self) -> int:
        """Number of samples in a shard; the last shard may have fewer."""
        return self.metadata.shard

    @property
    def shards(self) -> int:
        """Number of shards of each variable."""
        return self.description.shards

    @property
    def variables(self) -> list[str]:
        """Names of the variables, which are the arrays that have values for each sample."""
        return [*self.metadata.variables]

    @property
    def skipped(self) -> list[int]:
        """Numbers of the samples that could not be computed; their values are NaN."""
        return [*self.metadata.skipped]

    def samples_in(self, split: str) -> int:
        """Number of samples of a split, without the skipped samples."""
        numbers = range(*self.metadata.splits[split])
        return len(numbers) - sum(sample in numbers for sample in self.skipped)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """A dictionary that maps names to variables and coordinates."""
        return self.description.arrays

    def array(self, name: str) -> Array:
        """The array with this name. Raises StoreError if the store has no such array."""
        try:
            return self.arrays[name]
        except KeyError:
            raise StoreError(f"{self.url} has no variable {name}") from None

    def raw_attributes_of(self, name: str) -> Json:
        """The attributes of an array as JSON, unchanged from `zarr.json`."""
        return self.description.zarr_metadata[name]["attributes"]

    def shard_range(self, shard: int) -> range:
        """Numbers of the samples in a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.samples))

    def key(self, name: str, shard: int) -> str:
        """Key of the object that holds a shard of a variable."""
        return self.arrays[name].key(shard)

    # values

    @cached_property
    def coordinates(self) -> Mapping[str, Values]:
        """A dictionary that maps the names of all coordinates to their values."""
        arrays, labels = self.description.coordinates, self.description.labels
        limits = {array.key(): array.limit for array in arrays.values()}
        limits |= {} if labels is None else {labels.KEY: len(labels.data)}
        stored = dict[str, bytes]()
        for key, limit in limits.items():
            data, problem = self.objects.try_read(key, limit)
            if data is None:
                raise self.damaged(f"{key} {problem}")
            if self.seal is not None and sha256(data) != self.seal.objects.get(key):
                raise self.damaged(f"{key} differs from the seal")
            stored[key] = data
        if labels is not None and stored[labels.KEY] != labels.data:
            raise self.damaged(f"{Labels.KEY} differs from the names of the channels")
        try:
            return {name: array.decode(stored[array.key()]) for name, array in arrays.items()}
        except MetadataError as error:
            raise self.damaged(str(error)) from None

    def domain(self, axes: tuple[str, ...]) -> Domain:
        """The domain on which functions with these axes are defined. Raises StoreError if the store
        describes no such domain."""
        try:
            return self.description.domain(axes, self.coordinates)
        except MetadataError as error:
            raise StoreError(f"{self.url}: {error}") from None

    def values(self, name: str, samples: range | None = None) -> Values:
        """The values of a coordinate or variable. For a variable, `samples` selects the samples; by
        default all are read. Skipped samples have the value NaN. Raises StoreError if the values
        are damaged or missing."""
        if name in self.description.coordinates:
            return self.coordinates[name]
        array, shards = self.array(name), self.shards_of(name)
        samples = range(self.samples) if samples is None else samples
        out = np.empty((len(samples), *array.shape[1:]), array.dtype)
        try:
            for shard in range(
                samples.start // self.shard_size, -(-samples.stop // self.shard_size)
            ):
                in_shard = self.shard_range(shard)
                wanted = range(max(in_shard.start, samples.start), min(in_shard.stop, samples.stop))
                rows = out[wanted.start - samples.start : wanted.stop - samples.start]
                for _ in shards.pieces(np.array(wanted), rows):
                    pass
            if not_finite(out, samples, self.skipped).size:
                raise ValueError("values are missing")
        except (ValueError, RuntimeError) as error:
            problem = str(error).removeprefix(f"{self.url}: ")
            raise StoreError(
                f"{self.url}: {name}, samples {samples.start} to {samples.stop - 1} are damaged "
                f"({problem}); pdegen verify lists the damaged shards"
            ) from error
        return out

    def shards_of(self, name: str) -> Shards:
        """The shards of a variable, from which its values can be read."""
        content = f"{self.metadata.content}, {'sealed' if self.seal else 'as recorded'}"
        return Shards(self.url, self.array(name), self.record, content)

    def damaged(self, problem: str) -> StoreError:
        """An error about damaged metadata or coordinates. Its message names the command that
        repairs the store."""
        return StoreError(f"{self.url} is damaged: {problem}; pdegen verify --repair mends it")

    # records

    def recorded(self) -> list[int]:
        """Numbers of the shards that have a record, valid or not."""
        numbers = map(Record.number, self.objects.keys("records"))
        return sorted(shard for shard in numbers if shard is not None and shard < self.shards)

    def record(self, shard: int) -> Record:
        """The record of a shard. Raises StoreError if it is missing or belongs to another store."""
        data, problem = self.objects.try_read(Record.key(shard), METADATA_BYTES)
        if data is None:
            raise StoreError(
                f"{self.url}: shard {shard} has no record: {Record.key(shard)} {problem}"
            )
        return self._parsed(shard, data)

    def records(self) -> Iterator[Record]:
        """Yield the records of all shards in order; several are read at once. Raises StoreError if
        a record is missing or belongs to another store."""
        objects = self.objects
        for start in range(0, self.shards, _RECORDS_AT_ONCE):
            shards = range(start, min(start + _RECORDS_AT_ONCE, self.shards))
            try:
                encoded = objects.read_all([Record.key(shard) for shard in shards], METADATA_BYTES)
            except (FileNotFoundError, TooLargeError):
                yield from map(self.record, shards)  # its error names the missing record
            else:
                yield from map(self._parsed, shards, encoded)

    def _parsed(self, shard: int, data: bytes) -> Record:
        where = f"{self.url}: {Record.key(shard)}"
        try:
            record = Record.parse(data)
        except ValueError as error:
            raise StoreError(f"{where}: {error}") from None
        samples, digests = self.shard_range(shard), self.seal.shards if self.seal else None
        if record.shard != shard or record.samples != (samples.start, samples.stop):
            raise StoreError(f"{where} is the record of another shard")
        if record.job != self.metadata.job:
            raise StoreError(f"{where} is the record of another job")
        if digests is not None and short_digest_of(digests, shard) != short_digest(data):
            raise StoreError(f"{where} is not the record that was sealed")
        return record


def not_finite(
    values: Values, samples: range, skipped: Mapping[int, str] | list[int]
) -> np.ndarray:
    """Numbers of the samples that have a NaN or infinite value. Skipped samples are not listed."""
    finite = np.isfinite(values)
    if finite.all():
        return np.array([], dtype=int)
    rows = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
    return np.setdiff1d(rows + samples.start, np.array(list(skipped), dtype=int))


def seal_in(objects: Objects) -> Seal:
    """Read the seal of a store. Raises StoreError if it is missing or damaged."""
    data, problem = objects.try_read(Seal.KEY, METADATA_BYTES)
    if data is None:
        raise StoreError(f"{Seal.KEY}: {problem}")
    try:
        return Seal.parse(data)
    except ValueError as error:
        raise StoreError(f"{Seal.KEY}: {error}") from None


def _root_bytes(objects: Objects) -> bytes:
    """The bytes of `zarr.json`. Raises StoreError if this object does not exist."""
    try:
        return objects.read(ROOT, at_most=METADATA_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        problem = "not a pdegen store" if objects.exists() else "no such store"
        raise StoreError(f"{objects.url}: {problem}") from None


def open_sealed(store: str | Store) -> Store:
    """Open a sealed store whose metadata and coordinates match the seal.

    Args:
        store: URL or path, or a store that is open already, which is returned.

    Raises:
        StoreError: If the store is missing, damaged, of another format or not sealed. If it is not
            sealed, the message says how to resume.
    """
    if isinstance(store, Store) and store.seal is not None:
        return store
    url = store if isinstance(store, str) else store.url
    root = _root_bytes(Objects(url))
    finished(Store(url, root))
    try:
        seal = seal_in(Objects(url))
    except StoreError as error:
        raise Store(url, root).damaged(str(error)) from None
    opened = Store(url, root, seal)
    if seal.objects.get(ROOT) != sha256(root):
        raise opened.damaged(f"{ROOT}: differs from the seal")
    if len(seal.shards) != SHORT_DIGITS * opened.shards:
        raise opened.damaged(f"{Seal.KEY} has another number of shards than the store")
    _ = opened.coordinates
    return opened


def finished(store: Store) -> Store:
    """Return a store if its metadata say that it is sealed. Raises StoreError if the store is
    missing, of another format or not sealed. If it is not sealed, the message says how to
    resume."""
    if not store.sealed:
        done = len(store.recorded())
        recipe = f" {store.metadata.recipe.name}" if store.command == "generate" else ""
        raise StoreError(
            f"{store.url} is not sealed ({done} of {store.shards} shards are written): finish it "
            f"by the command that made it, pdegen {store.command}{recipe} ... "
            f"--out {store.url}, with --resume"
        )
    return store
