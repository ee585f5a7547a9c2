"""Interface of classical inversion methods: the problem, the estimate and the method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

# why somebody would choose the estimate of largest posterior density
KNOWN_PRIOR = "the best one if noise level and distribution are known; states its uncertainty"


def half_decades(first: int, last: int) -> tuple[float, ...]:
    """Weights 10^k and 3·10^k from 10^first to 10^last.

    >>> half_decades(-1, 1)
    (0.1, 0.3, 1.0, 3.0, 10.0)
    """
    both = (float(f"{digit}e{k}") for k in range(first, last + 1) for digit in (1, 3))
    return tuple(both)[:-1]


ALGORITHM = 2  # of all methods, for records of their results; 2: steps end by a criterion


@dataclass(frozen=True)
class InverseProblem:
    """An inverse problem: estimate the coefficient a of an equation from data on the solution u."""

    x: Float[np.ndarray, " m"]  # points of the data along each axis
    # coefficients of training samples, shape (samples, n, n) or (samples, n), on the cells or
    # points on which a is estimated
    a: Float[np.ndarray, " samples *cells"]
    u: Float[np.ndarray, " samples *points"]  # solutions of these samples at the points of the data
    # True at the points that have a sensor; None if all have one. An inversion takes the data and
    # their deviation at the sensors only, in C order
    sensors: Bool[np.ndarray, " *points"] | None = None

    @property
    def cells(self) -> int:
        """Number of cells along an axis."""
        return self.a.shape[-1]


@dataclass(frozen=True)
class Estimate:
    """An inversion method's estimate for one sample."""

    a: Float[np.ndarray, " *cells"]  # the coefficient on the cells or points
    solves: int  # number of linear systems solved
    iterations: int  # number of steps
    # whether the steps ended by the method's criterion; if not, at a limit, or because no step
    # length decreased the objective
    converged: bool
    # standard deviation of the posterior, if the method states one, shape of a. For two phases
    # α < β it is (β - α)(p (1 - p))^½, where p = (a - α)/(β - α) is the stated probability of the
    # upper phase
    std: Float[np.ndarray, " *cells"] | None = None


# from data and the deviation of their noise, both of the shape of the points or (sensors,)
Inversion = Callable[[np.ndarray, np.ndarray], Estimate]


# from data, the deviation of their noise, and an initial coefficient on any cells
Correction = Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate]


# from a coefficient to data without noise
Forward = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ClassicalMethod:
    """A classical inversion method. Its regularisation weight is chosen on validation samples."""

    reason: str  # why somebody would choose this method, as the end of a sentence
    # the weights to choose from, in increasing order; the search starts at the middle one
    weights: tuple[float, ...]
    with_weight: Callable[[float], Inversion]  # the inversion with a given weight
    # the inversion started from the prediction of an operator; None if it cannot start there
    correction: Correction | None = None
    # root mean square of the model's error over the deviation of the data; None if not known
    model_error: Callable[[], float] | None = None
    # whether the method needs the deviation of the noise; if not, it estimates the deviation
    takes_level: bool = True
