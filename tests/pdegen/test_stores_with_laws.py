"""Stores whose samples have parameters of their own: the same bytes, however they are made."""

import numpy as np
import pytest

from pdegen.generation.generate import generate
from pdegen.generation.verify import repair, verify
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from tests.pdegen.conftest import SMALL
from tests.stores import objects_of, unseal

NU = {"law": "log-uniform", "low": 0.01, "high": 0.1}


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("burgers-quick").with_overrides({**SMALL, "viscosity": NU})


@pytest.fixture(scope="module")
def made(recipe, tmp_path_factory):
    return generate(recipe, str(tmp_path_factory.mktemp("laws") / "store.zarr"), workers=1)


def test_every_engine_makes_the_same_bytes(recipe, made, tmp_path):
    for options in ({"workers": 2}, {"scheduler": "processes", "workers": 2}):
        store = generate(recipe, str(tmp_path / str(len(options))), **options)
        assert objects_of(store) == objects_of(made)


def test_resumed_and_repaired_stores_have_the_same_bytes(recipe, tmp_path, made):
    url = str(tmp_path / "store.zarr")
    store = generate(recipe, url, workers=1)
    unseal(store)
    (tmp_path / "store.zarr/records/000001.json").unlink()
    assert objects_of(generate(recipe, url, workers=1, resume=True)) == objects_of(made)
    part = tmp_path / "store.zarr/viscosity/c/0"
    part.write_bytes(part.read_bytes()[::-1])
    assert repair(url).repaired
    assert objects_of(url) == objects_of(made)
    assert verify(url, deep=3).faults == []


def test_a_coarser_grid_has_the_same_parameters(recipe, made):
    coarser = recipe.with_overrides({"problem.resolution": SMALL_POINTS // 2}).problem
    fine = Store(made.url)
    values = coarser.compute(recipe.seed, range(4))
    assert (values["viscosity"] == fine.values("viscosity", range(4))).all()
    assert (values["a"] == fine.values("a", range(4))[:, ::2]).all()


SMALL_POINTS = load_recipe("burgers-quick").with_overrides(SMALL).problem.resolution


def test_the_store_describes_its_parameters(made):
    law = made.metadata.physics.parameters["viscosity"]
    assert (law.law, law.low, law.high, law.log) == ("log-uniform", 0.01, 0.1, True)
    np.testing.assert_allclose(law.moments, (np.log(0.01 * 0.1) / 2, np.log(10) / np.sqrt(12)))
    assert made.arrays["viscosity"].metadata.role == "parameter"


def test_inversions_refuse_a_viscosity_by_sample(recipe):
    with pytest.raises(SchemaError, match="need one viscosity for all samples, here it is log-"):
        recipe.problem.inversions(None)
    assert recipe.problem.forward(np.arange(8) / 8) is None
