"""Stored shards of a variable -> chunks in memory, decoded straight to where they are wanted.

A shard is compared with its record when a process first reads it, and again once its object is
another; after that the checksum of each chunk guards it. Zarr reads the same, at a fraction of the
speed: it schedules, allocates and copies every chunk.
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

_KNOWN = 2**14  # shards that a process remembers to be sound


@dataclass(frozen=True)
class Shards:
    """The shards of a variable of a store; nothing in it is open."""

    url: str  # the store
    array: Array  # the variable
    record: Callable[[int], Record]  # the record of a shard, by its number
    content: str  # what the store says that its data are, by which compared shards are remembered

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
        """The values of some samples of one shard, whose numbers rise, chunk by chunk, each with
        its place among them. Into `out` of the stored shape and type whole chunks are decoded at
        once; without it the values of a piece are gone once the next is asked for. Raises OSError
        if the object cannot be read, and ValueError or RuntimeError if it is missing, damaged, or
        not the one that was recorded."""
        array, rows = self.array, self.array.chunk[0]
        shard = int(samples[0]) // self.samples
        inside = samples - shard * self.samples
        chunks, first = np.unique(inside // rows, return_index=True)
        ends = [*first[1:].tolist(), len(samples)]
        direct = out is not None and out.dtype == self.dtype and out.flags.c_contiguous
        memory = np.empty(array.chunk, self.dtype)
        stored = self._stored(shard, chunks.tolist())
        for (k, data), start, stop in zip(stored, first.tolist(), ends, strict=True):
            place = slice(start, stop)
            whole = out[place] if direct and out is not None and stop - start == rows else memory
            if data is None:
                whole[...] = array.fill
            else:
                decode(array, data, whole)
            if whole is not memory:
                yield place, whole
                continue
            values = whole[_picked(inside[place] - k * rows)]
            if out is not None:
                out[place] = values
            yield place, values

    def decoded(self, shard: int, data: bytes) -> Values:
        """The values of a shard in the bytes of its object. Raises ValueError or RuntimeError if
        they are damaged."""
        array = self.array
        values = np.full(array.shard, array.fill, self.dtype)
        for k, span in enumerate(spans(array, data[-index_bytes(array) :])):
            if span is not None:
                rows = slice(k * array.chunk[0], (k + 1) * array.chunk[0])
                decode(array, memoryview(data)[slice(*span)], values[rows])
        return values[: array.shape[0] - shard * self.samples]

    def _stored(self, shard: int, chunks: list[int]) -> Iterator[tuple[int, memoryview | None]]:
        """Chunks of a shard, in rising order, as they are stored; None for one of fill values."""
        array, objects = self.array, Objects(self.url)
        key, end = array.key(shard), index_bytes(array)
        whole = None
        try:
            identity = objects.identity(key)
            place = (self.url, self.content, key, identity)
            if place not in verified_shards():
                whole = self._compared(objects, shard)
                if len(verified_shards()) >= _KNOWN:
                    verified_shards().clear()
                verified_shards().add(place)
            index = objects.part(key, -end, None) if whole is None else whole[-end:]
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{array.name}, shard {shard}: the data are missing") from None
        places = spans(array, index)
        for group in adjacent(places, chunks):
            first, last = places[group[0]], places[group[-1]]
            if first is None or last is None:
                yield group[0], None
                continue
            start, stop = first[0], last[1]
            data = objects.part(key, start, stop) if whole is None else whole[start:stop]
            for k in group:
                own = places[k]
                assert own is not None
                yield k, memoryview(data)[own[0] - start : own[1] - start]

    def _compared(self, objects: Objects, shard: int) -> bytes | None:
        """Compare a shard with its record; its bytes, unless they are many."""
        record, name, key = self.record(shard), self.array.name, self.array.key(shard)
        found, size, piece = hashlib.sha256(), objects.size(key), b""
        for start in range(0, size, GROUP_BYTES):
            piece = objects.part(key, start, min(start + GROUP_BYTES, size))
            found.update(piece)
        if record.digest.get(name) != found.hexdigest():
            raise ValueError(f"{name}, shard {shard}: the data differ from the recorded digest")
        return piece if size <= GROUP_BYTES else None


@cache
def verified_shards() -> set[tuple[object, ...]]:
    """The shards that this process has compared with their records: of which store, content and
    variable, number, and the identity of the object."""
    return set()


def _picked(rows: np.ndarray) -> slice | np.ndarray:
    """Rising rows as a slice where they are consecutive: then nothing is copied."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows
