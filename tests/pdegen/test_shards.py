"""Shards are read part by part, and nothing that changes meanwhile is believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from operators.data import DataError, open_pairs, read_pairs
from pdegen.generation.generate import layout
from pdegen.store import reading
from pdegen.store.objects import OpenFile
from pdegen.store.reading import Store, StoreError, open_sealed
from pdegen.store.writing import lay_out, seal
from tests.stores import write_shard


def test_adjacent_chunks_are_read_together_up_to_a_number_of_bytes():
    spans = [(0, 8), (8, 16), (16, 24), (24, 32), (40, 48)]
    for at_most, expected in (
        (16, [[0, 1], [2, 3], [4]]), (17, [[0, 1], [2, 3], [4]]), (24, [[0, 1, 2], [3], [4]]),
        (100, [[0, 1, 2, 3], [4]]), (1, [[0], [1], [2], [3], [4]]),
    ):  # fmt: skip
        assert list(reading.adjacent(spans, range(5), at_most)) == expected
    assert list(reading.adjacent(spans, [1, 3, 2], 100)) == [[1], [3], [2]]


def filled(store):
    """The store, sealed with random values, and these values."""
    rng = np.random.default_rng(0)
    values = {
        name: rng.standard_normal((store.samples, *store.array(name).shape[1:])).astype(
            store.array(name).dtype
        )
        for name in store.variables
    }
    for shard in range(store.shards):
        samples = store.shard_range(shard)
        part = {name: v[samples.start : samples.stop] for name, v in values.items()}
        write_shard(store, shard, part)
    reading.verified_shards().clear()
    return seal(store), values


@pytest.fixture(params=["lz4", "none"])
def numbered(request, small, tmp_path):
    """A store whose chunks have two of the six samples of a shard, and its values."""
    recipe = small.with_overrides({"shard": 6, "codec": request.param})
    store = lay_out(str(tmp_path / "store.zarr"), with_chunks(layout(recipe), 2))
    return filled(store)


def with_chunks(made, rows):
    """The layout with this number of samples in a chunk."""
    import pdegen.store.layout as module

    class Cut(type(made)):
        def objects(self, *version):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "_divisor", lambda n, at_most: rows)
                return super().objects(*version)

    return Cut(**vars(made))


def read(store, name, samples):
    """Values as training reads them."""
    out = np.full((len(samples), *store.array(name).shape[1:]), -1, store.array(name).dtype)
    for _ in store.shards_of(name).pieces(np.array(samples), out):
        pass
    return out


@pytest.fixture(params=["lz4", "none"])
def split(request, small, tmp_path, monkeypatch):
    """A store whose samples of u are split into chunks of two of six times, and its values."""
    for name in ("_SAMPLE_BYTES", "_CHUNK_BYTES"):
        monkeypatch.setattr(f"pdegen.store.layout.{name}", 2 * 4 * 32)
    times = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    recipe = small.with_overrides({"shard": 6, "codec": request.param, "times": times})
    store = lay_out(str(tmp_path / "split.zarr"), layout(recipe))
    assert store.array("u").chunk == (1, 2, 32)
    return filled(store)


@pytest.mark.parametrize("samples", [[0], [1, 2, 5], [0, 1, 2, 3, 4, 5], [7, 8], [11]])
def test_samples_that_are_split_along_time_are_read_like_others(split, samples):
    store, values = split
    opened = open_sealed(store.url)
    for _ in range(2):
        for name in store.variables:
            assert np.array_equal(read(opened, name, samples), values[name][samples], True)
    pieces = [v for _, v in opened.shards_of("u").pieces(np.array(samples))]
    assert np.array_equal(np.concatenate(pieces), values["u"][samples], True)
    wider = np.zeros((len(samples), 6, 64), np.float32)[..., ::2]
    for _ in opened.shards_of("u").pieces(np.array(samples), wider):
        pass
    assert np.array_equal(wider, values["u"][samples], True)


def test_other_libraries_read_samples_that_are_split_along_time(split):
    store, values = split
    with xr.open_zarr(store.url) as opened:
        assert np.array_equal(opened.u.values, values["u"], True)
    data = Path(store.url, store.key("u", 1)).read_bytes()
    assert np.array_equal(store.shards_of("u").decoded(1, data), values["u"][6:], True)


def test_a_flip_in_a_part_of_a_sample_is_refused(split):
    store, _ = split
    path = Path(store.url, store.key("u", 1))
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        path.write_bytes(bytes(b ^ (0x10 if i == place else 0) for i, b in enumerate(data)))
        with pytest.raises(DataError, match=r"u, samples 6 to \d+: .*damaged.*pdegen verify"):
            read_pairs(store.url, (6, 12))


@pytest.mark.parametrize("samples", [[0], [1, 2, 5], [0, 1, 2, 3, 4, 5], [7, 8], [11]])
def test_any_samples_of_a_shard_are_read_the_first_time_and_later(numbered, samples):
    store, values = numbered
    opened = open_sealed(store.url)
    for _ in range(2):
        for name in store.variables:
            assert np.array_equal(read(opened, name, samples), values[name][samples])
    strided = np.zeros((len(samples), 64), np.float32)[:, ::2]
    for _ in opened.shards_of("u").pieces(np.array(samples), strided):
        pass
    assert np.array_equal(strided, values["u"][samples])


def test_the_system_may_read_less_than_it_is_asked_for(numbered, monkeypatch):
    store, values = numbered
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: preadv(fd, [parts[0][:37]], at))
    for _ in range(2):
        assert np.array_equal(open_sealed(store.url).values("u"), values["u"])


def test_a_flip_is_refused_when_a_shard_is_read_first(numbered):
    store, _ = numbered
    path = Path(store.url, store.key("u", 1))
    data = path.read_bytes()
    for place in range(0, len(data), 41):
        path.write_bytes(bytes(b ^ (0x10 if i == place else 0) for i, b in enumerate(data)))
        with pytest.raises(DataError, match=r"u, samples 6 to \d+: .*damaged.*pdegen verify"):
            read_pairs(store.url, (0, 12))
    path.write_bytes(data)
    read_pairs(store.url, (0, 12))


def test_a_flip_that_leaves_the_identity_is_refused_by_the_checksum(numbered, monkeypatch):
    """A disk that returns other bytes later, without a change of the file."""
    store, _ = numbered
    monkeypatch.setattr(OpenFile, "identity", "the same")
    opened = open_sealed(store.url)
    opened.values("u")
    path = Path(store.url, store.key("u", 0))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="a chunk differs from its checksum"):
        opened.values("u")


@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_is_truncated_while_it_is_read_is_refused(numbered, monkeypatch, again):
    """A mapped file would end the process."""
    store, _ = numbered
    pairs, path = open_pairs(store.url, (0, 6)), Path(store.url, store.key("u", 0))
    if again:
        pairs.resident()
    index = reading.Shards._index

    def truncated(self, opened):
        found = index(self, opened)
        if self.array.name == "u":
            os.truncate(path, 100)
        return found

    monkeypatch.setattr(reading.Shards, "_index", truncated)
    with pytest.raises(DataError, match=r"u, samples 0 to 5: .*ends too early.*pdegen verify"):
        list(pairs.batches(0, 0, 2))


def test_a_shard_that_is_larger_than_the_memory_for_it_is_compared_first(numbered, monkeypatch):
    store, values = numbered
    monkeypatch.setattr(reading, "WHOLE_BYTES", 10)
    assert np.array_equal(open_sealed(store.url).values("u"), values["u"])
    reading.verified_shards().clear()
    path = Path(store.url, store.key("u", 0))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="the data differ from the recorded digest"):
        open_sealed(store.url).values("u")


def test_the_record_says_which_values_are_finite(numbered):
    store, _ = numbered
    opened = open_sealed(store.url).shards_of("u")
    assert not opened.finite(np.arange(6))  # not read yet
    for _ in opened.pieces(np.arange(6)):
        pass
    assert opened.finite(np.arange(6))


def test_skipped_samples_are_not_said_to_be_finite(small, tmp_path):
    store = lay_out(str(tmp_path / "store.zarr"), layout(small))
    for shard in range(store.shards):
        samples = store.shard_range(shard)
        values = {v: np.ones((len(samples), *store.array(v).shape[1:])) for v in store.variables}
        for v in values.values():
            v[1] = np.nan
        write_shard(store, shard, values, {samples[1]: "no solution"})
    opened = open_sealed(seal(store).url).shards_of("u")
    assert store.shards > 1
    for shard in range(store.shards):
        first = store.shard_range(shard).start
        for _ in opened.pieces(first + np.arange(2)):
            pass
        assert opened.finite(first + np.array([0, 2]))
        assert not opened.finite(first + np.array([0, 1]))


def test_a_pipe_in_the_place_of_a_shard_does_not_block(store):
    path = Path(store.url, store.key("u", 0))
    path.unlink()
    os.mkfifo(path)
    code = (
        "import sys; from operators.data import read_pairs, DataError\n"
        "try: read_pairs(sys.argv[1], (0, 5))\n"
        "except DataError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.url], capture_output=True, text=True, timeout=60
    )
    assert "not a file" in done.stdout


def test_a_store_without_a_seal_can_be_read(store):
    """Another identity of the data, so that its shards count as not compared."""
    assert np.array_equal(Store(store.url).values("u"), open_sealed(store.url).values("u"))
