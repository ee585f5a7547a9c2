"""Nodes of C-grids around a morphed NACA 0012 airfoil."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# cells of the published grid: along the wake, along one side of the airfoil, away from the wall
WAKE_CELLS, SIDE_CELLS, NORMAL_CELLS = 50, 60, 50
PUBLISHED_CELLS = 2 * (
    WAKE_CELLS + SIDE_CELLS
)  # cells along i, around the airfoil and along its wake
# outer boundary, in chords: a half circle of this radius around (1, 0), straight lines to x = 40
_RADIUS, _CENTRE_X, _OUTLET_X = 40.0, 1.0, 40.0
_FIRST_STEP = (2 / 120) / _RADIUS  # first step along a grid line, as a fraction of its length
_GROWTH, _GROWING_STEPS = 1.02, 37  # ratio of successive steps, and how many steps it holds for
CONTROL_X = (-0.25, 0.25, 0.75, 1.25)  # x of the control points
_CONTROL_Y = 0.1  # the control points lie at y = -0.1 and 0.1


def half_thickness(x: Float[np.ndarray, " *n"]) -> Float[np.ndarray, " *n"]:
    """Half the thickness of the NACA 0012 with a closed trailing edge, for a chord of length 1."""
    powers = -0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    return 0.6 * (0.2969 * np.sqrt(x) + powers)


def displacement(
    design: Float[np.ndarray, "8"], x: Float[np.ndarray, " *n"], y: Float[np.ndarray, " *n"]
) -> Float[np.ndarray, " *n"]:
    """Vertical displacement Σ d_i B_i(x, y) of the points (x, y).

    B_i is a cubic Lagrange polynomial in x, with the four control abscissae as nodes, and linear
    in y. Control points 1 to 4 lie at y = -0.1, from left to right. Control points 5 to 8 lie at
    y = 0.1, from right to left.
    """
    nodes = np.array(CONTROL_X)
    cubic = [np.prod([(x - b) / (a - b) for b in nodes if b != a], axis=0) for a in nodes]
    lower = sum(d * phi for d, phi in zip(design[:4], cubic, strict=True))
    upper = sum(d * phi for d, phi in zip(design[:3:-1], cubic, strict=True))
    upper_weight = (y + _CONTROL_Y) / (2 * _CONTROL_Y)
    return (1 - upper_weight) * lower + upper_weight * upper


def _stretched_fractions(t: Float[np.ndarray, " n"], first: float) -> Float[np.ndarray, " n"]:
    """Arc length after t steps along a grid line of length 1, for 0 <= t <= 50.

    The first step has the length `first`. The ratio of successive steps is 1.02 for 37 steps. The
    ratio of the later steps is chosen so that the line ends at 1. t may be fractional.
    """
    slow = first * (_GROWTH ** np.minimum(t, _GROWING_STEPS) - 1) / (_GROWTH - 1)
    slow_length, step = (
        first * (_GROWTH**_GROWING_STEPS - 1) / (_GROWTH - 1),
        first * _GROWTH**_GROWING_STEPS,
    )
    low, high = 1 + 1e-4, 2.0  # bisection for the ratio of the remaining steps
    for _ in range(200):
        ratio = (low + high) / 2
        too_long = (
            step * (ratio ** (NORMAL_CELLS - _GROWING_STEPS) - 1) / (ratio - 1) > 1 - slow_length
        )
        low, high = (low, ratio) if too_long else (ratio, high)
    fast = step * (ratio ** np.maximum(t - _GROWING_STEPS, 0) - 1) / (ratio - 1)
    fractions = slow + fast
    fractions[t == NORMAL_CELLS] = 1
    return fractions


def _surface_x(s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Abscissae of the surface nodes that are s cells of the published grid away from the nose.

    s may be fractional, 0 <= s <= 60. For s = 0, 1, 2 the abscissae are 0, 1/236, 1/59.
    """
    return np.where(s < 2, s**2 / (4 * (SIDE_CELLS - 1)), (s - 1) / (SIDE_CELLS - 1))


def c_grid(design: Float[np.ndarray, "8"], resolution: int) -> Float[np.ndarray, "n m 2"]:
    """Nodes of the C-grid with `resolution` cells along i. The published grid has 220.

    i starts at the outlet and runs along the wake, the upper side, the nose, the lower side, and
    the wake again to the outlet. j runs from the airfoil and the wake outwards. The grid with
    twice the resolution contains these nodes.

    >>> grid = c_grid(np.zeros(8), 220)
    >>> grid.shape, grid[110, 0].tolist(), grid[50, 0].round(12).tolist()
    ((221, 51, 2), [0.0, 0.0], [1.0, 0.0])
    """
    step = PUBLISHED_CELLS / resolution
    i, j = (
        step * np.arange(resolution + 1),
        step * np.arange(resolution * NORMAL_CELLS // PUBLISHED_CELLS + 1),
    )
    s = i - PUBLISHED_CELLS / 2  # published steps from the nose, negative on the upper side
    x = _surface_x(np.minimum(abs(s), SIDE_CELLS))
    y = np.where(s < 0, 1, -1) * half_thickness(x)
    y[abs(s) >= SIDE_CELLS] = 0.0  # the trailing edge and the wake
    last_step = np.hypot(
        1 / (SIDE_CELLS - 1), half_thickness(_surface_x(np.array(SIDE_CELLS - 1.0)))
    )
    wake_fraction = _stretched_fractions(
        np.maximum(abs(s) - SIDE_CELLS, 0), float(last_step) / (_OUTLET_X - 1)
    )
    y = y + displacement(design, x, y)
    inner = np.stack(
        [x * (1 - wake_fraction) + _OUTLET_X * wake_fraction, y * (1 - wake_fraction)], axis=-1
    )
    angle = np.pi / 2 + np.pi * np.clip((s / SIDE_CELLS + 1) / 2, 0, 1)
    straight = (_OUTLET_X - 1) * np.maximum(abs(s) - SIDE_CELLS, 0) / WAKE_CELLS
    outer = np.stack(
        [_CENTRE_X + _RADIUS * np.cos(angle) + straight, _RADIUS * np.sin(angle)], axis=-1
    )
    # lines of constant i run straight from the inner to the outer boundary
    w = _stretched_fractions(j, _FIRST_STEP)[None, :, None]
    return (1 - w) * inner[:, None] + w * outer[:, None]
