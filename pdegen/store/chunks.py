"""The bytes of a shard of a variable, those that Zarr writes, and the chunks in them.

Zarr encodes the chunks of a shard as tasks of one event loop and one pool of threads, which all
shards of a process share. Here each thread encodes its own. A test compares the bytes with Zarr's.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pdegen.store.arrays import BLOSC, Array, Values, checksum

GROUP_BYTES = 2**24  # read at a time
_blosc: Any = importlib.import_module("numcodecs.blosc")  # compiled, without types
_HEADER = 16  # bytes of a blosc header: version, flags, sizes before and after, and of blocks
_ABSENT = 2**64 - 1  # offset and length of a chunk that was not written: all values are the fill


def index_bytes(array: Array) -> int:
    """Size of the index at the end of a shard, with its checksum."""
    return 16 * (array.shard[0] // array.chunk[0]) + 4


def spans(array: Array, index: bytes) -> list[tuple[int, int] | None]:
    """First byte and one past the last of each chunk, from the last `index_bytes` of a shard; None
    for a chunk that was not written. Raises ValueError if the index is damaged."""
    if len(index) != index_bytes(array) or checksum(index[:-4]) != index[-4:]:
        raise ValueError("the index of the shard is damaged")
    entries = np.frombuffer(index[:-4], "<u8").reshape(-1, 2)
    largest = math.prod(array.chunk) * array.dtype.itemsize + _HEADER + 4
    written = entries[(entries != _ABSENT).any(axis=1)]
    if (written[:, 1] > largest).any() or (written[:, 0] >= 2**62).any():
        raise ValueError("the index of the shard is damaged")
    return [None if at == _ABSENT else (at, at + size) for at, size in entries.tolist()]


def adjacent(spans: Sequence[tuple[int, int] | None], chunks: Sequence[int]) -> Iterator[list[int]]:
    """Chunks in groups that lie side by side, each read at once; an absent one is alone.

    >>> list(adjacent([(0, 8), (8, 12), None, (12, 20)], [0, 1, 2, 3]))
    [[0, 1], [2], [3]]
    """
    group = list[int]()
    for k in chunks:
        if group:
            first, last, own = spans[group[0]], spans[group[-1]], spans[k]
            if not (first and last and own) or own[0] != last[1] or own[1] - first[0] > GROUP_BYTES:
                yield group
                group = []
        group.append(k)
    if group:
        yield group


def decode(array: Array, stored: memoryview, out: Values) -> None:
    """Decompress a chunk into a contiguous array of its shape and type. Raises ValueError or
    RuntimeError if the bytes are no such chunk."""
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
    """The object of a shard.

    Chunks lie one after another along the first axis; a chunk that is not full ends in fill values,
    and one of nothing but fill values is left out. Then comes the index, offset and size of each
    chunk, with its checksum.
    """
    size, fill = array.chunk[0], array.fill
    stored = np.ascontiguousarray(rows, dtype=array.dtype.newbyteorder("<"))
    index = np.full((array.shard[0] // size, 2), _ABSENT, dtype="<u8")
    parts, offset = list[bytes](), 0
    for number, start in enumerate(range(0, len(stored), size)):
        values = stored[start : start + size]
        if len(values) < size:
            whole = np.full(array.chunk, fill, dtype=stored.dtype)
            whole[: len(values)] = values
            values = whole
        if _is_all(values, fill):
            continue
        chunk = _chunk(values, array)
        index[number] = offset, sum(map(len, chunk))
        offset += int(index[number, 1])
        parts += chunk
    described = index.tobytes()
    return b"".join([*parts, described, checksum(described)])


def _chunk(values: Values, array: Array) -> list[bytes]:
    """The parts of an encoded chunk."""
    if array.compressor == "none":
        data = values.tobytes()
    else:  # it takes the size of an item from the array
        level, shuffle, blocks = BLOSC["clevel"], _blosc.SHUFFLE, BLOSC["blocksize"]
        data: bytes = _blosc.compress(values, array.compressor.encode(), level, shuffle, blocks)
    return [data, checksum(data)]


def _is_all(values: Values, fill: float) -> bool:
    """Whether all values are the fill value; of almost all arrays the first one tells."""
    if values.dtype.kind == "f":
        return bool(np.isnan(values.flat[0])) and bool(np.isnan(values).all())
    return bool(values.flat[0] == fill) and bool((values == fill).all())
