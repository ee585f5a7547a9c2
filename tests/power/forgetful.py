"""A folder where power can be cut: `tests.power.disk` mounted by FUSE, in a process of its own.

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
from pathlib import Path
from typing import Any

from tests.power.disk import Disk, File, Folder, Mode, Node

_PATIENCE = 20  # seconds until the folder is there
_BLOCK, _BLOCKS = 4096, 2**22  # what the disk says to be large: 16 GiB
_CHANGES = ("create", "write", "truncate", "rename", "link", "unlink", "mkdir", "rmdir",
            "fsync", "fsyncdir")  # fmt: skip


class Forgetful:
    """The operations of FUSE on a disk, counted; one of them may be the last.

    A file that has lost its last name cannot be read on: libfuse asks for files by their names.

    Args:
        disk: What is mounted.
    """

    use_ns = True

    def __init__(self, disk: Disk) -> None:
        self.disk, self._guard = disk, threading.Lock()
        self.files, self.next = dict[int, File](), 1
        self.on, self.count, self.last = True, 0, ""
        self.at, self.victim = 0, 0
        self.mode: Mode = "strict"
        self.chance = random.Random(0)
        for name in _CHANGES:
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name: str, operation: Any) -> Any:
        def counted(path: str, *arguments: Any) -> Any:
            with self._guard:
                if not self.on:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                self.count += 1
                if self.count == self.at:
                    self.last = f"{name} {path}"
                    self.cut()
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                return operation(path, *arguments)

        return counted

    def cut(self) -> None:
        """No operation more is done; the process that is the victim is killed with its group."""
        self.on = False
        if self.victim:
            with suppress(ProcessLookupError):
                os.killpg(self.victim, signal.SIGKILL)
        self.disk.cut(self.mode, self.chance)
        self.files.clear()

    def asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the process that mounted the folder asks for."""
        with self._guard:
            match request["do"]:
                case "arm":  # from here on
                    self.count, self.last = 0, ""
                    self.at, self.victim, self.mode = (request[k] for k in ("at", "victim", "mode"))
                    self.chance = random.Random(request["seed"])
                case "cut":
                    self.mode, self.chance = request["mode"], random.Random(request["seed"])
                    self.victim = 0
                    self.cut()
                    self.on = True
                case "on":
                    self.on, self.at = True, 0
                case "sync":
                    self.disk.sync()
            return {"count": self.count, "last": self.last, "on": self.on}

    # what FUSE calls

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        with self._guard:
            node = self.files.get(fh or 0) or self.disk.node(path)
            folder = isinstance(node, Folder)
            when = int(node.changed * 1e9)
            return {
                "st_mode": _mode(node),
                "st_nlink": 2 if folder else 1,
                "st_ino": node.number,
                "st_size": 0 if folder else len(node.data),
                "st_uid": os.getuid(), "st_gid": os.getgid(),
                "st_mtime": when, "st_ctime": when, "st_atime": when,
            }  # fmt: skip

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with self._guard:  # names with number 0 would be skipped
            folder = self.disk.folder(path)
            entries = {".": folder, "..": folder, **folder.entries}
            return [
                (name, {"st_ino": node.number, "st_mode": _mode(node)}, 0)
                for name, node in entries.items()
            ]

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

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        with self._guard:
            self.disk.node(path).changed = times[1] / 1e9 if times else time.time()
            return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._opened(self.disk.create(path))

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._file(fh, path).write(offset, data)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        (self.disk.file(path) if fh is None else self._file(fh, path)).truncate(length)
        return 0

    def rename(self, old: str, new: str) -> int:
        self.disk.rename(old, new)
        return 0

    def link(self, target: str, source: str) -> int:
        self.disk.link(source, target)
        return 0

    def unlink(self, path: str) -> int:
        self.disk.unlink(path)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self.disk.mkdir(path)
        return 0

    def rmdir(self, path: str) -> int:
        self.disk.rmdir(path)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._file(fh, path).sync()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self.disk.sync_folder(path)
        return 0

    def _opened(self, file: File) -> int:
        handle, self.next = self.next, self.next + 1
        self.files[handle] = file
        return handle

    def _file(self, handle: int, path: str) -> File:
        """The file of a handle; handles of the time before a cut are none."""
        if handle not in self.files:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return self.files[handle]


def _mode(node: Node) -> int:
    return stat.S_IFDIR | 0o755 if isinstance(node, Folder) else stat.S_IFREG | 0o644


class Power:
    """The switch of a mounted folder.

    Args:
        folder: Where it is mounted.
        process: What serves it.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self._process = folder, process

    def _ask(self, do: str, **words: Any) -> dict[str, Any]:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        print(json.dumps({"do": do, **words}), file=asked, flush=True)
        return json.loads(answers.readline())

    def arm(self, at: int, victim: int = 0, mode: Mode = "strict", seed: int = 0) -> None:
        """Count operations from here on, and cut the power in place of the one of this number.

        Args:
            at: Which one; 0 for none.
            victim: A process group, which is killed then.
            mode, seed: What is left of what was not synced, as of `tests.power.disk`.
        """
        self._ask("arm", at=at, victim=victim, mode=mode, seed=seed)

    def cut(self, mode: Mode = "strict", seed: int = 0) -> None:
        """Cut the power, and switch it on again."""
        self._ask("cut", mode=mode, seed=seed)

    def on(self) -> str:
        """Switch it on after a cut; returns the operation in whose place it was, or ""."""
        return self._ask("on")["last"]

    def sync(self) -> None:
        """Everything is durable, whoever wrote it."""
        self._ask("sync")

    @property
    def count(self) -> int:
        """Operations that change something, since `arm`."""
        return self._ask("state")["count"]


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
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.power.forgetful", str(folder)],
        cwd=Path(__file__).parents[2], text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
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
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _serve(folder: str) -> None:
    """Mount, until this process is killed; requests come by lines on stdin."""
    from mfusepy import FUSE

    forgetful = Forgetful(Disk())

    def answer() -> None:
        for line in sys.stdin:
            print(json.dumps(forgetful.asked(json.loads(line))), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    # nothing is kept by the kernel: after a cut it would show what is no more
    FUSE(
        forgetful, folder, foreground=True, nothreads=True, hard_remove=True, use_ino=True,
        attr_timeout=0, entry_timeout=0, negative_timeout=0,
    )  # fmt: skip


if __name__ == "__main__":
    _serve(sys.argv[1])
