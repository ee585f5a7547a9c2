"""Checks of stored solutions of the inviscid Burgers equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    Values,
    in_blocks,
    stated_error,
    worst_time,
)
from pdegen.checks.gaussian import GaussianCheck, circle_modes
from pdegen.sampling.gaussian import (
    SquaredExponentialField,
    antiderivative,
    averages,
    values,
)

_POINTS = 4096  # points at which u(x, 0) and its antiderivative are evaluated
_INTERVALS = 16  # intervals at whose ends the potential is compared

Edges = Float[np.ndarray, "batch edges"]


def inviscid_burgers_checks(
    field: SquaredExponentialField, n: int, periodic: bool, times: Sequence[float], tolerance: float
) -> StoreChecks:
    """Checks of entropy solutions: theta defines the initial value a, and u solves the equation.

    At each time the following holds:

    - u stays within the range of u(·, 0) (maximum principle).
    - The total variation of u does not exceed that of u(·, 0).
    - u rises by at most h/t from cell to cell (Oleinik's condition).
    - The integral of u from x₁ to x₂ is V(x₂) - V(x₁) with V(x) = min_y U₀(y) + (x - y)²/2t. The
      check takes the minimum over 4096 points y.
    - On the circle, the mean of u is constant in time and the mean square does not increase.
    """
    physics = _Physics(field, n, periodic, np.array(times))
    k = np.arange(field.modes + 1)
    variances = (field.stds * np.sinc(k / n)) ** 2
    gaussian = [] if n % 2 else [
        GaussianCheck(
            "a", lambda a: a.astype(np.float64), circle_modes(variances, n),
            np.full(n, variances.sum()), relative=True,
        )
    ]  # fmt: skip
    on_the_circle = [
        Bound("u", "the distance of the means of u and a", physics.mean),
        Bound("u", "the mean square over that of the time before", in_blocks(physics.growth)),
    ]
    return StoreChecks(
        (
            *gaussian,
            Distinct("theta"),
            Bound("a", "the distance from the averages of theta", in_blocks(physics.initial)),
            *stated_error(tolerance),
            Bound("u", "the excess over the range of u at t = 0", in_blocks(physics.excess)),
            Bound("u", "the total variation", in_blocks(physics.variation)),
            Bound("u", "t over h times the largest rise of u between cells", physics.rise),
            Bound(
                "u", "the distance of its integral from the minimum", in_blocks(physics.potential)
            ),
            *(on_the_circle if periodic else ()),
        )
    )


class _Physics:
    """Quantities that the checks bound for each sample. Their limits allow for rounding."""

    def __init__(
        self,
        field: SquaredExponentialField,
        n: int,
        periodic: bool,
        times: Float[np.ndarray, " times"],
    ) -> None:
        self._field, self._n, self._periodic, self._times = field, n, periodic, times
        self._wave_numbers = 2 * np.pi * np.arange(field.modes + 1)

    def _u(self, stored: Values) -> Float[np.ndarray, "batch times n"]:
        """The solution at the output times, converted to float64."""
        u = stored["u"].astype(np.float64)
        return u.reshape(len(u), len(self._times), self._n)

    def _u0(self, stored: Values) -> tuple[Float[np.ndarray, "batch points"], np.ndarray]:
        """u(·, 0) at many points, and a bound for its values between these points.

        Between the points, u(·, 0) leaves the range of its values at the points by at most the
        bound.
        """
        c = self._field.coefficients(stored["theta"])
        u0 = values(c, _POINTS)
        between = abs(c) @ self._wave_numbers**2 / (8 * _POINTS**2)
        return u0, between + 2 * EPSILON * abs(u0).max(axis=1)

    def initial(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        a = averages(self._field.coefficients(stored["theta"]), self._n)
        return abs(stored["a"] - a).max(axis=1), 2 * EPSILON * abs(a).max(axis=1)

    def excess(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, between) = self._u(stored), self._u0(stored)
        above = u.max(axis=(1, 2)) - u0.max(axis=1)
        below = u0.min(axis=1) - u.min(axis=(1, 2))
        return np.maximum(above, below), between

    def variation(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, between) = self._u(stored), self._u0(stored)
        observed = np.max([_variation(v, self._periodic) for v in np.moveaxis(u, 1, 0)], axis=0)
        # a mode may have an extremum between two points, and rounding adds one to each cell
        turns = 4 * self._field.modes * between + 2 * self._n * EPSILON * abs(u).max(axis=(1, 2))
        return observed, _variation(u0, self._periodic) + turns

    def rise(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u = self._u(stored)
        if self._periodic:
            u = np.concatenate([u, u[..., :1]], axis=2)
        per_rise = self._n * self._times
        observed = np.diff(u).max(axis=2, initial=0.0) * per_rise
        limit = 1 + 4 * EPSILON * abs(u).max(axis=2) * per_rise
        return worst_time(observed, limit)

    def potential(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        c = self._field.coefficients(stored["theta"])
        edges = np.unique(np.arange(_INTERVALS + 1) * self._n // _INTERVALS)
        u = self._u(stored)
        integral = np.concatenate([u[..., :1] * 0, np.cumsum(u, axis=2)], axis=2) / self._n
        minimum = _on_circle if self._periodic else _on_line
        v = np.stack([minimum(c, t, edges / self._n) for t in self._times], axis=1)
        observed = abs(integral[..., edges] - (v - v[..., :1])).max(axis=2)
        # a minimum lies half a spacing from a point at most
        slope = abs(c) @ self._wave_numbers
        nearest = (slope[:, None] + 1 / self._times) / (8 * _POINTS**2)
        return worst_time(observed, 2 * nearest + 2 * EPSILON * abs(u).mean(axis=2) + 1e-9)

    def mean(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, a = self._u(stored), stored["a"].astype(np.float64)
        observed = abs(u.mean(axis=2) - a.mean(axis=1, keepdims=True)).max(axis=1)
        return observed, 2 * EPSILON * (abs(a).mean(axis=1) + abs(u).mean(axis=2).max(axis=1))

    def growth(self, stored: Values) -> tuple[np.ndarray, np.ndarray]:
        u, (u0, _) = self._u(stored), self._u0(stored)
        squares = np.concatenate(
            [np.square(u0).mean(axis=1, keepdims=True), np.square(u).mean(axis=2)], axis=1
        )
        return (squares[:, 1:] / squares[:, :-1]).max(axis=1), np.array(1 + 8 * EPSILON)


def _variation(u: Float[np.ndarray, "batch n"], periodic: bool) -> Float[np.ndarray, " batch"]:
    """Total variation of u: on the circle if `periodic`, else on the line."""
    if periodic:
        u = np.concatenate([u, u[:, :1]], axis=1)
    return abs(np.diff(u)).sum(axis=1)


def _minimum(
    table: Float[np.ndarray, "batch points"],
    distance: Callable[[Float[np.ndarray, " batch"]], np.ndarray],
    t: float,
    x: Edges,
) -> Edges:
    """The minimum of U(y) + distance(x)²/2t at each edge x, over the points y of the table.

    `table` has the values U(y), and distance(x) the distances from x to all points y.
    """
    return np.stack([(table + distance(at) ** 2 / (2 * t)).min(axis=1) for at in x.T], axis=1)


def _on_circle(c: np.ndarray, t: float, edges: np.ndarray) -> Edges:
    """V = min_y U₀(y) + (x - y)²/2t at the edges, on the circle.

    First, V is computed for the field minus its mean m. Then V is shifted by m t, and m x is added.
    """
    mean, y = np.real(c[:, :1]), np.arange(_POINTS) / _POINTS
    fluctuation = np.concatenate([0 * c[:, :1], c[:, 1:]], axis=1)
    table = antiderivative(fluctuation, _POINTS)[:, :-1]

    def nearest(x: np.ndarray) -> np.ndarray:
        return (x[:, None] - y + 0.5) % 1 - 0.5

    return _minimum(table, nearest, t, edges - mean * t) + mean * edges


def _on_line(c: np.ndarray, t: float, edges: np.ndarray) -> Edges:
    """V = min_y U₀(y) + (x - y)²/2t at the edges, on the line.

    Outside [0, 1] the field equals its value at both ends.
    """
    y, end = np.arange(_POINTS + 1) / _POINTS, np.real(c).sum(axis=1)[:, None]
    table = antiderivative(c, _POINTS)
    x = np.broadcast_to(edges, (len(c), len(edges)))
    v = _minimum(table, lambda at: at[:, None] - y, t, x)
    for start, inside in ((0.0, x - t * end < 0), (1.0, x - t * end > 1)):
        u0 = table[:, -1:] * start + end * (x - start)
        v = np.where(inside, np.minimum(v, u0 - t * end**2 / 2), v)
    return v
