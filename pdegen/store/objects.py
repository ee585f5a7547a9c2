"""Access to the objects of a store, which are in a folder or an object store. Writes are atomic."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cached_property, wraps
from io import FileIO
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import fsspec  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from fsspec.implementations.local import (  # pyright: ignore[reportMissingTypeStubs]
    LocalFileSystem,
)

from pdegen import files

# Converts failures of disks and object stores to OSErrors, and retries transient failures.


_ATTEMPTS = 5  # at an operation that may fail for a moment
_PAUSE = 0.05  # seconds before the second attempt; each further pause is three times as long
_PERMANENT = {  # errors that are not retried
    errno.ENOENT, errno.EEXIST, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM,
    errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG, errno.ENOTEMPTY,
    errno.ELOOP,
}  # fmt: skip
_errors: ContextVar[list[str] | None] = ContextVar("errors", default=None)

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def retried_errors() -> Generator[list[str]]:
    """Collect the errors after which `retried` repeats an operation in this thread. Each error is a
    line of text."""
    errors = list[str]()
    token = _errors.set(errors)
    try:
        yield errors
    finally:
        _errors.reset(token)


def retried(operation: Callable[P, T]) -> Callable[P, T]:
    """Decorate an operation so that it is repeated after transient errors. `retried_errors`
    collects these errors."""

    @wraps(operation)
    def attempt_several(*arguments: P.args, **options: P.kwargs) -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return operation(*arguments, **options)
            except OSError as error:
                if error.errno in _PERMANENT:
                    raise
                errors = _errors.get()
                if errors is not None:
                    errors.append(f"attempt {attempt} failed: {error}")
                time.sleep(_PAUSE * 3 ** (attempt - 1))
        return operation(*arguments, **options)

    return attempt_several


@contextmanager
def as_os_errors(path: str) -> Generator[None]:
    """Convert any error of an object store to an OSError with a one-line message."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        numbers: dict[type[OSError], int] = {
            FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES,
            FileExistsError: errno.EEXIST,
        }  # fmt: skip
        raise OSError(numbers.get(type(error), errno.EIO), str(error), path) from error
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error


# Reading of parts of one object into memory of the caller.


Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_BLOCK = 2**19  # bytes that stay in the cache of a core between reading and hashing
_PARTS = 1024  # largest number of parts that the system fills by one call


@dataclass(frozen=True)
class OpenFile:
    """A file that is open for reading by one thread."""

    file: FileIO
    # number of bytes that are best read at once: many, because reading threads wait for each other
    # between two reads, but few enough to be in a cache when they are checked
    at_once = 2**21

    @cached_property
    def identity(self) -> str:
        """A string that changes when the file changes."""
        status = os.fstat(self.file.fileno())
        place, times = (status.st_dev, status.st_ino), (status.st_mtime_ns, status.st_ctime_ns)
        return f"{place}, {times}, {status.st_size}"

    @cached_property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self.file.fileno()).st_size

    def read(
        self, start: int, *parts: Bytes, seen: Callable[[Bytes], object] | None = None
    ) -> None:
        """Fill arrays with consecutive bytes of the file, from the byte `start` on.

        Args:
            seen: Function that is called with all bytes in order, while they are in the cache.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file ends too early.
        """
        if seen is None:
            for k in range(0, len(parts), _PARTS):
                self._fill(start, parts[k : k + _PARTS])
                start += sum(map(len, parts[k : k + _PARTS]))
            return
        for part in parts:
            for k in range(0, len(part), _BLOCK):
                block = part[k : k + _BLOCK]
                self._fill(start + k, (block,))
                seen(block)
            start += len(part)

    @retried
    def _fill(self, start: int, parts: Sequence[Bytes]) -> None:
        expected = sum(map(len, parts))
        if os.preadv(self.file.fileno(), [part.data for part in parts], start) == expected:
            return
        for part in parts:  # the system read less than it was asked for
            filled = 0
            while filled < len(part):
                count = os.preadv(self.file.fileno(), [part[filled:].data], start + filled)
                if not count:
                    raise ValueError("the file ends too early")
                filled += count
            start += len(part)


@dataclass(frozen=True)
class RemoteObject:
    """An object of an object store. It keeps no connection open."""

    filesystem: Any
    path: str
    at_once = 2**24

    @cached_property
    @retried
    def identity(self) -> str:
        with as_os_errors(self.path):
            self.filesystem.invalidate_cache()  # other processes write too
            return self.filesystem.ukey(self.path)

    @cached_property
    @retried
    def size(self) -> int:
        with as_os_errors(self.path):
            return self.filesystem.size(self.path)

    def read(
        self, start: int, *parts: Bytes, seen: Callable[[Bytes], object] | None = None
    ) -> None:
        """Fill arrays with consecutive bytes of the object, as `OpenFile.read`."""
        stop = start + sum(map(len, parts))
        data = self._bytes(start, stop)
        if len(data) < stop - start:
            raise ValueError("the object ends too early")
        for part in parts:
            part[:], data = data[: len(part)], data[len(part) :]
            if seen is not None:
                seen(part)

    @retried
    def _bytes(self, start: int, stop: int) -> Bytes:
        with as_os_errors(self.path):
            data = self.filesystem.cat_file(self.path, start=start, end=stop)
        return np.frombuffer(data, np.uint8)


