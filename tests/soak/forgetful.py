"""A folder where power can be cut: `tests.soak.disk` mounted by FUSE, in a process of its own.

FUSE, and no device mapper, which kernels of containers and of many cloud machines lack; and no
shutdown of a real file system, which keeps more than it has promised.
"""

from __future__ import annotations

import ctypes.util
import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.disk import Disk, File, Folder, Mode, Node

_PATIENCE = 20  # seconds until the folder is there
_BLOCK, _BLOCKS = 4096, 2**22  # what the disk says to be large: 16 GiB
_CHANGES = ("create", "write", "truncate", "rename", "link", "unlink", "mkdir", "rmdir",
            "fsync", "fsyncdir")  # fmt: skip


def _mode(node: Node) -> int:
    return stat.S_IFDIR | 0o755 if isinstance(node, Folder) else stat.S_IFREG | 0o644


class Forgetful:
    """The operations of FUSE on a disk, by one thread, counted; one of them may be the last.

    A file that has lost its last name cannot be read on: libfuse asks for files by their names.
    """

    use_ns = True

    def __init__(self, disk: Disk) -> None:
        self.disk, self._guard = disk, threading.Lock()
        self.files, self.next = dict[int, File](), 1
        self.on, self.count, self.last = True, 0, ""
        self.at, self.victim, self.mode, self.chance = 0, 0, "strict", random.Random(0)
        for name in _CHANGES:
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name: str, operation: Any) -> Any:
        def counted(path: str, *arguments: Any) -> Any:
            with self._guard:
                if self.on:
                    self.count += 1
                    if self.count != self.at:
                        return operation(path, *arguments) or 0
                    self.last = f"{name} {path}"
                    self.cut()
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        return counted

    def cut(self) -> None:
        """No operation more is done; the process that is the victim is killed with its group."""
        self.on = False
        if self.victim:
            with suppress(ProcessLookupError):
                os.killpg(self.victim, signal.SIGKILL)
        self.disk.cut(self.mode, self.chance)
        self.files.clear()

    def asked(self, do: str, at: int = 0, victim: int = 0, mode: Mode = "strict",
              seed: int = 0) -> dict[str, Any]:  # fmt: skip
        """What the process that mounted the folder asks for."""
        with self._guard:
            if do in ("arm", "cut"):
                self.victim, self.mode, self.chance = victim, mode, random.Random(seed)
            if do == "arm":  # from here on
                self.count, self.last, self.at = 0, "", at
            if do == "cut":
                self.cut()
            if do in ("cut", "on"):
                self.on, self.at = True, 0
            if do == "sync":
                self.disk.sync()
            return {"count": self.count, "last": self.last}

    # what FUSE calls

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._guard:
            node = self.files.get(fh or 0) or self.disk.node(path)
            size, links = (0, 2) if isinstance(node, Folder) else (len(node.data), 1)
            return {"st_mode": _mode(node), "st_ino": node.number, "st_size": size,
                    "st_nlink": links, "st_uid": os.getuid(), "st_gid": os.getgid(),
                    "st_mtime": 0, "st_ctime": 0, "st_atime": 0}  # fmt: skip

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with self._guard:  # names with number 0 would be skipped
            folder = self.disk.folder(path)
            entries = {".": folder, "..": folder, **folder.entries}
            return [(name, {"st_ino": node.number, "st_mode": _mode(node)}, 0)
                    for name, node in entries.items()]  # fmt: skip

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": _BLOCK, "f_frsize": _BLOCK, "f_blocks": _BLOCKS, "f_bfree": _BLOCKS,
                "f_bavail": _BLOCKS, "f_namemax": 255, "f_files": 2**20, "f_ffree": 2**20,
                "f_favail": 2**20}  # fmt: skip

    def open(self, path: str, flags: int) -> int:
        with self._guard:
            return self._opened(self.disk.file(path))

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._guard:
            return bytes(self._file(fh, path).data[offset : offset + size])

    def release(self, path: str, fh: int) -> int:
        with self._guard:
            self.files.pop(fh, None)
            return 0

    def _nothing(self, path: str, *arguments: Any) -> int:
        return 0

    chmod = chown = utimens = _nothing

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._opened(self.disk.create(path))

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._file(fh, path).write(offset, data)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        (self.disk.file(path) if fh is None else self._file(fh, path)).truncate(length)

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(old, new)

    def link(self, target: str, source: str) -> None:
        self.disk.link(source, target)

    def unlink(self, path: str) -> None:
        self.disk.unlink(path)

    def mkdir(self, path: str, mode: int) -> None:
        self.disk.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.disk.rmdir(path)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        self._file(fh, path).sync()

    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        self.disk.sync_folder(path)

    def _opened(self, file: File) -> int:
        handle, self.next = self.next, self.next + 1
        self.files[handle] = file
        return handle

    def _file(self, handle: int, path: str) -> File:
        """The file of a handle; handles of the time before a cut are none."""
        if handle not in self.files:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return self.files[handle]


@dataclass(frozen=True)
class Power:
    """The switch of a mounted folder.

    Args:
        folder: Folder where the file system is mounted.
        process: Process that serves it.
    """

    folder: Path
    process: subprocess.Popen[str]

    def __call__(self, do: str, **words: Any) -> dict[str, Any]:
        """The number of changes since "arm", and the one in whose place power was cut.

        Args:
            do: "arm": count changes from here on, and cut the power in place of the one of the
                number `at`. "cut" it now, and switch it on again. Switch it "on" after a cut.
                "sync": everything is durable, whoever wrote it.
            words: at; victim, a process group that is killed by the cut; mode and seed, what is
                left of what was not synced, as of `tests.soak.disk`.
        """
        print(json.dumps({"do": do, **words}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def missing() -> str:
    """What is missing here to mount a folder, and how to get it; "" where nothing is."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or closed to this user"
    if not (ctypes.util.find_library("fuse3") or ctypes.util.find_library("fuse")):
        return "libfuse is missing: apt-get install fuse3 libfuse3-3"
    return ""


@contextmanager
def mounted(folder: Path) -> Iterator[Power]:
    """A forgetful file system, mounted on an empty folder.

    Raises:
        RuntimeError: If it cannot be mounted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.soak.forgetful", str(folder)],
        cwd=Path(__file__).parents[2], text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            end = time.monotonic() + _PATIENCE
            while not os.path.ismount(folder):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{folder} could not be mounted")
                time.sleep(0.01)
            yield Power(folder, process)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
            process.kill()


def _serve(folder: str) -> None:
    """Mount, until this process is killed; requests come by lines on stdin."""
    from mfusepy import FUSE

    forgetful = Forgetful(Disk())

    def answer() -> None:
        for line in sys.stdin:
            print(json.dumps(forgetful.asked(**json.loads(line))), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    # nothing is kept by the kernel: after a cut it would show what is no more
    FUSE(
        forgetful, folder, foreground=True, nothreads=True, hard_remove=True, use_ino=True,
        attr_timeout=0, entry_timeout=0, negative_timeout=0,
    )  # fmt: skip


if __name__ == "__main__":
    _serve(sys.argv[1])
