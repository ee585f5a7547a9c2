"""Atomic writing of the files of a run.

The entry "sha256" of a JSON object contains the SHA-256 of all other entries, in their order.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pdegen import ownership
from pdegen.ownership import LOCK, PARTIAL

_DIGEST = "sha256"
_log = logging.getLogger(__name__)


class FileError(ValueError):
    """A path is not a regular file although it must be one. The message is one line."""

    exit_status = 2


class BusyError(FileError):
    """Another process has locked the folder. The message is one line."""


class DamagedError(FileError):
    """The content of a file has changed since it was written. The message is one line."""


def write(path: Path, data: bytes) -> None:
    """Write a file atomically. After the return, the file survives a power failure.

    The bytes are written to PATH.partial, which is then renamed to PATH. Processes that write in
    the folder at the same time wait for each other.

    Raises:
        FileError: If the path exists and is not a regular file, or if it is a foreign file in a
            claimed folder (`pdegen.ownership`).
        OSError: If the file cannot be written. An earlier file is then unchanged.
    """
    check_file(path)
    try:
        ownership.note(path, data)
    except PermissionError as error:
        if error.errno is not None:
            raise
        raise FileError(str(error)) from None
    path = Path(os.path.realpath(path))  # a link stays a link
    make_folder(path.parent)
    partial = path.with_name(path.name + PARTIAL)
    with _only_writer(path.parent):
        partial.unlink(missing_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            error.filename = error.filename or str(path)  # errors of a full disk name no file
            raise
        _flush(path.parent)


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in a folder. Does nothing where folders cannot be locked,
    as on NFS."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # a process that was forked meanwhile would keep the lock
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def read(path: Path) -> bytes:
    """The bytes of a file. Raises FileError if the path is not a regular file."""
    check_file(path)
    return path.read_bytes()


def check_file(path: Path) -> None:
    """Raise FileError if the path exists and is not a regular file."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise FileError(f"{path} is {kind}, expected a file")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON object after adding its SHA-256."""
    write(path, json.dumps(_sealed(content), indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that `write_json` wrote. Raises DamagedError if the file was changed."""
    return _verified(read(path), path)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write JSON objects, one on each line, after adding a SHA-256 to each."""
    write(path, "".join(json.dumps(_sealed(line)) + "\n" for line in lines).encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON objects that `write_lines` wrote. Raises DamagedError if a line was changed."""
    return [_verified(line, path) for line in read(path).splitlines()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. If the process is killed, the kernel releases the lock.

    Raises:
        BusyError: If another process holds the lock.
    """
    make_folder(folder)
    path = folder / LOCK
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW  # do not follow a link out of the folder
    with os.fdopen(os.open(path, flags, 0o644), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False  # another process has locked the file or just removed it
        if not ours:
            raise BusyError(f"{folder} is held by another process that trains there")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _sealed(content: Mapping[str, object]) -> dict[str, Any]:
    plain = json.loads(json.dumps(content))
    return {**plain, _DIGEST: _digest(plain)}


def _verified(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} is damaged: it is not JSON") from None
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is damaged: it is not a JSON object")
    digest = content.pop(_DIGEST, None)
    if digest is None:
        _log.warning("%s has no SHA-256, like files of earlier versions: it is not checked", path)
    elif digest != _digest(content):
        raise DamagedError(f"{path} is damaged: its SHA-256 is not the one it was written with")
    return content


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. After the return, they survive a power failure."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    """Flush the entries of a folder to the disk, so that they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Writer:
    """A thread that runs jobs one after another.

    If a job fails, the later jobs of the same call are cancelled. The `with` block ends when all
    jobs have ended, even after an error.

    >>> with Writer() as writer:
    ...     writer(lambda: print("first"), lambda: print("second"))
    first
    second
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._running: Future[None] | None = None

    def __call__(self, *jobs: Callable[[], None]) -> None:
        """Wait for the jobs of the previous call, then start the given jobs."""
        self.join()
        self._running = self._thread.submit(_run, jobs)

    def join(self) -> None:
        """Wait for all jobs. If a job failed, raise its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.join()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and a file was not written: {failure}")
        finally:
            self._thread.shutdown()


def _run(jobs: tuple[Callable[[], None], ...]) -> None:
    for job in jobs:
        job()
