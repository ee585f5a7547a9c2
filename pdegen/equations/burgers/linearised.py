"""Derivatives of u(T) with respect to u(0), in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.equations.burgers.solver import ColeHopf
from pdegen.numerics.spectral import antiderivative_symbol, derivative_symbol, wave_numbers

Values = Float[np.ndarray, "*k n"]


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

    def jvp(self, du0: Values) -> Values:
        """The first-order change δu(T) of the solution for the change du0 of u₀."""
        start, end = self._phi
        return self._times(self._d, self._diffused(start * self._times(self._v, du0)) / end)

    def vjp(self, v: Values) -> Values:
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

    def _times(self, symbol: np.ndarray, values: Values) -> Values:
        return np.fft.irfft(symbol * np.fft.rfft(values), n=self.solver.grid.n)

    def _diffused(self, values: Values) -> Values:
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
