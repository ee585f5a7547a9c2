"""Conjugate gradients on the interface of a piecewise constant coefficient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.equations.darcy.kernels import (
    add_jumps,
    add_transformed,
    evaluate,
    interface_cg,
    residual,
    tridiagonal_solves,
)
from pdegen.equations.darcy.poisson import Poisson

Graph = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray
]  # fmt: skip


@dataclass(frozen=True)
class InterfaceSolver:
    """Solves A u = b for the finite volumes of a piecewise constant coefficient.

    Let Γ be the set of cells at a jump of a, and let L be the Laplacian. The solution is written as
    u = L⁻¹(b/a + σ), where the unknown "charges" σ are 0 outside Γ. Outside Γ, A = a L, so that u
    satisfies the equation for any σ. On Γ the equation is a σ + J L⁻¹(b/a + σ) = 0. Here
    J = A - a L couples the two cells of each face at a jump.

    Conjugate gradients on A, preconditioned by L, solve this equation on Γ. The iterates are stored
    on Γ only. Each iteration applies L⁻¹ from Γ to Γ once, by one tridiagonal sweep and by
    sine transforms that are restricted to the cells of Γ. The number of iterations does not depend
    on the mesh, and hardly on the contrast.

    Quantities that depend on a alone are cached for further right-hand sides.
    """

    poisson: Poisson  # L⁻¹ on the grid
    a: Float[np.ndarray, "n n"]  # coefficient
    harmonic: bool  # whether means on faces are harmonic, not arithmetic
    limit: int  # largest number of iterations

    @cached_property
    def _graph(self) -> Graph:
        return interface_graph(self.a, self.harmonic)

    def __call__(
        self, b: Float[np.ndarray, "n n"], rtol: float
    ) -> tuple[Float[np.ndarray, "n n"], int]:
        """u and the number of iterations.

        If `limit` iterations suffice, then ‖b - A u‖ <= rtol ‖b‖. The right-hand side b includes
        the factor h².
        """
        a, poisson = self.a, self.poisson
        rows, columns, values, first, second, jump1, jump2 = self._graph
        size = float(np.linalg.norm(b))
        u, r, z, iterations = np.zeros_like(b), b, np.empty(len(columns)), 0
        for _ in range(3):  # once; more only if rounding leaves a residual above the tolerance
            hat = poisson.transformed(r / a)
            work = hat.copy()
            tridiagonal_solves(work, poisson.pivots)
            evaluate(rows, columns, poisson.sines, work, z)
            on_interface = np.zeros_like(z)
            add_jumps(first, second, -jump1, -jump2, z, on_interface)
            charges, count = interface_cg(
                rows, columns, values, first, second, jump1, jump2,
                poisson.sines, poisson.pivots, on_interface, 0.5 * rtol * size,
                self.limit - iterations,
            )  # fmt: skip
            add_transformed(rows, columns, charges, poisson.sines, hat)
            u += poisson.from_transformed(hat)
            iterations += count
            r = np.empty_like(b)
            if residual(a, self.harmonic, b, u, r) <= (rtol * size) ** 2:
                break
        return u, iterations


def interface_graph(a: Float[np.ndarray, "n m"], harmonic: bool) -> Graph:
    """The cells at jumps of a, row by row, and the faces at which a jumps.

    Returns:
        start, columns: The cells start[i] <= c < start[i+1] lie in row i. Cell c lies in column
            columns[c].
        values: The coefficient a in these cells.
        first, second: Numbers c and d of the two cells at each face.
        jump1, jump2: a_f - a_c and a_f - a_d, where a_f is the coefficient on the face.
    """
    n, m = a.shape
    faces = np.zeros((n, m, 2), bool)  # below each cell, and to its right
    below, right = faces[:-1, :, 0], faces[:, :-1, 1]
    np.not_equal(a[:-1], a[1:], out=below)
    np.not_equal(a[:, :-1], a[:, 1:], out=right)
    marked = faces[..., 0] | faces[..., 1]
    marked[1:] |= below
    marked[:, 1:] |= right
    cells, coefficients = np.flatnonzero(marked), a.ravel()
    number = np.empty(n * m, np.int64)  # of the marked cells
    number[cells] = np.arange(len(cells))
    jumps = np.flatnonzero(faces)
    cell = jumps >> 1
    neighbour = cell + np.where(jumps & 1, 1, m)
    v, w = coefficients[cell], coefficients[neighbour]
    mean = 2 * v * w / (v + w) if harmonic else (v + w) / 2
    start = np.zeros(n + 1, np.int64)
    np.cumsum(marked.sum(axis=1), out=start[1:])
    ends = number[cell], number[neighbour]
    return start, cells % m, coefficients[cells], *ends, mean - v, mean - w
