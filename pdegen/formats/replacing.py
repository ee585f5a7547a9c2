"""Atomic replacement of a file or folder."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pdegen.formats.arrays import FormatError
from pdegen.ownership import exchanged, flush_folder, foreign_files

_NEW, _OLD, _SCRATCH = "new", "old", "new.arrays"  # names in the hidden folder


def check_replaceable(folder: Path) -> None:
    """Raise FormatError if a folder contains files that no export has written, or that were edited
    afterwards (`pdegen.ownership`). Examples are the .git folder of a clone and an edited card."""
    foreign = foreign_files(folder)
    foreign += sorted(path.name for path in folder.iterdir() if path.is_dir() and not any(
        inner.is_file() for inner in path.rglob("*")))  # fmt: skip
    if foreign:
        raise FormatError(
            f"{folder} holds {foreign[0]}, which no export has written or which was edited since: "
            "it is not replaced, move that or choose another --out"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path, at which the caller writes a file or folder. At the end of the
    context, the file or folder is renamed to `path`.

    The temporary path is in the hidden folder .NAME.partial, which has the same parent as `path`.
    This folder is locked during the context and removed at the end. If the process is killed, the
    lock ends, and the next process removes the folder. The renamed file or folder survives a power
    loss.

    Raises:
        FormatError: If another process is writing to `path`.
        OSError: If the location cannot be written.
    """
    path = Path(os.path.abspath(path))
    folder = path.with_name(f".{path.name}.partial")
    lock = _locked(folder, path)
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
            with suppress(OSError):  # files of others stay
                folder.rmdir()
        finally:
            os.close(lock)


def _locked(folder: Path, path: Path) -> int:
    """Make and lock the hidden folder. Returns its file descriptor. The lock ends when the
    descriptor is closed."""
    while True:
        try:
            with suppress(FileExistsError):
                folder.mkdir()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # the previous process has just removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise FormatError(f"{path} is being written by another process") from None
        except FileNotFoundError:  # it was removed before it was locked
            pass
        os.close(descriptor)


def _restored(folder: Path, path: Path) -> None:
    """Move the older file or folder back to `path`, if a process moved it away and was then
    killed."""
    if os.path.lexists(folder / _OLD) and not os.path.lexists(path):
        os.rename(folder / _OLD, path)


def _emptied(folder: Path) -> None:
    for name in (_NEW, _OLD, _SCRATCH):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _swapped(folder: Path, path: Path) -> None:
    """Rename the new file or folder to `path`. An older folder is moved to the hidden folder."""
    if not path.is_dir():
        os.replace(folder / _NEW, path)
    elif not exchanged(folder / _NEW, path):
        os.rename(path, folder / _OLD)
        os.rename(folder / _NEW, path)


def _synced(path: Path) -> None:
    """Flush a file, or all files of a folder, to the disk, so that they survive a power loss."""
    if path.is_dir():
        for inner in path.iterdir():
            _synced(inner)
        flush_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())
