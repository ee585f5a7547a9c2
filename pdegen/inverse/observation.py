"""Observation maps: linear maps of a field with their transposes, and the misfit to noisy data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from pdegen.domains import CellGrid


@runtime_checkable
class Observation(Protocol):
    """A linear map H from fields to data."""

    def __call__(self, u: np.ndarray, /) -> np.ndarray:
        """H u of fields (*batch, n1, n2)."""
        ...

    def transposed(self, d: np.ndarray, /) -> np.ndarray:
        """The fields Hᵀ d."""
        ...


@dataclass(frozen=True)
class Separable:
    """H u = X u Yᵀ: one matrix for all lines along x, and one for all lines along y.

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
    """H u = the values of u at the sensors, in C order.

    Raises:
        ValueError: If there is no sensor.

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
        """Hᵀ d: the data at the sensors, 0 elsewhere."""
        fields = np.zeros((*d.shape[:-1], *self.mask.shape), d.dtype)
        fields[..., self.mask] = d
        return fields


@dataclass(frozen=True)
class Composition:
    """H u = second(first(u)), for example sensors among averages.

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
        """Hᵀ d, by the transposes in the opposite order."""
        return self.first.transposed(self.second.transposed(d))


@dataclass(frozen=True)
class Misfit:
    """½ mean ((H u - d)/σ)², one number for each field; its expectation is ½ for the true u.

    Raises:
        ValueError: If σ is not positive everywhere.

    >>> misfit = Misfit(Sensors(np.eye(2, dtype=bool)), np.zeros(2), deviation=0.5, axes=1)
    >>> float(misfit(np.ones((2, 2))))
    2.0
    """

    observation: Observation  # H
    data: np.ndarray  # d, (*batch, *observed)
    # standard deviation σ > 0 of the noise, a number or an array that broadcasts to d
    deviation: Float[np.ndarray, "..."] | float
    axes: int = 2  # number of axes of an observed field

    def __post_init__(self) -> None:
        if not np.min(self.deviation) > 0:
            raise ValueError("the deviation of the noise must be positive")

    @property
    def _count(self) -> int:
        return math.prod(self.data.shape[-self.axes :])

    def residual(self, u: Float[np.ndarray, "*batch n1 n2"]) -> np.ndarray:
        """(H u - d)/σ."""
        return (self.observation(u) - self.data) / self.deviation

    def __call__(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, " *batch"]:
        squares = self.residual(u) ** 2
        return 0.5 * np.mean(squares, axis=tuple(range(-self.axes, 0)))

    def gradient(self, u: Float[np.ndarray, "*batch n1 n2"]) -> Float[np.ndarray, "*batch n1 n2"]:
        """The gradient with respect to u: Hᵀ ((H u - d)/σ²)/m for m data."""
        weighted = self.residual(u) / self.deviation
        return self.observation.transposed(weighted) / self._count


def interpolation(grid: CellGrid, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m n"]:
    """The matrix of linear interpolation from cell centres, and zeros on the walls, to the points x
    of [0, 1].

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
    """The matrix from values on n cells of an axis to means over m cells. The weights are shares of
    overlap, so n need not be a multiple of m, and the integral is preserved.

    >>> (3 * averages(3, 2)).round(12).tolist()
    [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]
    """
    fine, coarse = np.arange(n + 1) / n, np.arange(m + 1) / m
    low = np.maximum(coarse[:-1, None], fine[:-1])
    high = np.minimum(coarse[1:, None], fine[1:])
    return np.maximum(high - low, 0) * m
