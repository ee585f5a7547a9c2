"""The minimum principle: exact solutions, conservation, and the ensemble."""

from functools import lru_cache

import numpy as np
import pytest

from pdegen.equations.inviscid_burgers.solver import MinimumPrinciple
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import SquaredExponentialField, averages
from tests.pdegen.test_checks import findings

FIELD = SquaredExponentialField(0.06, 32)
SINE = np.array([[0, -1j]])  # sin 2πx
BOUNDARIES = pytest.mark.parametrize("boundary", ["periodic", "outflow"])


def fields(samples=8):
    return FIELD.coefficients(FIELD.normals(0, range(samples)))


def sine(t, n=1024):
    return MinimumPrinciple(n, "periodic")(SINE, t)[0]


# a table of reference values: u0 = sin 2πx on 1024 cells of the circle


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


# conservation


def test_mass_is_conserved_to_round_off_on_the_circle():
    u0 = fields(16)
    u = MinimumPrinciple(1024, "periodic")(u0, [0.1, 1.0])
    mean = u0[:, :1].real
    assert abs(u.mean(axis=2) - mean).max() < 1e-14


@BOUNDARIES
def test_averages_over_coarser_cells_are_averages_of_averages(boundary):
    fine, coarse = (MinimumPrinciple(n, boundary)(fields(), 0.1) for n in (1024, 64))
    np.testing.assert_allclose(fine.reshape(8, 64, 16).mean(axis=2), coarse, atol=1e-12)


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
def test_shocks_have_their_positions_with_few_candidates_too(boundary):
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
    with pytest.raises(ValueError, match="boundary must be periodic or outflow, got 'wall'"):
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


# recipes


@pytest.fixture(scope="module")
def quick():
    return load_recipe("inviscid-burgers-quick")


def test_the_circle_is_a_periodic_domain_of_cell_centres(quick):
    problem = quick.with_overrides({"problem.boundary": "periodic"}).problem
    assert problem.domain.kinds == ("periodic",)
    assert problem.domain.points[0, 0] == 0.5 / 256
    assert problem.physics().symmetries == ("shift", "odd-reflection")
    assert quick.problem.domain.kinds == ("cell",)
    assert quick.problem.physics().symmetries == ("odd-reflection",)


# the law

TIMES = {"times": [0.02, 0.1, 0.6]}
VARIANTS = {
    "outflow": {},
    "periodic": {"boundary": "periodic"},
    "trajectory": TIMES,
    "periodic trajectory": {**TIMES, "boundary": "periodic"},
}


@lru_cache
def solved(variant):
    changes = {f"problem.{key}": value for key, value in VARIANTS[variant].items()}
    problem = load_recipe("inviscid-burgers-quick").with_overrides(changes).problem
    return problem, problem.compute(0, range(120))


@pytest.mark.parametrize(
    ("variant", "name", "changed", "message"),
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
def test_the_law_notices_changed_values(variant, name, changed, message):
    problem, stored = solved(variant)
    values = {**stored, name: changed(stored[name])}
    assert any(message in finding.message for finding in findings(problem.checks(), values))


def test_the_law_notices_another_time():
    problem, stored = solved("outflow")
    later = problem.model_copy(update={"times": (0.101,)})
    report = findings(later.checks(), stored)
    assert any("its integral from the minimum" in finding.message for finding in report)
