"""Sampling and solving on a device of PyTorch, here its CPU: the values are those of NumPy."""

import numpy as np
import pytest
import torch

from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid
from pdegen.equations.base import SampleError
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.numerics import device
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField
from pdegen.schema import SchemaError
from pdegen.store.reading import StoreError

FIELD = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=127)
GRID = PeriodicGrid(512)
SMALL = {
    "burgers": {"problem.resolution": 128, "problem.initial.modes": 127,
                "problem.solver.resolution": 256},
    "darcy": {"problem.resolution": 21, "problem.field.modes": 30},
}  # fmt: skip
ALONE = ["darcy-421-published", "darcy-fem"]  # with solvers that run on the CPU alone


def a_problem(name, **overrides):
    recipe = load_recipe(name)
    overrides = {**SMALL[recipe.problem.equation], **overrides}
    if name == "burgers-shock":
        overrides |= {"dt": 0.002, "tolerance": 10.0}
    return recipe.with_overrides(overrides).problem


def relative(u, v):
    return np.abs(u - v).max() / np.abs(v).max()


# float64, before anything is rounded


def test_periodic_fields_agree_to_round_off():
    found = FIELD(GRID, 3, range(5, 90), "cpu")
    assert found.dtype == torch.float64
    assert relative(found.numpy(), FIELD(GRID, 3, range(5, 90))) < 1e-13


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("grid", [CellGrid(23), NodalGrid(24)])
def test_fields_on_the_square_agree_to_round_off(boundary, grid):
    field = SquareGaussianField(boundary, 3.0, 3.0, 2.0, modes=31)
    found = field(grid, 3, range(5, 14), "cpu")
    assert found.dtype == torch.float64
    assert relative(found.numpy(), field(grid, 3, range(5, 14))) < 1e-13


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize(
    "solver", [ColeHopf(GRID, 0.02), ETDRK4(GRID, 0.02, dt=5e-4, tolerance=1e-3)]
)
def test_solutions_of_burgers_agree_to_round_off(solver, mean):
    u0, times = FIELD(GRID, 0, range(80)) + mean, [0.0, 0.1, 0.16]
    expected, found = solver.solve(u0, times), solver.solve(torch.from_numpy(u0), times)
    # round-off grows with the span of Cole's and Hopf's exponential, as the estimate says
    for u, v, error in zip(found.u.numpy(), expected.u, expected.error, strict=True):
        assert relative(u, v) < max(1e-10, error)
    np.testing.assert_allclose(found.error.numpy(), expected.error, rtol=1e-4, atol=1e-13)
    again = solver(torch.from_numpy(u0), 0.16).numpy()
    assert relative(again[:4], expected.u[:4, 2]) < 1e-7  # in other steps


# whole recipes, which tests/pdegen/test_problems.py compares


@pytest.mark.parametrize("name", ["burgers-r10", "burgers-shock", "darcy-85", "darcy-lognormal"])
def test_blocks_change_nothing_but_round_off(name, monkeypatch):
    problem = a_problem(name)
    expected = problem.compute(0, range(3), "cpu")
    starts, sampled = [], type(_field(problem)).__call__

    def spy(self, grid, seed, samples, where):
        starts.append(samples.start)
        return sampled(self, grid, seed, samples, where)

    monkeypatch.setattr(type(_field(problem)), "__call__", spy)
    monkeypatch.setattr(device, "_DEVICE_BYTES", 1)
    found = problem.compute(0, range(3), "cpu")
    assert starts == list(range(3))
    for variable in ("a", "u"):
        assert relative(found[variable], expected[variable]) < 2e-7


def _field(problem):
    return (problem.initial if problem.equation == "burgers" else problem.field).build()


# failures


def failure(problem, samples, where):
    with pytest.raises(SampleError) as error:
        problem.compute(0, samples, where)
    return error.value


@pytest.mark.parametrize("bytes_", [1, 10**6, 10**9])
def test_the_first_sample_that_cole_hopf_cannot_carry_is_named(monkeypatch, bytes_):
    monkeypatch.setattr(device, "_DEVICE_BYTES", bytes_)
    problem = a_problem("burgers-r10", **{"problem.viscosity": 0.01})
    expected, found = (failure(problem, range(3, 60), where) for where in (None, "cpu"))
    assert found.sample == expected.sample == 18
    assert "does not suffice for Cole-Hopf" in found.reason


def test_the_first_sample_with_an_unstable_step_is_named():
    u0 = torch.from_numpy(FIELD(GRID, 0, range(4)))
    u0[2:] *= 1e3
    with pytest.raises(SolveError, match=r"sample 2 of the batch: ETDRK4 .* is unstable"):
        ETDRK4(GRID, 0.02, dt=1e-3).solve(u0, 0.1)


@pytest.mark.parametrize("bytes_", [1, 10**9])
def test_the_first_sample_that_does_not_converge_is_named(monkeypatch, bytes_):
    monkeypatch.setattr(device, "_DEVICE_BYTES", bytes_)
    a = a_problem("darcy-421").solve(0, range(20), "cpu")["a"].double()
    limit = int(FiniteVolume(CellGrid(21)).solve(a).iterations[0])  # enough for the first sample
    solver = FiniteVolume(CellGrid(21), limit=limit)

    def fails(row):
        try:
            solver.solve(a[row : row + 1])
        except SolveError:
            return True
        return False

    late = next(row for row in range(20) if fails(row))
    found = failure(a_problem("darcy-421", **{"limit": limit}), range(20), "cpu")
    assert found.sample == late > 0
    assert f"after {limit} iterations" in found.reason


def test_the_first_coefficient_that_is_not_finite_is_named():
    problem = a_problem("darcy-lognormal", **{"sigma": 300.0})
    g = problem.field.build()(problem.grid, 0, range(1, 20), "cpu")
    too_large = g.amax(dim=(1, 2)) > np.log(np.finfo(np.float32).max)
    assert 0 < too_large.sum() < 19
    found = failure(problem, range(1, 20), "cpu")
    assert found.sample == 1 + int(too_large.nonzero()[0]) == 2
    assert "positive and finite" in found.reason


# stores


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides({"samples": 14, "shard": 6, "modes": 20})
    url = str(tmp_path_factory.mktemp("device") / "d.zarr")
    return recipe, generate(recipe, url, device="cpu", workers=2)


def test_a_store_says_the_device_and_is_verified_with_numpy(made):
    _, store = made
    assert store.raw_attributes["provenance"]["device"] == "cpu"
    result = verify(store.url, deep=14)
    assert result.faults == []
    assert result.recomputed == list(range(14))


def test_a_store_goes_on_with_the_device_it_was_begun_with(made):
    recipe, store = made
    with pytest.raises(StoreError, match="was begun with --device cpu: resume it with that"):
        generate(recipe, store.url, device="cuda", resume=True)
    assert generate(recipe, store.url, device="cpu", resume=True).sealed


@pytest.mark.parametrize("name", ALONE)
def test_solvers_of_the_cpu_alone_refuse_a_device(name):
    problem = load_recipe(name).problem
    with pytest.raises(SchemaError, match=rf"{problem.solver.method} runs on the CPU only, got"):
        problem.check_solver("cuda")


@pytest.mark.parametrize("name", ["burgers-r10", "darcy-421"])
def test_a_gpu_that_is_not_there_is_refused(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SchemaError, match="device cuda is not available to PyTorch"):
        load_recipe(name).problem.check_solver("cuda")
