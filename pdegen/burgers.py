"""Viscous Burgers, uₜ + u uₓ = ν uₓₓ on a circle of length 1: exact, and by time steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Complex, Float

from pdegen.etdrk import Step
from pdegen.failure import SolveError
from pdegen.grid import PeriodicGrid
from pdegen.spectral import antiderivative_symbol, dealiased, derivative_symbol, wave_numbers

Rows = Float[np.ndarray, "b n"]

_LARGEST_EXPONENT = 1400.0  # exp(±700), the ends of φ₀, are still finite
_CACHE_POINTS = 32768  # points of a block of rows: a few such arrays fit into a core's cache


class Solution(NamedTuple):
    """Values u, shape (batch, times, n), and an error estimate for each sample, shape (batch,).

    The error is an estimate of ‖u - u_exact‖/‖u_exact‖ in L², the largest over the times.
    """

    u: Float[np.ndarray, "batch times n"]
    error: Float[np.ndarray, " batch"]


def _checked_times(t: float | Sequence[float]) -> list[float]:
    times = [float(s) for s in np.atleast_1d(t)]
    if not all(np.isfinite(times)) or any(s < 0 for s in times) or times != sorted(times):
        raise ValueError(f"times must be >= 0 and must not decrease, got {t}")
    return times


def _checked_values(grid: PeriodicGrid, u0: np.ndarray) -> Float[np.ndarray, "batch n"]:
    u0 = np.asarray(u0, dtype=np.float64)
    if u0.ndim < 1 or u0.shape[-1] != grid.n:
        raise ValueError(f"expected initial values of shape (*batch, {grid.n}), got {u0.shape}")
    return u0.reshape(-1, grid.n)


class BurgersSolver(ABC):
    """What the two solvers have in common: the call and its shapes."""

    grid: PeriodicGrid

    def __call__(
        self, u0: Float[np.ndarray, "*batch n"], t: float | Sequence[float]
    ) -> Float[np.ndarray, "*shape"]:
        """u at time t, shape (*batch, n); for a list of times, shape (*batch, times, n)."""
        times = _checked_times(t)
        u = self._integrate(_checked_values(self.grid, u0), times)[0]
        shape = (*np.shape(u0)[:-1], self.grid.n)
        return u.reshape(shape if np.ndim(t) == 0 else (*shape[:-1], len(times), shape[-1]))

    def solve(self, u0: Float[np.ndarray, "batch n"], t: float | Sequence[float]) -> Solution:
        """u at the times t, with an error estimate for each sample."""
        times = _checked_times(t)
        u0 = _checked_values(self.grid, u0)
        u, state = self._integrate(u0, times)
        return Solution(u, self._error(u0, times, u, state))

    @abstractmethod
    def _integrate(self, u0: Rows, times: list[float]) -> tuple[Float[np.ndarray, "b t n"], Any]:
        """The solution, and what the error estimate needs beside it."""

    @abstractmethod
    def _error(
        self, u0: Rows, times: list[float], u: Float[np.ndarray, "b t n"], state: Any
    ) -> Float[np.ndarray, " b"]:
        """The error estimate of `Solution`."""


@dataclass(frozen=True)
class ColeHopf(BurgersSolver):
    """The exact solution, without time steps, where double precision carries it.

    With m the mean of u₀ and V an antiderivative of u₀ - m, φ₀ = exp(-V/2ν) evolves by the heat
    equation, shifted by m t, and u = m - 2ν φₓ/φ: five transforms for any time.

    φ spans exp(range(V)/2ν), so small ν loses digits: the round-off in u is at most about
    ε max φ₀ / min φ(t). That bound, plus what the spectrum of φ(t) still holds at the end of the
    grid, is the error estimate; it is usually 10 to 50 times the true error.

    Args:
        grid: The grid of u₀ and u. Its points should resolve u₀.
        viscosity: ν > 0.
        tolerance: Largest error estimate that is accepted.

    Raises:
        SolveError: For a sample whose error estimate exceeds the tolerance; use `ETDRK4` there.

    References: J. D. Cole, Quart. Appl. Math. 9 (1951); E. Hopf, CPAM 3 (1950).

    >>> grid = PeriodicGrid(256)
    >>> u0 = np.sin(2 * np.pi * grid.x)
    >>> float(ColeHopf(grid, viscosity=0.05)(u0, t=1.0).max().round(4))
    0.1094
    """

    grid: PeriodicGrid
    viscosity: float
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        _check_viscosity(self.viscosity)

    @cached_property
    def _to_exponent(self) -> Complex[np.ndarray, " k"]:
        """From u₀ to -V/2ν."""
        return antiderivative_symbol(self.grid) * (-1 / (2 * self.viscosity))

    @cached_property
    def _to_flux(self) -> Complex[np.ndarray, " k"]:
        """From φ to -2ν φₓ."""
        return derivative_symbol(self.grid) * (-2 * self.viscosity)

    @cached_property
    def _decays(self) -> dict[float, Float[np.ndarray, " m"]]:
        return {}

    def _decay(self, t: float) -> Float[np.ndarray, " m"]:
        """exp(-νk²t), shape (2k,): each for the real and for the imaginary part of its mode."""
        if t not in self._decays:
            decay = np.exp(-self.viscosity * wave_numbers(self.grid) ** 2 * t)
            self._decays[t] = np.repeat(decay, 2)
        return self._decays[t]

    def _integrate(
        self, u0: Rows, times: list[float]
    ) -> tuple[Float[np.ndarray, "b t n"], Float[np.ndarray, "b t"]]:
        u = np.empty((len(u0), len(times), self.grid.n))
        error = np.empty((len(u0), len(times)))
        # blocks of rows that stay in cache; every row is computed alike in any block
        rows = max(1, _CACHE_POINTS // self.grid.n)
        for start in range(0, len(u0), rows):
            block = slice(start, start + rows)
            self._integrate_block(start, u0[block], times, u[block], error[block])
        return u, error

    def _integrate_block(
        self,
        start: int,
        u0: Float[np.ndarray, "r n"],
        times: list[float],
        u: Float[np.ndarray, "r t n"],
        error: Float[np.ndarray, "r t"],
    ) -> None:
        n, eps = self.grid.n, np.finfo(float).eps
        u0_hat = np.fft.rfft(u0)
        mean = u0_hat[:, :1].real / n
        drifts = np.abs(mean[:, 0]) > eps * np.abs(u0).max(axis=1)  # beyond round-off
        exponent = np.fft.irfft(u0_hat * self._to_exponent, n)
        low, high = exponent.min(axis=1), exponent.max(axis=1)
        span = high - low
        self._refuse(start, span, span < _LARGEST_EXPONENT)
        exponent -= ((high + low) / 2)[:, None]
        # ψ = φ - 1 obeys the same equation, and keeps its digits where u is small
        psi0_hat = np.fft.rfft(np.expm1(exponent, out=exponent))
        round_off = eps * np.exp(span / 2)
        for i, t in enumerate(times):
            if t == 0:
                u[:, i], error[:, i] = u0, 0.0
                continue
            psi_hat = (psi0_hat.view(np.float64) * self._decay(t)).view(np.complex128)
            if drifts.any():
                psi_hat[drifts] *= np.exp(-derivative_symbol(self.grid) * (mean[drifts] * t))
            phi = np.fft.irfft(psi_hat, n)
            phi += 1
            smallest = phi.min(axis=1)
            tail = 2 * np.abs(psi_hat[:, -(n // 64) - 1 :]).sum(axis=1) / n
            positive = np.where(smallest > 0, smallest, np.nan)
            error[:, i] = (round_off + tail) / positive
            self._refuse(start, span, error[:, i] <= self.tolerance)
            psi_hat *= self._to_flux
            quotient = np.fft.irfft(psi_hat, n)
            quotient /= phi
            quotient += mean - quotient.mean(axis=1, keepdims=True)  # that of φₓ/φ is round-off
            u[:, i] = quotient

    def _refuse(self, start: int, span: np.ndarray, carried: np.ndarray) -> None:
        """Raise SolveError for the first row of a block that is not carried."""
        for row in np.flatnonzero(~carried):
            raise self._lost(start + int(row), float(span[row]))

    def _lost(self, row: int, exponent: float) -> SolveError:
        return SolveError(
            row,
            f"Cole-Hopf cannot carry it in double precision (φ spans exp({exponent:.3g}) at "
            f"viscosity {self.viscosity:g}, tolerance {self.tolerance:g}, {self.grid.n} points): "
            "use the method etdrk4, or a finer grid",
        )

    def _error(
        self, u0: Rows, times: list[float], u: np.ndarray, state: Float[np.ndarray, "b t"]
    ) -> Float[np.ndarray, " b"]:
        return state.max(axis=1)


@dataclass(frozen=True)
class ETDRK4(BurgersSolver):
    """Fourier in space with 2/3 dealiasing, exponential Runge-Kutta of order 4 in time.

    For any viscosity that the grid resolves. The error estimate is Richardson's, the difference
    to a run with twice the step over 15, plus the share of the solution in the last tenth of the
    modes kept; it costs half as much again as the solution.

    Args:
        grid: The grid; modes k < n/3 are kept.
        viscosity: ν > 0.
        dt: Largest step; each interval between times is cut into equal steps no longer than this.
        tolerance: Largest error estimate that `solve` accepts.

    Raises:
        SolveError: For a sample that grows without bound or misses the tolerance.

    >>> grid = PeriodicGrid(128)
    >>> u0 = np.sin(2 * np.pi * grid.x)
    >>> float(ETDRK4(grid, viscosity=0.05, dt=0.01)(u0, t=1.0).max().round(4))
    0.1094
    """

    grid: PeriodicGrid
    viscosity: float
    dt: float
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        _check_viscosity(self.viscosity)
        if not 0 < self.dt < np.inf:
            raise ValueError(f"the step dt must be positive, got {self.dt}")

    @cached_property
    def _steps(self) -> dict[float, Step]:
        return {}

    def _step(self, h: float) -> Step:
        if h not in self._steps:
            self._steps[h] = Step.of(-self.viscosity * wave_numbers(self.grid) ** 2, h)
        return self._steps[h]

    def _integrate(self, u0: Rows, times: list[float]) -> tuple[np.ndarray, None]:
        return self._march(u0, times, self.dt), None

    def _march(self, u0: Rows, times: list[float], dt: float) -> np.ndarray:
        n = self.grid.n
        keep = dealiased(self.grid)
        symbol = np.where(keep, -0.5 * derivative_symbol(self.grid), 0)

        def nonlinear(v: Complex[np.ndarray, "b k"]) -> Complex[np.ndarray, "b k"]:
            return symbol * np.fft.rfft(np.fft.irfft(v, n) ** 2)

        u = np.empty((len(u0), len(times), n))
        # blocks of rows that stay in cache; every row is computed alike in any block
        rows = max(1, _CACHE_POINTS // n)
        for start in range(0, len(u0), rows):
            block = slice(start, start + rows)
            v, now = np.where(keep, np.fft.rfft(u0[block]), 0), 0.0
            with np.errstate(over="ignore", invalid="ignore"):  # reported below, by sample
                for i, t in enumerate(times):
                    count = math.ceil((t - now) / dt * (1 - 1e-12))
                    for _ in range(count):
                        v = self._step((t - now) / count)(v, nonlinear)
                    now = t
                    u[block, i] = u0[block] if t == 0 else np.fft.irfft(v, n)
        for row in np.flatnonzero(~np.isfinite(u).all(axis=(1, 2))):
            raise SolveError(int(row), f"ETDRK4 with dt {dt:g} is unstable: use a smaller dt")
        return u

    def _error(
        self, u0: Rows, times: list[float], u: np.ndarray, state: None
    ) -> Float[np.ndarray, " b"]:
        coarse = self._march(u0, times, 2 * self.dt)
        size = np.linalg.norm(u, axis=2) + np.finfo(float).tiny
        in_time = np.linalg.norm(u - coarse, axis=2) / (15 * size)
        last = self.grid.n // 3
        tail = np.abs(np.fft.rfft(u))[..., last - last // 10 : last + 1]
        in_space = np.linalg.norm(tail, axis=2) * np.sqrt(2 / self.grid.n) / size
        error = np.where(np.array(times) > 0, in_time + in_space, 0.0).max(axis=1)
        for row in np.flatnonzero(~(error <= self.tolerance)):
            raise SolveError(
                int(row),
                f"ETDRK4 is not resolved: error {error[row]:.2g} (time {in_time[row].max():.2g}, "
                f"space {in_space[row].max():.2g}) exceeds {self.tolerance:g}: "
                "use a smaller dt or a finer grid",
            )
        return error


def _check_viscosity(viscosity: float) -> None:
    if not 0 < viscosity < np.inf:
        raise ValueError(f"the viscosity must be positive, got {viscosity}")
