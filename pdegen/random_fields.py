"""Gaussian random fields whose sample i is a function of (seed, i) alone.

The random coefficients come from a counter-based stream, mode by mode from the lowest up. So
chunking, worker count, order and grid leave a sample unchanged, and a finer grid or a larger
number of modes refines the same function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Complex, Float

from pdegen.grid import CellGrid, NodalGrid, PeriodicGrid

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

    def normals_of(self, samples: Sequence[int], count: int) -> Float[np.ndarray, "batch count"]:
        """Standard normals ξ_1, ζ_1, ξ_2, ... of several samples, one row each."""
        pairs = self.pairs_of(samples, (count + 1) // 2)
        return np.conj(pairs, out=pairs).view(np.float64)[:, :count]

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


@dataclass(frozen=True)
class SquareGaussianField:
    """The field N(0, σ²(-Δ + τ²)^(-α)) on (0,1)² with Neumann or Dirichlet conditions.

    g(x, y) = Σ_{p,q} σ (π²(p² + q²) + τ²)^(-α/2) ξ_pq φ_p(x) φ_q(y), ξ_pq ~ N(0, 1), with
    φ_0 = 1, φ_p = √2 cos πpx for p = 0 ... M-1 without the mean (0, 0) (Neumann), or
    φ_p = √2 sin πpx for p = 1 ... M (Dirichlet). The ξ are drawn by growing max(p, q), so more
    modes refine the same function, which any grid evaluates exactly, also one coarser than the
    modes.

    Args:
        boundary: "neumann" or "dirichlet".
        sigma: Scale σ > 0. The published Darcy script has σ = τ^(α-1).
        tau: Inverse length τ >= 0.
        alpha: Exponent α > 1 (below that the variance is infinite as M grows).
        modes: Number M of modes of each axis, whatever the grid.

    Raises:
        ValueError: On a value outside these ranges.
    """

    boundary: Literal["neumann", "dirichlet"]
    sigma: float
    tau: float
    alpha: float
    modes: int

    def __post_init__(self) -> None:
        if self.boundary not in ("neumann", "dirichlet"):
            raise ValueError(f"the boundary is neumann or dirichlet, got {self.boundary!r}")
        if not (self.sigma > 0 and self.tau >= 0 and self.alpha > 1 and self.modes >= 2):
            raise ValueError(
                "need sigma > 0, tau >= 0, alpha > 1, modes >= 2, got "
                f"sigma={self.sigma}, tau={self.tau}, alpha={self.alpha}, modes={self.modes}"
            )

    @cached_property
    def wave_numbers(self) -> Float[np.ndarray, " M"]:
        """πp of the modes along one axis."""
        return np.pi * (np.arange(self.modes) + (self.boundary == "dirichlet"))

    @cached_property
    def mode_deviations(self) -> Float[np.ndarray, "M M"]:
        """Standard deviation of the coefficient of φ_p φ_q."""
        k = self.wave_numbers
        operator = k[:, None] ** 2 + k**2 + self.tau**2
        if self.boundary == "neumann":
            operator[0, 0] = np.inf  # no mean
        return self.sigma * operator ** (-self.alpha / 2)

    @cached_property
    def _shells(self) -> np.ndarray:
        """Place of the coefficient (p, q) in the stream: by shells of growing max(p, q)."""
        p, q = np.indices((self.modes, self.modes))
        shell = np.maximum(p, q)
        return shell**2 + np.where(p < q, p, 2 * shell - q)

    def basis(self, grid: CellGrid | NodalGrid) -> Float[np.ndarray, "n M"]:
        """φ_p at the points of one axis."""
        angles = np.outer(grid.x, self.wave_numbers)
        basis = np.sqrt(2) * (np.cos(angles) if self.boundary == "neumann" else np.sin(angles))
        if self.boundary == "neumann":
            basis[:, 0] = 1
        return basis

    def pointwise_variance(self, grid: CellGrid | NodalGrid) -> Float[np.ndarray, "n n"]:
        """E g(x, y)²."""
        squares = self.basis(grid) ** 2
        return squares @ self.mode_deviations**2 @ squares.T

    def __call__(
        self, grid: CellGrid | NodalGrid, seed: int, samples: Sequence[int]
    ) -> Float[np.ndarray, "batch n n"]:
        """The samples with these numbers on this grid, indexed [sample, x, y]."""
        basis, stream = self.basis(grid), NormalStream(seed)
        g = np.empty((len(samples), grid.n, grid.n))
        for row, sample in enumerate(samples):
            normals = stream.normals_of([sample], self.modes**2)[0]
            g[row] = basis @ (self.mode_deviations * normals[self._shells]) @ basis.T
        return g
