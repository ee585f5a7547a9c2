"""Fourier space on a periodic box of one or more axes, restricted to modes free of aliasing.

A real function on the box is u(x) = Σ v_k e^(2πi k·x/L) over the modes |k_j| <= K_j that products
leave free of aliasing. The coefficients v_k are stored in complex arrays of shape
(2K + 1, ..., 2K + 1, K + 1). Their order is 0 ... K, -K ... -1 along all axes except the last, as
in an FFT, and 0 ... K along the last axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from array_api_compat import array_namespace
from jaxtyping import Complex, Float

from pdegen.domains import PeriodicGrid
from pdegen.numerics.device import Array
from pdegen.numerics.transforms import fft_of


@dataclass(frozen=True)
class Torus:
    """The modes of a periodic box on which products of `degree` factors are free of aliasing.

    Raises:
        ValueError: If a grid has an odd number of points, or too few points for any mode.

    >>> torus = Torus((PeriodicGrid(16), PeriodicGrid(16, length=2.0)))
    >>> x, y = np.meshgrid(*[grid.x for grid in torus.grids], indexing="ij")
    >>> phase = 2 * np.pi * x + np.pi * y
    >>> v = torus.to_modes(np.sin(phase))
    >>> bool(np.allclose(torus.to_points(torus.d[1] * v), np.pi * np.cos(phase)))
    True
    """

    grids: tuple[PeriodicGrid, ...]  # along each axis, with an even number of points
    # most factors of a product: modes k < n/(degree + 1) are kept (for 2, Orszag's 2/3 rule)
    degree: int = 2

    def __post_init__(self) -> None:
        for grid in self.grids:
            if grid.n % 2 or grid.n <= self.degree + 1:
                raise ValueError(
                    f"a spectral method for products of {self.degree} factors needs an even number "
                    f"of points > {self.degree + 1} along each axis, got {grid.n}"
                )

    @property
    def points(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(grid.n for grid in self.grids)

    @cached_property
    def highest(self) -> tuple[int, ...]:
        """Largest wave number K along each axis."""
        return tuple((n - 1) // (self.degree + 1) for n in self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an array of modes."""
        return (*(2 * k + 1 for k in self.highest[:-1]), self.highest[-1] + 1)

    @cached_property
    def numbers(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """Wave numbers k along each axis, shaped to broadcast over an array of modes."""
        last = len(self.grids) - 1
        along_axes = []
        for axis, k in enumerate(self.highest):
            numbers = np.arange(k + 1) if axis == last else np.r_[0 : k + 1, -k:0]
            along_axes.append(
                numbers.astype(float).reshape([-1 if a == axis else 1 for a in range(last + 1)])
            )
        return tuple(along_axes)

    @cached_property
    def wave_numbers(self) -> tuple[Float[np.ndarray, "..."], ...]:
        """Angular wave numbers 2πk/L along each axis."""
        return tuple(
            2 * np.pi * k / g.length for k, g in zip(self.numbers, self.grids, strict=True)
        )

    @cached_property
    def d(self) -> tuple[Complex[np.ndarray, "..."], ...]:
        """The symbols 2πik/L of the derivatives along each axis."""
        return tuple(1j * k for k in self.wave_numbers)

    @cached_property
    def laplacian(self) -> Float[np.ndarray, " *modes"]:
        """The symbol -|2πk/L|² of the Laplacian."""
        return -np.sum([np.broadcast_to(k**2, self.shape) for k in self.wave_numbers], axis=0)

    @cached_property
    def inverse_laplacian(self) -> Float[np.ndarray, " *modes"]:
        """The symbol of the inverse Laplacian on functions without mean; 0 for the mean."""
        symbol = self.laplacian.copy()
        symbol[(0,) * symbol.ndim] = np.inf
        return 1 / symbol

    @cached_property
    def weights(self) -> Float[np.ndarray, " *modes"]:
        """How often each stored Fourier coefficient counts in sums over all modes: once or twice.

        It is 2 if the mode -k is not stored. So Σ w |v|² is the mean of u² with coefficients v.
        """
        weights = np.full(self.shape, 2.0)
        weights[..., 0] = 1
        return weights

    @cached_property
    def finer(self) -> Torus:
        """A finer torus, with at least a quarter more points along each axis.

        The numbers of points are even, with small prime factors for fast transforms. The largest
        wave number grows by at least two along each axis, because a function may have odd modes
        only.
        """
        return Torus(tuple(map(self._finer, self.grids, self.highest)), self.degree)

    def _finer(self, grid: PeriodicGrid, highest: int) -> PeriodicGrid:
        n = max(math.ceil(1.25 * grid.n), (self.degree + 1) * (highest + 2) + 1)
        while n % 2 or scipy.fft.next_fast_len(n, real=True) > n:
            n += 1
        return replace(grid, n=n)

    def padded(self, v: Complex[Array, " *batch *modes"]) -> Complex[Array, " *batch *finer"]:
        """The modes v of a coarser torus, padded with zeros to the modes of this torus."""
        *others, last = self.shape
        for axis, size in zip(range(-len(self.grids), -1), others, strict=True):
            v = _padded(v, axis, size)
        return _lengthened(v, last)

    def to_modes(self, u: Float[Array, " *batch *points"]) -> Complex[Array, " *batch *modes"]:
        """The Fourier coefficients of the stored modes, from the values u at the points."""
        v = self.to_columns(u)
        for axis in range(-len(self.grids), -1):
            v = _kept(v, axis, self.highest[axis])
        return v

    def to_points(
        self, v: Complex[Array, " *batch *modes"], points: tuple[int, ...] | None = None
    ) -> Float[Array, " *batch *points"]:
        """The values of a function on equally spaced points.

        Args:
            v: Modes of the function.
            points: Number n of points along each axis, by default that of the grids. The modes
                |k| >= n/2 would alias and are left out.
        """
        points = self.points if points is None else points
        for axis in range(-len(self.grids), -1):
            v = _padded(v, axis, points[axis])
        return self.from_columns(v, points[-1])

    def to_columns(self, u: Float[Array, " *batch *points"]) -> Complex[Array, "..."]:
        """The Fourier coefficients of u, with all n modes along every axis except the last.

        Along the last axis, only the stored modes are returned.
        """
        fft, into = fft_of(u)
        v = fft.rfft(u, norm="forward")[..., : self.shape[-1]]
        for axis in range(-len(self.grids), -1):
            v = fft.fft(v, axis=axis, norm="forward", **into)
        return v

    def from_columns(self, v: Complex[Array, "..."], n: int) -> Float[Array, "..."]:
        """The values of a function at the points, with n points along the last axis.

        v has all modes along every axis except the last. v may be overwritten.
        """
        fft, into = fft_of(v)
        for axis in range(-len(self.grids), -1):
            v = fft.ifft(v, axis=axis, norm="forward", **into)
        # zeros are added here: SciPy would add them in fresh pages, which is several times slower
        half = _lengthened(v[..., : (n - 1) // 2 + 1], n // 2 + 1)
        return fft.irfft(half, n=n, norm="forward", **into)


def _kept(v: Array, axis: int, highest: int) -> Array:
    """The modes 0 ... K, -K ... -1 along one axis, selected from all n modes."""
    xp, after = array_namespace(v), (slice(None),) * (-axis - 1)
    return xp.concat(
        [
            v[(..., slice(highest + 1), *after)],
            v[(..., slice(v.shape[axis] - highest, None), *after)],
        ],
        axis=axis,
    )


def _lengthened(v: Array, count: int) -> Array:
    """v with zeros appended along the last axis, to a length of `count`."""
    xp, n = array_namespace(v), v.shape[-1]
    longer = xp.empty((*v.shape[:-1], count), dtype=v.dtype, device=v.device)
    longer[..., :n], longer[..., n:] = v, 0
    return longer


def _padded(v: Array, axis: int, n: int) -> Array:
    """v with n modes along one axis; modes that v does not have are 0."""
    xp, after = array_namespace(v), (slice(None),) * (-axis - 1)
    highest = min(v.shape[axis] // 2, (n - 1) // 2)
    below, above = slice(highest + 1), slice(n - highest, None)
    shape = list(v.shape)
    shape[axis] = n
    padded = xp.empty(tuple(shape), dtype=v.dtype, device=v.device)
    padded[(..., below, *after)] = v[(..., below, *after)]
    padded[(..., slice(highest + 1, n - highest), *after)] = 0
    padded[(..., above, *after)] = v[(..., slice(v.shape[axis] - highest, None), *after)]
    return padded
