"""Laws of numbers that differ from sample to sample, such as a viscosity.

A field with the type `Annotated[Coefficient | ScalarLaw, NumberOrLaw]` accepts a number, or a table
such as `{law = "log-uniform", low = 1e-3, high = 1e-1}`. Both ends of the range must satisfy the
constraints of the number.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic import model_validator as validator
from pydantic_core import InitErrorDetails, SchemaValidator, core_schema

from pdegen.sampling.coefficients import Finite, uniforms
from pdegen.schema import Coefficient, Strict

_MOST_LAWS = 6  # the declarations at all corners of the ranges are validated
_Model = TypeVar("_Model", bound=Strict)


class ScalarLaw(Strict):
    """The law of a number on (low, high). Its distribution function maps the number to (0, 1)."""

    law: str
    low: float
    high: float

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        return (Uniform, LogUniform) if cls is ScalarLaw else (cls,)

    @validator(mode="after")
    def _rises(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got low = {self.low}, high = {self.high}")
        return self

    def at(self, z: float) -> float:
        """The quantile of z in (0, 1)."""
        return min(max(self._quantile(z), self.low), self.high)

    @property
    @abstractmethod
    def kind(self) -> Literal["uniform", "log-uniform"]:
        """The name of the law."""

    @abstractmethod
    def _quantile(self, z: float) -> float:
        """`at`, up to rounding."""

    @abstractmethod
    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The distribution function at the given values; outside [0, 1] for values out of range."""

    @property
    def sentence(self) -> str:
        """The law in words."""
        return f"{self.law} in [{self.low:.6g}, {self.high:.6g}]"

    def values(self, key: str, seed: int, samples: Sequence[int]) -> Float[np.ndarray, " n"]:
        """The numbers of samples; that of sample i is a function of (key, seed, i).

        Args:
            key: The key of the number in its declaration. Each key has a random stream of its own.
            seed: Seed of the dataset.
            samples: Numbers of the samples.

        >>> law = LogUniform(law="log-uniform", low=1e-3, high=0.1)
        >>> law.values("viscosity", 0, [3, 7])[1:] == law.values("viscosity", 0, [7])
        array([ True])
        """
        z = uniforms(stream_of(key, seed), samples, 1)[:, 0]
        return np.array([self.at(float(value)) for value in z], np.float64)


class Uniform(ScalarLaw):
    """Every number between low and high is equally likely.

    Args:
        low, high: Ends of the range. [unit of the number]
    """

    law: Literal["uniform"]  # pyright: ignore[reportIncompatibleVariableOverride]: frozen
    low: Finite
    high: Finite

    @property
    def kind(self) -> Literal["uniform"]:
        return self.law

    def _quantile(self, z: float) -> float:
        return self.low + (self.high - self.low) * z

    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return (values - self.low) / (self.high - self.low)


class LogUniform(ScalarLaw):
    """The logarithm is uniform: every factor between two numbers is equally likely.

    Args:
        low, high: Ends of the range, both above 0. [unit of the number]
    """

    law: Literal["log-uniform"]  # pyright: ignore[reportIncompatibleVariableOverride]: frozen
    low: Annotated[Finite, Field(gt=0)]
    high: Annotated[Finite, Field(gt=0)]

    @property
    def kind(self) -> Literal["log-uniform"]:
        return self.law

    def _quantile(self, z: float) -> float:
        # `math.exp` has the same bits for a number alone and in any batch
        return self.low * math.exp(math.log(self.high / self.low) * z)

    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        with np.errstate(invalid="ignore", divide="ignore"):  # out of range: not a place
            return np.log(values / self.low) / math.log(self.high / self.low)


