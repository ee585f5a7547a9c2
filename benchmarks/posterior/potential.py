"""Potential of two phases given noisy data, with phases on finer cells than the flow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from benchmarks.posterior.metropolis import Potential
from pdegen.inverse.gaussian import Coefficients, LowRankCovariance
from pdegen.inverse.phases import Differentiated, Forward, GridModel

Field = Float[np.ndarray, "n n"]


@dataclass(frozen=True)
class OfFractions:
    """u(M p Mᵀ): p on fine cells, the flow on larger cells with the fractions of the phases.

    An interface that moves by one fine cell changes u slightly. On the cells of the flow it would
    jump over a whole cell, which a chain cannot follow.

    Args:
        flow: Map from fractions to u.
        means: Averages M from fine cells to the cells of the flow.
    """

    flow: Forward
    means: Float[np.ndarray, "m n"]

    def linearise(self, p: Field) -> Differentiated:
        """u, and its derivatives with respect to p."""
        return _OfFractionsAt(self.flow.linearise(self.means @ p @ self.means.T), self.means)


@dataclass(frozen=True)
class _OfFractionsAt:
    at: Differentiated
    means: Float[np.ndarray, "m n"]

    @property
    def u(self) -> Field:
        return self.at.u

    def jvp(self, dp: Field) -> Field:
        return self.at.jvp(self.means @ dp @ self.means.T)

    def vjp(self, v: Field) -> Field:
        return self.means.T @ self.at.vjp(v) @ self.means


@dataclass(frozen=True)
class PhasePotential:
    """Φ(ξ) = ½ rᵀ R⁻¹ r,  r = d - m - H u(p),  p = 1 where g(ξ) >= 0 and 0 elsewhere.

    Phases are not smoothed, so Φ jumps where a cell changes its phase. Only for the curvature, p is
    the normal distribution function of g/δ, as in `PhaseInversion`.

    Args:
        level: The model, the law of its error (m and a part of R), and the prior of g.
        data: Data d.
        std: Standard deviation of their noise.
        width: Smoothing width δ of the curvature, in deviations of g.
        modes: Number of lowest modes along an axis that the curvature includes.
    """

    level: GridModel
    data: np.ndarray
    std: np.ndarray
    width: float = 0.1
    modes: int = 12

    @cached_property
    def covariance(self) -> LowRankCovariance:
        """Covariance R of noise and model error."""
        size = float(np.sqrt(np.mean(self.data**2)))
        return self.level.error.with_noise(self.std, size)

    def phase(self, xi: Coefficients) -> Field:
        """Phase p of coefficients ξ."""
        return (self.level.prior.field_of(xi) >= 0).astype(np.float64)

    def predicted(self, xi: Coefficients) -> np.ndarray:
        """Predicted data H u(p) + m."""
        level = self.level
        u = level.forward.linearise(self.phase(xi)).u
        return level.observation(u) + level.error.mean

    def misfit(self, predicted: np.ndarray) -> float:
        """Misfit ½ rᵀ R⁻¹ r with r = d - predicted."""
        r = self.data - predicted
        return 0.5 * float(np.vdot(r, self.covariance.inverse(r)))

    @property
    def potential(self) -> Potential:
        """The potential Φ for `Metropolis`."""
        return Potential(self.predicted, self.misfit)

    def curvature(self, xi: Coefficients) -> Float[np.ndarray, "modes modes"]:
        """Jᵀ R⁻¹ J over the raveled coefficients, 0 beyond the included modes."""
        level, prior = self.level, self.level.prior
        width = self.width * float(np.sqrt(np.mean(prior.std**2)))
        z = prior.field_of(xi) / width
        slope = np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * width)
        at = level.forward.linearise(scipy.special.ndtr(z))
        data = np.eye(self.data.size).reshape(-1, *self.data.shape)
        rows = [prior.transposed(slope * at.vjp(level.observation.transposed(row))) for row in data]
        jacobian = np.stack(rows)[:, : self.modes, : self.modes].reshape(len(data), -1)
        weighted = np.stack([self.covariance.inverse(row).ravel() for row in data])
        low = np.zeros(xi.shape, dtype=bool)
        low[: self.modes, : self.modes] = True
        places = np.flatnonzero(low)
        full = np.zeros((xi.size, xi.size))
        full[np.ix_(places, places)] = jacobian.T @ weighted @ jacobian
        return full
