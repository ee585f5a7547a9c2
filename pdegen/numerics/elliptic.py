"""Discretised linear elliptic equations: residuals of approximate solutions, and corrections."""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array
from pdegen.numerics.sines import Linear, conjugate_gradients


@dataclass(frozen=True)
class EllipticSystem:
    """A (u - walls) = b for a batch of fields, with A symmetric positive definite and B near A⁻¹.

    B is the solver's preconditioner, such as the inverse Laplacian, so that (r·B r)^½ is a norm of
    H⁻¹. All maps accept tensors of PyTorch, with derivatives.

    >>> import numpy as np
    >>> system = EllipticSystem(lambda u: 4 * u, lambda r: r / 4, np.ones((1, 2, 2)))
    >>> system.residual(np.full((1, 2, 2), 0.2)).round(6), system.corrected(np.zeros((1, 2, 2)), 1)
    (array([0.2]), array([[[0.25, 0.25],
            [0.25, 0.25]]]))
    """

    operator: Linear  # A
    inverse: Linear  # B
    b: Float[Array, "batch n n"]
    walls: float = 0.0  # u on the boundary

    def residual(self, u: Float[Array, "batch n n"]) -> Float[Array, " batch"]:
        """(r·B r / b·B b)^½ with r = b - A (u - walls), for each sample.

        If B = A⁻¹, this is the error of u in the energy norm, relative to the discrete solution.
        Otherwise it differs from that by at most the root of the condition number of B A.
        """
        xp = array_namespace(u)
        r, size = self._remainder(u), xp.sum(self.b * self.inverse(self.b), axis=(1, 2))
        return xp.sqrt(xp.sum(r * self.inverse(r), axis=(1, 2)) / size)

    def corrected(self, u: Float[Array, "batch n n"], steps: int) -> Float[Array, "batch n n"]:
        """u after steps of conjugate gradients that start at u, in float64."""
        r = self._remainder(u)
        return u + conjugate_gradients(self.operator, self.inverse, r, 0.0, steps)[0]

    def _remainder(self, u: Array) -> Array:
        """r = b - A (u - walls)."""
        return self.b - self.operator(array_namespace(u).astype(u, self.b.dtype) - self.walls)
