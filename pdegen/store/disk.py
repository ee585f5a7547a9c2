"""Files of a folder on this machine: written whole, flushed, and never through a symbolic link."""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

PARTIAL = ".partial"
_HERE = -100  # AT_FDCWD: paths are as they are
_EXCHANGE = 2  # RENAME_EXCHANGE


def check_folders(root: str, path: str) -> None:
    """Raise OSError where a folder between `root` and a path below it is a symbolic link: what is
    written or removed there would be another folder's. The root itself may be a link."""
    folder = os.path.dirname(path)
    while len(folder) > len(root):
        if os.path.islink(folder):
            what = "a symbolic link is in the place of a folder: move it away"
            raise OSError(errno.ELOOP, what, folder)
        folder = os.path.dirname(folder)


@contextmanager
def finished(path: str, data: bytes) -> Generator[str]:
    """A finished file beside a path, gone afterwards; then the folder is flushed as well."""
    partial, folder = beside(path), os.path.dirname(path)
    try:
        try:
            file = open(partial, "wb")  # noqa: SIM115, closed below
        except FileNotFoundError:
            make_folder(folder)
            file = open(partial, "wb")  # noqa: SIM115
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield partial
    finally:
        with suppress(FileNotFoundError):  # it was renamed
            os.remove(partial)
    flush_folder(folder)


def beside(path: str) -> str:
    """A name beside a path that no other writer has."""
    return f"{path}.{uuid.uuid4().hex}{PARTIAL}"


def put(partial: str, path: str, check: Callable[[], None]) -> None:
    """Give a finished file beside a path its name, where `check` passes before and after: it raises
    an error once the folder is another writer's, and then what had the name has it again."""
    check()
    mine = os.stat(partial)
    try:
        replaced = _replaced(partial, path)
    except OSError:
        check()  # the other writer has removed the folder
        raise
    try:
        check()
    except BaseException:
        with suppress(FileNotFoundError):  # the other writer has removed it
            _put_back(partial if replaced else None, path, mine)
        raise


def _replaced(partial: str, path: str) -> bool:
    """Give a file its name; whether `partial` is the name of what had it."""
    while True:
        try:
            os.link(partial, path)
            return False
        except FileExistsError:
            clear(path)
        try:
            if not exchanged(partial, path):  # what arrives between these two lines is lost
                kept = beside(path)
                os.link(path, kept)
                os.replace(partial, path)
                os.rename(kept, partial)
            return True
        except FileNotFoundError:  # it was removed meanwhile
            if not os.path.lexists(partial):
                raise


def _put_back(replaced: str | None, path: str, mine: os.stat_result) -> None:
    """Undo `_replaced`, unless another file has the name by now."""
    if not os.path.samestat(os.stat(path, follow_symlinks=False), mine):
        return
    if replaced is None:
        os.remove(path)
    elif not exchanged(replaced, path):
        os.replace(replaced, path)
    elif not os.path.samestat(os.stat(replaced, follow_symlinks=False), mine):
        exchanged(replaced, path)  # another file came between


def exchanged(a: str | Path, b: str | Path) -> bool:
    """Swap two names in one step; False where the system cannot."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    if renameat2(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(b))


@cache
def _renameat2() -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = [
            ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
        ]  # fmt: skip
    return function


def clear(path: str) -> None:
    """Remove an empty folder in the place of an object. Raises OSError where it has files."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    try:
        for folder, _, _ in os.walk(path, topdown=False):
            os.rmdir(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        what = "a folder with files is in the place of an object: move it away"
        raise OSError(errno.ENOTEMPTY, what, path) from error


def make_folder(folder: str) -> None:
    """Make a folder, and those above it, whose entries survive a loss of power."""
    above = os.path.dirname(folder)
    if above and not os.path.isdir(above):
        make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    flush_folder(above)


def flush_folder(folder: str | Path) -> None:
    """Write a folder's entries to the disk."""
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # some networks' folders have no flush
            raise
    finally:
        os.close(descriptor)


def read(path: str, at_most: int | None) -> bytes:
    """A file, into as much memory as it has bytes; one byte more than `at_most`, at most."""
    with open(path, "rb") as file:
        if at_most is None:
            return file.read()
        size = min(os.fstat(file.fileno()).st_size, at_most) + 1
        data = file.read(size)
        return data if len(data) < size else data + file.read(at_most + 1 - size)  # it grew
