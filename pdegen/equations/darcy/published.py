"""The numerical scheme that produced the published Darcy files, and its effect on labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid, NodalGrid
from pdegen.equations.darcy.finite_volume import Solution, check_positive, five_point_matrix

Cells = Float[np.ndarray, "batch n n"]


@dataclass(frozen=True)
class PublishedScheme:
    """Solves -div(a grad u) = f on (0,1)², u = 0 on the boundary, by the three published steps.

    1. Not-a-knot bicubic splines interpolate a and f from the n x n cell centres to n x n nodes,
       which include the boundary. At the boundary the splines extrapolate by half a cell.
    2. The five-point scheme with arithmetic means on faces is solved directly on the nodes.
    3. Splines of the same kind interpolate u from the nodes back to the cell centres.

    A spline through a jump overshoots. For the values 3 and 12, the coefficient on nodes ranges
    from about -5 to 23. The error of labels is 0.3 % and more. `FiniteVolume` is the accurate
    solver.

    References: the script solve_gwf.m of the Fourier Neural Operator (Li et al. 2021).

    >>> round(float(PublishedScheme(CellGrid(85))(np.ones((1, 85, 85))).max()), 4)
    0.0737
    """

    grid: CellGrid  # the cells of each axis, at least 4

    def __post_init__(self) -> None:
        self.grid.check_unit()

    @cached_property
    def to_nodes(self) -> Float[np.ndarray, "n n"]:
        """Matrix of the spline interpolation from cell centres to nodes, along one axis."""
        nodes = NodalGrid(self.grid.n).x
        return scipy.interpolate.make_interp_spline(self.grid.x, np.eye(self.grid.n))(nodes)

    @cached_property
    def to_centres(self) -> Float[np.ndarray, "n n"]:
        """Matrix of the spline interpolation from nodes to cell centres, along one axis."""
        nodes = NodalGrid(self.grid.n).x
        return scipy.interpolate.make_interp_spline(nodes, np.eye(self.grid.n))(self.grid.x)

    def nodal_coefficient(self, a: Cells) -> Cells:
        """The coefficient at the nodes (step 1)."""
        return self.to_nodes @ a @ self.to_nodes.T

    def __call__(self, a: Cells, f: float = 1.0) -> Cells:
        """u at the cell centres. See `solve`."""
        return self.solve(a, f).u

    def solve(self, a: Cells, f: float = 1.0) -> Solution:
        """Solve for a batch of coefficients and a constant source.

        The coefficients are positive values at the cell centres, indexed [x, y].

        Raises SolveError if a coefficient is not positive.
        """
        check_positive(a)
        h = NodalGrid(self.grid.n).spacing
        u, residual = np.zeros_like(a), np.empty(len(a))
        for row, nodal in enumerate(self.nodal_coefficient(a)):
            on_x, on_y = (nodal[1:] + nodal[:-1]) / 2, (nodal[:, 1:] + nodal[:, :-1]) / 2
            matrix = five_point_matrix(on_x[:, 1:-1], on_y[1:-1])
            b = np.full((self.grid.n - 2) ** 2, h * h * f)
            # the matrix may be indefinite, so pivoting is needed
            interior = scipy.sparse.linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.1
            ).solve(b)
            residual[row] = np.linalg.norm(b - matrix @ interior) / (np.linalg.norm(b) or 1.0)
            nodes = np.zeros_like(nodal)
            nodes[1:-1, 1:-1] = interior.reshape(len(nodal) - 2, -1)
            u[row] = self.to_centres @ nodes @ self.to_centres.T
        return Solution(u, residual, np.zeros(len(a), dtype=np.int64))
