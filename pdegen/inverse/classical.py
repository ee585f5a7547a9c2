"""Interface of classical inversion methods: the problem, the estimate and the method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid
from pdegen.sampling.noise_law import NoiseLaw

# Linear maps from fields to data with their transposes, and the misfit to noisy data.


@runtime_checkable
class Observation(Protocol):
    """A linear map H from fields to data."""

    def __call__(self, u: np.ndarray, /) -> np.ndarray:
        """H u for fields u of shape (*batch, n1, n2)."""
        ...

    def transposed(self, d: np.ndarray, /) -> np.ndarray:
        """Hᵀ d, as fields."""
        ...


@dataclass(frozen=True)
class Separable:
    """H u = X u Yᵀ: the matrix X acts along x, the matrix Y along y.

    >>> halves = Separable(averages(4, 2), averages(4, 2))
    >>> halves(np.arange(16.0).reshape(4, 4)).tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """

    x: Float[np.ndarray, "m1 n1"]  # X
    y: Float[np.ndarray, "m2 n2"]  # Y

    def __call__(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, "*batch m1 m2"]:
        return self.x @ u @ self.y.T

    def transposed(self, d: Float[np.ndarray, "*batch m1 m2"]) -> Float[np.ndarray, "*batch n1 n2"]:
        """Hᵀ d = Xᵀ d Y."""
        return self.x.T @ d @ self.y


@dataclass(frozen=True)
class Sensors:
    """The map from a field u to its values at the sensors, as a vector in C order.

    Raises:
        ValueError: If the mask has no sensor.

    >>> sensors = Sensors(np.array([[True, False], [False, True]]))
    >>> sensors(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    >>> sensors.transposed(np.array([5.0, 6.0])).tolist()
    [[5.0, 0.0], [0.0, 6.0]]
    """

    mask: Bool[np.ndarray, "n1 n2"]  # which points have a sensor

    def __post_init__(self) -> None:
        if not self.mask.any():
            raise ValueError(f"a mask of shape {self.mask.shape} has no sensor")

    def __call__(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, "*batch sensors"]:
        return u[..., self.mask]

    def transposed(
        self, d: Float[np.ndarray, "*batch sensors"]
    ) -> Float[np.ndarray, "*batch n1 n2"]:
        """Hᵀ d: the values d at the sensors, and 0 at all other points."""
        fields = np.zeros((*d.shape[:-1], *self.mask.shape), d.dtype)
        fields[..., self.mask] = d
        return fields


@dataclass(frozen=True)
class Composition:
    """H u = second(first(u)). For example, sensors measure some of the cell averages of u.

    >>> means = Separable(averages(4, 2), averages(4, 2))
    >>> both = Composition(means, Sensors(np.eye(2, dtype=bool)))
    >>> both(np.arange(16.0).reshape(4, 4)).tolist()
    [2.5, 12.5]
    """

    first: Observation
    second: Observation

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.second(self.first(u))

    def transposed(self, d: np.ndarray) -> np.ndarray:
        """Hᵀ d: the transpose of the second map, followed by that of the first."""
        return self.first.transposed(self.second.transposed(d))


@dataclass(frozen=True)
class Misfit:
    """Half the mean square of (H u - d)/σ for each field.

    The expectation of the misfit is ½ if u is the true field.

    Raises:
        ValueError: If σ is not positive everywhere.

    >>> misfit = Misfit(Sensors(np.eye(2, dtype=bool)), np.zeros(2), std=0.5, axes=1)
    >>> float(misfit(np.ones((2, 2))))
    2.0
    """

    observation: Observation  # H
    data: np.ndarray  # d, (*batch, *observed)
    # standard deviation σ > 0 of the noise, a number or an array that broadcasts to d
    std: Float[np.ndarray, "..."] | float
    axes: int = 2  # number of axes of an observed field

    def __post_init__(self) -> None:
        if not np.min(self.std) > 0:
            raise ValueError("the deviation of the noise must be positive")

    @property
    def _count(self) -> int:
        return math.prod(self.data.shape[-self.axes :])

    def residual(self, u: Float[np.ndarray, "*batch n1 n2"]) -> np.ndarray:
        """The normalised residual (H u - d)/σ."""
        return (self.observation(u) - self.data) / self.std

    def __call__(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, " *batch"]:
        squares = self.residual(u) ** 2
        return 0.5 * np.mean(squares, axis=tuple(range(-self.axes, 0)))

    def gradient(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, "*batch n1 n2"]:
        """The gradient Hᵀ ((H u - d)/σ²)/m of the misfit with respect to u, for m data."""
        weighted = self.residual(u) / self.std
        return self.observation.transposed(weighted) / self._count

    def curvature(self, v: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, "*batch n1 n2"]:
        """The product Hᵀ (H v/σ²)/m of v with the Hessian of the misfit with respect to u."""
        weighted = self.observation(v) / self.std**2
        return self.observation.transposed(weighted) / self._count


def interpolation(grid: CellGrid, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m n"]:
    """The matrix that interpolates linearly from cell centres to the points x of [0, 1].

    The function is assumed to be 0 on the walls.

    Raises:
        ValueError: If a point is outside [0, 1].

    >>> interpolation(CellGrid(2), np.array([0.125, 0.5])).tolist()
    [[0.5, 0.0], [0.5, 0.5]]
    """
    if not bool(np.all((x >= 0) & (x <= 1))):
        raise ValueError(f"points must be in [0, 1], got {x}")
    knots = np.concatenate([[0.0], grid.x, [1.0]])
    hats: list[np.ndarray] = [np.interp(x, knots, row) for row in np.eye(len(knots))[1:-1]]
    return np.stack(hats, axis=1)


def averages(n: int, m: int) -> Float[np.ndarray, "m n"]:
    """The matrix that maps cell values on n cells to averages over m cells of the same interval.

    Each weight is the fraction of a new cell that an old cell covers. Hence n need not be a
    multiple of m, and the integral is preserved.

    >>> (3 * averages(3, 2)).round(12).tolist()
    [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]
    """
    fine, coarse = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(coarse[:-1, None], fine[:-1])
    high = np.minimum(coarse[1:, None], fine[1:])
    return np.maximum(high - low, 0) * m


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
    draws: Float[np.ndarray, " members *cells"] | None = None  # of the posterior, if any


# from data of the shape of the points or (sensors,), and the law of their noise, or the deviation
# of independent Gaussian noise
Inversion = Callable[[np.ndarray, NoiseLaw | np.ndarray], Estimate]


# from data, the law of their noise, and an initial coefficient on any cells
Correction = Callable[[np.ndarray, NoiseLaw | np.ndarray, np.ndarray], Estimate]


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
    knows_law: bool = False  # whether the method knows the distribution of the unknown
