"""Radial finite volumes for shallow water, and averages of radial functions over square cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.numerics.compilation import compiled

_COURANT = 0.4  # time step, in the time in which the fastest wave crosses a ring


@dataclass(frozen=True)
class RadialFlow:
    """hₜ + (r h u)ᵣ/r = 0, (h u)ₜ + (r (h u² + h²/2))ᵣ/r = h²/2r on `rings` rings of r < extent.

    Finite volumes with slopes of h and u limited by van Leer's monotonised central limiter,
    fluxes of Harten, Lax and van Leer with Einfeldt's speeds, and Heun's method. The volume of the
    water is conserved to rounding until waves reach the outer end. The order is 2 where the flow
    is smooth, and 1 at shocks.

    References: R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, 2002, chapters 6, 10
        and 13.
    """

    rings: int  # number of rings
    extent: float  # outer end of the last ring

    @property
    def edges(self) -> Float[np.ndarray, " rings+1"]:
        return np.linspace(0, self.extent, self.rings + 1)

    def disc(self, radius: float, height: float) -> Float[np.ndarray, " rings"]:
        """Averages over the rings of `height` where r < radius, and 1 outside."""
        squares = self.edges**2
        inside = np.minimum(squares, radius**2)
        return 1 + (height - 1) * np.diff(inside) / np.diff(squares)

    def __call__(
        self, h: Float[np.ndarray, " rings"], times: Sequence[float]
    ) -> Float[np.ndarray, "times rings"]:
        """The height at the given times, which increase, for water that rests at first."""
        h, m, now = h.copy(), np.zeros_like(h), 0.0
        frames = list[np.ndarray]()
        for t in times:
            _march(h, m, self.extent / self.rings, t - now)
            frames.append(h.copy())
            now = t
        return np.stack(frames)


@compiled(inner=True, error_model="numpy")
def _slope(left: float, here: float, right: float) -> float:
    """Half the monotonised central difference: half the change of the function across a ring."""
    back, ahead = here - left, right - here
    if back * ahead <= 0:
        return 0.0
    size = min(0.25 * abs(back + ahead), min(abs(back), abs(ahead)))
    return size if back > 0 else -size


@compiled(inner=True, error_model="numpy")
def _rates(
    h: np.ndarray, m: np.ndarray, dr: float, dh: np.ndarray, dm: np.ndarray, v: np.ndarray
) -> None:
    """The rates of change dh and dm of the height h and the momentum m of all rings."""
    n = h.size
    for i in range(n):
        v[i] = m[i] / h[i]
    inner_h = inner_m = 0.0  # fluxes at the inner edge of ring i, times r
    # values at the outer side of ring i
    for i in range(n):
        last = i == n - 1
        left_h, left_v = (h[i - 1], v[i - 1]) if i > 0 else (h[0], -v[0])  # mirrored at r = 0
        right_h, right_v = (h[i + 1], v[i + 1]) if not last else (h[i], v[i])
        a, p = h[i] + _slope(left_h, h[i], right_h), v[i] + _slope(left_v, v[i], right_v)
        b, q = right_h, right_v  # values at the inner side of ring i + 1
        if i < n - 2:
            b -= _slope(h[i], right_h, h[i + 2])
            q -= _slope(v[i], right_v, v[i + 2])
        root, other = np.sqrt(a), np.sqrt(b)
        speed = (root * p + other * q) / (root + other)  # Roe's means
        sound = np.sqrt(0.5 * (a + b))
        low = min(0.0, min(p - root, speed - sound))
        high = max(0.0, max(q + other, speed + sound))
        width = high - low
        flux_h = (high * a * p - low * b * q + low * high * (b - a)) / width
        flux_m = high * (a * p * p + 0.5 * a * a) - low * (b * q * q + 0.5 * b * b)
        flux_m = (flux_m + low * high * (b * q - a * p)) / width
        outer, centre = (i + 1) * dr, (i + 0.5) * dr
        dh[i] = (inner_h - outer * flux_h) / (centre * dr)
        dm[i] = (inner_m - outer * flux_m) / (centre * dr) + 0.5 * h[i] * h[i] / centre
        inner_h, inner_m = outer * flux_h, outer * flux_m


@compiled(error_model="numpy")
def _march(h: np.ndarray, m: np.ndarray, dr: float, duration: float) -> None:
    """Advance h and m by a duration, in steps that the fastest wave allows."""
    dh, dm, v = np.empty_like(h), np.empty_like(h), np.empty_like(h)
    next_h, next_m, left = np.empty_like(h), np.empty_like(h), duration
    while left > 0:
        fastest = 0.0
        for i in range(h.size):
            fastest = max(fastest, abs(m[i] / h[i]) + np.sqrt(h[i]))
        dt = _COURANT * dr / fastest
        if dt >= left:
            dt, left = left, 0.0
        else:
            left -= dt
        _rates(h, m, dr, dh, dm, v)
        for i in range(h.size):
            next_h[i], next_m[i] = h[i] + dt * dh[i], m[i] + dt * dm[i]
        _rates(next_h, next_m, dr, dh, dm, v)
        for i in range(h.size):
            h[i] = 0.5 * (h[i] + next_h[i] + dt * dh[i])
            m[i] = 0.5 * (m[i] + next_m[i] + dt * dm[i])


sparse: Any = scipy.sparse
Shares = Any  # a sparse matrix, (cells, rings)


@lru_cache(maxsize=4)
def ring_shares(n: int, side: float, flow: RadialFlow) -> Shares:
    """The share of each ring in each of the n/2 x n/2 cells of the quadrant x, y > 0 of a square.

    The product with averages over rings is the exact average over cells.
    """
    before, shares = np.zeros(n * n // 4), list[Shares]()
    for edge in flow.edges[1:]:
        inside = disc_areas(n // 2, side, float(edge)).reshape(-1)
        shares.append(sparse.csr_array((inside - before)[None] / (side / n) ** 2))
        before = inside
    return sparse.vstack(shares).T.tocsr()


def disc_areas(half: int, side: float, radius: float) -> Float[np.ndarray, "half half"]:
    """The area within `radius` of each of half x half cells of the quadrant of a square.

    The area of [0, x] x [0, y] within the radius is the integral of min(y, (r² - s²)^½) over
    s < min(x, r), which is elementary.
    """

    def integral(s: np.ndarray) -> np.ndarray:
        share = np.minimum(s / radius, 1)
        return radius**2 / 2 * (share * np.sqrt(1 - share**2) + np.arcsin(share))

    x = np.minimum(np.linspace(0, side / 2, half + 1), radius)
    straight = np.sqrt((radius - x) * (radius + x))  # y is below the circle for s < straight
    curved = np.maximum(integral(x)[:, None] - integral(straight), 0)
    area = np.minimum(x[:, None], straight) * x + curved
    return np.diff(np.diff(area, axis=0), axis=1)


def on_square(
    shares: Shares, h: Float[np.ndarray, "times rings"]
) -> Float[np.ndarray, "times n n"]:
    """Averages over the cells of the square of a height that is 1 beyond the rings."""
    quadrant: np.ndarray = 1 + (shares @ (h - 1).T).T
    half = math.isqrt(quadrant.shape[1])
    return mirrored(quadrant.reshape(-1, half, half))


def mirrored(quadrant: Float[np.ndarray, "*batch half half"]) -> Float[np.ndarray, "*batch n n"]:
    """A function on the square that is even in x and y, from its quadrant x, y > 0."""
    right = np.concatenate([quadrant[..., ::-1, :], quadrant], axis=-2)
    return np.concatenate([right[..., ::-1], right], axis=-1)
