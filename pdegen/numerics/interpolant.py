"""Values at equidistant points of a circle or torus -> the same function at more points."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def interpolated(
    u: Float[np.ndarray, "..."], points: int, dimension: int = 1
) -> Float[np.ndarray, "..."]:
    """The trigonometric interpolant of u, the function of least wave numbers with these values.

    Args:
        u: Values at n points along each of the last axes.
        points: Points along each of them in the result, at least n.
        dimension: Number of these axes.

    >>> x = np.arange(4) / 4
    >>> fine = interpolated(np.cos(2 * np.pi * x), 8)
    >>> bool(np.allclose(fine, np.cos(2 * np.pi * np.arange(8) / 8)))
    True
    """
    for axis in range(-dimension, 0):
        n = u.shape[axis]
        v = np.moveaxis(np.fft.rfft(u, axis=axis), axis, -1)
        if n % 2 == 0 and points > n:
            v = np.concatenate([v[..., :-1], v[..., -1:] / 2], axis=-1)  # of n/2 and -n/2
        u = np.moveaxis(np.fft.irfft(v, points) * (points / n), -1, axis)
    return u
