"""The viscosity of Burgers' equation from noisy solutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.inversion import (
    TOLERANCE,
    InitialValueInversion,
    LinearisedColeHopf,
    Values,
    rounded,
)
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.inverse.gaussian import GaussianEstimate, GaussianInversion
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import PeriodicGaussianField

_STEP, _STEPS = 0.1, 30  # steps of log ν to either side, in deviations of its law


def evidence(estimate: GaussianEstimate) -> float:
    """log ∫ exp(density) dξ in Laplace's approximation, up to a constant."""
    return estimate.density - 0.5 * float(np.linalg.slogdet(estimate.precision)[1])


class Viscosity(NamedTuple):
    """An estimate of the viscosity ν.

    log: The estimate of log ν.
    std: Posterior standard deviation of log ν.
    converged: Whether all iterations ended by their criterion.
    """

    log: float
    std: float
    converged: bool


@dataclass(frozen=True)
class ViscosityInversion:
    """ν from noisy u(T), if log ν ~ N(log `typical`, `spread`²)."""

    # typical, spread: the law of log ν
    typical: float
    spread: float
    time: float  # T
    points: int  # number of data points; see `InitialValueInversion`

    def from_both(self, u0: Values, data: Values, std: Values) -> Viscosity:
        """Estimate from known u(0) and noisy u(T), by Gauss-Newton steps in log ν.

        Args:
            u0: Initial value without mean, on a solving grid whose number of points is a multiple
                of that of the data.
            data, std: d and σ.
        """
        problem = _KnownStart(self, u0 - u0.mean())  # aliased modes give it a mean
        estimate = GaussianInversion(problem)(data, rounded(data, std), np.zeros(1))
        return Viscosity(
            np.log(self.typical) + self.spread * float(estimate.coefficients[0]),
            self.spread * float(np.sqrt(estimate.covariance[0, 0])),
            estimate.converged,
        )

    def from_solution(self, field: PeriodicGaussianField, data: Values, std: Values) -> Viscosity:
        """Mean and deviation of log ν by the evidence of the data, from the law of u(0) alone.

        The evidence is the density of the data at one ν, integrated over all u(0) by Laplace's
        approximation. It is computed on a grid of ν and summed. The joint maximum over u(0) and ν
        would be biased: a smaller viscosity needs smaller coefficients, whatever the data.
        """
        typical = InitialValueInversion.of_distribution(field, self.typical, self.time, self.points)
        sigma = rounded(data, std)
        estimate = GaussianInversion(typical)(data, sigma, typical.start)
        density, converged = {0.0: evidence(estimate)}, estimate.converged
        for sign in (1, -1):
            xi = estimate.coefficients
            for z in sign * _STEP * np.arange(1, _STEPS + 1):
                nu = self.typical * float(np.exp(self.spread * z))
                inversion = GaussianInversion(replace(typical, viscosity=nu), added_noise=())
                try:
                    conditional = inversion(data, sigma, xi)
                except SolveError:  # the viscosity is too small for double precision
                    break
                density[float(z)], xi = evidence(conditional) - 0.5 * z**2, conditional.coefficients
                converged = converged and conditional.converged
        z, logs = np.array(list(density)), np.array(list(density.values()))
        weights = np.exp(logs - logs.max())
        mean = float(np.average(z, weights=weights))
        variance = float(np.average((z - mean) ** 2, weights=weights))
        return Viscosity(
            np.log(self.typical) + self.spread * mean,
            self.spread * float(np.sqrt(variance)),
            converged,
        )


class _ByViscosity(LinearisedColeHopf):
    @cached_property
    def by_log_viscosity(self) -> Float[np.ndarray, " n"]:
        """∂u(T)/∂log ν: δφ = νT ∂ₓ²φ + e^(νT∂ₓ²)(φ₀ V/2ν)."""
        (start, end), nu = self._phi, self._nu
        change = nu * self.time * self._times(-(self._k**2), end)
        change += self._diffused(start * -self._exponent)
        return self.u - 2 * nu * self._times(self._d, change / end)


@dataclass(frozen=True)
class _KnownStart:
    """u(T) as a map of z = (log ν - log typical)/spread."""

    by: ViscosityInversion
    u0: Values

    def linearise(self, z: np.ndarray) -> _OfViscosity:
        nu = self.by.typical * float(np.exp(self.by.spread * z[0]))
        grid = PeriodicGrid(len(self.u0))
        at = _ByViscosity(ColeHopf(grid, nu, TOLERANCE), self.u0, self.by.time)
        stride = grid.n // self.by.points
        return _OfViscosity(at.u[::stride], self.by.spread * at.by_log_viscosity[::stride])


@dataclass(frozen=True)
class _OfViscosity:
    values: Values
    slope: Values

    def jvp(self, change: np.ndarray) -> np.ndarray:
        return change[..., :1] * self.slope

    def vjp(self, v: Values) -> np.ndarray:
        return np.array([v @ self.slope])
