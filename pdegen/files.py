"""The list of the files that pdegen has written to a folder (manifest). pdegen replaces only these
files.

The manifest `.written.jsonl` has one line for each file below its folder. The line is added before
the file is written. For files that people may edit (reports, tables, pictures), it contains the
SHA-256, and an edited file is not replaced. Files that only programs read (`_MACHINE`) contain
their own digests. They are listed only by name, and a damaged one may be replaced.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import io
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

# Messages for errors of the operating system, without error numbers.


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


# Reading and writing of local files. Writes are atomic, are flushed to the disk, and do not follow
# symbolic links.


PARTIAL = ".partial"  # ends the name of a file that is being written
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
    """Rename `partial` to `path`."""
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
    """Rename `a` to `b` with a flag of renameat2."""
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


def make_folder(folder: str | Path) -> None:
    """Make a folder and its parents, and flush them so that they survive a power loss."""
    folder = Path(folder)
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)


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


def read_at_most(path: str, at_most: int | None) -> bytes:
    """Read the first `at_most` + 1 bytes of a file, or the whole file if it is shorter. Memory is
    allocated only for the actual size of the file."""
    with open(path, "rb") as file:
        if at_most is None:
            return file.read()
        size = min(os.fstat(file.fileno()).st_size, at_most) + 1
        data = file.read(size)
        return data if len(data) < size else data + file.read(at_most + 1 - size)  # it grew


MANIFEST = ".written.jsonl"
LOCK = "lock"  # file in a folder that a process is writing, or was when it was killed
_MACHINE = {".json", ".jsonl", ".pt", ".safetensors", ""}
_EVENTS = re.compile(r"(.*/)?tensorboard/events\.out\.tfevents\.\d{10}\.[^/]+\.pdegen")
_STORE = ("zarr.json", "seal.json")
_LARGE = 2**23  # bytes at each end of a large file that its digest covers
_DEPTH = 6  # number of folders above a file that are searched for a manifest


def start_manifest(folder: Path) -> None:
    """Start the manifest of an existing folder. Files that are written below the folder from now on
    are listed in it."""
    with (folder / MANIFEST).open("a"):
        pass


def note(path: Path, data: bytes) -> Path | None:
    """List a file in the manifest of a folder above it, before the file is written. Returns this
    folder, or None if no folder above has a manifest.

    Args:
        path: Path of the file.
        data: Bytes that will be written to the file.

    Raises:
        PermissionError: If the file exists and was not written by pdegen, or if a folder above it
            is a symbolic link.
    """
    path = Path(os.path.abspath(path))
    root = _above(path)
    if root is None:
        return None
    name = path.relative_to(root).as_posix()
    links = [p for p in (path, *path.parents) if root in p.parents and p.is_symlink()]
    noted = _noted(root)
    if links or (path.exists() and not _is_ours(root, name, noted)):
        foreign = links[0] if links else path
        raise PermissionError(f"{foreign} was not written by pdegen: it is kept, move it away")
    digest = None if path.suffix in _MACHINE else _digest(io.BytesIO(data), len(data))
    if digest not in noted.get(name, ()):
        _append(root, [(name, digest)])
    return root


def note_part(folder: Path) -> None:
    """List a folder that will have its own manifest in the manifest of a folder above it. Without
    this entry, all files in the inner folder would count as foreign."""
    path = Path(os.path.abspath(folder))
    root = _above(path)
    if root is not None:
        _append(root, [(f"{path.relative_to(root).as_posix()}/", None)])


def enclosing_store(path: Path | str) -> Path | None:
    """The sealed store that contains a path. None if there is none. Files that do not belong to a
    store must not be written into it."""
    above = Path(os.path.abspath(path)).parents
    return next((p for p in above if all((p / name).is_file() for name in _STORE)), None)


def is_url(path: Path) -> bool:
    """Whether a path is a URL such as `s3://bucket/run`, of which paths keep a single slash."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)) is not None


def _above(path: Path) -> Path | None:
    """The nearest folder above a path that has a manifest."""
    return next((p for p in path.parents[:_DEPTH] if (p / MANIFEST).is_file()), None)


