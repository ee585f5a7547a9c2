"""Bytes of a store are checked when they are read."""

import shutil
from pathlib import Path

import pytest
import xarray as xr

from operators.data import DataError, read_pairs
from pdegen.store.reading import StoreError, open_sealed


@pytest.mark.parametrize("key", ["u/c/1/0", "x/c/0", "sample/c/0"])
def test_plain_xarray_notices_every_flip_of_a_chunk(finished, store, key):
    path = Path(store.url) / key
    data, values = path.read_bytes(), xr.open_zarr(finished.url).load()
    for place in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(bytes(b ^ (0x10 if i == place else 0) for i, b in enumerate(data)))
        try:
            read = xr.open_zarr(store.url).load()
        except Exception:
            continue
        assert read.identical(values)  # a byte that no reader uses


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("u/c/1/0", "damaged"),
        ("records/000001.json", "damaged"),
        ("x/c/0", "x/c/0:? differs from the seal"),
        ("zarr.json", "store"),
        ("seal.json", r"seal\.json"),
    ],
)
def test_readers_notice_every_flip(store, key, message):
    path = Path(store.url) / key
    data = path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(bytes(b ^ (0x10 if i == place else 0) for i, b in enumerate(data)))
        with pytest.raises(DataError, match=message):
            read_pairs(store.url, (0, 12))
        with pytest.raises(StoreError, match=message):
            open_sealed(store.url).values("u", range(12))


@pytest.mark.parametrize("name", ["a", "u"])
def test_readers_notice_sound_chunks_of_another_shard(store, other, name):
    """Their checksums are right; the digest in the record is not theirs."""
    key = f"{name}/c/1/0"
    shutil.copy(Path(other.url) / key, Path(store.url) / key)
    message = rf"samples 5 to 8: the data are damaged \({name}, shard 1: the data differ"
    with pytest.raises(DataError, match=message):
        read_pairs(store.url, (0, 9))
    with pytest.raises(StoreError, match="the data differ from the recorded digest"):
        open_sealed(store.url).values(name, range(12))
