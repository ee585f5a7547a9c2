import numpy as np
import pytest
import torch
import xarray as xr
import zarr

from operators.data import DataError, read_pairs


def test_pairs_are_the_stored_values_batch_first_channels_last(store):
    pairs = read_pairs(store, "train")
    with xr.open_zarr(store) as dataset:
        a, u, x = (dataset[name].values for name in ("a", "u", "x"))
    assert pairs.a.shape == (32, 64, 1)
    assert np.array_equal(pairs.a[:, :, 0], a[:32])
    assert np.array_equal(pairs.u[:, :, 0], u[:32])
    assert np.array_equal(pairs.x[:, 0], x.astype(np.float32))
    assert pairs.periodic
    assert pairs.samples == (0, 32)


def test_a_coarser_resolution_takes_points_of_the_store(store):
    fine, coarse = read_pairs(store, "test"), read_pairs(store, "test", 16)
    assert torch.equal(coarse.a, fine.a[:, ::4])
    assert torch.equal(coarse.u, fine.u[:, ::4])
    assert torch.equal(coarse.x, fine.x[::4])


def test_splits_do_not_overlap(store):
    ranges = [set(range(*read_pairs(store, s).samples)) for s in ("train", "validation", "test")]
    assert sum(map(len, ranges)) == len(set.union(*ranges))


@pytest.mark.parametrize(
    ("split", "resolution", "message"),
    [
        ("tset", None, "has no split 'tset': known are train, validation, test"),
        ("test", 48, "resolution must divide the 64 points of .*, got 48"),
        ((0, 41), None, "has samples 0 to 39, asked for 0 to 40"),
    ],
)
def test_refuses_what_the_store_cannot_give(store, split, resolution, message):
    with pytest.raises(DataError, match=message):
        read_pairs(store, split, resolution)


def test_refuses_places_that_are_no_store(tmp_path):
    with pytest.raises(DataError, match="no such store"):
        read_pairs(str(tmp_path / "absent"), "train")
    zarr.create_group(str(tmp_path / "foreign"))
    with pytest.raises(DataError, match="not a pdegen store"):
        read_pairs(str(tmp_path / "foreign"), "train")
