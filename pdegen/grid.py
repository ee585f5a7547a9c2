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


@dataclass(frozen=True)
class CellGrid:
    """Centres x_i = (i + 1/2)/n, i = 0 ... n-1, of n equal cells of (0, 1).

    Args:
        n: Number of cells, at least 1.

    Raises:
        ValueError: If there is none.

    >>> CellGrid(64).x[0] == 1 / 128
    np.True_
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"a cell grid has at least one cell, got {self.n}")

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        return (np.arange(self.n) + 0.5) / self.n

    @property
    def spacing(self) -> float:
        """h = 1/n, which is also the weight of every cell in a quadrature."""
        return 1 / self.n


@dataclass(frozen=True)
class NodalGrid:
    """Points x_i = i/(n-1), i = 0 ... n-1, of [0, 1], both ends included.

    Args:
        n: Number of points, at least 2.

    Raises:
        ValueError: If there are fewer.

    >>> NodalGrid(65).x[-1]
    np.float64(1.0)
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ValueError(f"a nodal grid has at least its two ends, got {self.n}")

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        return np.arange(self.n) / (self.n - 1)

    @property
    def spacing(self) -> float:
        """h = 1/(n - 1)."""
        return 1 / (self.n - 1)

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The trapezoidal rule: h inside, h/2 at the ends."""
        weights = np.full(self.n, self.spacing)
        weights[[0, -1]] /= 2
        return weights