Opened = OpenFile | RemoteObject


class Digesting:
    """An open object that is read once, from its start to its end, while its SHA-256 is computed.

    Args:
        opened: The object.
    """

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._sha256, self._position = hashlib.sha256(), 0

    def read(self, start: int, *parts: Bytes) -> None:
        """Fill arrays as `OpenFile.read`. Bytes before `start` that were not read yet are read as
        well. Raises ValueError if `start` lies before bytes that were read."""
        self._skip(start)
        self.opened.read(start, *parts, seen=self._update)
        self._position += sum(map(len, parts))

    def digest(self, end: Bytes) -> str:
        """The SHA-256 of the whole object, as hexadecimal digits.

        Args:
            end: The last bytes of the object, which were read before.
        """
        self._skip(self.opened.size - len(end))
        self._update(end)
        return self._sha256.hexdigest()

    def _update(self, data: Bytes) -> None:
        self._sha256.update(data.data)

    def _skip(self, stop: int) -> None:
        if stop < self._position:
            raise ValueError("parts of the object overlap")
        unused = np.empty(min(self.opened.at_once, stop - self._position), np.uint8)
        while self._position < stop:
            part = unused[: stop - self._position]
            self.opened.read(self._position, part, seen=self._update)
            self._position += len(part)


_WRITING = re.compile(r"[0-9a-f]{32}\.partial")  # end of the name of a file that is being written

_AT_ONCE = 8  # objects that are written or removed at a time


class TooLargeError(OSError):
    """An object has more bytes than are allowed."""


class UrlError(ValueError):
    """A URL cannot be used. The message has one line and does not show credentials."""

    exit_status = 2


