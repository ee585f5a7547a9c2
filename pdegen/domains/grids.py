"""Grids of equally spaced points on an interval: periodic, cell-centred or nodal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float


class DomainError(ValueError):
    """Raised if attributes or positions do not describe a domain. The message is a single line."""


@dataclass(frozen=True)
class Grid:
    """Equally spaced points of an interval.

    Raises ValueError if the grid has too few points, or its length is not positive and finite.
    """

    n: int  # number of points
    length: float = 1.0  # length L of the interval
    start: float = 0.0  # lower end of the interval

    kind: ClassVar[str]
    minimum: ClassVar[int] = 1  # smallest number of points
    too_few: ClassVar[str] = "a grid has at least one point"  # error message
    offset: ClassVar[float] = 0  # distance, in spacings h, from the lower end to the first point
    extra_points: ClassVar[int] = 0  # number of points minus number of spacings h in the length

    def __post_init__(self) -> None:
        if self.n < self.minimum:
            raise ValueError(f"{self.too_few}, got {self.n}")
        if not (0 < self.length < math.inf and math.isfinite(self.start)):
            raise ValueError(
                f"an interval has a positive, finite length, got {self.length} from {self.start}"
            )

    def check_unit(self) -> None:
        """Raise ValueError if the interval is not (0, 1)."""
        if (self.start, self.length) != (0, 1):
            raise ValueError(
                f"expected a grid on (0, 1), got ({self.start:g}, {self.start + self.length:g})"
            )

    @property
    def intervals(self) -> int:
        """Length of the interval divided by the spacing h."""
        return self.n - self.extra_points

    @cached_property
    def x(self) -> Float[np.ndarray, " n"]:
        """Coordinates of the points."""
        unit = (np.arange(self.n) + self.offset) / self.intervals
        return unit if (self.start, self.length) == (0, 1) else self.start + self.length * unit

    @property
    def spacing(self) -> float:
        """Spacing h, which is also the quadrature weight of an inner point."""
        return self.length / self.intervals

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Quadrature weights; their sum is the length."""
        return np.full(self.n, self.spacing)

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        """Mask that is True at points on the ends of the interval."""
        return np.zeros(self.n, bool)

    def every(self, stride: int) -> Grid:
        """The grid of every `stride`-th point.

        >>> CellGrid(5).every(2).x
        array([0.1, 0.5, 0.9])
        """
        if stride == 1:
            return self
        n, h = -(-self.n // stride), stride * self.spacing
        coarse = replace(self, n=n)
        start = self.start + self.offset * self.spacing - self.offset * h
        return replace(coarse, start=start, length=coarse.intervals * h)

    @classmethod
    def through(cls, x: Float[np.ndarray, " n"]) -> Grid:
        """The grid whose points are x.

        Raises DomainError if they are not equally spaced within the rounding to float32.
        """
        n = len(x)
        probe = cls(n)
        if n == 1:
            return cls(1, start=float(x[0]) - probe.offset)
        h = float(x[-1] - x[0]) / (n - 1)
        rounding = 4 * np.finfo(np.float32).eps * float(np.abs(x).max())
        if not (0 < h < math.inf) or np.abs(np.diff(x) - h).max() > 1e-6 * h + rounding:
            raise DomainError(f"the points of a {cls.kind} grid must increase by equal steps")
        start = float(x[0]) - probe.offset * h
        length = probe.intervals * h
        near = [abs(start) <= 1e-9 * length, abs(length - 1) <= 1e-9]
        return cls(n, 1.0 if near[1] else length, 0.0 if near[0] else start)


@dataclass(frozen=True)
class PeriodicGrid(Grid):
    """Points x_j = jL/n, j = 0 ... n-1, on a circle of length L. The end point is not repeated.

    >>> PeriodicGrid(64).x[-1] == 63 / 64
    np.True_
    """

    kind = "periodic"

    def stride_to(self, coarse: PeriodicGrid) -> int:
        """The stride s with coarse.x = x[::s].

        Raises ValueError if some points of the coarse grid are not points of this grid.
        """
        if self.n % coarse.n:
            raise ValueError(f"a grid of {coarse.n} points is not part of a grid of {self.n}")
        return self.n // coarse.n


@dataclass(frozen=True)
class CellGrid(Grid):
    """Centres x_i = (i + 1/2)L/n, i = 0 ... n-1, of n equal cells of (0, L).

    >>> CellGrid(64).x[0] == 1 / 128
    np.True_
    """

    kind = "cell"
    too_few = "a cell grid has at least one cell"
    offset = 0.5


@dataclass(frozen=True)
class NodalGrid(Grid):
    """Points x_i = iL/(n-1), i = 0 ... n-1, of [0, L], both ends included.

    >>> NodalGrid(65).x[-1]
    np.float64(1.0)
    """

    kind = "nodal"
    minimum = 2
    too_few = "a nodal grid has at least its two ends"
    extra_points = 1

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Weights of the trapezoidal rule: h inside, h/2 at the ends."""
        weights = np.full(self.n, self.spacing)
        weights[[0, -1]] /= 2
        return weights

    @cached_property
    def boundary(self) -> Bool[np.ndarray, " n"]:
        ends = np.zeros(self.n, bool)
        ends[[0, -1]] = True
        return ends


GRIDS: dict[str, type[Grid]] = {g.kind: g for g in (PeriodicGrid, CellGrid, NodalGrid)}
