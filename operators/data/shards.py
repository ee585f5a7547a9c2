"""Stored shards of a variable -> chunks in memory, decoded straight to where they are wanted.

Zarr reads the same, at a fraction of the speed: it schedules, allocates and copies every chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google_crc32c import value as crc32c
from numcodecs import blosc  # pyright: ignore[reportAttributeAccessIssue]

from operators.data.digests import check_file, check_shard, sound

_GROUP_BYTES = 2**24  # read at a time
_HEADER = 16  # bytes of a blosc header: version, flags, sizes before and after, and of blocks
_ABSENT = 2**64 - 1  # offset and length of a chunk that was not written: all values are the fill


@dataclass(frozen=True)
class Shards:
    """The shards of a variable.

    Args:
        key: Path of the variable in the store.
        shape: Of a chunk; the first is samples.
        dtype: Of the values.
        chunks: Chunks of a shard.
        content: Digest of the store's data, by which what was compared once is known.
        job: What its records name (`Description.job`).
        records: The marks of all records (`operators.data.digests.check_seal`).
        checksums: Whether each chunk ends with its CRC-32C: since version 3 of the format.
        compressed: Whether chunks are compressed by Blosc, or the plain values.
    """

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: int
    content: str
    job: str | None
    records: str | None
    checksums: bool
    compressed: bool = True

    @property
    def samples(self) -> int:
        """Samples of a shard."""
        return self.chunks * self.shape[0]

    def stored(
        self, files: Any, root: str, shard: int, chunks: Sequence[int]
    ) -> Iterator[tuple[int, memoryview | None]]:
        """Chunks of a shard as they are stored; None for one that was not written.

        A shard that a process reads for the first time is read to its end, and compared with its
        record.

        Args:
            files: The file system of the store.
            root: Path of the store in it.
            shard: Number of the shard.
            chunks: Which ones, in rising order.

        Raises:
            OSError: If the object cannot be read.
            ValueError: If it is no shard, or not the one that was recorded.
        """
        path = f"{root}/{self.key}/c/{shard}" + "/0" * (len(self.shape) - 1)
        whole = None
        try:
            # a file that was replaced meanwhile is compared again
            check_file(files, path)
            place = (root, self.content, self.key, shard, files.ukey(path))
            if place not in sound():
                pieces = _pieces(files, path)
                first = next(pieces)
                whole = first if len(first) < _GROUP_BYTES else None  # or there is more
                data = itertools.chain([first], pieces)
                check_shard(files, root, self.key, shard, data, self.job, self.records)
                sound().add(place)
            end = self._index_bytes
            index = files.cat_file(path, start=-end) if whole is None else whole[-end:]
        except FileNotFoundError:
            yield from ((k, None) for k in chunks)
            return
        offsets, lengths = self._index(index)
        for group in _adjacent(offsets, lengths, chunks):
            start, stop = offsets[group[0]], offsets[group[-1]] + lengths[group[-1]]
            if start == _ABSENT:
                yield from ((k, None) for k in group)
                continue
            if whole is None:
                data = memoryview(files.cat_file(path, start=start, end=stop))
            else:
                data = memoryview(whole)[start:stop]
            for k in group:
                yield k, data[offsets[k] - start : offsets[k] - start + lengths[k]]

    @property
    def _index_bytes(self) -> int:
        """Size of the index, with its checksum."""
        return 16 * self.chunks + 4

    def _index(self, data: bytes) -> tuple[list[int], list[int]]:
        """Offset and length of each chunk, from the end of the object."""
        size = self._index_bytes - 4
        if len(data) != size + 4 or crc32c(data[:size]) != int.from_bytes(data[size:], "little"):
            raise ValueError("the index of the shard is damaged")
        index = np.frombuffer(data[:size], "<u8").reshape(-1, 2)
        largest = int(np.prod(self.shape)) * self.dtype.itemsize + _HEADER + 4
        written = index[(index != _ABSENT).any(axis=1)]
        if (written[:, 1] > largest).any() or (written[:, 0] >= 2**62).any():
            raise ValueError("the index of the shard is damaged")
        return index[:, 0].tolist(), index[:, 1].tolist()

    def decode(self, stored: memoryview, out: np.ndarray) -> None:
        """Decompress a chunk into a contiguous array of its shape and type.

        Raises:
            ValueError, RuntimeError: If the bytes are no such chunk.
        """
        if self.checksums:
            stored, checksum = stored[:-4], stored[-4:]
            if crc32c(np.frombuffer(stored, "u1")) != int.from_bytes(checksum, "little"):
                raise ValueError("a chunk differs from its checksum")
        if not self.compressed:
            if len(stored) != out.nbytes:
                raise ValueError("a chunk is damaged")
            np.copyto(out, np.frombuffer(stored, out.dtype.newbyteorder("<")).reshape(out.shape))
            return
        sizes = np.frombuffer(stored[4:_HEADER], "<u4").tolist() if len(stored) >= _HEADER else []
        if sizes[:1] != [out.nbytes] or sizes[2:] != [len(stored)]:
            raise ValueError("a chunk is damaged")
        blosc.decompress(stored, out)


def _pieces(files: Any, path: str) -> Iterator[bytes]:
    """The bytes of an object, some at a time."""
    size = files.size(path)
    for start in range(0, max(size, 1), _GROUP_BYTES):
        yield files.cat_file(path, start=start, end=min(start + _GROUP_BYTES, size))


def _adjacent(offsets: list[int], lengths: list[int], chunks: Sequence[int]) -> Iterator[list[int]]:
    """Chunks in groups that lie side by side, each read at once."""
    group: list[int] = []
    for k in chunks:
        if group:
            last, first = group[-1], group[0]
            absent = offsets[k] == offsets[last] == _ABSENT
            follows = offsets[k] == offsets[last] + lengths[last]
            small = offsets[k] + lengths[k] - offsets[first] <= _GROUP_BYTES
            if not (absent or (follows and small and offsets[k] != _ABSENT)):
                yield group
                group = []
        group.append(k)
    if group:
        yield group
