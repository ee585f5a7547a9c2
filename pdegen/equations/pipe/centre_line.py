"""Centre lines of pipes: piecewise cubic polynomials with given heights and slopes at knots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

CUBICS = 4  # cubic pieces along a pipe


@dataclass(frozen=True)
class CentreLine:
    """Heights y(x) of the centre lines of pipes for 0 <= x <= length.

    Knot e has the height d_e and the slope m_e = dy/dt, where t = 4x/length - e. For 0 <= t <= 1,
    y = d_e (1 - 3t² + 2t³) + m_e (t - 2t² + t³) + d_{e+1} (3t² - 2t³) + m_{e+1} (t³ - t²).

    >>> line = CentreLine(np.array([[0.0, 1, 0, 0, 0]]), np.zeros((1, 5)))
    >>> line(9).tolist()
    [[0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    heights: Float[np.ndarray, "batch 5"]  # heights d_0 ... d_4 at the five knots
    slopes: Float[np.ndarray, "batch 5"]  # slopes m_0 ... m_4 = dy/dt at the knots

    def __call__(self, n: int) -> Float[np.ndarray, "batch n"]:
        """Heights y at n equally spaced x, including both ends."""
        position = np.arange(n) * CUBICS / (n - 1)
        e = np.minimum(position.astype(int), CUBICS - 1)
        t = position - e
        falling, rising = 1 - 3 * t**2 + 2 * t**3, 3 * t**2 - 2 * t**3
        d, m = self.heights, self.slopes
        return (
            d[:, e] * falling
            + m[:, e] * (t - 2 * t**2 + t**3)
            + d[:, e + 1] * rising
            + m[:, e + 1] * (t**3 - t**2)
        )
