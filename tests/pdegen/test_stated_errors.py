"""The stated error of a label has every part: the solver's, that of rounding, that of float32."""

import numpy as np
import pytest

from pdegen.checks.check import ROUNDING
from pdegen.domains import PeriodicGrid
from pdegen.equations.base import SampleError, check_size, with_rounding
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe, recipe_names
from pdegen.sampling.gaussian import PeriodicGaussianField
from tests.plain.recipes import SMALL

EXACT = ("burgers-quick", "heat", "advection", "inviscid-burgers-quick")
ERRORS = ("error", "error_v", "error_p", "error_at_rest")


def small(name, **changes):
    return load_recipe(name).with_overrides({"samples": 3, **SMALL[name].changes, **changes})


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_solution_states_the_rounding_of_its_float32_values(name):
    recipe = small(name)
    values = recipe.problem.compute(recipe.seed, range(3))
    assert values["u"].dtype == np.float32
    assert values["error"] == pytest.approx(np.sqrt(ROUNDING), rel=1e-6)


def test_the_expected_rounding_is_that_of_random_numbers():
    u = np.random.default_rng(0).lognormal(size=100_000)
    error = np.linalg.norm(u.astype(np.float32) - u) / np.linalg.norm(u)
    assert float(with_rounding(np.zeros(1))[0]) == pytest.approx(error, rel=0.1)  # size-weighted


@pytest.mark.parametrize("name", [n for n in recipe_names() if not SMALL[n].lacks])
def test_a_smaller_error_than_that_of_float32_is_a_finding(name):
    """The law of each equation refuses 1e-10, for each of its errors."""
    problem = small(name).problem.typical  # numbers in place of laws
    stated = {v.name: v.shape for v in problem.variables() if v.name in ERRORS}
    checks = [c for c in problem.checks().each if getattr(c, "variable", "") in stated]
    for variable, shape in stated.items():
        (lowest,) = [c for c in checks if c.variable == variable and c.subject.startswith("minus")]
        lowest.add(np.arange(2), {variable: np.full((2, *shape), 3e-8)})
        assert not list(lowest.findings())
        lowest.add(np.arange(2), {variable: np.full((2, *shape), 1e-10)})
        assert list(lowest.findings())


# solutions that have decayed

DECAYED = {
    "burgers": ("burgers-quick", {"problem.viscosity": 10.0}),
    "burgers, viscosity 1e3": ("burgers-quick", {"problem.viscosity": 1e3}),
    "burgers, time 1e6": ("burgers-quick", {"problem.times": [1e6]}),
    "burgers, later of two times": ("burgers-quick", {"problem.times": [0.1, 1e3]}),
    "heat": ("heat", {"problem.linear.diffusion": 1e3}),
    "heat, time 1e6": ("heat", {"problem.times": [1e6]}),
    "kdv": ("kdv", {"problem.linear.diffusion": 1e4}),
    "vorticity": ("ns-quick", {"problem.viscosity": 1e3, "problem.force.amplitude": 0.0}),
    "vorticity, float32": ("ns-quick", {
        "problem.viscosity": 20.0, "problem.force.amplitude": 0.0, "problem.times": [0.15],
    }),
    "drag": ("advection", {"problem.linear.drag": 1e3}),
    "drag, float32": ("advection", {"problem.linear.drag": 95.0}),
}  # fmt: skip


@pytest.mark.parametrize("case", DECAYED)
def test_a_solution_that_has_decayed_is_refused_at_the_first_sample(case):
    name, changes = DECAYED[case]
    recipe = small(name, **changes)
    with pytest.raises(SampleError, match=r"^sample 0: .*(decayed|too small).*shorter time"):
        recipe.problem.compute(recipe.seed, range(3))


def initial(grid):
    """Initial values whose means should be 0, and are rounded."""
    return PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=9)(grid, 3, range(20))


@pytest.mark.parametrize("viscosity", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("method", ["cole-hopf", "etdrk4"])
def test_the_estimate_for_burgers_covers_the_rounding_of_the_mean(method, viscosity):
    grid = PeriodicGrid(64)
    solver = ColeHopf(grid, viscosity, tolerance=np.inf)
    if method == "etdrk4":
        solver = ETDRK4(grid, viscosity, dt=1e-3, tolerance=np.inf)
    solution = solver.solve(initial(grid), 1.0)
    u = solution.u[:, 0]
    true = abs(u.mean(axis=1)) / np.std(u, axis=1)
    assert true.max() > 1e-12
    assert np.all(solution.error >= true)


@pytest.mark.parametrize("method", ["cole-hopf", "etdrk4"])
def test_the_guard_of_burgers_fires_for_a_decayed_solution(method):
    grid = PeriodicGrid(64)
    solver = ColeHopf(grid, 1.0)
    if method == "etdrk4":
        solver = ETDRK4(grid, 1.0, dt=1e-3, tolerance=1e-3)
    with pytest.raises(SolveError, match="u has decayed so far"):
        solver.solve(initial(grid), 2.0)


@pytest.mark.parametrize("linear", [True, False])
def test_the_estimate_of_modes_covers_the_rounding_of_the_mean(linear):
    def terms(torus):
        def square(v):
            return -0.5 * torus.d[0] * torus.to_modes(torus.to_points(v) ** 2)

        return torus.laplacian[None], None if linear else square

    torus = Torus((PeriodicGrid(64),), degree=2)
    solver = Semilinear(torus, terms, 1e-3, np.inf)
    v0 = torus.to_modes(initial(torus.grids[0]))[:, None]
    times = [0.2, 0.5, 0.8]
    solution = solver.solve(v0, times)
    mean = abs(solution.v[:, :, 0, 0])
    rest = np.sqrt(np.sum(torus.weights * abs(solution.v[:, :, 0]) ** 2, axis=-1) - mean**2)
    assert np.all(solution.error >= mean / rest)
    assert solution.error[:, -1].max() > 1e-8  # e^(-0.8 (2π)²) is 2e-14


def test_modes_without_a_mean_lose_no_digits():
    """A vortex that decays keeps its relative error, as nothing in it decays more slowly."""
    recipe = small("ns-quick", **{"problem.viscosity": 1.0, "problem.force.amplitude": 0.0,
                                  "problem.times": [0.5], "problem.solver.dt": 2.5e-4})  # fmt: skip
    values = recipe.problem.compute(recipe.seed, range(3))
    assert abs(values["u"]).max() < 1e-7
    assert values["error"].max() < 1e-5  # the tolerance


def test_values_below_the_normal_numbers_of_float32_are_refused():
    check_size(np.full((2, 3, 4), 2.0**-126))
    with pytest.raises(SolveError, match="too small for float32") as failed:
        check_size(np.stack([np.ones((2, 4)), np.stack([np.ones(4), np.full(4, 1e-39)])]))
    assert failed.value.row == 1
