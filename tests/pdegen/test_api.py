"""`import pdegen`: its public functions."""

import subprocess
import sys

import numpy as np
import pytest

import pdegen
from pdegen.generation.generate import RecipeJob
from pdegen.recipe import load_recipe, recipe_names
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, StoreError
from tests.stores import with_attributes

SMALL = {"resolution": 32, "problem.solver.resolution": 64, "modes": 31, "shard": 4}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "store.zarr"
    return pdegen.generate("burgers-quick", samples=10, overrides=SMALL, out=out)


def test_every_public_name_is_there_and_described():
    for name in pdegen.__all__:
        assert name.startswith("__") or ">>> " in getattr(pdegen, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'generat'"):
        pdegen.generat  # noqa: B018


def test_importing_it_imports_no_library():
    program = "import sys, pdegen; sys.exit(str({'numpy', 'xarray', 'dask'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_recipes_are_listed_with_their_summaries():
    assert list(pdegen.recipes()) == recipe_names()
    assert pdegen.recipes()["darcy-421"] == load_recipe("darcy-421").headline


def test_a_recipe_is_generated_as_asked(url):
    store = Store(url)
    recipe = load_recipe("burgers-quick").with_overrides({**SMALL, "samples": 10})
    assert store.sealed
    assert store.raw_attributes["fingerprint"] == recipe.fingerprint
    assert RecipeJob.of(store).recipe == recipe


def test_wrong_requests_are_refused(tmp_path):
    with pytest.raises(SchemaError, match="unknown recipe 'burgers-quik'"):
        pdegen.generate("burgers-quik", out=tmp_path / "s.zarr")
    with pytest.raises(SchemaError, match="viscsity"):
        pdegen.generate("burgers-quick", overrides={"viscsity": 1}, out=tmp_path / "s.zarr")
    with pytest.raises(TypeError, match="wrkers"):
        pdegen.generate("burgers-quick", wrkers=1, out=tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


def test_a_split_has_its_samples(url):
    whole = pdegen.open(url)
    assert whole.sizes["sample"] == 10
    parts = [pdegen.open(url, split) for split in ("train", "validation", "test")]
    np.testing.assert_array_equal(np.concatenate([part.sample for part in parts]), whole.sample)
    np.testing.assert_array_equal(parts[-1].u, whole.u[-1:])
    with pytest.raises(StoreError, match="no split 'tset': known are train, validation, test"):
        pdegen.open(url, "tset")


def test_skipped_samples_are_in_no_split(url, tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "skipped", [1])
    assert 1 not in pdegen.open(url, "train").sample
    assert 1 in pdegen.open(url).sample


def test_an_unfinished_store_is_not_opened(tmp_path):
    made = pdegen.generate("burgers-quick", samples=8, overrides=SMALL, out=tmp_path / "s.zarr")
    with_attributes(Store(made), sealed=False)
    with pytest.raises(StoreError, match="is not sealed"):
        pdegen.open(made)
