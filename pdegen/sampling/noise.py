"""Noise on the inputs of a learning problem, as a function of (seed, sample, epoch).

The random numbers come from `pdegen.sampling.gaussian.NormalStream` with a hash of the given seed.
They are therefore independent of the fields that are drawn with the same seed. They do not depend
on the noise level, which only scales the noise.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pydantic
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float, Int
from pydantic import (
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from pdegen.numerics.device import one_thread
from pdegen.sampling.gaussian import NormalStream, PointStream, gaussian
from pdegen.sampling.noise_law import CosineBlur, ImpulseLaw, NoiseLaw, SignalLaw, StudentLaw
from pdegen.schema import Positive, Strict, near

_CACHE_POINTS = 32768  # points of a block of fields: a few such arrays fit into a core's cache

Fields = Float[np.ndarray, " batch *grid"]
Field = Float[np.ndarray, " *grid"]
Points = Float[np.ndarray, "*grid d"]
By = Literal["order", "point"]
SizeUnit = Literal["deviation", "absolute"]
Stream = NormalStream | PointStream

_LAST = 5.3  # largest πpl of a mode in a principal direction; s_p < 1e-3 beyond
_EXPLAINED, _DIRECTIONS = 0.99, 400  # share of the variance in directions, and their largest number
_ABSENT = 1e4  # deviation of absent data, over the root mean square of σ(x)
_COUNTS = 1e6  # counts that exceed it are drawn as rounded normals


@dataclass(frozen=True)
class NoiseModel(ABC):
    """A kind of noise at a given level. Calling the object adds the noise to fields.

    Raises ValueError if the level is negative or infinite.
    """

    level: float  # strength ε >= 0 of the noise; 0 gives u itself, bit for bit
    # "order": the k-th number of a sample's stream belongs to the k-th point of the grid that is
    # read; "point": numbers are functions of the position, the same on every grid (`PointStream`)
    by: By = field(default="order", kw_only=True)
    uses_std: ClassVar[bool] = False  # whether calls need σ(x)
    lost: ClassVar[str] = ""  # properties of the noise that methods ignore, in words
    likelihood: ClassVar[str] = "Gaussian"  # of classical methods, in words
    latex: ClassVar[str]  # the noisy field ũ(x) of a field u(x), in LaTeX
    unit: ClassVar[str] = "σ(x)"  # unit of the level
    # symbols of the formula, as the ends of sentences
    meaning: ClassVar[str] = (
        "ξ(x) ~ N(0, 1), independent at all points; σ(x): the standard deviation of u(x) over the "
        "training samples"
    )

    def __post_init__(self) -> None:
        if not (math.isfinite(self.level) and self.level >= 0):
            raise ValueError(f"the level must be finite and >= 0, got {self.level}")

    def __call__(
        self,
        u: Fields,
        seed: int,
        samples: Sequence[int],
        std: Field | None = None,
        epoch: int = 0,
        points: Points | None = None,
    ) -> Fields:
        """Add noise to fields. The sum is computed in float64 and returned in the dtype of u.

        Args:
            u: Fields, one sample per row.
            seed: Seed of the noise.
            samples: Numbers of the samples in the dataset. Different samples have independent
                noise.
            std: Standard deviation σ(x) of u over the training samples.
            epoch: Number of the epoch. Different epochs have independent noise; frozen noise uses
                epoch 0.
            points: Coordinates of the points, on which noise by point depends. By default the
                points along each axis are (i + ½)/n.

        Raises:
            ValueError: If the noise needs σ and it is missing, or if shapes do not match.
        """
        return self.add(u, seed, self.numbers(samples), std, epoch, points=points)

    def numbers(self, samples: Sequence[int]) -> Sequence[int]:
        """Numbers that select the random stream of each sample."""
        return samples

    def add(
        self,
        u: Fields,
        seed: int,
        numbers: Sequence[int],
        std: Field | None = None,
        epoch: int = 0,
        levels: Float[np.ndarray, " batch"] | None = None,
        points: Points | None = None,
    ) -> Fields:
        """Add noise from the random streams with the given numbers.

        Args:
            levels: A level for each row; by default the level of this object.

        The other arguments and the errors are those of a call.
        """
        if len(numbers) != len(u):
            raise ValueError(f"expected {len(u)} numbers of samples, one a row, got {len(numbers)}")
        if self.uses_std and std is None:
            raise ValueError(f"{type(self).__name__} needs the pointwise deviation")
        if std is not None and std.shape != u.shape[1:]:
            raise ValueError(
                f"expected a deviation of shape {u.shape[1:]}, as the fields, got {std.shape}"
            )
        sigma = None if std is None else std.astype(np.float64)
        noisy = u.copy()
        if self._silent and levels is None:
            return self._observed(noisy, seed)
        stream: NormalStream | PointStream = NormalStream(hashed(seed, "noise", epoch))
        if self.by == "point":
            stream = PointStream(stream.seed, _located(u.shape[1:], points))
        rows = max(1, _CACHE_POINTS // max(1, math.prod(u.shape[1:])))
        for start in range(0, len(u), rows):
            block = slice(start, start + rows)
            clean = u[block].astype(np.float64)
            level = self.level
            if levels is not None:
                level = levels[block].reshape(-1, *[1] * (u.ndim - 1))
            with one_thread():
                noisy[block] = clean + self._noise(level, clean, stream, numbers[block], sigma)
        return self._observed(noisy, seed)

    def check_grid(self, shape: tuple[int, ...]) -> None:  # noqa: B027 - most kinds take any grid
        """Raise ValueError if fields of this shape cannot have the noise."""

    def check_points(self, points: Points) -> None:  # noqa: B027 - most kinds take any points
        """Raise ValueError if fields at these points cannot have the noise."""

    def _observed(self, noisy: np.ndarray, seed: int) -> np.ndarray:
        """Set unobserved values of noisy fields to 0; by default all values are observed."""
        return noisy

    @property
    def _silent(self) -> bool:
        return self.level == 0

    def present(
        self,
        shape: tuple[int, ...],
        seed: int,
        numbers: Sequence[int],
        epoch: int = 0,
        points: Points | None = None,
    ) -> Bool[np.ndarray, " batch *grid"]:
        """Mask that is False where a sample has no data. Arguments are those of `add`."""
        return np.ones((len(numbers), *shape), dtype=bool)

    def law(
        self,
        data: Field,
        known: Float[np.ndarray, " samples *grid"],
        std: Field,
        points: Points | None = None,
    ) -> NoiseLaw:
        """The law of the noise of a noisy field, as classical methods know it. `lost` names the
        properties of the noise that it ignores.

        Args:
            data: A noisy field.
            known: Fields without noise.
            std: Standard deviation σ(x) of these fields.
            points: Coordinates of the points; by default (i + ½)/n along each axis.
        """
        return NoiseLaw(std=self.level * std)

    @abstractmethod
    def _noise(
        self, level: Any, u: np.ndarray, stream: Stream, numbers: Sequence[int], sigma: Any
    ) -> Fields:
        """The noise to add to fields u, for one level or for levels of shape (batch, 1, ...)."""


@dataclass(frozen=True)
class EnsembleNoise(NoiseModel):
    """u(x) + ε σ(x) ξ(x) with independent ξ(x) ~ N(0, 1) and the standard deviation σ(x) of u.

    >>> u = np.zeros((1000, 2))
    >>> noisy = EnsembleNoise(0.1)(u, seed=0, samples=range(1000), std=np.array([1.0, 2.0]))
    >>> noisy.std(axis=0).round(2).tolist()
    [0.1, 0.2]
    """

    uses_std: ClassVar[bool] = True
    latex: ClassVar[str] = r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\xi(x)"

    def _noise(self, level, u, stream, numbers, sigma):
        return level * sigma * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class PublishedNoise(NoiseModel):
    """u(x) + ε (σ(x) + 10⁻⁵) ξ(x), as in the code published with the Galerkin Transformer.

    That code divides u - mean u by σ + 10⁻⁵ and then adds ε ξ. It resets its generator for each
    set, so the first training sample and the first test sample have the same noise ξ. Therefore the
    noise of a sample depends on its row in the batch, and not on its number in the dataset as for
    other kinds.
    """

    uses_std: ClassVar[bool] = True
    latex: ClassVar[str] = r"\tilde u(x) = u(x) + \varepsilon\,(\sigma(x) + 10^{-5})\,\xi(x)"

    def numbers(self, samples: Sequence[int]) -> Sequence[int]:
        return range(len(samples))

    def law(self, data, known, std, points=None):
        return NoiseLaw(std=self.level * (std + 1e-5))

    def _noise(self, level, u, stream, numbers, sigma):
        return level * (sigma + 1e-5) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class RelativeNoise(NoiseModel):
    """u(x) + ε rms(u) ξ(x), where rms(u) is the root mean square of the field.

    A stored variable with several times or components is one field: rms(u) is over all of them.

    >>> data, known = np.array([3.0, -3.0]), np.zeros((1, 2))
    >>> RelativeNoise(0.75).law(data, known, np.ones(2)).std.round(9).tolist()  # 0.6 rms(data)
    [1.8, 1.8]
    """

    latex: ClassVar[str] = r"\tilde u(x) = u(x) + \varepsilon\,\mathrm{rms}(u)\,\xi(x)"
    unit: ClassVar[str] = "rms(u)"
    meaning: ClassVar[str] = (
        "ξ(x) ~ N(0, 1), independent at all points; rms(u): the root mean square of u over the "
        "points of the sample"
    )

    def law(self, data, known, std, points=None):
        return NoiseLaw(std=_share_of(data, self.level))

    def _noise(self, level, u, stream, numbers, sigma):
        return level * _rms(u) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class SNRNoise(NoiseModel):
    """u(x) + s ξ(x), where 10 log₁₀(mean u² / s²) is the level, a signal-to-noise ratio in dB.

    For variables with several times or components, see `RelativeNoise`.

    Args:
        level: Any finite number. At 0 dB the noise is as strong as the field; a higher level means
            less noise.
    """

    latex: ClassVar[str] = r"\tilde u(x) = u(x) + 10^{-\varepsilon/20}\,\mathrm{rms}(u)\,\xi(x)"
    unit: ClassVar[str] = "dB"
    meaning: ClassVar[str] = (
        "the level ε is the signal-to-noise ratio 10 log₁₀(rms(u)²/s²) of noise with the standard "
        "deviation s; ξ(x) ~ N(0, 1), independent at all points; rms(u): the root mean square of u "
        "over the points of the sample"
    )

    def __post_init__(self) -> None:
        if not math.isfinite(self.level):
            raise ValueError(f"the level must be finite, got {self.level}")

    @property
    def _silent(self) -> bool:
        return False

    def law(self, data, known, std, points=None):
        return NoiseLaw(std=_share_of(data, 10 ** (-self.level / 20)))

    def _noise(self, level, u, stream, numbers, sigma):
        return 10 ** (-level / 20) * _rms(u) * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class MultiplicativeNoise(NoiseModel):
    """u(x) (1 + ε ξ(x))."""

    latex: ClassVar[str] = r"\tilde u(x) = u(x)\,(1 + \varepsilon\,\xi(x))"
    unit: ClassVar[str] = "u(x)"
    meaning: ClassVar[str] = "ξ(x) ~ N(0, 1), independent at all points"
    likelihood: ClassVar[str] = "Gaussian, σ = ε |H u| renewed at each step"

    def law(self, data, known, std, points=None):
        squares = np.mean(known**2, axis=0)
        scale = math.sqrt(float(np.mean(squares)))
        return SignalLaw(std=self.level * np.sqrt(squares), level=self.level, scale=scale, power=2)

    def _noise(self, level, u, stream, numbers, sigma):
        return level * u * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class CorrelatedNoise(NoiseModel):
    """u(x) + ε σ(x) η(x) with a Gaussian field η of variance 1 and correlation exp(-r²/2l²).

    In one dimension η(x) = Σ_p s_p φ_p(x) ξ_p / (Σ_p s_p² φ_p(x)²)^½, with φ_0 = 1,
    φ_p = √2 cos πpx and s_p = exp(-(πpl)²/4). In two dimensions the φ are products of these.
    Within a few lengths l of the boundary, the correlation has a second term, in which r is the
    distance to the mirror image of a point. The grid points are assumed to be (i + ½)/n. Modes that
    n points do not resolve are left out. Hence the noise is white if l is much smaller than the
    spacing.
    """

    length: float = 0.1  # correlation length l > 0, as a fraction of the domain
    uses_std: ClassVar[bool] = True
    lost: ClassVar[str] = (
        "the correlation of its values, to methods other than maximum a posteriori and level set"
    )
    likelihood: ClassVar[str] = (
        "Gaussian, with the principal directions of 99 % of the variance; the rest as independent"
    )
    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\eta(x),\quad "
        r"\mathrm{corr}(\eta(x), \eta(y)) = e^{-|x - y|^2/(2 l^2)}"
    )
    meaning: ClassVar[str] = (
        "η: a Gaussian field of variance 1; l: the correlation length; σ(x): the deviation of u(x)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.length) and self.length > 0):
            raise ValueError(f"the length must be finite and > 0, got {self.length}")

    def law(self, data, known, std, points=None):
        directions = _principal(self, std.shape, std.tobytes())
        return NoiseLaw(std=self.level * std, directions=self.level * directions)

    def basis(self, n: int) -> Float[np.ndarray, "n modes"]:
        """Matrix that maps N(0, 1) coefficients to η at n points; its rows have norm 1."""
        last = 12 / (np.pi * self.length)  # beyond it s_p < 1e-15
        k = np.pi * np.arange(min(n, int(min(last, n)) + 1))
        basis = np.cos(np.outer((np.arange(n) + 0.5) / n, k)) * np.exp(
            -((k * self.length) ** 2) / 4
        )
        basis[:, 1:] *= np.sqrt(2)
        return basis / np.linalg.norm(basis, axis=1, keepdims=True)

    def check_grid(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (1, 2):
            raise ValueError(f"correlated noise is for 1 or 2 dimensions, got {len(shape)}")

    def _noise(self, level, u, stream, numbers, sigma):
        self.check_grid(u.shape[1:])
        bases = [self.basis(n) for n in u.shape[1:]]
        xi = _normals(stream, numbers, tuple(basis.shape[1] for basis in bases))
        eta = np.empty_like(u)
        for row, coefficients in enumerate(xi):  # one by one: the same bits in any batch
            along_x = bases[0] @ coefficients
            eta[row] = along_x if len(bases) == 1 else along_x @ bases[1].T
        return level * sigma * eta


@dataclass(frozen=True)
class SensorNoise(EnsembleNoise):
    """u(x) + ε σ(x) ξ(x) at the sensors, and 0 at all other points.

    The sensors are the same for all samples, levels and epochs. They are random grid points, of
    which a larger fraction has those of a smaller one, or the points of a published protocol.

    >>> sensors = SensorNoise(0.0, points="diffusionpde").observed((128, 128), seed=0)
    >>> int(sensors.sum()), np.argwhere(sensors)[0].tolist()
    (500, [0, 12])
    """

    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\xi(x) \text{ at sensors, } "
        r"\tilde u(x) = 0 \text{ elsewhere}"
    )
    # share of the points with a sensor, in (0, 1]; at least one point has one
    fraction: float = 0.1
    points: str | None = None  # name of a list in `SENSORS`, which replaces the random points

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fraction <= 1:
            raise ValueError(f"the fraction must be in (0, 1], got {self.fraction}")

    def check_grid(self, shape: tuple[int, ...]) -> None:
        if self.points is None:
            return
        sensors = SENSORS[self.points]
        if shape != sensors.shape:
            names = [" x ".join(map(str, numbers)) for numbers in (sensors.shape, shape)]
            raise ValueError(f"sensors {self.points!r} are points of {names[0]}, got {names[1]}")

    def observed(self, shape: tuple[int, ...], seed: int) -> Bool[np.ndarray, "..."]:
        """Mask that is True at the sensors."""
        self.check_grid(shape)
        points = math.prod(shape)
        if self.points is not None:
            first = SENSORS[self.points].indices
        else:
            stream = NormalStream(hashed(seed, "sensors", 0))
            order = np.argsort(_normals(stream, [0], (points,))[0])
            first = order[: max(1, round(self.fraction * points))]
        mask = np.zeros(points, dtype=bool)
        mask[first] = True
        return mask.reshape(shape)

    def _observed(self, noisy: np.ndarray, seed: int) -> np.ndarray:
        noisy[:, ~self.observed(noisy.shape[1:], seed)] = 0
        return noisy


@dataclass(frozen=True)
class DrawnSensors:
    """Different points of a grid, drawn by the generator that NumPy keeps unchanged since 1.16.

    A published protocol that states its call of `numpy.random` thus states its sensors.
    """

    shape: tuple[int, ...]  # of the grid
    count: int
    seed: int
    source: str  # publication, or file of its code, that has this call

    @property
    def indices(self) -> Int[np.ndarray, " count"]:
        """Indices of the points in C order."""
        generator = np.random.RandomState(self.seed)
        return generator.choice(math.prod(self.shape), self.count, replace=False)


@dataclass(frozen=True)
class ProductSensors:
    """The points of a square grid whose rows and columns are in `lines`."""

    shape: tuple[int, int]
    lines: tuple[int, ...]
    source: str

    @property
    def resolution(self) -> int | None:
        """Points along each axis if these are all points of a stride, the first and the last one of
        the grid included; otherwise None.

        >>> ProductSensors((9, 9), (0, 4, 8), "").resolution
        3
        """
        stride, rest = divmod(self.shape[0] - 1, len(self.lines) - 1)
        every = tuple(range(0, self.shape[0], stride))
        return len(self.lines) if rest == 0 and every == self.lines else None

    @property
    def indices(self) -> Int[np.ndarray, " count"]:
        """Indices of the points in C order."""
        rows, columns = np.meshgrid(self.lines, self.lines, indexing="ij")
        return np.ravel_multi_index((rows.ravel(), columns.ravel()), self.shape)


_SET = "test set inverse-darcy-1"
SENSORS: dict[str, DrawnSensors | ProductSensors] = {
    "diffusionpde": DrawnSensors(
        (128, 128), 500, 0,
        "Huang et al., DiffusionPDE, NeurIPS 2024; its scripts/generate_*.py, known_index_u",
    ),
    "inverse-darcy-1-full": ProductSensors((127, 127), (*range(0, 127, 3),), _SET),
    "inverse-darcy-1-scatter": DrawnSensors((127, 127), 500, 1, _SET),
    "inverse-darcy-1-seven": ProductSensors((127, 127), (*range(9, 127, 18),), _SET),
}  # fmt: skip


@lru_cache(maxsize=2)
def _principal(noise: CorrelatedNoise, shape: tuple[int, ...], std: bytes) -> np.ndarray:
    """Principal directions of σ(x) η(x) that have 99 % of the variance, shape (k, *shape)."""
    sigma = np.frombuffer(std).reshape(-1, 1)
    last = 1 + int(_LAST / (np.pi * noise.length))
    factor = sigma
    for axis, n in enumerate(shape):
        along = noise.basis(n)[:, :last]
        rows = along[np.indices(shape)[axis].ravel()]
        factor = (factor[:, :, None] * rows[:, None]).reshape(len(sigma), -1)
    few = factor.shape[1] <= len(sigma)
    variances, vectors = np.linalg.eigh(factor.T @ factor if few else factor @ factor.T)
    explained = np.cumsum(variances[::-1]) / np.sum(sigma**2)
    count = min(_DIRECTIONS, 1 + int(np.searchsorted(explained, _EXPLAINED)))
    vectors = vectors[:, ::-1][:, :count]
    directions = factor @ vectors if few else vectors * np.sqrt(variances[::-1][:count])
    return np.ascontiguousarray(directions.T).reshape(-1, *shape)


# Kinds whose numbers belong to points, from four uniform variates for each point.


@dataclass(frozen=True)
class StudentNoise(NoiseModel):
    """u(x) + ε σ(x) s t_ν(x) with independent t_ν of Student's distribution, s = ((ν-2)/ν)^½.

    The deviation is ε σ(x), as that of `EnsembleNoise`, and large values are more frequent.

    References: R. Bailey, Polar generation of random variates with the t-distribution, Math. Comp.
    62 (1994).

    >>> noise = StudentNoise(0.1, freedom=5.0)(np.zeros((1, 10**5)), 0, [0], np.ones(10**5))
    >>> round(float(noise.std()), 3)
    0.1
    """

    freedom: float = 3.0  # ν > 2; the variance is infinite below
    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    likelihood: ClassVar[str] = "Student's, by weights renewed at each step"
    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\sqrt{(\nu - 2)/\nu}\;t_\nu(x)"
    )
    meaning: ClassVar[str] = (
        "t_ν(x): of Student's distribution with ν degrees of freedom, independent at all points; "
        "σ(x): the standard deviation of u(x) over the training samples"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 < self.freedom < math.inf:
            raise ValueError(f"the degrees of freedom must be finite and > 2, got {self.freedom}")

    def law(self, data, known, std, points=None):
        return StudentLaw(std=self.level * std, freedom=self.freedom)

    def _noise(self, level, u, stream, numbers, sigma):
        a, b, _, _ = _uniforms(stream, numbers, u.shape)
        nu = self.freedom
        t = np.sqrt(nu * np.expm1(-2 / nu * np.log(a))) * np.cos(2 * np.pi * b)
        return level * sigma * math.sqrt((nu - 2) / nu) * t


@dataclass(frozen=True)
class ImpulseNoise(NoiseModel):
    """u(x) + ε σ(x) ξ(x), and with probability p also ±A σ(x) with a fair sign.

    >>> noise = ImpulseNoise(0.01, share=0.2, size=3.0)
    >>> values = noise(np.zeros((1, 10**5)), 0, [0], np.ones(10**5))
    >>> round(float(values.std()), 2)  # (0.01² + 0.2·3²)^½ = 1.34
    1.34
    """

    share: float = 0.05  # p, in (0, 1)
    size: float = 2.0  # A > 0
    size_unit: SizeUnit = "deviation"  # A σ(x), or "absolute": A in the unit of u
    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    lost: ClassVar[str] = "that all impulses have one size; methods assume Gaussian ones"
    likelihood: ClassVar[str] = "mixture of two Gaussians, by weights renewed at each step"
    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\xi(x) + b(x)\,A\,\sigma(x)"
    )
    meaning: ClassVar[str] = (
        "ξ(x) ~ N(0, 1); b(x): ±1 with a fair sign and the probability p, otherwise 0; A: the size "
        "of the impulses; all independent; σ(x): the standard deviation of u(x) over the training "
        "samples"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_share(self.share)
        if not (math.isfinite(self.size) and self.size > 0):
            raise ValueError(f"the size must be finite and > 0, got {self.size}")

    @property
    def _silent(self) -> bool:
        return False

    def law(self, data, known, std, points=None):
        size = self.size * (std if self.size_unit == "deviation" else np.ones_like(std))
        total = np.sqrt((self.level * std) ** 2 + self.share * size**2)
        return ImpulseLaw(std=total, size=size, share=self.share)

    def _noise(self, level, u, stream, numbers, sigma):
        a, b, chance, sign = _uniforms(stream, numbers, u.shape)
        size = self.size * (sigma if self.size_unit == "deviation" else 1.0)
        impulse = np.where(sign < 0.5, -size, size)
        return level * sigma * gaussian(a, b) + np.where(chance < self.share, impulse, 0.0)


@dataclass(frozen=True)
class ShotNoise(NoiseModel):
    """Counts of particles: N(x) σ̄/n with N(x) ~ Poisson(n u⁺(x)/σ̄), n = 1/ε².

    σ̄ is the root mean square of σ(x), and u⁺ = max(u, 0). The deviation is ε (u⁺ σ̄)^½. Counts of
    more than 10⁶ have the normal distribution, rounded.

    >>> noise = ShotNoise(0.1)(np.full((1, 10**5), 4.0), 0, [0], np.ones(10**5))
    >>> round(float(noise.mean()), 2), round(float(noise.std()), 3)
    (4.0, 0.2)
    """

    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    unit: ClassVar[str] = "(u(x) σ̄)^½"
    likelihood: ClassVar[str] = "Gaussian, σ² = ε² σ̄ H u renewed at each step"
    lost: ClassVar[str] = "that counts are not Gaussian"
    latex: ClassVar[str] = (
        r"\tilde u(x) = \varepsilon^2\bar\sigma\,N(x),\quad "
        r"N(x) \sim \mathrm{Poisson}(u^+(x)/(\varepsilon^2\bar\sigma))"
    )
    meaning: ClassVar[str] = (
        "u⁺ = max(u, 0); σ̄: the root mean square, over the points, of the standard deviation of "
        "u(x) over the training samples; counts are independent"
    )

    def law(self, data, known, std, points=None):
        scale = _mean_square(std) ** 0.5
        mean = np.mean(np.maximum(known, 0), axis=0)
        std = self.level * np.sqrt(scale * mean)
        return SignalLaw(std=std, level=self.level, scale=scale, power=1)

    def _noise(self, level, u, stream, numbers, sigma):
        quantum = np.broadcast_to(level * level * _mean_square(sigma) ** 0.5, u.shape)
        uniform, _, _, _ = _uniforms(stream, numbers, u.shape)
        counts = _poisson(uniform, np.maximum(u, 0) / np.where(quantum > 0, quantum, 1.0))
        return np.where(quantum > 0, quantum * counts - u, 0.0)


@dataclass(frozen=True)
class NoiseOnBase(NoiseModel):
    """Noise besides independent noise of the deviation ε₀ σ(x)."""

    base: float = 0.0  # ε₀ >= 0
    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    unit: ClassVar[str] = "σ̄"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.base) and self.base >= 0):
            raise ValueError(f"the base level must be finite and >= 0, got {self.base}")

    @property
    def _silent(self) -> bool:
        return self.level == self.base == 0


@dataclass(frozen=True)
class QuantisedNoise(NoiseOnBase):
    """δ ⌊(u(x) + ε₀ σ(x) ξ(x))/δ + ½⌋: values rounded to multiples of δ = ε √12 σ̄.

    σ̄ is the root mean square of σ(x). Rounding errors of a step δ have the deviation
    δ/√12 = ε σ̄ if the values spread over several steps.

    >>> u = np.linspace(0, 1, 10**5)[None]
    >>> round(float((QuantisedNoise(0.01)(u, 0, [0], np.ones(10**5)) - u).std()), 4)
    0.01
    """

    lost: ClassVar[str] = "that its errors are bounded by half a step"
    likelihood: ClassVar[str] = "Gaussian, σ² = δ²/12 + ε₀² σ(x)²"
    latex: ClassVar[str] = (
        r"\tilde u(x) = \delta\,\lfloor (u(x) + \varepsilon_0\,\sigma(x)\,\xi(x))/\delta + 1/2 "
        r"\rfloor,\quad \delta = \varepsilon\sqrt{12}\,\bar\sigma"
    )
    meaning: ClassVar[str] = (
        "ξ(x) ~ N(0, 1), independent at all points; σ̄: the root mean square of σ(x) over the "
        "points; σ(x): the standard deviation of u(x) over the training samples"
    )

    def law(self, data, known, std, points=None):
        squares = self.level**2 * _mean_square(std) + (self.base * std) ** 2
        return NoiseLaw(std=np.sqrt(squares))

    def _noise(self, level, u, stream, numbers, sigma):
        noisy = u + self.base * sigma * _normals(stream, numbers, u.shape[1:])
        step = np.broadcast_to(level * math.sqrt(12 * _mean_square(sigma)), u.shape)
        rounded = np.floor(noisy / np.where(step > 0, step, 1.0) + 0.5)
        return np.where(step > 0, step * rounded, noisy) - u


@dataclass(frozen=True)
class DriftNoise(NoiseOnBase):
    """u(x) + ε₀ σ(x) ξ(x) + ε σ̄ (b₀ + √12 Σ_j b_j (x_j - ½))/(d + 1)^½ with b ~ N(0, 1)^(d+1).

    Each sample has an offset and a slope along each of the d axes. Their root mean square over
    the unit square is ε σ̄, where σ̄ is the root mean square of σ(x).

    Raises ValueError in a call if the points are not in the unit interval or square.

    >>> u = np.zeros((2000, 8, 8))
    >>> noise = DriftNoise(0.1, base=0.0)(u, 0, range(2000), np.ones((8, 8)))
    >>> round(float(noise.std()), 2)
    0.1
    """

    base: float = 0.01  # ε₀ >= 0
    lost: ClassVar[str] = (
        "the correlation of its values, to methods other than maximum a posteriori and level set"
    )
    likelihood: ClassVar[str] = "Gaussian, with the offset and the slopes as directions"
    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon_0\,\sigma(x)\,\xi(x) + \varepsilon\,\bar\sigma\,"
        r"\frac{b_0 + \sqrt{12}\,\sum_j b_j (x_j - 1/2)}{\sqrt{d + 1}}"
    )
    meaning: ClassVar[str] = (
        "ξ(x), b_j ~ N(0, 1), independent; σ̄: the root mean square of σ(x) over the points; σ(x): "
        "the standard deviation of u(x) over the training samples"
    )

    def law(self, data, known, std, points=None):
        located = _located(std.shape, points)
        directions = self.level * _mean_square(std) ** 0.5 * self._directions(located)
        squares = (self.base * std) ** 2 + np.sum(directions**2, axis=0)
        return NoiseLaw(std=np.sqrt(squares), directions=directions)

    def check_points(self, points: Points) -> None:
        if points.min() < 0 or points.max() > 1:
            raise ValueError("drift noise is for points in the unit interval or square")

    def _directions(self, points: Points) -> Float[np.ndarray, " k *grid"]:
        """1 and √12 (x_j - ½), over (d + 1)^½."""
        self.check_points(points)
        slopes = math.sqrt(12) * np.moveaxis(points - 0.5, -1, 0)
        return np.concatenate([np.ones_like(slopes[:1]), slopes]) / math.sqrt(1 + len(slopes))

    def _noise(self, level, u, stream, numbers, sigma):
        assert isinstance(stream, PointStream)
        directions = self._directions(stream.points)
        # counters of this stream, 1 and 2, are those of no point
        b = NormalStream(stream.seed).normals_of(numbers, len(directions))
        drift = np.stack([np.tensordot(row, directions, axes=1) for row in b])
        xi = _normals(stream, numbers, u.shape[1:])
        return self.base * sigma * xi + level * _mean_square(sigma) ** 0.5 * drift


@dataclass(frozen=True)
class BlurNoise(NoiseModel):
    """K u(x) + ε σ(x) ξ(x), where K multiplies the mode of wave numbers πk by exp(-|πk|² l²/2).

    The modes are cosines at the points of the grid that is read, which are assumed to be (i + ½)/n
    (`CosineBlur`). K belongs to the observation, and methods know it. Level 0 gives K u.

    >>> noise = BlurNoise(0.1)(np.ones((1, 10**5)), 0, [0], np.ones(10**5))
    >>> round(float(noise.mean()), 2), round(float(noise.std()), 3)
    (1.0, 0.1)
    """

    length: float = 0.05  # l > 0, as a fraction of the domain
    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    likelihood: ClassVar[str] = "Gaussian, with K in the observation"
    latex: ClassVar[str] = (
        r"\tilde u(x) = (K u)(x) + \varepsilon\,\sigma(x)\,\xi(x),\quad "
        r"K = e^{-|\pi k|^2 l^2/2}"
    )
    meaning: ClassVar[str] = (
        "K acts on cosines of wave numbers πk; ξ(x) ~ N(0, 1), independent at all points; σ(x): "
        "the standard deviation of u(x) over the training samples"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.length) and self.length > 0):
            raise ValueError(f"the length must be finite and > 0, got {self.length}")

    @property
    def _silent(self) -> bool:
        return False

    def law(self, data, known, std, points=None):
        return NoiseLaw(std=self.level * std, observation=CosineBlur(self.length, data.shape))

    def _noise(self, level, u, stream, numbers, sigma):
        blurred = np.stack([CosineBlur(self.length, row.shape)(row) for row in u])
        return blurred - u + level * sigma * _normals(stream, numbers, u.shape[1:])


@dataclass(frozen=True)
class MissingNoise(NoiseModel):
    """u(x) + ε σ(x) ξ(x), and 0 at points that are absent, each with probability m in each sample.

    >>> noisy = MissingNoise(0.1)(np.full((1, 10**5), 5.0), 0, [0], np.ones(10**5))
    >>> round(float((noisy == 0).mean()), 2), round(float(noisy[noisy != 0].std()), 3)
    (0.3, 0.1)
    """

    share: float = 0.3  # m, in (0, 1)
    by: By = field(default="point", kw_only=True)
    uses_std: ClassVar[bool] = True
    likelihood: ClassVar[str] = "Gaussian at the points that are present"
    latex: ClassVar[str] = (
        r"\tilde u(x) = u(x) + \varepsilon\,\sigma(x)\,\xi(x) \text{ with probability } 1 - m, "
        r"\tilde u(x) = 0 \text{ otherwise}"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_share(self.share)

    @property
    def _silent(self) -> bool:
        return False

    def law(self, data, known, std, points=None):
        absent = data == 0
        missing = _ABSENT * _mean_square(std) ** 0.5
        present = float(1 - absent.mean()) or 1.0
        return NoiseLaw(std=np.where(absent, missing, self.level * std), present=present)

    def present(self, shape, seed, numbers, epoch=0, points=None):
        stream = PointStream(hashed(seed, "noise", epoch), _located(shape, points))
        return _uniforms(stream, numbers, (len(numbers), *shape))[2] >= self.share

    def _noise(self, level, u, stream, numbers, sigma):
        a, b, chance, _ = _uniforms(stream, numbers, u.shape)
        return np.where(chance < self.share, -u, level * sigma * gaussian(a, b))


def _uniforms(
    stream: Stream, numbers: Sequence[int], shape: tuple[int, ...]
) -> Float[np.ndarray, "4 batch *grid"]:
    """Four uniform variates for each point of each sample."""
    if not isinstance(stream, PointStream):
        raise ValueError('this noise is drawn by point: use by="point"')
    return stream.uniforms_of(numbers).reshape(4, *shape)


def _poisson(uniform: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The smallest N with P(Poisson(mean) <= N) >= uniform."""
    mean, (few, positive) = np.broadcast_arrays(mean, uniform)[0], (mean <= _COUNTS, mean > 0)
    rough = np.round(mean + np.sqrt(mean) * scipy.special.ndtri(uniform))
    if not few.any():
        return rough
    safe = np.where(positive & few, mean, 1.0)
    count = np.ceil(scipy.special.pdtrik(uniform, safe))
    before = np.maximum(count - 1, 0)
    count = np.where(scipy.special.pdtr(before, safe) >= uniform, before, count)
    return np.where(few, np.where(positive, count, 0.0), rough)


