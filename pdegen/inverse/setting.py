"""What a classical inversion is given, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Setting:
    """An inverse problem on the unit square: u at some points, a wanted on cells.

    Args:
        x: Points of the data along each axis.
        a: Known coefficients on the cells on which a is wanted, shape (samples, n, n): those of
            training samples.
        u: Their solutions at the points, without noise.
    """

    x: Float[np.ndarray, " m"]
    a: Float[np.ndarray, "samples n n"]
    u: Float[np.ndarray, "samples m m"]

    @property
    def cells(self) -> int:
        """n."""
        return self.a.shape[-1]


@dataclass(frozen=True)
class Estimate:
    """What an inversion found of one sample.

    Args:
        a: The coefficient on the cells, shape (n, n).
        solves: Systems of equations that it solved.
    """

    a: Float[np.ndarray, "n n"]
    solves: int


# data and the deviation of their noise, both of shape (m, m)
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
