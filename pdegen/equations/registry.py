"""The equations that recipes may name: rooms of the project, installed packages, files of a user.

The room `pdegen/equations/NAME/` registers the equation NAME when its module `problem` is imported,
an installed package when its entry point `NAME` of the group `pdegen.equations` is loaded. Both are
imported when a recipe names them. A file is run only where a user names it (`load_file`); neither
a store nor a recipe can.
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
_ROOMS = Path(__file__).parent
_MOST_BYTES = 2**22  # of a file
_P = TypeVar("_P", bound="type[Problem]")
_registered: dict[str, type[Problem]] = {}
_sources: dict[str, EquationFile] = {}  # of modules made of files, by their names
_lock = RLock()


def equation(problem: _P) -> _P:
    """Registers a problem under the one word that its field `equation` takes.

    Raises:
        SchemaError: If it has no such field, lacks a member, or another problem has that word.

    >>> from pdegen.equations.burgers.problem import Burgers
    >>> equation(Burgers) is find("burgers")
    True
    """
    word, module = equation_name_of(problem), problem.__module__
    if lacking := sorted(problem.__abstractmethods__):
        raise SchemaError(
            f"{problem.__qualname__} lacks {', '.join(lacking)}: an equation must define "
            f"{'them' if len(lacking) > 1 else 'it'}"
        )
    with _lock:
        there = _registered.get(word)
        origin = there.__module__ if there is not None else _room(word) if _is_shipped(word) else ""
        source, own = _sources.get(origin), _sources.get(module)
        edited = source is not None and own is not None and source.path == own.path
        if origin and origin != module and not edited:
            where = f"comes from {source.path}" if source else "is known already"
            raise SchemaError(f"the equation {word} {where}: choose another name")
        _registered[word] = problem
        known_keys.cache_clear()  # recipes may have the keys of the equation from now on
    return problem


def equation_name_of(problem: type[Problem]) -> str:
    """How recipes name a problem. Raises SchemaError if its field `equation` does not take exactly
    one word."""
    field = problem.model_fields.get("equation")
    words = get_args(field.annotation) if field is not None else ()
    if len(words) != 1 or not isinstance(words[0], str):
        raise SchemaError(
            f'{problem.__qualname__} needs the field equation: Literal["name"], its name in recipes'
        )
    return words[0]


def names() -> list[str]:
    """All equations that recipes may name here."""
    installed = _installed(*sys.path).names
    return list(dict.fromkeys([*_shipped(), *_registered, *sorted(installed)]))


def find(word: str) -> type[Problem] | None:
    """The problem of a word; None where there is none. Raises SchemaError if an installed package
    says that it has it, and has not."""
    if word not in _registered and _is_shipped(word):
        import_module(_room(word))
    elif word not in _registered:
        for point in _installed(*sys.path).select(name=word):
            try:
                point.load()
            except Exception as error:  # of somebody else's package
                said = str(error).partition("\n")[0]
                raise SchemaError(f"equation {word} of {point.value}: {said}") from error
            if word not in _registered:
                raise SchemaError(f"equation {word}: {point.value} does not register it")
    return _registered.get(word)


def registered_problems() -> tuple[type[Problem], ...]:
    """The problems of the project, and those that were registered from elsewhere."""
    # not by `names`, which reads the entry points of every installed package
    words = _shipped()
    for word in words:
        find(word)
    known = dict.fromkeys([*words, *_registered])
    return tuple(_registered[word] for word in known if word in _registered)


def _shipped() -> list[str]:
    """The equations of the project."""
    rooms = (m.name for m in pkgutil.iter_modules([str(_ROOMS)]) if m.ispkg)
    return sorted(name.replace("_", "-") for name in rooms)


@lru_cache(maxsize=1)
def _installed(*path: str) -> EntryPoints:
    """What packages in these folders register; to find them takes longer than to parse a recipe."""
    return entry_points(group=GROUP)


def _room(word: str) -> str:
    return f"{__package__}.{word.replace('-', '_')}.problem"


def _is_shipped(word: str) -> bool:
    name = word.replace("-", "_")
    return name.isidentifier() and (_ROOMS / name / "problem.py").is_file()


class RegisteredProblem:
    """The annotation of a field that is a problem of any registered equation."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(problem_from_table)


