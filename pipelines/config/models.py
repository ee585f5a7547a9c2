"""The tables `model` of experiments. Their keys are the arguments of operator constructors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import model_validator

from operators.base import Operator
from operators.registry import OPERATORS, Registered, check_number
from pdegen.schema import SchemaError, near
from pipelines.config.declared import Declared, Tables, declared

_MAX_WEIGHT_BYTES = 2**40
# Refusal of each declaration, or None: building an operator takes milliseconds, and a benchmark
# reads the same declaration often.
_REFUSALS: dict[tuple[type, str], str | None] = {}
_FROM_DATA = ("in_channels", "out_channels", "dim")  # set by the data, not by a file


class Model(Declared):
    """An operator, given by its name and the arguments of its constructor.

    The key `preset` selects the settings of a published configuration. Other keys override them.
    """

    operator: ClassVar[type[Operator]]
    tables: ClassVar[Tables[Model]]
    resets: ClassVar[tuple[str, ...]] = ("name", "preset")

    @model_validator(mode="before")
    @classmethod
    def _of_the_preset(cls, content: object) -> object:
        if not isinstance(content, Mapping) or "preset" not in content:
            return content
        presets, preset = cls.operator.presets, content["preset"]
        if preset not in presets:
            hint = near(str(preset), list(presets))
            raise ValueError(f"unknown preset {preset!r} of {content['name']}: {hint}")
        overrides = {key: value for key, value in content.items() if key != "preset"}
        return {**presets[preset].settings, **overrides}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, value in self.arguments.items():
            least = 0 if type(self).model_fields[key].default == 0 else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise ValueError(f"{key} must be at least {least}, got {value}")
            check_number(key, value)
        if self.lacks:  # `check_installed` refuses it when it is built
            return self
        declaration = type(self), self.model_dump_json()
        if declaration not in _REFUSALS:
            _REFUSALS[declaration] = self._refusal()
        refusal = _REFUSALS[declaration]
        if refusal is not None:
            raise ValueError(refusal)
        return self

    @property
    def lacks(self) -> str:
        """The package that the operator needs but that is not installed; "" if there is none."""
        package = self.operator.package
        return package if package and find_spec(package) is None else ""

    def check_installed(self) -> None:
        """Raise SchemaError if the operator needs a package that is not installed."""
        if self.lacks:
            raise SchemaError(
                f"model {self.name} needs the package {self.lacks}, which is not installed: "
                f"pip install 'pdegen-operators[{self.name}]'"
            )

    def _refusal(self) -> str | None:
        """Why the operator cannot be built in any dimension; None if it can be built in one."""
        refusals = []
        for dim in self.dims():  # a setting may have one number per axis
            try:
                size = self.weight_bytes(1, 1, dim)
            except ValueError as refusal:
                refusals.append(str(refusal))
                continue
            if size <= _MAX_WEIGHT_BYTES:
                return None
            refusals.append(
                f"the weights of {self.name} would take {size / 2**30:,.0f} GiB, at most "
                f"{_MAX_WEIGHT_BYTES / 2**30:,.0f} GiB are allowed"
            )
        return refusals[0]

    def weight_bytes(self, in_channels: int, out_channels: int, dim: int) -> int:
        """Size of the weights in bytes, computed without allocating them."""
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            try:
                operator = self.build(in_channels, out_channels, dim)
            except (RuntimeError, TypeError) as error:
                if "overflow" not in str(error).lower():
                    raise
                raise ValueError(f"{self.name} would have too many weights to count") from None
        return sum(p.numel() * p.element_size() for p in operator.parameters())

    def dims(self) -> tuple[int, ...]:
        """Dimensions of domains that the operator supports with these settings."""
        return self.operator.dims_with(self.arguments)

    def build(self, in_channels: int, out_channels: int, dim: int) -> Operator:
        """Build the operator for the given numbers of channels on a domain of dimension `dim`.

        Raises ValueError if the operator does not support the dimension, or the settings are
        impossible.
        """
        if dim not in self.dims():
            raise ValueError(
                f"{self.name} supports domains of dimension {', '.join(map(str, self.dims()))}, "
                f"the data have dimension {dim}"
            )
        return OPERATORS[self.name].build(self.arguments, in_channels, out_channels, dim)


def _declared(name: str, registered: Registered) -> type[Model]:
    """Create the table class of an operator.

    Raises SchemaError if a file cannot set some argument.
    """
    operator, where = registered.operator, f"operator {name}: {registered.operator.__qualname__}"
    parameters = inspect.signature(operator).parameters
    if lacking := [key for key in _FROM_DATA[:2] if key not in parameters]:
        raise SchemaError(f"{where} lacks the argument {' and '.join(lacking)}, which the data set")
    kind = declared(Model, where, name, operator, registered.words, _FROM_DATA)
    kind.operator = operator
    return kind


MODELS = Model.tables = Tables(OPERATORS, _declared)
ModelSpec = Annotated[Model, MODELS]


def parse_model(content: Mapping[str, Any]) -> Model:
    """Parse the table of an operator.

    Raises SchemaError for an unknown operator or key, or an impossible value.
    """
    name = content.get("name")
    if not isinstance(name, str) or name not in MODELS:
        hint = near(str(name), OPERATORS.known, lists="pdegen operators")
        raise SchemaError(f"unknown model {name!r}: {hint}; your own needs --plugin FILE.py")
    return MODELS[name].parse(content, f"model {name}")
