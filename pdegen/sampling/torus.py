"""Gaussian random fields on the square torus, whose sample i is a function of (seed, i) alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Complex, Float, Int

from pdegen.numerics.device import Array, constant, empty
from pdegen.numerics.torus import Torus
from pdegen.sampling.gaussian import NormalStream


@dataclass(frozen=True)
class TorusGaussianField:
    """The Gaussian field N(0, σ²(-Δ + τ²)^(-α)) on the torus (0, 1)², without the mode k = 0.

    w(x) = Σ √2 σ (4π²|k|² + τ²)^(-α/2) (ξ_k cos 2πk·x + ζ_k sin 2πk·x), ξ_k, ζ_k ~ N(0, 1).

    The sum is over half of the wave vectors with |k| <= `modes`: k₁ > 0, or k₁ = 0 and k₂ > 0.
    Their coefficients are drawn in the order of |k|², k₁, k₂. Hence more modes refine the same
    function on every grid.

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
    alpha: float  # exponent α > 1 (below that the variance is infinite as M grows)
    modes: int  # radius >= 1 of the disc of wave vectors, independent of the grid

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and self.tau >= 0 and self.alpha > 1 and self.modes >= 1):
            raise ValueError(
                "need sigma > 0, tau >= 0, alpha > 1, modes >= 1, got "
                f"sigma={self.sigma}, tau={self.tau}, alpha={self.alpha}, modes={self.modes}"
            )

    @cached_property
    def wave_vectors(self) -> Int[np.ndarray, "K 2"]:
        """Wave vectors k of the half disc, in the order in which their coefficients are drawn."""
        m = self.modes
        k1, k2 = (axis.ravel() for axis in np.mgrid[0 : m + 1, -m : m + 1])
        square = k1**2 + k2**2
        half = (square <= m**2) & ((k1 > 0) | (k2 > 0))
        k1, k2, square = k1[half], k2[half], square[half]
        order = np.lexsort((k2, k1, square))
        return np.stack([k1[order], k2[order]], axis=1)

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
        if len(torus.grids) != 2 or min(torus.highest) < self.modes:
            raise ValueError(
                f"modes up to {self.modes} need a square torus with these modes, got one with "
                f"modes up to {torus.highest}"
            )
        v = empty((len(samples), *torus.shape), np.complex128, device)
        v[...] = 0
        xp, stream = array_namespace(v), NormalStream(seed)
        z = stream.pairs_of(samples, len(self.wave_vectors), device)
        z *= constant(self.mode_stds / 2, v)
        k1, k2 = self.wave_vectors.T
        # the last axis has k₂ >= 0 only: for k₂ < 0 the conjugate is stored at -k, for k₂ = 0 both
        up, down = np.flatnonzero(k2 >= 0), np.flatnonzero(k2 <= 0)
        v[(slice(None), *_at(k1[up], k2[up], v))] = z[:, constant(up, v)]
        v[(slice(None), *_at(-k1[down], -k2[down], v))] = xp.conj(z[:, constant(down, v)])
        return v

    def __call__(
        self, torus: Torus, seed: int, samples: Sequence[int], device: str | None = None
    ) -> Float[Array, "batch nx ny"]:
        """Samples with the given numbers, evaluated at the points of a torus; indexed [sample, x,
        y].
        """
        return torus.to_points(self.coefficients(torus, seed, samples, device))


def _at(k1: np.ndarray, k2: np.ndarray, like: Array) -> tuple[Array, Array]:
    return constant(k1, like), constant(k2, like)
