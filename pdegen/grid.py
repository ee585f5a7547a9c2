"""Grids on the unit interval: points, spacing, quadrature weight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class PeriodicGrid:
    """Points x_j = j/n, j = 0 ... n-1, of a circle of length 1; the end point is not repeated.

    Args:
        n: Number of points, at least 4 and even (so that every other point is a grid too).

    Raises:
        ValueError: If n is odd or too small.

    >>> PeriodicGrid(64).x[-1] == 63 / 64
    np.True_
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 4 or self.n % 2:
            raise ValueError(f"a periodic grid has an even number of points >= 4, got {self.n}")

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        return np.arange(self.n) / self.n

    @property
    def spacing(self) -> float:
        """h = 1/n, which is also the weight of every point in a quadrature."""
        return 1 / self.n

    def stride_to(self, coarse: PeriodicGrid) -> int:
        """The stride s with coarse.x = x[::s].

        Raises:
            ValueError: If the coarse points are not among the fine ones.
        """
        if self.n % coarse.n:
            raise ValueError(f"a grid of {coarse.n} points is not a part of one of {self.n}")
        return self.n // coarse.n
