"""A file system in memory that forgets what was not synced when its power is cut.

POSIX promises little: the bytes of a file survive once the file was synced, and a name in a folder
(made, renamed, linked or removed) once the folder was synced. A disk of one machine keeps more, but
which part of it no program may rely on. So a cut here keeps what was synced, and of the rest what
its mode says:

    strict   nothing
    journal  the names up to some moment, as a file system with a journal does; of bytes anything
    any      each change of a name by itself, in any order; of bytes anything

"Anything" is what disks do to bytes on their way: each sector of 512 bytes is the new one, the old
one, or zeros, and a file may be shorter.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, get_args

Mode = Literal["strict", "journal", "any"]
MODES: tuple[Mode, ...] = get_args(Mode)
_SECTOR = 512
_numbers = count(1)


@dataclass(eq=False)
class File:
    """Bytes.

    Args:
        data: Bytes as programs see them.
        durable: Bytes of the last sync.
        least: The shortest that the file was since then: these bytes of `durable` are in no danger
            of being freed.
    """

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    least: int = 0
    dirty: bool = False
    number: int = field(default_factory=lambda: next(_numbers))

    def write(self, offset: int, data: bytes) -> None:
        self.data.extend(bytes(max(0, offset - len(self.data))))
        self.data[offset : offset + len(data)] = data
        self.dirty = True

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self.least, self.dirty = min(self.least, size), True

    def sync(self) -> None:
        self.durable, self.dirty, self.least = bytes(self.data), False, len(self.data)

    def forget(self, mode: Mode, chance: random.Random) -> None:
        """What is left after a cut, which is durable."""
        if self.dirty and mode != "strict":
            self.durable = self._torn(chance)
        self.data = bytearray(self.durable)
        self.sync()

    def _torn(self, chance: random.Random) -> bytes:
        new = bytes(self.data)
        old = self.durable[: self.least].ljust(len(new), b"\0")
        short = new[: chance.randint(min(self.least, len(new)), len(new))]
        sectors = range(0, len(new), _SECTOR)
        mixed = b"".join(chance.choice((old, new))[k : k + _SECTOR] for k in sectors)
        return chance.choice((self.durable, new, old, short, mixed))


@dataclass(eq=False)
class Folder:
    """Names: those that programs see, and those of the last sync."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    number: int = field(default_factory=lambda: next(_numbers))


Node = File | Folder
Change = tuple[Folder, str, Node | None]  # the name has this node from now on


def _failed(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Disk:
    """Files and folders by paths such as "/a/b"."""

    def __init__(self) -> None:
        self.root = Folder()
        self._pending: list[list[Change]] = []  # changes of names, each a whole, in their order

    def node(self, path: str) -> Node:
        node: Node = self.root
        for name in filter(None, path.split("/")):
            if isinstance(node, File):
                raise _failed(errno.ENOTDIR, path)
            if name not in node.entries:
                raise _failed(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def file(self, path: str) -> File:
        return self._of(path, File, errno.EISDIR)

    def folder(self, path: str) -> Folder:
        return self._of(path, Folder, errno.ENOTDIR)

    def _of(self, path: str, kind: type, fault: int) -> Any:
        if not isinstance(node := self.node(path), kind):
            raise _failed(fault, path)
        return node

    def _place(self, path: str, free: bool = False) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self.folder(parent)
        if free and name in folder.entries:
            raise _failed(errno.EEXIST, path)
        return folder, name

    # changing

    def _change(self, *changes: Change) -> None:
        for change in changes:
            _apply(change, durably=False)
        self._pending.append(list(changes))

    def create(self, path: str) -> File:
        file = File()
        self._change((*self._place(path, free=True), file))
        return file

    def mkdir(self, path: str) -> None:
        self._change((*self._place(path, free=True), Folder()))

    def link(self, source: str, target: str) -> None:
        self._change((*self._place(target, free=True), self.file(source)))

    def unlink(self, path: str) -> None:
        self.file(path)
        self._change((*self._place(path), None))

    def rmdir(self, path: str) -> None:
        if self.folder(path).entries:
            raise _failed(errno.ENOTEMPTY, path)
        self._change((*self._place(path), None))

    def rename(self, source: str, target: str) -> None:
        node, (folder, name) = self.node(source), self._place(target)
        there = folder.entries.get(name)
        if there is node:
            return
        if isinstance(there, Folder) and isinstance(node, File):
            raise _failed(errno.EISDIR, target)
        if isinstance(there, Folder) and there.entries:
            raise _failed(errno.ENOTEMPTY, target)
        if isinstance(there, File) and isinstance(node, Folder):
            raise _failed(errno.ENOTDIR, target)
        self._change((*self._place(source), None), (folder, name, node))

    # syncing

    def sync_folder(self, path: str) -> None:
        """The names in a folder are durable; those below it and its own are not."""
        folder, left = self.folder(path), []
        for changes in self._pending:
            for change in changes:
                if change[0] is folder:
                    _apply(change, durably=True)
            left.append([change for change in changes if change[0] is not folder])
        self._pending = [changes for changes in left if changes]

    def sync(self) -> None:
        """Everything is durable."""
        for changes in self._pending:
            for change in changes:
                _apply(change, durably=True)
        self._pending = []
        for node in self._nodes():
            if isinstance(node, File):
                node.sync()

    def cut(self, mode: Mode = "strict", chance: random.Random | None = None) -> None:
        """Cut the power; what is left is what programs see from now on."""
        chance = chance or random.Random(0)
        until = chance.randint(0, len(self._pending))
        for number, changes in enumerate(self._pending):
            kept = {"strict": False, "journal": number < until, "any": chance.random() < 0.5}
            for change in changes if kept[mode] else ():
                _apply(change, durably=True)
        self._pending = []
        for node in self._nodes(durably=True):
            if isinstance(node, File):
                node.forget(mode, chance)
            else:
                node.entries = dict(node.durable)

    def _nodes(self, durably: bool = False) -> Iterator[Node]:
        """Everything below the root, each once or, with several names, several times."""
        left = list[Node]([self.root])
        while left:
            node = left.pop()
            yield node
            if isinstance(node, Folder):
                left += list((node.durable if durably else node.entries).values())


def _apply(change: Change, durably: bool) -> None:
    folder, name, node = change
    entries = folder.durable if durably else folder.entries
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
