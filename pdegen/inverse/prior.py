"""A Gaussian field as a prior. Its unknown coefficients are independent N(0, 1) variables."""

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
    """The Gaussian field g = Φ(s ∘ ξ)Φᵀ on cells, with independent ξ_pq ~ N(0, 1).

    The columns of Φ are the modes of `field` along one axis, s_pq are the standard deviations of
    the products of modes, and ∘ is the elementwise product. Modes that the cells do not resolve
    are left out.

    >>> prior = Prior(SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=8), CellGrid(16))
    >>> prior.field_of(prior.zero).shape, prior.zero.shape
    ((16, 16), (8, 8))
    """

    field: SquareGaussianField  # the distribution; s are the deviations of its modes
    grid: CellGrid  # the cells of g; modes that they do not resolve are left out

    @cached_property
    def basis(self) -> Float[np.ndarray, "n m"]:
        """The matrix Φ, whose columns are the modes along an axis."""
        return np.ascontiguousarray(self.field.basis(self.grid)[:, : self.grid.n])

    @cached_property
    def stds(self) -> Coefficients:
        """The standard deviations s of the modes."""
        modes = self.basis.shape[1]
        return self.field.mode_stds[:modes, :modes]

    @property
    def zero(self) -> Coefficients:
        """The coefficients of the mean field g = 0."""
        return np.zeros_like(self.stds)

    @cached_property
    def std(self) -> Float[np.ndarray, "n n"]:
        """The standard deviation of g in each cell."""
        squares = self.basis**2
        return np.sqrt(squares @ self.stds**2 @ squares.T)

    def field_of(self, xi: Float[np.ndarray, "*batch m m"]) -> Float[np.ndarray, "*batch n n"]:
        """The field g with the coefficients ξ."""
        return self.basis @ (self.stds * xi) @ self.basis.T

    def transposed(self, v: Float[np.ndarray, "n n"]) -> Coefficients:
        """s ∘ Φᵀ v Φ. If v is the gradient with respect to g, this is the one with respect to ξ."""
        return self.stds * (self.basis.T @ v @ self.basis)

    def transferred(self, xi: Float[np.ndarray, "k k"]) -> Coefficients:
        """Transfer coefficients from another grid to this one.

        Common modes keep their coefficients; all other coefficients are 0.
        """
        coefficients, common = self.zero, min(len(xi), len(self.zero))
        coefficients[:common, :common] = xi[:common, :common]
        return coefficients

    def nearest(self, g: Float[np.ndarray, "k k"], std: float) -> Coefficients:
        """The most likely coefficients, given values of g on k x k cells with independent errors.

        The modes are orthogonal on cells, so the coefficients decouple:
        (1 + k² s²/σ²) ξ = s Φᵀ g Φ/σ², where σ is the standard deviation of the errors.
        """
        basis = self.field.basis(CellGrid(len(g)))[:, : len(g)]
        s = self.field.mode_stds[: basis.shape[1], : basis.shape[1]]
        precision = (len(g) / std) ** 2
        return self.transferred(s * (basis.T @ g @ basis) / std**2 / (1 + precision * s**2))