@dataclass(frozen=True)
class Objects:
    """The objects below a URL or path. They are named by keys such as "records/000003.json".

    Each write is atomic and durable. On a disk, the object is written to a temporary file, flushed
    and renamed, and its folder is flushed. Object stores give these guarantees themselves. All
    failures are raised as OSError. Transient failures are retried.

    Raises UrlError if the URL has credentials or chains file systems. The first use raises UrlError
    if the protocol is unknown or needs a package that is not installed.
    """

    url: str

    def __post_init__(self) -> None:
        if not str(self.url):
            raise UrlError("the path or URL of a store is empty")
        if "\0" in str(self.url):
            raise UrlError("the path or URL of a store has no NUL character")
        if "::" in str(self.url):  # fsspec would read a chain of file systems
            raise UrlError(
                "the path or URL of a store has no '::': chains of file systems are not read or "
                "written, and a folder needs another name"
            )
        if "://" in str(self.url) and "@" in urlsplit(str(self.url)).netloc:
            scheme = urlsplit(str(self.url)).scheme
            raise UrlError(
                f"a {scheme}:// URL must not hold credentials: put them in the environment, such "
                "as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )

    @cached_property
    def _location(self) -> tuple[Any, str]:
        try:
            with as_os_errors(str(self.url)):
                return fsspec.url_to_fs(str(self.url))  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        except ImportError as error:
            hint = "for s3://, pip install 'pdegen-operators[s3]'"
            raise UrlError(f"{self.url}: {error} ({hint})") from None
        except OSError as error:
            # an unknown protocol, or a library that is not installed
            if error.errno in (errno.EINVAL, errno.EIO):
                first_line = (error.strerror or "").partition("\n")[0]
                raise UrlError(f"{self.url}: {first_line}") from None
            raise

    @property
    def root(self) -> str:
        """The path of the URL, without its protocol."""
        return self._location[1]

    @property
    def is_local(self) -> bool:
        """Whether the objects are files on this machine."""
        return isinstance(self._location[0], LocalFileSystem)

    def _path(self, key: str) -> str:
        if key and not set(key.split("/")).isdisjoint({"", ".", ".."}):
            raise ValueError(f"an object cannot have the key {key!r}")
        return f"{self.root}/{key}" if key else self.root

    @retried
    def exists(self, key: str = "") -> bool:
        """Whether an object or a folder with this key exists."""
        filesystem, _ = self._location
        with as_os_errors(self._path(key)):
            filesystem.invalidate_cache()  # other processes write too
            return filesystem.exists(self._path(key))

    @retried
    def size(self, key: str) -> int:
        """Size of an object in bytes. Raises FileNotFoundError if it does not exist."""
        with as_os_errors(self._path(key)):
            return self._location[0].size(self._path(key))

    @contextmanager
    def open(self, key: str) -> Generator[Opened]:
        """Open an object for reading parts of it. Raises FileNotFoundError if it does not exist."""
        if not self.is_local:
            yield RemoteObject(self._location[0], self._path(key))
            return
        with self._file(key) as file:
            yield OpenFile(file)

    @retried
    def _file(self, key: str) -> FileIO:
        path = self._path(key)
        _check_regular(path)
        return FileIO(path)

    @retried
    def read(self, key: str, at_most: int | None = None) -> bytes:
        """The bytes of an object. Raises FileNotFoundError if it does not exist, and TooLargeError
        if it has more than `at_most` bytes."""
        filesystem, path = self._location[0], self._path(key)
        with as_os_errors(path):
            if self.is_local:
                _check_regular(path)
                data = files.read_at_most(path, at_most)
            elif at_most is None:
                data = filesystem.cat_file(path)
            else:
                data = filesystem.cat_file(path, start=0, end=at_most + 1)
        if at_most is not None and len(data) > at_most:
            raise TooLargeError(errno.EFBIG, f"larger than {at_most:,} bytes", path)
        return data

    def try_read(self, key: str, at_most: int) -> tuple[bytes | None, str]:
        """Read an object. Returns its bytes and an empty string. If it cannot be read, returns None
        and the reason, such as "is missing"."""
        try:
            return self.read(key, at_most), ""
        except (FileNotFoundError, NotADirectoryError):
            return None, "is missing"
        except IsADirectoryError:
            return None, "a folder is in its place"
        except TooLargeError as error:
            return None, f"is {error.strerror}"

    @retried
    def read_all(self, keys: list[str], at_most: int) -> list[bytes]:
        """The bytes of several objects. Object stores read them concurrently. Raises
        FileNotFoundError if one is missing, and TooLargeError if one has more than `at_most`
        bytes."""
        if self.is_local or not keys:
            return [self.read(key, at_most) for key in keys]
        filesystem, paths = self._location[0], [self._path(key) for key in keys]
        with as_os_errors(self.root):
            contents = filesystem.cat_ranges(
                paths, [0] * len(paths), [at_most + 1] * len(paths), on_error="raise"
            )
        if max(map(len, contents)) > at_most:
            raise TooLargeError(errno.EFBIG, f"larger than {at_most:,} bytes", self.root)
        return contents

    def _writable_path(self, key: str) -> str:
        """The path of an object that is to be written or removed."""
        path = self._path(key)
        if self.is_local:
            files.check_folders(self.root, path)
        return path

    def links(self) -> list[str]:
        """Keys of the folders that are symbolic links. Nothing is written below such folders."""
        if not self.is_local:
            return []
        linked = list[str]()
        for folder, names, _ in os.walk(self.root):
            paths = [os.path.join(folder, name) for name in names]
            linked += [os.path.relpath(path, self.root) for path in paths if os.path.islink(path)]
        return sorted(linked)

    @retried
    def write(self, key: str, data: bytes, check: Callable[[], None] | None = None) -> None:
        """Write an object. An older object with the same key is replaced.

        `check` is called before the object gets its name, and again afterwards. If the second call
        raises an error, the write is undone. On a disk, the older file is restored. An object store
        cannot restore it, so the new object is removed. If the error has `same` set, another job
        writes the same bytes, and the new object stays.
        """
        filesystem, path = self._location[0], self._writable_path(key)
        if not self.is_local:
            if check is not None:
                check()
            with as_os_errors(path):
                filesystem.pipe_file(path, data)
            if check is not None:
                self._checked(key, data, check)
            return
        with files.finished(path, data) as partial:
            if check is not None:
                files.put(partial, path, check)
            else:
                files.clear(path)
                os.replace(partial, path)

    def write_all(
        self, objects: Mapping[str, bytes], check: Callable[[], None] | None = None
    ) -> None:
        """Write several objects at the same time, in no particular order. A disk flushes them
        together, and a server answers them together. `check` is that of `write`."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            writes = [
                threads.submit(copy_context().run, self.write, key, data, check)
                for key, data in objects.items()
            ]
        for write in writes:
            write.result()

    def _checked(self, key: str, data: bytes, check: Callable[[], None]) -> None:
        try:
            check()
        except BaseException as error:
            if not getattr(error, "same", False) and self.try_read(key, len(data))[0] == data:
                self.remove(key)
            raise

    @retried
    def create(self, key: str, data: bytes) -> None:
        """Write an object that does not exist yet. If several processes call this at the same time,
        one succeeds. Raises FileExistsError if the object exists."""
        filesystem, path = self._location[0], self._writable_path(key)
        if not self.is_local:
            with as_os_errors(path):
                try:
                    filesystem.pipe_file(path, data, mode="create")
                except OSError as error:
                    if not _refused(error):
                        raise
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            return
        with files.finished(path, data) as partial:
            files.clear(path)
            files.put_new(partial, path)

    def clear(self, key: str) -> None:
        """Remove an empty folder at a key where an object is to be written. Raises OSError if the
        folder contains files."""
        if self.is_local:
            files.clear(self._writable_path(key))

    def check_conditional(self) -> None:
        """Test that the server refuses to create an object that already exists.

        Locks depend on this refusal, and some servers ignore the header If-None-Match. Local disks
        need no test. Raises UrlError if the server overwrites the object.
        """
        if self.is_local:
            return
        key = f"{uuid.uuid4().hex}{files.PARTIAL}"
        try:
            with suppress(FileExistsError):  # a retry after a lost answer finds this object
                self.create(key, b"first")
            self.create(key, b"second")
        except FileExistsError:
            return
        finally:
            self.remove(key)
        raise UrlError(
            f"{self.url}: the server overwrites an object that must not exist (it ignores "
            "If-None-Match), so two jobs could write to one store: use another server"
        )

    @retried
    def keys(self, prefix: str) -> list[str]:
        """Names of the objects and folders directly below a prefix. The list is empty if the prefix
        does not exist."""
        filesystem, _ = self._location
        with as_os_errors(self._path(prefix)):
            filesystem.invalidate_cache()
            try:
                names = filesystem.ls(self._path(prefix), detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        short = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
        return sorted(name for name in short if not _is_partial(name))

    def all_keys(self) -> Iterator[str]:
        """Keys of all objects. Temporary files that killed processes have left are not listed."""
        filesystem, root = self._location
        with as_os_errors(root):
            filesystem.invalidate_cache()
            for path in filesystem.find(root):
                key = path.removeprefix(root).lstrip("/")
                if not _is_partial(key):
                    yield key

    @retried
    def remove(self, key: str) -> None:
        """Remove an object, if it exists."""
        path = self._writable_path(key)
        with as_os_errors(path):
            try:
                self._location[0].rm_file(path)
            except FileNotFoundError:
                return
            if self.is_local:
                files.flush_folder(os.path.dirname(path))

    @retried
    def remove_all(self, key: str = "", check: Callable[[], None] | None = None) -> None:
        """Remove an object, or everything below a key.

        `check` is called first. On a disk, the files are then moved to a temporary name, and
        `check` is called again before they are removed. If the second call raises an error, they
        are moved back.
        """
        path = self._writable_path(key)
        if check is not None:
            check()
        if not self.is_local:
            self._remove_below(path)
            return
        with as_os_errors(path):
            if check is None:
                self._location[0].rm(path, recursive=True)
                return
        aside = files.beside(path)
        os.rename(path, aside)
        try:
            check()
        except BaseException:
            if not os.path.lexists(path):
                os.rename(aside, path)
            raise
        with as_os_errors(path):
            self._location[0].rm(aside, recursive=True)

    def _remove_below(self, path: str) -> None:
        """Remove an object, or everything below a path, from a server."""
        filesystem = self._location[0]
        with as_os_errors(path), ThreadPoolExecutor(_AT_ONCE) as threads:
            filesystem.invalidate_cache()
            list(threads.map(filesystem.rm_file, filesystem.find(path)))

    def remove_partial(self) -> None:
        """Remove the temporary files that killed processes have left on a disk."""
        if self.is_local:
            for folder, folders, names in os.walk(self.root):
                aside = [name for name in folders if _is_partial(name)]
                partial = [name for name in names if _is_partial(name)]
                for name in aside:
                    shutil.rmtree(os.path.join(folder, name))
                for name in partial:
                    with suppress(FileNotFoundError):  # its writer runs and has renamed it
                        os.remove(os.path.join(folder, name))
                if partial or aside:
                    files.flush_folder(folder)

    def flush(self, key: str = "") -> None:
        """Flush the folders below a key to the disk, so that removals and renames survive a power
        loss."""
        if self.is_local:
            for folder, _, _ in os.walk(self._path(key)):
                files.flush_folder(folder)


def _check_regular(path: str) -> None:
    """Raise IsADirectoryError if a path is not that of a file. Reading a pipe would block."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a file", path)


def _is_partial(name: str) -> bool:
    """Whether a name or one of its folders is the temporary name of an object that is being written
    or removed."""
    return any(_WRITING.fullmatch(part[-40:]) for part in name.split("/"))


def _refused(error: OSError) -> bool:
    """Whether an S3 server refused a write because the object exists (HTTP status 412)."""
    response: dict[str, dict[str, object]] = getattr(error.__cause__, "response", None) or {}
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412
