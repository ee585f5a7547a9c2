"""Gaussian random fields whose sample i is a function of (seed, i) alone.

The random coefficients come from a counter-based generator and are drawn in the order of the modes,
lowest first. Hence sample i is the same function for every number of workers, order of computation
and grid. More modes add detail to this function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy
from array_api_compat import array_namespace
from jaxtyping import Complex, Float, Int, Int64

from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid
from pdegen.numerics.device import ARRAY_POINTS, Array, blocks, constant, empty, reuse_memory, torch
from pdegen.numerics.sines import faster_by_fft
from pdegen.numerics.spectral import Torus

# The counter-based generator Philox4x64-10 on a device of PyTorch, in signed 64-bit integers.


_HALF = 2**32 - 1
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # added to the key in each round
_ROUNDS = 10


def stream_words(
    seed: int, samples: Sequence[int], count: int, device: str
) -> Int64[Array, "batch count"]:
    """The first `count` words of the streams with the keys (seed, sample), with one row per sample.

    The bits of a row are those of `numpy.random.Philox(key=[seed, sample]).random_raw(count)`,
    interpreted as int64.
    """
    counter = torch().arange(1, (count + 3) // 4 + 1, device=device)  # NumPy's first counter is 1
    sample = torch().as_tensor(list(samples), dtype=counter.dtype, device=device)[:, None]
    zero = counter[:1] * 0
    x = _philox((counter, zero, zero, zero), seed, sample)  # each of shape (samples, blocks)
    blocks = torch().stack(torch().broadcast_tensors(*x), dim=-1)  # (samples, blocks, 4)
    return blocks.flatten(1)[:, :count]


def _philox(x: tuple[Array, ...], seed: int, sample: Array) -> tuple[Array, ...]:
    """The four words of each counter x, for the keys (seed, sample), all in int64."""
    for round_ in range(_ROUNDS):
        first = _signed(seed + round_ * _WEYL[0])
        second = sample + _signed(round_ * _WEYL[1])
        (high_0, low_0), (high_1, low_1) = (
            (_upper(m, v), v * _signed(m)) for m, v in zip(_MULTIPLIERS, x[::2], strict=True)
        )
        x = high_1 ^ x[1] ^ first, low_1, high_0 ^ x[3] ^ second, low_0
    return x


def _upper(m: int, v: Array) -> Array:
    """The upper 64 bits of the product of two unsigned 64-bit numbers."""
    m_high, m_low = m >> 32, m & _HALF
    high, low = _shifted(v), v & _HALF
    middle = low * m_high + _shifted(low * m_low)  # at most (2³² - 1) 2³²: carries nothing
    return high * m_high + _shifted(middle) + _shifted(high * m_low + (middle & _HALF))


def _shifted(v: Array) -> Array:
    """⌊v / 2³²⌋, where the bits of v are an unsigned number. A plain shift copies the sign bit."""
    return (v >> 32) & _HALF


def _signed(value: int) -> int:
    """The signed 64-bit number that is congruent to `value` modulo 2⁶⁴."""
    return (value + 2**63) % 2**64 - 2**63


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
            words = stream_words(self.seed, samples, count, device)
            uniform = ((words >> 11) & (2**53 - 1)).double()  # the shift copies the sign
        uniform += 0.5
        uniform *= 2.0**-53
        return uniform


_POSITIONS = 2.0**40  # numbers of positions in a unit of length
_AXES = 4  # largest number of coordinates of a point


class PointStream:
    """Random numbers as functions of (seed, sample, position): a point has the same numbers on
    every grid that holds it.

    Philox4x64-10 with the key (seed, sample) and the counter (r(x₁), ..., r(x₄)) generates four
    64-bit words for each point x, where r(x) = round(2⁴⁰ x). Coordinates that a point lacks are 0.

    >>> fine, coarse = ((np.arange(n) + 0.5)[:, None] / n for n in (9, 3))
    >>> numbers = PointStream(0, fine).normals_of([7], 9)
    >>> bool((PointStream(0, coarse).normals_of([7], 3) == numbers[:, 1::3]).all())
    True

    Raises:
        ValueError: If points have more than four coordinates.
    """

    def __init__(self, seed: int, points: Float[np.ndarray, "*grid d"]) -> None:
        if points.shape[-1] > _AXES:
            raise ValueError(f"points have at most {_AXES} coordinates, got {points.shape[-1]}")
        self.seed, self.points = seed, points

    @cached_property
    def _counters(self) -> tuple[Int64[np.ndarray, "1 points"], ...]:
        rounded = np.round(_POSITIONS * self.points.reshape(-1, self.points.shape[-1]))
        counters = np.zeros((_AXES, 1, len(rounded)), np.int64)
        counters[: rounded.shape[1], 0] = rounded.T
        return tuple(counters)

    def uniforms_of(self, samples: Sequence[int]) -> Float[np.ndarray, "4 batch points"]:
        """The four uniform variates of each point, midpoints of 2⁵³ equal cells of (0, 1)."""
        sample = np.array(samples, np.uint64).view(np.int64)[:, None]
        words = np.stack(np.broadcast_arrays(*_philox(self._counters, self.seed, sample)))
        return (((words >> 11) & (2**53 - 1)) + 0.5) * 2.0**-53

    def normals_of(self, samples: Sequence[int], count: int) -> Float[np.ndarray, "batch points"]:
        """A standard normal at each of the `count` points, from its first two words."""
        if count != math.prod(self.points.shape[:-1]):
            raise ValueError(f"expected one number for each point, got {count}")
        return gaussian(*self.uniforms_of(samples)[:2])


def gaussian(u: Float[np.ndarray, "..."], v: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """√(-2 log u) cos 2πv: standard normals of independent uniform variates (Box and Muller)."""
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


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
        return self.modes_at(grid.x)

    def modes_at(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n M"]:
        """Values of the φ_p at any points x of an axis."""
        angles = np.outer(x, self.wave_numbers)
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
        basis = constant(self.basis(grid), g)
        # NumPy computes samples one by one: the bits of a product may depend on the batch
        size = 1 if device is None else max(1, len(samples))
        for start in range(0, len(samples), size):
            block = slice(start, start + size)
            coefficients = self.coefficients(seed, samples[block], device)
            if device is None and isinstance(grid, CellGrid) and self._fft(grid):
                g[block] = self._by_fft(grid, coefficients)
            else:
                g[block] = basis @ coefficients @ basis.T
        return g

    def coefficients(
        self, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Float[Array, "batch M M"]:
        """The coefficients of φ_p φ_q in the samples with the given numbers."""
        normals = NormalStream(seed).normals_of(samples, self.modes**2, device)
        return constant(self.mode_stds, normals) * normals[:, constant(self._shells, normals)]

    def _fft(self, grid: CellGrid) -> bool:
        """Whether to compute the sum over the modes by FFT instead of matrix products."""
        return 0.9 * grid.n <= self.modes <= grid.n and faster_by_fft(grid.n)

    def _by_fft(
        self, grid: CellGrid, coefficients: Float[np.ndarray, "batch M M"]
    ) -> Float[np.ndarray, "batch n n"]:
        """Compute g by FFT."""
        n, m = grid.n, self.modes
        padded = np.zeros((len(coefficients), n, n))
        padded[:, :m, :m] = n * coefficients
        if self.boundary == "neumann":
            return scipy.fft.idctn(padded, axes=(1, 2), norm="ortho", overwrite_x=True, workers=1)
        padded[:, n - 1 :] *= np.sqrt(2)  # the transform's last sine, ±1, lacks the factor √2
        padded[:, :, n - 1 :] *= np.sqrt(2)
        return scipy.fft.idstn(padded, axes=(1, 2), norm="ortho", overwrite_x=True, workers=1)


@dataclass(frozen=True)
class BlockGaussianField:
    """Independent values of N(0, σ²) on equal blocks of (0,1)², m along each axis.

    The value number m j + i is that of the block (i, j) along (x, y).

    Raises:
        ValueError: If a parameter is outside its range. A call raises it if the blocks do not
            consist of cells of the grid, or the grid is not on (0, 1).

    >>> g = BlockGaussianField(sigma=2.0, blocks=2)(CellGrid(4), seed=0, samples=[0])[0]
    >>> bool((g[:2, :2] == g[0, 0]).all()), np.unique(g).size
    (True, 4)
    """

    sigma: float  # deviation σ > 0
    blocks: int  # number m of blocks along each axis

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.blocks >= 2):
            raise ValueError(
                f"need sigma > 0, blocks >= 2, got sigma={self.sigma}, blocks={self.blocks}"
            )

    def width(self, grid: CellGrid) -> int:
        """Number of cells of a block along each axis."""
        grid.check_unit()
        if grid.n % self.blocks:
            raise ValueError(f"{self.blocks} blocks do not consist of {grid.n} cells")
        return grid.n // self.blocks

    def __call__(
        self, grid: CellGrid, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Float[Array, "batch n n"]:
        """Samples with the given numbers, on the cells of a grid; indexed [sample, x, y]."""
        normals = NormalStream(seed).normals_of(samples, self.blocks**2, device)
        xp, width = array_namespace(normals), self.width(grid)
        g = xp.reshape(self.sigma * normals, (-1, self.blocks, self.blocks))
        return xp.repeat(xp.repeat(xp.permute_dims(g, (0, 2, 1)), width, axis=1), width, axis=2)


# Gaussian fields on the circle with squared-exponential covariance, given by Fourier sums.


@dataclass(frozen=True)
class SquaredExponentialField:
    """The Gaussian field with covariance σ² Σ_j exp(-(x - y + j)²/2l²) on the circle of length 1.

    u(x) = s_0 ξ_0 + Σ_{k=1}^{K} s_k (ξ_k cos 2πkx + ζ_k sin 2πkx), with ξ_k, ζ_k ~ N(0, 1),
    s_0² = σ² l √(2π) and s_k² = 2 σ² l √(2π) exp(-(2πkl)²/2). The constant mode is included,
    and K is `modes`.

    Raises:
        ValueError: If a parameter is outside its range.

    More modes refine the same function:

    >>> fine, coarse = (SquaredExponentialField(0.1, K).normals(0, [7]) for K in (8, 4))
    >>> np.array_equal(fine[:, :9], coarse)
    True
    """

    length: float  # correlation length l > 0
    modes: int  # number K of modes besides the constant mode, independent of the grid
    sigma: float = 1.0  # pointwise deviation σ > 0 of all modes together, where l is small

    def __post_init__(self) -> None:
        if not (self.length > 0 and self.sigma > 0 and self.modes >= 1):
            raise ValueError(
                "need length > 0, sigma > 0, modes >= 1, got "
                f"length={self.length}, sigma={self.sigma}, modes={self.modes}"
            )

    @cached_property
    def stds(self) -> Float[np.ndarray, " K+1"]:
        """Standard deviations s_k, k = 0 ... K."""
        k = np.arange(self.modes + 1)
        variance = np.exp(-((2 * np.pi * k * self.length) ** 2) / 2) * np.where(k, 2, 1)
        return self.sigma * np.sqrt(variance * self.length * np.sqrt(2 * np.pi))

    def normals(self, seed: int, samples: Sequence[int]) -> Float[np.ndarray, "batch 2K+1"]:
        """Normals ξ_0, ξ_1, ζ_1, ξ_2, ζ_2, ... of the samples with the given numbers."""
        drawn = NormalStream(seed).normals_of(samples, 2 * self.modes + 2)
        return np.delete(drawn, 1, axis=1)  # the constant has no sine

    def coefficients(
        self, normals: Float[np.ndarray, "batch 2K+1"]
    ) -> Complex[np.ndarray, "batch K+1"]:
        """Coefficients c_k = s_k (ξ_k - iζ_k) of u(x) = Re Σ_k c_k e^(2πikx)."""
        c = normals[:, :1] + 0j, normals[:, 1::2] - 1j * normals[:, 2::2]
        return np.concatenate(c, axis=1) * self.stds


def values(
    c: Complex[np.ndarray, "batch modes"], n: int, shift: float = 0.0
) -> Float[np.ndarray, "batch n"]:
    """Re Σ_k c_k e^(2πik(x + shift)) at x = j/n, j = 0 ... n-1, for any n.

    >>> values(np.array([[1.0, -1j]]), 4)  # 1 + sin 2πx
    array([[1., 2., 1., 0.]])
    """
    modes = c.shape[1]
    factor = -(-2 * modes // n)  # points finer by this factor alias no mode
    u_hat = np.zeros((len(c), factor * n // 2 + 1), complex)
    u_hat[:, :modes] = c * np.exp(2j * np.pi * np.arange(modes) * shift)
    u_hat[:, 1:] /= 2
    return np.fft.irfft(u_hat, factor * n, norm="forward")[:, ::factor]


def averages(c: Complex[np.ndarray, "batch modes"], n: int) -> Float[np.ndarray, "batch n"]:
    """Exact averages of Re Σ_k c_k e^(2πikx) over the cells (j/n, (j+1)/n), for any n.

    >>> averages(np.array([[1.0, -1j]]), 2)  # of 1 + sin 2πx: 1 ± 2/π
    array([[1.63661977, 0.36338023]])
    """
    return values(c * np.sinc(np.arange(c.shape[1]) / n), n, 0.5 / n)


def antiderivative(c: Complex[np.ndarray, "batch modes"], n: int) -> Float[np.ndarray, "batch n+1"]:
    """The integral of Re Σ_k c_k e^(2πikx) from 0 to x = j/n, j = 0 ... n."""
    k = np.arange(1, c.shape[1])
    periodic = np.zeros(c.shape, complex)
    periodic[:, 1:] = c[:, 1:] / (2j * np.pi * k)
    integral = values(periodic, n)
    integral = np.concatenate([integral, integral[:, :1]], axis=1) - integral[:, :1]
    return integral + np.real(c[:, :1]) * (np.arange(n + 1) / n)


# Gaussian random fields on a torus, whose sample i is a function of (seed, i) alone.


@dataclass(frozen=True)
class TorusGaussianField:
    """The Gaussian field N(0, σ²(-Δ + τ²)^(-α)) on the torus (0, 1)^d, without the mode k = 0.

    w(x) = Σ √2 σ (4π²|k|² + τ²)^(-α/2) (ξ_k cos 2πk·x + ζ_k sin 2πk·x), ξ_k, ζ_k ~ N(0, 1).

    The sum is over half of the wave vectors with |k| <= `modes`, those whose first component other
    than 0 is positive. Their coefficients are drawn in the order of |k|², k₁, k₂, ... Hence more
    modes refine the same function on every grid. The number d of axes is `axes`.

    Raises:
        ValueError: If a parameter is outside its range. A call raises it if the torus does not
            resolve all modes.

    >>> from pdegen.domains import PeriodicGrid
    >>> field = TorusGaussianField(sigma=18.52, tau=7.0, alpha=2.5, modes=5)
    >>> fine, coarse = (
    ...     field(Torus((PeriodicGrid(n),) * 2), seed=0, samples=[7]) for n in (64, 32)
    ... )
    >>> np.allclose(fine[:, ::2, ::2], coarse, rtol=0, atol=1e-12)
    True
    """

    sigma: float  # scale σ > 0 of the covariance operator
    tau: float  # inverse length τ >= 0
    alpha: float  # exponent α > d/2 (below that the variance is infinite as M grows)
    modes: int  # radius >= 1 of the ball of wave vectors, independent of the grid
    axes: int = 2  # number d of axes

    def __post_init__(self) -> None:
        least = self.axes / 2
        if not (self.sigma > 0 and self.tau >= 0 and self.alpha > least and self.modes >= 1):
            raise ValueError(
                f"need sigma > 0, tau >= 0, alpha > {least:g}, modes >= 1, got "
                f"sigma={self.sigma}, tau={self.tau}, alpha={self.alpha}, modes={self.modes}"
            )

    @cached_property
    def wave_vectors(self) -> Int[np.ndarray, "K d"]:
        """Wave vectors k of the half ball, in the order in which their coefficients are drawn."""
        k = half_space(self.modes, self.axes)
        square = np.sum(k**2, axis=0)
        inside = square <= self.modes**2
        order = np.lexsort((*k[::-1, inside], square[inside]))
        return k[:, inside][:, order].T

    @cached_property
    def mode_stds(self) -> Float[np.ndarray, " K"]:
        """Standard deviation of the cosine and sine coefficients of each wave vector."""
        operator = 4 * np.pi**2 * np.sum(self.wave_vectors**2, axis=1) + self.tau**2
        return np.sqrt(2) * self.sigma * operator ** (-self.alpha / 2)

    @property
    def pointwise_variance(self) -> float:
        """E w(x)², which is the same at every x."""
        return float(np.sum(self.mode_stds**2))

    def coefficients(
        self, torus: Torus, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Complex[Array, " batch *modes"]:
        """Fourier coefficients of w, stored in the order of the modes of the torus.

        For a wave vector k, the coefficient is (ξ_k - iζ_k)/2 times the deviation.
        """
        if len(torus.grids) != self.axes or min(torus.highest) < self.modes:
            raise ValueError(
                f"modes up to {self.modes} need a torus of {self.axes} axes with these modes, got "
                f"one with modes up to {torus.highest}"
            )
        v = empty((len(samples), *torus.shape), np.complex128, device)
        v[...] = 0
        xp, stream = array_namespace(v), NormalStream(seed)
        z = stream.pairs_of(samples, len(self.wave_vectors), device)
        z *= constant(self.mode_stds / 2, v)
        k = self.wave_vectors.T
        # the last axis has k_d >= 0 only: for k_d < 0 the conjugate is stored at -k, for 0 both
        up, down = np.flatnonzero(k[-1] >= 0), np.flatnonzero(k[-1] <= 0)
        v[(slice(None), *(constant(j, v) for j in k[:, up]))] = z[:, constant(up, v)]
        v[(slice(None), *(constant(-j, v) for j in k[:, down]))] = xp.conj(z[:, constant(down, v)])
        return v

    def __call__(
        self, torus: Torus, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Float[Array, " batch *points"]:
        """Samples with the given numbers at the points of a torus; indexed [sample, x, y, ...]."""
        return torus.to_points(self.coefficients(torus, seed, samples, device))


def half_space(highest: int, axes: int) -> Int[np.ndarray, "{axes} K"]:
    """The wave vectors |k_j| <= `highest` whose first component other than 0 is positive.

    >>> half_space(1, 2).T.tolist()
    [[0, 1], [1, -1], [1, 0], [1, 1]]
    """
    k = np.mgrid[0 : highest + 1, *[slice(-highest, highest + 1)] * (axes - 1)].reshape(axes, -1)
    return k[:, k.shape[1] - ((2 * highest + 1) ** axes - 1) // 2 :]  # in lexicographic order
