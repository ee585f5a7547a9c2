"""Tables whose keys are the arguments of registered classes: operators, optimisers, schedules,
losses.

A class that is registered later, for example by a user's file, is known from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import torch
from pydantic import (
    PydanticUserError,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import SchemaValidator, core_schema
from torch import nn
from torch.overrides import TorchFunctionMode

import operators.training.losses  # noqa: F401 - registers losses
from operators.base import Operator
from operators.registry import LOSSES, OPERATORS, OPTIMIZERS, SCHEDULES, Registered, check_number
from operators.training.optimizers import MakeOptimizer
from operators.training.schedules import Schedule
from operators.training.step import Loss
from pdegen.domains import Domain
from pdegen.schema import SchemaError, Strict, known_keys, near

_Words = Mapping[str, Mapping[str, object]]


class Declared(Strict):
    """A table whose keys are the arguments of the constructor of a registered class.

    The attribute `added` of the class names arguments that are newer than the first records with
    the class. Records leave these out at their defaults, so that old records equal new ones.
    """

    declares: ClassVar[type]
    tables: ClassVar[Tables[Any]]
    hint: ClassVar[str] = "; one of your own needs --plugin FILE.py"
    name: str

    @classmethod
    def variants(cls) -> tuple[type[Strict], ...]:
        """The tables of all registered classes; of a registered class, its own table alone."""
        return tuple(cls.tables.values()) if "tables" in vars(cls) else (cls,)

    @property
    def arguments(self) -> dict[str, Any]:
        """Values that this table gives to the arguments of the constructor."""
        return self.model_dump(exclude={"name"})

    @model_serializer(mode="wrap")
    def _recorded(
        self, content: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, object]:
        table: dict[str, object] = content(self)
        if info.mode == "json":
            for key in getattr(self.declares, "added", ()):
                if getattr(self, key) == type(self).model_fields[key].default:
                    table.pop(key, None)
        return table


_T = TypeVar("_T", bound=Declared)


def declared(
    base: type[_T], where: str, name: str, registered: type, words: _Words, omitted: Iterable[str]
) -> type[_T]:
    """Create the table class of a registered class.

    Args:
        base: Base class of the table.
        where: Description of the class in error messages.
        words: For each argument that is an object: the words that stand for it in files.
        omitted: Arguments that are not keys.

    Raises:
        SchemaError: If a file cannot set some argument.
    """
    named: Any = Literal[name]
    hints = get_type_hints(registered.__init__, include_extras=True)
    fields = dict[str, Any](name=(named, ...))
    parameters = inspect.signature(registered).parameters
    for key, parameter in parameters.items():
        if key in omitted:
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
        kind = make(registered.__name__, __base__=base, __doc__=registered.__doc__, **fields)
    except PydanticUserError as error:
        cause = str(error).partition(". ")[0]
        raise SchemaError(
            f"{where} has an argument that no file can set ({cause}): use numbers, strings and "
            "lists, or name objects by register(..., words=...)"
        ) from error
    kind.declares = registered
    return kind


class Tables(Mapping[str, type[_T]], Generic[_T]):
    """The table classes of all classes that are registered so far, by name.

    Args:
        registered: The registry.
        declare: Function (name, entry of the registry) -> table class.
    """

    def __init__(
        self, registered: Mapping[str, object], declare: Callable[[str, Any], type[_T]]
    ) -> None:
        self._registered, self._declare = registered, declare
        self._made: dict[str, tuple[object, type[_T]]] = {}

    def __hash__(self) -> int:  # as metadata of an annotation
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getitem__(self, name: str) -> type[_T]:
        entry = self._registered[name]
        made = self._made.get(name)
        if made is None or made[0] is not entry:
            made = self._made[name] = entry, self._declare(name, entry)
            known_keys.cache_clear()  # experiments may have the keys of the class from now on
        return made[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    def __get_pydantic_core_schema__(
        self, source: object, handler: object
    ) -> core_schema.CoreSchema:
        """Schema of a field that is annotated with these tables: a table of any of the classes."""
        return core_schema.no_info_plain_validator_function(self._parsed)

    def _parsed(self, content: object) -> _T:
        """The table that a mapping declares by its key `name`. Raises ValidationError."""
        if isinstance(content, Declared) and content.tables is self:
            return cast("_T", content)
        table = cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}
        name = table.get("name")
        known = name if isinstance(name, str) and name in self else next(iter(self))
        return _validator(self[known]).validate_python(content)


@cache
def _validator(kind: type[Declared]) -> SchemaValidator:
    """A validator whose errors name the class, like the errors of a tagged union."""
    choice = core_schema.no_info_plain_validator_function(kind.model_validate)
    name: str = get_args(kind.model_fields["name"].annotation)[0]
    return SchemaValidator(core_schema.tagged_union_schema({name: choice}, "name"))


_C = TypeVar("_C", bound="Choice")
_SMALLEST, _LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


class Choice(Declared):
    """A table of a training that names a registered class."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key, value in self.arguments.items():
            check_number(key, value)
        self.check()
        return self

    def check(self) -> None:
        """Raise ValueError if the constructor refuses the values."""
        self.declares(**self.arguments)


