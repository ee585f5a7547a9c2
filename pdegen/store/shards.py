"""Reading of stored shards. Chunks are decoded directly into the array of the caller.

A process compares a shard with its record when it reads the shard for the first time, and again if
the stored object has changed. Later reads verify only the checksums of the chunks that they read.
The Zarr library reads the same values more slowly, because it schedules, allocates and copies every
chunk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pdegen.store.arrays import Array, Values
from pdegen.store.chunks import GROUP_BYTES, adjacent, decode, index_bytes, spans
from pdegen.store.objects import Objects
from pdegen.store.record import Record

_REMEMBERED = 2**14  # largest number of verified shards that a process remembers


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

        Args:
            samples: Numbers of the samples, in increasing order.
            out: Array to read into, shape (samples, ...). If it is contiguous and has the stored
                dtype, whole chunks are decoded directly into it. Without `out`, each yielded array
                is overwritten by the next one.

        Yields:
            The slice of `samples` that lies in one chunk, and the values of these samples.

        Raises:
            OSError: If the shard cannot be read.
            ValueError, RuntimeError: If the shard is missing, damaged, or differs from its record.
        """
        array, rows = self.array, self.array.chunk[0]
        shard = int(samples[0]) // self.samples
        inside = samples - shard * self.samples
        chunks, first = np.unique(inside // rows, return_index=True)
        ends = [*first[1:].tolist(), len(samples)]
        direct = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        memory = np.empty(array.chunk, self.dtype)
        stored = self._stored(shard, chunks.tolist())
        for (k, data), start, stop in zip(stored, first.tolist(), ends, strict=True):
            piece = slice(start, stop)
            chunk = out[piece] if direct and out is not None and stop - start == rows else memory
            if data is None:
                chunk[...] = array.fill
            else:
                decode(array, data, chunk)
            if chunk is not memory:
                yield piece, chunk
                continue
            values = chunk[_as_slice(inside[piece] - k * rows)]
            if out is not None:
                out[piece] = values
            yield piece, values

    def decoded(self, shard: int, data: bytes) -> Values:
        """Decode the values of a shard from the bytes of its object. Raises ValueError or
        RuntimeError if the bytes are damaged."""
        array = self.array
        values = np.full(array.shard, array.fill, self.dtype)
        for k, span in enumerate(spans(array, data[-index_bytes(array) :])):
            if span is not None:
                rows = slice(k * array.chunk[0], (k + 1) * array.chunk[0])
                decode(array, memoryview(data)[slice(*span)], values[rows])
        return values[: array.shape[0] - shard * self.samples]

    def _stored(self, shard: int, chunks: list[int]) -> Iterator[tuple[int, memoryview | None]]:
        """Yield the number and the encoded bytes of each given chunk of a shard. The bytes are None
        for a chunk that is not stored because it has only fill values."""
        array, objects = self.array, Objects(self.url)
        key, end = array.key(shard), index_bytes(array)
        whole = None
        try:
            identity = objects.identity(key)
            entry = (self.url, self.content, key, identity)
            if entry not in verified_shards():
                whole = self._compared(objects, shard)
                if len(verified_shards()) >= _REMEMBERED:
                    verified_shards().clear()
                verified_shards().add(entry)
            index = objects.part(key, -end, None) if whole is None else whole[-end:]
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{array.name}, shard {shard}: the data are missing") from None
        bounds = spans(array, index)
        for group in adjacent(bounds, chunks):
            first, last = bounds[group[0]], bounds[group[-1]]
            if first is None or last is None:
                yield group[0], None
                continue
            start, stop = first[0], last[1]
            data = objects.part(key, start, stop) if whole is None else whole[start:stop]
            for k in group:
                span = bounds[k]
                assert span is not None
                yield k, memoryview(data)[span[0] - start : span[1] - start]

    def _compared(self, objects: Objects, shard: int) -> bytes | None:
        """Compare a shard with its record. Returns the bytes of the shard, or None if it was too
        large to be read in one piece."""
        record, name, key = self.record(shard), self.array.name, self.array.key(shard)
        digest, size, piece = hashlib.sha256(), objects.size(key), b""
        for start in range(0, size, GROUP_BYTES):
            piece = objects.part(key, start, min(start + GROUP_BYTES, size))
            digest.update(piece)
        if record.digest.get(name) != digest.hexdigest():
            raise ValueError(f"{name}, shard {shard}: the data differ from the recorded digest")
        return piece if size <= GROUP_BYTES else None


@cache
def verified_shards() -> set[tuple[object, ...]]:
    """The shards that this process has compared with their records. Each entry is (URL, content
    digest, key, identity of the object)."""
    return set()


def _as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """Convert increasing row numbers to a slice if they are consecutive. Otherwise they are
    returned unchanged. Indexing with a slice does not copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows
