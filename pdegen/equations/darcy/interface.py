"""A piecewise constant coefficient: conjugate gradients that live on the interface."""

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

    Away from the cells Γ at a jump, A = a L with the Laplacian L. So with u = L⁻¹(b/a + σ) the
    equation holds there exactly for any charges σ on Γ, and on Γ it reads
    a σ + J L⁻¹(b/a + σ) = 0, where J = A - a L couples the two cells of each face at a jump. This
    is solved by conjugate gradients on A preconditioned by L, whose iterates need values on Γ alone
    and one evaluation of L⁻¹ from Γ to Γ: sines are summed and evaluated only at the cells of Γ,
    beside one tridiagonal sweep. The number of iterations does not depend on the mesh, and hardly
    on the contrast.

    What depends on a alone is kept from one right-hand side to the next.
    """

    poisson: Poisson  # L⁻¹ on the grid
    a: Float[np.ndarray, "n n"]  # coefficient
    crossing: int  # how many faces lie between cells of different values (`crossing_faces`)
    harmonic: bool  # whether faces have the harmonic mean of their cells, or the arithmetic one
    limit: int  # largest number of iterations

    @cached_property
    def _graph(self) -> Graph:
        return interface_graph(self.a, self.crossing, self.harmonic)

    def __call__(
        self, b: Float[np.ndarray, "n n"], rtol: float
    ) -> tuple[Float[np.ndarray, "n n"], int]:
        """u with ‖b - A u‖ <= rtol ‖b‖, if the iterations suffice, and their number; h² is in b."""
        a, poisson = self.a, self.poisson
        rows, columns, values, first, second, jump1, jump2 = self._graph
        size = float(np.linalg.norm(b))
        u, r, z, iterations = np.zeros_like(b), b, np.empty(len(columns)), 0
        for _ in range(3):  # once; again only where rounding left more than the tolerance
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
