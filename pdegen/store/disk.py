"""Reading and writing of local files. Writes are atomic, are flushed to the disk, and do not follow
symbolic links."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

PARTIAL = ".partial"
_CURRENT_FOLDER = -100  # AT_FDCWD of renameat2: paths are used as given
_NO_REPLACE, _EXCHANGE = 1, 2  # RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2
# errors of link() on file systems without hard links (exFAT, gcsfuse, Drive)
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def check_folders(root: str, path: str) -> None:
    """Raise OSError if a folder between `root` and `path` is a symbolic link. Such a link may lead
    out of `root`. `root` itself may be a link."""
    folder = os.path.dirname(path)
    while len(folder) > len(root):
        if os.path.islink(folder):
            problem = "a symbolic link is in the place of a folder: move it away"
            raise OSError(errno.ELOOP, problem, folder)
        folder = os.path.dirname(folder)


@contextmanager
def finished(path: str, data: bytes) -> Generator[str]:
    """Write a temporary file in the folder of `path`, flush it, and yield its path. The caller
    renames or links it. On exit, the temporary file is removed if it still exists, and the folder
    is flushed."""
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
    """A unique path for a temporary file, in the same folder as `path`."""
    return f"{path}.{uuid.uuid4().hex}{PARTIAL}"


def put(partial: str, path: str, check: Callable[[], None]) -> None:
    """Rename a complete temporary file to `path`, if `check` raises no error.

    `check` raises an error if another process has taken over the store. It is called before the
    rename and again after it. If the second call raises an error, the older file is restored.
    """
    check()
    new = os.stat(partial)
    try:
        replaced = _replaced(partial, path)
    except OSError:
        check()  # the other writer may have removed the folder
        raise
    try:
        check()
    except BaseException:
        with suppress(FileNotFoundError):  # the other writer has removed it
            _put_back(partial if replaced else None, path, new)
        raise


def put_new(partial: str, path: str) -> None:
    """Give a complete temporary file the name `path`. Raises FileExistsError if the name is in use.
    Of several processes that call this at the same time, one succeeds.

    Without hard links, the file is renamed. Where the system cannot refuse to replace a file in a
    rename, an empty file first reserves the name. Others may see this file. It remains if the
    process is killed between the two steps.
    """
    if _linked(partial, path) or _renamed(partial, path, _NO_REPLACE):
        return
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        os.replace(partial, path)
    except BaseException:
        os.remove(path)
        raise


def _linked(source: str, path: str) -> bool:
    """Add a hard link to a file. Returns False if the file system has no hard links."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _replaced(partial: str, path: str) -> bool:
    """Rename `partial` to `path`. Returns True if `path` existed; the older file is then at
    `partial`."""
    while True:
        try:
            put_new(partial, path)
            return False
        except FileExistsError:
            clear(path)
        try:
            if not exchanged(
                partial, path
            ):  # a file that appears between the next two lines is lost
                older = beside(path)
                if not _linked(path, older):
                    shutil.copyfile(path, older, follow_symlinks=False)
                os.replace(partial, path)
                os.rename(older, partial)
            return True
        except FileNotFoundError:  # it was removed meanwhile
            if not os.path.lexists(partial):
                raise


def _put_back(replaced: str | None, path: str, new: os.stat_result) -> None:
    """Undo `_replaced`, unless another process has replaced `path` since."""
    if not os.path.samestat(os.stat(path, follow_symlinks=False), new):
        return
    if replaced is None:
        os.remove(path)
    elif not exchanged(replaced, path):
        os.replace(replaced, path)
    elif not os.path.samestat(os.stat(replaced, follow_symlinks=False), new):
        exchanged(replaced, path)  # yet another file had the name: swap back


def exchanged(a: str | Path, b: str | Path) -> bool:
    """Exchange two files atomically. Returns False if the system does not support this."""
    return _renamed(a, b, _EXCHANGE)


def _renamed(a: str | Path, b: str | Path, flag: int) -> bool:
    """Rename `a` to `b` with a flag of renameat2. Returns False if the system does not support the
    flag."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    if renameat2(_CURRENT_FOLDER, os.fsencode(a), _CURRENT_FOLDER, os.fsencode(b), flag) == 0:
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
    """Remove an empty folder at `path`, where an object is to be written. Raises OSError if the
    folder contains files."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    try:
        for folder, _, _ in os.walk(path, topdown=False):
            os.rmdir(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        problem = "a folder with files is in the place of an object: move it away"
        raise OSError(errno.ENOTEMPTY, problem, path) from error


def make_folder(folder: str) -> None:
    """Make a folder and its parents, and flush them so that they survive a power loss."""
    above = os.path.dirname(folder)
    if above and not os.path.isdir(above):
        make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    flush_folder(above)


def flush_folder(folder: str | Path) -> None:
    """Flush the entries of a folder to the disk."""
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.EBADF,
        ):  # some network file systems cannot flush folders
            raise
    finally:
        os.close(descriptor)


def read(path: str, at_most: int | None) -> bytes:
    """Read the first `at_most` + 1 bytes of a file, or the whole file if it is shorter. Memory is
    allocated only for the actual size of the file."""
    with open(path, "rb") as file:
        if at_most is None:
            return file.read()
        size = min(os.fstat(file.fileno()).st_size, at_most) + 1
        data = file.read(size)
        return data if len(data) < size else data + file.read(at_most + 1 - size)  # it grew
