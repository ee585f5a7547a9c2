"""The minimum principle: exact solutions, what entropy solutions keep, and the ensemble."""

from functools import lru_cache

import numpy as np
import pytest
from scipy.optimize import brentq

from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple
from pdegen.numerics.failure import SolveError
from pdegen.recipe import load_recipe
from pdegen.sampling.squared_exponential import SquaredExponentialField, averages, values
from pdegen.schema import SchemaError

FIELD = SquaredExponentialField(0.06, 32)
SINE = np.array([[0, -1j]])  # sin 2πx
BOUNDARIES = pytest.mark.parametrize("boundary", ["periodic", "outflow"])


def fields(samples=8):
    return FIELD.coefficients(FIELD.normals(0, range(samples)))


def sine(t, n=1024):
    return MinimumPrinciple(n, "periodic")(SINE, t)[0]


# the table of acceptance: u0 = sin 2πx on 1024 cells of the circle


@pytest.mark.parametrize(
    ("t", "largest", "where", "at_256", "square", "jump"),
    [
        (0.1, 0.99999824, 0.350098, 0.85931903, 0.49999773, 0),
        (0.3, 0.96744478, 0.499512, 0.53529496, 0.35232077, 1),
        (1.0, 0.42895301, 0.499512, 0.21586046, 0.06168683, 1),
    ],
)
def test_a_sine_has_the_known_averages(t, largest, where, at_256, square, jump):
    u = sine(t)
    assert u.max() == pytest.approx(largest, abs=5e-9)  # digits of the table
    assert (np.argmax(u) + 0.5) / 1024 == pytest.approx(where, abs=5e-7)
    assert u[256] == pytest.approx(at_256, abs=5e-9)
    assert np.square(u).mean() == pytest.approx(square, abs=5e-9)
    assert (np.diff(u) < -0.2).sum() == jump


def test_a_smooth_solution_is_constant_along_characteristics():
    t, n = 0.1, 64
    nodes, weights = np.polynomial.legendre.leggauss(20)
    x = ((np.arange(n)[:, None] + (1 + nodes) / 2) / n).ravel()
    u = np.sin(2 * np.pi * x)
    for _ in range(60):
        slope = 2 * np.pi * np.cos(2 * np.pi * (x - u * t))
        u -= (u - np.sin(2 * np.pi * (x - u * t))) / (1 + t * slope)
    exact = u.reshape(n, -1) @ weights / 2
    np.testing.assert_allclose(sine(t, n), exact, atol=1e-13)


def test_the_state_at_the_shock_of_a_sine():
    s = brentq(lambda s: s - np.sin(2 * np.pi * (0.5 - 0.3 * s)), 0.5, 1)
    u = sine(0.3, 2**14)[2**13 - 2 : 2**13]
    assert 1.5 * u[1] - 0.5 * u[0] == pytest.approx(s, abs=1e-7)  # extrapolated to its end
    assert s == pytest.approx(0.9679695, abs=1e-7)


def test_a_mean_carries_the_solution_on_the_circle():
    u0, n = fields(), 256
    u0[:, 0] = 0
    moved = u0.copy()
    moved[:, 0] = 5 / (0.25 * n)  # five cells in t = 0.25
    solver = MinimumPrinciple(n, "periodic")
    expected = np.roll(solver(u0, 0.25), 5, axis=1) + moved[0, 0].real
    np.testing.assert_allclose(solver(moved, 0.25), expected, atol=1e-11)


def test_a_constant_stays_what_it_is():
    constant = np.array([[1.5 + 0j, 0]])
    for boundary in ("periodic", "outflow"):
        np.testing.assert_allclose(MinimumPrinciple(16, boundary)(constant, 0.7), 1.5, atol=1e-13)


@pytest.mark.parametrize(("end", "edge"), [(1.0, 0), (-1.0, -1)])
def test_what_enters_is_the_value_at_the_end(end, edge):
    # cos 2πx has the value 1 at both ends: it enters at 0; minus it at 1
    u = MinimumPrinciple(64, "outflow")(np.array([[0, end]]), 0.1)[0]
    entered = u[:6] if edge == 0 else u[-6:]
    np.testing.assert_allclose(entered, end, atol=1e-12)
    assert abs(u[8 if edge == 0 else -9] - end) > 1e-3


def test_on_the_line_a_field_that_is_mirrored_has_the_mirrored_solution():
    u0 = fields()
    for boundary in ("periodic", "outflow"):
        solver = MinimumPrinciple(128, boundary)
        mirrored = -solver(-np.conj(u0), [0.05, 0.4])[..., ::-1]
        np.testing.assert_allclose(mirrored, solver(u0, [0.05, 0.4]), atol=1e-11)


