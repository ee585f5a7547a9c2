"""Finite differences of order 4 for waves on the torus, in compiled loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.numerics.compilation import compiled

_COURANT = 0.8  # time step, in the time in which the fastest wave crosses a cell; stable below 1.06


@dataclass(frozen=True)
class WaveMarch:
    """uₜₜ = c²Δu on the torus (0, 1)², uₜ(0) = 0, at n x n points.

    A u = c²Δₕu has the differences (-1, 16, -30, 16, -1)/12h² along each axis. The modified
    equation u(t + dt) - 2u(t) + u(t - dt) = dt²(A + dt²A²/12)u(t) has the order 4 in time. It is
    reversible and conserves `energy` and Σ u/c² to rounding.

    References: M. A. Dablain, The application of high-order differencing to the scalar wave
        equation, Geophysics 51 (1986).
    """

    times: Sequence[float]  # multiples of the first one
    steps: int  # steps until the first time

    @classmethod
    def stable(cls, n: int, fastest: float, times: Sequence[float]) -> WaveMarch:
        """The march with the largest stable steps for n points and speeds up to `fastest`."""
        return cls(times, math.ceil(times[0] * fastest * n / _COURANT))

    @property
    def dt(self) -> float:
        return self.times[0] / self.steps

    def __call__(
        self, u0: Float[np.ndarray, "n n"], c: Float[np.ndarray, "n n"]
    ) -> tuple[Float[np.ndarray, "times n n"], float]:
        """The solution at the times, and the largest relative change of the energy."""
        squares = c**2
        before = u0 + self.dt**2 / 2 * self._rate(u0, squares)  # u(-dt) = u(dt)
        u, frames, energies, now = u0.copy(), list[np.ndarray](), list[float](), 0
        energies.append(self.energy(u, before, squares))
        for t in self.times:
            later = self.steps * round(t / self.times[0])
            march(u, before, squares, self.dt, later - now)
            frames.append(u.copy())
            energies.append(self.energy(u, before, squares))
            now = later
        return np.stack(frames), float(np.ptp(energies)) / abs(energies[0])

    def energy(self, u: np.ndarray, before: np.ndarray, squares: np.ndarray) -> float:
        """⟨v, v⟩/2 - ⟨(A + dt²A²/12)u, w⟩/2 with w = u(t - dt), v = (u - w)/dt and the mean
        ⟨f, g⟩ of fg/c²."""
        v = (u - before) / self.dt
        return float(np.mean((v**2 - self._rate(u, squares) * before) / squares)) / 2

    def _rate(self, u: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """(A + dt²A²/12)u."""
        once, twice = np.empty_like(u), np.empty_like(u)
        apply(u, squares, once)
        apply(once, squares, twice)
        return once + self.dt**2 / 12 * twice


@compiled(inner=True)
def _second(u: np.ndarray, i: int, a: int, b: int, j: int, p: int, q: int) -> float:
    """12 h² times the second differences at (i, j): along y from columns a, b, p, q of row i."""
    return 16 * (u[i, b] + u[i, p]) - (u[i, a] + u[i, q]) - 30 * u[i, j]


@compiled()
def apply(u: np.ndarray, squares: np.ndarray, out: np.ndarray) -> None:
    """Writes A u = c²Δₕu, given the squares c²."""
    n = u.shape[0]
    scale = n * n / 12.0
    for i in range(n):
        low, left, right, high = u[i - 2], u[i - 1], u[(i + 1) % n], u[(i + 2) % n]
        for j in range(n):
            out[i, j] = 16 * (left[j] + right[j]) - (low[j] + high[j]) - 30 * u[i, j]
        for j in range(2, n - 2):
            out[i, j] += _second(u, i, j - 2, j - 1, j, j + 1, j + 2)
        for j in (-2, -1, 0, 1):
            out[i, j] += _second(u, i, j - 2, j - 1, j, j + 1, j + 2)
        for j in range(n):
            out[i, j] *= scale * squares[i, j]


@compiled()
def march(u: np.ndarray, before: np.ndarray, squares: np.ndarray, dt: float, steps: int) -> None:
    """Advance u(t) and u(t - dt) by a number of steps."""
    once, twice = np.empty_like(u), np.empty_like(u)
    n = u.shape[0]
    for _ in range(steps):
        apply(u, squares, once)
        apply(once, squares, twice)
        for i in range(n):
            for j in range(n):
                later = 2 * u[i, j] - before[i, j]
                later += dt * dt * (once[i, j] + dt * dt / 12 * twice[i, j])
                before[i, j] = u[i, j]
                u[i, j] = later
