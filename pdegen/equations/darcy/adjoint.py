"""Gradients through u(a), where -div(a grad u) = f, by the adjoint equation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.equations.darcy import kernels
from pdegen.equations.darcy.operator import Diffusion


@dataclass(frozen=True)
class Linearised:
    """u at a, and gradients through the discrete problem R(a, u) = A(a) u - b = 0 there.

    A is symmetric: so the adjoint λ = A⁻¹ v is one solve with the same matrix and preconditioner,
    to the relative tolerance of u, and the gradient of a number with the gradient v with respect to
    u is -(∂R/∂a)ᵀ λ. With a_f the coefficient on a face, λᵀ ∂R/∂a_c is the sum over the faces of
    the cell c of ∂a_f/∂a_c times the jumps of u and of λ. `FiniteVolume.linearise` builds it.

    References: M. Hinze, R. Pinnau, M. Ulbrich and S. Ulbrich, Optimization with PDE Constraints
    (2009), section 1.6.2.

    >>> from pdegen.domains import CellGrid
    >>> from pdegen.equations.darcy.finite_volume import FiniteVolume
    >>> at = FiniteVolume(CellGrid(8)).linearise(np.ones((1, 8, 8)))  # u(a) = u(1)/a for numbers a
    >>> bool(np.isclose(at.vjp(at.u).sum(), -(at.u**2).sum()))
    True
    """

    operator: Diffusion  # A(a)
    u: Float[np.ndarray, "batch n n"]
    inverse: Callable[[np.ndarray], np.ndarray]  # A⁻¹

    def vjp(self, v: Float[np.ndarray, "batch n n"]) -> Float[np.ndarray, "batch n n"]:
        """The gradient with respect to a, of a number with the gradient v with respect to u."""
        if v.shape != self.u.shape:
            raise ValueError(f"expected v of shape {self.u.shape}, got {v.shape}")
        adjoint, harmonic = self.inverse(v), self.operator.faces == "harmonic"
        gradient = np.empty_like(adjoint)
        for a, z, u, out in zip(self.operator.a, adjoint, self.u, gradient, strict=True):
            kernels.sensitivity(a, harmonic, z, u, out)
        return gradient
