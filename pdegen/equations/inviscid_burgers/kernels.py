"""Compiled loops of the minimum principle. The mathematics is in `solver.py`."""

from __future__ import annotations

import math

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True)

_STEPS = 30  # of Newton's method, which needs three where F'' is not small
_CONVERGED = 1e-9  # step in units of the spacing of candidates: its square is round-off in F


@_jit
def lower_hull(phi: np.ndarray, hull: np.ndarray) -> int:
    """The vertices hull[0] < hull[1] < ... of the lower convex hull of (i, phi[i]); how many."""
    size = 0
    for i in range(len(phi)):
        while size > 1:
            p, q = hull[size - 2], hull[size - 1]
            if (phi[q] - phi[p]) * (i - q) < (phi[i] - phi[q]) * (q - p):
                break
            size -= 1
        hull[size] = i
        size += 1
    return size


@_jit
def fourier_sums(c: np.ndarray, y: float) -> tuple[float, float, float]:
    """U, U' = u and u' at y, for U(y) = c_0 y + Re Σ_{k>0} c_k e^(2πiky) and real c_0."""
    angle = 2 * math.pi * y
    z = complex(math.cos(angle), math.sin(angle))
    power = z
    potential, u, slope = c[0].real * y, c[0].real, 0.0
    for k in range(1, len(c)):
        term = c[k] * power
        potential += term.real
        u -= 2 * math.pi * k * term.imag
        slope -= (2 * math.pi * k) ** 2 * term.real
        power *= z
    return potential, u, slope


@_jit
def refined(
    c: np.ndarray, x: float, t: float, y: float, low: float, high: float, spacing: float
) -> float:
    """The smallest F(y) = U(y) + (x - y)²/2t on the way of Newton's method from y.

    Steps have at most two spacings and end in [low, high]. Where F is not convex or the method
    leads upwards, the value at the candidate y stays.
    """
    least = np.inf
    for _ in range(_STEPS):
        potential, u, slope = fourier_sums(c, y)
        least = min(least, potential + (x - y) ** 2 / (2 * t))
        curvature = slope + 1 / t
        if curvature <= 0:
            break
        step = (u - (x - y) / t) / curvature
        step = max(-2 * spacing, min(2 * spacing, step))
        before, y = y, max(low, min(high, y - step))
        if abs(y - before) < _CONVERGED * spacing:
            break
    return least


@_jit
def minima(
    c: np.ndarray, table: np.ndarray, first: int, per_circle: int, candidates: int,
    t: float, x: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """out[j] = min_y U(y) + (x[j] - y)²/2t, over candidates y and what Newton makes of them.

    Args:
        c: Coefficients of U, as of `fourier_sums`.
        table: U at i/per_circle, i = 0 ... per_circle, whose mean slope is c_0.
        first, per_circle, candidates: The candidates y are (first + i)/per_circle.
        t, x: Time, and rising points.
    """
    phi, hull = np.empty(candidates), np.empty(candidates, np.int64)
    for i in range(candidates):
        circle = (first + i) // per_circle
        y = (first + i) / per_circle
        value = table[first + i - circle * per_circle] + c[0].real * circle
        phi[i] = value + (y - x[0]) ** 2 / (2 * t)
    low, high = first / per_circle, (first + candidates - 1) / per_circle
    size = lower_hull(phi, hull)
    spacing, best = 1 / per_circle, 0
    for j in range(len(x)):
        shift = (x[j] - x[0]) / t  # F = phi - shift (y - x[0]) + shift² t/2
        while best + 1 < size:
            p, q = hull[best], hull[best + 1]
            if phi[q] - phi[p] > shift * (q - p) * spacing:
                break
            best += 1
        least = np.inf
        for vertex in range(max(0, best - 1), min(size, best + 2)):
            if vertex != best and abs(hull[vertex] - hull[best]) < 3:
                continue  # no shock between them: Newton's method leads to the same point
            y = (first + hull[vertex]) / per_circle
            least = min(least, refined(c, x[j], t, y, low, high, spacing))
        out[j] = least
