"""Tables whose keys are the arguments of registered classes: operators, optimisers, schedules,
losses.

A class that is registered later, for example by a user's file, is known from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import (
    PydanticUserError,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic_core import SchemaValidator, core_schema

from pdegen.schema import SchemaError, Strict, known_keys

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
