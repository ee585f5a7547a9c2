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
    interface_graph,
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
    crossing: int  # number of faces between cells of different values (`crossing_faces`)
    harmonic: bool  # whether means on faces are harmonic, not arithmetic
    limit: int  # largest number of iterations

    @cached_property
    def _graph(self) -> Graph:
        return interface_graph(self.a, self.crossing, self.harmonic)

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
