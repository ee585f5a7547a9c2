"""What a classical inversion is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Setting:
    """An inverse problem: u at some points, a wanted on cells, or at the points of an interval.

    Args:
        x: Points of the data along each axis.
        a: Known coefficients on the cells on which a is wanted, shape (samples, n, n), or
            (samples, n): those of training samples.
        u: Their solutions at the points, without noise.
    """

    x: Float[np.ndarray, " m"]
    a: Float[np.ndarray, " samples *cells"]
    u: Float[np.ndarray, " samples *points"]

    @property
    def cells(self) -> int:
        """n of an axis."""
        return self.a.shape[-1]


@dataclass(frozen=True)
class Estimate:
    """What an inversion found of one sample.

    Args:
        a: On the cells, or at the points, where it is wanted.
        solves: Systems of equations that it solved.
    """

    a: Float[np.ndarray, " *cells"]
    solves: int


# data and the deviation of their noise, both of the shape of the points
Inversion = Callable[[np.ndarray, np.ndarray], Estimate]


# these, and a coefficient to start from, on any cells
Correction = Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate]


@dataclass(frozen=True)
class ClassicalMethod:
    """A way from data to the coefficient, with a weight to be chosen on validation samples.

    Args:
        weights: To choose from.
        with_weight: The inversion that has a weight.
        correction: The same from the answer of an operator, if it can start there.
    """

    weights: tuple[float, ...]
    with_weight: Callable[[float], Inversion]
    correction: Correction | None = None
