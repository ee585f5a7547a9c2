"""Fourier space on a periodic grid of length L, in the half-complex layout of rfft."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Complex, Float

from pdegen.domains import PeriodicGrid


def wave_numbers(grid: PeriodicGrid) -> Float[np.ndarray, " k"]:
    """Angular wave numbers 2πk/L of the modes k = 0 ... n/2.

    Raises ValueError if n is odd or less than 4.
    """
    if grid.n < 4 or grid.n % 2:
        raise ValueError(f"a spectral method needs an even number of points >= 4, got {grid.n}")
    return 2 * np.pi * np.arange(grid.n // 2 + 1) / grid.length


def derivative_symbol(grid: PeriodicGrid) -> Complex[np.ndarray, " k"]:
    """2πik/L, the symbol of d/dx; 0 for the mode n/2, which has no derivative on the grid.

    >>> grid = PeriodicGrid(16, length=2.0)
    >>> u_hat = np.fft.rfft(np.sin(np.pi * grid.x))
    >>> du = np.fft.irfft(derivative_symbol(grid) * u_hat)
    >>> np.allclose(du, np.pi * np.cos(np.pi * grid.x))
    True
    """
    symbol = 1j * wave_numbers(grid)
    symbol[-1] = 0
    return symbol


def antiderivative_symbol(grid: PeriodicGrid) -> Complex[np.ndarray, " k"]:
    """L/(2πik), the inverse of d/dx on functions without mean; 0 for the modes 0 and n/2."""
    symbol = derivative_symbol(grid)
    inside = symbol != 0
    symbol[inside] = 1 / symbol[inside]
    return symbol


def dealiased(grid: PeriodicGrid) -> Bool[np.ndarray, " k"]:
    """A mask of the modes k < n/3, which have no aliasing in quadratic products (2/3 rule)."""
    return 3 * np.arange(grid.n // 2 + 1) < grid.n


def interpolated(
    u: Float[np.ndarray, "..."], points: int, dimension: int = 1
) -> Float[np.ndarray, "..."]:
    """The values on a finer grid of the trigonometric interpolant of u.

    Among all interpolants, this one has the smallest wave numbers.

    Args:
        u: Values at n points along each of the last `dimension` axes.
        points: Number of points of the result along each of these axes, at least n.
        dimension: Number of axes along which u is interpolated.

    >>> x = np.arange(4) / 4
    >>> fine = interpolated(np.cos(2 * np.pi * x), 8)
    >>> bool(np.allclose(fine, np.cos(2 * np.pi * np.arange(8) / 8)))
    True
    """
    for axis in range(-dimension, 0):
        n = u.shape[axis]
        v = np.moveaxis(np.fft.rfft(u, axis=axis), axis, -1)
        if n % 2 == 0 and points > n:
            v = np.concatenate([v[..., :-1], v[..., -1:] / 2], axis=-1)  # split over n/2 and -n/2
        u = np.moveaxis(np.fft.irfft(v, points) * (points / n), -1, axis)
    return u
