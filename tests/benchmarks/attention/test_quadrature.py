"""Position attention against integrals that are known, and rates of convergence."""

import numpy as np
import pytest

from benchmarks.attention import quadrature
from benchmarks.attention.inf_sup import rate


def test_the_integral_is_that_of_a_formula(monkeypatch):
    """For v(x) = x in one dimension, F follows from the error function and the Gaussian."""
    from scipy.special import erf

    monkeypatch.setattr(quadrature, "v", lambda x: x[:, 0])
    y, rate_ = np.array([0.0, 0.3, 0.9]), 20.0
    f, _ = quadrature.Integral(1, rate_)(y[:, None])
    s = np.sqrt(rate_)
    mass = np.sqrt(np.pi) / (2 * s) * (erf(s * (1 - y)) + erf(s * y))
    first = (np.exp(-rate_ * y**2) - np.exp(-rate_ * (1 - y) ** 2)) / (2 * rate_)
    assert f == pytest.approx(y + first / mass, abs=1e-12)


def test_attention_is_the_layer_of_the_operator_with_the_stated_rate():
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 2)), rng.random((5, 2))
    k = np.exp(-quadrature.LAMBDA * ((y[:, None] - x) ** 2).sum(axis=2))
    expected = (k @ quadrature.v(x)) / k.sum(axis=1)
    assert quadrature.attention(x, y, quadrature.v(x)) == pytest.approx(expected, abs=1e-9)


def test_random_points_have_the_error_of_the_theory_and_others_a_smaller_one():
    sizes = (128, 512, 2048)
    errors = quadrature.measured(sizes, 1, 12)
    ratios = np.array(errors.by_points["random"]) / errors.theory
    assert ratios == pytest.approx(1.0, abs=0.35)  # 12 draws of correlated errors
    assert rate(errors.by_points["Sobol"], sizes) < -0.8
    assert rate(errors.by_points["grid"], sizes) == pytest.approx(-2, abs=0.1)
    assert rate(errors.exponential, sizes) == pytest.approx(1, abs=0.1)
