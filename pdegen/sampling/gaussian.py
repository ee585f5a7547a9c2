"""Gaussian random fields whose sample i is a function of (seed, i) alone.

The random coefficients come from a counter-based generator and are drawn in the order of the modes,
lowest first. Hence sample i is the same function for every number of workers, order of computation
and grid. More modes add detail to this function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy
from array_api_compat import array_namespace
from jaxtyping import Complex, Float

from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid
from pdegen.numerics.device import ARRAY_POINTS, Array, blocks, constant, empty, reuse_memory
from pdegen.numerics.sines import faster_by_fft
from pdegen.sampling import streams


class NormalStream:
    """Standard normal variates as functions of (seed, sample, position).

    Philox4x64-10 with the key (seed, sample) generates 64-bit words. The transform of Box and
    Muller (1958) maps two words at a time to a pair √(-2 log U₁) e^(-2πiU₂) of normal variates.
    Only the raw words come from NumPy, because NumPy's normal variates may change between versions
    and the words do not.

    References: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.

    >>> NormalStream(seed=0).pairs(sample=3, count=2)[:1] == NormalStream(0).pairs(3, 1)
    array([ True])
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._philox = np.random.Philox(key=0)
        self._start = self._philox.state  # replacing its key is cheaper than a new generator

    def pairs(self, sample: int, count: int) -> Complex[np.ndarray, " count"]:
        """The pairs ξ_k - iζ_k, k = 1 ... count, where all ξ_k and ζ_k are independent standard
        normals.
        """
        return self.pairs_of([sample], count)[0]

    def normals_of(
        self, samples: Sequence[int], count: int, device: str | None = None
    ) -> Float[Array, "batch count"]:
        """Standard normals ξ_1, ζ_1, ξ_2, ... of several samples, with one row per sample."""
        pairs = self.pairs_of(samples, (count + 1) // 2, device)
        minus_zeta = pairs.imag
        minus_zeta *= -1
        return pairs.view(array_namespace(pairs).float64)[:, :count]

    def pairs_of(
        self, samples: Sequence[int], count: int, device: str | None = None
    ) -> Complex[Array, "batch count"]:
        """Pairs of normal variates of several samples, with one row per sample.

        They are computed with NumPy, or with PyTorch if a device is given.
        """
        uniform = self.uniforms_of(samples, 2 * count, device)
        xp = array_namespace(uniform)
        radius = xp.sqrt(-2 * xp.log(uniform[:, 0::2]))
        # cos and sin of 2πU from z = tan πU: several times faster, and as accurate
        z = xp.tan(np.pi * uniform[:, 1::2])
        radius /= 1 + z * z
        pairs = xp.empty_like(radius, dtype=xp.complex128)
        pairs.real[...] = radius * (1 - z * z)
        pairs.imag[...] = radius * (-2 * z)
        return pairs

    def uniforms_of(
        self, samples: Sequence[int], count: int, device: str | None = None
    ) -> Float[Array, "batch count"]:
        """Uniform variates of several samples, with one row per sample.

        Each is the midpoint of one of 2⁵³ equal cells of (0, 1). It is never 0, so its logarithm is
        finite.
        """
        if device is None:
            words = np.empty((len(samples), count), dtype=np.uint64)
            for row, sample in enumerate(samples):
                self._start["state"]["key"] = np.array([self.seed, sample], dtype=np.uint64)
                self._philox.state = self._start
                words[row] = self._philox.random_raw(count)
            words >>= np.uint64(11)
            uniform = words.astype(np.float64)
        else:
            words = streams.words(self.seed, samples, count, device)
            uniform = ((words >> 11) & (2**53 - 1)).double()  # the shift copies the sign
        uniform += 0.5
        uniform *= 2.0**-53
        return uniform


@dataclass(frozen=True)
class PeriodicGaussianField:
    """The Gaussian field N(0, σ²(-Δ + τ²)^(-α)) on the circle of length 1, without the mode k = 0.

    u(x) = Σ_{k=1}^{K} √2 σ ((2πk)² + τ²)^(-α/2) (ξ_k cos 2πkx + ζ_k sin 2πkx), ξ_k, ζ_k ~ N(0, 1).
    The number K of modes is `modes`.

    Raises:
        ValueError: If a parameter is outside its range. A call raises it if the grid has fewer than
            2K + 2 points or is not on (0, 1).

    A finer grid samples the same function:

    >>> field = PeriodicGaussianField(sigma=625.0, tau=5.0, alpha=2.0, modes=8)
    >>> fine, coarse = (field(PeriodicGrid(n), seed=0, samples=[7]) for n in (64, 32))
    >>> np.allclose(fine[:, ::2], coarse, rtol=0, atol=1e-12)
    True
    """

    sigma: float  # scale σ > 0 of the covariance operator
    tau: float  # inverse length τ >= 0
    alpha: float  # exponent α > 1/2 (below that the variance is infinite as K grows)
    modes: int  # number K of modes, independent of the grid

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.tau >= 0 and self.alpha > 0.5 and self.modes >= 1):
            raise ValueError(
                "need sigma > 0, tau >= 0, alpha > 1/2, modes >= 1, got "
                f"sigma={self.sigma}, tau={self.tau}, alpha={self.alpha}, modes={self.modes}"
            )

    @cached_property
    def mode_stds(self) -> Float[np.ndarray, " K"]:
        """Standard deviation of the cosine and sine coefficients of the modes k = 1 ... K."""
        k = np.arange(1, self.modes + 1)
        operator = (2 * np.pi * k) ** 2 + self.tau**2
        return np.sqrt(2) * self.sigma * operator ** (-self.alpha / 2)

    @property
    def pointwise_variance(self) -> float:
        """E u(x)², which is the same at every x."""
        return float(np.sum(self.mode_stds**2))

    def __call__(
        self, grid: PeriodicGrid, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Float[Array, "batch n"]:
        """Samples with the given numbers, evaluated on a grid; shape (len(samples), n)."""
        if grid.n < 2 * self.modes + 2:
            raise ValueError(
                f"{self.modes} modes need a grid of at least {2 * self.modes + 2} points, "
                f"got {grid.n}"
            )
        grid.check_unit()
        reuse_memory()
        u = empty((len(samples), grid.n), np.float64, device)
        # cos and sin coefficients (ξ, ζ) of mode k are the rfft entry n (ξ - iζ)/2
        scale = constant(self.mode_stds * (grid.n / 2), u)
        xp, stream = array_namespace(u), NormalStream(seed)
        for block in blocks(len(samples), grid.n, device is not None, largest=ARRAY_POINTS):
            pairs = stream.pairs_of(samples[block], self.modes, device)
            pairs *= scale
            u_hat = empty((len(pairs), grid.n // 2 + 1), np.complex128, device)
            u_hat[:, 0], u_hat[:, 1 : self.modes + 1], u_hat[:, self.modes + 1 :] = 0, pairs, 0
            u[block] = xp.fft.irfft(u_hat, n=grid.n)
        return u


@dataclass(frozen=True)
class SquareGaussianField:
    """The Gaussian field N(0, σ²(-Δ + τ²)^(-α)) on (0,1)² with Neumann or Dirichlet conditions.

    g(x, y) = Σ_{p,q} σ (π²(p² + q²) + τ²)^(-α/2) ξ_pq φ_p(x) φ_q(y), ξ_pq ~ N(0, 1).

    Neumann conditions: φ_0 = 1 and φ_p = √2 cos πpx, p = 0 ... M-1; the constant mode (0, 0) is
    left out. Dirichlet conditions: φ_p = √2 sin πpx, p = 1 ... M. M is `modes`. The ξ_pq are drawn
    in the order of max(p, q), so more modes refine the same function. The values at grid points are
    exact even if the grid does not resolve all modes.

    Raises:
        ValueError: If a parameter is outside its range. A call raises it if the grid is not on
            (0, 1).

    >>> field = SquareGaussianField("neumann", sigma=3.0, tau=3.0, alpha=2.0, modes=8)
    >>> g = field(CellGrid(16), seed=0, samples=[0, 1])
    >>> g.shape, bool(abs(g.mean(axis=(1, 2))).max() < 1e-12)
    ((2, 16, 16), True)
    """

    boundary: Literal["neumann", "dirichlet"]  # condition on the boundary
    sigma: float  # scale σ > 0. The published Darcy script has σ = τ^(α-1)
    tau: float  # inverse length τ >= 0
    alpha: float  # exponent α > 1 (below that the variance is infinite as M grows)
    modes: int  # number M of modes of each axis, independent of the grid

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
        """Wave numbers πp of the modes along one axis."""
        return np.pi * (np.arange(self.modes) + (self.boundary == "dirichlet"))

    @cached_property
    def mode_stds(self) -> Float[np.ndarray, "M M"]:
        """Standard deviations of the coefficients of φ_p φ_q."""
        k = self.wave_numbers
        operator = k[:, None] ** 2 + k**2 + self.tau**2
        if self.boundary == "neumann":
            operator[0, 0] = np.inf  # no mean
        return self.sigma * operator ** (-self.alpha / 2)

    @cached_property
    def _shells(self) -> np.ndarray:
        """Position of each coefficient (p, q) in the random stream, in the order of max(p, q)."""
        p, q = np.indices((self.modes, self.modes))
        shell = np.maximum(p, q)
        return shell**2 + np.where(p < q, p, 2 * shell - q)

    @cached_property
    def _bases(self) -> dict[CellGrid | NodalGrid, Float[np.ndarray, "n M"]]:
        return {}

    def basis(self, grid: CellGrid | NodalGrid) -> Float[np.ndarray, "n M"]:
        """Values of the φ_p at the points of one axis."""
        if grid not in self._bases:
            self._bases[grid] = self._basis(grid)
        return self._bases[grid]

    def _basis(self, grid: CellGrid | NodalGrid) -> Float[np.ndarray, "n M"]:
        grid.check_unit()
        angles = np.outer(grid.x, self.wave_numbers)
        basis = np.sqrt(2) * (np.cos(angles) if self.boundary == "neumann" else np.sin(angles))
        if self.boundary == "neumann":
            basis[:, 0] = 1
        return basis

    def pointwise_variance(self, grid: CellGrid | NodalGrid) -> Float[np.ndarray, "n n"]:
        """E g(x, y)² at all grid points."""
        squares = self.basis(grid) ** 2
        return squares @ self.mode_stds**2 @ squares.T

    def __call__(
        self,
        grid: CellGrid | NodalGrid,
        seed: int,
        samples: Sequence[int],
        device: str | None = None,
    ) -> Float[Array, "batch n n"]:
        """Samples with the given numbers, evaluated on a grid; indexed [sample, x, y]."""
        g = empty((len(samples), grid.n, grid.n), np.float64, device)
        basis, stds = constant(self.basis(grid), g), constant(self.mode_stds, g)
        stream, shells = NormalStream(seed), constant(self._shells, g)
        # NumPy computes samples one by one: the bits of a product may depend on the batch
        size = 1 if device is None else max(1, len(samples))
        for start in range(0, len(samples), size):
            block = slice(start, start + size)
            normals = stream.normals_of(samples[block], self.modes**2, device)
            coefficients = stds * normals[:, shells]
            if device is None and isinstance(grid, CellGrid) and self._fft(grid):
                g[block] = self._by_fft(grid, coefficients)
            else:
                g[block] = basis @ coefficients @ basis.T
        return g

    def _fft(self, grid: CellGrid) -> bool:
        """Whether to compute the sum over the modes by FFT instead of matrix products.

        Matrix products are faster if there are few modes. An FFT would alias modes that the grid
        does not resolve.
        """
        return 0.9 * grid.n <= self.modes <= grid.n and faster_by_fft(grid.n)

    def _by_fft(
        self, grid: CellGrid, coefficients: Float[np.ndarray, "batch M M"]
    ) -> Float[np.ndarray, "batch n n"]:
        """Compute g by FFT.

        Along each axis, the modes of the orthonormal transform are φ_p/√n. Hence g is n times the
        transform of the coefficients.
        """
        n, m = grid.n, self.modes
        padded = np.zeros((len(coefficients), n, n))
        padded[:, :m, :m] = n * coefficients
        if self.boundary == "neumann":
            return scipy.fft.idctn(padded, axes=(1, 2), norm="ortho", overwrite_x=True, workers=1)
        padded[:, n - 1 :] *= np.sqrt(2)  # the transform's last sine, ±1, lacks the factor √2
        padded[:, :, n - 1 :] *= np.sqrt(2)
        return scipy.fft.idstn(padded, axes=(1, 2), norm="ortho", overwrite_x=True, workers=1)
