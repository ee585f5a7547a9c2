"""What a classical inversion is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True)
class InverseProblem:
    """An inverse problem: u at some points, a wanted on cells, or at the points of an interval.

    Args:
        x: Points of the data along each axis.
        a: Known coefficients on the cells on which a is wanted, shape (samples, n, n), or
            (samples, n): those of training samples.
        u: Their solutions at the points, without noise.
        seen: Points that have a sensor; None where all have. An inversion takes the data, and
            their deviation, at these points alone, in C order.
    """

    x: Float[np.ndarray, " m"]  # points of the data along each axis
    # known coefficients on the cells on which a is wanted, shape (samples, n, n), or (samples, n):
    # those of training samples
    a: Float[np.ndarray, " samples *cells"]
    u: Float[np.ndarray, " samples *points"]  # their solutions at the points, without noise
    # points that have a sensor; None where all have. An inversion takes the data, and their
    # deviation, at these points alone, in C order
    sensors: Bool[np.ndarray, " *points"] | None = None

    @property
    def cells(self) -> int:
        """n of an axis."""
        return self.a.shape[-1]


@dataclass(frozen=True)
class Estimate:
    """What an inversion found of one sample."""

    a: Float[np.ndarray, " *cells"]  # on the cells, or at the points, where it is wanted
    solves: int  # systems of equations that it solved
    # of the posterior, where the method states one, shape of a. Of two phases with the values α < β
    # it is (β - α)(p (1 - p))^½, p = (a - α)/(β - α) the probability that it states for the upper
    # one
    deviation: Float[np.ndarray, " *cells"] | None = None


# data and the deviation of their noise, both of the shape of the points, or (sensors,)
Inversion = Callable[[np.ndarray, np.ndarray], Estimate]


# these, and a coefficient to start from, on any cells
Correction = Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate]


# from a coefficient to data without noise
Forward = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ClassicalMethod:
    """A way from data to the coefficient, with a weight to be chosen on validation samples."""

    reason: str  # why somebody would take this method, as the end of a sentence
    weights: tuple[float, ...]  # to choose from
    with_weight: Callable[[float], Inversion]  # the inversion that has a weight
    # the same from the answer of an operator, if it can start there
    correction: Correction | None = None
    # how far its model is from known data, over their deviation, if that is known
    model_error: Callable[[], float] | None = None
    # the answer depends on the deviation of the noise; else the method estimates it
    takes_level: bool = True
