"""Inversion of Burgers' equation: initial values from noisy solutions."""

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

_REFINEMENT, _LEAST_POINTS = 4, 256  # points of the solving grid: for each datum, and in all
_FLOOR = 1e-6  # deviation of the rounding to float32, over the root mean square of the data
TOLERANCE = 1e-4  # of the solver in the steps of an inversion
_TIKHONOV = (0.01, 0.1, 1.0, 10.0)  # weights

Values = Float[np.ndarray, " n"]


class InitialValue(NamedTuple):
    """The estimate of u(0) from data of u(T)."""

    u0: Values  # the most likely values at the points of the data
    estimate: GaussianEstimate  # of the coefficients
    basis: Float[np.ndarray, "n p"]  # the matrix from coefficients to u0

    @property
    def deviation(self) -> Values:
        """Standard deviation of the linearised posterior of u0; takes a tangent solve for each
        coefficient."""
        variance = np.sum((self.basis @ self.estimate.covariance) * self.basis, axis=1)
        return np.sqrt(variance)


@dataclass(frozen=True)
class InitialValueInversion:
    """The most likely u(0) of d = u(T) + e, e ~ N(0, diag σ²), u(0) a Gaussian field on the circle.

    Viscosity damps the mode k of u(T) by about e^(-ν(2πk)²T). Beyond some k the estimate is the
    prior mean 0, with the prior deviation.
    """

    modes: CircleModes  # the law of u(0), on the solving grid
    viscosity: float  # ν
    time: float  # T
    points: int  # number of points x = 0, 1/points, ...; it divides that of the solving grid
    sensors: Bool[np.ndarray, " points"] | None = None  # True at points with data; None: all points

    @classmethod
    def of_law(
        cls, field: PeriodicGaussianField, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """The inversion for the modes k < points/2 of a law, which the data can distinguish.

        The posterior of the other modes is their prior; they are left out.
        """
        count = min(field.modes, (points - 1) // 2)
        return cls(_modes(field.mode_deviations[:count], points), viscosity, time, points)

    @classmethod
    def tikhonov(
        cls, weight: float, modes: int, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """The inversion argmin ½ |(d - u(T))/σ|² + ½ weight ∫ u₀'² dx, which needs no law.

        For the mode k, ∫ u₀'² is (2πk)²/2 times the squares of its coefficients.
        """
        k = 2 * np.pi * np.arange(1, modes + 1)
        return cls(_modes(np.sqrt(2 / weight) / k, points), viscosity, time, points)

    @property
    def start(self) -> np.ndarray:
        """The coefficients of the prior mean 0."""
        return np.zeros(2 * len(self.modes.deviations))

    def linearise(self, xi: np.ndarray) -> _FinalValue:
        """u(T) at the points of the data as a function of the coefficients, with its derivative."""
        solver = ColeHopf(self.modes.grid, self.viscosity, TOLERANCE)
        solution = LinearisedColeHopf(solver, self.modes.field_of(xi), self.time)
        return _FinalValue(self.modes, solution, self._data_indices)

    def __call__(self, data: Values, deviation: Values) -> InitialValue:
        """The estimate of one sample from d and σ at the sensors; rounding is added to σ."""
        estimate = GaussianInversion(self)(data, rounded(data, deviation), self.start)
        basis = self.modes.basis[:: self._stride]
        return InitialValue(basis @ estimate.coefficients, estimate, basis)

    @property
    def _stride(self) -> int:
        return self.modes.grid.n // self.points

    @cached_property
    def _data_indices(self) -> np.ndarray:
        """Indices of the points of the data on the solving grid."""
        indices = self._stride * np.arange(self.points)
        return indices if self.sensors is None else indices[self.sensors]


@dataclass(frozen=True)
class _FinalValue:
    """u(T) at the points of the data, and its derivative with respect to the coefficients."""

    modes: CircleModes
    solution: LinearisedColeHopf
    indices: np.ndarray  # of the data on the solving grid

    @property
    def values(self) -> Values:
        return self.solution.u[self.indices]

    def jvp(self, change: np.ndarray) -> np.ndarray:
        return self.solution.jvp(self.modes.field_of(change))[..., self.indices]

    def vjp(self, v: Values) -> np.ndarray:
        on_grid = np.zeros(self.modes.grid.n)
        on_grid[self.indices] = v
        return self.modes.transposed(self.solution.vjp(on_grid))


def inversions(
    setting: InverseProblem, field: PeriodicGaussianField, viscosity: float, time: float
) -> dict[str, ClassicalMethod]:
    """The inversion methods of the initial value, by name.

    Args:
        setting: The inverse problem.
        field: Law of the initial value.
        viscosity: The viscosity ν.
        time: Time T of the data.
    """
    points = setting.cells

    def largest_density(_: float) -> Inversion:
        method = InitialValueInversion.of_law(field, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, deviation: Values) -> Estimate:
            initial = method(data, deviation)
            tangents = initial.estimate.coefficients.size  # solves of the covariance
            return Estimate(initial.u0, initial.estimate.solves + tangents, initial.deviation)

        return inversion

    def tikhonov(weight: float) -> Inversion:
        modes = min(field.modes, (points - 1) // 2)
        method = InitialValueInversion.tikhonov(weight, modes, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, deviation: Values) -> Estimate:
            initial = method(data, deviation)
            return Estimate(initial.u0, initial.estimate.solves)

        return inversion

    return {
        "maximum a posteriori": ClassicalMethod(
            "the best one if noise level and distribution are known; states its uncertainty",
            (1.0,),
            largest_density,
        ),
        "Tikhonov": ClassicalMethod(
            "for initial values of unknown distribution", _TIKHONOV, tikhonov
        ),
    }


def final_value(viscosity: float, time: float, points: int) -> Callable[[Values], Values]:
    """The map from u(0) to u(T) at equally spaced points, solved on a finer grid.

    The initial value on the finer grid is the trigonometric interpolant of u(0).
    """
    grid = PeriodicGrid(points * max(_REFINEMENT, -(-_LEAST_POINTS // points)))
    solver = ColeHopf(grid, viscosity, TOLERANCE)

    def solution(u0: Values) -> Values:
        fine = np.fft.irfft(np.fft.rfft(u0, norm="forward"), n=grid.n, norm="forward")
        return solver(fine, time)[:: grid.n // points]

    return solution


def _modes(deviations: np.ndarray, points: int) -> CircleModes:
    n = points * max(_REFINEMENT, -(-_LEAST_POINTS // points))
    return CircleModes(deviations, PeriodicGrid(n))


def rounded(data: Values, deviation: Values) -> Values:
    """The deviation σ of the noise and of the rounding of the data together."""
    return np.sqrt(deviation**2 + _FLOOR**2 * np.mean(data**2))
