"""C-grids around a morphed NACA 0012: points, and the faces of cells with their stencils."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# the published grid, in its own units: 50 cells along the wake, 60 along a side, 50 outwards
WAKE, SIDE, OUTWARD = 50, 60, 50
BASE = 2 * (WAKE + SIDE)  # cells around it
_RADIUS, _CENTRE, _OUTLET = 40.0, 1.0, 40.0
_FIRST = (2 / 120) / _RADIUS  # of the fractions along a line outwards
_SLOW, _SLOWLY = 1.02, 37  # ratio of the first steps, and their number
CONTROLS = (-0.25, 0.25, 0.75, 1.25)  # x of the control points
_HALF = 0.1  # |y| of the control points


def thickness(x: Float[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
    """Half the thickness of the NACA 0012 with a closed trailing edge."""
    powers = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    return 0.6 * (0.2969 * np.sqrt(x) + powers)


def displacement(
    design: Float[np.ndarray, "8"], x: Float[np.ndarray, " *n"], y: Float[np.ndarray, " *n"]
) -> Float[np.ndarray, " *n"]:
    """Σ d_i B_i(x, y): cubic through four x, linear between y = -0.1 and 0.1.

    The points 1 to 4 lie on the lower side from left to right, 5 to 8 on the upper one from right
    to left.
    """
    nodes = np.array(CONTROLS)
    cubic = [
        np.prod([(x - b) / (a - b) for b in nodes if b != a], axis=0) for a in nodes
    ]  # Lagrange's
    lower = sum(d * phi for d, phi in zip(design[:4], cubic, strict=True))
    upper = sum(d * phi for d, phi in zip(design[:3:-1], cubic, strict=True))
    share = (y + _HALF) / (2 * _HALF)
    return (1 - share) * lower + share * upper


def _stretched(t: Float[np.ndarray, " n"], first: float) -> Float[np.ndarray, " n"]:
    """Fractions of a line at the places t in [0, 50], in published steps: `first`, growing by 1.02
    for 37 steps, then by the ratio that ends at 1. Between whole t the same exponentials."""
    slow = first * (_SLOW ** np.minimum(t, _SLOWLY) - 1) / (_SLOW - 1)
    end, step = first * (_SLOW**_SLOWLY - 1) / (_SLOW - 1), first * _SLOW**_SLOWLY
    low, high = 1 + 1e-4, 2.0
    for _ in range(200):
        ratio = (low + high) / 2
        beyond = step * (ratio ** (OUTWARD - _SLOWLY) - 1) / (ratio - 1) > 1 - end
        low, high = (low, ratio) if beyond else (ratio, high)
    fast = step * (ratio ** np.maximum(t - _SLOWLY, 0) - 1) / (ratio - 1)
    values = slow + fast
    values[t == OUTWARD] = 1
    return values


def _abscissae(s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """x of surface points at s in [0, 60] published steps from the nose: 0, 1/236, 1/59, 2/59..."""
    return np.where(s < 2, s**2 / (4 * (SIDE - 1)), (s - 1) / (SIDE - 1))


def c_grid(design: Float[np.ndarray, "8"], resolution: int) -> Float[np.ndarray, "n m 2"]:
    """The points of a grid of `resolution` cells around the section; 220 is the published one.

    A grid of twice the resolution has all of these points. i runs from the outlet along the wake,
    the upper side, the nose, the lower side and the wake back to the outlet; j from the section and
    the wake outwards.

    >>> grid = c_grid(np.zeros(8), 220)
    >>> grid.shape, grid[110, 0].tolist(), grid[50, 0].round(12).tolist()
    ((221, 51, 2), [0.0, 0.0], [1.0, 0.0])
    """
    step = BASE / resolution
    i, j = step * np.arange(resolution + 1), step * np.arange(resolution * OUTWARD // BASE + 1)
    s = i - BASE / 2  # from the nose, below 0 on the upper side
    x = _abscissae(np.minimum(abs(s), SIDE))
    y = np.where(s < 0, 1, -1) * thickness(x)
    y[abs(s) >= SIDE] = 0.0
    last = np.hypot(1 / (SIDE - 1), thickness(_abscissae(np.array(SIDE - 1.0))))
    behind = _stretched(np.maximum(abs(s) - SIDE, 0), float(last) / (_OUTLET - 1))
    y = y + displacement(design, x, y)
    inner = np.stack([x * (1 - behind) + _OUTLET * behind, y * (1 - behind)], axis=-1)
    angle = np.pi / 2 + np.pi * np.clip((s / SIDE + 1) / 2, 0, 1)
    straight = (_OUTLET - 1) * np.maximum(abs(s) - SIDE, 0) / WAKE
    outer = np.stack(
        [_CENTRE + _RADIUS * np.cos(angle) + straight, _RADIUS * np.sin(angle)], axis=-1
    )
    w = _stretched(j, _FIRST)[None, :, None]
    return (1 - w) * inner[:, None] + w * outer[:, None]
