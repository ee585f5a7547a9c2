"""The registry of equations: those of the project, of installed packages and of a user's files.

The package `pdegen/equations/NAME/` registers the equation NAME when its module `problem` is
imported. An installed package registers it when its entry point `NAME` of the group
`pdegen.equations` is loaded. The module or the entry point is loaded when a recipe names the
equation. A file is run only if the user names it (`load_file`); neither a store nor a recipe can
make it run.
"""

from __future__ import annotations

import hashlib
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, SchemaValidator, core_schema

from pdegen.errors import message_of
from pdegen.schema import SchemaError, brief, explained, known_keys

if TYPE_CHECKING:
    from pdegen.equations.base import Problem

GROUP = "pdegen.equations"  # of entry points
_SHIPPED = Path(__file__).parent  # the folder of the project's equations
_MOST_BYTES = 2**22  # of a file
_P = TypeVar("_P", bound="type[Problem]")
_registered: dict[str, type[Problem]] = {}
_sources: dict[str, EquationFile] = {}  # the files of modules, by the names of the modules
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
        earlier = _registered.get(name)
        if earlier is not None:
            origin = earlier.__module__
        else:
            origin = _module(name) if _is_shipped(name) else ""
        source, new_source = _sources.get(origin), _sources.get(module)
        edited = source is not None and new_source is not None and source.path == new_source.path
        if origin and origin != module and not edited:
            conflict = f"comes from {source.path}" if source else "is registered already"
            raise SchemaError(f"the equation {name} {conflict}: choose another name")
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
    hint = f"{fault}, known: {', '.join(names())}; one of your own needs --equation FILE.py"
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


# equations in files


@dataclass(frozen=True)
class EquationFile:
    """A Python file that registers equations."""

    path: str  # absolute path at the time it was read
    code: bytes  # content

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.code).hexdigest()

    def attributes(self) -> dict[str, str]:
        """The attributes that describe the file in a store: its name and its digest."""
        return {"name": Path(self.path).name, "sha256": self.digest}

    @property
    def module(self) -> str:
        """Name of the module in which the file runs; the name depends on the content."""
        return f"pdegen_equation_{self.digest[:16]}"

    @property
    def registered(self) -> bool:
        """Whether an equation of the file is registered in this process."""
        return any(problem.__module__ == self.module for problem in _registered.values())

    def run(self) -> ModuleType:
        """Runs the file, unless this process has run it already, and returns its module.

        The code registers the equations of the file. Raises SchemaError if the code raises an
        error.
        """
        with _lock:
            if self.module in _sources:
                return sys.modules[self.module]
            module = ModuleType(self.module)
            module.__file__ = self.path
            sys.modules[self.module], _sources[self.module] = module, self
            try:
                exec(compile(self.code, self.path, "exec"), vars(module))
            except BaseException as error:
                del sys.modules[self.module], _sources[self.module]
                _forget(self.module)
                if isinstance(error, SchemaError):
                    raise SchemaError(f"{self.path}: {error}") from error
                if not isinstance(error, Exception):
                    raise
                raise SchemaError(
                    f"{self.path}{line_of_error(error, self.path)}: {error_summary(error)}"
                ) from error
            return module


def load_file(path: str) -> None:
    """Run a Python file that registers equations. Call it only for a path that the user names.

    Raises SchemaError if the file cannot be read, raises an error, registers no equation, or
    registers a name that another equation has.
    """
    try:
        with open(path, "rb") as file:
            code = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        fault = message_of(error) if isinstance(error, OSError) else brief(path)
        raise SchemaError(f"cannot read {fault}") from None
    if len(code) > _MOST_BYTES:
        raise SchemaError(f"{path} has more than {_MOST_BYTES:,} bytes: it is no equation file")
    source = EquationFile(str(Path(path).absolute()), code)
    if not source.registered:  # another version of the file may have taken its place
        _sources.pop(source.module, None)
    source.run()
    if not source.registered:
        raise SchemaError(f"{path} registers no equation: decorate its problem with @equation")


def equation_file_of(problem: type[Problem]) -> EquationFile | None:
    """The file that registered a problem; None for problems of packages."""
    return _sources.get(problem.__module__)


def path_of_equation(problem: type[Problem]) -> str | None:
    """Path of the Python file of an equation; None for the equations of the project."""
    if source := equation_file_of(problem):
        return source.path
    if problem.__module__.startswith(f"{__package__}."):
        return None
    return getattr(sys.modules.get(problem.__module__), "__file__", None)


def error_in_equation_file(error: BaseException) -> str | None:
    """Path, line and message of an error in the file of a user's or a package's equation.

    None if the error arose elsewhere.
    """
    for path in dict.fromkeys(map(path_of_equation, _registered.values())):
        if path is not None and (line := line_of_error(error, path)):
            return f"{path}{line}: {error_summary(error)}"
    return None


def equation_files() -> tuple[EquationFile, ...]:
    """The files of the equations that are registered in this process."""
    return tuple(source for source in _sources.values() if source.registered)


def unpickled(source: EquationFile, name: str, content: dict[str, Any]) -> Problem:
    """Rebuilds a problem of an equation file, in the process that received its pickle.

    The pickle includes the code of the file, because this process may have another disk, or may
    have run another version of the file before.
    """
    with _lock:
        if source.module not in _sources:
            for module in list(_sources):
                _forget(module)
        problem: type[Problem] = getattr(source.run(), name)
    return problem.model_validate(content)


def _forget(module: str) -> None:
    for name, problem in list(_registered.items()):
        if problem.__module__ == module:
            del _registered[name]


def line_of_error(error: BaseException, path: str) -> str:
    """The line of a file where an error arose, such as ", line 3"; empty if it arose elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno}"
    frames, line = error.__traceback__, ""
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == path:
            line = f", line {frames.tb_lineno}"
        frames = frames.tb_next
    return line


def error_summary(error: BaseException) -> str:
    """The kind and the first line of an error."""
    if isinstance(error, ValidationError):
        return explained(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
