"""Gaussian fields on the circle as Fourier sums: one function at every resolution."""

import numpy as np
import pytest

from pdegen.checks.gaussian import circle_modes
from pdegen.sampling.gaussian import (
    SquaredExponentialField,
    antiderivative,
    averages,
    values,
)

FIELD = SquaredExponentialField(0.06, 32)


def coefficients(samples=range(4), field=FIELD):
    return field.coefficients(field.normals(0, samples))


def summed(c, x):
    """Re Σ c_k e^(2πikx), term by term."""
    return np.real(c @ np.exp(2j * np.pi * np.outer(np.arange(c.shape[1]), x)))


def test_the_modes_are_those_of_the_covariance():
    r = np.linspace(0, 0.5, 11)
    images = np.arange(-2, 3)
    covariance = np.exp(-np.square(r[:, None] + images) / (2 * 0.06**2)).sum(axis=1)
    expected = FIELD.stds**2 @ np.cos(2 * np.pi * np.outer(np.arange(33), r))
    np.testing.assert_allclose(expected, covariance, atol=1e-15)  # the tail beyond 32: 1e-30


@pytest.mark.parametrize("n", [3, 16, 17, 64, 65, 66, 67, 256])
def test_values_are_those_of_the_sum_on_any_grid(n):
    c = coefficients()
    x = np.arange(n) / n
    np.testing.assert_allclose(values(c, n), summed(c, x), atol=1e-13)
    np.testing.assert_allclose(values(c, n, 0.3 / n), summed(c, x + 0.3 / n), atol=1e-13)


@pytest.mark.parametrize("n", [1, 3, 16, 64, 100, 1024])
def test_averages_are_exact_on_any_cells(n):
    c, (nodes, weights) = coefficients(), np.polynomial.legendre.leggauss(200 // n + 12)
    x = (np.arange(n)[:, None] + (1 + nodes) / 2) / n
    exact = summed(c, x.ravel()).reshape(len(c), n, -1) @ weights / 2
    np.testing.assert_allclose(averages(c, n), exact, atol=1e-12)


def test_the_antiderivative_rises_by_the_averages():
    c = coefficients()
    np.testing.assert_allclose(np.diff(antiderivative(c, 100)) * 100, averages(c, 100), atol=1e-12)
    assert not antiderivative(c, 100)[:, 0].any()


@pytest.mark.parametrize("n", [8, 64, 256])
def test_the_modes_of_a_grid_have_the_variances_of_averages(n):
    stds = FIELD.stds * np.sinc(np.arange(33) / n)
    modes = circle_modes(stds**2, n)
    z = modes.transform(averages(coefficients(range(3000)), n))
    clear = modes.variances > 1e-12
    ratio = np.square(z).mean(axis=0)[clear] / modes.variances[clear]
    assert abs(ratio - 1).max() < 5 * np.sqrt(2 / 3000)


@pytest.mark.parametrize("wrong", [(0.0, 4, 1.0), (0.1, 0, 1.0), (0.1, 4, 0.0)])
def test_impossible_fields_are_refused(wrong):
    with pytest.raises(ValueError, match="need length > 0, sigma > 0, modes >= 1"):
        SquaredExponentialField(*wrong)
