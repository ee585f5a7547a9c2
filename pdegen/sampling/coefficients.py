"""Random inputs of elliptic equations: declared Gaussian fields, coefficients, numbers, voids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import AfterValidator, Field

from pdegen.numerics.device import Array
from pdegen.sampling.gaussian import BlockGaussianField, NormalStream, SquareGaussianField
from pdegen.schema import Count, InverseLength, Positive, Strict

# Uniform random numbers in declared ranges; sample i is a function of (seed, i) alone.


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    """[low, high] with low <= high."""  # `pdegen keys` prints this line
    if not pair[0] <= pair[1]:
        raise ValueError(f"a range is two numbers low <= high, got {list(pair)}")
    return pair


Finite = Annotated[float, Field(allow_inf_nan=False)]
Range = Annotated[tuple[Finite, Finite], Field(strict=False), AfterValidator(_rising)]
PositiveRange = Annotated[tuple[Positive, Positive], Field(strict=False), AfterValidator(_rising)]


def uniforms(seed: int, samples: Sequence[int], count: int) -> Float[np.ndarray, "batch count"]:
    """Independent uniform variates on (0, 1) of the samples with the given numbers.

    >>> uniforms(0, [3, 7], 4)[1:, :2] == uniforms(0, [7], 2)
    array([[ True,  True]])
    """
    return NormalStream(seed).uniforms_of(samples, count)


def placed(
    z: Float[np.ndarray, "batch count"], ranges: Iterable[tuple[float, float]]
) -> Float[np.ndarray, "count batch"]:
    """Map uniform variates z to the ranges: low + (high - low) z. The result has a row per range.

    >>> placed(np.array([[0.5, 0.0]]), [(1.0, 2.0), (3.0, 4.0)]).tolist()
    [[1.5], [3.0]]
    """
    low, high = np.array(list(ranges)).T
    return (low + (high - low) * z).T


# Gaussian fields on the square, as recipes declare them.


class SquareGaussian(Strict):
    """N(0, sigma²(-Δ + tau²)^(-alpha)) on (0,1)² with Neumann or Dirichlet conditions.

    Args:
        law: Name of the distribution. It states the condition at the walls: the normal derivative
            is 0 (Neumann), or the value is 0 (Dirichlet).
        sigma: Scale σ of the covariance operator. [length^(1 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Modes along each axis, independent of the grid.
    """

    law: Literal["neumann-gaussian", "dirichlet-gaussian"]
    sigma: Positive
    tau: InverseLength
    alpha: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    modes: Annotated[Count, Field(ge=2)]

    @property
    def sentence(self) -> str:
        law = f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on (0, 1)², "
        walls = {
            "neumann-gaussian": "normal derivative 0 at the walls, without its mean, ",
            "dirichlet-gaussian": "0 at the walls, ",
        }[self.law]
        return f"{law}{walls}{self.modes} modes in each direction"

    def build(self) -> SquareGaussianField:
        """The field, which is cached: its set-up takes as long as a small batch on a device."""
        return _built(self.law, self.sigma, self.tau, self.alpha, self.modes)


class BlockGaussian(Strict):
    """Independent values of N(0, sigma²) on equal blocks of (0,1)².

    Args:
        law: Name of the distribution.
        sigma: Standard deviation of the values. [1]
        blocks: Number of blocks along each axis.
    """

    law: Literal["block-gaussian"]
    sigma: Positive
    blocks: Annotated[Count, Field(ge=2)]

    @property
    def sentence(self) -> str:
        return (
            f"independent values of N(0, {self.sigma:.6g}²) on {self.blocks} x {self.blocks} blocks"
        )

    def build(self) -> BlockGaussianField:
        return BlockGaussianField(self.sigma, self.blocks)


@lru_cache(maxsize=8)
def _built(law: str, *parameters: Any) -> SquareGaussianField:
    boundary: Any = law.removesuffix("-gaussian")
    return SquareGaussianField(boundary, *parameters)


# Random voids and inclusions: a radius that depends on the angle, between two bounds.


@dataclass(frozen=True)
class RandomVoid:
    """Voids of radius r(φ) = least + span/(1 + exp g(φ)), with a Gaussian field g on the circle.

    g(φ) = π^(-½) Σ_{l=1}^{K} (l² + τ²)^(-1) (θ_{2l-1} cos lφ + θ_{2l} sin lφ), θ ~ N(0, σ²). Its
    covariance is σ² (-d²/dφ² + τ²)^(-2), without the constant mode. K is `modes`.

    >>> void = RandomVoid(least=0.2, span=0.2, sigma=16.0, tau=3.0, modes=5)
    >>> theta = np.array([[10.0, -20, 15, 5, -10, 20, -5, 10, 15, -15]])
    >>> void.radius(theta, np.arange(4) * np.pi / 2).round(8)
    array([[0.25231463, 0.38818427, 0.29807564, 0.24487544]])
    """

    # least, span: the radius lies between least and least + span
    least: float
    span: float
    # sigma, tau, modes: scale σ, inverse correlation angle τ and number of modes K
    sigma: float
    tau: float
    modes: int

    def theta(self, seed: int, samples: Sequence[int]) -> Float[np.ndarray, "batch 2K"]:
        """The numbers θ of these samples.

        More modes append further numbers and leave the first ones unchanged.
        """
        return self.sigma * NormalStream(seed).normals_of(samples, 2 * self.modes)

    def radius(
        self, theta: Float[np.ndarray, "batch 2K"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "batch n"]:
        """The radius r(φ) at these angles."""
        waves = np.outer(self._wave_numbers, angles)
        basis = np.stack([np.cos(waves), np.sin(waves)], axis=1)
        basis /= np.sqrt(np.pi) * (self._wave_numbers**2 + self.tau**2)[:, None, None]
        g = (theta[:, None] @ basis.reshape(2 * self.modes, -1))[:, 0]  # the same bits in any batch
        # 1/(1 + exp g) without an overflow
        return self.least + self.span * (1 - np.tanh(g / 2)) / 2

    def depth(
        self,
        theta: Float[np.ndarray, "batch 2K"],
        points: Float[np.ndarray, "batch points 2"],
    ) -> Float[np.ndarray, "batch points"]:
        """How far points lie inside the void, along the ray from its center; negative outside.

        The points are relative to the center.
        """
        x, y = points[..., 0], points[..., 1]
        angles = np.arctan2(y, x)
        radius = [self.radius(row[None], phi)[0] for row, phi in zip(theta, angles, strict=True)]
        return np.stack(radius) - np.hypot(x, y)

    @cached_property
    def _wave_numbers(self) -> Float[np.ndarray, " K"]:
        """The wave numbers 1, ..., K."""
        return np.arange(1.0, self.modes + 1)


@dataclass(frozen=True)
class TwoPhase:
    """a = `above` where g >= 0, `below` where g < 0; the interface is the zero set of g.

    If |g| is as small as its rounding error (about 1e-15 of its deviation), another device or
    library may give the other phase. This affects about one cell in 1e14.

    Raises:
        ValueError: If a value is not positive.

    >>> import numpy as np
    >>> TwoPhase(12.0, 3.0)(np.array([-0.5, 0.0, 2.0]))
    array([ 3., 12., 12.])
    """

    # above, below: positive values; 12 and 3 in the published Darcy files
    above: float
    below: float

    def __post_init__(self) -> None:
        if not (self.above > 0 and self.below > 0):
            raise ValueError(f"phases must be positive, got {self.above} and {self.below}")

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        xp = array_namespace(g)
        return xp.where(g >= 0, xp.full_like(g, self.above), xp.full_like(g, self.below))


Value = float | Float[Array, "..."]
"""A number, or one for each sample, of a shape that broadcasts with the field."""


@dataclass(frozen=True)
class Phases:
    """a = values[j] where thresholds[j-1] <= g < thresholds[j], with ±∞ beyond both ends.

    The interfaces are the level sets of g. Two phases with the threshold 0 are `TwoPhase(values[1],
    values[0])`.

    Raises:
        ValueError: If the thresholds do not increase, or k values have other than k - 1 thresholds.

    >>> import numpy as np
    >>> Phases((0.0, 1.0), (3.0, 12.0, 48.0))(np.array([-0.5, 0.0, 0.5, 1.0]))
    array([ 3., 12., 12., 48.])
    """

    thresholds: Sequence[float]  # increasing values of g
    values: Sequence[Value]  # a below the first threshold, between the first two, and so on

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds, len(self.values))

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        xp = array_namespace(g)
        a = xp.zeros_like(g) + self.values[0]
        for threshold, value in zip(self.thresholds, self.values[1:], strict=True):
            a = xp.where(g >= threshold, xp.zeros_like(g) + value, a)
        return a


def check_thresholds(thresholds: Sequence[float], values: int) -> None:
    """Raise ValueError unless there are `values` - 1 thresholds, at least one, that increase."""
    if values < 2 or len(thresholds) != values - 1:
        raise ValueError(
            f"{max(values, 2)} values need {max(values - 1, 1)} thresholds between them, got "
            f"{values} values and {len(thresholds)} thresholds"
        )
    if not all(low < high for low, high in itertools.pairwise(thresholds)):
        raise ValueError(f"thresholds must increase, got {list(thresholds)}")


@dataclass(frozen=True)
class LogNormal:
    """a = scale exp(g).

    Raises:
        ValueError: If the scale is not positive.

    >>> import numpy as np
    >>> LogNormal(scale=2.0)(np.array([0.0, np.log(3)])).round(6).tolist()
    [2.0, 6.0]
    """

    scale: float = 1.0  # median of a, positive

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"the scale must be positive, got {self.scale}")

    def __call__(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.scale * array_namespace(g).exp(g)
