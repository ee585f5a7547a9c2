"""Observations: transposes, exact values, and the misfit with its gradient."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.inverse.classical import (
    Composition,
    Misfit,
    Sensors,
    Separable,
    averages,
    interpolation,
)

pytestmark = pytest.mark.usefixtures("shapes")

N = 13
POINTS = np.array([0.0, 0.02, 0.3, 0.5, 0.55, 0.97])
AVERAGES = Separable(averages(N, 5), averages(N, 4))
SEEN = np.random.default_rng(0).random((5, 4)) < 0.4
OBSERVATIONS = {
    "interpolation": Separable(interpolation(CellGrid(N), POINTS), np.eye(N)),
    "averages": AVERAGES,
    "sensors": Sensors(np.random.default_rng(0).random((N, N)) < 0.2),
    "sensors among averages": Composition(AVERAGES, Sensors(SEEN)),
}
RNG = np.random.default_rng(1)
U, DU = RNG.standard_normal((2, 2, 3, N, N))
each = pytest.mark.parametrize("name", OBSERVATIONS)


def data(name, u=U):
    return RNG.standard_normal(OBSERVATIONS[name](u).shape)


def axes(name):
    return OBSERVATIONS[name](U[0, 0]).ndim


@each
def test_the_transpose_is_the_transpose(name):
    observation, d = OBSERVATIONS[name], data(name)
    back = observation.transposed(d)
    assert back.shape == U.shape
    over = tuple(range(2, d.ndim))
    np.testing.assert_allclose((observation(U) * d).sum(over), (U * back).sum((2, 3)), rtol=1e-12)


def test_interpolation_is_exact_for_what_is_linear_between_the_walls():
    roof = np.minimum(CellGrid(10).x, 1 - CellGrid(10).x)
    x = np.array([0.0, 0.01, 0.2, 0.25, 0.449, 0.551, 0.98, 1.0])
    np.testing.assert_allclose(
        interpolation(CellGrid(10), x) @ roof, np.minimum(x, 1 - x), atol=1e-15
    )


@pytest.mark.parametrize(("n", "m"), [(43, 15), (12, 4), (5, 5), (4, 7)])
def test_averages_keep_the_integral_and_constants(n, m):
    weights = averages(n, m)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-13)
    np.testing.assert_allclose(weights.sum(0), m / n, rtol=1e-13)
    x = (np.arange(n) + 0.5) / n
    steps = np.repeat(x, m).reshape(m, n).mean(1)  # m fine cells in each of n, n in each of m
    np.testing.assert_allclose(weights @ x, steps, rtol=1e-12)


def test_sensors_see_their_points_in_order():
    sensors = OBSERVATIONS["sensors"]
    np.testing.assert_array_equal(sensors(U)[1, 2], U[1, 2][sensors.mask])


@each
@pytest.mark.parametrize("std", ["number", "array"])
def test_the_misfit_is_a_parabola_with_its_gradient(name, std):
    d = data(name)
    sigma = 0.3 if std == "number" else RNG.uniform(0.1, 1, d.shape)
    misfit = Misfit(OBSERVATIONS[name], d, sigma, axes(name))
    over = (2, 3)
    expected = misfit(U) + (misfit.gradient(U) * DU).sum(over)
    expected += 0.5 * ((misfit.gradient(U + DU) - misfit.gradient(U)) * DU).sum(over)
    assert misfit(U).shape == U.shape[:2]
    np.testing.assert_allclose(misfit(U + DU), expected, rtol=1e-12)


def test_a_mask_without_sensors_is_refused():
    with pytest.raises(ValueError, match=r"a mask of shape \(3, 3\) has no sensor"):
        Sensors(np.zeros((3, 3), bool))


@pytest.mark.parametrize("std", [0.0, -1.0, np.nan, np.array([1.0, 0.0])])
def test_a_deviation_that_is_not_positive_is_refused(std):
    with pytest.raises(ValueError, match="the deviation of the noise must be positive"):
        Misfit(Sensors(np.eye(2, dtype=bool)), np.zeros(2), std, 1)


@pytest.mark.parametrize("x", [-0.1, 1.1, np.nan])
def test_points_outside_are_refused(x):
    with pytest.raises(ValueError, match=r"points must be in \[0, 1\]"):
        interpolation(CellGrid(4), np.array([0.5, x]))
