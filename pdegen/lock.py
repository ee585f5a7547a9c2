"""One driver at a time: the lock of a store that is being written."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from pdegen.objects import Objects, TooLargeError

KEY = "lock.json"
_BYTES = 2**16
_SETTLING = 0.2  # seconds that two who take over at once need to see each other


class LockedError(ValueError):
    """Another job writes to the store, or has taken over; one line."""


@dataclass(frozen=True)
class Holder:
    """Who writes to a store.

    Args:
        token: Of this job alone.
        host, boot, pid, born: The process: name and boot of its machine, number, and start.
        since: When it began to write.
    """

    token: str
    host: str
    boot: str
    pid: int
    born: float
    since: str

    @classmethod
    def parse(cls, data: bytes) -> Holder:
        """Raises ValueError on bytes that name no process."""
        try:
            holder = cls(**json.loads(data))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"it is no lock: {error}") from None
        words = (holder.token, holder.host, holder.boot, holder.since)
        if not all(isinstance(word, str) and word.isprintable() for word in words):
            raise ValueError("its words are no text of one line")
        numbers = type(holder.pid) is int and type(holder.born) in (int, float)
        if not (numbers and 0 < holder.pid < 2**31 and 0 <= holder.born < 2**40):
            raise ValueError("it has no process")
        return holder

    @classmethod
    def here(cls) -> Holder:
        """This process, with a new token."""
        return cls(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            boot=_boot(),
            pid=os.getpid(),
            born=psutil.Process().create_time(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def gone(self) -> bool:
        """Whether it is certain that the process has ended: false of other machines."""
        if self.host != socket.gethostname():
            return False
        if self.boot != _boot():
            return True
        try:
            process = psutil.Process(self.pid)
            # a process that was killed and not yet waited for has ended
            ended = process.status() == psutil.STATUS_ZOMBIE
            return ended or abs(process.create_time() - self.born) > 1
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def holder(objects: Objects) -> Holder | None:
    """Who holds the lock; None where nobody does.

    Raises:
        LockedError: If the lock cannot be read.
    """
    try:
        return Holder.parse(objects.read(KEY, _BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, TooLargeError):
        raise LockedError(
            f"{objects.url}: {KEY} cannot be read: if no job writes there, use --take-over"
        ) from None


@contextmanager
def locked(objects: Objects, take_over: bool = False) -> Iterator[Holder]:
    """Hold the lock of a store.

    The lock of a process of this machine that has ended is taken over without asking.

    Args:
        objects: The store.
        take_over: Take it from whoever holds it, who is then refused to seal the store.

    Raises:
        LockedError: If somebody else holds it.
    """
    mine = Holder.here()
    data = json.dumps(asdict(mine)).encode()
    try:
        objects.create(KEY, data)
    except FileExistsError:
        other = None if take_over else holder(objects)
        if other is not None and not other.gone and other != mine:  # a second attempt at our own
            raise LockedError(
                f"{objects.url} is being written by {other}: wait for it, or take over with "
                "--take-over if it has ended"
            ) from None
        objects.write(KEY, data)
        time.sleep(_SETTLING)
        check(objects, mine)
    try:
        yield mine
    finally:
        if holder_token(objects) == mine.token:
            objects.remove(KEY)


def check(objects: Objects, mine: Holder) -> None:
    """Raise LockedError unless this job still holds the lock."""
    if holder_token(objects) != mine.token:
        raise LockedError(f"{objects.url} was taken over by {holder(objects) or 'another job'}")


def holder_token(objects: Objects) -> str | None:
    """The token of who holds the lock, if it can be read."""
    try:
        other = holder(objects)
    except LockedError:
        return None
    return None if other is None else other.token


def _boot() -> str:
    """Which boot of the machine this is, where the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))
