"""From a Gaussian field to the coefficient of an elliptic equation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class TwoPhase:
    """a = `above` where g >= 0, `below` where g < 0; the interface is the zero set of g.

    Args:
        above, below: Positive values; 12 and 3 in the published Darcy files.

    Raises:
        ValueError: On a value that is not positive.

    >>> TwoPhase(12.0, 3.0)(np.array([-0.5, 0.0, 2.0]))
    array([ 3., 12., 12.])
    """

    above: float
    below: float

    def __post_init__(self) -> None:
        if not (self.above > 0 and self.below > 0):
            raise ValueError(f"phases are positive, got {self.above} and {self.below}")

    def __call__(self, g: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return np.where(g >= 0, self.above, self.below)


@dataclass(frozen=True)
class LogNormal:
    """a = scale exp(g).

    Args:
        scale: Median of a, positive.

    Raises:
        ValueError: If it is not positive.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"the scale is positive, got {self.scale}")

    def __call__(self, g: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return self.scale * np.exp(g)
