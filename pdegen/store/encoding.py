"""The bytes of a shard of a variable: those that Zarr writes, without its event loop.

Zarr encodes the chunks of a shard as tasks of one event loop and one pool of threads, which all
shards of a process share. Here each thread encodes its own. A test compares the bytes with Zarr's.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from pdegen.store.arrays import BLOSC, Array, Values, checksum

_blosc: Any = importlib.import_module("numcodecs.blosc")  # compiled, without types
_ABSENT = 2**64 - 1  # offset and size, in the index, of a chunk that was not written


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
