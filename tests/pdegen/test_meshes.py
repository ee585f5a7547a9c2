"""Recipes on meshes that differ from sample to sample: the same bytes by threads, by processes, and
after an interruption."""

import pytest

from pdegen.generation.generate import RecipeJob, generate
from pdegen.generation.verify import verify
from pdegen.recipe import load_recipe
from tests.pdegen.conftest import MESHES
from tests.stores import interrupted, objects_of


@pytest.fixture(scope="module", params=["elasticity-quick", "plasticity-quick"])
def recipe(request):
    return load_recipe(request.param).with_overrides(MESHES[request.param])


@pytest.fixture(scope="module")
def made(recipe, tmp_path_factory):
    """By one thread."""
    return generate(recipe, str(tmp_path_factory.mktemp("made") / "s.zarr"), workers=1)


def test_threads_and_processes_make_the_same_bytes(recipe, made, cluster, tmp_path):
    """The processes are those of a scheduler."""
    assert verify(made.url).faults == []
    for scheduler, workers in (("threads", 2), (cluster, None)):
        place = str(tmp_path / f"{workers}.zarr")
        store = generate(recipe, place, scheduler=scheduler, workers=workers)
        assert objects_of(store) == objects_of(made)


def test_resumed_is_the_same_bytes_as_uninterrupted(recipe, made, tmp_path):
    place = str(tmp_path / "s.zarr")
    with interrupted(RecipeJob, sample=3):
        generate(recipe, place, workers=1)
    assert objects_of(place) != objects_of(made)
    assert objects_of(generate(recipe, place, workers=1, resume=True)) == objects_of(made)
