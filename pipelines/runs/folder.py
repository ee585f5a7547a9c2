"""The claim of a folder: what it holds, whether that may be continued or replaced."""

import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operators.training.files import (
    DamagedError,
    FileError,
    check_file,
    make_folder,
    read_json,
    write_json,
)
from pdegen.ownership import LOCK, MANIFEST, PARTIAL, begin, others, remove, store_around

_DECLARATIONS = {f"{word}.json" for word in ("run", "benchmark", "study", "profile", "comparison")}


class RunError(ValueError):
    """A folder that is in the way or is another's; one line."""

    exit_status = 2


class InUseError(RunError):
    """A run folder that another process trains in; one line."""


@dataclass(frozen=True)
class FolderClaim:
    """What a folder holds: a run, a benchmark, a study, a profile, a comparison."""

    word: str
    file: str
    ways: str = "use --resume or --overwrite"
    none: str = ""

    def check(self, folder: Path, resume: bool, overwrite: bool) -> bool:
        """Whether a folder holds one already. Raises RunError if the folder cannot be written to,
        holds something else, or holds one that is neither to be continued (`resume`) nor to be
        replaced (`overwrite`); or if what is to be replaced holds files that others wrote."""
        check_folder(folder)
        files = {path.name for path in folder.iterdir()} if folder.exists() else set()
        own = {
            name for name in files if name not in (LOCK, MANIFEST) and not name.endswith(PARTIAL)
        }
        there = self.file in own and not own & (_DECLARATIONS - {self.file})
        if there and not resume and not overwrite:
            raise RunError(f"{folder} holds a {self.word}: {self.ways}")
        if own and not there:
            raise RunError(f"{folder} exists and is no {self.none or self.word}")
        if there and overwrite:
            check_ours(folder)
        return there

    def claim(
        self,
        folder: Path,
        declared: Mapping[str, Any],
        *,
        same: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Take a folder, and write its declaration.

        Raises:
            RunError: See `check`; and where another one is to be resumed.
        """
        path, there = folder / self.file, self.check(folder, resume, overwrite)
        if there and overwrite:
            remove(folder, {self.file})
        elif there and same:
            try:
                found = read_json(path)
            except DamagedError as damage:
                raise RunError(f"{damage}: start again by --overwrite") from None
            for key in same:
                if found.get(key) != declared[key]:
                    raise RunError(f"{folder} holds a {self.word} of another {key}")
        claim(folder)
        write_json(path, declared)


def claim(folder: Path) -> None:
    """Make a folder, in which from now on only files that were written there are replaced."""
    make_folder(folder)
    begin(folder)


def check_ours(folder: Path) -> None:
    """Raise RunError where a folder that is to be replaced holds files that others wrote or
    edited."""
    found = others(folder)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise RunError(
            f"{folder} holds what pdegen did not write, or what was edited since: "
            f"{', '.join(found[:3])}{more}; nothing was deleted: move it away"
        )


def check_folder(folder: Path) -> None:
    """Raise RunError where a folder cannot be made or written to."""
    if "\0" in str(folder):
        raise RunError(f"{str(folder)!r} has a null byte, which no path has: choose another --out")
    if store := store_around(folder / "inside"):
        raise RunError(f"{store} is a store, which holds nothing else: choose another --out")
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise RunError(f"{there} is a file, not a folder: choose another --out")
        with tempfile.TemporaryFile(dir=there):  # permissions alone do not tell, as below /proc
            return
    except OSError as error:
        raise RunError(f"{folder} cannot be written to: choose another --out") from error


def check_out(path: Path, keys: Collection[str]) -> None:
    """Raise RunError where a JSON file cannot be written."""
    check_name(path)
    check_folder(path.parent)
    if not path.exists():
        return
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not set(keys) <= found.keys():
        raise RunError(f"{path} holds something else: it is not replaced, choose another --out")


def check_name(path: Path) -> None:
    """Raise RunError where something else than a file has the name of one."""
    try:
        check_file(path)
    except FileError as error:
        raise RunError(f"{error}: remove it, or choose another --out") from None
