"""Laws of initial values: functions of Gaussian fields, and sums of waves."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, cast

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float
from pydantic import BeforeValidator
from pydantic import Field as Limits

from pdegen.checks.check import EPSILON, Bound, Check, UniformCheck, Values
from pdegen.checks.gaussian import GaussianCheck, periodic_modes, square_modes, torus_modes
from pdegen.domains import Box, CellGrid, PeriodicGrid
from pdegen.equations.semilinear.solver import Numbers
from pdegen.numerics.device import Array, constant, empty
from pdegen.numerics.spectral import Torus, even_extension
from pdegen.sampling.coefficients import uniforms
from pdegen.sampling.gaussian import (
    PeriodicGaussianField,
    SquareGaussianField,
    TorusGaussianField,
)
from pdegen.schema import Count, InverseLength, Positive, Size, Strict, brief
from pdegen.store.layout import Variable, parameters

Field = PeriodicGaussianField | TorusGaussianField | SquareGaussianField
Inverse = Callable[[np.ndarray], np.ndarray]  # the map from a component of a to g/s

_MOST = 1e20  # largest size of a coefficient
_COMPONENT_STRIDE = 2**32  # offset of sample numbers in the streams of the next component
_LARGEST = 1e5  # largest growth of rounding errors by `inverse` for which a law is checked
_SCALED = 4096  # points whose values `Waves` scale to [0, 1]


def number(value: object) -> float:
    """A number between -1e20 and 1e20."""  # `pdegen keys` prints this line
    # messages of pydantic would name the members of unions
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
        raise ValueError(f"must be a finite number of at most {_MOST:g}, got {brief(value)}")
    return float(value)


def listed(value: object) -> list[object] | None:
    """The elements of a list; None for other values."""
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else None


def each(value: object) -> float | Numbers:
    """A number, or a list with one number per component."""  # `pdegen keys` prints this line
    several = listed(value)
    return number(value) if several is None else tuple(map(number, several))


def spread(value: float | Numbers, count: int, what: str) -> Numbers:
    """A tuple of `count` numbers, from one number or from `count` numbers.

    Raises ValueError if a tuple does not have the length `count`; the message calls the value
    `what`.
    """
    numbers = value if isinstance(value, tuple) else (value,) * count
    if len(numbers) != count:
        raise ValueError(f"{what} has {len(numbers)} numbers, expected one, or {count}")
    return numbers


Each = Annotated[float | Numbers, BeforeValidator(each)]


class Initial(Strict):
    """A function of a Gaussian field g ~ N(0, sigma²(-Δ + tau²)^(-alpha)) of spatial mean 0.

    The parameters refer to the torus of side 1, or to the square of side 1 with Neumann conditions
    on no-flow walls. The field g is then stretched to the length of the domain.

    Args:
        sigma: Scale σ of the covariance operator, on a domain of length 1. [u]
        tau: Inverse correlation length τ, on a domain of length 1. [1]
        alpha: Exponent α, above half the dimension: larger values give smoother functions. [1]
        modes: Largest |k| of the wave vectors k of the modes, independent of the grid. With no-flow
            walls, number of cosines along each axis.
    """

    sigma: Size
    tau: InverseLength
    alpha: Positive
    modes: Count

    def field(self, axes: int, walls: bool) -> Field:
        """The Gaussian field g of one component, on a torus or between walls."""
        if walls:
            return SquareGaussianField("neumann", self.sigma, self.tau, self.alpha, self.modes)
        parameters = self.sigma, self.tau, self.alpha, self.modes
        if axes == 1:
            return PeriodicGaussianField(*parameters)
        return TorusGaussianField(*parameters, axes)

    def values(
        self,
        torus: Torus,
        count: int,
        seed: int,
        samples: Sequence[int],
        device: str | None,
        walls: bool = False,
        first: int = 0,
    ) -> Array:
        """The initial values u(0) of `count` components at the points of the torus.

        Each component has its own random streams, from the number `first` on. Between walls, the
        values are the even extension of those in the cells of the box.
        """
        axes = len(torus.grids)
        field, n = self.field(axes, walls), torus.points[0]

        def sampled(component: int) -> Array:
            numbers = [sample + (first + component) * _COMPONENT_STRIDE for sample in samples]
            if isinstance(field, PeriodicGaussianField):
                return field(PeriodicGrid(n), seed, numbers, device)
            if isinstance(field, TorusGaussianField):
                return field(torus, seed, numbers, device)
            return even_extension(field(CellGrid(n // 2), seed, numbers, device), axes)

        fields = [sampled(component) for component in range(self.fields(count))]
        xp = array_namespace(fields[0])
        return self.of(xp.stack(fields * (count // len(fields)), axis=1), axes)

    def checks(
        self, variable: str, box: Box, count: int, projection: bool
    ) -> Iterator[GaussianCheck]:
        """The checks of the law of each Gaussian field of a variable.

        A field is not checked if the rounding of the stored values hides its law. A projection onto
        fields of divergence 0 leaves the share 1 - k_j²/|k|² of the variance of component j.
        """
        axes, n, walls = box.dim, box.shape[0], box.kinds[0] == "cell"
        field = self.field(axes, walls)
        for component in range(self.fields(count)):
            share = np.ones(1)
            if projection and isinstance(field, TorusGaussianField):
                squares = field.wave_vectors**2
                share = 1 - squares[:, component] / squares.sum(axis=1)
            variance = np.full(box.shape, np.sum(share * field.mode_stds**2))
            if isinstance(field, SquareGaussianField):
                variance = field.pointwise_variance(CellGrid(n))
            size, inverse = self.inverse(component, count, math.sqrt(variance.max()))
            if size < _LARGEST:
                if isinstance(field, PeriodicGaussianField):
                    modes = periodic_modes(field, PeriodicGrid(n))
                elif isinstance(field, TorusGaussianField):
                    modes = torus_modes(field, n, share)
                else:
                    modes = square_modes(field, CellGrid(n))
                yield GaussianCheck(
                    variable,
                    lambda a, k=component, inverse=inverse: inverse(
                        (a[:, k] if a.ndim == axes + 2 else a).astype(np.float64)
                    ),
                    replace(modes, variances=modes.variances / size**2),
                    variance / size**2,
                    relative=False,
                )

    def fields(self, count: int) -> int:
        """Number of independent Gaussian fields for `count` components."""
        return count

    @abstractmethod
    def check(self, count: int) -> None:
        """Raise ValueError if a list does not have a number for each of `count` components."""

    @abstractmethod
    def of(self, g: Array, axes: int) -> Array:
        """The initial value as a function of the fields g of shape (batch, components, *points)."""

    @abstractmethod
    def inverse(self, component: int, count: int, std: float) -> tuple[float, Inverse]:
        """A size s, and the map from a component of the initial value to g/s.

        The size s is chosen such that g/s, computed from stored values, has rounding errors like
        numbers near 1.

        Args:
            component: Index of the component.
            count: Number of components.
            std: Standard deviation of g.
        """

    @abstractmethod
    def bounds(self, count: int) -> tuple[Numbers, Numbers] | None:
        """Lower and upper bounds of the components; None if the law has no bounds."""

    @abstractmethod
    def speed(self, count: int, std: float) -> float:
        """A typical value of |u|: nearly every sample has larger values at some points."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether -u has the same law."""

    @abstractmethod
    def sentence(self, walls: bool) -> str:
        """The law in words."""

    def _normal(self, walls: bool) -> str:
        where = "square of side 1 with Neumann conditions" if walls else "torus of side 1"
        return (
            f"N(0, {self.sigma:.6g}²(−Δ + {self.tau:.6g}²)^(−{self.alpha:.6g})) on the {where}, "
            f"without its mean, {self.modes} modes, stretched to the length"
        )


