"""Inverse problems with a Gaussian prior: the maximum a posteriori estimate and its covariance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from jaxtyping import Float

from pdegen.domains import PeriodicGrid
from pdegen.inverse.gauss_newton import newton_step
from pdegen.numerics.device import SolveError

Unknowns = Float[np.ndarray, " p"]
Data = Float[np.ndarray, " m"]

_CONVERGED = 1e-6  # smallest increase of the log density that a further step is worth
_SHORTEST = 1e-3  # smallest step length of the line search


class LinearisedMap(Protocol):
    """The map G and its derivative J at a point ξ."""

    @property
    def values(self) -> Data:
        """G(ξ)."""
        ...

    def jvp(self, change: Float[np.ndarray, "*k p"], /) -> Float[np.ndarray, "*k m"]:
        """The directional derivative J δξ."""
        ...

    def vjp(self, v: Data, /) -> Unknowns:
        """The product Jᵀ v with the transposed derivative."""
        ...


class SmoothMap(Protocol):
    """The map G from unknowns ξ to data.

    Raises SolveError if the equation cannot be solved for the given ξ.
    """

    def linearise(self, xi: Unknowns, /) -> LinearisedMap: ...


@dataclass(frozen=True)
class GaussianEstimate:
    """Laplace's approximation of a posterior: a Gaussian centred at the posterior's maximum."""

    coefficients: Unknowns  # ξ
    linearised: LinearisedMap  # G at ξ
    data: Data  # d
    std: Data  # σ
    solves: int  # number of solves, those of tangent and adjoint equations included
    iterations: int = 0  # number of steps
    # whether a further step is worth less than the tolerance; if not, the steps ended at their
    # limit, or because no step length increased the density
    converged: bool = False

    @property
    def misfit(self) -> float:
        """|(d - G(ξ))/σ|²/m for m data. The value is near 1 if σ is the deviation of the noise."""
        return float(np.mean(((self.data - self.linearised.values) / self.std) ** 2))

    @property
    def density(self) -> float:
        """The logarithm of the posterior density of ξ, up to a constant."""
        return -0.5 * (self.misfit * self.data.size + float(self.coefficients @ self.coefficients))

    @cached_property
    def precision(self) -> Float[np.ndarray, "p p"]:
        """1 + Jᵀ σ⁻² J, the inverse of the posterior covariance.

        The computation takes one tangent solve for each unknown.
        """
        columns = self.linearised.jvp(np.eye(self.coefficients.size)) / self.std
        return np.eye(self.coefficients.size) + columns @ columns.T

    @cached_property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """The posterior covariance of ξ."""
        return np.linalg.inv(self.precision)


@dataclass(frozen=True)
class GaussianInversion:
    """Minimise ½ |(d - G(ξ))/σ|² + ½ |ξ|² over ξ by Gauss-Newton steps.

    The minimiser is the maximum a posteriori estimate for the data d = G(ξ) + e, e ~ N(0, diag σ²),
    and the prior ξ ~ N(0, 1). Each step is halved until the objective decreases. If G is linear,
    Laplace's approximation is the exact posterior. If G is nonlinear and the noise is small, the
    minimum lies in a narrow valley. The method therefore begins with a deviation larger than σ, and
    decreases it to σ.

    References: T. Bui-Thanh et al., A computational framework for infinite-dimensional Bayesian
    inverse problems I, SIAM J. Sci. Comput. 35 (2013), section 5.
    """

    forward: SmoothMap  # G
    # deviations that are added to σ, one after another, over the root mean square of the data;
    # those below σ are left out
    added_noise: tuple[float, ...] = (0.1, 1e-2, 1e-3, 1e-4)
    steps: int = 300  # largest number of steps for each of these deviations
    limit: int = 200  # largest number of iterations for the linear system of a step
    rtol: float = 1e-4  # relative tolerance of the linear systems

    def __call__(self, data: Data, std: Data, start: Unknowns) -> GaussianEstimate:
        """Estimate ξ for one sample from data d with noise of deviation σ, starting at `start`.

        Raises ValueError if a deviation is not positive, and SolveError if G cannot be solved at
        the start.
        """
        if not bool(np.all(std > 0)):
            raise ValueError("the deviation of the noise must be positive")
        size, noise = float(np.sqrt(np.mean(data**2))), float(np.mean(std))
        linearised, solves = self.forward.linearise(start), 1
        estimate = GaussianEstimate(start, linearised, data, std, solves)
        for share in (*(s for s in self.added_noise if s * size > noise), 0.0):
            sigma = np.sqrt(std**2 + (share * size) ** 2)
            estimate = self._maximised(replace(estimate, std=sigma, converged=False))
        return estimate

    def _maximised(self, estimate: GaussianEstimate) -> GaussianEstimate:
        """Maximise the posterior density for the σ of the given estimate, starting at that
        estimate.
        """
        for _ in range(self.steps):
            xi, at, sigma = estimate.coefficients, estimate.linearised, estimate.std
            used = 0  # solves of this step

            def hessian(v: np.ndarray, at: LinearisedMap = at, s: Data = sigma) -> np.ndarray:
                nonlocal used
                used += 2
                return v + at.vjp(at.jvp(v) / s**2)

            downhill = at.vjp((estimate.data - at.values) / sigma**2) - xi
            step = newton_step(hessian, downhill, self.limit, self.rtol)
            estimate = replace(estimate, solves=estimate.solves + used + 1)
            if float(step @ downhill) < _CONVERGED:
                return replace(estimate, converged=True)
            estimate = self._line_search(estimate, step)
            if estimate.coefficients is xi:
                break
            estimate = replace(estimate, iterations=estimate.iterations + 1)
        return estimate

    def _line_search(self, estimate: GaussianEstimate, step: Unknowns) -> GaussianEstimate:
        """Halve the step until the density increases, and return the new estimate.

        If no step length increases the density, only the number of solves of the estimate changes.
        """
        length, solves = 1.0, estimate.solves
        while length >= _SHORTEST:
            xi, solves = estimate.coefficients + length * step, solves + 1
            try:
                linearised = self.forward.linearise(xi)
            except SolveError:  # the step is too long
                length /= 2
                continue
            moved = replace(estimate, coefficients=xi, linearised=linearised)
            if moved.density > estimate.density:
                return replace(moved, solves=solves)
            length /= 2
        return replace(estimate, solves=solves)


@dataclass(frozen=True)
class CircleModes:
    """u(x) = Σ_k s_k (ξ_k cos 2πkx + ζ_k sin 2πkx), k = 1 ... K, on the circle of length 1.

    If ξ_k, ζ_k ~ N(0, 1), u is a Gaussian field of mean zero. It has the same distribution as a
    `pdegen.sampling.gaussian.PeriodicGaussianField` with the same deviations. The vector of
    coefficients is (ξ₁, ζ₁, ξ₂, ζ₂, ...).

    >>> modes = CircleModes(np.array([1.0, 0.5]), PeriodicGrid(8))
    >>> modes.field_of(np.array([0.0, 1.0, 0.0, 0.0])).round(3).tolist()
    [0.0, 0.707, 1.0, 0.707, 0.0, -0.707, -1.0, -0.707]
    """

    stds: Float[np.ndarray, " K"]  # s_k
    grid: PeriodicGrid  # points; K < n/2

    def __post_init__(self) -> None:
        if 2 * len(self.stds) >= self.grid.n or self.grid.length != 1:
            raise ValueError(
                f"{len(self.stds)} modes need the circle of length 1 and more than "
                f"{2 * len(self.stds)} points, got {self.grid}"
            )

    @cached_property
    def basis(self) -> Float[np.ndarray, "n p"]:
        """The matrix Φ that maps coefficients to values of u at the grid points."""
        angles = 2 * np.pi * np.outer(self.grid.x, np.arange(1, len(self.stds) + 1))
        both = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * self.stds[:, None]
        return both.reshape(self.grid.n, -1)

    def field_of(self, xi: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k n"]:
        """Values of u at the grid points."""
        u: np.ndarray = xi @ self.basis.T
        return u

    def transposed(self, v: Float[np.ndarray, " n"]) -> Unknowns:
        """Φᵀ v. If v is a gradient with respect to u, this is the one with respect to ξ and ζ."""
        return v @ self.basis
