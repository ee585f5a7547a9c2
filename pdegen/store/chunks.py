"""Encoding and decoding of shards and their chunks. The bytes are those that the Zarr library
writes.

The Zarr library encodes the chunks of all shards of a process in one event loop and one thread
pool. Here each thread encodes its own shard. A test compares the bytes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pdegen.store.arrays import BLOSC, Array, Values, checksum

GROUP_BYTES = 2**24  # largest number of bytes to read at a time
_blosc: Any = importlib.import_module("numcodecs.blosc")  # compiled, without types
_HEADER = (
    16  # bytes of a Blosc header: version, flags, and sizes of values, blocks and compressed data
)
_ABSENT = (
    2**64 - 1
)  # offset and length of a chunk that was not written, as all its values are fill values


def index_bytes(array: Array) -> int:
    """Size in bytes of the index at the end of a shard, including its checksum."""
    return 16 * (array.shard[0] // array.chunk[0]) + 4


def spans(array: Array, index: bytes) -> list[tuple[int, int] | None]:
    """Byte range (start, stop) of each chunk in the object that stores a shard. None for a chunk
    that is not stored.

    Args:
        array: The variable.
        index: The last `index_bytes(array)` bytes of the object.

    Raises:
        ValueError: If the index is damaged.
    """
    if len(index) != index_bytes(array) or checksum(index[:-4]) != index[-4:]:
        raise ValueError("the index of the shard is damaged")
    entries = np.frombuffer(index[:-4], "<u8").reshape(-1, 2)
    largest = math.prod(array.chunk) * array.dtype.itemsize + _HEADER + 4
    written = entries[(entries != _ABSENT).any(axis=1)]
    if (written[:, 1] > largest).any() or (written[:, 0] >= 2**62).any():
        raise ValueError("the index of the shard is damaged")
    return [None if start == _ABSENT else (start, start + size) for start, size in entries.tolist()]


def adjacent(spans: Sequence[tuple[int, int] | None], chunks: Sequence[int]) -> Iterator[list[int]]:
    """Group chunks so that the chunks of a group are adjacent in the object. One read then returns
    the whole group.

    A chunk that is not stored forms a group of its own.

    >>> list(adjacent([(0, 8), (8, 12), None, (12, 20)], [0, 1, 2, 3]))
    [[0, 1], [2], [3]]
    """
    group = list[int]()
    for k in chunks:
        if group:
            first, last, span = spans[group[0]], spans[group[-1]], spans[k]
            if (
                first is None or last is None or span is None
                or span[0] != last[1] or span[1] - first[0] > GROUP_BYTES
            ):  # fmt: skip
                yield group
                group = []
        group.append(k)
    if group:
        yield group


def decode(array: Array, stored: memoryview, out: Values) -> None:
    """Decompress a chunk into `out`, a contiguous array with the shape and dtype of the chunk.
    Raises ValueError or RuntimeError if the chunk is damaged."""
    stored, end = stored[:-4], stored[-4:]
    if checksum(np.frombuffer(stored, "u1")) != bytes(end):
        raise ValueError("a chunk differs from its checksum")
    if array.compressor == "none":
        if len(stored) != out.nbytes:
            raise ValueError("a chunk is damaged")
        np.copyto(out, np.frombuffer(stored, out.dtype.newbyteorder("<")).reshape(out.shape))
        return
    sizes: list[int] = (
        np.frombuffer(stored[4:_HEADER], "<u4").tolist() if len(stored) >= _HEADER else []
    )
    if sizes[:1] != [out.nbytes] or sizes[2:] != [len(stored)]:
        raise ValueError("a chunk is damaged")
    _blosc.decompress(stored, out)


def encoded_shard(array: Array, rows: Values) -> bytes:
    """The bytes of the object that stores a shard.

    The shard is divided into chunks along its first axis. The last chunk is padded with fill
    values. A chunk that contains only fill values is not stored. The object ends with an index,
    which lists the offset and size of each chunk, and the checksum of the index.
    """
    size, fill = array.chunk[0], array.fill
    stored = np.ascontiguousarray(rows, dtype=array.dtype.newbyteorder("<"))
    index = np.full((array.shard[0] // size, 2), _ABSENT, dtype="<u8")
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
    """Whether all values equal the fill value. The others are compared only if the first one
    does."""
    if values.dtype.kind == "f":
        return bool(np.isnan(values.flat[0])) and bool(np.isnan(values).all())
    return bool(values.flat[0] == fill) and bool((values == fill).all())
