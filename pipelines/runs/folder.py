"""Result folders: what a folder contains, and whether its contents may be resumed or replaced."""

import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdegen.ownership import (
    LOCK,
    MANIFEST,
    PARTIAL,
    DamagedError,
    FileError,
    check_file,
    enclosing_store,
    foreign_files,
    is_url,
    make_folder,
    read_json,
    remove,
    start_manifest,
    write_json,
)

_DECLARATIONS = {f"{word}.json" for word in ("run", "benchmark", "study", "profile", "comparison")}


class RunError(ValueError):
    """Error for a folder in which results cannot be written."""

    exit_status = 2


class InUseError(RunError):
    """Error for a run folder in which another process is training."""


@dataclass(frozen=True)
class FolderClaim:
    """Reserves folders for one kind of results: runs, benchmarks, studies, profiles or comparisons.

    Args:
        word: The kind, such as "run".
        file: Name of the file that declares the results, such as "run.json".
        advice: Advice in the error message if the folder already contains such results.
        folder_kind: Name of such a folder in error messages; by default `word`.
    """

    word: str
    file: str
    advice: str = "use --resume or --overwrite"
    folder_kind: str = ""

    def check(self, folder: Path, resume: bool, overwrite: bool) -> bool:
        """Whether the folder already contains results of this kind.

        Raises:
            RunError: If the folder cannot be written to, or contains something else. Also if it
                contains results and neither `resume` nor `overwrite` is set. With `overwrite`, also
                if it contains files that pdegen did not write.
        """
        check_folder(folder)
        files = {path.name for path in folder.iterdir()} if folder.exists() else set()
        contents = {
            name for name in files if name not in (LOCK, MANIFEST) and not name.endswith(PARTIAL)
        }
        exists = self.file in contents and not contents & (_DECLARATIONS - {self.file})
        if exists and not resume and not overwrite:
            raise RunError(f"{folder} holds a {self.word}: {self.advice}")
        if contents and not exists:
            raise RunError(f"{folder} exists and is no {self.folder_kind or self.word}")
        if exists and overwrite and folder.is_symlink():
            raise RunError(
                f"{folder} is a symbolic link to {folder.resolve()}, whose {self.word} --overwrite "
                "would replace: give the path of the folder"
            )
        if exists and overwrite:
            check_ours(folder)
        return exists

    def claim(
        self,
        folder: Path,
        declared: Mapping[str, Any],
        *,
        same: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Reserve a folder for new or resumed results, and write their declaration.

        Args:
            declared: Content of the declaration.
            same: Keys whose declared values may not change when results are resumed.

        Raises:
            RunError: If `check` raises RunError, or a key in `same` has another value than before.
        """
        path, exists = folder / self.file, self.check(folder, resume, overwrite)
        if exists and overwrite:
            remove(folder, {self.file})
        elif exists and same:
            try:
                recorded = read_json(path)
            except DamagedError as damage:
                raise RunError(f"{damage}: start again by --overwrite") from None
            for key in same:
                if recorded.get(key) != declared[key]:
                    raise RunError(f"{folder} holds a {self.word} of another {key}")
        claim(folder)
        write_json(path, declared)


def claim(folder: Path) -> None:
    """Create a folder in which pdegen records the files it writes. Only recorded files are ever
    replaced."""
    make_folder(folder)
    start_manifest(folder)


def check_ours(folder: Path) -> None:
    """Raise RunError if a folder to be overwritten contains files that pdegen did not write, or
    files that were edited."""
    foreign = foreign_files(folder)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise RunError(
            f"{folder} holds files that pdegen did not write, or that were edited since: "
            f"{', '.join(foreign[:3])}{more}; nothing was deleted: move them away"
        )


def check_folder(folder: Path) -> None:
    """Raise RunError if a folder cannot be created or written to."""
    if is_url(folder):
        raise RunError(f"{folder}: results are written to a local folder, not to a URL")
    if "\0" in str(folder):
        raise RunError(f"{str(folder)!r} contains a null byte: choose another --out")
    if store := enclosing_store(folder / "inside"):
        raise RunError(f"{store} is a store and takes no other files: choose another --out")
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise RunError(f"{nearest} is a file, not a folder: choose another --out")
        with tempfile.TemporaryFile(dir=nearest):  # permissions alone can mislead, as in /proc
            return
    except OSError as error:
        raise RunError(f"{folder} cannot be written to: choose another --out") from error


def check_out(path: Path, keys: Collection[str]) -> None:
    """Raise RunError if a JSON file cannot be written, or would replace another kind of file.

    Args:
        path: The file.
        keys: Keys by which an earlier file of the same kind is recognised.
    """
    check_name(path)
    check_folder(path.parent)
    if not path.exists():
        return
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not set(keys) <= content.keys():
        raise RunError(f"{path} holds something else and is not replaced: choose another --out")


def check_name(path: Path) -> None:
    """Raise RunError if the path of a file to be written exists and is no regular file."""
    try:
        check_file(path)
    except FileError as error:
        raise RunError(f"{error}: remove it, or choose another --out") from None
