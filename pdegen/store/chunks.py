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
