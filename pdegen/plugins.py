"""Python files of users. They register equations, operators, optimisers, schedules or losses.

A file is run only if the user names it (`load_plugin`), and in the worker processes of the process
in which it ran. Neither a store, a recipe, an experiment nor a checkpoint can make a file run.

A registered class belongs to a file if its `__module__` is the module of the file. The registries
are the mappings REGISTRIES of the modules in `_MODULES`. This module finds them in `sys.modules`,
because a registry that is not imported has no entries, and pdegen does not need operators.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Collection, MutableMapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from pdegen.files import message_of
from pdegen.schema import SchemaError, brief, explained, known_keys

Registry = MutableMapping[str, Any]

_MODULES = ("pdegen.equations.base", "operators.registry")  # modules with REGISTRIES
_SHIPPED = ("pdegen.", "operators.")  # beginnings of the names of modules of the project
_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(f"{_ROOT / name}{os.sep}" for name in ("pdegen", "operators", "pipelines"))
_PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages
_FORMER = {  # modules that pages named for users' files before, and where their names are now
    "pdegen.checks.modes": "pdegen.checks.gaussian",
    "pdegen.equations.registry": "pdegen.equations.base",
    "pdegen.store.variables": "pdegen.store.layout",
}
_MOST_BYTES = 2**22  # of a file
_files: dict[str, _Run] = {}  # the files that this process has run, by name of the module
_lock = RLock()


@dataclass(frozen=True)
class PluginFile:
    """A Python file that registers classes."""

    path: str  # absolute path at the time it was read
    code: bytes  # content

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the file with its code. The process that receives the pickle runs the code."""
        return _received, (self.path, self.code)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.code).hexdigest()

    def attributes(self) -> dict[str, str]:
        """The name of the file and its digest, as stores and checkpoints record them."""
        return {"name": Path(self.path).name, "sha256": self.digest}

    @property
    def module(self) -> str:
        """Name of the module in which the file runs; the name depends on the content."""
        return f"pdegen_plugin_{self.digest[:16]}"


@dataclass(frozen=True)
class _Run:
    """A file that was run, its module, and what it registered: name and entry, by registry."""

    file: PluginFile
    module: ModuleType
    entries: dict[str, dict[str, Any]]

    @property
    def active(self) -> bool:
        """Whether all entries of the file are registered."""
        registries = _registries()
        return all(
            registries[kind].get(name) is entry
            for kind, entries in self.entries.items()
            for name, entry in entries.items()
        )

    def withdraw(self) -> None:
        """Remove the entries of the file from the registries."""
        registries = _registries()
        for kind, entries in self.entries.items():
            for name, entry in entries.items():
                if registries[kind].get(name) is entry:
                    del registries[kind][name]

    def restore(self) -> None:
        """Register the entries of the file whose names are free."""
        registries = _registries()
        for kind, entries in self.entries.items():
            for name, entry in entries.items():
                registries[kind].setdefault(name, entry)


def load_plugin(path: str) -> PluginFile:
    """Run a Python file that registers classes. Call it only for a path that the user names.

    An edited file takes the place of the version that was loaded from the same path before. What
    the file prints goes to stderr.

    Raises SchemaError if the file cannot be read, raises an error, registers nothing, or registers
    a name that another class has.
    """
    try:
        with open(path, "rb") as opened:
            code = opened.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        fault = message_of(error) if isinstance(error, OSError) else brief(path)
        raise SchemaError(f"cannot read {fault}") from None
    if len(code) > _MOST_BYTES:
        raise SchemaError(
            f"{path} has more than {_MOST_BYTES:,} bytes, which is too large for a plugin"
        )
    file = PluginFile(str(Path(path).absolute()), code)
    with _lock:
        _activate(file, lambda other: other.path == file.path)
    return file


def plugin_of(registered: type) -> PluginFile | None:
    """The file that registered a class; None for classes of packages."""
    run = _files.get(registered.__module__)
    return None if run is None else run.file


def loaded_plugins() -> tuple[PluginFile, ...]:
    """The files whose classes are registered in this process."""
    return tuple(run.file for run in list(_files.values()) if run.active)


def module_of(file: PluginFile) -> ModuleType:
    """The module in which a file was run in this process."""
    return _files[file.module].module


def path_of(registered: type) -> str | None:
    """Path of the Python file of a registered class; None for the classes of the project."""
    if (file := plugin_of(registered)) is not None:
        return file.path
    if registered.__module__.startswith(_SHIPPED):
        return None
    return getattr(sys.modules.get(registered.__module__), "__file__", None)


def error_in_plugin(error: BaseException) -> str | None:
    """Path, line and message of an error in the file of a user's or a package's registered class.

    None if the error arose elsewhere.
    """
    classes = [_class(e) for entries in _registries().values() for e in entries.values()]
    for path in dict.fromkeys(map(path_of, classes)):
        if path is not None and (line := line_of_error(error, path)):
            return f"{path}{line}: {error_summary(error)}"
    return None


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