def problem_from_table(content: object) -> Problem:
    """The problem that a table declares, by its key `equation`. Raises ValidationError if it names
    no equation, or declares what cannot be."""
    if not isinstance(content, Mapping):
        if type(content) in _registered.values():
            return cast(Problem, content)
        raise _refused({"type": "dict_type", "input": content})
    table = cast(Mapping[str, object], content)
    word = table.get("equation")
    problem = find(word) if isinstance(word, str) else None
    if problem is not None:
        return _validator(problem).validate_python(content)
    said = "is missing" if "equation" not in table else f"unknown {brief(word)}"
    hint = f"{said}, known: {', '.join(names())}; one of your own needs --equation FILE.py"
    raise _refused(
        {
            "type": "value_error",
            "loc": ("equation",),
            "input": word,
            "ctx": {"error": ValueError(hint)},
        }
    )


@cache
def _validator(problem: type[Problem]) -> SchemaValidator:
    """Errors of it name the equation, as those of a union do."""
    choice = core_schema.no_info_plain_validator_function(problem.model_validate)
    return SchemaValidator(
        core_schema.tagged_union_schema({equation_name_of(problem): choice}, "equation")
    )


def _refused(*errors: InitErrorDetails) -> ValidationError:
    return ValidationError.from_exception_data("Problem", list(errors))


# equations in files


@dataclass(frozen=True)
class EquationFile:
    """A file with equations."""

    path: str  # where it lay
    code: bytes  # its bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.code).hexdigest()

    def attributes(self) -> dict[str, str]:
        """What a store says of it."""
        return {"name": Path(self.path).name, "sha256": self.digest}

    @property
    def module(self) -> str:
        """The name of the module that is made of it: one for each content."""
        return f"pdegen_equation_{self.digest[:16]}"

    @property
    def registered(self) -> bool:
        """Whether equations of it are known in this process."""
        return any(problem.__module__ == self.module for problem in _registered.values())

    def run(self) -> ModuleType:
        """The module, whose equations are registered; run once in each process. Raises SchemaError
        if the code raises an error."""
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
    """Run a Python file that registers equations. Only a user's own word may lead here. Raises
    SchemaError if it cannot be read or raises an error, registers no equation, or one whose name is
    taken."""
    try:
        with open(path, "rb") as file:
            code = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        said = message_of(error) if isinstance(error, OSError) else brief(path)
        raise SchemaError(f"cannot read {said}") from None
    if len(code) > _MOST_BYTES:
        raise SchemaError(f"{path} has more than {_MOST_BYTES:,} bytes: it is no equation")
    source = EquationFile(str(Path(path).absolute()), code)
    if not source.registered:  # another version of the file may have taken its place
        _sources.pop(source.module, None)
    source.run()
    if not source.registered:
        raise SchemaError(f"{path} registers no equation: decorate its problem with @equation")


def equation_file_of(problem: type[Problem]) -> EquationFile | None:
    """The file that a problem comes from; None for those of packages."""
    return _sources.get(problem.__module__)


def path_of_equation(problem: type[Problem]) -> str | None:
    """The file of an equation that the project does not ship; None for those that it ships."""
    if source := equation_file_of(problem):
        return source.path
    if problem.__module__.startswith(f"{__package__}."):
        return None
    return getattr(sys.modules.get(problem.__module__), "__file__", None)


def error_in_equation_file(error: BaseException) -> str | None:
    """The line of an equation's own file where an error arose, and what it says; None for errors
    that arose elsewhere."""
    for path in dict.fromkeys(map(path_of_equation, _registered.values())):
        if path is not None and (line := line_of_error(error, path)):
            return f"{path}{line}: {error_summary(error)}"
    return None


def equation_files() -> tuple[EquationFile, ...]:
    """The files of the equations that are registered in this process."""
    return tuple(source for source in _sources.values() if source.registered)


def unpickled(source: EquationFile, name: str, content: dict[str, Any]) -> Problem:
    """A problem of a file in a process that it was sent to. The code travels with it: a worker may
    have another disk, or has served another version of the file, and then has both."""
    with _lock:
        if source.module not in _sources:
            for module in list(_sources):
                _forget(module)
        problem: type[Problem] = getattr(source.run(), name)
    return problem.model_validate(content)


def _forget(module: str) -> None:
    for word, problem in list(_registered.items()):
        if problem.__module__ == module:
            del _registered[word]


def line_of_error(error: BaseException, path: str) -> str:
    """Where in a file an error arose, ", line 3"; empty where that is elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno}"
    frames, found = error.__traceback__, ""
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == path:
            found = f", line {frames.tb_lineno}"
        frames = frames.tb_next
    return found


def error_summary(error: BaseException) -> str:
    """The kind and the first line of an error."""
    if isinstance(error, ValidationError):
        return explained(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
