"""The noise level of data, from differences that smooth functions hardly have."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_SECOND = np.array([1.0, -2.0, 1.0])
_MEDIAN = 0.6744897501960817  # of |ξ|, ξ ~ N(0, 1)


def noise_level(
    data: Float[np.ndarray, "m m"], deviation: Float[np.ndarray, "m m"]
) -> float:  # fmt: skip
    """ε of data u(x) + ε σ(x) ξ(x), ξ(x) ~ N(0, 1) independent at the points.

    The second difference along both axes leaves of a smooth u only h⁴ uₓₓᵧᵧ; of noise it has the
    variance Σ w² σ², w the products of 1, -2, 1. Where u has kinks, at interfaces, it is larger;
    the median over the points does not see these, as long as they are few.

    Args:
        data: On a product grid with equal spacings, 3 points an axis at least.
        deviation: σ(x).

    References: D. Donoho and I. Johnstone, Ideal spatial adaptation by wavelet shrinkage,
    Biometrika 81 (1994), section 4.2.

    >>> x = np.linspace(0, 1, 60)
    >>> u, xi = np.outer(np.sin(x), np.cos(x)), np.random.default_rng(0).standard_normal((60, 60))
    >>> round(noise_level(u + 0.1 * xi, np.ones((60, 60))), 2)
    0.1
    """
    found = _along_both(data, _SECOND)
    expected = np.sqrt(_along_both(deviation**2, _SECOND**2))
    seen = expected > 0
    return float(np.median(np.abs(found[seen]) / expected[seen]) / _MEDIAN)


def _along_both(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(values, len(weights), axis=axis)
        values = windows @ weights
    return values
