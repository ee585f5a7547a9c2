"""The tables `model` of experiments. Their keys are the arguments of operator constructors."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_args, get_type_hints

import torch
from pydantic import PydanticUserError, create_model, model_validator
from pydantic_core import SchemaValidator, core_schema

from operators.base import Operator
from operators.registry import OPERATORS, Registered, check_number
from pdegen.schema import SchemaError, Strict, near

_MAX_WEIGHT_BYTES = 2**40
# Refusal of each declaration, or None: building an operator takes milliseconds, and a benchmark
# reads the same declaration often.
_REFUSALS: dict[tuple[type, str], str | None] = {}
_FROM_DATA = ("in_channels", "out_channels", "dim")  # set by the data, not by a file


class Model(Strict):
    """An operator, given by its name and the arguments of its constructor.

    The key `preset` selects the settings of a published configuration. Other keys override them.
    """

    operator: ClassVar[type[Operator]]
    resets: ClassVar[tuple[str, ...]] = ("name", "preset")
    name: str

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        """The tables of all registered operators for `Model` itself; otherwise this class alone."""
        return tuple(MODELS.values()) if cls is Model else (cls,)

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

    @property
    def arguments(self) -> dict[str, Any]:
        """Values that this table gives to the arguments of the constructor."""
        return self.model_dump(exclude={"name"})

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


def declared(name: str, registered: Registered) -> type[Model]:
    """Create the table class of an operator, with a key for each argument of its constructor.

    Raises SchemaError if a file cannot set some argument.
    """
    operator, words = registered.operator, registered.words
    named: Any = Literal[name]
    where = f"operator {name}: {operator.__qualname__}"
    hints, fields = get_type_hints(operator.__init__), dict[str, Any](name=(named, ...))
    parameters = inspect.signature(operator).parameters
    if lacking := [key for key in _FROM_DATA[:2] if key not in parameters]:
        raise SchemaError(f"{where} lacks the argument {' and '.join(lacking)}, which the data set")
    for key, parameter in parameters.items():
        if key in _FROM_DATA:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SchemaError(f"{where} takes arbitrary arguments {parameter}: name each argument")
        default = ... if parameter.default is parameter.empty else parameter.default
        if key in words:
            default = next((word for word, value in words[key].items() if value is default), ...)
            fields[key] = (Literal[tuple(words[key])], default)
        elif key in hints:
            fields[key] = (hints[key], default)
        else:
            raise SchemaError(f"{where}: argument {key} has no type annotation, such as {key}: int")
    make: Any = create_model
    try:
        kind = make(operator.__name__, __base__=Model, __doc__=operator.__doc__, **fields)
    except PydanticUserError as error:
        cause = str(error).partition(". ")[0]
        raise SchemaError(
            f"{where} has an argument that no file can set ({cause}): use numbers, strings and "
            "lists, or name objects by register(..., words=...)"
        ) from error
    kind.operator = operator
    return kind


class Declarations(Mapping[str, type[Model]]):
    """The table classes of all registered operators, by name."""

    def __init__(self) -> None:
        self._made: dict[str, type[Model]] = {}

    def __getitem__(self, name: str) -> type[Model]:
        made, registered = self._made.get(name), OPERATORS[name]
        if made is None or made.operator is not registered.operator:
            made = self._made[name] = declared(name, registered)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(OPERATORS)

    def __len__(self) -> int:
        return len(OPERATORS)


MODELS = Declarations()


class OfRegisteredOperator:
    """Annotation of a Pydantic field whose value is the table of any registered operator."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(_model_of)


ModelSpec = Annotated[Model, OfRegisteredOperator]


def _model_of(content: object) -> Model:
    """The table of the operator that it names. Raises ValidationError."""
    if isinstance(content, Model):
        return content
    name = (
        cast("Mapping[str, object]", content).get("name") if isinstance(content, Mapping) else None
    )
    known = name if isinstance(name, str) and name in OPERATORS else next(iter(OPERATORS))
    return _validator(MODELS[known]).validate_python(content)


@cache
def _validator(model: type[Model]) -> SchemaValidator:
    """A validator whose errors name the operator, like the errors of a tagged union."""
    choice = core_schema.no_info_plain_validator_function(model.model_validate)
    name: str = get_args(model.model_fields["name"].annotation)[0]
    return SchemaValidator(core_schema.tagged_union_schema({name: choice}, "name"))


def parse_model(content: Mapping[str, Any]) -> Model:
    """Parse the table of an operator.

    Raises SchemaError for an unknown operator or key, or an impossible value.
    """
    name = content.get("name")
    if not isinstance(name, str) or name not in MODELS:
        hint = near(str(name), list(MODELS), lists="pdegen operators")
        raise SchemaError(f"unknown model {name!r}: {hint}; your own needs --plugin FILE.py")
    return MODELS[name].parse(content, f"model {name}")
