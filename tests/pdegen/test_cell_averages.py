"""Equations whose stores hold exact cell averages: from the recipe to a verified store."""

import numpy as np
import pytest
import xarray as xr

from pdegen.making.generate import generate
from pdegen.making.verify import verify
from pdegen.recipe import load_recipe
from tests.stores import objects_of

RECIPES = {
    "inviscid-burgers-quick": {},
    "shock-tube-quick": {"problem.times": [0.5, 1.5]},
    "pulses-quick": {},
}
SMALL = {"samples": 20, "shard": 8, "problem.resolution": 32}


def recipe(name):
    return load_recipe(name).with_overrides({**SMALL, **RECIPES[name]})


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averages")
    return {name: generate(recipe(name), str(folder / name), workers=1) for name in RECIPES}


@pytest.mark.parametrize("name", RECIPES)
def test_a_store_is_verified_with_its_law_and_again(stores, name):
    found = verify(stores[name].url, deep=3)
    assert (found.faults, found.law, len(found.recomputed)) == ([], True, 3)


@pytest.mark.parametrize("name", RECIPES)
def test_dask_makes_the_same_bytes(stores, name, tmp_path):
    again = generate(recipe(name), str(tmp_path / "s"), scheduler="processes", workers=1)
    assert objects_of(again) == objects_of(stores[name])


@pytest.mark.parametrize("name", RECIPES)
def test_a_store_holds_the_numbers_of_its_samples(stores, name):
    data = xr.open_zarr(stores[name].url)
    numbers = data["theta" if name.startswith("inviscid") else "z"]
    assert numbers.attrs["role"] == "parameter"
    assert numbers.dims[0] == "sample"
    assert numbers.dtype == np.float64
    assert data.x.attrs["grid"] == ("periodic" if name.startswith("pulses") else "cell")
