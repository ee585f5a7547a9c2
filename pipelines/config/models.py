"""Words -> operators: what a TOML file may say of each operator follows from its constructor."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self, Union, get_type_hints

import torch
from pydantic import PydanticUserError, create_model, model_validator

from operators.base import Operator
from operators.registry import OPERATORS, Registered, check_number
from pdegen.equations.registry import error_summary, line_of_error
from pdegen.schema import SchemaError, Strict, near

_HEAVIEST = 2**40  # bytes of weights
# What `Model` found of each declaration: building takes milliseconds, and a table reads one often.
_REFUSALS: dict[tuple[type, str], str | None] = {}
_GIVEN = ("in_channels", "out_channels", "dim")  # by the data, not by a declaration


class Model(Strict):
    """A declared operator: its name, and the arguments of its constructor.

    `preset` stands for the settings of a published configuration; other keys go before it.
    """

    operator: ClassVar[type[Operator]]
    resets: ClassVar[tuple[str, ...]] = ("name", "preset")
    name: str

    @model_validator(mode="before")
    @classmethod
    def _of_the_preset(cls, content: object) -> object:
        if not isinstance(content, Mapping) or "preset" not in content:
            return content
        known, preset = cls.operator.presets, content["preset"]
        if preset not in known:
            raise ValueError(
                f"unknown preset {preset!r} of {content['name']}: {near(str(preset), list(known))}"
            )
        own = {key: value for key, value in content.items() if key != "preset"}
        return {**known[preset].settings, **own}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, value in self.arguments.items():
            least = 0 if type(self).model_fields[key].default == 0 else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise ValueError(f"{key} must be at least {least}, got {value}")
            check_number(key, value)
        if self.lacks:  # what builds it, refuses it there
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
        """The package that its operator needs and that is not installed; empty where none is."""
        package = self.operator.package
        return package if package and find_spec(package) is None else ""

    def check_installed(self) -> None:
        """Raise SchemaError where its operator needs a package that is not installed."""
        if self.lacks:
            raise SchemaError(
                f"model {self.name} needs the package {self.lacks}, which is not installed: "
                f"pip install 'pdegen-operators[{self.name}]'"
            )

    def _refusal(self) -> str | None:
        """Why no operator can be built in any dimension; None where one can."""
        refusals = []
        for dim in self.dims():  # a setting may have one number for each axis
            try:
                size = self.weight_bytes(1, 1, dim)
            except ValueError as refusal:
                refusals.append(str(refusal))
                continue
            if size <= _HEAVIEST:
                return None
            refusals.append(
                f"the weights of {self.name} would take {size / 2**30:,.0f} GiB, at most "
                f"{_HEAVIEST / 2**30:,.0f} GiB are allowed"
            )
        return refusals[0]

    def weight_bytes(self, in_channels: int, out_channels: int, dim: int) -> int:
        """What the weights of the operator take; nothing is allocated."""
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            try:
                operator = self.build(in_channels, out_channels, dim)
            except (RuntimeError, TypeError) as error:
                if "overflow" not in str(error).lower():
                    raise
                raise ValueError(f"weights of {self.name} would be too large to count") from None
        return sum(p.numel() * p.element_size() for p in operator.parameters())

    @property
    def arguments(self) -> dict[str, Any]:
        return self.model_dump(exclude={"name"})

    def dims(self) -> tuple[int, ...]:
        """Dimensions of the domains that the operator with these settings is for."""
        return self.operator.dims_with(self.arguments)

    def build(self, in_channels: int, out_channels: int, dim: int) -> Operator:
        """The operator for functions with so many channels on a domain of a dimension. Raises
        ValueError if it is not for that dimension, or the settings are impossible."""
        if dim not in self.dims():
            raise ValueError(
                f"{self.name} is for domains of dimension {', '.join(map(str, self.dims()))}, "
                f"the data have {dim}"
            )
        return OPERATORS[self.name].build(self.arguments, in_channels, out_channels, dim)


def declared(name: str, registered: Registered) -> type[Model]:
    """The declaration of an operator: a key for each argument of its constructor. Raises
    SchemaError if the constructor has arguments that no file can declare."""
    operator, words = registered.operator, registered.words
    named: Any = Literal[name]
    where = f"operator {name}: {operator.__qualname__}"
    hints, fields = get_type_hints(operator.__init__), dict[str, Any](name=(named, ...))
    parameters = inspect.signature(operator).parameters
    if lacking := [key for key in _GIVEN[:2] if key not in parameters]:
        raise SchemaError(f"{where} has no argument {' and no '.join(lacking)}: the data give them")
    for key, parameter in parameters.items():
        if key in _GIVEN:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SchemaError(f"{where} takes any arguments as {parameter}: name each of them")
        default = ... if parameter.default is parameter.empty else parameter.default
        if key in words:
            default = next((w for w, thing in words[key].items() if thing is default), ...)
            fields[key] = (Literal[tuple(words[key])], default)
        elif key in hints:
            fields[key] = (hints[key], default)
        else:
            raise SchemaError(
                f"{where} has the argument {key} without a type: annotate it, such as {key}: int"
            )
    make: Any = create_model
    try:
        kind = make(operator.__name__, __base__=Model, __doc__=operator.__doc__, **fields)
    except PydanticUserError as error:
        said = str(error).partition(". ")[0]
        raise SchemaError(
            f"{where} has an argument that no file can declare ({said}): take numbers, strings and "
            "lists, or give register(..., words=...) words for objects"
        ) from error
    kind.operator = operator
    return kind


def error_in_equation_file(error: BaseException) -> str | None:
    """The line of a user's own operator where an error arose, and what it says; None for errors
    that arose elsewhere."""
    modules = {registered.operator.__module__ for registered in OPERATORS.values()}
    for module in sorted(modules):
        path = getattr(sys.modules.get(module), "__file__", None)
        shipped = module.startswith("operators.")
        if path is not None and not shipped and (line := line_of_error(error, path)):
            return f"{path}{line}: {error_summary(error)}"
    return None


class Declarations(Mapping[str, type[Model]]):
    """Those of all operators that are registered by now, by their names."""

    def __init__(self) -> None:
        self._made: dict[str, type[Model]] = {}

    def __getitem__(self, name: str) -> type[Model]:
        if name not in self._made:
            self._made[name] = declared(name, OPERATORS[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(OPERATORS)

    def __len__(self) -> int:
        return len(OPERATORS)


MODELS = Declarations()


def model_union() -> Any:
    """The type of any declared operator, of those that are registered by now."""
    return Union[tuple(MODELS.values())]  # noqa: UP007 - of a tuple


def parse_model(content: Mapping[str, Any]) -> Model:
    """A model's declaration from its table. Raises SchemaError on an unknown model or key, or an
    impossible value."""
    name = content.get("name")
    if not isinstance(name, str) or name not in MODELS:
        hint = near(str(name), list(MODELS), lists="pdegen operators")
        raise SchemaError(
            f"unknown model {name!r}: {hint}; one of your own is known to commands that run "
            "through its file"
        )
    return MODELS[name].parse(content, f"model {name}")
