"""The bytes of a shard of a variable: those that Zarr writes, without its event loop.

Zarr encodes the chunks of a shard as tasks of one event loop and one pool of threads, which all
shards of a process share. Here each thread encodes its own. A test compares the bytes with Zarr's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc  # pyright: ignore[reportAttributeAccessIssue]: compiled

_ABSENT = 2**64 - 1  # offset and size, in the index, of a chunk that was not written
_SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE}


def encoded_shard(array: Mapping[str, Any], rows: np.ndarray) -> bytes:
    """The object of a shard.

    Chunks lie one after another along the first axis; a chunk that is not full ends in fill values,
    and one of nothing but fill values is left out. Then comes the index, offset and size of each
    chunk, with its checksum.

    Args:
        array: Zarr's metadata of the variable, as `pdegen.store.format` accepts them.
        rows: The values of its samples; fewer than the shard has room for in the last shard.
    """
    sharding, fill = array["codecs"][0]["configuration"], _fill(array)
    size, *shape = sharding["chunk_shape"]
    stored = np.ascontiguousarray(rows, dtype=np.dtype(array["data_type"]).newbyteorder("<"))
    shard = array["chunk_grid"]["configuration"]["chunk_shape"][0]
    index = np.full((shard // size, 2), _ABSENT, dtype="<u8")
    parts, offset = list[bytes](), 0
    for number, start in enumerate(range(0, len(stored), size)):
        values = stored[start : start + size]
        if len(values) < size:
            whole = np.full((size, *shape), fill, dtype=stored.dtype)
            whole[: len(values)] = values
            values = whole
        if _is_all(values, fill):
            continue
        chunk = _chunk(values, sharding["codecs"])
        index[number] = offset, sum(map(len, chunk))
        offset += int(index[number, 1])
        parts += chunk
    described = index.tobytes()
    return b"".join([*parts, described, _checksum(described)])


def _chunk(values: np.ndarray, codecs: list[dict[str, Any]]) -> list[bytes]:
    """The parts of an encoded chunk."""
    names = {codec["name"]: codec.get("configuration") for codec in codecs}
    if by := names.get("blosc"):
        data = blosc.compress(  # it takes the size of an item from the array
            values, by["cname"].encode(), by["clevel"], _SHUFFLES[by["shuffle"]], by["blocksize"]
        )
    else:
        data = values.tobytes()
    return [data, _checksum(data)] if "crc32c" in names else [data]


def _checksum(data: bytes) -> bytes:
    return google_crc32c.value(data).to_bytes(4, "little")


def _fill(array: Mapping[str, Any]) -> Any:
    """What is read where nothing was written."""
    fill = array["fill_value"]
    return np.nan if fill == "NaN" else fill


def _is_all(values: np.ndarray, fill: Any) -> bool:
    """Whether all values are the fill value; of almost all arrays the first one tells."""
    same = np.isnan if values.dtype.kind == "f" else lambda some: some == fill
    return bool(same(values.flat[0])) and bool(np.all(same(values)))
