"""Bilinear finite elements for Darcy flow: a second solver that shares no code with the first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float, Int

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import Solution, check_positive

Cells = Float[np.ndarray, "batch n n"]

# stiffness of the square element for a = 1: corners (0,0), (1,0), (0,1), (1,1)
_ELEMENT = np.array([[4, -1, -1, -2], [-1, 4, -2, -1], [-1, -2, 4, -1], [-2, -1, -1, 4]]) / 6


@dataclass(frozen=True)
class BilinearElements:
    """Solves -div(a grad u) = f on (0,1)², u = 0 on the boundary, by Q1 elements on squares.

    Each of the n x n cells, on which a is constant, has `parts` x `parts` elements. `parts` is
    even, so that cell centres are nodes: u there needs no interpolation. A sparse direct solver
    solves the equations.

    >>> round(float(BilinearElements(CellGrid(11))(np.ones((1, 11, 11)))[0, 5, 5]), 4)
    0.0738
    """

    grid: CellGrid  # the cells of each axis
    parts: int = 2  # elements of a cell along each axis

    def __post_init__(self) -> None:
        self.grid.check_unit()
        if self.parts < 2 or self.parts % 2:
            raise ValueError(f"parts must be an even number, at least 2, got {self.parts}")

    @property
    def elements(self) -> int:
        """Number of elements along each axis."""
        return self.grid.n * self.parts

    @cached_property
    def corners(self) -> Int[np.ndarray, "elements 4"]:
        """Numbers of the nodes of each element, in the order of the element matrix."""
        nodes = np.arange((self.elements + 1) ** 2).reshape(self.elements + 1, -1)
        return np.stack(
            [nodes[:-1, :-1], nodes[1:, :-1], nodes[:-1, 1:], nodes[1:, 1:]], axis=-1
        ).reshape(-1, 4)

    def __call__(self, a: Cells, f: float | Cells = 1.0) -> Cells:
        """u at the cell centres. See `solve`."""
        return self.solve(a, f).u

    def solve(self, a: Cells, f: float | Cells = 1.0) -> Solution:
        """Solve for a batch of coefficients, positive values on the cells, indexed [x, y].

        Args:
            f: The source: a number, or values on the cells.

        Raises SolveError if a coefficient is not positive.
        """
        check_positive(a)
        size, free = self.elements + 1, slice(1, -1)
        rows, columns = self.corners.repeat(4, axis=1).ravel(), np.tile(self.corners, 4).ravel()
        interior = np.arange(size**2).reshape(size, size)[free, free].ravel()
        source = np.broadcast_to(np.asarray(f, dtype=np.float64), a.shape)
        u, residual = np.zeros(a.shape), np.empty(len(a))
        for row, (coefficient, density) in enumerate(
            zip(a.astype(np.float64), source, strict=True)
        ):
            values = self._on_elements(coefficient)[:, None] * _ELEMENT.ravel()
            matrix = scipy.sparse.csc_array((values.ravel(), (rows, columns)), (size**2,) * 2)
            load = np.zeros(size**2)
            quarter = self._on_elements(density) / (4 * self.elements**2)
            np.add.at(load, self.corners, quarter[:, None])
            matrix, b = matrix[interior][:, interior].tocsc(), load[interior]
            solved = scipy.sparse.linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0
            ).solve(b)
            residual[row] = np.linalg.norm(b - matrix @ solved) / (np.linalg.norm(b) or 1.0)
            nodes = solved.reshape(size - 2, -1)  # without the walls
            u[row] = nodes[self.parts // 2 - 1 :: self.parts, self.parts // 2 - 1 :: self.parts]
        return Solution(u, residual, np.zeros(len(a), dtype=np.int64))

    def _on_elements(self, cells: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " elements"]:
        return cells.repeat(self.parts, axis=0).repeat(self.parts, axis=1).ravel()
