"""Darcy recipes: what their stores hold, and that nothing but the recipe matters."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.base import SampleError
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.generation.generate import generate
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from tests.stores import faults

SMALL = {"samples": 14, "shard": 6, "resolution": 15, "modes": 20, "refinement": 3}


@pytest.fixture(scope="module")
def small():
    return load_recipe("darcy-quick").with_overrides(SMALL)


@pytest.fixture(scope="module")
def store(small, tmp_path_factory):
    return generate(small, str(tmp_path_factory.mktemp("darcy") / "d.zarr"), workers=1)


def values(store, name):
    return store.values(name, range(store.samples))


def relative(u, v):
    return np.linalg.norm(u - v) / np.linalg.norm(v)


# what a store holds


def test_solves_what_is_stored(store):
    a, u = values(store, "a").astype(float), values(store, "u")
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    assert relative(u, FiniteVolume(CellGrid(45), rtol=1e-12)(fine)[:, 1::3, 1::3]) < 1e-7
    assert values(store, "residual").max() <= 1e-8
    assert set(np.unique(a)) == {3.0, 12.0}


def test_solves_for_a_given_coefficient_by_the_solver_of_the_recipe(small, store):
    x, a, u = CellGrid(15).x, values(store, "a").astype(float), values(store, "u")
    assert relative(small.problem.forward(x)(a[0]), u[0]) < 1e-6
    assert relative(small.problem.forward(x[1::3])(a[0]), u[0, 1::3, 1::3]) < 1e-6
    coarse = np.full((4, 4), 5.0)  # averages of a constant
    uniform = small.problem.forward(x)(np.full((15, 15), 5.0))
    assert relative(small.problem.forward(x)(coarse), uniform) < 1e-6


def test_finite_elements_are_replaced_where_a_coefficient_is_given(store):
    """No process of dolfinx is started; 1e-2 is what the two differ by on stored samples."""
    recipe = load_recipe("darcy-fem").with_overrides({**SMALL, "linear": "cholesky"})
    forward = recipe.problem.forward(CellGrid(15).x)
    assert relative(forward(values(store, "a")[0].astype(float)), values(store, "u")[0]) < 1e-2


def test_says_where_its_points_are(store):
    for name in ("x", "y"):
        assert store.values(name) == pytest.approx(CellGrid(15).x)
        assert store.raw_attributes_of(name)["grid"] == "cell"
    assert store.raw_attributes_of("u")["source"] == 1.0
    assert faults(store) == []


def test_states_the_error_of_its_labels(store):
    measured = store.raw_attributes["label_error"]
    assert measured["samples"] == [0, 1, 2, 3]
    assert measured["reference"] == "harmonic finite volumes on 135 x 135 cells"
    a, u = values(store, "a")[:4].astype(float), values(store, "u")[:4]
    fine = np.repeat(np.repeat(a, 9, axis=1), 9, axis=2)
    exact = FiniteVolume(CellGrid(135), rtol=1e-10)(fine)[:, 4::9, 4::9]
    for row, error in enumerate(measured["relative_l2"]):
        assert error == pytest.approx(relative(u[row], exact[row]), rel=1e-3)
        assert 1e-5 < error < 1e-2


def test_refinement_brings_the_labels_nearer(small, store, tmp_path):
    coarse = generate(small.with_overrides({"refinement": 1}), str(tmp_path / "c.zarr"))
    assert (values(coarse, "a") == values(store, "a")).all()
    fine_error = store.raw_attributes["label_error"]["relative_l2"]
    assert np.mean(coarse.raw_attributes["label_error"]["relative_l2"]) > 2 * np.mean(fine_error)


# the same bits, whoever computes them


@pytest.mark.parametrize(
    ("workers", "scheduler", "shard"), [(2, "threads", 6), (3, "threads", 4), (None, "", 7)]
)
def test_bits_do_not_depend_on_workers_or_shards(
    small, store, tmp_path, cluster, workers, scheduler, shard
):
    recipe, scheduler = small.with_overrides({"shard": shard}), scheduler or cluster
    other = generate(recipe, str(tmp_path / "o.zarr"), workers=workers, scheduler=scheduler)
    for name in store.variables:
        assert (values(other, name) == values(store, name)).all()
    assert other.raw_attributes["statistics"] == store.raw_attributes["statistics"]
    assert other.raw_attributes["label_error"] == store.raw_attributes["label_error"]


def test_goes_on_where_it_was_interrupted(small, store, tmp_path, monkeypatch):
    from pdegen.generation import generate as module

    compute = module.compute

    def interrupted(recipe, samples, device=None):
        if samples.start >= 6:
            raise KeyboardInterrupt
        return compute(recipe, samples, device)

    monkeypatch.setattr(module, "compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(small, str(tmp_path / "d.zarr"), workers=1)
    monkeypatch.setattr(module, "compute", compute)
    url = str(tmp_path / "d.zarr")
    assert not Store(url).sealed
    resumed = generate(small, url, workers=1, resume=True)
    assert resumed.raw_attributes["content"] == store.raw_attributes["content"]
    assert resumed.raw_attributes["label_error"] == store.raw_attributes["label_error"]


# finite elements


@pytest.mark.usefixtures("dolfinx")
def test_finite_elements_go_through_dask(small, store, tmp_path):
    recipe = load_recipe("darcy-fem").with_overrides({**SMALL, "linear": "cholesky"})
    found = [
        generate(recipe, str(tmp_path / f"{workers}.zarr"), workers=workers) for workers in (1, 2)
    ]
    assert found[0].raw_attributes["content"] == found[1].raw_attributes["content"]
    assert faults(found[0]) == []
    assert (values(found[0], "a") == values(store, "a")).all()
    assert 1e-5 < relative(values(found[0], "u"), values(store, "u")) < 1e-2


# refusals


def test_devices_it_cannot_use_are_refused_before_anything_is_written(small, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    published = small.with_overrides({"solver.method": "published-splines"})
    for recipe, message in ((small, "not available to PyTorch"), (published, "on the CPU only")):
        with pytest.raises(SchemaError, match=message):
            generate(recipe, str(tmp_path / "d.zarr"), device="cuda")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_solve_names_the_sample(small, monkeypatch):
    def fail(self, a, f=1.0, boundary_value=0.0):
        raise SolveError(1, "the residual is 1e-3")

    monkeypatch.setattr(FiniteVolume, "solve", fail)
    with pytest.raises(SampleError, match="sample 5: the residual is 1e-3"):
        small.problem.compute(0, range(4, 10))
