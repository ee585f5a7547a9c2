"""Random noise levels of samples, for training on a range of levels."""

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
    """ε = ε₁ s², s = s₀ + (1 - s₀) sin⁴(πv/2), v uniform on [0, 1], s₀ = (ε₀/ε₁)^½, for a range
    of levels [ε₀, ε₁].

    With ε₀ = 0 half of the levels are below ε₁/16 and a quarter is above ε₁/2. The problem with
    levels near 0 is the hardest to learn to the accuracy that it allows, and ε₁ has levels on one
    side only. So levels near both ends are drawn more often, as with Chebyshev nodes. The input of
    an operator is s, which is defined beyond the range too. Unlike a logarithm, s allows a range
    that begins at 0.

    Raises:
        ValueError: If the ends are not a range of levels.

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
        """A level for each sample, a function of (seed, number, epoch) alone. The levels of epochs
        are independent; frozen levels are those of epoch 0."""
        stream = NormalStream(hashed(seed, "levels", epoch))
        first = math.sqrt(self.low / self.high)
        v = stream.uniforms_of(numbers, 1)[:, 0]
        s = first + (1 - first) * np.sin(np.pi / 2 * v) ** 4
        return self.high * s * s

    def feature(self, level: float | Float[np.ndarray, " batch"]) -> Float[np.ndarray, "..."]:
        """The feature s = (ε/ε₁)^½ of a level, an input of operators; above 1 beyond the range."""
        return np.sqrt(np.asarray(level) / self.high)
