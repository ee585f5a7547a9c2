"""The law of a Gaussian field as a prior, in coefficients that are independent and N(0, 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.sampling.gaussian import SquareGaussianField

Coefficients = Float[np.ndarray, "m m"]


@dataclass(frozen=True)
class Prior:
    """g = Φ(s ∘ ξ)Φᵀ on cells, ξ_pq ~ N(0, 1): the law of `field`, its lowest modes.

    >>> prior = Prior(SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=8), CellGrid(16))
    >>> prior.field_of(prior.zero).shape, prior.zero.shape
    ((16, 16), (8, 8))
    """

    field: SquareGaussianField  # the law; s are the deviations of its modes
    grid: CellGrid  # cells on which g is wanted. Of the modes those are left that it resolves

    @cached_property
    def basis(self) -> Float[np.ndarray, "n m"]:
        """Φ."""
        return np.ascontiguousarray(self.field.basis(self.grid)[:, : self.grid.n])

    @cached_property
    def deviations(self) -> Coefficients:
        """s."""
        modes = self.basis.shape[1]
        return self.field.mode_deviations[:modes, :modes]

    @property
    def zero(self) -> Coefficients:
        """The coefficients of g = 0, the mean."""
        return np.zeros_like(self.deviations)

    @cached_property
    def deviation(self) -> Float[np.ndarray, "n n"]:
        """(E g²)^½ in each cell."""
        squares = self.basis**2
        return np.sqrt(squares @ self.deviations**2 @ squares.T)

    def field_of(self, xi: Float[np.ndarray, "*batch m m"]) -> Float[np.ndarray, "*batch n n"]:
        """g."""
        return self.basis @ (self.deviations * xi) @ self.basis.T

    def transposed(self, v: Float[np.ndarray, "n n"]) -> Coefficients:
        """The gradient with respect to ξ of a number with the gradient v with respect to g."""
        return self.deviations * (self.basis.T @ v @ self.basis)

    def transferred(self, xi: Float[np.ndarray, "k k"]) -> Coefficients:
        """Coefficients of another grid: the same modes, 0 for those that it does not have."""
        mine, common = self.zero, min(len(xi), len(self.zero))
        mine[:common, :common] = xi[:common, :common]
        return mine

    def nearest(self, g: Float[np.ndarray, "k k"], deviation: float) -> Coefficients:
        """The most likely coefficients of g, known on k x k cells with independent errors.

        On cells the modes are orthogonal, so each has an equation of its own:
        (1 + k² s²/σ²) ξ = s Φᵀ g Φ/σ² with the deviation σ of the errors.
        """
        basis = self.field.basis(CellGrid(len(g)))[:, : len(g)]
        s = self.field.mode_deviations[: basis.shape[1], : basis.shape[1]]
        known = (len(g) / deviation) ** 2
        return self.transferred(s * (basis.T @ g @ basis) / deviation**2 / (1 + known * s**2))
