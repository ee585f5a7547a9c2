"""Errors of the system in words: what and where, without numbers."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path


def message_of(error: BaseException) -> str:
    """One line.

    >>> message_of(FileNotFoundError(2, "No such file or directory", "data.zarr"))
    'data.zarr: no such file or directory'
    """
    if not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).split()) or type(error).__name__
    what = error.strerror
    if what[1:2].islower():  # of the system; "PDE" stays
        what = what[0].lower() + what[1:]
    places = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(places), what] if places else [what])


class NoRoomError(OSError):
    """A folder that has no room for what is to be written there; nothing was written."""

    exit_status = 2


def check_room(folder: str | Path, need: int, what: str) -> None:
    """Raise NoRoomError where a folder, which may not be there yet, has no room for what is to be
    written there."""
    folder = next(
        there
        for there in (Path(folder).absolute(), *Path(folder).absolute().parents)
        if there.exists()
    )
    free = shutil.disk_usage(folder).free
    if free < need:
        text = f"no room{what} {need:,} bytes, {free:,} are free"
        raise NoRoomError(errno.ENOSPC, text, str(folder))
