"""The inverse Laplacian on a cell grid: sine transforms along y, tridiagonal solves along x."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.kernels import tridiagonal_solves
from pdegen.numerics import sines


@dataclass(frozen=True)
class Poisson:
    """Solves L u = r on a cell grid, (L u)_ij = Σ_faces (u_ij - u_neighbour), u = 0 at the walls.

    L is h² times the negative five-point Laplacian. Walls lie half a cell from the outermost
    centres, so that each face on a wall contributes 2 u_ij. A sine transform diagonalises L along
    y. For each sine, a tridiagonal system along x remains, which takes two sweeps.

    >>> poisson = Poisson(CellGrid(4))
    >>> u = poisson(np.eye(4))
    >>> float((4 * u[1, 1] - u[0, 1] - u[2, 1] - u[1, 0] - u[1, 2]).round(12))
    1.0
    """

    grid: CellGrid  # the cells along each axis
    # whether sine transforms are FFTs or matrix products; by default the faster one
    fft: bool | None = None

    @cached_property
    def _fft(self) -> bool:
        return sines.faster_by_fft(self.grid.n) if self.fft is None else self.fft

    @cached_property
    def sines(self) -> Float[np.ndarray, "n n"]:
        """The orthonormal matrix √(2/n) sin(πk(j + ½)/n) of the DST-II, indexed [j, k-1]."""
        return sines.matrix(self.grid)

    @cached_property
    def eigenvalues(self) -> Float[np.ndarray, " n"]:
        """Eigenvalues λ_k = 4 sin²(πk/2n), k = 1 ... n, of the operator along one axis."""
        n = self.grid.n
        return 4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * n)) ** 2

    @cached_property
    def pivots(self) -> Float[np.ndarray, "n n"]:
        """Inverse pivots of Thomas' algorithm along x for each sine along y, indexed [x, sine]."""
        n = self.grid.n
        diagonal = np.full(n, 2.0)
        diagonal[0] += 1
        diagonal[-1] += 1  # 4 in a single cell
        pivots, last = np.empty((n, n)), np.zeros(n)
        for i in range(n):
            pivots[i] = last = 1 / (diagonal[i] + self.eigenvalues - last)
        return pivots

    def transformed(self, r: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The sine transform of r along y."""
        if self._fft:
            return scipy.fft.dst(r, type=2, norm="ortho", workers=1)
        return r @ self.sines

    def __call__(self, r: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u with L u = r."""
        return self.from_transformed(self.transformed(r))

    def from_transformed(self, hat: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """u with L u = r, where `hat` is the sine transform of r along y; `hat` is overwritten."""
        tridiagonal_solves(hat, self.pivots)
        if self._fft:
            return scipy.fft.dst(hat, type=3, norm="ortho", overwrite_x=True, workers=1)
        return hat @ self.sines.T