def _located(shape: tuple[int, ...], points: Points | None) -> Points:
    """Coordinates of the points, by default (i + ½)/n along each axis."""
    if points is None:
        along = [(np.arange(n) + 0.5) / n for n in shape]
        return np.stack(np.meshgrid(*along, indexing="ij"), axis=-1)
    if points.shape[:-1] != shape:
        raise ValueError(
            f"expected points of shape {shape}, as the fields, got {points.shape[:-1]}"
        )
    return points


def _mean_square(std: np.ndarray) -> float:
    return float(np.mean(std**2))


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"the share must be in (0, 1), got {share}")


def pointwise_std(blocks: Iterable[Float[np.ndarray, " _ *grid"]]) -> Field:
    """σ(x) = (mean (u - mean u)²)^½ over the samples of all blocks, in float64.

    Samples are added one at a time (Welford's method). Hence the result does not depend on how
    the samples are divided into blocks, and there is no cancellation if the deviation is small
    compared with the mean.

    Raises:
        ValueError: If the blocks contain no sample.

    References: Welford, Note on a method for calculating corrected sums of squares and products,
        Technometrics 4 (1962).

    >>> pointwise_std([np.array([[1.0, 5.0]]), np.array([[3.0, 5.0]])])
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
    """A 64-bit seed, hashed from the given seed, a purpose such as "noise", and an epoch."""
    digest = hashlib.sha256(f"{seed} {purpose} {epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _normals(stream: Stream, numbers: Sequence[int], shape: tuple[int, ...]) -> Fields:
    return stream.normals_of(numbers, math.prod(shape)).reshape(-1, *shape)


def _share_of(data: np.ndarray, share: float) -> np.ndarray:
    """ε rms(u) at each point, estimated from noisy data for u, where ε is `share`."""
    std = share * float(np.sqrt(np.mean(data**2) / (1 + share**2)))
    return np.full(data.shape, std)


def _rms(u: np.ndarray) -> Float[np.ndarray, " batch ..."]:
    """Root mean square of each field, with shape (batch, 1, ...)."""
    # one by one: the same bits in any batch
    rms = np.array([np.sqrt(np.mean(field**2)) for field in u])
    return rms.reshape(-1, *[1] * (u.ndim - 1))


# Declarations of noise for recipes of derived stores and for experiments.


KINDS: dict[str, type[NoiseModel]] = {
    "ensemble": EnsembleNoise,
    "relative": RelativeNoise,
    "snr": SNRNoise,
    "multiplicative": MultiplicativeNoise,
    "correlated": CorrelatedNoise,
    "sensors": SensorNoise,
    "published": PublishedNoise,
    "student": StudentNoise,
    "impulse": ImpulseNoise,
    "shot": ShotNoise,
    "quantised": QuantisedNoise,
    "drift": DriftNoise,
    "blur": BlurNoise,
    "missing": MissingNoise,
}
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(KINDS)]  # the words that files may have
KEYS_OF_KIND: dict[str, dict[str, float | str]] = {  # keys of some kinds, with their defaults
    "correlated": {"length": 0.1},
    "sensors": {"fraction": 0.1},
    "student": {"freedom": 3.0},
    "impulse": {"share": 0.05, "size": 2.0, "size_unit": "deviation"},
    "quantised": {"base": 0.0},
    "drift": {"base": 0.01},
    "blur": {"length": 0.05},
    "missing": {"share": 0.3},
}
_KEYS = ("length", "fraction", "freedom", "share", "size", "size_unit", "base")
_RECORDED = ("length", "fraction")  # keys that records have for every kind
_IN_ORDER = ("ensemble", "relative", "snr", "multiplicative", "published")  # may take `by`


def recorded(table: dict[str, Any]) -> dict[str, Any]:
    """The keys of a declaration that its records have: those that are given, and old ones."""
    return {
        key: value
        for key, value in table.items()
        if value is not None or key not in (*_KEYS, "points", "by") or key in _RECORDED
    }


_LARGEST = 6  # decimal logarithm of the largest level, whose squares float32 holds


class NoiseKind(Strict):
    """Declaration of a kind of noise, without its level.

    Args:
        kind: Name of the noise model (see `pdegen.sampling.noise`).
        seed: Seed of the noise.
        length: Length divided by that of the domain: of correlation for "correlated" (0.1), of the
            filter for "blur" (0.05). [1]
        fraction: Share of the points that have a sensor (0.1); for "sensors" only. [1]
        points: Name of the sensors of a published protocol, in place of a fraction; for "sensors"
            only (see `SENSORS`).
        freedom: Degrees of freedom (3), more than 2; for "student" only. [1]
        share: Probability of an impulse for "impulse" (0.05), or of an absent point for "missing"
            (0.3). [1]
        size: Size of impulses (2); for "impulse" only. [see size_unit]
        size_unit: Unit of the size, "deviation" for σ(x) or "absolute" for that of the values; for
            "impulse" only.
        base: Level of independent noise besides, for "drift" (0.01) and "quantised" (0). [σ(x)]
        by: "order" numbers the points of the grid that is read, "point" uses their positions: then
            a point has the same noise on every grid. By default "order" for "ensemble", "relative",
            "snr", "multiplicative" and "published", which can have both.
    """

    kind: Kind = "ensemble"
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**64)] = 0
    length: Positive | None = None
    fraction: Annotated[float, pydantic.Field(gt=0, le=1)] | None = None
    points: str | None = None

    @field_validator("points", mode="before")
    @classmethod
    def _listed(cls, points: Any) -> Any:
        if points is not None and (not isinstance(points, str) or points not in SENSORS):
            raise ValueError(f"unknown sensors {points!r}: {near(str(points), list(SENSORS))}")
        return points

    freedom: Annotated[float, pydantic.Field(gt=2, allow_inf_nan=False)] | None = None
    share: Annotated[float, pydantic.Field(gt=0, lt=1)] | None = None
    size: Positive | None = None
    size_unit: SizeUnit | None = None
    base: Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)] | None = None
    by: By | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _known(cls, kind: Any) -> Any:
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}: {near(str(kind), list(KINDS))}")
        return kind

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        given = {key: value for key, value in content.items() if value is not None}
        defaults = dict(KEYS_OF_KIND.get(str(content.get("kind")), {}))
        declared = defaults | given
        if "points" in given and declared.get("fraction") == defaults.get("fraction"):
            declared.pop("fraction", None)  # the default, which the points replace
        return declared

    @model_validator(mode="after")
    def _applies(self) -> NoiseKind:
        allowed = KEYS_OF_KIND.get(self.kind, {})
        for key in _KEYS:
            if getattr(self, key) is not None and key not in allowed:
                raise ValueError(f"key {key!r} does not apply to {self.kind}")
        if self.points is not None and self.kind != "sensors":
            raise ValueError(f"key 'points' does not apply to {self.kind}")
        if self.points is not None and self.fraction is not None:
            raise ValueError("sensors have either points or a fraction, got both")
        if self.by is not None and self.kind not in _IN_ORDER:
            raise ValueError(f"key 'by' does not apply to {self.kind}")
        return self

    @model_serializer(mode="wrap")
    def _in_order(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise with kind and level first. Stores keep this order of keys."""
        table = recorded(content(self))
        return {key: table[key] for key in ("kind", "level") if key in table} | table

    def check_level(self, level: float) -> None:
        """Raise ValueError if the level is invalid for this kind."""
        if level < 0 and self.kind != "snr":
            raise ValueError(f"the level of {self.kind} noise must be >= 0, got {level}")
        size = -level / 20 if self.kind == "snr" else math.log10(level or 1.0)
        if size > _LARGEST:
            most = f">= {-20 * _LARGEST} dB" if self.kind == "snr" else f"<= 1e{_LARGEST}"
            raise ValueError(f"the level of {self.kind} noise must be {most}, got {level:g}")

    def at(self, level: float) -> NoiseModel:
        """The noise model for a level."""
        own = {**KEYS_OF_KIND.get(self.kind, {}), "points": None, "by": None}
        given = {key: getattr(self, key) for key in own}
        return KINDS[self.kind](level, **{k: v for k, v in given.items() if v is not None})