class OptimizerTable(Choice):
    """An optimiser, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[OptimizerTable]]

    def build(self) -> MakeOptimizer:
        make: Any = self.declares
        if issubclass(self.declares, torch.optim.Optimizer):
            return lambda parameters, lr: make(parameters, lr=lr, **self.arguments)
        return make(**self.arguments)

    def check(self) -> None:
        if issubclass(self.declares, torch.optim.Optimizer):
            self.build()([nn.Parameter(torch.ones(2, 2))], 1e-3)
        else:
            super().check()

    @property
    def cycles_momentum(self) -> bool:
        """Whether the schedule 1cycle also sets the momentum."""
        return bool(getattr(self.declares, "cycles_momentum", False))


class ScheduleTable(Choice):
    """A learning rate schedule, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[ScheduleTable]]

    def build(self) -> Schedule:
        return self.declares(**self.arguments)


class LossTable(Choice):
    """A loss, given by its name and the arguments of its constructor."""

    tables: ClassVar[Tables[LossTable]]

    def check(self) -> None:
        for key, value in self.arguments.items():
            if isinstance(value, float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
                raise ValueError(
                    f"{key} must be 0, or between {_SMALLEST:.2g} and {_LARGEST:.2g} in size, as "
                    f"float32 requires, got {value}"
                )
        super().check()

    def build(self) -> Loss:
        return self.declares(**self.arguments)


def _declared(base: type[_C], kind: str, name: str, registered: type) -> type[_C]:
    where = f"{kind} {name}: {registered.__qualname__}"
    of_torch = issubclass(registered, torch.optim.Optimizer)
    return declared(base, where, name, registered, {}, ("params", "lr") if of_torch else ())


OptimizerTable.tables = Tables(OPTIMIZERS, partial(_declared, OptimizerTable, "optimizer"))
ScheduleTable.tables = Tables(SCHEDULES, partial(_declared, ScheduleTable, "schedule"))
LossTable.tables = Tables(LOSSES, partial(_declared, LossTable, "loss"))

OptimizerSpec = Annotated[OptimizerTable, OptimizerTable.tables]
ScheduleSpec = Annotated[ScheduleTable, ScheduleTable.tables]
LossSpec = Annotated[LossTable, LossTable.tables]


_FILLS = {  # functions that draw values of weights or set them
    *(getattr(torch.Tensor, f"{name}_") for name in ("normal", "uniform", "fill", "zero")),
    *(getattr(torch.nn.init, name) for name in dir(torch.nn.init)
      if name.endswith("_") and not name.startswith("_")),
}  # fmt: skip
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
        with torch.random.fork_rng(devices=[]), torch.device("meta"), _Unfilled():
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

    def suited(self, domain: Domain) -> dict[str, object]:
        """Settings in place of those that a domain does not allow. See `Operator.suited`."""
        return self.operator.suited(self.arguments, domain)

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


class _Unfilled(TorchFunctionMode):
    """Tensors on the device meta, which have no values, are not filled: this would take half of the
    time in which their operator is built. The first call of a function with some arguments is made,
    so that impossible arguments are refused."""

    def __init__(self) -> None:
        super().__init__()
        self._made = set[tuple[object, ...]]()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        filled = args[0] if args else kwargs.get("tensor")
        if func not in _FILLS or not isinstance(filled, torch.Tensor) or not filled.is_meta:
            return func(*args, **kwargs)
        call = (func, filled.dim(), str(args[1:]), str({**kwargs, "tensor": None}))
        if call not in self._made:
            func(*args, **kwargs)
            self._made.add(call)
        return filled


def _declared_model(name: str, registered: Registered) -> type[Model]:
    """Create the table class of an operator."""
    operator, where = registered.operator, f"operator {name}: {registered.operator.__qualname__}"
    parameters = inspect.signature(operator).parameters
    if lacking := [key for key in _FROM_DATA[:2] if key not in parameters]:
        raise SchemaError(f"{where} lacks the argument {' and '.join(lacking)}, which the data set")
    kind = declared(Model, where, name, operator, registered.words, _FROM_DATA)
    kind.operator = operator
    return kind


MODELS = Model.tables = Tables(OPERATORS, _declared_model)
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
