"""Checks of a store of Burgers' equation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    Values,
    stated_error,
    worst_time,
)
from pdegen.checks.evolution import Evolution
from pdegen.checks.gaussian import GaussianCheck, periodic_modes
from pdegen.domains import PeriodicGrid
from pdegen.numerics.semilinear import Nonlinear
from pdegen.numerics.spectral import Symbol, Torus, antiderivative_symbol
from pdegen.sampling.gaussian import PeriodicGaussianField

_UNRESOLVED = 8.0  # deviations: unresolved modes of a exceed them with probability e⁻³² at most


def burgers_checks(
    field: PeriodicGaussianField,
    grid: PeriodicGrid,
    viscosity: float,
    times: Sequence[float],
    tolerance: float,
) -> StoreChecks:
    """Checks of a store: a is a Gaussian field, and u has the properties of a solution.

    The mean of u stays 0, the energy of u decreases from each time to the next, and u stays within
    the range of a (maximum principle). The antiderivatives U of u with mean 0 satisfy
    Uₜ = νuₓ - (u² - ∫u²)/2. Hence ∫|U(t) - U(0)| <= t (∫a² + ν∫|aₓ|). The solution for another
    initial value violates this bound unless t is large.

    The output grid does not resolve the fields completely. The limits therefore include terms for
    the highest modes of the grid, for the modes of a beyond the grid, for rounding, and for the
    solver's error. The range of a is widened by the largest difference between neighbouring values.
    """
    beyond = field.mode_stds[grid.n // 2 :]
    k = 2 * np.pi * np.arange(grid.n // 2 + 1, field.modes + 1)
    physics = _Physics(
        grid, viscosity, np.array(times), _UNRESOLVED * float(np.linalg.norm(beyond)),
        _UNRESOLVED * float(np.linalg.norm(k * beyond)),
    )  # fmt: skip
    evolved = Evolution(
        terms=partial(_terms, viscosity),
        degree=2,
        torus=Torus((grid,), degree=1),
        components=1,
        times=(0.0, *times),
        tolerance=tolerance,
        folded=True,
    )
    return StoreChecks(
        (
            GaussianCheck(
                "a", lambda a: a.astype(np.float64), periodic_modes(field, grid),
                np.full(grid.n, field.pointwise_variance), relative=True,
            ),
            Distinct("a"),
            *stated_error(tolerance),
            Bound("u", "the mean", physics.mean),
            Bound("u", "the growth of the norm since the time before", physics.growth),
            Bound("u", "the excess over the range of a", physics.excess),
            Bound("u", "the distance of the antiderivatives of u and a", physics.distance),
            *evolved.checks(),
        )
    )  # fmt: skip


def _terms(viscosity: float, torus: Torus) -> tuple[Symbol, Nonlinear]:
    """The symbol of νuₓₓ, and the map from the modes of u to the modes of -(u²)ₓ/2."""
    flux = -0.5 * torus.d[0]
    linear = viscosity * torus.laplacian[None]
    return linear, lambda v: flux * torus.to_modes(torus.to_points(v) ** 2)


class _Physics:
    """Methods that return a quantity of each sample, with the upper limit of the quantity.

    `unresolved` is the norm of the part of a that the output grid does not resolve. `slopes` is the
    norm of the derivative of this part.
    """

    def __init__(
        self,
        grid: PeriodicGrid,
        viscosity: float,
        times: Float[np.ndarray, " times"],
        unresolved: float,
        slopes: float,
    ) -> None:
        self._grid, self._viscosity, self._times = grid, viscosity, times
        self._unresolved, self._slopes = unresolved, slopes

    def _over_time(self, values: Values) -> Float[np.ndarray, "batch times n"]:
        """The frames of each sample: first a, then u at all times."""
        a = values["a"].astype(np.float64)[:, None]
        u = values["u"].astype(np.float64).reshape(len(a), len(self._times), -1)
        return np.concatenate([a, u], axis=1)

    def _missing(self, w: Float[np.ndarray, "batch times n"]) -> Float[np.ndarray, "batch times"]:
        """Upper bound of the norm of the part of w that the grid does not resolve.

        The bound is a sum of two terms: twice the norm of the highest modes of the grid, and the
        norm of the modes of a beyond the grid after damping by viscosity.
        """
        w_hat = np.fft.rfft(w, norm="forward")
        last = w_hat.shape[-1] - 1
        times = np.concatenate([[0.0], self._times])
        decay = np.exp(-self._viscosity * (2 * np.pi * last) ** 2 * times)
        return 2 * np.sqrt(2) * _norm(w_hat[..., last - last // 10 :]) + self._unresolved * decay

    def _error(self, values: Values) -> Float[np.ndarray, " batch"]:
        """The solver's relative error; negative values, which another check reports, count as 0."""
        return np.maximum(values["error"], 0.0)

    def mean(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        largest = abs(w).max(axis=2)  # the mean of a is 0 up to rounding in float64
        limit = self._missing(w) + EPSILON * largest + np.finfo(float).eps * largest[:, :1]
        return worst_time(abs(w.mean(axis=2))[:, 1:], limit[:, 1:])

    def growth(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        norm, missing = _norm(w) / np.sqrt(w.shape[2]), self._missing(w)
        before = np.maximum(norm[:, :-1], np.finfo(np.float32).tiny)
        slack = (missing[:, 1:] + missing[:, :-1]) / before
        limit = 1 + slack + 2 * self._error(values)[:, None] + 4 * EPSILON
        return worst_time(norm[:, 1:] / before, limit)

    def excess(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        a, u = w[:, 0], w[:, 1:]
        above = u.max(axis=2) - a.max(axis=1, keepdims=True)
        below = a.min(axis=1, keepdims=True) - u.min(axis=2)
        between = abs(a - np.roll(a, 1, axis=1)).max(axis=1)  # a may be higher between points
        error = self._error(values) * abs(u).max(axis=(1, 2))
        limit = (between + error + self._unresolved)[:, None]
        return worst_time(np.maximum(above, below), np.broadcast_to(limit, above.shape))

    def distance(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        w = self._over_time(values)
        a, u = w[:, 0], w[:, 1:]
        difference = np.fft.rfft(u - a[:, None]) * antiderivative_symbol(self._grid)
        observed = abs(np.fft.irfft(difference, self._grid.n)).mean(axis=2)
        slope = abs(a - np.roll(a, 1, axis=1)).sum(axis=1) + self._slopes
        energy = (_norm(a) / np.sqrt(self._grid.n) + self._unresolved) ** 2
        rate = energy + self._viscosity * slope
        missing = self._unresolved + EPSILON * abs(w).max(axis=(1, 2))
        missing = missing + self._error(values) * abs(u).max(axis=(1, 2))
        return worst_time(observed, rate[:, None] * self._times + missing[:, None])


def _norm(w: np.ndarray) -> np.ndarray:
    return np.linalg.norm(w, axis=-1)