class NumberOrLaw:
    """Annotation of a union of a number and `ScalarLaw`.

    The ends of the range of a law must be allowed numbers.

    >>> number = TypeAdapter(Annotated[Coefficient | ScalarLaw, NumberOrLaw])
    >>> number.validate_python({"law": "uniform", "low": 0.5, "high": 2}).sentence
    'uniform in [0.5, 2]'
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        number = next(
            a for a in get_args(source) if not (isinstance(a, type) and issubclass(a, ScalarLaw))
        )
        validate = SchemaValidator(handler.generate_schema(number)).validate_python
        return core_schema.no_info_plain_validator_function(
            lambda value: number_or_law(value, lambda v: validate(v, strict=True))
        )


def number_or_law(value: object, number: Callable[[object], float]) -> float | ScalarLaw:
    """A number, or the law that a table declares.

    Args:
        value: The declared value.
        number: The check of a number. It raises ValidationError or ValueError.
    """
    if not isinstance(value, Mapping | ScalarLaw):
        return number(value)
    law = value if isinstance(value, ScalarLaw) else _LAW.validate_python(value)
    for end in ("low", "high"):
        try:
            number(getattr(law, end))
        except ValidationError as error:
            faults = [
                InitErrorDetails(
                    type=fault["type"], loc=(end, *fault["loc"]), input=fault["input"],
                    ctx=fault.get("ctx", {}),
                )
                for fault in error.errors(include_url=False)
            ]  # fmt: skip
            raise ValidationError.from_exception_data("law", faults) from None
        except ValueError as error:
            raise ValueError(f"{end} {error}") from None
    return law


_LAW: TypeAdapter[ScalarLaw] = TypeAdapter(
    Annotated[Uniform | LogUniform, Field(discriminator="law")]
)
CoefficientOrLaw = Annotated[Coefficient | ScalarLaw, NumberOrLaw]


def number_of(value: float | ScalarLaw) -> float:
    """The value of a key that is known to be a number, not a law."""
    assert not isinstance(value, ScalarLaw)
    return value


def stream_of(key: str, seed: int) -> int:
    """The seed of the random stream of a key; the other streams of a dataset keep their seed."""
    digest = hashlib.blake2b(f"{seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# declarations with laws


def laws_of(declared: object, key: str = "") -> dict[str, ScalarLaw]:
    """The laws in a declaration, by their dotted keys."""
    if isinstance(declared, ScalarLaw):
        return {key: declared}
    parts: list[tuple[str, object]] = []
    if isinstance(declared, BaseModel):
        parts = [(name, getattr(declared, name)) for name in type(declared).model_fields]
    elif isinstance(declared, tuple):
        parts = [(str(index), part) for index, part in enumerate(declared)]  # pyright: ignore
    laws: dict[str, ScalarLaw] = {}
    for name, part in parts:
        laws |= laws_of(part, f"{key}.{name}" if key else name)
    return laws


def with_numbers(declared: _Model, numbers: Mapping[str, float]) -> _Model:
    """A copy of a declaration with numbers at the given dotted keys. It is not validated."""
    for key, number in numbers.items():
        declared = _with_number(declared, key.split("."), number)
    return declared


def _with_number(declared: Any, path: list[str], number: float) -> Any:
    if not path:
        return number
    head, *rest = path
    if isinstance(declared, tuple):
        parts: list[Any] = list(declared)  # pyright: ignore[reportUnknownArgumentType]
        parts[int(head)] = _with_number(parts[int(head)], rest, number)
        return tuple(parts)
    changed = _with_number(getattr(declared, head), rest, number)
    return declared.model_copy(update={head: changed})


def variable_names(keys: Sequence[str]) -> dict[str, str]:
    """The name of the stored variable of each key: its last part, or the whole key if two keys
    would have the same name.

    >>> variable_names(["viscosity", "force.amplitude", "linear.advection.0"])
    {'viscosity': 'viscosity', 'force.amplitude': 'amplitude', 'linear.advection.0': 'advection_0'}
    """
    short: dict[str, str] = {}
    for key in keys:
        parts = key.split(".")
        first = next((k for k, part in enumerate(parts) if part.isdigit()), len(parts))
        short[key] = "_".join(parts[first - 1 :])
    names = list(short.values())
    return {
        key: name if names.count(name) == 1 else key.replace(".", "_")
        for key, name in short.items()
    }


def corners(laws: Mapping[str, ScalarLaw]) -> Iterator[dict[str, float]]:
    """Every combination of the ends of the ranges.

    Raises ValueError if there are too many laws.
    """
    if len(laws) > _MOST_LAWS:
        raise ValueError(f"at most {_MOST_LAWS} numbers may have laws, got {', '.join(laws)}")
    for ends in product(*((law.low, law.high) for law in laws.values())):
        yield dict(zip(laws, ends, strict=True))