# what entropy solutions keep


def test_mass_is_kept_to_round_off_on_the_circle():
    u0 = fields(16)
    u = MinimumPrinciple(1024, "periodic")(u0, [0.1, 1.0])
    mean = u0[:, :1].real
    assert abs(u.mean(axis=2) - mean).max() < 1e-14


def test_mass_flows_through_the_ends_alone():
    """∫u(t) - ∫u(0) = ∫ f(u(0, s)) - f(u(1, s)) ds, with u at the ends from its fine averages."""
    u0, n, t = fields(3), 1024, 0.1
    solver = MinimumPrinciple(n, "outflow")
    s = t * (np.arange(200) + 0.5) / 200
    ends = np.square(solver(u0, list(s))[..., [0, -1]]) / 2
    flown = t * (ends[..., 0] - ends[..., 1]).mean(axis=1)
    change = solver(u0, t).mean(axis=1) - averages(u0, n).mean(axis=1)
    np.testing.assert_allclose(change, flown, atol=3e-3)  # shocks that leave: one step of s
    assert abs(change).max() > 0.02


@BOUNDARIES
def test_averages_over_coarser_cells_are_averages_of_averages(boundary):
    fine, coarse = (MinimumPrinciple(n, boundary)(fields(), 0.1) for n in (1024, 64))
    np.testing.assert_allclose(fine.reshape(8, 64, 16).mean(axis=2), coarse, atol=1e-12)


@BOUNDARIES
def test_solutions_obey_the_bounds_of_entropy_solutions(boundary):
    u0, n, times = fields(40), 512, [0.02, 0.1, 0.5]
    u = MinimumPrinciple(n, boundary)(u0, times)
    initial = values(u0, 2**14)
    assert np.all(u.max(axis=2) <= initial.max(axis=1, keepdims=True) + 1e-6)
    assert np.all(u.min(axis=2) >= initial.min(axis=1, keepdims=True) - 1e-6)
    rises = np.diff(u).max(axis=2) * n * times
    assert rises.max() < 1 + 1e-9  # Oleinik
    assert rises.max() > 0.85  # and steep enough for the bound to be felt
    variation = abs(np.diff(u)).sum(axis=2)
    before = abs(np.diff(initial, append=initial[:, :1])).sum(axis=1)
    assert np.all(variation[:, 0] <= before)
    assert np.all(np.diff(variation) <= 1e-9)


def test_godunovs_scheme_converges_to_it():
    u0, errors = fields(4), []
    for n in (256, 1024):
        u, exact = averages(u0, n), MinimumPrinciple(n, "periodic")(u0, 0.1)
        steps = int(np.ceil(0.1 * n * abs(u).max() / 0.9))
        for _ in range(steps):
            left = np.roll(u, 1, axis=1)
            flux = np.maximum(np.square(np.maximum(left, 0)), np.square(np.minimum(u, 0))) / 2
            u = u - 0.1 * n / steps * (np.roll(flux, -1, axis=1) - flux)
        errors.append(abs(u - exact).mean())
    assert 0.7 < np.log(errors[0] / errors[1]) / np.log(4) < 1.1
    assert errors[1] < 0.02


# the error estimate


@BOUNDARIES
def test_the_error_estimate_bounds_the_error_where_candidates_are_few(boundary):
    """Against a solve with many times more candidates; rough fields, so that minima are missed."""
    field = SquaredExponentialField(0.008, 70)
    u0 = field.coefficients(field.normals(0, range(40)))
    few = MinimumPrinciple(256, boundary, candidates=576, tolerance=10.0).solve(u0, 0.5)
    exact = MinimumPrinciple(256, boundary, candidates=2**15)(u0, [0.5])
    error = np.linalg.norm(few.u - exact, axis=2)[:, 0] / np.linalg.norm(exact, axis=2)[:, 0]
    assert (error <= 3 * few.error).mean() >= 0.95
    assert np.all(few.error < 1.0)


@BOUNDARIES
def test_the_error_of_the_recipe_is_round_off(boundary):
    u0 = fields(40)
    solution = MinimumPrinciple(1024, boundary).solve(u0, [0.1])
    twice = MinimumPrinciple(1024, boundary, candidates=8192)(u0, [0.1])
    error = np.linalg.norm(solution.u - twice, axis=2) / np.linalg.norm(twice, axis=2)
    ratio = solution.error / error[:, 0]
    assert ((ratio > 1 / 3) & (ratio < 3)).mean() >= 0.95
    assert solution.error.max() < 1e-12