def _registries() -> dict[str, Registry]:
    """The registries of all kinds that are imported, by kind."""
    registries = dict[str, Registry]()
    for name in _MODULES:
        module = sys.modules.get(name)
        registries.update(getattr(module, "REGISTRIES", {}))
    return registries


def _class(entry: Any) -> type:
    """The class of an entry: the entry itself, or its attribute `registered`."""
    return entry if isinstance(entry, type) else entry.registered


def _received(path: str, code: bytes) -> PluginFile:
    """Rebuilds a file, in the process that received its pickle, and runs it."""
    file = PluginFile(path, code)
    with _lock:
        others = [run for run in _files.values() if run.active and run.file.module != file.module]
        _activate(file, lambda other: True)
        for run in others:
            run.restore()
    return file


def _activate(file: PluginFile, displaced: Callable[[PluginFile], bool]) -> None:
    """Register the classes of a file after those of the displaced files are withdrawn."""
    run = _files.get(file.module)
    if run is not None and run.active:
        return
    withdrawn = [other for other in _files.values() if other.active and displaced(other.file)]
    for other in withdrawn:
        other.withdraw()
    try:
        if run is None:
            _files[file.module] = _run(file)
        else:
            _register_again(run)
    except BaseException:
        for other in withdrawn:
            other.restore()
        raise
    finally:
        known_keys.cache_clear()  # declarations may have the keys of the classes from now on


def _register_again(run: _Run) -> None:
    """Register the entries of a file that was run before. Raises SchemaError if a name is taken."""
    registries = _registries()
    for kind, entries in run.entries.items():
        for name, entry in entries.items():
            earlier = registries[kind].get(name)
            if earlier is not None and earlier is not entry:
                raise SchemaError(
                    f"{run.file.path}: {describe_conflict(kind, name, _class(earlier))}"
                )
    run.restore()


def describe_conflict(kind: str, name: str, registered: type) -> str:
    """The message about a name that another class has."""
    file = plugin_of(registered)
    conflict = "is registered already" if file is None else f"comes from {file.path}"
    return f"the {kind} {name} {conflict}: choose another name"


def _run(file: PluginFile) -> _Run:
    """Run a file in a new module."""
    before = set(sys.modules)
    module = ModuleType(file.module)
    module.__file__, module.__package__ = file.path, ""  # it is in no package
    module.__dict__["__plugin__"] = file.attributes()
    sys.modules[file.module] = module
    _files[file.module] = _Run(file, module, {})  # the classes of the file belong to it already
    try:
        for former, name in _FORMER.items():  # an edited file would have another SHA-256
            if former.encode() in file.code:
                sys.modules.setdefault(former, import_module(name))
        with redirect_stdout(sys.stderr):
            exec(compile(file.code, file.path, "exec"), vars(module))
        if (imported := _beside(file, module, before)) is not None:
            raise SchemaError(
                f"imports {imported}, whose changes would not be noticed: put the code into one "
                "file, or install it as a package"
            )
        run = _Run(file, module, _entries(file))
        if not run.entries:
            raise SchemaError(
                "registers nothing of its own: decorate an equation with @equation, or call "
                "register, register_optimizer, register_schedule or register_loss"
            )
    except BaseException as error:
        _Run(file, module, _entries(file)).withdraw()
        del sys.modules[file.module], _files[file.module]
        if isinstance(error, SchemaError):
            raise SchemaError(f"{file.path}: {error}") from error
        if isinstance(error, KeyboardInterrupt):
            raise
        line = line_of_error(error, file.path)
        raise SchemaError(f"{file.path}{line}: {error_summary(error)}") from error
    return run


def _beside(file: PluginFile, module: ModuleType, before: Collection[str]) -> str | None:
    """Path of a module below the folder of a file that the file imports; None if there is none."""
    names = [name for name in list(sys.modules) if name not in before]
    for node in ast.walk(ast.parse(file.code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    # a file may lie below the folder by a link, and the plugin itself may be one
    folders = tuple(
        os.path.dirname(to(file.path)) + os.sep for to in (os.path.realpath, os.path.abspath)
    )
    held = [value for value in vars(module).values() if isinstance(value, ModuleType)]
    paths = [getattr(value, "__file__", None) for value in held]
    paths += [_origin(name) for name in names if name != file.module]
    standard = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
    for path in filter(None, paths):
        real = os.path.realpath(path)
        below = real.startswith(folders) or os.path.abspath(path).startswith(folders)
        installed = real.startswith(standard) or _PACKAGES.intersection(real.split(os.sep))
        if below and not real.startswith(_OURS) and not installed:
            return real
    return None


def _origin(name: str) -> str | None:
    """Path of the file of a module, or of the package that an import would run; None without it."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    try:
        spec = find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return None
    return None if spec is None or not spec.has_location else spec.origin


def _entries(file: PluginFile) -> dict[str, dict[str, Any]]:
    """The entries of the registries whose classes belong to a file."""
    return {
        kind: own
        for kind, entries in _registries().items()
        if (own := {n: e for n, e in entries.items() if _class(e).__module__ == file.module})
    }
