"""Unknowns with a Gaussian law, from noisy data: the largest posterior density and its spread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float

from pdegen.domains import PeriodicGrid
from pdegen.inverse.gauss_newton import newton_step
from pdegen.numerics.errors import SolveError

Unknowns = Float[np.ndarray, " p"]
Data = Float[np.ndarray, " m"]

_CONVERGED = 1e-6  # of the log density, that a further step would add
_SHORTEST = 1e-3  # step of the line search


class LinearisedMap(Protocol):
    """G at some ξ, with its derivative."""

    @property
    def values(self) -> Data:
        """G(ξ)."""
        ...

    def jvp(self, change: Float[np.ndarray, "*k p"], /) -> Float[np.ndarray, "*k m"]:
        """J δξ."""
        ...

    def vjp(self, v: Data, /) -> Unknowns:
        """Jᵀ v."""
        ...


class SmoothMap(Protocol):
    """G, from unknowns ξ to data; SolveError where it cannot be solved."""

    def linearise(self, xi: Unknowns, /) -> LinearisedMap: ...


@dataclass(frozen=True)
class GaussianEstimate:
    """The Gaussian approximation of a posterior at its largest density (Laplace's)."""

    coefficients: Unknowns  # ξ
    at: LinearisedMap  # G there
    data: Data  # d
    deviation: Data  # σ
    solves: int  # solutions that were computed, those of tangent and adjoint equations included

    @property
    def misfit(self) -> float:
        """|(d - G)/σ|²/m: near 1 if the noise is what was said."""
        return float(np.mean(((self.data - self.at.values) / self.deviation) ** 2))

    @property
    def density(self) -> float:
        """The logarithm of the posterior density of ξ, up to a constant."""
        return -0.5 * (self.misfit * self.data.size + float(self.coefficients @ self.coefficients))

    @cached_property
    def precision(self) -> Float[np.ndarray, "p p"]:
        """1 + Jᵀ σ⁻² J, the inverse of the covariance of ξ; takes p tangents."""
        columns = self.at.jvp(np.eye(self.coefficients.size)) / self.deviation
        return np.eye(self.coefficients.size) + columns @ columns.T

    @cached_property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """Of ξ."""
        return np.linalg.inv(self.precision)


@dataclass(frozen=True)
class GaussianInversion:
    """argmin ½ |(d - G(ξ))/σ|² + ½ |ξ|² by steps of Gauss and Newton.

    That is the largest posterior density of data d = G(ξ) + e, e ~ N(0, diag σ²), if ξ ~ N(0, 1). A
    step is halved until the sum falls. For a linear G the estimate is the posterior. Small noise
    makes the sum a narrow valley if G is not linear; so it is approached from larger noise.

    References: T. Bui-Thanh et al., A computational framework for infinite-dimensional Bayesian
    inverse problems I, SIAM J. Sci. Comput. 35 (2013), section 5.
    """

    forward: SmoothMap  # G
    # deviations that are added to σ at first, as shares of the size of the data; those below σ are
    # left out
    added_noise: tuple[float, ...] = (0.1, 1e-2, 1e-3, 1e-4)
    steps: int = 30  # largest number of steps for each of them
    limit: int = 200  # largest number of iterations of their linear systems
    rtol: float = 1e-4  # relative tolerance of these

    def __call__(self, data: Data, deviation: Data, start: Unknowns) -> GaussianEstimate:
        """The estimate of one sample, from d, σ > 0 and ξ to begin with. Raises ValueError on a
        deviation that is not positive, and SolveError if G cannot be solved at the start."""
        if not bool(np.all(deviation > 0)):
            raise ValueError("the deviation of the noise must be positive")
        size, least = float(np.sqrt(np.mean(data**2))), float(np.mean(deviation))
        at, solves = self.forward.linearise(start), 1
        found = GaussianEstimate(start, at, data, deviation, solves)
        for share in (*(s for s in self.added_noise if s * size > least), 0.0):
            sigma = np.sqrt(deviation**2 + (share * size) ** 2)
            found = self._descended(replace(found, deviation=sigma))
        return found

    def _descended(self, found: GaussianEstimate) -> GaussianEstimate:
        """From an estimate to the largest density with its σ."""
        for _ in range(self.steps):
            xi, at, sigma, used = found.coefficients, found.at, found.deviation, 0

            def hessian(v: np.ndarray, at: LinearisedMap = at, s: Data = sigma) -> np.ndarray:
                nonlocal used
                used += 2
                return v + at.vjp(at.jvp(v) / s**2)

            downhill = at.vjp((found.data - at.values) / sigma**2) - xi
            step = newton_step(hessian, downhill, self.limit, self.rtol)
            found = replace(found, solves=found.solves + used + 1)
            if float(step @ downhill) < _CONVERGED:
                break
            lower = self._on(found, step)
            found = lower
            if lower.coefficients is xi:
                break
        return found

    def _on(self, found: GaussianEstimate, step: Unknowns) -> GaussianEstimate:
        """A part of the step that is denser; where there is none, the estimate as it was."""
        length, solves = 1.0, found.solves
        while length >= _SHORTEST:
            xi, solves = found.coefficients + length * step, solves + 1
            try:
                there = replace(found, coefficients=xi, at=self.forward.linearise(xi))
            except SolveError:  # too far
                length /= 2
                continue
            if there.density > found.density:
                return replace(there, solves=solves)
            length /= 2
        return replace(found, solves=solves)


@dataclass(frozen=True)
class CircleModes:
    """u(x) = Σ_k s_k (ξ_k cos 2πkx + ζ_k sin 2πkx), k = 1 ... K, on the circle of length 1.

    With ξ_k, ζ_k ~ N(0, 1) it is a Gaussian field without mean, that of
    `pdegen.sampling.gaussian.PeriodicGaussianField` for its deviations. Coefficients are
    ξ₁, ζ₁, ξ₂, ...

    >>> modes = CircleModes(np.array([1.0, 0.5]), PeriodicGrid(8))
    >>> modes.field_of(np.array([0.0, 1.0, 0.0, 0.0])).round(3).tolist()
    [0.0, 0.707, 1.0, 0.707, 0.0, -0.707, -1.0, -0.707]
    """

    deviations: Float[np.ndarray, " K"]  # s_k
    grid: PeriodicGrid  # points; K < n/2

    def __post_init__(self) -> None:
        if 2 * len(self.deviations) >= self.grid.n or self.grid.length != 1:
            raise ValueError(
                f"{len(self.deviations)} modes need the circle of length 1 and more than "
                f"{2 * len(self.deviations)} points, got {self.grid}"
            )

    @cached_property
    def basis(self) -> Float[np.ndarray, "n p"]:
        """From coefficients to u at the points."""
        angles = 2 * np.pi * np.outer(self.grid.x, np.arange(1, len(self.deviations) + 1))
        both = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * self.deviations[:, None]
        return both.reshape(self.grid.n, -1)

    def field_of(self, xi: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k n"]:
        """u."""
        found: np.ndarray = xi @ self.basis.T
        return found

    def transposed(self, v: Float[np.ndarray, " n"]) -> Unknowns:
        """The gradient by the coefficients of a number with the gradient v by u."""
        return v @ self.basis
