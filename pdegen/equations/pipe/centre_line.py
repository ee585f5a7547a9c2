"""Centre lines of pipes: cubics between knots, with random heights and slopes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

ELEMENTS = 4  # cubics along a pipe


@dataclass(frozen=True)
class CentreLine:
    """The height y(x) of the middle of a pipe, 0 <= x <= length: a cubic between two knots.

    With t = 4x/length - e on element e,
    y = d_e (1 - 3t² + 2t³) + m_e (t - 2t² + t³) + d_{e+1} (3t² - 2t³) + m_{e+1} (t³ - t²).

    >>> line = CentreLine(np.array([[0.0, 1, 0, 0, 0]]), np.zeros((1, 5)))
    >>> line(9).tolist()
    [[0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    heights: Float[np.ndarray, "batch 5"]  # d_0 ... d_4 at the five knots
    slopes: Float[np.ndarray, "batch 5"]  # m_0 ... m_4 = dy/dt there

    def __call__(self, n: int) -> Float[np.ndarray, "batch n"]:
        """y at n equally spaced x, both ends included."""
        place = np.arange(n) * ELEMENTS / (n - 1)
        e = np.minimum(place.astype(int), ELEMENTS - 1)
        t = place - e
        falling, rising = 1 - 3 * t**2 + 2 * t**3, 3 * t**2 - 2 * t**3
        d, m = self.heights, self.slopes
        return (
            d[:, e] * falling
            + m[:, e] * (t - 2 * t**2 + t**3)
            + d[:, e + 1] * rising
            + m[:, e + 1] * (t**3 - t**2)
        )