class Gaussian(Initial):
    """mean + g, with an independent field g for each component.

    Args:
        mean: Mean of each component. [u]
    """

    law: Literal["gaussian"]
    mean: Each = 0.0

    def check(self, count: int) -> None:
        spread(self.mean, count, "initial.mean")

    def of(self, g: Array, axes: int) -> Array:
        return g + _column(self.mean, g, axes)

    def inverse(self, component: int, count: int, std: float) -> tuple[float, Inverse]:
        mean = spread(self.mean, count, "")[component]
        size = math.hypot(mean, std)
        return size, lambda a: (a - mean) / size

    def bounds(self, count: int) -> None:
        return None

    def speed(self, count: int, std: float) -> float:
        """The largest root mean square of a component."""
        return max(math.hypot(mean, std) for mean in spread(self.mean, count, ""))

    @property
    def symmetric(self) -> bool:
        return not np.any(self.mean)

    def sentence(self, walls: bool) -> str:
        return f"{self.mean} + {self._normal(walls)}; components are independent"


class Bounded(Initial):
    """low + (high - low)/(1 + e^(-g - mean)), with one g for all components or one for each.

    Args:
        mean: Shift of g. [1]
        low, high: Bounds of each component. [u]
        shared: Whether all components have the same g.
    """

    law: Literal["bounded"]
    mean: Annotated[float, BeforeValidator(number)] = 0.0
    low: Each = 0.0
    high: Each = 1.0
    shared: bool = False

    def fields(self, count: int) -> int:
        return 1 if self.shared else count

    def check(self, count: int) -> None:
        low = spread(self.low, count, "initial.low")
        if low == spread(self.high, count, "initial.high"):
            raise ValueError(f"initial: low = high = {self.low}, so all samples would be the same")

    def of(self, g: Array, axes: int) -> Array:
        low, high = (_column(level, g, axes) for level in (self.low, self.high))
        return low + (high - low) / (1 + array_namespace(g).exp(-(g + self.mean)))

    def inverse(self, component: int, count: int, std: float) -> tuple[float, Inverse]:
        """A size s, and the map from a component of the initial value to g/s.

        The size s is proportional to the largest rounding error of g. This error occurs where the
        logistic function is flattest, at six standard deviations of g.
        """
        low, high = (spread(x, count, "")[component] for x in (self.low, self.high))
        mean = self.mean
        if low == high:
            return math.inf, lambda a: a
        size = 1 + math.exp(min(700.0, (mean if low == 0 else abs(mean)) + 6 * std))
        size *= 1 if low == 0 else max(abs(low), abs(high)) / abs(high - low)

        def inverse(a: np.ndarray) -> np.ndarray:
            share = (a - low) / (high - low)
            return (np.log(share) - np.log1p(-share) - mean) / size

        return size, inverse

    def bounds(self, count: int) -> tuple[Numbers, Numbers]:
        pairs = zip(spread(self.low, count, ""), spread(self.high, count, ""), strict=True)
        low, high = zip(*(sorted(pair) for pair in pairs), strict=True)
        return low, high

    def speed(self, count: int, std: float) -> float:
        """The largest |low + high|/2 of a component."""
        low, high = self.bounds(count)
        return max(abs(a + b) / 2 for a, b in zip(low, high, strict=True))

    @property
    def symmetric(self) -> bool:
        return self.mean == 0 and not np.any(np.add(self.low, self.high))

    def sentence(self, walls: bool) -> str:
        shared = "one g of all components" if self.shared else "components are independent"
        return (
            f"{self.low} + ({self.high} - {self.low})/(1 + exp(-g)), g = {self.mean:.6g} + "
            f"{self._normal(walls)}; {shared}"
        )


