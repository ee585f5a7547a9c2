"""Solutions on cells that are finer than those of the output."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.methods import FiniteElementMethod, FiniteVolumeMethod, PublishedMethod
from pdegen.inverse.classical import Forward, Separable, averages, interpolation
from pdegen.numerics.device import Array

if TYPE_CHECKING:  # solvers are imported only when they are built, since compilation takes a while
    from pdegen.equations.darcy.finite_volume import FiniteVolume, Solution


class Solver(Protocol):
    """Solves -div(a grad u) = f for coefficients that are constant on each cell."""

    def solve(self, a: Array, f: Array | float) -> Solution: ...


@lru_cache(maxsize=1)
def reference_solver(n: int) -> FiniteVolume:
    """The solver of reference solutions, cached for the next sample."""
    from pdegen.equations.darcy.finite_volume import FiniteVolume

    return FiniteVolume(CellGrid(n), rtol=1e-9)


@lru_cache(maxsize=8)
def solver_of(method: FiniteVolumeMethod | FiniteElementMethod | PublishedMethod, n: int) -> Solver:
    """The solver on n x n cells, which is cached: its set-up takes as long as a few samples."""
    return method.build(n)


def refined(solver: Solver, factor: int, a: Array, source: Array | float) -> Solution:
    """The solution on cells finer by an odd factor, at the centres of the original cells.

    Each cell is cut into factor² cells with the same coefficient and the same source.
    """
    f = source if isinstance(source, int | float) else _on_finer(source, factor)
    solution = solver.solve(_on_finer(a, factor), f)
    centres = slice(factor // 2, None, factor)
    return solution._replace(u=solution.u[:, centres, centres])


def _on_finer(cells: Array, factor: int) -> Array:
    """Values on cells in float64, on cells that are finer by a factor."""
    xp = array_namespace(cells)
    fine = xp.astype(cells, xp.float64)
    return fine if factor == 1 else xp.repeat(xp.repeat(fine, factor, axis=1), factor, axis=2)


def forward_map(
    solver: Solver,
    factor: int,
    grid: CellGrid,
    source: float,
    boundary_value: float,
    x: Float[np.ndarray, " m"],
) -> Forward:
    """The map from a coefficient on any number of cells to u at the points x.

    The map averages the coefficient over the cells of `grid`. The cells of the solver are finer by
    an odd factor.
    """
    matrix = interpolation(grid, x)
    observation = Separable(matrix, matrix)

    def solution(a: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "m m"]:
        mean = averages(len(a), grid.n)
        return observation(
            boundary_value + refined(solver, factor, (mean @ a @ mean.T)[None], source).u[0]
        )

    return solution
