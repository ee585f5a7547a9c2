"""Declarations of the random inputs of Darcy flow: the coefficient a and the source f."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_args

from jaxtyping import Float
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from pdegen.domains import CellGrid
from pdegen.equations.darcy.checks import PhasesCheck, ScaleCheck
from pdegen.numerics.device import Array
from pdegen.sampling.coefficients import Finite, LogNormal, Phases, TwoPhase, check_thresholds
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.sampling.scalars import NumberOrLaw, ScalarLaw, number_of, number_or_law, stream_of
from pdegen.schema import Count, InverseLength, Positive, Strict

PositiveOrLaw = Annotated[Positive | ScalarLaw, NumberOrLaw]
FiniteOrLaw = Annotated[Finite | ScalarLaw, NumberOrLaw]


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


@lru_cache(maxsize=8)
def _built(law: str, *parameters: Any) -> SquareGaussianField:
    boundary: Any = law.removesuffix("-gaussian")
    return SquareGaussianField(boundary, *parameters)


class GaussianSource(SquareGaussian):
    """f = mean + g with a Gaussian field g, independent of that of the coefficient.

    The source is constant on each cell of the output, with the value of f at the centre.

    Args:
        law: Name of the distribution of g. It states the condition at the walls: the normal
            derivative is 0 (Neumann), or the value is 0 (Dirichlet).
        sigma: Scale σ of the covariance operator of g.
            [permeability · pressure · length^(−1 − alpha)]
        tau: Inverse correlation length τ; larger values give shorter waves. [1/length]
        alpha: Exponent α, above 1: larger values give smoother functions. [1]
        modes: Modes along each axis, independent of the grid.
        mean: The mean of f at each point. [permeability · pressure/length²]
    """

    mean: Finite = 0.0

    @property
    def sentence(self) -> str:
        mean = f"{self.mean:.6g} plus " if self.mean else ""
        return f"{mean}a Gaussian field of the law {super().sentence}"

    def values(
        self, grid: CellGrid, seed: int, samples: range, device: str | None
    ) -> Float[Array, "batch n n"]:
        """f at the cell centres, in float64. Sample i depends on (seed, i) alone.

        The random stream is one of its own, so f is independent of all other inputs.
        """
        return self.mean + self.build()(grid, stream_of("source", seed), samples, device)


_number = TypeAdapter[float](Finite)
_scalar_laws = [get_args(law.model_fields["law"].annotation)[0] for law in ScalarLaw.variants()]
_field_laws = [*get_args(GaussianSource.model_fields["law"].annotation)]


def _source(value: object) -> float | ScalarLaw | GaussianSource:
    """A number, its law, or the law of a field."""  # `pdegen keys` prints this line
    if isinstance(value, GaussianSource):
        return value
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value)
        law = value.get("law")
        if law in _field_laws:
            return GaussianSource.model_validate(value)
        if law not in _scalar_laws:
            raise ValueError(f"law must be one of {', '.join([*_scalar_laws, *_field_laws])}")
    return number_or_law(value, lambda number: _number.validate_python(number, strict=True))


Source = Annotated[float | ScalarLaw | GaussianSource, BeforeValidator(_source)]


def printed(value: float | ScalarLaw) -> str:
    """A number with up to six digits, or a law in words."""
    return value.sentence if isinstance(value, ScalarLaw) else f"{value:.6g}"


def stored(key: str, value: float | ScalarLaw, names: Mapping[str, str]) -> float | str:
    """The number itself, or for a law the name of the variable in which a store keeps the number of
    each sample.

    Args:
        key: Dotted key of the number in a recipe, such as "coefficient.above".
        value: The number or its law.
        names: Names of the variables, by the keys that have laws.
    """
    return names[key] if isinstance(value, ScalarLaw) else value


class TwoPhaseCoefficient(Strict):
    """a = `above` where the field is >= 0, and a = `below` elsewhere.

    Args:
        above: The value of a where the field is at least 0. [permeability]
        below: The value of a elsewhere. [permeability]
    """

    kind: Literal["two-phase"]
    above: PositiveOrLaw
    below: PositiveOrLaw

    @property
    def phases(self) -> tuple[float, float] | None:
        """The smaller and the larger value; None if they are equal, or not the same everywhere."""
        if isinstance(self.above, ScalarLaw) or isinstance(self.below, ScalarLaw):
            return None
        low, high = sorted((self.above, self.below))
        return (low, high) if low < high else None

    @property
    def sentence(self) -> str:
        return (
            f"two phases: a = {printed(self.above)} where the field is ≥ 0, "
            f"a = {printed(self.below)} elsewhere"
        )

    def build(self) -> TwoPhase:
        """The map from the field to a, if both values are numbers."""
        return TwoPhase(number_of(self.above), number_of(self.below))

    def stored(self, names: Mapping[str, str]) -> PhasesCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        values = (
            stored(f"coefficient.{key}", value, names)
            for key, value in (("below", self.below), ("above", self.above))
        )
        return PhasesCheck((0.0,), tuple(values))


_positive = TypeAdapter[float](Positive)


def _values(value: object) -> object:
    """A list of numbers, or of laws of numbers."""  # `pdegen keys` prints this line
    if not isinstance(value, list | tuple):
        return value
    values: Any = value  # pyright: ignore[reportUnknownVariableType]
    return tuple(
        number_or_law(each, lambda v: _positive.validate_python(v, strict=True)) for each in values
    )


class PhasesCoefficient(Strict):
    """Several phases: a has one of k values, which k - 1 thresholds of the field separate.

    a = values[0] where the field is below thresholds[0], values[j] where it is at least
    thresholds[j-1] but below thresholds[j], and values[k-1] where it is at least thresholds[k-2].
    Interfaces between phases are level sets of the field, so phases that are not neighbours in the
    list never touch.

    Args:
        values: The k values of a, all different. [permeability]
        thresholds: The k - 1 thresholds of the field, in rising order. [1]
    """

    kind: Literal["phases"]
    values: Annotated[
        tuple[float | ScalarLaw, ...],
        Field(strict=False, min_length=2, max_length=16),
        BeforeValidator(_values),
    ]
    thresholds: Annotated[tuple[Finite, ...], Field(strict=False, min_length=1, max_length=15)]

    phases: ClassVar[None] = None

    @model_validator(mode="after")
    def _separated(self) -> Self:
        check_thresholds(self.thresholds, len(self.values))
        numbers = [value for value in self.values if not isinstance(value, ScalarLaw)]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"values of phases must differ, got {numbers}")
        return self

    @property
    def sentence(self) -> str:
        values = ", ".join(map(printed, self.values))
        at = ", ".join(f"{threshold:.6g}" for threshold in self.thresholds)
        return f"{len(self.values)} phases: a = {values}, separated where the field is {at}"

    def build(self) -> Phases:
        """The map from the field to a, if all values are numbers."""
        return Phases(self.thresholds, tuple(map(number_of, self.values)))

    def stored(self, names: Mapping[str, str]) -> PhasesCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        values = (
            stored(f"coefficient.values.{k}", value, names) for k, value in enumerate(self.values)
        )
        return PhasesCheck(self.thresholds, tuple(values))


class LogNormalCoefficient(Strict):
    """a = scale exp(field).

    Args:
        scale: Median of a. [permeability]
    """

    kind: Literal["log-normal"]
    scale: PositiveOrLaw = 1.0

    phases: ClassVar[None] = None

    @property
    def sentence(self) -> str:
        if isinstance(self.scale, ScalarLaw):
            return f"log-normal: a = scale · exp(field), scale {self.scale.sentence}"
        return f"log-normal: a = {self.scale:.6g} exp(field)"

    def build(self) -> LogNormal:
        """The map from the field to a, if the scale is a number."""
        return LogNormal(number_of(self.scale))

    def stored(self, names: Mapping[str, str]) -> ScaleCheck:
        """The map from the field to a, with names of stored variables in place of laws."""
        return ScaleCheck(stored("coefficient.scale", self.scale, names))
