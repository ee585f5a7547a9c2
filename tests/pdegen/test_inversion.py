"""The classical inversion: its gradient, and what it recovers."""

import numpy as np
import pytest
import scipy

from pdegen.domains import CellGrid
from pdegen.equations.darcy import inversion as total_variation
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import PhaseFlow, Tikhonov, TotalVariation
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
    p, direction = rng.uniform(0.1, 0.9, (16, 16)), rng.standard_normal((16, 16))
    d, std = u[::4, ::4], np.full((4, 4), 1e-4)

    def value(step):
        return inversion.at(p + step * direction, d, std).value

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    gradient = inversion.at(p, d, std).gradient
    assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("method", [TotalVariation, Tikhonov])
def test_the_hessian_is_that_of_the_penalty(method):
    rng = np.random.default_rng(0)
    p, direction = rng.uniform(0, 1, (2, 9, 9))
    inversion = method(CellGrid(9), CellGrid(9).x, (3.0, 12.0), 0.7)
    at = inversion.at(p, np.zeros((9, 9)), np.ones((9, 9)))
    ahead, behind = (inversion._penalty(p + t * direction).gradient for t in (1e-6, -1e-6))
    assert at._of_penalty(direction) == pytest.approx(0.7 * (ahead - behind) / 2e-6, rel=1e-4)
    solved = at._preconditioner(np.ones((9, 9), bool))(direction)
    shift = (direction - at._of_penalty(solved)) / solved  # it is a small number
    assert shift == pytest.approx(np.full((9, 9), shift[0, 0]), rel=1e-4)
    assert 0 < shift[0, 0] < 0.01


def test_no_other_descent_reaches_a_lower_objective(problem):
    """L-BFGS-B with many steps is another way to the same minimiser."""
    _, u = problem
    inversion = TotalVariation(CellGrid(16), CellGrid(16).x, (3.0, 12.0), 0.1)
    std = np.full(u.shape, 1e-2 * u.std())

    def objective(p):
        at = inversion.at(p.reshape(16, 16), u, std)
        return at.value, at.gradient.ravel()

    other = scipy.optimize.minimize(
        objective, np.full(256, 0.5), jac=True, method="L-BFGS-B", bounds=[(0, 1)] * 256,
        options={"maxiter": 3000, "maxfun": 6000, "maxcor": 20, "ftol": 1e-10},
    )  # fmt: skip
    assert other.success
    found = inversion.estimate(u, std)
    assert found.converged
    assert objective((found.a - 3) / 9)[0] == pytest.approx(other.fun, rel=1e-3)
    assert found.iterations < 0.5 * other.nit


def test_coarse_cells_give_a_start_only(monkeypatch):
    grid = CellGrid(40)
    a = np.where(grid.x[:, None] + 0.3 * grid.x < 0.6, 3.0, 12.0)
    d = PhaseFlow(grid, (3.0, 12.0))((a - 3) / 9)
    std = np.full(d.shape, 1e-2 * d.std())

    def estimate():
        return TotalVariation(grid, grid.x, (3.0, 12.0), 0.1).estimate(d, std)

    started = estimate()
    monkeypatch.setattr(total_variation, "_FEW", 41)
    alone = estimate()
    assert started.converged
    assert alone.converged
    assert np.linalg.norm(started.a - alone.a) < 0.02 * np.linalg.norm(a)


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
    grid, std = CellGrid(16), np.full((16, 16), 0.1 * problem[1].std())

    def variation(weight):
        a = method(grid, grid.x, (3.0, 12.0), weight)(u, std)
        return abs(np.diff(a, axis=0)).sum() + abs(np.diff(a, axis=1)).sum()

    assert variation(10.0) < variation(0.1)


def test_of_a_jump_tikhonov_makes_a_ramp():
    a = np.where(np.arange(16) < 8, 3.0, 12.0)[:, None] + np.zeros(16)
    ramp = np.clip((np.arange(16) - 4) / 8, 0, 1)[:, None] * 9 + 3 + np.zeros(16)

    def cost(method, values):
        return method._penalty((values - 3) / 9).value

    # |∇a| is smoothed by 0.01, steps of the ramp are 0.125
    assert cost(TotalVariation, ramp) == pytest.approx(cost(TotalVariation, a), rel=0.1)
    assert cost(Tikhonov, ramp) == pytest.approx(cost(Tikhonov, a) / 8)
