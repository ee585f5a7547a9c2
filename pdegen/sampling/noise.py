"""Noise on the inputs of a learning problem: u -> noisy u, a function of (seed, sample, epoch).

The random numbers come from `pdegen.sampling.gaussian.NormalStream`, with a seed hashed from the
given one, so they are independent of the fields drawn with the same seed. They do not depend on
the level: the noise of another level is the same noise scaled.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from pdegen.numerics.one_thread import one_thread
from pdegen.sampling.gaussian import NormalStream

_CACHE_POINTS = 32768  # points of a block of fields: a few such arrays fit into a core's cache

Fields = Float[np.ndarray, " batch *grid"]
Field = Float[np.ndarray, " *grid"]


@dataclass(frozen=True)
class NoiseModel(ABC):
    """A kind of noise at a level; calling it adds the noise. Raises ValueError on a negative or
    infinite level."""

    level: float  # strength ε >= 0 of the noise; 0 gives u itself, bit for bit
    uses_deviation: ClassVar[bool] = False
    lost: ClassVar[str] = ""  # what `equivalent` does not say of it

    def __post_init__(self) -> None:
        if not (math.isfinite(self.level) and self.level >= 0):
            raise ValueError(f"the level is finite and >= 0, got {self.level}")

    def __call__(
        self,
        u: Fields,
        seed: int,
        samples: Sequence[int],
        deviation: Field | None = None,
        epoch: int = 0,
    ) -> Fields:
        """The samples with these numbers with noise, computed in float64, in the type of u.

        Args:
            u: Fields, one row for each sample.
            seed: Seed of the noise.
            samples: Their numbers in the dataset; others have independent noise.
            deviation: Standard deviation σ(x) of u over the training samples.
            epoch: Another epoch has independent noise; 0 is that of frozen noise.

        Raises:
            ValueError: Where σ is missing, or shapes do not fit.
        """
        return self.add(u, seed, self.numbers(samples), deviation, epoch)

    def numbers(self, samples: Sequence[int]) -> Sequence[int]:
        """What takes the place of the sample's number in the random stream."""
        return samples

    def add(
        self,
        u: Fields,
        seed: int,
        numbers: Sequence[int],
        deviation: Field | None = None,
        epoch: int = 0,
        levels: Float[np.ndarray, " batch"] | None = None,
    ) -> Fields:
        """As calling it, with given numbers in the random stream, and a level for each row."""
        if len(numbers) != len(u):
            raise ValueError(f"{len(u)} rows need as many numbers of samples, got {len(numbers)}")
        if self.uses_deviation and deviation is None:
            raise ValueError(f"{type(self).__name__} needs the pointwise deviation")
        if deviation is not None and deviation.shape != u.shape[1:]:
            raise ValueError(
                f"the deviation has shape {u.shape[1:]} as the fields, got {deviation.shape}"
            )
        sigma = None if deviation is None else deviation.astype(np.float64)
        stream = NormalStream(hashed(seed, "noise", epoch))
        noisy = u.copy()
        if self._silent and levels is None:
            return self._seen(noisy, seed)
        rows = max(1, _CACHE_POINTS // max(1, math.prod(u.shape[1:])))
        for start in range(0, len(u), rows):
            block = slice(start, start + rows)
            clean = u[block].astype(np.float64)
            level = self.level
            if levels is not None:
                level = levels[block].reshape(-1, *[1] * (u.ndim - 1))
            with one_thread():
                noisy[block] = clean + self._noise(level, clean, stream, numbers[block], sigma)
        return self._seen(noisy, seed)

    def _seen(self, noisy: np.ndarray, seed: int) -> np.ndarray:
        """What is observed of noisy fields: all, by default."""
        return noisy

    @property
    def _silent(self) -> bool:
        return self.level == 0

    def equivalent(
        self, data: Field, known: Float[np.ndarray, " samples *grid"], deviation: Field
    ) -> Field:
        """The deviation of the noise at each point of noisy data, for methods that take it for
        independent and Gaussian; what they are not told is `lost`. Known are fields without noise,
        and their deviation σ(x)."""
        return self.level * deviation

    @abstractmethod
    def _noise(
        self, level: Any, u: np.ndarray, stream: NormalStream, numbers: Sequence[int], sigma: Any
    ) -> Fields:
        """What is added to some fields, at one level or at one for each, shape (batch, 1, ...)."""


@dataclass(frozen=True)
class EnsembleNoise(NoiseModel):
    """u(x) + ε σ(x) ξ(x), ξ(x) ~ N(0, 1) independent at the points, σ the ensemble's deviation.

    >>> u = np.zeros((1000, 2))
    >>> noisy = EnsembleNoise(0.1)(u, seed=0, samples=range(1000), deviation=np.array([1.0, 2.0]))
    >>> noisy.std(axis=0).round(2).tolist()
    [0.1, 0.2]
    """

    uses_deviation: ClassVar[bool] = True

    def _noise(self, level, u, stream, numbers, sigma):
        return level * sigma * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class PublishedNoise(NoiseModel):
    """u(x) + ε (σ(x) + 10⁻⁵) ξ(x), as the code published with the Galerkin Transformer.

    The code standardises u with σ + 10⁻⁵ and adds ε ξ. It seeds the generator anew for each set,
    so the first test sample has the numbers ξ of the first training sample: here a row's place
    in the batch counts, not its sample's number. Other kinds give all samples their own noise.
    """

    uses_deviation: ClassVar[bool] = True

    def numbers(self, samples: Sequence[int]) -> Sequence[int]:
        return range(len(samples))

    def equivalent(self, data, known, deviation):
        return self.level * (deviation + 1e-5)

    def _noise(self, level, u, stream, numbers, sigma):
        return level * (sigma + 1e-5) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class RelativeNoise(NoiseModel):
    """u(x) + ε rms(u) ξ(x), with the root mean square of the field itself.

    >>> data, known = np.array([3.0, -3.0]), np.zeros((1, 2))
    >>> RelativeNoise(0.75).equivalent(data, known, np.ones(2)).round(9).tolist()  # 0.6 rms(data)
    [1.8, 1.8]
    """

    def equivalent(self, data, known, deviation):
        return _share_of(data, self.level)

    def _noise(self, level, u, stream, numbers, sigma):
        return level * _rms(u) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class SNRNoise(NoiseModel):
    """u(x) + s ξ(x) with 10 log₁₀(mean u² / s²) = level, the signal-to-noise ratio in dB.

    Args:
        level: Any finite number; 0 is noise as strong as the field, more is less noise.
    """

    def __post_init__(self) -> None:
        if not math.isfinite(self.level):
            raise ValueError(f"the level is finite, got {self.level}")

    @property
    def _silent(self) -> bool:
        return False

    def equivalent(self, data, known, deviation):
        return _share_of(data, 10 ** (-self.level / 20))

    def _noise(self, level, u, stream, numbers, sigma):
        return 10 ** (-level / 20) * _rms(u) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class MultiplicativeNoise(NoiseModel):
    """u(x) (1 + ε ξ(x))."""

    lost: ClassVar[str] = "its deviation follows u; told is the root mean square over the samples"

    def equivalent(self, data, known, deviation):
        return self.level * np.sqrt(np.mean(known**2, axis=0))

    def _noise(self, level, u, stream, numbers, sigma):
        return level * u * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class CorrelatedNoise(NoiseModel):
    """u(x) + ε σ(x) η(x), η Gaussian of variance 1 with the correlation exp(-r²/2l²).

    In one dimension η(x) = Σ_p s_p φ_p(x) ξ_p / (Σ_p s_p² φ_p(x)²)^½, with φ_0 = 1,
    φ_p = √2 cos πpx and s_p = exp(-(πpl)²/4); in two, products of these. Within a few lengths of
    the boundary the correlation is the sum with that of the mirror image. The points are taken
    for (i + ½)/n; modes that n points cannot tell apart are left out, so a length well below the
    spacing gives white noise.
    """

    length: float = 0.1  # correlation length l > 0, as a fraction of the domain
    uses_deviation: ClassVar[bool] = True
    lost: ClassVar[str] = "its values at different points are correlated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.length) and self.length > 0):
            raise ValueError(f"the length is finite and > 0, got {self.length}")

    def basis(self, n: int) -> Float[np.ndarray, "n modes"]:
        """The functions whose sum with normal coefficients is η on n points; rows of norm 1."""
        last = 12 / (np.pi * self.length)  # beyond it s_p < 1e-15
        k = np.pi * np.arange(min(n, int(min(last, n)) + 1))
        basis = np.cos(np.outer((np.arange(n) + 0.5) / n, k)) * np.exp(
            -((k * self.length) ** 2) / 4
        )
        basis[:, 1:] *= np.sqrt(2)
        return basis / np.linalg.norm(basis, axis=1, keepdims=True)

    def _noise(self, level, u, stream, numbers, sigma):
        if u.ndim not in (2, 3):
            raise ValueError(f"correlated noise is for 1 or 2 dimensions, got {u.ndim - 1}")
        bases = [self.basis(n) for n in u.shape[1:]]
        xi = _normals(stream, numbers, tuple(basis.shape[1] for basis in bases))
        eta = np.empty_like(u)
        for row, one in enumerate(xi):  # one by one: the same bits in any batch
            eta[row] = bases[0] @ one if len(bases) == 1 else bases[0] @ one @ bases[1].T
        return level * sigma * eta


@dataclass(frozen=True)
class SensorNoise(EnsembleNoise):
    """u(x) + ε σ(x) ξ(x) at the sensors, 0 elsewhere.

    The sensors are random points, the same for all samples, levels and epochs; more of them
    contain fewer.
    """

    fraction: float = 0.1  # share of the points that are observed, in (0, 1]; at least one point is

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fraction <= 1:
            raise ValueError(f"the fraction is in (0, 1], got {self.fraction}")

    def observed(self, shape: tuple[int, ...], seed: int) -> Bool[np.ndarray, "..."]:
        """True at the sensors."""
        points = math.prod(shape)
        order = np.argsort(_normals(NormalStream(hashed(seed, "sensors", 0)), [0], (points,))[0])
        mask = np.zeros(points, dtype=bool)
        mask[order[: max(1, round(self.fraction * points))]] = True
        return mask.reshape(shape)

    def _seen(self, noisy: np.ndarray, seed: int) -> np.ndarray:
        noisy[:, ~self.observed(noisy.shape[1:], seed)] = 0
        return noisy


def pointwise_deviation(blocks: Iterable[Float[np.ndarray, " _ *grid"]]) -> Field:
    """σ(x) = (mean (u - mean u)²)^½ over the samples of all blocks, in float64.

    One sample after another (Welford), so the result does not depend on how they are cut into
    blocks, and a small spread about a large mean is not lost.

    Raises:
        ValueError: If there is no sample.

    References: Welford, Note on a method for calculating corrected sums of squares and products,
        Technometrics 4 (1962).

    >>> pointwise_deviation([np.array([[1.0, 5.0]]), np.array([[3.0, 5.0]])])
    array([1., 0.])
    """
    count, mean, squares = 0, np.zeros(()), np.zeros(())
    for block in blocks:
        for u in block.astype(np.float64):
            count += 1
            change = u - mean
            mean = mean + change / count
            squares = squares + change * (u - mean)
    if count == 0:
        raise ValueError("a deviation needs at least one sample")
    return np.sqrt(squares / count)


def hashed(seed: int, purpose: str, epoch: int) -> int:
    """A seed of 64 bits for another purpose, such as an epoch's noise or its levels."""
    digest = hashlib.sha256(f"{seed} {purpose} {epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _normals(stream: NormalStream, numbers: Sequence[int], shape: tuple[int, ...]) -> Fields:
    return stream.normals_of(numbers, math.prod(shape)).reshape(-1, *shape)


def _share_of(data: np.ndarray, share: float) -> np.ndarray:
    """ε rms(u), by the mean square of u (1 + ε²) that noisy data have."""
    deviation = share * float(np.sqrt(np.mean(data**2) / (1 + share**2)))
    return np.full(data.shape, deviation)


def _rms(u: np.ndarray) -> Float[np.ndarray, " batch ..."]:
    """Root mean square of each field, to be multiplied with fields."""
    # one by one: the same bits in any batch
    rms = np.array([np.sqrt(np.mean(one**2)) for one in u])
    return rms.reshape(-1, *[1] * (u.ndim - 1))
