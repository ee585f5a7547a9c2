"""The classical inversion: its gradient, and what it recovers."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.total_variation import Tikhonov, TotalVariation
from pdegen.sampling.gaussian import SquareGaussianField


@pytest.fixture(scope="module")
def problem():
    """A coefficient on 16 x 16 cells, and its solution solved on cells finer by 3."""
    g = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 16)(CellGrid(16), 0, [2])
    a = np.where(g >= 0, 12.0, 3.0)
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    return a[0], FiniteVolume(CellGrid(48))(fine)[0, 1::3, 1::3]


@pytest.mark.parametrize("method", [TotalVariation, Tikhonov])
def test_the_gradient_is_that_of_the_objective(problem, method):
    _, u = problem
    x = np.array([0.02, 0.3, 0.55, 0.97])  # points that are no cell centres
    inversion = method(CellGrid(16), x, (3.0, 12.0), 0.3)
    rng = np.random.default_rng(0)
    a, direction = rng.uniform(4, 11, (16, 16)), rng.standard_normal((16, 16))
    d, deviation = u[::4, ::4], np.full((4, 4), 1e-4)

    def value(step):
        return inversion.objective(a + step * direction, d, deviation)[0]

    slope = (value(1e-4) - value(-1e-4)) / 2e-4
    gradient = inversion.objective(a, d, deviation)[1]
    assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-4)


def test_recovers_a_coefficient_from_nearly_clean_data(problem):
    a, u = problem
    grid = CellGrid(16)
    inversion = TotalVariation(grid, grid.x, (3.0, 12.0), 0.1)
    found = inversion(u, np.full(u.shape, 1e-2 * u.std()))
    assert np.linalg.norm(found - a) < 0.15 * np.linalg.norm(a)
    assert np.linalg.norm(7.5 - a) > 0.4 * np.linalg.norm(a)  # where it started
    assert found.min() >= 3
    assert found.max() <= 12


@pytest.mark.parametrize("method", [TotalVariation, Tikhonov])
def test_more_weight_gives_less_variation(problem, method):
    _, u = problem
    grid, deviation = CellGrid(16), np.full((16, 16), 0.1 * problem[1].std())

    def variation(weight):
        a = method(grid, grid.x, (3.0, 12.0), weight)(u, deviation)
        return abs(np.diff(a, axis=0)).sum() + abs(np.diff(a, axis=1)).sum()

    assert variation(10.0) < variation(0.1)


def test_of_a_jump_tikhonov_makes_a_ramp():
    a = np.where(np.arange(16) < 8, 3.0, 12.0)[:, None] + np.zeros(16)
    ramp = np.clip((np.arange(16) - 4) / 8, 0, 1)[:, None] * 9 + 3 + np.zeros(16)

    def cost(method, values):
        return method(CellGrid(16), CellGrid(16).x, (3.0, 12.0), 1.0)._variation(values)[0]

    # |∇a| is smoothed by 0.01, steps of the ramp are 0.125
    assert cost(TotalVariation, ramp) == pytest.approx(cost(TotalVariation, a), rel=0.1)
    assert cost(Tikhonov, ramp) == pytest.approx(cost(Tikhonov, a) / 8)
