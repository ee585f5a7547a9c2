"""Solving on cells finer than those of the coefficient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.inverse.observation import Separable, averages, interpolation
from pdegen.inverse.setting import Forward
from pdegen.numerics.device import Array

if TYPE_CHECKING:  # its compiler takes a while
    from pdegen.equations.darcy.finite_volume import Solution


class Solver(Protocol):
    """Solves -div(a grad u) = f for coefficients that are constant on each cell."""

    def solve(self, a: Any, f: float) -> Solution: ...


def refined(solver: Solver, factor: int, a: Array, source: float) -> Solution:
    """Solve with each cell cut into factor² cells of the same coefficient; u at the centres."""
    xp = array_namespace(a)
    fine = xp.astype(a, xp.float64)
    if factor > 1:
        fine = xp.repeat(xp.repeat(fine, factor, axis=1), factor, axis=2)
    solution = solver.solve(fine, source)
    centres = slice(factor // 2, None, factor)
    return solution._replace(u=solution.u[:, centres, centres])


def forward(
    solver: Solver, factor: int, grid: CellGrid, source: float, x: Float[np.ndarray, " m"]
) -> Forward:
    """u at points x for a coefficient on any cells, averaged on those of a grid; the solver has
    cells finer by an odd factor."""
    matrix = interpolation(grid, x)
    observation = Separable(matrix, matrix)

    def solution(a: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "m m"]:
        mean = averages(len(a), grid.n)
        return observation(refined(solver, factor, (mean @ a @ mean.T)[None], source).u[0])

    return solution
