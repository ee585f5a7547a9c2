"""Noise levels of samples, drawn from a range: one training then sees all of them."""

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

    With ε₀ = 0 half of the levels are below ε₁/16 and a quarter is above ε₁/2. Levels near 0 are
    almost one problem, the one that is hardest to learn to the accuracy it allows; next to ε₁ there
    are levels on one side only. So both ends are drawn more often than the middle, as the nodes of
    Chebyshev polynomials are. An operator is told s, which is defined beyond the range too. The
    range may begin at 0, where a logarithm cannot.

    Raises:
        ValueError: If they are no such range.

    >>> levels = Levels(0.0, 0.1)
    >>> bool((levels.drawn(0, range(1000)) < 0.1 / 16).mean().round(1) == 0.5)
    True
    >>> float(levels.feature(0.025))
    0.5
    """

    # low, high: the ends of the range, 0 <= ε₀ < ε₁
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < math.inf:
            raise ValueError(f"a range of levels has 0 <= low < high, got {[self.low, self.high]}")

    def drawn(
        self, seed: int, numbers: Sequence[int], epoch: int = 0
    ) -> Float[np.ndarray, " batch"]:
        """A level for each number of a sample, a function of (seed, number, epoch) alone. Another
        epoch has independent levels; 0 has the frozen ones."""
        stream = NormalStream(hashed(seed, "levels", epoch))
        first = math.sqrt(self.low / self.high)
        v = stream.uniforms_of(numbers, 1)[:, 0]
        s = first + (1 - first) * np.sin(np.pi / 2 * v) ** 4
        return self.high * s * s

    def feature(self, level: float | Float[np.ndarray, " batch"]) -> Float[np.ndarray, "..."]:
        """s = (ε/ε₁)^½, what an operator is told; more than 1 beyond the range."""
        return np.sqrt(np.asarray(level) / self.high)
