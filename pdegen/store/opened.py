"""Reading of parts of one object into memory of the caller.

Files are read, not mapped: if another program truncates a mapped file, the operating system kills
the process that reads the missing pages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from typing import Any

import numpy as np

from pdegen.store.retries import as_os_errors, retried

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
