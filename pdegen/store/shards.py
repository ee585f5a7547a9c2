"""Reading of stored shards. Chunks are decoded directly into the array of the caller.

A process compares a shard with its record when it reads the shard for the first time, and again if
the stored object has changed. Later reads verify only the checksums of the chunks that they read.
The Zarr library reads the same values more slowly, because it schedules, allocates and copies every
chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from pdegen.store.arrays import Array, Values
from pdegen.store.chunks import adjacent, check, decode, index_bytes, spans
from pdegen.store.objects import Objects
from pdegen.store.opened import Bytes, Digesting, Opened
from pdegen.store.record import Record

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
        array, rows = self.array, self.array.chunk[0]
        shard = int(samples[0]) // self.samples
        inside = samples - shard * self.samples
        chunks = inside // rows
        cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(samples)]
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
        for k, span in enumerate(spans(array, data[-index_bytes(array) :])):
            if span is not None:
                rows = slice(k * array.chunk[0], (k + 1) * array.chunk[0])
                decode(array, stored[slice(*span)], values[rows])
        return values[: array.shape[0] - shard * self.samples]

    def _entry(self, shard: int) -> tuple[str, str, str]:
        return self.url, self.content, self.array.key(shard)

    def _chunks(
        self, shard: int, chunks: list[int], memory: Callable[[int], Values]
    ) -> Iterator[tuple[int, Values]]:
        """Yield the numbers and the values of chunks of a shard.

        Args:
            shard: Number of the shard.
            chunks: Numbers of the chunks.
            memory: Function that maps the number of a chunk to the array to decode it into.
        """
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
        """Yield chunks of a shard, and compare the shard with its record.

        Plain values are compared after they were read into the memory of the caller. Decompressors
        get no bytes that have not been compared.
        """
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
        """Yield the numbers and the values of chunks.

        Args:
            read: Function that fills arrays with consecutive bytes, as `OpenFile.read`.
            at_once: Number of bytes that are best read at once.
            index: The index of the shard.
            chunks, memory: See `_chunks`.
            checked: Whether the bytes are compared with the digest of the shard, so that the
                checksums are not needed.
        """
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
    """Read adjacent chunks that are not compressed directly into arrays.

    Args:
        read, checked: See `Shards._read`.
        stored: Byte range of each chunk.
        chunks: Array for the values of each chunk.
    """
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
    """Convert increasing row numbers to a slice if they are consecutive. Otherwise they are
    returned unchanged. Indexing with a slice does not copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows
