"""A small sealed store and pairs read from it."""

import pytest

from operators.data import read_pairs
from pdegen.generate import generate
from pdegen.recipe import load_recipe


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    recipe = load_recipe("burgers-quick").with_overrides(
        {"samples": 40, "shard": 16, "problem.resolution": 64, "problem.initial.modes": 127,
         "problem.solver.resolution": 256}
    )  # fmt: skip
    return generate(recipe, str(tmp_path_factory.mktemp("store") / "small.zarr"), workers=1).url


@pytest.fixture(scope="session")
def train_pairs(store):
    return read_pairs(store, "train", 32)


@pytest.fixture(scope="session")
def test_pairs(store):
    return read_pairs(store, "test", 32)
