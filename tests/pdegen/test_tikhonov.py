"""Tikhonov's inversion by differences against dense linear algebra."""

import numpy as np
import pytest

from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.tikhonov import MOST, TikhonovInversion, by_forward
from pdegen.schema import SchemaError

N = 9
MAP = np.random.default_rng(0).standard_normal((N, N)) / N
X = (np.arange(N) + 0.5) / N


def test_a_linear_map_has_the_solution_of_the_normal_equations():
    rng = np.random.default_rng(1)
    sigma, d = np.full(N, 0.1), rng.standard_normal(N)
    method = TikhonovInversion(lambda a: MAP @ a, (N,), mean=0.5, scale=2.0, weight=0.3)
    found = method(d, sigma)
    slopes = N * np.diff(np.eye(N), axis=0)
    penalty = 0.3 / N * (np.eye(N) + slopes.T @ slopes)
    j = 2.0 * MAP
    b = np.linalg.solve(j.T @ j / 0.01 + penalty, j.T @ (d - MAP @ np.full(N, 0.5)) / 0.01)
    assert found.a == pytest.approx(0.5 + 2.0 * b, rel=1e-5)  # a difference has rounding errors
    assert found.solves == 2  # the derivative is shared


def test_a_nonlinear_map_ends_where_the_gradient_is_zero():
    method = TikhonovInversion(lambda a: MAP @ np.exp(a), (N,), mean=0.0, scale=1.0, weight=0.1)
    sigma, d = np.full(N, 0.05), MAP @ np.exp(np.sin(6 * X))
    b = method(d, sigma).a
    j = MAP * np.exp(b)
    gradient = j.T @ ((MAP @ np.exp(b) - d) / sigma**2) + method.penalty @ b
    start = MAP.T @ ((MAP @ np.ones(N) - d) / sigma**2)
    assert np.linalg.norm(gradient) < 1e-4 * np.linalg.norm(start)


def test_sensors_leave_other_points_out():
    sensors = np.arange(N) % 2 == 0
    methods = by_forward(lambda a: MAP @ a, InverseProblem(X, np.eye(N), np.eye(N), sensors))
    d = (MAP @ np.sin(6 * X))[sensors]
    found = methods["Tikhonov"].with_weight(1e-6)(d, np.full(len(d), 1e-3)).a
    assert (MAP @ found)[sensors] == pytest.approx(d, abs=3e-3)


def test_the_mean_and_the_deviation_are_those_over_samples_and_cells():
    known = np.random.default_rng(2).standard_normal((20, N)) + 5 * np.arange(N)
    method = by_forward(lambda a: MAP @ a, InverseProblem(X, known, known))["Tikhonov"]
    inversion = method.with_weight(0.3)
    assert isinstance(inversion, TikhonovInversion)
    assert (inversion.mean, inversion.scale) == pytest.approx((known.mean(), known.std()))


def test_names_need_no_samples_and_large_problems_are_refused():
    def none(a):
        raise AssertionError("solved")

    assert list(by_forward(none, InverseProblem(X, np.empty((0, N)), np.empty((0, N))))) == [
        "Tikhonov"
    ]
    n = int(MOST**0.5) + 1
    with pytest.raises(SchemaError, match="at most 1,024 unknowns, got 1,089"):
        by_forward(none, InverseProblem(X, np.empty((0, n, n)), np.empty((0, n, n))))
