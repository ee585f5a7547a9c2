"""Messages for errors of the operating system, without error numbers."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path


def message_of(error: BaseException) -> str:
    """The message of an error, in one line.

    >>> message_of(FileNotFoundError(2, "No such file or directory", "data.zarr"))
    'data.zarr: no such file or directory'
    """
    if not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).split()) or type(error).__name__
    message = error.strerror
    if message[1:2].islower():  # a sentence of the system; "PDE" stays as it is
        message = message[0].lower() + message[1:]
    paths = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(paths), message] if paths else [message])


class NoRoomError(OSError):
    """The disk has too little free space for the data. Nothing was written."""

    exit_status = 2


def check_room(folder: str | Path, need: int, purpose: str) -> None:
    """Raise NoRoomError if a disk has too little free space.

    Args:
        folder: The folder to write to, which need not exist.
        need: Number of bytes.
        purpose: Text of the message between "no room" and the number of bytes, such as ": the file
            takes".
    """
    path = Path(folder).absolute()
    folder = next(existing for existing in (path, *path.parents) if existing.exists())
    free = shutil.disk_usage(folder).free
    if free < need:
        text = f"no room{purpose} {need:,} bytes, {free:,} are free"
        raise NoRoomError(errno.ENOSPC, text, str(folder))
