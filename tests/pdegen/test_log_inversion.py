"""Inversion of log-normal Darcy coefficients: derivatives, a dense oracle, and accuracy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from pdegen.domains import CellGrid
from pdegen.equations.darcy.log_inversion import LogFlow, LogInversion, SquareModes
from pdegen.inverse.classical import InverseProblem, Separable, interpolation
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import SquareGaussianField

LAW = SquareGaussianField("neumann", sigma=3.0, tau=3.0, alpha=2.0, modes=4)
GRID = CellGrid(6)
MATRIX = interpolation(GRID, GRID.x[::2])
FLOW = LogFlow(SquareModes.of_distribution(LAW, GRID), 2.0, 1.0, Separable(MATRIX, MATRIX))
RNG = np.random.default_rng(0)
XI = RNG.standard_normal(16)


def test_tangents_and_adjoints_are_derivatives():
    at, change = FLOW.linearise(XI), RNG.standard_normal(16)
    h = 1e-5
    differences = FLOW.linearise(XI + h * change).values - FLOW.linearise(XI - h * change).values
    assert at.jvp(change) == pytest.approx(differences / (2 * h), rel=1e-6, abs=1e-9)
    v = RNG.standard_normal(at.values.shape)
    assert at.vjp(v) @ change == pytest.approx(v @ at.jvp(change), rel=1e-10)


def test_the_map_is_the_flow_of_the_coefficient():
    a = 2.0 * np.exp(FLOW.modes.field_of(XI))
    recipe = load_recipe("darcy-lognormal").with_overrides({"problem.resolution": 6})
    u = recipe.problem.solver.build(6)(a[None])[0]  # the solver of the recipe on the same cells
    assert FLOW.linearise(XI).values == pytest.approx((MATRIX @ u @ MATRIX.T).ravel(), rel=1e-6)


def test_the_estimate_minimises_the_functional_of_a_dense_oracle():
    truth = FLOW.linearise(XI).values
    sigma = np.full(9, 0.02 * np.sqrt(np.mean(truth**2)))
    d = truth + sigma * RNG.standard_normal(9)
    inversion = LogInversion(FLOW, np.zeros(9), 0.0, omitted=np.zeros((6, 6)))
    found = inversion(d.reshape(3, 3), sigma.reshape(3, 3))

    def residuals(xi):
        return np.concatenate([(d - FLOW.linearise(xi).values) / sigma, xi])

    oracle = least_squares(residuals, np.zeros(16), xtol=1e-12, ftol=1e-12)
    g = FLOW.modes.field_of(oracle.x)
    assert np.log(found.a / 2.0) == pytest.approx(g, abs=0.01)  # of the last, inexact step
    covariance = np.linalg.inv(oracle.jac.T @ oracle.jac)
    spread = np.sqrt(np.einsum("ip,pq,iq->i", FLOW.modes.matrix, covariance, FLOW.modes.matrix))
    assert found.std == pytest.approx(found.a * spread.reshape(6, 6), rel=0.05)


def test_tikhonov_penalises_the_function_and_its_gradient():
    modes = SquareModes.of_penalty(0.5, CellGrid(64))
    xi = np.zeros((20, 20))
    xi[1, 0], xi[0, 0] = 0.7, 0.2
    g = modes.field_of(xi.ravel())
    slope = np.diff(g, axis=0) * 64
    integral = np.mean(slope**2) * 63 / 64 + np.mean(g**2)
    assert 0.5 * 0.5 * integral == pytest.approx(0.5 * np.sum(xi**2), rel=1e-2)


def test_the_law_beats_tikhonov_and_tikhonov_the_mean():
    recipe = load_recipe("darcy-lognormal").with_overrides(
        {"problem.resolution": 15, "problem.field.modes": 15}
    )
    values = recipe.problem.compute(0, range(24))
    a, u = values["a"].astype(float), values["u"].astype(float)
    setting = InverseProblem(recipe.problem.grid.x, a[:20], u[:20])
    methods, sigma = recipe.problem.inversions(setting), 0.05 * u[:20].std(axis=0)
    data = u[20:] + sigma * RNG.standard_normal(u[20:].shape)

    def error(fields):
        parts = [
            np.linalg.norm(f - t) / np.linalg.norm(t) for f, t in zip(fields, a[20:], strict=True)
        ]
        return np.mean(parts)

    stated = [methods["maximum a posteriori"].with_weight(1.0)(d, sigma) for d in data]
    tikhonov = min(
        error([methods["Tikhonov"].with_weight(weight)(d, sigma).a for d in data])
        for weight in methods["Tikhonov"].weights
    )
    largest = error([estimate.a for estimate in stated])
    assert largest < tikhonov < 0.7 * error([a[:20].mean(axis=0)] * 4)
    inside = [abs(e.a - t) < 1.645 * e.std for e, t in zip(stated, a[20:], strict=True)]
    assert 0.75 < np.mean(inside) < 0.99  # 90 % intervals of four samples


def test_names_need_no_samples_and_sensors_leave_points_out():
    recipe = load_recipe("darcy-lognormal").with_overrides({"problem.resolution": 13})
    empty = InverseProblem(recipe.problem.grid.x, np.empty((0, 13, 13)), np.empty((0, 13, 13)))
    names = ["maximum a posteriori", "Tikhonov"]
    assert list(recipe.problem.inversions(empty)) == names
    sensors = RNG.random((13, 13)) < 0.5
    methods = recipe.problem.inversions(replace(empty, sensors=sensors))
    found = methods["maximum a posteriori"].with_weight(1.0)
    estimate = found(np.full(sensors.sum(), 0.03), np.full(sensors.sum(), 0.01))
    assert estimate.a.shape == (13, 13)
