"""Classes of users: from installed packages by entry points, and from files of the option --plugin.

`pdegen.plugins` runs the files. It leaves the name and the SHA-256 of a file in the attribute
`__plugin__` of its module. Checkpoints record both, and are loaded only with the same file.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_QUOTES_AND_SEPARATORS = re.compile("[/\\\\\"'`]")  # not in recorded names of files


class EntryPointError(ValueError):
    """An installed package declares a class but does not provide it. The message is one line."""

    exit_status = 2


class Registry(dict[str, T]):
    """A dictionary from names to classes of one kind, which installed packages can extend.

    A package declares a class by an entry point, which is loaded at the first look-up of its name.
    The entry point is either the class, or a module that registers the class. Iteration yields the
    names that are registered so far. `known` also has the names that packages declare.

    Args:
        kind: Kind of the classes: operator, optimizer, schedule or loss.
        entry: Function from a class to its entry in the dictionary.
        shipped: Module that registers the classes of the project, if the module of the registry
            does not. It is imported before the first class of a user is registered. The names of
            the project are then taken.

    Raises:
        EntryPointError: If an entry point fails when its name is looked up.
    """

    def __init__(self, kind: str, entry: Callable[[type[Any]], T], shipped: str = "") -> None:
        super().__init__()
        self.kind, self._entry, self._shipped = kind, entry, shipped

    @property
    def group(self) -> str:
        """Group of the entry points."""
        return f"pdegen.{self.kind}{'es' if self.kind.endswith('s') else 's'}"

    def add(self, name: str, entry: T) -> None:
        """Register an entry. Raises ValueError if the name is registered."""
        if self._shipped and not getattr(entry, "__module__", "").startswith("operators."):
            import_module(self._shipped)
        if super().__contains__(name):
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise ValueError(f"{article} {self.kind} named {name!r} is already registered")
        self[name] = entry

    @property
    def known(self) -> list[str]:
        """All names: the registered ones, and those that installed packages declare."""
        return list(dict.fromkeys([*self, *sorted(_installed(self.group, *sys.path).names)]))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._load(name))

    def __missing__(self, name: str) -> T:
        if not self._load(name):
            raise KeyError(name)
        return self[name]

    def _load(self, name: str) -> bool:
        """Load the entry point of a name. Returns whether there is one."""
        for point in _installed(self.group, *sys.path).select(name=name):
            where = f"{self.kind} {name} of {point.value}"
            try:
                loaded = point.load()
            except Exception as error:  # raised by code outside the project
                first = str(error).partition("\n")[0]
                raise EntryPointError(f"{where}: {type(error).__name__}: {first}") from error
            if not super().__contains__(name):
                if not isinstance(loaded, type):
                    raise EntryPointError(f"{where}: its module does not register it")
                self[name] = self._entry(loaded)
            return True
        return False


@lru_cache(maxsize=8)
def _installed(group: str, *path: str) -> EntryPoints:
    """Entry points of a group, for the folders of `sys.path`. The search takes milliseconds."""
    return entry_points(group=group)


def file_of(registered: type) -> dict[str, str] | None:
    """The name and the SHA-256 of the file, run by --plugin, that a class belongs to.

    In the name, "_" takes the place of quotes, separators and control characters.
    """
    file = getattr(sys.modules.get(registered.__module__), "__plugin__", None)
    if file is None:
        return None
    name = "".join(c if c.isprintable() else "_" for c in file["name"])
    return {**file, "name": _QUOTES_AND_SEPARATORS.sub("_", name)}


def recorded_file(record: Mapping[str, Any], kind: str) -> Mapping[str, str] | None:
    """The entry of a file in a checkpoint or a run, for a kind of class; None if there is none.

    Raises ValueError if the entry is malformed. The name may have no quotes, separators or control
    characters, because copies, commands and cards are named after it.
    """
    files = record.get("plugins", {})
    file = files.get(kind) if isinstance(files, Mapping) else files
    if file is None:
        return None
    if not isinstance(file, Mapping) or not all(
        isinstance(file.get(key), str) for key in ("name", "sha256")
    ):
        raise ValueError(f"its entry plugins has no name and sha256 of a file for the {kind}")
    name, digest = file["name"], file["sha256"]
    if not name or not name.isprintable() or _QUOTES_AND_SEPARATORS.search(name):
        raise ValueError(f"its entry plugins has an invalid file name: {name!r}")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"its entry plugins has an invalid sha256: {digest!r}")
    return file


def recorded_files(record: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The name and the SHA-256 of each recorded file, by kind of class.

    Raises ValueError if an entry is malformed.
    """
    files = record.get("plugins", {})
    kinds: list[str] = list(files) if isinstance(files, Mapping) else ["operator"]
    recorded = {kind: recorded_file(record, kind) for kind in kinds}
    return {
        kind: {"name": file["name"], "sha256": file["sha256"]}
        for kind, file in recorded.items()
        if file is not None
    }


def digests_of(record: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of each recorded file, by kind of class. See `recorded_files`."""
    return {kind: file["sha256"] for kind, file in recorded_files(record).items()}


def copy_name(file: Mapping[str, Any]) -> str:
    """Name of the copy of a file that a run keeps in its folder."""
    return f"{Path(str(file['name'])).stem}-{str(file['sha256'])[:12]}.py"


def described(file: Mapping[str, Any]) -> str:
    """Name of a file and the first digits of its SHA-256, as messages show them."""
    return f"{file['name']} (SHA-256 {str(file['sha256'])[:12]}...)"


def fault_of_class(
    what: str, registered: type | None, file: Mapping[str, Any], folder: Path
) -> str | None:
    """The reason why a class is not the one that a result was made with; None if it is.

    A class that a program has imported is compared by the file of its module.

    Args:
        what: The class in words, such as "operator local".
        registered: The class that is registered now; None if there is none.
        file: Name and SHA-256 of the file that the result was made with.
        folder: Folder of the result, which may keep a copy of the file.
    """
    if registered is not None and digest_of(registered) == file["sha256"]:
        return None
    copy = folder / copy_name(file)
    advice = f"name {copy if copy.is_file() else 'that file'} by --plugin"
    if registered is None:
        return f"{what} comes from the file {described(file)}, which is not loaded: {advice}"
    return f"{what} comes from the file {described(file)}, not from its loaded version: {advice}"


def digest_of(registered: type) -> str | None:
    """SHA-256 of the file of a class; None if there is no file."""
    if (file := file_of(registered)) is not None:
        return file["sha256"]
    path = getattr(sys.modules.get(registered.__module__), "__file__", None)
    try:
        return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
