"""Named bytes under a URL, on a directory or an object store: read, write atomically, list."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import fsspec  # pyright: ignore[reportMissingTypeStubs]
from fsspec.implementations.local import (  # pyright: ignore[reportMissingTypeStubs]
    LocalFileSystem,
)

from pdegen.store import disk
from pdegen.store.retries import as_os_errors, retried

_WRITING = re.compile(r"[0-9a-f]{32}\.partial")  # how the name of what is being written ends


class TooLargeError(OSError):
    """An object has more bytes than it can have."""


class UrlError(ValueError):
    """A URL that cannot be used; one line, which repeats no credentials."""

    exit_status = 2


@dataclass(frozen=True)
class Objects:
    """The objects below a URL or path, by keys such as "records/000003.json".

    A write appears as a whole or not at all, and survives a loss of power once it has returned: on
    a disk by a finished file that is flushed, renamed, and flushed in its folder; on object stores
    by the store's own guarantee. What goes wrong is an OSError, on object stores too, after several
    attempts where it may pass. Raises UrlError where the URL holds a user name or password, or is a
    chain; and on first use, where its protocol is unknown, or needs a package that is not here.
    """

    url: str

    def __post_init__(self) -> None:
        if not str(self.url):
            raise UrlError("the path or URL of a store is empty")
        if "\0" in str(self.url):
            raise UrlError("the path or URL of a store has no NUL character")
        if "::" in str(self.url):  # fsspec would take its parts for several places
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
                said = (error.strerror or "").partition("\n")[0]
                raise UrlError(f"{self.url}: {said}") from None
            raise

    @property
    def root(self) -> str:
        """The path without its protocol."""
        return self._location[1]

    @property
    def is_local(self) -> bool:
        return isinstance(self._location[0], LocalFileSystem)

    def _path(self, key: str) -> str:
        if key and not set(key.split("/")).isdisjoint({"", ".", ".."}):
            raise ValueError(f"no key of an object: {key!r}")
        return f"{self.root}/{key}" if key else self.root

    @retried
    def exists(self, key: str = "") -> bool:
        filesystem, _ = self._location
        with as_os_errors(self._path(key)):
            filesystem.invalidate_cache()  # others write too
            return filesystem.exists(self._path(key))

    @retried
    def size(self, key: str) -> int:
        """Bytes of an object. Raises FileNotFoundError where there is none."""
        with as_os_errors(self._path(key)):
            return self._location[0].size(self._path(key))

    @retried
    def identity(self, key: str) -> str:
        """What changes with an object: of when, of which size, and further marks that its place
        has. Raises FileNotFoundError where there is none."""
        filesystem, path = self._location[0], self._path(key)
        with as_os_errors(path):
            filesystem.invalidate_cache()  # others write too
            return filesystem.ukey(path)

    @retried
    def read(self, key: str, at_most: int | None = None) -> bytes:
        """The bytes of an object. Raises FileNotFoundError where there is no such object, and
        TooLargeError where it has more than `at_most` bytes."""
        filesystem, path = self._location[0], self._path(key)
        with as_os_errors(path):
            if self.is_local and not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would wait
                raise IsADirectoryError(errno.EISDIR, "no file", path)
            if self.is_local:
                data = disk.read(path, at_most)
            elif at_most is None:
                data = filesystem.cat_file(path)
            else:
                data = filesystem.cat_file(path, start=0, end=at_most + 1)
        if at_most is not None and len(data) > at_most:
            raise TooLargeError(errno.EFBIG, f"larger than {at_most:,} bytes", path)
        return data

    @retried
    def part(self, key: str, start: int | None, end: int | None) -> bytes:
        """Some bytes of an object, of a file in place. A negative start counts from its end."""
        with as_os_errors(self._path(key)):
            return self._location[0].cat_file(self._path(key), start=start, end=end)

    def found(self, key: str, at_most: int) -> tuple[bytes | None, str]:
        """The bytes of an object; or None, and why there are none of at most so many."""
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
        """Several objects, at once where that is faster. Raises FileNotFoundError where one of them
        does not exist, and TooLargeError where one has more than `at_most` bytes."""
        if self.is_local or not keys:
            return [self.read(key, at_most) for key in keys]
        filesystem, paths = self._location[0], [self._path(key) for key in keys]
        with as_os_errors(self.root):
            found = filesystem.cat_ranges(
                paths, [0] * len(paths), [at_most + 1] * len(paths), on_error="raise"
            )
        if max(map(len, found)) > at_most:
            raise TooLargeError(errno.EFBIG, f"larger than {at_most:,} bytes", self.root)
        return found

    def _place(self, key: str) -> str:
        """The path of what is to be written or removed. Raises OSError where a folder on the way
        is a symbolic link, which leads out of the store."""
        path = self._path(key)
        if self.is_local:
            disk.check_folders(self.root, path)
        return path

    def links(self) -> list[str]:
        """The keys of the symbolic links in the place of folders, which nothing is written to."""
        if not self.is_local:
            return []
        found = list[str]()
        for folder, names, _ in os.walk(self.root):
            paths = [os.path.join(folder, name) for name in names]
            found += [os.path.relpath(path, self.root) for path in paths if os.path.islink(path)]
        return sorted(found)

    @retried
    def write(self, key: str, data: bytes, check: Callable[[], None] | None = None) -> None:
        """Write an object, in place of what is there.

        `check` is called before the object has its name, and again after. Where it raises an error
        the second time, what was there is there again on a disk; on an object store, which cannot
        swap, the object is removed, so that its readers miss it, unless the error says `same`: what
        replaced it has the same bytes.
        """
        filesystem, path = self._location[0], self._place(key)
        if not self.is_local:
            if check is not None:
                check()
            with as_os_errors(path):
                filesystem.pipe_file(path, data)
            if check is not None:
                self._checked(key, data, check)
            return
        with disk.finished(path, data) as partial:
            if check is not None:
                disk.put(partial, path, check)
            else:
                disk.clear(path)
                os.replace(partial, path)

    def _checked(self, key: str, data: bytes, check: Callable[[], None]) -> None:
        try:
            check()
        except BaseException as error:
            if not getattr(error, "same", False) and self.try_read(key, len(data))[0] == data:
                self.remove(key)
            raise

    @retried
    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not exist; of several who try at once, one succeeds. Raises
        FileExistsError where it exists."""
        filesystem, path = self._location[0], self._place(key)
        if not self.is_local:
            with as_os_errors(path):
                try:
                    filesystem.pipe_file(path, data, mode="create")
                except OSError as error:
                    if not _refused(error):
                        raise
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            return
        with disk.finished(path, data) as partial:
            disk.clear(path)
            os.link(partial, path)

    def clear(self, key: str) -> None:
        """Remove an empty folder in the place of an object. Raises OSError where it has files."""
        if self.is_local:
            disk.clear(self._place(key))

    def check_conditional(self) -> None:
        """Ask the server for a second object of one name, which it must refuse.

        Locks rest on this, and some servers ignore the header If-None-Match. Disks are not asked.
        Raises UrlError if both are made.
        """
        if self.is_local:
            return
        key = f"{uuid.uuid4().hex}{disk.PARTIAL}"
        try:
            with suppress(FileExistsError):  # after a lost answer it is our own
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
        """Names directly below the prefix; none where it does not exist."""
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
        """The keys of all objects, except what writers that were killed have left."""
        filesystem, root = self._location
        with as_os_errors(root):
            filesystem.invalidate_cache()
            for path in filesystem.find(root):
                key = path.removeprefix(root).lstrip("/")
                if not _is_partial(key):
                    yield key

    @retried
    def remove(self, key: str) -> None:
        """Remove one object, where there is one."""
        path = self._place(key)
        with as_os_errors(path):
            try:
                self._location[0].rm_file(path)
            except FileNotFoundError:
                return
            if self.is_local:
                disk.flush_folder(os.path.dirname(path))

    @retried
    def remove_all(self, key: str = "", check: Callable[[], None] | None = None) -> None:
        """Remove an object, or everything below a key. `check` is called before, and on a disk
        again before what was moved aside is removed: where it raises an error, that is moved
        back."""
        path = self._place(key)
        if check is not None:
            check()
        with as_os_errors(path):
            if check is None or not self.is_local:
                self._location[0].rm(path, recursive=True)
                return
        aside = disk.beside(path)
        os.rename(path, aside)
        try:
            check()
        except BaseException:
            if not os.path.lexists(path):
                os.rename(aside, path)
            raise
        with as_os_errors(path):
            self._location[0].rm(aside, recursive=True)

    def remove_partial(self) -> None:
        """Remove what writers that were killed have left on a disk."""
        if self.is_local:
            for folder, folders, names in os.walk(self.root):
                aside = [name for name in folders if _is_partial(name)]
                partial = [name for name in names if _is_partial(name)]
                for name in aside:
                    shutil.rmtree(os.path.join(folder, name))
                for name in partial:
                    with suppress(FileNotFoundError):  # its writer lives, and has finished it
                        os.remove(os.path.join(folder, name))
                if partial or aside:
                    disk.flush_folder(folder)

    def flush(self, key: str = "") -> None:
        """Make what was removed or renamed below a key survive a loss of power."""
        if self.is_local:
            for folder, _, _ in os.walk(self._path(key)):
                disk.flush_folder(folder)


def _is_partial(name: str) -> bool:
    """Whether it is the name of an object that is being written or removed, or below one."""
    return any(_WRITING.fullmatch(part[-40:]) for part in name.split("/"))


def _refused(error: OSError) -> bool:
    """Whether an S3 server found a condition unmet; s3fs asks which, and not all servers say it."""
    response: dict[str, dict[str, object]] = getattr(error.__cause__, "response", None) or {}
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412
