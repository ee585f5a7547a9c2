"""From noisy solutions of Burgers' equation back to initial values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.linearised import LinearisedColeHopf
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.inverse.classical import ClassicalMethod, Estimate, InverseProblem, Inversion
from pdegen.inverse.gaussian import CircleModes, GaussianEstimate, GaussianInversion
from pdegen.sampling.gaussian import PeriodicGaussianField

_POINTS, _LEAST = 4, 256  # of the solving grid: so many for each of the data, and at least these
_FLOOR = 1e-6  # of the size of the data: float32, in which they are stored
TOLERANCE = 1e-4  # of the solver, on the way to an estimate
_TIKHONOV = (0.01, 0.1, 1.0, 10.0)  # weights

Values = Float[np.ndarray, " n"]


class InitialValue(NamedTuple):
    """What u(T) says of u(0)."""

    u0: Values  # the most likely values at the points of the data
    estimate: GaussianEstimate  # of the coefficients
    basis: Float[np.ndarray, "n p"]  # what takes these to u0

    @property
    def deviation(self) -> Values:
        """Of the posterior of u0, linearised; takes a tangent for each coefficient."""
        variance = np.sum((self.basis @ self.estimate.covariance) * self.basis, axis=1)
        return np.sqrt(variance)


@dataclass(frozen=True)
class InitialValueInversion:
    """The most likely u(0) of d = u(T) + e, e ~ N(0, diag σ²), u(0) a Gaussian field on the circle.

    Heat damps the mode k of u(T) by about e^(-ν(2πk)²T): beyond some k the estimate is the mean 0
    of the law, and its deviation that of the law.
    """

    modes: CircleModes  # the law of u(0), on the solving grid
    viscosity: float  # ν
    time: float  # T
    points: int  # number of points x = 0, 1/points, ...; it divides the solving grid
    sensors: Bool[np.ndarray, " points"] | None = None  # those that have data; by default all

    @classmethod
    def of_law(
        cls, field: PeriodicGaussianField, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """With the modes of a law that the data can tell apart, k < points/2.

        The others have no posterior but their law; they are left out.
        """
        count = min(field.modes, (points - 1) // 2)
        return cls(_modes(field.mode_deviations[:count], points), viscosity, time, points)

    @classmethod
    def tikhonov(
        cls, weight: float, modes: int, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """For argmin ½ |(d - u(T))/σ|² + ½ weight ∫ u₀'² dx, which needs no law.

        ∫ u₀'² of the mode k is (2πk)²/2 times its squared coefficients.
        """
        k = 2 * np.pi * np.arange(1, modes + 1)
        return cls(_modes(np.sqrt(2 / weight) / k, points), viscosity, time, points)

    @property
    def start(self) -> np.ndarray:
        """The coefficients of the mean, 0."""
        return np.zeros(2 * len(self.modes.deviations))

    def linearise(self, xi: np.ndarray) -> _FinalValue:
        """u(T) at the points of the data, as a map of the coefficients."""
        solver = ColeHopf(self.modes.grid, self.viscosity, TOLERANCE)
        at = LinearisedColeHopf(solver, self.modes.field_of(xi), self.time)
        return _FinalValue(self.modes, at, self._places)

    def __call__(self, data: Values, deviation: Values) -> InitialValue:
        """The estimate of one sample from d and σ, at the points seen; rounding is added to σ."""
        found = GaussianInversion(self)(data, rounded(data, deviation), self.start)
        basis = self.modes.basis[:: self._stride]
        return InitialValue(basis @ found.coefficients, found, basis)

    @property
    def _stride(self) -> int:
        return self.modes.grid.n // self.points

    @cached_property
    def _places(self) -> np.ndarray:
        """Of the data on the solving grid."""
        places = self._stride * np.arange(self.points)
        return places if self.sensors is None else places[self.sensors]


@dataclass(frozen=True)
class _FinalValue:
    """u(T) at the points of the data, and its derivative by the coefficients."""

    modes: CircleModes
    at: LinearisedColeHopf
    places: np.ndarray

    @property
    def values(self) -> Values:
        return self.at.u[self.places]

    def jvp(self, change: np.ndarray) -> np.ndarray:
        return self.at.jvp(self.modes.field_of(change))[..., self.places]

    def vjp(self, v: Values) -> np.ndarray:
        spread = np.zeros(self.modes.grid.n)
        spread[self.places] = v
        return self.modes.transposed(self.at.vjp(spread))


def inversions(
    setting: InverseProblem, field: PeriodicGaussianField, viscosity: float, time: float
) -> dict[str, ClassicalMethod]:
    """Those of the initial value that the noise study offers, by their names."""
    points = setting.cells

    def largest_density(_: float) -> Inversion:
        method = InitialValueInversion.of_law(field, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, deviation: Values) -> Estimate:
            found = method(data, deviation)
            tangents = found.estimate.coefficients.size  # of the covariance
            return Estimate(found.u0, found.estimate.solves + tangents, found.deviation)

        return inversion

    def tikhonov(weight: float) -> Inversion:
        modes = min(field.modes, (points - 1) // 2)
        method = InitialValueInversion.tikhonov(weight, modes, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, deviation: Values) -> Estimate:
            found = method(data, deviation)
            return Estimate(found.u0, found.estimate.solves)

        return inversion

    return {
        "maximum a posteriori": ClassicalMethod(
            "the best one if level and law are known; states its uncertainty",
            (1.0,),
            largest_density,
        ),
        "Tikhonov": ClassicalMethod(
            "the one to take if the law of the initial value is not known", _TIKHONOV, tikhonov
        ),
    }


def final_value(viscosity: float, time: float, points: int) -> Callable[[Values], Values]:
    """From u(0) at so many points, whose modes are taken, to u(T) there, on a finer grid."""
    grid = PeriodicGrid(points * max(_POINTS, -(-_LEAST // points)))
    solver = ColeHopf(grid, viscosity, TOLERANCE)

    def solution(u0: Values) -> Values:
        fine = np.fft.irfft(np.fft.rfft(u0, norm="forward"), n=grid.n, norm="forward")
        return solver(fine, time)[:: grid.n // points]

    return solution


def _modes(deviations: np.ndarray, points: int) -> CircleModes:
    n = points * max(_POINTS, -(-_LEAST // points))
    return CircleModes(deviations, PeriodicGrid(n))


def rounded(data: Values, deviation: Values) -> Values:
    """σ with the rounding of the data."""
    return np.sqrt(deviation**2 + _FLOOR**2 * np.mean(data**2))