@BOUNDARIES
def test_shocks_are_in_their_places_with_few_candidates_too(boundary):
    u0 = fields(16)
    few, many = (MinimumPrinciple(4096, boundary, m)(u0, 0.1) for m in (264, 2**14))
    assert abs(few - many).max() < 1e-10  # round-off of V over h


def test_a_sample_that_misses_the_tolerance_is_named():
    field = SquaredExponentialField(0.008, 70)
    u0 = field.coefficients(field.normals(0, range(40)))
    solver = MinimumPrinciple(256, "periodic", candidates=576)
    with pytest.raises(SolveError, match=r"misses .* 1e-08: error 0\.005.* use more of them"):
        solver.solve(u0, 0.5)


def test_impossible_solvers_are_refused():
    with pytest.raises(ValueError, match="the boundary is periodic or outflow, got 'wall'"):
        MinimumPrinciple(8, "wall")
    with pytest.raises(ValueError, match="an even number of candidates"):
        MinimumPrinciple(8, "outflow", candidates=33)
    with pytest.raises(ValueError, match="32 modes need at least 264 candidates, got 128"):
        MinimumPrinciple(8, "outflow", candidates=128)(fields(1), 0.1)
    with pytest.raises(ValueError, match="times must be >= 0 and must not decrease"):
        MinimumPrinciple(8, "outflow")(fields(1), [0.2, 0.1])


# the ensemble: statistics of the specification, of 120 samples there and of 400 others here


@lru_cache
def ensemble(boundary):
    u0 = fields(400)
    return averages(u0, 1024), MinimumPrinciple(1024, boundary)(u0, 0.1)


@pytest.mark.parametrize(
    ("boundary", "std", "variation", "mean", "median", "identity", "cells"),
    [
        ("periodic", 0.855, 11.23, 0.725, 0.731, 0.836, 5.8),
        ("outflow", 0.879, 10.60, 0.764, 0.760, 0.805, 5.6),
    ],
)
def test_the_ensemble_is_that_of_the_specification(
    boundary, std, variation, mean, median, identity, cells
):
    """Within three deviations of the mean of 120 samples."""
    a, u = ensemble(boundary)
    assert a.std() == pytest.approx(1.014, abs=0.03)
    assert u.std() == pytest.approx(std, abs=0.03)
    assert abs(np.diff(a)).sum(axis=1).mean() == pytest.approx(13.42, abs=0.4)
    assert abs(np.diff(u)).sum(axis=1).mean() == pytest.approx(variation, abs=0.4)
    ratio = np.square(u).mean(axis=1) / np.square(a).mean(axis=1)
    assert ratio.mean() == pytest.approx(mean, abs=0.03)
    assert np.median(ratio) == pytest.approx(median, abs=0.03)
    assert 8.5 < np.diff(u).max() * 1024 < 9.5  # 8.6 to 8.8 there, of fewer samples; 10 at most
    assert (np.diff(u) < -0.2).sum(axis=1).mean() == pytest.approx(cells, abs=0.4)
    predictor = abs(u - a).sum(axis=1) / abs(u).sum(axis=1)
    assert predictor.mean() == pytest.approx(identity, abs=0.04)


def test_mass_changes_by_what_the_specification_has():
    a, u = ensemble("outflow")
    change = u.mean(axis=1) - a.mean(axis=1)
    assert np.sqrt(np.square(change).mean()) == pytest.approx(0.060, abs=0.006)
    assert 0.2 < abs(change).max() < 0.5
    enters = a[:, 0] > 0
    assert 0.4 < enters.mean() < 0.6  # half of the samples have inflow on the left
    a, u = ensemble("periodic")
    assert abs(u.mean(axis=1) - a.mean(axis=1)).max() < 1e-14


# recipes


@pytest.fixture(scope="module")
def quick():
    return load_recipe("inviscid-burgers-quick")


def test_the_recipe_has_the_published_sizes():
    recipe = load_recipe("inviscid-burgers")
    assert (recipe.samples, recipe.problem.resolution) == (1280, 1024)
    assert (recipe.splits.train, recipe.splits.validation, recipe.splits.test) == (1024, 128, 128)
    assert (recipe.problem.times, recipe.problem.boundary) == ((0.1,), "outflow")


def test_a_sample_depends_on_its_number_alone(quick):
    values = quick.problem.compute(0, range(20))
    for name, value in quick.problem.compute(0, range(17, 19)).items():
        assert np.array_equal(values[name][17:19], value)


