"""Files of a run: each appears whole or not at all. A JSON object carries the SHA-256 of its other
keys, in their order, as `sha256`."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pdegen import ownership
from pdegen.ownership import LOCK, PARTIAL

_DIGEST = "sha256"
_log = logging.getLogger(__name__)


class FileError(ValueError):
    """Something that is no file where a file belongs; one line."""

    exit_status = 2


class BusyError(FileError):
    """A folder that another process holds; one line."""


class DamagedError(FileError):
    """A file that is not what was written; one line."""


def write(path: Path, data: bytes) -> None:
    """Let a file appear whole; when this returns it survives the loss of power.

    The bytes go to PATH.partial, which then takes the name. One writer at a time.

    Raises:
        FileError: If something else than a file has the name, or, in a folder that is claimed
            (`pdegen.ownership`), a file that was not written here.
        OSError: If it cannot be written; what was there before is left.
    """
    check_file(path)
    try:
        ownership.note(path, data)
    except PermissionError as error:
        if error.errno is not None:
            raise
        raise FileError(str(error)) from None
    path = Path(os.path.realpath(path))  # a link stays one
    make_folder(path.parent)
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # a full disk does not say it
        raise
    _flush(path.parent)


def read(path: Path) -> bytes:
    check_file(path)
    return path.read_bytes()


def check_file(path: Path) -> None:
    """Raise FileError where something else than a file has the name."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise FileError(f"{path} is {kind}: a file belongs there")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    write(path, json.dumps(_sealed(content), indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    return _opened(read(path), path)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    write(path, "".join(json.dumps(_sealed(line)) + "\n" for line in lines).encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [_opened(line, path) for line in read(path).splitlines()]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder for one process: the kernel lets go of it however that process ends. Raises
    BusyError if another process holds it."""
    make_folder(folder)  # which survives the loss of power
    path = folder / LOCK
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW  # a link may lead anywhere
    with os.fdopen(os.open(path, flags, 0o644), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
        except (BlockingIOError, FileNotFoundError):
            ours = False  # or its holder has just removed it
        if not ours:
            raise BusyError(f"{folder} is held by another process that trains there")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _sealed(content: Mapping[str, object]) -> dict[str, Any]:
    plain = json.loads(json.dumps(content))
    return {**plain, _DIGEST: _digest(plain)}


def _opened(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} is damaged: it is no JSON") from None
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is damaged: it is no JSON object")
    digest = content.pop(_DIGEST, None)
    if digest is None:
        _log.warning("%s has no SHA-256, as files of earlier versions: it is not checked", path)
    elif digest != _digest(content):
        raise DamagedError(f"{path} is damaged: it has not the SHA-256 that it was written with")
    return content


def _digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, that survive the loss of power."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(folder: Path) -> None:
    """Make the names in a folder survive the loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Writer:
    """Runs jobs one after another in one thread; the first that fails ends the rest.

    As a context it waits for its jobs at the end, however that comes about.

    >>> with Writer() as writer:
    ...     writer(lambda: print("first"), lambda: print("second"))
    first
    second
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._running: Future[None] | None = None

    def __call__(self, *jobs: Callable[[], None]) -> None:
        """Wait for the jobs before, then begin these."""
        self.join()
        self._running = self._thread.submit(_run, jobs)

    def join(self) -> None:
        """Wait for all jobs, and raise what one of them raised."""
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
