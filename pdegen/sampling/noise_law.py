"""Laws of noise: what a classical method knows about the noise of its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

Data = Float[np.ndarray, " *data"]

_EXPLAINED = 1.1  # largest mean of a step's variances over that of the law, which are random


class Filter(Protocol):
    """A symmetric linear map K from data to data."""

    def __call__(self, u: np.ndarray, /) -> np.ndarray: ...

    def transposed(self, d: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True)
class CosineBlur:
    """K u: the mode with the wave numbers πk on the unit interval or square is multiplied by
    exp(-|πk|² l²/2). The modes are cosines at the points (i + ½)/n, so K keeps the mean.

    >>> x = (np.arange(8) + 0.5) / 8
    >>> blurred = CosineBlur(0.2, (8,))(1 + np.cos(np.pi * x))
    >>> bool(np.allclose(blurred, 1 + np.exp(-0.02 * np.pi**2) * np.cos(np.pi * x)))
    True
    """

    length: float  # l >= 0
    shape: tuple[int, ...]  # of a field, which may be given as a vector in C order

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """K u for fields of shape (*batch, *shape) or (*batch, points)."""
        modes = scipy.fft.dctn(u.reshape(-1, *self.shape), axes=self._axes, norm="ortho")
        for axis in self._axes:
            k = np.pi * np.arange(modes.shape[axis])
            factors = np.exp(-((k * self.length) ** 2) / 2)
            modes *= factors.reshape(-1, *[1] * (len(self.shape) - axis))
        return scipy.fft.idctn(modes, axes=self._axes, norm="ortho").reshape(u.shape)

    def transposed(self, d: np.ndarray) -> np.ndarray:
        """Kᵀ d = K d."""
        return self(d)

    @property
    def _axes(self) -> range:
        return range(1, 1 + len(self.shape))


@dataclass(frozen=True, kw_only=True)
class NoiseLaw:
    """The law of data d = K u + e. The noise e is Gaussian: e = Σ_k v_k ζ_k + e₀, with independent
    ζ_k ~ N(0, 1), and an e₀ that is independent at all points.

    In a subclass, e₀ has another distribution. It then has a variance for each Gauss-Newton step,
    which depends on the prediction and on the residual of the step before. At the true u, the mean
    of the squares of e₀ over this variance is 1.

    >>> law = NoiseLaw(std=np.array([1.0, 2.0]), directions=np.array([[0.6, 0.0]]))
    >>> law.variance().round(12).tolist(), law.scaled(2.0).std.tolist()
    ([0.64, 4.0], [2.0, 4.0])
    """

    std: Data  # deviation of e at each point
    directions: Float[np.ndarray, " k *data"] | None = None  # v_k
    observation: Filter | None = None  # K; None for the identity
    present: float = 1.0  # share of the data that are measured; others have a huge deviation
    added: Data | float = 0.0  # variance of independent errors besides the noise

    @classmethod
    def of(cls, noise: NoiseLaw | Data) -> NoiseLaw:
        """The law itself, or that of independent Gaussian noise with a given deviation."""
        return noise if isinstance(noise, NoiseLaw) else cls(std=noise)

    @property
    def is_fixed(self) -> bool:
        """Whether the variance depends on neither the prediction nor the residual."""
        return True

    def variance(self, predicted: Data | None = None, residual: Data | None = None) -> Data:
        """The variance of the independent part e₀.

        Args:
            predicted: Data that a model predicts. Without them the result is the variance over all
                u.
            residual: Data minus prediction.
        """
        squares = self.std**2
        if self.directions is None:
            return squares
        return np.maximum(squares - np.sum(self.directions**2, axis=0), 0)

    def correction(self, predicted: Data, residual: Data) -> float:
        """-log of the density of the residual minus ½ Σ r²/variance, up to a constant. Objectives
        with the variances of different steps are compared after adding it."""
        return 0.0

    def explains(self, predicted: Data, residual: Data) -> bool:
        """Whether the mean variance of a step is at most that of the law.

        If the residuals of all points are large, a law of frequent large values takes all of them
        for noise. Then small weighted residuals do not mean that the data fit.
        """
        return True

    @property
    def stated(self) -> Self | Data:
        """The deviation, if that is all there is to know; otherwise the law."""
        known = self.observation is None and self.directions is None and self.present == 1
        return self.std if known and self.is_fixed else self

    @property
    def independent(self) -> Self:
        """The law with the same deviation at each point and no correlation."""
        return replace(self, directions=None)

    def scaled(self, factor: float) -> Self:
        """The law of noise that is `factor` times as large."""
        directions = None if self.directions is None else factor * self.directions
        return replace(self, std=factor * self.std, directions=directions)

    def at(self, sensors: Bool[np.ndarray, " *data"]) -> Self:
        """The law of the data at the sensors."""
        return replace(self, std=self.std[sensors])

    def raveled(self) -> Self:
        """The law of the data as a vector in C order, without correlation."""
        return replace(self, std=self.std.ravel(), directions=None)

    def plus(self, *variances: Data | float) -> Self:
        """The law of the sum of this noise and of independent errors with these variances."""
        total = self.std**2
        for variance in variances:
            total = total + variance
        return replace(self, std=np.sqrt(total), added=self.added + sum(variances))


@dataclass(frozen=True, kw_only=True)
class StudentLaw(NoiseLaw):
    """e₀ = σ s t_ν with independent t_ν of Student's distribution, s² = (ν-2)/ν.

    The variance of a step is (ν s² σ² + r²)/(ν + 1), the majorisation of -log of the density.

    References: K. Lange, R. Little and J. Taylor, Robust statistical modeling using the t
    distribution, J. Amer. Statist. Assoc. 84 (1989).

    >>> law = StudentLaw(std=np.ones(2), freedom=3.0)
    >>> law.variance(np.zeros(2), np.array([0.0, 10.0])).tolist()
    [0.25, 25.25]
    """

    freedom: float  # ν > 2

    @property
    def is_fixed(self) -> bool:
        return False

    def variance(self, predicted: Data | None = None, residual: Data | None = None) -> Data:
        if residual is None:
            return self.std**2
        squares = self.std**2 - self.added
        return ((self.freedom - 2) * squares + residual**2) / (self.freedom + 1) + self.added

    def correction(self, predicted: Data, residual: Data) -> float:
        variance = self.variance(predicted, residual)
        squares = np.maximum(variance - self.added, np.finfo(float).tiny)
        return 0.5 * float(np.sum((self.freedom + 1) * np.log(squares) - residual**2 / variance))

    def explains(self, predicted: Data, residual: Data) -> bool:
        return _explains(self, predicted, residual)


@dataclass(frozen=True, kw_only=True)
class ImpulseLaw(NoiseLaw):
    """e₀ ~ N(0, v₀) with probability 1 - p, and N(0, v₁) with probability p, v₁ = v₀ + A².

    The variance of a step is v with 1/v = (1 - γ)/v₀ + γ/v₁, where γ is the probability that the
    residual is one of an impulse (the weights of the EM algorithm).

    References: A. Dempster, N. Laird and D. Rubin, Iteratively reweighted least squares for linear
    regression when errors are normal/independent distributed, Multivariate Analysis V (1980).

    >>> law = ImpulseLaw(std=np.ones(2), size=np.full(2, 4.0), share=0.05)
    >>> law.variance(np.zeros(2), np.array([0.0, 4.0])).round(2).tolist()
    [0.2, 16.2]
    """

    size: Data  # A, the size of the impulses at each point
    share: float  # p in (0, 1)

    @property
    def is_fixed(self) -> bool:
        return False

    def variance(self, predicted: Data | None = None, residual: Data | None = None) -> Data:
        if residual is None:
            return self.std**2
        low, high = self._variances
        usual, impulse = self._densities(residual)
        gamma = scipy.special.expit(impulse - usual)
        return 1 / ((1 - gamma) / low + gamma / high)

    @property
    def _variances(self) -> tuple[Data, Data]:
        """v₀ and v₁, with the errors besides the noise."""
        floor = np.finfo(float).tiny
        low = np.maximum(self.std**2 - self.share * self.size**2, floor)
        return low, low + self.size**2

    def _densities(self, residual: Data) -> tuple[Data, Data]:
        """Logarithms of the densities of residuals without and with an impulse."""
        low, high = (-0.5 * (residual**2 / v + np.log(v)) for v in self._variances)
        return np.log1p(-self.share) + low, np.log(self.share) + high

    def correction(self, predicted: Data, residual: Data) -> float:
        density = np.logaddexp(*self._densities(residual))
        return -float(np.sum(density + 0.5 * residual**2 / self.variance(predicted, residual)))

    def explains(self, predicted: Data, residual: Data) -> bool:
        return _explains(self, predicted, residual)

    def scaled(self, factor: float) -> Self:
        return replace(super().scaled(factor), size=factor * self.size)

    def at(self, sensors: Bool[np.ndarray, " *data"]) -> Self:
        return replace(super().at(sensors), size=self.size[sensors])

    def raveled(self) -> Self:
        return replace(super().raveled(), size=self.size.ravel())


@dataclass(frozen=True, kw_only=True)
class SignalLaw(NoiseLaw):
    """e₀ of variance ε² s^(2-q) |u|^q: the noise grows with the field u, for which a step takes its
    prediction.

    >>> law = SignalLaw(std=np.ones(2), level=0.1, scale=1.0, power=2)
    >>> law.variance(np.array([1.0, 2.0])).round(4).tolist()
    [0.01, 0.04]
    """

    level: float  # ε
    scale: float  # s > 0
    power: int  # q: 1 for counts of particles, 2 for a relative error
    least: float = 0.01  # smallest |u|/s in the variance

    @property
    def is_fixed(self) -> bool:
        return False

    def variance(self, predicted: Data | None = None, residual: Data | None = None) -> Data:
        if predicted is None:
            return self.std**2
        u = np.maximum(np.abs(predicted) / self.scale, self.least)
        return (self.level * self.scale) ** 2 * u**self.power + self.added

    def correction(self, predicted: Data, residual: Data) -> float:
        return 0.5 * float(np.sum(np.log(self.variance(predicted, residual))))

    def scaled(self, factor: float) -> Self:
        return replace(super().scaled(factor), level=factor * self.level)


def _explains(law: NoiseLaw, predicted: Data, residual: Data) -> bool:
    return bool(np.mean(law.variance(predicted, residual) / law.std**2) <= _EXPLAINED)
