"""Reading of stored shards: chunks are decoded directly into the array of the caller.

A process compares a shard with its record at the first read, and again when the object has changed.
Later reads check the checksum of each chunk. Zarr reads the same values more slowly, because it
schedules, allocates and copies every chunk.
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
    """The shards of a variable; no file or connection is held open."""

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
        """Type of the stored values."""
        return self.array.dtype.newbyteorder("<")

    def pieces(
        self, samples: np.ndarray, out: Values | None = None
    ) -> Iterator[tuple[slice, Values]]:
        """Read samples of one shard, chunk by chunk.

        Args:
            samples: Numbers of the samples, in rising order.
            out: Array to read into, shape (samples, ...). Whole chunks are decoded directly into a
                contiguous array of the stored type. Without it, the values of a piece are
                overwritten by the next piece.

        Yields:
            The slice of `samples` in a chunk, and its values.

        Raises:
            OSError: If the object cannot be read.
            ValueError, RuntimeError: If it is missing, damaged, or differs from its record.
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
        """The values of a shard from the bytes of its object. Raises ValueError or RuntimeError if
        these are damaged."""
        array = self.array
        values = np.full(array.shard, array.fill, self.dtype)
        for k, span in enumerate(spans(array, data[-index_bytes(array) :])):
            if span is not None:
                rows = slice(k * array.chunk[0], (k + 1) * array.chunk[0])
                decode(array, memoryview(data)[slice(*span)], values[rows])
        return values[: array.shape[0] - shard * self.samples]

    def _stored(self, shard: int, chunks: list[int]) -> Iterator[tuple[int, memoryview | None]]:
        """Encoded chunks of a shard, in rising order; None for a chunk of fill values."""
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
        """Compare a shard with its record. Returns its bytes if they fit in one read."""
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
    """The shards that this process has compared with their records, as (URL, content, key, identity
    of the object)."""
    return set()


def _as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """Rising rows as a slice if they are consecutive, which avoids a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows
