"""Intervals that do not start at 0 or are not of length 1: scaled solutions, or a refusal."""

import numpy as np
import pytest

from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid
from pdegen.equations.burgers.solver import ETDRK4, ColeHopf
from pdegen.equations.darcy.error_bound import ErrorBound
from pdegen.equations.darcy.finite_element import FiniteElement
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.inversion import PhaseFlow, TotalVariation
from pdegen.equations.darcy.published import PublishedScheme
from pdegen.equations.shock_tube.solver import ShockTube, State
from pdegen.numerics.spectral import Torus, antiderivative_symbol, derivative_symbol
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField

LENGTH, START, N = 2.5, 0.75, 64
ELSEWHERE = [(LENGTH, 0.0), (1.0, START), (LENGTH, START)]


@pytest.fixture
def u0():
    """A wave on N points of any circle."""
    angle = 2 * np.pi * np.arange(N) / N
    return (np.sin(angle) + 0.3 * np.cos(2 * angle))[None]


@pytest.mark.parametrize(("length", "start"), ELSEWHERE)
@pytest.mark.parametrize(
    "solver", [ColeHopf, lambda grid, nu: ETDRK4(grid, nu, 1e-3 * grid.length)]
)
def test_burgers_scales_with_the_circle(solver, length, start, u0):
    """u(x, t; ν) on length L is u(x/L, t/L; ν/L) on length 1."""
    scaled = solver(PeriodicGrid(N, length, start), 0.05 * length).solve(u0, 0.3 * length)
    unit = solver(PeriodicGrid(N), 0.05).solve(u0, 0.3)
    np.testing.assert_allclose(scaled.u, unit.u, atol=1e-12)
    np.testing.assert_allclose(scaled.error, unit.error, rtol=1e-6)


@pytest.mark.parametrize(("length", "start"), ELSEWHERE)
def test_a_shock_tube_moves_and_scales(length, start):
    """q(s + L x, L t) with the jump at s + L x₀ is q(x, t) on (0, 1) with the jump at x₀."""

    def averages(grid, place, t):
        sides = np.array([[1.0, 0.0, 1.0], [0.125, 0.0, 0.1]])[..., None]
        return ShockTube(grid).solve(*(State(*side) for side in sides), np.array([place]), [t])[1]

    moved = averages(CellGrid(N, length, start), start + 0.4 * length, 0.2 * length)
    np.testing.assert_allclose(moved, averages(CellGrid(N), 0.4, 0.2), atol=1e-12)


@pytest.mark.parametrize(("length", "start"), ELSEWHERE)
def test_derivatives_scale_with_the_circle(length, start, u0):
    grid, unit = PeriodicGrid(N, length, start), PeriodicGrid(N)
    np.testing.assert_allclose(derivative_symbol(grid) * length, derivative_symbol(unit))
    np.testing.assert_allclose(antiderivative_symbol(grid), length * antiderivative_symbol(unit))
    torus = Torus((grid, PeriodicGrid(N)))
    wave = np.broadcast_to(u0.T, (N, N))
    found = torus.to_points(torus.d[0] * torus.to_modes(wave))
    angle = 2 * np.pi * np.arange(N) / N
    slope = 2 * np.pi / length * (np.cos(angle) - 0.6 * np.sin(2 * angle))
    np.testing.assert_allclose(found, np.broadcast_to(slope[:, None], (N, N)), atol=1e-12)


FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=N)
ON_THE_UNIT_INTERVAL = {
    "finite volumes": FiniteVolume,
    "finite elements": FiniteElement,
    "bounds of errors": ErrorBound,
    "two phases": lambda grid: PhaseFlow(grid, (3.0, 12.0)),
    "the published scheme": PublishedScheme,
    "total variation": lambda grid: TotalVariation(grid, grid.x, (3.0, 12.0), 1.0)._flow,
    "a field on the square": lambda grid: FIELD(grid, 3, [0]),
    "a field at nodes": lambda grid: FIELD(NodalGrid(N, grid.length, grid.start), 3, [0]),
    "a field on the circle": lambda grid: PeriodicGaussianField(7.0, 7.0, 2.0, modes=9)(
        PeriodicGrid(N, grid.length, grid.start), 3, [0]
    ),
}


@pytest.mark.parametrize(("length", "start"), ELSEWHERE)
@pytest.mark.parametrize("name", ON_THE_UNIT_INTERVAL)
def test_what_lives_on_the_unit_interval_refuses_others(name, length, start):
    with pytest.raises(ValueError, match=rf"on \(0, 1\), got \({start:g}, {start + length:g}\)"):
        ON_THE_UNIT_INTERVAL[name](CellGrid(N, length, start))
    ON_THE_UNIT_INTERVAL[name](CellGrid(N))
