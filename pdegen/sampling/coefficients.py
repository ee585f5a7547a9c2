"""Coefficients of elliptic equations computed from a Gaussian field."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array


@dataclass(frozen=True)
class TwoPhase:
    """a = `above` where g >= 0, `below` where g < 0; the interface is the zero set of g.

    If |g| is as small as its rounding error (about 1e-15 of its deviation), another device or
    library may give the other phase. This affects about one cell in 1e14.

    Raises:
        ValueError: If a value is not positive.

    >>> import numpy as np
    >>> TwoPhase(12.0, 3.0)(np.array([-0.5, 0.0, 2.0]))
    array([ 3., 12., 12.])
    """

    # above, below: positive values; 12 and 3 in the published Darcy files
    above: float
    below: float

    def __post_init__(self) -> None:
        if not (self.above > 0 and self.below > 0):
            raise ValueError(f"phases must be positive, got {self.above} and {self.below}")

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        xp = array_namespace(g)
        return xp.where(g >= 0, xp.full_like(g, self.above), xp.full_like(g, self.below))


Value = float | Float[Array, "..."]
"""A number, or one for each sample, of a shape that broadcasts with the field."""


@dataclass(frozen=True)
class Phases:
    """a = values[j] where thresholds[j-1] <= g < thresholds[j], with ±∞ beyond both ends.

    The interfaces are the level sets of g. Two phases with the threshold 0 are `TwoPhase(values[1],
    values[0])`.

    Raises:
        ValueError: If the thresholds do not increase, or k values have other than k - 1 thresholds.

    >>> import numpy as np
    >>> Phases((0.0, 1.0), (3.0, 12.0, 48.0))(np.array([-0.5, 0.0, 0.5, 1.0]))
    array([ 3., 12., 12., 48.])
    """

    thresholds: Sequence[float]  # increasing values of g
    values: Sequence[Value]  # a below the first threshold, between the first two, and so on

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds, len(self.values))

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        xp = array_namespace(g)
        a = xp.zeros_like(g) + self.values[0]
        for threshold, value in zip(self.thresholds, self.values[1:], strict=True):
            a = xp.where(g >= threshold, xp.zeros_like(g) + value, a)
        return a


def check_thresholds(thresholds: Sequence[float], values: int) -> None:
    """Raise ValueError unless there are `values` - 1 thresholds, at least one, that increase."""
    if values < 2 or len(thresholds) != values - 1:
        raise ValueError(
            f"{max(values, 2)} values need {max(values - 1, 1)} thresholds between them, got "
            f"{values} values and {len(thresholds)} thresholds"
        )
    if not all(low < high for low, high in itertools.pairwise(thresholds)):
        raise ValueError(f"thresholds must increase, got {list(thresholds)}")


@dataclass(frozen=True)
class LogNormal:
    """a = scale exp(g).

    Raises:
        ValueError: If the scale is not positive.

    >>> import numpy as np
    >>> LogNormal(scale=2.0)(np.array([0.0, np.log(3)])).round(6).tolist()
    [2.0, 6.0]
    """

    scale: float = 1.0  # median of a, positive

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"the scale must be positive, got {self.scale}")

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.scale * array_namespace(g).exp(g)
