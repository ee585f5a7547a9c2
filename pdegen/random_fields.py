"""Gaussian random fields whose sample i is a function of (seed, i) alone.

The random coefficients come from a counter-based stream, mode by mode from the lowest up. So
chunking, worker count, order and grid leave a sample unchanged, and a finer grid or a larger
number of modes refines the same function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float

from pdegen.grid import PeriodicGrid

_CACHE_POINTS = 32768  # points of a block of rows: a few such arrays fit into a core's cache


class NormalStream:
    """Standard normal variates as functions of (seed, sample, position).

    Philox4x64-10 with key (seed, sample) gives 64-bit words, two for each pair; Box and Muller
    (1958) turn them into √(-2 log U₁) e^(-2πiU₂). Only the raw words are taken from NumPy, whose
    format is fixed; its normal variates may change between versions.

    References: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.

    >>> NormalStream(seed=0).pairs(sample=3, count=2)[:1] == NormalStream(0).pairs(3, 1)
    array([ True])
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._philox = np.random.Philox(key=0)
        self._start = self._philox.state  # its key is replaced: cheaper than a new generator

    def pairs(self, sample: int, count: int) -> Complex[np.ndarray, " count"]:
        """ξ_k - iζ_k, k = 1 ... count, for independent standard normals ξ_k, ζ_k."""
        return self.pairs_of([sample], count)[0]

    def pairs_of(self, samples: Sequence[int], count: int) -> Complex[np.ndarray, "batch count"]:
        """The pairs of several samples, one row each."""
        words = np.empty((len(samples), 2 * count), dtype=np.uint64)
        for row, sample in enumerate(samples):
            self._start["state"]["key"] = np.array([self.seed, sample], dtype=np.uint64)
            self._philox.state = self._start
            words[row] = self._philox.random_raw(2 * count)
        words >>= np.uint64(11)
        # 53 bits each, at the midpoints of equal cells of (0, 1): the logarithm is finite
        uniform = words.astype(np.float64)
        uniform += 0.5
        uniform *= 2.0**-53
        radius = np.sqrt(-2 * np.log(uniform[:, 0::2]))
        # cos and sin of 2πU from z = tan πU: several times faster, and as accurate
        z = np.tan(np.pi * uniform[:, 1::2])
        radius /= 1 + z * z
        pairs = np.empty((len(samples), count), dtype=np.complex128)
        np.multiply(radius, 1 - z * z, out=pairs.real)
        np.multiply(radius, -2 * z, out=pairs.imag)
        return pairs


@dataclass(frozen=True)
class PeriodicGaussianField:
    """The field N(0, σ²(-Δ + τ²)^(-α)) on the circle of length 1, without its mean.

    u(x) = Σ_{k=1}^{K} √2 σ ((2πk)² + τ²)^(-α/2) (ξ_k cos 2πkx + ζ_k sin 2πkx), ξ_k, ζ_k ~ N(0, 1).

    Args:
        sigma: Scale σ > 0 of the covariance operator.
        tau: Inverse length τ >= 0.
        alpha: Exponent α > 1/2 (below that the variance is infinite as K grows).
        modes: Number K of modes, whatever the grid.

    Raises:
        ValueError: On a value outside these ranges, or a grid with fewer than 2K + 2 points.
    """

    sigma: float
    tau: float
    alpha: float
    modes: int

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.tau >= 0 and self.alpha > 0.5 and self.modes >= 1):
            raise ValueError(
                "need sigma > 0, tau >= 0, alpha > 1/2, modes >= 1, got "
                f"sigma={self.sigma}, tau={self.tau}, alpha={self.alpha}, modes={self.modes}"
            )

    @cached_property
    def mode_deviations(self) -> Float[np.ndarray, " K"]:
        """Standard deviation of the cosine and of the sine coefficient of mode k = 1 ... K."""
        k = np.arange(1, self.modes + 1)
        operator = (2 * np.pi * k) ** 2 + self.tau**2
        return np.sqrt(2) * self.sigma * operator ** (-self.alpha / 2)

    @property
    def pointwise_variance(self) -> float:
        """E u(x)², the same at every x."""
        return float(np.sum(self.mode_deviations**2))

    def __call__(
        self, grid: PeriodicGrid, seed: int, samples: Sequence[int]
    ) -> Float[np.ndarray, "batch n"]:
        """The samples with these numbers on this grid, shape (len(samples), n)."""
        if grid.n < 2 * self.modes + 2:
            raise ValueError(
                f"{self.modes} modes need a grid of at least {2 * self.modes + 2} points, "
                f"got {grid.n}"
            )
        # cos and sin coefficients (ξ, ζ) of mode k are the rfft entry n (ξ - iζ)/2
        scale = self.mode_deviations * (grid.n / 2)
        rows = max(1, _CACHE_POINTS // grid.n)  # a block of rows stays in cache
        u_hat = np.zeros((rows, grid.n // 2 + 1), dtype=np.complex128)
        u = np.empty((len(samples), grid.n))
        stream = NormalStream(seed)
        for start in range(0, len(samples), rows):
            pairs = stream.pairs_of(samples[start : start + rows], self.modes)
            np.multiply(pairs, scale, out=u_hat[: len(pairs), 1 : self.modes + 1])
            u[start : start + rows] = np.fft.irfft(u_hat[: len(pairs)], grid.n)
        return u
