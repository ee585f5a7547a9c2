"""Finite elements by dolfinx for -div(a grad u) = f on the unit square, u given on the walls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid, NodalGrid
from pdegen.equations.darcy.finite_volume import Solution, check_positive
from pdegen.numerics.fenicsx import client

Element = Literal["Q1", "P1", "Q2", "P2"]
Function: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray | float]

Source = Float[np.ndarray, "*source n n"] | Function | float
BoundaryValue = Float[np.ndarray, "4 n"] | Function | float
Cells = Float[np.ndarray, "batch n n"]


@dataclass(frozen=True)
class FiniteElement:
    """Solves ∫ a ∇u·∇v = ∫ f v for all v on (0,1)² with u = g on the walls, on n x n cells.

    The coefficient is constant on each cell. The elements are continuous and of degree 1 or 2. Q1
    and Q2 are elements on the cells; P1 and P2 are elements on halves of the cells, cut from lower
    left to upper right. Edges of elements coincide with the walls and with all jumps of the
    coefficient, where u has kinks. At the cell centres, the error is of order 2 for degree 1. For
    degree 2 it is of order 4 if a is constant on subdomains made of cells. For a smooth a, the cell
    values limit the order to 2.

    Each thread has one worker process with dolfinx, which later calls reuse (see `fenicsx`). The
    bits of a solution do not depend on the other samples of the batch. In mode "sample" they do not
    depend on the number of ranks either.

    Raises:
        MissingDolfinxError: At the first solve, if no Python with dolfinx is found.

    >>> solver = FiniteElement(CellGrid(64))
    >>> round(float(solver(np.ones((1, 64, 64))).max()), 4)  # doctest: +SKIP
    0.0736
    """

    grid: CellGrid  # the cells along each axis
    element: Element = "Q1"  # Q1, P1, Q2 or P2
    # "cg", conjugate gradients with algebraic multigrid (hypre), or "cholesky", a direct solver
    # (MUMPS)
    linear: Literal["cg", "cholesky"] = "cg"
    # largest relative residual ‖b - A u‖/‖b‖. Rounding leaves about 1e-11 at 421 x 421
    rtol: float = 1e-10
    limit: int = 200  # largest number of iterations
    ranks: int = 1  # MPI processes of the worker
    # in "sample" each rank solves its own samples; in "domain" all ranks solve each sample, for
    # grids that are too large for one rank
    mode: Literal["sample", "domain"] = "sample"
    timeout: float = 300.0  # largest time for a sample in a worker, set-up included, in seconds

    def __post_init__(self) -> None:
        self.grid.check_unit()

    def __call__(self, a: Cells, f: Source = 1.0, boundary_value: BoundaryValue = 0.0) -> Cells:
        """u at the cell centres. See `solve`."""
        return self.solve(a, f, boundary_value).u

    def solve(self, a: Cells, f: Source = 1.0, boundary_value: BoundaryValue = 0.0) -> Solution:
        """Solve for a batch of coefficients.

        Args:
            a: Positive coefficients of the cells, shape (batch, n, n), indexed [x, y].
            f: Source: a number, cell values of shape (n, n) or (batch, n, n), or a function of
                (x, y), which is evaluated at the nodes.
            boundary_value: Values on the walls: a number, an array of shape (4, n), or a function
                of (x, y). The rows of an array are the values at the centres of the outer faces of
                x = 0, x = 1, y = 0 and y = 1. These values are interpolated linearly (order 2).

        Raises:
            ValueError: If a shape is wrong.
            SolveError: If a coefficient is not positive, or a residual is above `rtol`.
            WorkerError: If the worker dies or exceeds the timeout.
            MissingDolfinxError: If no dolfinx is found.
        """
        n = self.grid.n
        if a.ndim != 3 or a.shape[1:] != (n, n):
            raise ValueError(f"expected a of shape (batch, {n}, {n}), got {a.shape}")
        check_positive(a)
        settings = client.Settings(
            self.element, self.mode, self.linear, float(self.rtol), int(self.limit)
        )
        a = np.ascontiguousarray(a, dtype=np.float64)
        source, values = self._source(f, len(a)), self._boundary_values(boundary_value)
        return Solution(*client.solve(settings, a, source, values, self.ranks, self.timeout))

    def _at_nodes(self, function: Function) -> Float[np.ndarray, "m m"]:
        x = self._nodes.x
        return np.array(np.broadcast_to(function(x[:, None], x), (len(x), len(x))), dtype=float)

    @property
    def _nodes(self) -> NodalGrid:
        return NodalGrid(int(self.element[1]) * self.grid.n + 1)

    def _source(self, f: Source, batch: int) -> np.ndarray | float:
        if callable(f):
            return self._at_nodes(f)
        n, values = self.grid.n, np.asarray(f, dtype=float)
        if values.shape not in ((), (n, n), (batch, n, n)):
            raise ValueError(
                f"f must be a number or of shape ({n}, {n}) or ({batch}, {n}, {n}), got "
                f"{values.shape}"
            )
        return values if values.ndim else float(values)

    def _boundary_values(self, boundary_value: BoundaryValue) -> np.ndarray | float:
        if callable(boundary_value):
            return self._at_nodes(boundary_value)
        n, given = self.grid.n, np.asarray(boundary_value, dtype=float)
        if given.ndim == 0:
            return float(given)
        if given.shape != (4, n):
            raise ValueError(
                f"boundary_value must be a number or of shape (4, {n}), got {given.shape}"
            )
        nodes = self._nodes
        ends = np.diff(given, axis=1)[:, [0, -1]] / 2 if n > 1 else np.zeros((4, 2))
        extended = np.column_stack([given[:, 0] - ends[:, 0], given, given[:, -1] + ends[:, 1]])
        centres = np.concatenate([[0.0], self.grid.x, [1.0]])
        boundary_value = np.stack([np.interp(nodes.x, centres, wall) for wall in extended])  # pyright: ignore[reportUnknownArgumentType]
        west, east, south, north = np.asarray(boundary_value, dtype=float)
        values = np.zeros((nodes.n, nodes.n))
        values[0], values[-1], values[:, 0], values[:, -1] = west, east, south, north
        for i, j, x, y in ((0, 0, west, south), (0, -1, west, north),
                           (-1, 0, east, south), (-1, -1, east, north)):  # fmt: skip
            values[i, j] = (x[j] + y[i]) / 2
        return values
