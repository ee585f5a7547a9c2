"""Two solvers of the viscous Burgers equation, uₜ + u uₓ = ν uₓₓ, on a circle of length 1."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import (
    array_namespace,
    device,  # pyright: ignore[reportUnknownVariableType]
    is_numpy_namespace,
)
from jaxtyping import Float

from pdegen.domains import PeriodicGrid
from pdegen.equations.base import checked_times
from pdegen.numerics.device import (
    ARRAY_POINTS,
    Array,
    blocks,
    constant,
    first_true,
    reuse_memory,
    scaled,
)
from pdegen.numerics.errors import SolveError
from pdegen.numerics.semilinear import Discrete
from pdegen.numerics.spectral import (
    Pseudospectral,
    Torus,
    antiderivative_symbol,
    derivative_symbol,
    wave_numbers,
)

Rows = Float[Array, "b n"]

_LARGEST_EXPONENT = 1400.0  # exp(±700), the ends of φ₀, are still finite

AtTimes = Float[Array, "b t n"]
Errors = Float[Array, " b"]


class Solution(NamedTuple):
    """Solutions at some times, with error estimates."""

    u: Float[Array, "batch times n"]
    # estimate of ‖u - u_exact‖/‖u_exact‖ in L², the largest over the times
    error: Float[Array, " batch"]


def _checked_values(grid: PeriodicGrid, u0: Array) -> Float[Array, "batch n"]:
    xp = array_namespace(u0)
    if u0.ndim < 1 or u0.shape[-1] != grid.n:
        raise ValueError(
            f"expected initial values of shape (*batch, {grid.n}), got {tuple(u0.shape)}"
        )
    return xp.reshape(xp.astype(u0, xp.float64, copy=False), (-1, grid.n))


@dataclass(frozen=True)
class BurgersSolver(ABC):
    """Base class of the two solvers. It checks the arguments and defines the shapes of the results.

    The viscosity is a number, or an array with one number for each sample.

    NumPy arrays are solved in blocks of rows. PyTorch tensors are solved all at once on their
    device.
    """

    grid: PeriodicGrid
    viscosity: float | Errors

    @property
    def _nu(self) -> Any:
        """The viscosity, shaped to broadcast over (batch, points)."""
        nu: Any = self.viscosity
        return nu[:, None] if np.ndim(nu) else nu

    def __call__(
        self, u0: Float[Array, "*batch n"], t: float | Sequence[float]
    ) -> Float[Array, "*shape"]:
        """u at time t, shape (*batch, n); for a list of times, shape (*batch, times, n)."""
        times = checked_times(t)
        u = self._integrate(_checked_values(self.grid, u0), times)[0]
        shape = (*u0.shape[:-1], self.grid.n)
        return u.reshape(shape if np.ndim(t) == 0 else (*shape[:-1], len(times), shape[-1]))

    def solve(self, u0: Float[Array, "batch n"], t: float | Sequence[float]) -> Solution:
        """u at the times t, with an error estimate for each sample."""
        times = checked_times(t)
        u0 = _checked_values(self.grid, u0)
        u, state = self._integrate(u0, times)
        return Solution(u, self._error(u0, times, u, state))

    @abstractmethod
    def _integrate(self, u0: Rows, times: list[float]) -> tuple[AtTimes, Any]:
        """The solution, and the state from which `_error` computes the error estimate."""

    @abstractmethod
    def _error(self, u0: Rows, times: list[float], u: AtTimes, state: Any) -> Errors:
        """The error estimate of each sample, as in the field `error` of `Solution`."""


@dataclass(frozen=True)
class ColeHopf(BurgersSolver):
    """Solves Burgers' equation by the Cole-Hopf transform: exact up to round-off, no time steps.

    Let m be the mean of u₀ and V an antiderivative of u₀ - m. Then φ₀ = exp(-V/2ν) evolves by the
    heat equation, shifted by m t, and u = m - 2ν φₓ/φ. The solution at one time takes five
    transforms.

    The largest value of φ₀ is exp(range(V)/2ν) times the smallest. For small ν, digits are
    therefore lost: with the machine epsilon ε, the round-off in u is at most about
    ε max φ₀ / min φ(t). The error estimate is this bound, plus the highest modes of φ(t) on the
    grid, plus ε ‖u₀‖/‖u‖: the mean of u₀ is rounded and does not decay, even if it should be 0. The
    estimate is usually 10 to 50 times the true error.

    Raises:
        SolveError: For a sample whose error estimate exceeds the tolerance; use `ETDRK4` for it.

    References: J. D. Cole, Quart. Appl. Math. 9 (1951); E. Hopf, CPAM 3 (1950).

    >>> grid = PeriodicGrid(256)
    >>> u0 = np.sin(2 * np.pi * grid.x)
    >>> float(ColeHopf(grid, viscosity=0.05)(u0, t=1.0).max().round(4))
    0.1094
    """

    grid: PeriodicGrid  # the grid of u₀ and u; it should resolve u₀
    viscosity: float | Errors  # ν > 0, a number or one for each sample
    tolerance: float = 1e-7  # largest error estimate that is accepted

    def __post_init__(self) -> None:
        _check_viscosity(self.viscosity)

    @cached_property
    def _cache(self) -> dict[tuple[float, ...], tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
        return {}

    def _symbols(self, times: list[float], like: Array) -> tuple[Array, Array, list[Array]]:
        """The symbols of the maps u₀ -> -V/2ν and φ -> -2ν φₓ, and exp(-νk²t) for each time."""
        key = tuple(times)
        if key not in self._cache:
            grid, nu = self.grid, self._nu
            squares = wave_numbers(grid) ** 2
            decays = [np.exp(-nu * squares * t) for t in times]
            to_exponent = antiderivative_symbol(grid) * (-1 / (2 * nu))
            self._cache[key] = to_exponent, derivative_symbol(grid) * (-2 * nu), decays
        to_exponent, to_flux, decays = self._cache[key]
        like_decays = [constant(decay, like) for decay in decays]
        return constant(to_exponent, like), constant(to_flux, like), like_decays

    def _integrate(self, u0: Rows, times: list[float]) -> tuple[AtTimes, Float[Array, "b t"]]:
        reuse_memory()
        xp = array_namespace(u0)
        u = xp.empty((len(u0), len(times), self.grid.n), dtype=u0.dtype, device=device(u0))
        error = xp.empty_like(u[:, :, 0])
        for block in blocks(
            len(u0), self.grid.n, at_once=not is_numpy_namespace(xp), largest=ARRAY_POINTS
        ):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # refused below
                viscosity: Any = self.viscosity
                solver = replace(self, viscosity=viscosity[block]) if np.ndim(viscosity) else self
                span = solver._integrate_block(u0[block], times, u[block], error[block])
                error[block] += _rounding(u0[block], u[block], times)
            accepted = (span < _LARGEST_EXPONENT) & xp.all(error[block] <= self.tolerance, axis=1)
            row = first_true(~accepted)
            if row is not None:
                with np.errstate(over="ignore", invalid="ignore"):
                    rounding = float(xp.max(_rounding(u0[block], u[block], times)[row]))
                raise self._failure(block.start + row, float(span[row]), rounding)
        return u, error

    def _integrate_block(
        self, u0: Rows, times: list[float], u: AtTimes, error: Float[Array, "b t"]
    ) -> Errors:
        """Writes u and the error estimates in place, and returns range(V)/2ν of each sample."""
        xp, n, eps = array_namespace(u0), self.grid.n, np.finfo(float).eps
        to_exponent, to_flux, decays = self._symbols(times, u0)
        u0_hat = xp.fft.rfft(u0)
        mean = xp.real(u0_hat[:, :1]) / n
        beyond_round_off = xp.abs(mean) > eps * xp.max(xp.abs(u0), axis=1, keepdims=True)
        drifts = bool(xp.any(beyond_round_off))
        velocity = xp.where(beyond_round_off, mean, xp.zeros_like(mean))
        exponent = xp.fft.irfft(u0_hat * to_exponent, n=n)
        low, high = xp.min(exponent, axis=1), xp.max(exponent, axis=1)
        span = high - low
        exponent -= ((high + low) / 2)[:, None]
        # ψ = φ - 1 obeys the same equation, and does not lose digits for small u
        psi0_hat = xp.fft.rfft(xp.expm1(exponent))
        round_off = eps * xp.exp(span / 2)
        for i, t in enumerate(times):
            if t == 0:
                u[:, i], error[:, i] = u0, 0.0
                continue
            psi_hat = scaled(psi0_hat, decays[i])
            if drifts:
                psi_hat *= xp.exp(constant(-derivative_symbol(self.grid), u0) * (velocity * t))
            phi = xp.fft.irfft(psi_hat, n=n)
            phi += 1
            smallest = xp.min(phi, axis=1)
            tail = 2 * xp.sum(xp.abs(psi_hat[:, -(n // 64) - 1 :]), axis=1) / n
            positive = xp.where(smallest > 0, smallest, xp.full_like(smallest, np.nan))
            error[:, i] = (round_off + tail) / positive
            psi_hat *= to_flux
            quotient = xp.fft.irfft(psi_hat, n=n)
            quotient /= phi
            # the mean of φₓ/φ is round-off: replace it
            quotient += mean - xp.mean(quotient, axis=1, keepdims=True)
            u[:, i] = quotient
        return span

    def _failure(self, row: int, exponent: float, rounding: float) -> SolveError:
        if rounding > self.tolerance:
            return _decayed(row, rounding, self.tolerance)
        nu = self.viscosity
        viscosity = float(nu[row]) if isinstance(nu, np.ndarray) else nu
        return SolveError(
            row,
            f"double precision does not suffice for Cole-Hopf (φ spans exp({exponent:.3g}) at "
            f"viscosity {viscosity:g}, tolerance {self.tolerance:g}, {self.grid.n} points): "
            "use the method etdrk4, or a finer grid",
        )

    def _error(self, u0: Rows, times: list[float], u: Array, state: Float[Array, "b t"]) -> Errors:
        return array_namespace(state).max(state, axis=1)


@dataclass(frozen=True)
class ETDRK4(BurgersSolver):
    """Solves Burgers' equation by Fourier modes and exponential Runge-Kutta steps of order 4.

    Products are dealiased by the 2/3 rule. The viscosity may be small if the grid resolves the
    steep parts of the solution. The error estimate has three parts. The first is the difference
    from a run with twice the step, divided by 15 (Richardson). The second is the fraction of the
    solution in the highest tenth of the modes. The third is ε ‖u₀‖/‖u‖ with the machine epsilon ε:
    the mean of u₀ is rounded and does not decay. The estimate costs half as much as the solution.

    Raises:
        SolveError: For a sample that blows up or misses the tolerance.

    >>> grid = PeriodicGrid(128)
    >>> u0 = np.sin(2 * np.pi * grid.x)
    >>> float(ETDRK4(grid, viscosity=0.05, dt=0.01)(u0, t=1.0).max().round(4))
    0.1094
    """

    grid: PeriodicGrid  # n points; modes k < n/3 are kept
    viscosity: float | Errors  # ν > 0, a number or one for each sample
    dt: float  # largest time step; each interval between times is cut into equal steps
    tolerance: float = 1e-3  # largest error estimate that `solve` accepts

    def __post_init__(self) -> None:
        _check_viscosity(self.viscosity)
        if not 0 < self.dt < np.inf:
            raise ValueError(f"the step dt must be positive, got {self.dt}")

    @cached_property
    def _torus(self) -> Torus:
        return Torus((self.grid,))

    def _terms(self, device: str | None) -> Discrete:
        """v' = -ν k² v - (1/2) ∂ₓ F(u²) for the modes v of u."""
        torus = self._torus
        square = Pseudospectral(
            torus, [[(0, None)]], [[(-0.5, (0, 0))]], [[(0, torus.d[0])]], device=device
        )
        nu = np.asarray(self.viscosity)[..., None, None]
        return Discrete(torus, nu * torus.laplacian, square)

    def _integrate(self, u0: Rows, times: list[float]) -> tuple[Array, None]:
        return self._march(u0, times, self.dt), None

    def _march(self, u0: Rows, times: list[float], dt: float) -> AtTimes:
        xp, torus = array_namespace(u0), self._torus
        discrete = self._terms(None if is_numpy_namespace(xp) else str(u0.device))
        u = xp.empty((len(u0), len(times), self.grid.n), dtype=u0.dtype, device=device(u0))
        v, now = torus.to_modes(u0)[:, None], 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # raised below, by sample
            for i, t in enumerate(times):
                count = math.ceil((t - now) / dt * (1 - 1e-12))
                if count:
                    v, _ = discrete.advanced(v, (t - now) / count, count)
                now = t
                u[:, i] = u0 if t == 0 else torus.to_points(v[:, 0])
        row = first_true(~xp.all(xp.isfinite(u), axis=(1, 2)))
        if row is not None:
            raise SolveError(row, f"ETDRK4 with dt {dt:g} is unstable: use a smaller dt")
        return u

    def _error(self, u0: Rows, times: list[float], u: AtTimes, state: None) -> Errors:
        xp = array_namespace(u)
        norm = partial(xp.linalg.vector_norm, axis=2)
        coarse = self._march(u0, times, 2 * self.dt)
        size = norm(u) + np.finfo(float).tiny
        in_time = norm(u - coarse) / (15 * size)
        last = self.grid.n // 3
        tail = xp.abs(xp.fft.rfft(u))[..., last - last // 10 : last + 1]
        in_space = norm(tail) * np.sqrt(2 / self.grid.n) / size
        estimate = in_time + in_space
        begun = constant(np.array(times) > 0, u)
        rounding = _rounding(u0, u, times)
        error = xp.max(xp.where(begun, estimate, xp.zeros_like(estimate)) + rounding, axis=1)
        row = first_true(~(error <= self.tolerance))
        if row is not None:
            lost = float(xp.max(rounding[row]))
            if lost > self.tolerance:
                raise _decayed(row, lost, self.tolerance)
            raise SolveError(
                row,
                f"ETDRK4 is not resolved: error {float(error[row]):.2g} (time "
                f"{float(xp.max(in_time[row])):.2g}, space {float(xp.max(in_space[row])):.2g}) "
                f"exceeds {self.tolerance:g}: use a smaller dt or a finer grid",
            )
        return error


def _rounding(u0: Rows, u: AtTimes, times: list[float]) -> Float[Array, "b t"]:
    """ε ‖u₀‖/‖u‖ at the times t > 0: the relative error of u by the rounding of its mean."""
    xp = array_namespace(u)
    before, size = xp.linalg.vector_norm(u0, axis=1), xp.linalg.vector_norm(u, axis=2)
    lost = np.finfo(float).eps * before[:, None] / (size + np.finfo(float).tiny)
    return xp.where(constant(np.array(times) > 0, u), lost, xp.zeros_like(lost))


def _decayed(row: int, rounding: float, tolerance: float) -> SolveError:
    return SolveError(
        row,
        f"u has decayed so far that rounding of its mean is an error of {rounding:.2g}, more than "
        f"{tolerance:g}: use shorter times, or a smaller viscosity",
    )


def _check_viscosity(viscosity: float | Errors) -> None:
    if not np.all((np.asarray(viscosity) > 0) & np.isfinite(viscosity)):
        raise ValueError(f"the viscosity must be positive, got {viscosity}")
