"""Gaussian fields on the circle with squared-exponential covariance, given by Fourier sums.

A sample is given by a few Fourier coefficients. Its point values, antiderivative and cell averages
are therefore exact at every resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float

from pdegen.sampling.gaussian import NormalStream


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