def _column(value: float | Numbers, like: Array, axes: int) -> Array:
    """One number for each component, shaped to broadcast over (batch, components, *points)."""
    return constant(np.reshape(value, (-1, *[1] * axes)), like)


class Waves(Strict):
    """u(0) = ±m Σ_k A_k sin(2π k c_k x + φ_k) on the circle of side 1, the law of PDEBench.

    c_k counts how many of two random wave numbers in 1 ... `waves` are k. A wave that is drawn
    twice has the wave number 2k. One that is not drawn is the constant A_k sin φ_k. The published
    script computes this, although the paper describes a sum of two waves. A_k is
    uniform in (0, 1), φ_k in (0, 2π). Some samples have the absolute value of the sum. In some
    samples m is the window (tanh 100(x - l) - tanh 100(x - r))/2, with l uniform in (0.1, 0.45)
    and r in (0.55, 0.9); in the others m = 1.

    In the published files the period is 1 - 1/1024, and amplitudes share random bits with wave
    numbers. Here all numbers are independent.

    References: M. Takamoto et al., PDEBench, NeurIPS 2022; `init_multi` of data_gen_NLE/utils.py.

    Args:
        waves: Number K of waves.
        absolute: Share of the samples with the absolute value of the sum. [1]
        window: Share of the samples with a window. [1]
        scaled: Whether u(0) is mapped to [0, 1] by its least and largest value at 4,096 points.
    """

    law: Literal["waves"]
    waves: Annotated[Count, Limits(le=64)] = 4
    absolute: Annotated[float, Limits(ge=0, le=1)] = 0.1
    window: Annotated[float, Limits(ge=0, le=1)] = 0.1
    scaled: bool = False

    @property
    def modes(self) -> int:
        """The largest wave number of the sum."""
        return 2 * self.waves

    @property
    def _names(self) -> list[str]:
        """The random numbers of a sample, in the order of the variable z."""
        of_waves = (f"{name} {k + 1}" for name in ("amplitude", "phase") for k in range(self.waves))
        return ["wave", "other wave", *of_waves, "absolute", "sign", "window", "left", "right"]

    def variables(self) -> tuple[Variable, ...]:
        names = self._names
        return (parameters("z", "number", len(names), f"uniform numbers of {', '.join(names)}"),)

    def numbers(self, seed: int, samples: Sequence[int]) -> Float[np.ndarray, "batch numbers"]:
        """Uniform numbers z in (0, 1), which determine u(0)."""
        return uniforms(seed, samples, len(self._names))

    def of(self, z: Float[np.ndarray, "batch numbers"], n: int) -> Float[np.ndarray, "batch n"]:
        """u(0) at n points of the circle."""
        u = self._unscaled(z, n)
        if not self.scaled:
            return u
        every = self._unscaled(z, _SCALED)
        low, high = every.min(axis=1, keepdims=True), every.max(axis=1, keepdims=True)
        return np.clip((u - low) / (high - low), 0, 1)

    def _unscaled(self, z: np.ndarray, n: int) -> np.ndarray:
        count, x = self.waves, np.arange(n) / n
        k, drawn = np.arange(1, count + 1), 1 + np.floor(count * z[:, :2])
        turns = k * (drawn[:, :1] == k) + k * (drawn[:, 1:] == k)  # (batch, K)
        amplitude, phase = z[:, 2 : 2 + count, None], z[:, 2 + count : 2 + 2 * count, None]
        waves: np.ndarray = np.sin(2 * np.pi * (turns[..., None] * x + phase))
        u: np.ndarray = np.sum(amplitude * waves, axis=1)
        absolute, sign, window, left, right = z[:, 2 + 2 * count :, None].swapaxes(0, 1)
        u = np.where(absolute < self.absolute, abs(u), u) * np.where(sign < 0.5, 1, -1)
        ends = np.tanh(100 * (x - 0.1 - 0.35 * left)) - np.tanh(100 * (x - 0.55 - 0.35 * right))
        return u * np.where(window < self.window, ends / 2, 1)

    def values(
        self,
        torus: Torus,
        count: int,
        seed: int,
        samples: Sequence[int],
        device: str | None,
        walls: bool = False,
    ) -> Array:
        """The initial values at the points of the torus, shape (batch, 1, n)."""
        u = self.of(self.numbers(seed, samples), torus.points[0])
        return constant(u[:, None], empty((0,), np.float64, device))

    def checks(self, variable: str, box: Box, count: int, projection: bool) -> Iterator[Check]:
        """The numbers z are uniform, and a is their function."""

        def distance(values: Values) -> tuple[np.ndarray, np.ndarray]:
            u = self.of(values["z"], box.shape[0])
            return abs(values[variable] - u).max(axis=1), 4 * EPSILON * np.maximum(
                1, abs(u).max(axis=1)
            )

        yield UniformCheck("z", self._names)
        yield Bound(variable, "the distance from the waves of z", distance)

    def fields(self, count: int) -> int:
        """Number of random streams of a sample."""
        return count

    def check(self, count: int) -> None:
        """Raise ValueError for several components."""
        if count > 1:
            raise ValueError("initial.law = waves needs one component")

    def field(self, axes: int, walls: bool) -> None:
        """Raise ValueError if the domain is not the circle; there is no Gaussian field."""
        if axes > 1 or walls:
            raise ValueError("initial.law = waves needs dimension = 1, without walls")

    def bounds(self, count: int) -> tuple[Numbers, Numbers]:
        return ((0.0,), (1.0,)) if self.scaled else ((-float(self.waves),), (float(self.waves),))

    def typical(self, length: float) -> tuple[float, float]:
        """Root mean squares of u and of its derivative, for sums that are not scaled."""
        k, count = np.arange(1, self.waves + 1), self.waves
        # means: 2/K + 2/K² of c_k² for two draws, 1/3 of A², 1/2 of sin²
        slope = math.sqrt(np.sum(k**2) * (2 / count + 2 / count**2) / 6)
        return math.sqrt(count / 6), 2 * math.pi / length * slope

    @property
    def symmetric(self) -> bool:
        """Whether -u has the same law."""
        return not self.scaled

    def sentence(self, walls: bool) -> str:
        """The law in words."""
        return (
            f"±Σ A_k sin(2π k c_k x + φ_k), k = 1 ... {self.waves}, on the circle of side 1, "
            f"stretched to the length; c_k of 2 random wave numbers are k; absolute values in a "
            f"share of {self.absolute:.6g} and a window in {self.window:.6g} of the samples"
            f"{', scaled to [0, 1]' if self.scaled else ''}"
        )
