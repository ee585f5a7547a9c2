"""A file or folder that appears as a whole, in the place of what was there, whatever happens."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pdegen.formats.arrays import FormatError
from pdegen.ownership import foreign_files
from pdegen.store.disk import exchanged, flush_folder

_NEW, _OLD, _SCRATCH = "new", "old", "new.arrays"  # what the hidden folder may hold


def check_replaceable(folder: Path) -> None:
    """Raise FormatError where a folder holds files that no export has written
    (`pdegen.ownership`), such as the .git of a clone, or a card that was edited."""
    found = foreign_files(folder)
    found += sorted(path.name for path in folder.iterdir() if path.is_dir() and not any(
        inner.is_file() for inner in path.rglob("*")))  # fmt: skip
    if found:
        raise FormatError(
            f"{folder} holds {found[0]}, which no export has written or which was edited since: "
            "it is not replaced, move that or choose another --out"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write a file or a folder to, which at the end takes the name `path` in one step.

    It is in the hidden folder .NAME.partial beside `path`, which is locked meanwhile and removed at
    the end. The lock ends with the process: what a killed one has left, the next one removes. What
    has its name survives the loss of power. Raises FormatError if another process writes to
    `path`, and OSError if the place cannot be written.
    """
    path = Path(os.path.abspath(path))
    folder = path.with_name(f".{path.name}.partial")
    held = _locked(folder, path)
    try:
        _restored(folder, path)
        _emptied(folder)
        yield folder / _NEW
        _synced(folder / _NEW)
        _swapped(folder, path)
        flush_folder(path.parent)
    finally:
        try:
            _emptied(folder)
            with suppress(OSError):  # what others have put there stays
                folder.rmdir()
        finally:
            os.close(held)


def _locked(folder: Path, path: Path) -> int:
    """The open hidden folder, with a lock that ends when it is closed."""
    while True:
        try:
            with suppress(FileExistsError):
                folder.mkdir()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # the one before has just removed it
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held), os.stat(folder)):
                return held
        except BlockingIOError:
            os.close(held)
            raise FormatError(f"{path} is being written by another process") from None
        except FileNotFoundError:  # it was removed before it was locked
            pass
        os.close(held)


def _restored(folder: Path, path: Path) -> None:
    """Bring back what was there, where it was moved aside and a kill came between."""
    if os.path.lexists(folder / _OLD) and not os.path.lexists(path):
        os.rename(folder / _OLD, path)


def _emptied(folder: Path) -> None:
    for name in (_NEW, _OLD, _SCRATCH):
        there = folder / name
        if there.is_dir() and not there.is_symlink():
            shutil.rmtree(there)
        else:
            there.unlink(missing_ok=True)


def _swapped(folder: Path, path: Path) -> None:
    """Give what is new its name; what had it is then in the hidden folder, or gone."""
    if not path.is_dir():
        os.replace(folder / _NEW, path)
    elif not exchanged(folder / _NEW, path):
        os.rename(path, folder / _OLD)
        os.rename(folder / _NEW, path)


def _synced(path: Path) -> None:
    """Return once a file, or all of a folder, would survive the loss of power."""
    if path.is_dir():
        for inner in path.iterdir():
            _synced(inner)
        flush_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())