class Noise(NoiseKind):
    """Declaration of noise: its kind and level.

    Args:
        level: Strength of the noise, >= 0. For "snr" it is in decibels and may be negative.
            [dimensionless, dB of "snr"]
    """

    level: Annotated[float, pydantic.Field(allow_inf_nan=False)]

    @model_validator(mode="after")
    def _possible(self) -> Noise:
        self.check_level(self.level)
        return self

    def build(self) -> NoiseModel:
        return self.at(self.level)


# Random noise levels of samples, to train operators on a range of levels.


@dataclass(frozen=True)
class Levels:
    """Random levels ε in a range [ε₀, ε₁].

    A level is ε = ε₁ s² with s = s₀ + (1 - s₀) sin⁴(πv/2), where v is uniform on [0, 1] and
    s₀ = (ε₀/ε₁)^½. If ε₀ = 0, half of the levels are below ε₁/16, and a quarter are above ε₁/2.

    Levels near both ends are drawn more often, as with Chebyshev nodes. Near ε₀, data have little
    noise, and high accuracy is possible but hard to reach. Near ε₁, an operator learns from levels
    on one side only. Operators receive s = (ε/ε₁)^½ as an input, also for levels outside the range.
    Unlike the logarithm of ε, s is finite at ε = 0, so the range may begin at 0.

    Raises:
        ValueError: Unless 0 <= ε₀ < ε₁ and both are finite.

    >>> levels = Levels(0.0, 0.1)
    >>> bool((levels.drawn(0, range(1000)) < 0.1 / 16).mean().round(1) == 0.5)
    True
    >>> float(levels.feature(0.025))
    0.5
    """

    low: float  # ε₀ >= 0
    high: float  # ε₁ > ε₀

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < math.inf:
            raise ValueError(f"a range of levels has 0 <= low < high, got {[self.low, self.high]}")

    def drawn(
        self, seed: int, numbers: Sequence[int], epoch: int = 0
    ) -> Float[np.ndarray, " batch"]:
        """Draw a level for each sample number, as a function of (seed, number, epoch).

        Different epochs have independent levels; frozen levels use epoch 0.
        """
        stream = NormalStream(hashed(seed, "levels", epoch))
        first = math.sqrt(self.low / self.high)
        v = stream.uniforms_of(numbers, 1)[:, 0]
        s = first + (1 - first) * np.sin(np.pi / 2 * v) ** 4
        return self.high * s * s

    def feature(self, level: float | Float[np.ndarray, " batch"]) -> Float[np.ndarray, "..."]:
        """The input of operators for a level ε: s = √(ε/high), above 1 for ε > high."""
        return np.sqrt(np.asarray(level) / self.high)
