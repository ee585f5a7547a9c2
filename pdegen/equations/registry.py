"""The registry of equations: those of the project, of installed packages and of a user's files.

The package `pdegen/equations/NAME/` registers the equation NAME when its module `problem` is
imported. An installed package registers it when its entry point `NAME` of the group
`pdegen.equations` is loaded. The module or the entry point is loaded when a recipe names the
equation. A user's file registers it when it is run (`pdegen.plugins`).
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, SchemaValidator, core_schema

from pdegen.plugins import Registry, describe_conflict
from pdegen.schema import SchemaError, brief, known_keys

if TYPE_CHECKING:
    from pdegen.equations.base import Problem

GROUP = "pdegen.equations"  # of entry points
_SHIPPED = Path(__file__).parent  # the folder of the project's equations
_P = TypeVar("_P", bound="type[Problem]")
_registered: dict[str, type[Problem]] = {}
REGISTRIES: dict[str, Registry] = {"equation": _registered}
_lock = RLock()


def equation(problem: _P) -> _P:
    """Registers a problem under the name that its field `equation` accepts.

    Raises:
        SchemaError: If the problem has no such field, if it lacks a member, or if another problem
            has the name.

    >>> from pdegen.equations.burgers.problem import Burgers
    >>> equation(Burgers) is find("burgers")
    True
    """
    name, module = equation_name_of(problem), problem.__module__
    if lacking := sorted(problem.__abstractmethods__):
        raise SchemaError(
            f"{problem.__qualname__} lacks {', '.join(lacking)}: an equation must define "
            f"{'them' if len(lacking) > 1 else 'it'}"
        )
    with _lock:
        if name not in _registered and _is_shipped(name):
            import_module(_module(name))
        earlier = _registered.get(name)
        if earlier is not None and earlier.__module__ != module:
            raise SchemaError(describe_conflict("equation", name, earlier))
        _registered[name] = problem
        known_keys.cache_clear()  # recipes may have the keys of the equation from now on
    return problem


def equation_name_of(problem: type[Problem]) -> str:
    """The name of a problem's equation in recipes.

    Raises SchemaError if the field `equation` does not accept exactly one string.
    """
    field = problem.model_fields.get("equation")
    literals = get_args(field.annotation) if field is not None else ()
    if len(literals) != 1 or not isinstance(literals[0], str):
        raise SchemaError(
            f'{problem.__qualname__} needs the field equation: Literal["name"], its name in recipes'
        )
    return literals[0]


def names() -> list[str]:
    """Names of all equations that recipes may use in this process."""
    installed = _installed(*sys.path).names
    return list(dict.fromkeys([*_shipped(), *_registered, *sorted(installed)]))


def find(name: str) -> type[Problem] | None:
    """The problem class of the equation with this name; None if the name is unknown.

    Raises SchemaError if an installed package declares the equation but cannot be loaded or does
    not register it.
    """
    if name not in _registered and _is_shipped(name):
        import_module(_module(name))
    elif name not in _registered:
        for point in _installed(*sys.path).select(name=name):
            try:
                point.load()
            except Exception as error:  # raised by code outside the project
                first_line = str(error).partition("\n")[0]
                raise SchemaError(f"equation {name} of {point.value}: {first_line}") from error
            if name not in _registered:
                raise SchemaError(f"equation {name}: {point.value} does not register it")
    return _registered.get(name)


def registered_problems() -> tuple[type[Problem], ...]:
    """The problems of the project, and those that packages and files have registered so far."""
    # `names` would read the entry points of every installed package
    shipped = _shipped()
    for name in shipped:
        find(name)
    ordered = dict.fromkeys([*shipped, *_registered])
    return tuple(_registered[name] for name in ordered if name in _registered)


def _shipped() -> list[str]:
    """Names of the equations of the project."""
    packages = (m.name for m in pkgutil.iter_modules([str(_SHIPPED)]) if m.ispkg)
    return sorted(name.replace("_", "-") for name in packages)


@lru_cache(maxsize=1)
def _installed(*path: str) -> EntryPoints:
    """Entry points of the group `pdegen.equations`, for the folders of `sys.path`.

    They are cached, because the search takes longer than parsing a recipe.
    """
    return entry_points(group=GROUP)


def _module(name: str) -> str:
    return f"{__package__}.{name.replace('-', '_')}.problem"


def _is_shipped(name: str) -> bool:
    package = name.replace("-", "_")
    return package.isidentifier() and (_SHIPPED / package / "problem.py").is_file()


class RegisteredProblem:
    """Annotation of a Pydantic field whose value is a problem of any registered equation."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(problem_from_table)


def problem_from_table(content: object) -> Problem:
    """The problem that a table declares by its key `equation`.

    Raises ValidationError if the equation is missing or unknown, or if a value is invalid.
    """
    if not isinstance(content, Mapping):
        if type(content) in _registered.values():
            return cast(Problem, content)
        raise _refused({"type": "dict_type", "input": content})
    table = cast(Mapping[str, object], content)
    name = table.get("equation")
    problem = find(name) if isinstance(name, str) else None
    if problem is not None:
        return _validator(problem).validate_python(content)
    fault = "is missing" if "equation" not in table else f"unknown {brief(name)}"
    hint = f"{fault}, known: {', '.join(names())}; one of your own needs --plugin FILE.py"
    raise _refused(
        {
            "type": "value_error",
            "loc": ("equation",),
            "input": name,
            "ctx": {"error": ValueError(hint)},
        }
    )


@cache
def _validator(problem: type[Problem]) -> SchemaValidator:
    """A validator whose errors name the equation, like the errors of a tagged union."""
    choice = core_schema.no_info_plain_validator_function(problem.model_validate)
    return SchemaValidator(
        core_schema.tagged_union_schema({equation_name_of(problem): choice}, "equation")
    )


def _refused(*errors: InitErrorDetails) -> ValidationError:
    return ValidationError.from_exception_data("Problem", list(errors))
