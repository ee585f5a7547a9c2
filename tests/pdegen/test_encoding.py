"""The bytes of a shard are those that Zarr writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from pydantic import TypeAdapter

from pdegen.generation.generate import layout
from pdegen.recipe import Recipe
from pdegen.store.format import ROOT, Array, ZarrArray
from pdegen.store.layout import Variable
from pdegen.store.reading import encoded_shard, sample_moments
from pdegen.store.writing import inspect, lay_out
from tests.stores import contents, in_memory, write_shard

SAMPLES, SHARD = 44, 16  # the last shard is not full, and its last chunk neither
SHAPES = {"number": (), "line": (700,), "square": (9, 11), "wide": (2, 70000)}
TYPES = ("float32", "float64", "int16", "uint8", "bool")


def encoded(array: dict, rows: np.ndarray) -> bytes:
    """A shard of the variable that Zarr's metadata describe."""
    said = TypeAdapter(ZarrArray).validate_json(json.dumps(array))
    cut = array["shape"][0], array["chunk_grid"]["configuration"]["chunk_shape"][0]
    return encoded_shard(Array.of("v", said, cut), rows)


def by_zarr(array: dict, samples: range, data: np.ndarray) -> bytes:
    """Bytes that Zarr writes for a shard."""
    memory = in_memory({ROOT: json.dumps(array).encode()})
    opened = zarr.open_array(memory, mode="r+", zarr_format=3)
    opened[samples.start : samples.stop] = data
    (written,) = (data for key, data in contents(memory).items() if key != ROOT)
    return written


def arrays(codec: str, dtype: str, small: Recipe) -> dict[str, dict]:
    """Zarr's metadata of a variable of each shape, with several chunks in a shard."""
    variables = tuple(
        Variable(name, tuple("xy"[: len(shape)]), shape, dtype) for name, shape in SHAPES.items()
    )
    objects = replace(
        layout(small), samples=SAMPLES, shard=SHARD, variables=variables, codec=codec, domain=None
    ).objects()
    found = {name: json.loads(objects[f"{name}/{ROOT}"]) for name in SHAPES}
    for array in found.values():
        chunk = array["codecs"][0]["configuration"]["chunk_shape"]
        chunk[0] = max(1, chunk[0] // 2)
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
def test_a_shard_has_the_bytes_that_zarr_writes(codec, dtype, small):
    rng = np.random.default_rng(0)
    for name, array in arrays(codec, dtype, small).items():
        for samples in (range(16), range(16, 32), range(32, SAMPLES)):
            rows = (100 * rng.standard_normal((len(samples), *SHAPES[name]))).astype(dtype)
            if rows.dtype.kind == "f":
                rows[3] = np.nan  # a sample that was skipped
            assert encoded(array, rows) == by_zarr(array, samples, rows), name


def test_chunks_of_fill_values_are_left_out_as_by_zarr(small):
    for dtype, fill in (("float32", np.nan), ("int16", -1), ("uint8", 0), ("bool", False)):
        for name, array in arrays("lz4", dtype, small).items():
            size = array["codecs"][0]["configuration"]["chunk_shape"][0]
            rows = np.ones((SHARD, *SHAPES[name]), dtype=dtype)
            if size < SHARD:
                rows[:size] = fill
                assert encoded(array, rows) == by_zarr(array, range(SHARD), rows), name
            if dtype == "float32":  # whose zeros are values
                zeros = np.zeros_like(rows)
                assert encoded(array, zeros) == by_zarr(array, range(SHARD), zeros), name


def test_a_shard_of_skipped_samples_is_an_index_that_zarr_reads_as_nothing(small):
    for name, array in arrays("lz4", "float32", small).items():
        rows = np.full((SHARD, *SHAPES[name]), np.nan, dtype=np.float32)
        key = "/".join(["c", "0", *["0"] * len(SHAPES[name])])
        memory = in_memory({ROOT: json.dumps(array).encode(), key: encoded(array, rows)})
        read = zarr.open_array(memory, mode="r", zarr_format=3)
        assert np.isnan(np.asarray(read[:SHARD])).all()


def test_a_shard_may_be_skipped_as_a_whole(small, tmp_path: Path):
    store = lay_out(str(tmp_path / "store.zarr"), layout(small))
    samples = store.shard_range(0)
    values = {
        name: np.full((len(samples), *store.arrays[name].shape[1:]), np.nan)
        for name in store.variables
    }
    write_shard(store, 0, values, dict.fromkeys(samples, "no solution"))
    _, sound, faults = inspect(store, 0)
    assert faults == []
    assert np.isnan(store.shards_of("u").decoded(0, sound["u"])).all()


def test_rows_in_another_order_of_memory_give_the_same_bytes(small):
    array = arrays("lz4", "float32", small)["square"]
    rows = np.random.default_rng(0).standard_normal((SHARD, 9, 11)).astype(np.float32)
    assert encoded(array, np.asfortranarray(rows)) == encoded(array, rows)
    assert encoded(array, rows.astype(">f4")) == encoded(array, rows)


@pytest.mark.parametrize(
    "shape", [(9,), (7, 1), (5, 3), (40, 8), (300, 129), (3, 7, 11), (3, 40000)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_moments_are_those_of_each_sample_alone_to_the_bit(shape, dtype, order):
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype, order=order)
    alone = [np.ravel(row).astype(np.float64) for row in values]
    means, squares = sample_moments(values)
    assert means == [float(row.mean()) for row in alone]
    assert squares == [float((row * row).mean()) for row in alone]


def test_a_skipped_sample_has_no_moments():
    values = np.ones((3, 4), dtype=np.float32)
    values[1] = np.nan
    assert sample_moments(values) == ([1.0, None, 1.0], [1.0, None, 1.0])
