"""Inversion of Burgers' equation: estimates of initial values from noisy solutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.inverse.classical import (
    KNOWN_PRIOR,
    ClassicalMethod,
    Estimate,
    InverseProblem,
    Inversion,
    half_decades,
)
from pdegen.inverse.gaussian import CircleModes, GaussianEstimate, GaussianInversion
from pdegen.numerics.spectral import antiderivative_symbol, derivative_symbol, wave_numbers
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.sampling.noise_law import NoiseLaw

# Derivatives of u(T) with respect to u(0), in closed form.


Fields = Float[np.ndarray, "*k n"]


@dataclass(frozen=True)
class LinearisedColeHopf:
    """The solution u(T) by the Cole-Hopf transform, with its derivative with respect to u₀.

    The solution is u(T) = -2ν ∂ₓ log φ with φ = e^(νT∂ₓ²) φ₀, φ₀ = exp(-V/2ν) and V' = u₀. The
    tangent is δu = -2ν ∂ₓ(δφ/φ) with δφ = e^(νT∂ₓ²)(-φ₀ δV/2ν). The adjoint applies the transposes
    of the three factors in reverse order. The heat operator is symmetric; transposition changes the
    sign of ∂ₓ and of its inverse. Tangent and adjoint take six transforms each.

    Raises:
        ValueError: If the initial value has a nonzero mean or another shape than (n,).
        SolveError: If the error estimate of `ColeHopf` exceeds its tolerance.

    >>> from pdegen.domains import PeriodicGrid
    >>> grid = PeriodicGrid(64)
    >>> at = LinearisedColeHopf(ColeHopf(grid, 0.05), np.zeros(64), 0.1)
    >>> wave = np.sin(2 * np.pi * grid.x)  # for u₀ = 0 it obeys the heat equation
    >>> bool(np.allclose(at.jvp(wave), np.exp(-0.02 * np.pi**2) * wave))
    True
    """

    solver: ColeHopf  # grid, viscosity ν (a number) and tolerance
    u0: Float[np.ndarray, " n"]  # initial value, of mean 0
    time: float  # T

    def __post_init__(self) -> None:
        n, size = self.solver.grid.n, np.abs(self.u0).max(initial=0.0)
        if self.u0.shape != (n,) or abs(self.u0.mean()) > 1e-9 * size:
            raise ValueError(
                f"expected an initial value of shape ({n},) and mean 0, got "
                f"{self.u0.shape} and {self.u0.mean():g}"
            )
        self.u  # raises if it cannot be solved  # noqa: B018

    @cached_property
    def u(self) -> Float[np.ndarray, " n"]:
        """The solution u(T)."""
        return self.solver.solve(self.u0[None], self.time).u[0, 0]

    def jvp(self, du0: Fields) -> Fields:
        """The first-order change δu(T) of the solution for the change du0 of u₀."""
        start, end = self._phi
        return self._times(self._d, self._diffused(start * self._times(self._v, du0)) / end)

    def vjp(self, v: Fields) -> Fields:
        """The gradient with respect to u₀ of a scalar whose gradient with respect to u(T) is v."""
        start, end = self._phi
        return self._times(self._v, start * self._diffused(self._times(self._d, v) / end))

    @property
    def _nu(self) -> float:
        return float(self.solver.viscosity)

    @cached_property
    def _k(self) -> np.ndarray:
        return wave_numbers(self.solver.grid)

    @cached_property
    def _d(self) -> np.ndarray:
        return derivative_symbol(self.solver.grid)

    @cached_property
    def _v(self) -> np.ndarray:
        return antiderivative_symbol(self.solver.grid)

    def _times(self, symbol: np.ndarray, values: Fields) -> Fields:
        return np.fft.irfft(symbol * np.fft.rfft(values), n=self.solver.grid.n)

    def _diffused(self, values: Fields) -> Fields:
        """The solution at time T of the heat equation with these initial values."""
        return self._times(np.exp(-self._nu * self.time * self._k**2), values)

    @cached_property
    def _exponent(self) -> Float[np.ndarray, " n"]:
        """-V/2ν plus a constant that centres its range at 0; the constant does not change u."""
        exponent = self._times(self._v, self.u0) / (-2 * self._nu)
        return exponent - (exponent.max() + exponent.min()) / 2

    @cached_property
    def _phi(self) -> tuple[np.ndarray, np.ndarray]:
        """φ at the times 0 and T."""
        start = np.exp(self._exponent)
        return start, self._diffused(start)


_REFINEMENT, _LEAST_POINTS = 4, 256  # points of the solving grid: for each data point, least number
_FLOOR = 1e-6  # deviation of rounding to float32, relative to the root mean square of the data
TOLERANCE = 1e-4  # of the solver in the steps of an inversion
_TIKHONOV = half_decades(-2, 1)  # weights

Values = Float[np.ndarray, " n"]


class InitialValue(NamedTuple):
    """The estimate of u(0) from data of u(T)."""

    u0: Values  # the most likely values at the points of the data
    estimate: GaussianEstimate  # of the coefficients
    basis: Float[np.ndarray, "n p"]  # the matrix from coefficients to u0

    @property
    def std(self) -> Values:
        """Standard deviation of u0 under the linearised posterior."""
        variance = np.sum((self.basis @ self.estimate.covariance) * self.basis, axis=1)
        return np.sqrt(variance)


@dataclass(frozen=True)
class InitialValueInversion:
    """Estimates the most likely u(0) from data d = u(T) + e with noise e ~ N(0, diag σ²).

    The prior of u(0) is a Gaussian field on the circle. Viscosity damps the mode k of u(T) by a
    factor of about e^(-ν(2πk)²T). The data therefore contain no information on modes of large k.
    The estimate of these modes is the prior mean 0, and their deviation is that of the prior.
    """

    modes: CircleModes  # the distribution of u(0), on the solving grid
    viscosity: float  # ν
    time: float  # T
    points: int  # number of points x = 0, 1/points, ...; it divides that of the solving grid
    sensors: Bool[np.ndarray, " points"] | None = None  # True at points with data; None: all points

    @classmethod
    def of_distribution(
        cls, field: PeriodicGaussianField, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """The inversion whose prior is the distribution of `field`, for the modes k < points/2.

        The data cannot distinguish higher modes from lower ones. The inversion therefore omits the
        higher modes, whose posterior equals their prior.
        """
        count = min(field.modes, (points - 1) // 2)
        return cls(_modes(field.mode_stds[:count], points), viscosity, time, points)

    @classmethod
    def tikhonov(
        cls, weight: float, modes: int, viscosity: float, time: float, points: int
    ) -> InitialValueInversion:
        """The inversion that minimises ½ |(d - u(T))/σ|² + ½ weight ∫ u₀'² dx.

        This inversion does not use the distribution of u₀. The mode k has two coefficients. It
        contributes (2πk)²/2 times the sum of their squares to ∫ u₀'².
        """
        k = 2 * np.pi * np.arange(1, modes + 1)
        return cls(_modes(np.sqrt(2 / weight) / k, points), viscosity, time, points)

    @property
    def start(self) -> np.ndarray:
        """The coefficients at which the iteration starts: those of the prior mean, all 0."""
        return np.zeros(2 * len(self.modes.stds))

    def linearise(self, xi: np.ndarray) -> _FinalValue:
        """u(T) at the data points, and its derivative, for the coefficients xi."""
        solver = ColeHopf(self.modes.grid, self.viscosity, TOLERANCE)
        solution = LinearisedColeHopf(solver, self.modes.field_of(xi), self.time)
        return _FinalValue(self.modes, solution, self._data_indices)

    def __call__(self, data: Values, noise: NoiseLaw | Values) -> InitialValue:
        """Estimates u(0) of one sample from the data d at the sensors and the law of their noise,
        or the deviation σ of independent Gaussian noise.

        The variance of the rounding errors is added to σ².
        """
        law = NoiseLaw.of(noise).plus(_FLOOR**2 * float(np.mean(data**2)))
        estimate = GaussianInversion(self)(data, law, self.start)
        basis = self.modes.basis[:: self._stride]
        return InitialValue(basis @ estimate.coefficients, estimate, basis)

    @property
    def _stride(self) -> int:
        return self.modes.grid.n // self.points

    @cached_property
    def _data_indices(self) -> np.ndarray:
        """Indices of the data points on the solving grid."""
        indices = self._stride * np.arange(self.points)
        return indices if self.sensors is None else indices[self.sensors]


@dataclass(frozen=True)
class _FinalValue:
    """u(T) at the data points, with its derivative with respect to the coefficients."""

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
    """A dictionary from names to the methods that estimate the initial value.

    Args:
        setting: The inverse problem.
        field: Distribution of the initial value.
        viscosity: The viscosity ν.
        time: Time T of the data.
    """
    points = setting.cells

    def largest_density(_: float) -> Inversion:
        method = InitialValueInversion.of_distribution(field, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, noise: NoiseLaw | Values) -> Estimate:
            u0, estimate, _ = initial = method(data, noise)
            solves = estimate.solves + estimate.coefficients.size  # tangents of the covariance
            status = estimate.iterations, estimate.converged
            return Estimate(u0, solves, *status, initial.std)

        return inversion

    def tikhonov(weight: float) -> Inversion:
        modes = min(field.modes, (points - 1) // 2)
        method = InitialValueInversion.tikhonov(weight, modes, viscosity, time, points)
        method = replace(method, sensors=setting.sensors)

        def inversion(data: Values, noise: NoiseLaw | Values) -> Estimate:
            u0, estimate, _ = method(data, noise)
            return Estimate(u0, estimate.solves, estimate.iterations, estimate.converged)

        return inversion

    return {
        "maximum a posteriori": ClassicalMethod(
            KNOWN_PRIOR,
            (1.0,),
            largest_density,
            knows_law=True,
        ),
        "Tikhonov": ClassicalMethod(
            "for initial values of unknown distribution", _TIKHONOV, tikhonov
        ),
    }


def final_value(viscosity: float, time: float, points: int) -> Callable[[Values], Values]:
    """The map from u(0) to u(T), both with values at `points` equally spaced points.

    The equation is solved on a finer grid, starting from the trigonometric interpolant of u(0).
    """
    grid = PeriodicGrid(points * max(_REFINEMENT, -(-_LEAST_POINTS // points)))
    solver = ColeHopf(grid, viscosity, TOLERANCE)

    def solution(u0: Values) -> Values:
        fine = np.fft.irfft(np.fft.rfft(u0, norm="forward"), n=grid.n, norm="forward")
        return solver(fine, time)[:: grid.n // points]

    return solution


def _modes(stds: np.ndarray, points: int) -> CircleModes:
    n = points * max(_REFINEMENT, -(-_LEAST_POINTS // points))
    return CircleModes(stds, PeriodicGrid(n))


def rounded(data: Values, std: Values) -> Values:
    """Standard deviation of the data due to noise and rounding together."""
    return np.sqrt(std**2 + _FLOOR**2 * np.mean(data**2))
