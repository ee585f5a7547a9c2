"""One driver at a time: the lock of a store that is being written.

The lock is a lease. Its holder renews it every few seconds; another job takes it over once it has
seen no renewal for a whole lease by its own clock, so clocks need not agree. On one machine the
kernel tells at once whether the holder lives: it holds a temporary file locked, which nobody else
can have locked in its place.

A lease cannot stop a holder that slept. Its token does: workers look at the lock before they write,
and refuse where it is another's. They look again after each object: one that slept in between puts
back what it has replaced (on an object store, removes what it wrote).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from pdegen.store.objects import Objects, TooLargeError

logger = logging.getLogger(__name__)

LOCK_KEY, LEASE_KEY = "lock.json", "lease.json"
RENEWAL = 5.0  # seconds between two renewals
LEASE = 60.0  # seconds without one, after which the holder counts as gone
_BYTES = 2**16
_TOKEN = re.compile("[0-9a-f]{32}")
_SETTLING = 0.2  # seconds that two who take over at once need to see each other


class LockedError(ValueError):
    """Another job writes to the store, or has taken over; one line. `same`: it is known to make the
    same store, with the same bytes."""

    exit_status = 2

    def __init__(self, message: str, same: bool = False) -> None:
        super().__init__(message)
        self.same = same


@dataclass(frozen=True)
class Holder:
    """Who writes to a store."""

    token: str  # of this attempt alone
    job: str  # what it makes (`pdegen.store.reading.Store.job`)
    kernel: str  # the running kernel of its machine; empty where the system does not tell
    # host, pid, since: Machine, process and begin, for people
    host: str
    pid: int
    since: str

    @classmethod
    def parse(cls, data: bytes) -> Holder:
        """Raises ValueError on bytes that name no holder."""
        try:
            holder = cls(**json.loads(data))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"it is no lock: {error}") from None
        words = [value for name, value in vars(holder).items() if name != "pid"]
        if not all(isinstance(word, str) and word.isprintable() for word in words):
            raise ValueError("its fields are not texts of one line")
        if type(holder.pid) is not int or not _TOKEN.fullmatch(holder.token):
            raise ValueError("it has no process, or no token")
        return holder

    @classmethod
    def here(cls, job: str) -> Holder:
        """This process, with a new token."""
        return cls(
            token=uuid.uuid4().hex,
            job=job,
            kernel=_kernel(),
            host=socket.gethostname(),
            pid=os.getpid(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def holder(objects: Objects) -> Holder | None:
    """Who holds the lock; None where nobody does, or the lock cannot be read."""
    data, _ = objects.try_read(LOCK_KEY, _BYTES)
    try:
        return None if data is None else Holder.parse(data)
    except ValueError:
        return None


def check(objects: Objects, mine: Holder) -> None:
    """Raise LockedError unless this holder still has the lock."""
    other = holder(objects)
    if other is None or other.token != mine.token:
        same = other is not None and other.job == mine.job
        raise LockedError(f"{objects.url} was taken over by {other or 'another job'}", same)


@contextmanager
def locked(objects: Objects, job: str, take_over: bool = False) -> Generator[Holder]:
    """Hold the lock of a store for a job; `take_over` takes it from whoever holds it, who then can
    neither write nor seal. Raises LockedError if somebody else holds it, and lives as far as can be
    known, and OSError if a folder with files is in the place of the lock."""
    objects.clear(LEASE_KEY)  # no renewal could be written there
    mine = Holder.here(job)
    data = json.dumps(asdict(mine)).encode()
    with ExitStack() as stack:
        stack.enter_context(_alive(mine.token))
        while True:
            try:
                objects.create(LOCK_KEY, data)
                break
            except FileExistsError:
                other = holder(objects)
                if other == mine:  # the answer to the first attempt was lost
                    break
                if take_over or _expired(objects, other):
                    objects.write(LOCK_KEY, data)
                    time.sleep(_SETTLING)
                    check(objects, mine)
                    break
        stack.callback(_give_back, objects, mine.token)
        stack.enter_context(_renewed(objects, mine.token))
        yield mine


def _expired(objects: Objects, other: Holder | None) -> bool:
    """Whether the holder is gone: true after a lease without a sign, or where the kernel knows;
    false where the lock was given back. Raises LockedError if the holder gives a sign."""
    seen = _signs(objects)
    refused = LockedError(
        f"{objects.url} is being written by {other or 'another job'}: wait for it, or take over "
        "with --take-over if it has ended"
    )
    lives = None if other is None else _lives(other)
    if lives:
        raise refused
    if lives is False:
        return True
    logger.warning(
        "%s is locked by %s: waiting up to %.0f seconds to see whether it still runs "
        "(--take-over if it has ended)", objects.url, other or "an unknown job", LEASE,
    )  # fmt: skip
    end = time.monotonic() + LEASE
    while time.monotonic() < end:
        time.sleep(min(1.0, LEASE / 10))
        now = _signs(objects)
        if now[0] is None:
            return False
        if now != seen:
            raise refused
    return True


def _signs(objects: Objects) -> tuple[bytes | None, ...]:
    """What changes while a holder lives."""
    return tuple(_bytes(objects, key) for key in (LOCK_KEY, LEASE_KEY))


def _bytes(objects: Objects, key: str) -> bytes | None:
    try:
        return objects.read(key, _BYTES)
    except FileNotFoundError:
        return None
    except (IsADirectoryError, TooLargeError):
        return b""


@contextmanager
def _alive(token: str) -> Generator[None]:
    """Hold a file of this machine locked by the kernel, which lets go when the process ends."""
    path = _sign_of_life(token)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with suppress(OSError):  # a file system without such locks: renewals are all there is
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lives(other: Holder) -> bool | None:
    """Whether a holder on this machine lives; None where that is not known."""
    if not other.kernel or other.kernel != _kernel():
        return None
    path = _sign_of_life(other.token)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it may be in a container with files of its own
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        with suppress(OSError):  # it may be another user's
            path.unlink()
        return False
    finally:
        os.close(descriptor)


def _sign_of_life(token: str) -> Path:
    return Path(tempfile.gettempdir(), f"pdegen-{token}.lock")


@contextmanager
def _renewed(objects: Objects, token: str) -> Generator[None]:
    """Renew the lease while the job runs and the lock is its own."""
    done = threading.Event()

    def renew() -> None:
        for number in count():
            with suppress(OSError):  # the next renewal may succeed; workers have their own errors
                other = holder(objects)
                if other is None or other.token != token:
                    return
                objects.write(LEASE_KEY, json.dumps({"token": token, "renewal": number}).encode())
            if done.wait(RENEWAL):
                return

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _give_back(objects: Objects, token: str) -> None:
    other = holder(objects)
    if other is not None and other.token == token:
        objects.remove(LEASE_KEY)
        objects.remove(LOCK_KEY)


def _kernel() -> str:
    """The running kernel of this machine, by a number drawn when it started; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
