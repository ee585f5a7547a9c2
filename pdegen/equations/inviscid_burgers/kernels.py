"""Compiled loops of the minimum principle. `solver.py` describes the mathematics.

The loops minimise F(y) = U(y) + (x - y)²/2t over y, where U is an antiderivative of u₀.
"""

from __future__ import annotations

import math

import numpy as np

from pdegen.numerics.compilation import compiled

_jit, _inner = compiled(), compiled(inner=True)

_STEPS = 30  # largest number of Newton steps; three suffice where F'' is not small
_CONVERGED = 1e-9  # last step over the spacing of candidates: its square is round-off in F


@_inner
def lower_hull(phi: np.ndarray, hull: np.ndarray) -> int:
    """Computes the lower convex hull of the points (i, phi[i]).

    Writes the indices i of its vertices to `hull` in increasing order, and returns their number.
    """
    size = 0
    for i in range(len(phi)):
        while size > 1:
            # q stays if the slope from p to q is below that from q to i
            p, q = hull[size - 2], hull[size - 1]
            if (phi[q] - phi[p]) * (i - q) < (phi[i] - phi[q]) * (q - p):
                break
            size -= 1
        hull[size] = i
        size += 1
    return size


@_inner
def fourier_sums(c: np.ndarray, y: float) -> tuple[float, float, float]:
    """Values of U, U' and U'' at y.

    U(y) = c_0 y + Re Σ_{k>0} c_k e^(2πiky) with a real c_0.
    """
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


@_inner
def refined(
    c: np.ndarray, x: float, t: float, y: float, low: float, high: float, spacing: float
) -> float:
    """The smallest value of F among the iterates of Newton's method, including the start y.

    F(y) = U(y) + (x - y)²/2t. Each step is at most two spacings long and ends in [low, high]. The
    method stops if F is not convex at an iterate.
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
        previous, y = y, max(low, min(high, y - step))
        if abs(y - previous) < _CONVERGED * spacing:
            break
    return least


@_jit
def minima(
    c: np.ndarray, table: np.ndarray, first: int, per_circle: int, candidates: int,
    t: float, x: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Writes the minimum of U(y) + (x[j] - y)²/2t over y to out[j].

    The minimum is taken over the best candidates and their Newton iterates.

    Args:
        c: Coefficients of U, as in `fourier_sums`.
        table: Values U(i/per_circle) for i = 0, ..., per_circle.
        first, per_circle, candidates: Candidate i is y = (first + i)/per_circle, i < candidates.
        t, x: Time, and increasing points.
    """
    phi, hull = np.empty(candidates), np.empty(candidates, np.int64)
    # the candidates on the lower hull of F at x[0]; F at x[j] differs by a linear function of y, so
    # its minimum is on the same hull
    for i in range(candidates):
        circle = (first + i) // per_circle
        y = (first + i) / per_circle
        value = table[first + i - circle * per_circle] + c[0].real * circle
        phi[i] = value + (y - x[0]) ** 2 / (2 * t)
    low, high = first / per_circle, (first + candidates - 1) / per_circle
    size = lower_hull(phi, hull)
    spacing, best = 1 / per_circle, 0
    # as x grows, the minimising vertex moves to the right; its neighbours are refined too
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
