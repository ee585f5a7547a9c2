"""Named bytes under a URL, on a directory or an object store: read, write atomically, list."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem


@dataclass(frozen=True)
class Objects:
    """The objects below a URL or path, by keys such as "records/000003.json".

    A write appears as a whole or not at all: on a disk by renaming a finished file, on object
    stores by the store's own guarantee.
    """

    url: str

    @cached_property
    def _location(self) -> tuple[Any, str]:
        return fsspec.url_to_fs(str(self.url))

    @property
    def root(self) -> str:
        """The path without its protocol."""
        return self._location[1]

    @property
    def is_local(self) -> bool:
        return isinstance(self._location[0], LocalFileSystem)

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def exists(self, key: str = "") -> bool:
        return self._location[0].exists(self._path(key))

    def read(self, key: str) -> bytes:
        """Raises FileNotFoundError where there is no such object."""
        return self._location[0].cat_file(self._path(key))

    def write(self, key: str, data: bytes) -> None:
        filesystem, _ = self._location
        path = self._path(key)
        if not self.is_local:
            filesystem.pipe_file(path, data)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        try:
            with open(partial, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            if os.path.exists(partial):
                os.remove(partial)

    def keys(self, prefix: str) -> list[str]:
        """Names directly below the prefix; none where it does not exist."""
        filesystem, _ = self._location
        if not filesystem.exists(self._path(prefix)):
            return []
        names = filesystem.ls(self._path(prefix), detail=False)
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in names)

    def remove(self, key: str) -> None:
        """Remove one object, where there is one."""
        if self.exists(key):
            self._location[0].rm_file(self._path(key))

    def remove_all(self) -> None:
        """Remove everything below the URL."""
        self._location[0].rm(self.root, recursive=True)