def note_all(folder: Path) -> None:
    """List all files of a new folder in its manifest. If it has none, they are listed in the
    manifest of the nearest folder above it that has one. Does nothing if there is no such
    folder."""
    path = Path(os.path.abspath(folder))
    root = path if (path / MANIFEST).is_file() else _above(path)
    if root is None:
        return
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.name != MANIFEST)
    entries = list[tuple[str, str | None]]()
    for file in files:
        name = file.relative_to(root).as_posix()
        entries.append((name, None if file.suffix in _MACHINE else _digest_of(file)))
    _append(root, entries)


def foreign_files(folder: Path) -> list[str]:
    """Sorted names of the files that pdegen did not write, or that were edited since."""
    return sorted(name for name, ours in _all(folder) if not ours)


def is_ours(folder: Path, name: str) -> bool:
    """Whether pdegen wrote a file in a folder with a manifest, and nobody has edited the file
    since."""
    return _is_ours(folder, name, _noted(folder))


def remove(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove the files that pdegen has written to a folder with a manifest. Empty folders are
    removed too.

    Args:
        folder: The folder. If `keep` is empty and no files are left, the folder itself is removed.
        keep: Names of files to keep.
    """
    for name, ours in list(_all(folder)):
        if ours and name not in keep:
            (folder / name).unlink(missing_ok=True)
    for directory, _, _ in os.walk(folder, topdown=False):
        inner = Path(directory)
        if inner == folder and keep:
            continue
        names = [path.name for path in inner.iterdir()]
        if names == [MANIFEST]:
            (inner / MANIFEST).unlink()
        with suppress(OSError):  # it has foreign files
            inner.rmdir()


def _all(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield the name of each file and link below a folder, and whether pdegen wrote it."""
    roots = {folder: _noted(folder)}
    for directory, folders, files in os.walk(folder):
        inner = Path(directory)
        if inner != folder and (inner / MANIFEST).is_file():
            above = next(parent for parent in inner.parents if parent in roots)
            part = f"{inner.relative_to(above).as_posix()}/" in roots[above]
            roots[inner] = _noted(inner) if part else {}
        root = next(path for path in (inner, *inner.parents) if path in roots)
        for file in files:
            path = inner / file
            if file != MANIFEST:
                ours = _is_ours(root, path.relative_to(root).as_posix(), roots[root])
                yield path.relative_to(folder).as_posix(), ours
        for link in (inner / name for name in folders if (inner / name).is_symlink()):
            yield link.relative_to(folder).as_posix(), False


def _is_ours(root: Path, name: str, noted: dict[str, set[str | None]]) -> bool:
    path = root / name
    if path.is_symlink() or not path.is_file():
        return False
    if path.name == LOCK or _EVENTS.fullmatch(name):
        return True
    if name.endswith(PARTIAL):
        return name.removesuffix(PARTIAL) in noted
    digests = noted.get(name, set())
    return None in digests or (bool(digests) and _digest_of(path) in digests)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return _digest(file, os.fstat(file.fileno()).st_size)


def _digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of a file."""
    if size <= 2 * _LARGE:
        return hashlib.sha256(file.read()).hexdigest()
    digest = hashlib.sha256(str(size).encode() + file.read(_LARGE))
    file.seek(size - _LARGE)
    digest.update(file.read())
    return digest.hexdigest()


def _append(root: Path, entries: Iterable[tuple[str, str | None]]) -> None:
    lines = [json.dumps({"name": name, "sha256": digest}) for name, digest in entries]
    with (root / MANIFEST).open("ab") as file:
        # a line break comes first, because the last line may be cut off
        file.write("".join(f"\n{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def _noted(root: Path) -> dict[str, set[str | None]]:
    """A dictionary that maps the names of the files in a manifest to their digests."""
    digests: dict[str, set[str | None]] = {}
    try:
        lines = (root / MANIFEST).read_bytes().splitlines()
    except FileNotFoundError:
        return digests
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            digests.setdefault(entry["name"], set()).add(entry["sha256"])
    return digests


# Atomic writing of the files of a run.


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
            claimed folder (`pdegen.files`).
        OSError: If the file cannot be written. An earlier file is then unchanged.
    """
    check_file(path)
    try:
        note(path, data)
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
        flush_folder(path.parent)


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Wait until no other process writes in a folder."""
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
    return {**plain, _DIGEST: _digest_of_json(plain)}


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
    elif digest != _digest_of_json(content):
        raise DamagedError(f"{path} is damaged: its SHA-256 is not the one it was written with")
    return content


def _digest_of_json(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


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
