"""Random noise levels of samples, to train operators on a range of levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream
from pdegen.sampling.noise import hashed


@dataclass(frozen=True)
class Levels:
    """Random levels ε in a range [ε₀, ε₁].

    A level is ε = ε₁ s² with s = s₀ + (1 - s₀) sin⁴(πv/2), where v is uniform on [0, 1] and
    s₀ = (ε₀/ε₁)^½. If ε₀ = 0, half of the levels are below ε₁/16, and a quarter are above ε₁/2.

    Levels near both ends are drawn more often, as with Chebyshev nodes. Near ε₀, data have little
    noise, and high accuracy is possible but hard to reach. Near ε₁, an operator learns from levels
    on one side only. Operators receive s = (ε/ε₁)^½ as an input, also for levels outside the range.
    Unlike the logarithm of ε, s is finite at ε = 0, so the range may begin at 0.

    Raises:
        ValueError: Unless 0 <= ε₀ < ε₁ and both are finite.

    >>> levels = Levels(0.0, 0.1)
    >>> bool((levels.drawn(0, range(1000)) < 0.1 / 16).mean().round(1) == 0.5)
    True
    >>> float(levels.feature(0.025))
    0.5
    """

    low: float  # ε₀ >= 0
    high: float  # ε₁ > ε₀

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < math.inf:
            raise ValueError(f"a range of levels has 0 <= low < high, got {[self.low, self.high]}")

    def drawn(
        self, seed: int, numbers: Sequence[int], epoch: int = 0
    ) -> Float[np.ndarray, " batch"]:
        """Draw a level for each sample number, as a function of (seed, number, epoch).

        Different epochs have independent levels; frozen levels use epoch 0.
        """
        stream = NormalStream(hashed(seed, "levels", epoch))
        first = math.sqrt(self.low / self.high)
        v = stream.uniforms_of(numbers, 1)[:, 0]
        s = first + (1 - first) * np.sin(np.pi / 2 * v) ** 4
        return self.high * s * s

    def feature(self, level: float | Float[np.ndarray, " batch"]) -> Float[np.ndarray, "..."]:
        """What operators receive for a level ε: s = √(ε/high), above 1 beyond the range."""
        return np.sqrt(np.asarray(level) / self.high)