def test_other_resolutions_have_the_same_functions(quick):
    fine = quick.problem.compute(0, range(4))
    coarse = quick.with_overrides({"problem.resolution": 64}).problem.compute(0, range(4))
    assert np.array_equal(fine["theta"], coarse["theta"])
    for name in "au":
        mean = fine[name].astype(float).reshape(4, 64, 4).mean(axis=2)
        np.testing.assert_allclose(coarse[name], mean, atol=1e-6)  # rounded to float32


def test_the_circle_is_a_periodic_domain_of_cell_centres(quick):
    problem = quick.with_overrides({"problem.boundary": "periodic"}).problem
    assert problem.domain.kinds == ("periodic",)
    assert problem.domain.points[0, 0] == 0.5 / 256
    assert problem.physics().symmetries == ("shift", "odd-reflection")
    assert quick.problem.domain.kinds == ("cell",)
    assert quick.problem.physics().symmetries == ("odd-reflection",)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"boundary": "outflw"}, "boundary: unknown 'outflw': did you mean outflow?"),
        ({"boundary": "wall"}, "boundary: unknown 'wall': known: periodic, outflow"),
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [-0.1]}, "times.0: must be greater than 0, got -0.1"),
        ({"times": [0.2, 0.1]}, "times: must increase, got [0.2, 0.1]"),
        ({"times": []}, "times: must have 1 or more values"),
        ({"initial.length": 0.0}, "initial.length: must be greater than 0"),
        ({"solver.candidates": 33}, "solver.candidates: "),
        ({"solver.candidates": 64}, "initial.modes = 32 need solver.candidates >= 264, got 64"),
        ({"solver.method": "godunov"}, "solver.method: must be 'minimum-principle'"),
    ],
)
def test_impossible_recipes_are_refused(quick, changed, said):
    with pytest.raises(SchemaError) as error:
        quick.with_overrides({f"problem.{key}": value for key, value in changed.items()})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


# the law

VARIANTS = {
    "outflow": {},
    "periodic": {"boundary": "periodic"},
    "trajectory": {"times": [0.02, 0.1, 0.6]},
    "periodic trajectory": {"times": [0.02, 0.1, 0.6], "boundary": "periodic"},
    "coarse": {"resolution": 16, "boundary": "periodic"},
    "odd": {"resolution": 33},
    "rough": {"initial.length": 0.02, "initial.modes": 100, "initial.sigma": 3.0},
}


@lru_cache
def solved(variant):
    changes = {f"problem.{key}": value for key, value in VARIANTS[variant].items()}
    problem = load_recipe("inviscid-burgers-quick").with_overrides(changes).problem
    return problem, problem.compute(0, range(120))


def findings(variant, **changed):
    problem, stored = solved(variant)
    numbers = np.arange(len(stored["theta"]))
    return [one.what for one in problem.law().check([(numbers, {**stored, **changed})])]


@pytest.mark.parametrize("variant", VARIANTS)
def test_samples_follow_the_law(variant):
    assert findings(variant) == []


@pytest.mark.parametrize(
    ("variant", "name", "changed", "said"),
    [
        ("outflow", "theta", lambda v: v * 1.0001, "the distance from the averages"),
        ("outflow", "a", lambda v: 1.2 * v, "statistics of the Gaussian field"),
        ("outflow", "theta", lambda v: v[[0, *range(119)]], "is the same as sample 0"),
        ("outflow", "error", lambda v: v + 1e-7, "the solver's error is"),
        ("outflow", "error", lambda v: -v, "minus the solver's error"),
        ("outflow", "u", lambda v: np.where(v > 1, 1.5 * v, v), "the excess over the range"),
        ("outflow", "u", lambda v: v + 0.2 * (-1) ** np.arange(256), "the total variation"),
        ("outflow", "u", lambda v: -v[:, ::-1], "its integral from the minimum"),
        ("outflow", "u", lambda v: np.roll(v, 1, axis=1), "its integral from the minimum"),
        ("periodic", "u", lambda v: v[:, ::-1], "t over h times the largest rise"),
        ("periodic", "u", lambda v: v + 1e-5, "the distance of the means of u and a"),
        ("trajectory", "u", lambda v: v[:, ::-1], "t over h times the largest rise"),
        ("periodic trajectory", "u", lambda v: v[:, [0, 2, 1]], "mean square over that"),
    ],
)
def test_the_law_sees_other_values(variant, name, changed, said):
    value = solved(variant)[1][name]
    assert any(said in what for what in findings(variant, **{name: changed(value)}))


def test_the_law_sees_a_solution_for_another_time():
    problem, stored = solved("outflow")
    other = problem.model_copy(update={"times": (0.101,)})
    numbers = np.arange(len(stored["theta"]))
    found = [one.what for one in other.law().check([(numbers, stored)])]
    assert any("its integral from the minimum" in what for what in found)
