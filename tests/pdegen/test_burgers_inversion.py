"""Initial values and viscosities from noisy solutions of Burgers' equation."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.inversion import InitialValueInversion, LinearisedColeHopf, inversions
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.gaussian import CircleModes, GaussianInversion
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import NormalStream, PeriodicGaussianField
from pdegen.schema import SchemaError

NU, TIME, POINTS = 0.1 / (2 * np.pi), 1 / (2 * np.pi), 64
FIELD = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=127)  # of burgers-quick
GRID = PeriodicGrid(256)
U0 = FIELD(GRID, 0, range(40))
U = ColeHopf(GRID, NU)(U0, TIME)[:, :: 256 // POINTS]
SIZE = U.std(axis=0)
NOISE = np.random.default_rng(0).standard_normal(U.shape)
NINETY = 1.645  # of a deviation: holds 90 % of a normal variable


def initial_values(level, count=40, method=None):
    method = method or InitialValueInversion.of_distribution(FIELD, NU, TIME, POINTS)
    return [method(U[i] + level * SIZE * NOISE[i], level * SIZE) for i in range(count)]


def errors(found):
    truth = U0[: len(found), :: 256 // POINTS]
    return [
        np.linalg.norm(one.u0 - u0) / np.linalg.norm(u0)
        for one, u0 in zip(found, truth, strict=True)
    ]


# derivatives


def smooth(seed):
    return FIELD(GRID, seed, [7])[0]


def orders(of, slope):
    steps = np.array([4e-2, 2e-2, 1e-2])
    left = [np.linalg.norm(of(t) - of(0.0) - t * slope) for t in steps]
    return np.log2(np.divide(left[:-1], left[1:]))


def test_the_tangent_leaves_a_remainder_of_order_two():
    solver, change = ColeHopf(GRID, NU), smooth(1)
    at = LinearisedColeHopf(solver, U0[0], TIME)
    found = orders(lambda t: solver(U0[0] + t * change, TIME), at.jvp(change))
    assert found == pytest.approx(2, abs=0.1)


def test_the_adjoint_is_that_of_the_tangent():
    # half of it: φ spans e^17 for all of it, which costs digits of φ
    at = LinearisedColeHopf(ColeHopf(GRID, NU), U0[0] / 2, TIME)
    changes, v = np.stack([smooth(1), smooth(2)]), NOISE[0].repeat(4)
    assert at.jvp(changes) @ v == pytest.approx(changes @ at.vjp(v), rel=1e-10)


@pytest.mark.parametrize("u0", [U0[:2], U0[0] + 1, U0[0, ::2]])
def test_an_initial_value_with_a_mean_or_of_another_grid_is_refused(u0):
    with pytest.raises(ValueError, match=r"expected an initial value of shape \(256,\) and mean 0"):
        LinearisedColeHopf(ColeHopf(GRID, NU), u0, TIME)


def test_what_double_precision_does_not_carry_is_refused():
    with pytest.raises(SolveError, match="double precision does not suffice"):
        LinearisedColeHopf(ColeHopf(GRID, NU / 50), U0[0], TIME)


# any map, by a linear one, whose posterior is known


class Matrix:
    """G(ξ) = G ξ."""

    def __init__(self, g, xi=None):
        self.g, self.values = g, None if xi is None else g @ xi

    def linearise(self, xi):
        return Matrix(self.g, xi)

    def jvp(self, change):
        return change @ self.g.T

    def vjp(self, v):
        return self.g.T @ v


def test_of_a_linear_map_the_estimate_is_the_posterior():
    rng = np.random.default_rng(1)
    g, sigma = rng.standard_normal((12, 5)), rng.uniform(0.1, 1, 12)
    invert = GaussianInversion(Matrix(g), rtol=1e-10)
    data = rng.standard_normal((2, 12))
    found = [invert(d, sigma, np.zeros(5)) for d in data]
    posterior = np.linalg.inv(np.eye(5) + g.T @ np.diag(sigma**-2) @ g)
    np.testing.assert_allclose(found[0].covariance, posterior, atol=1e-12)
    expected = posterior @ g.T @ (data[0] / sigma**2)
    # steps end where they would add less than 1e-6 to the log density
    np.testing.assert_allclose(found[0].coefficients, expected, atol=2e-3 * posterior.max() ** 0.5)


def test_data_without_noise_are_refused():
    with pytest.raises(ValueError, match="deviation of the noise must be positive"):
        GaussianInversion(Matrix(np.eye(2)))(np.ones(2), np.array([1.0, 0.0]), np.zeros(2))


def test_modes_are_those_of_the_law():
    few = replace(FIELD, modes=10)
    pairs = NormalStream(0).pairs(3, 10)
    xi = np.stack([pairs.real, -pairs.imag], axis=-1).ravel()
    modes = CircleModes(few.mode_stds, GRID)
    np.testing.assert_allclose(modes.field_of(xi), few(GRID, 0, [3])[0], atol=1e-13)
    v = NOISE[0].repeat(4)
    assert modes.field_of(xi) @ v == pytest.approx(modes.transposed(v) @ xi)


def test_more_modes_than_points_are_refused():
    with pytest.raises(ValueError, match=r"10 modes need .* more than 20 points"):
        CircleModes(np.ones(10), PeriodicGrid(20))


# initial values


def test_without_noise_the_modes_that_heat_leaves_are_recovered():
    found = initial_values(0.0, 8)
    truth = np.fft.rfft(U0[:8, ::4])
    off = np.abs(np.fft.rfft([one.u0 for one in found]) - truth) / np.abs(truth).max()
    # mode k is damped by e^(-k²/10): to 0.08 at k = 5, to 2e-3 at k = 8; rounding counts as 1e-6
    assert off[:, 1:6].max() < 5e-3
    assert off[:, 1:9].max() < 3e-2
    assert np.mean(errors(found)) < 0.05


def test_intervals_hold_the_truth_as_often_as_they_say():
    found, truth = initial_values(0.05), U0[:, :: 256 // POINTS]
    inside = [np.abs(one.u0 - u0) <= NINETY * one.std for one, u0 in zip(found, truth, strict=True)]
    # 40 samples of some ten independent values: a deviation of 0.015
    assert np.mean(inside) == pytest.approx(0.9, abs=0.04)
    misfit = np.mean([one.estimate.misfit for one in found])
    fitted = np.mean([np.trace(np.eye(62) - one.estimate.covariance) for one in found])
    assert misfit == pytest.approx(1 - fitted / POINTS, abs=0.05)


def test_tikhonov_of_small_waves_is_a_filter_of_the_modes_of_heat():
    weight, sigma = 0.5, 1e-3
    method = InitialValueInversion.tikhonov(weight, 20, NU, TIME, POINTS)
    x = PeriodicGrid(POINTS).x
    k = 2 * np.pi * np.arange(1, 4)[:, None]
    damped = np.exp(-NU * k**2 * TIME)
    waves = 1e-4 * np.cos(k * x)
    found = method((damped * waves).sum(axis=0), np.full(POINTS, sigma))
    known = POINTS * damped**2 / sigma**2
    assert found.u0 == pytest.approx(
        (waves * known / (known + weight * k**2)).sum(axis=0), rel=1e-2
    )


# what the study of noise is offered


def test_the_study_is_offered_methods_with_weights():
    problem = load_recipe("burgers-quick").problem
    setting = InverseProblem(PeriodicGrid(POINTS).x, U0[:, ::4], U)
    methods = problem.inversions(setting)
    assert set(methods) == {"maximum a posteriori", "Tikhonov"}
    data = U[0] + 0.05 * SIZE * NOISE[0]
    found = methods["maximum a posteriori"].with_weight(1.0)(data, 0.05 * SIZE)
    expected = InitialValueInversion.of_distribution(
        problem.initial.build(), problem.viscosity, problem.times[0], POINTS
    )(data, 0.05 * SIZE)
    np.testing.assert_array_equal(found.a, expected.u0)
    tangents = expected.estimate.coefficients.size  # of the deviation
    assert found.solves == expected.estimate.solves + tangents > 10 + tangents
    rough, flat = (
        methods["Tikhonov"].with_weight(weight)(data, 0.05 * SIZE).a for weight in (0.1, 100.0)
    )
    assert np.square(np.diff(flat)).sum() < np.square(np.diff(rough)).sum()
    assert inversions(setting, FIELD, NU, TIME).keys() == methods.keys()


@pytest.mark.parametrize("name", ["maximum a posteriori", "Tikhonov"])
def test_data_are_those_of_the_points_that_have_a_sensor(name):
    seen = np.arange(POINTS) % 3 < 2
    method = inversions(
        InverseProblem(PeriodicGrid(POINTS).x, U0[:, ::4], U, seen), FIELD, NU, TIME
    )[name]
    data, std = U[0] + 0.01 * SIZE * NOISE[0], 0.01 * SIZE
    found = method.with_weight(method.weights[0])(data[seen], std[seen]).a
    truth = U0[0, ::4]
    assert found.shape == truth.shape
    assert np.linalg.norm(found - truth) < 0.4 * np.linalg.norm(truth)


@pytest.mark.parametrize("times", [[0.1, 0.2], [0.0]])
def test_several_times_are_refused(times):
    problem = load_recipe("burgers-quick").with_overrides({"times": times}).problem
    with pytest.raises(SchemaError, match="burgers inverts u at a single time after 0"):
        problem.inversions(InverseProblem(GRID.x, U0, U0))


def test_other_laws_and_other_equations_are_refused():
    several = load_recipe("darcy-quick").with_overrides(
        {
            "problem.coefficient.kind": "phases",
            "problem.coefficient.values": [1.0, 3.0, 9.0],
            "problem.coefficient.thresholds": [-0.3, 0.3],
        }
    )
    with pytest.raises(SchemaError, match="two-phase coefficients only, got 3 phases"):
        several.problem.inversions(InverseProblem(GRID.x, U0, U0))
    with pytest.raises(SchemaError, match="vorticity offers no classical inversions"):
        load_recipe("ns-quick").problem.inversions(InverseProblem(GRID.x, U0, U0))
