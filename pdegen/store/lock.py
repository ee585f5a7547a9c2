"""The lock of a store that is being written. It allows one job to write at a time.

The lock is a lease, which its holder renews every few seconds. Another job waits for the length of
a lease, measured on its own clock, and takes the lock over if it sees no renewal. The clocks of the
machines need not agree. If both jobs run on one machine, the kernel tells whether the holder still
runs, because the holder keeps a temporary file locked.

A suspended holder may wake after its lease has expired. The token in the lock stops it: workers
read the lock before each write, and stop if they find another token. They read the lock again after
each write, and undo the write if they lost the lock. On a disk, the older file is restored. On an
object store, the object is removed.
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
LEASE = 60.0  # seconds without a renewal after which the lock may be taken over
_BYTES = 2**16  # largest size of a lock
_TOKEN = re.compile("[0-9a-f]{32}")
_SETTLING = 0.2  # seconds in which two jobs that take over at once see each other


class LockedError(ValueError):
    """Another job writes to the store or has taken the store over. `same` is True if that job is
    known to write the same bytes. The message has one line."""

    exit_status = 2

    def __init__(self, message: str, same: bool = False) -> None:
        super().__init__(message)
        self.same = same


@dataclass(frozen=True)
class Holder:
    """The job and the process that hold the lock of a store."""

    token: str  # random, unique to this attempt
    job: str  # identity of the job (`pdegen.store.format.job_of`)
    kernel: str  # boot ID of the machine; empty if unknown
    # machine, process and start time, for people
    host: str
    pid: int
    since: str

    @classmethod
    def parse(cls, data: bytes) -> Holder:
        """Parse the bytes of a lock. Raises ValueError if they are not those of a lock."""
        try:
            holder = cls(**json.loads(data))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"it is not a lock: {error}") from None
        texts = [value for name, value in vars(holder).items() if name != "pid"]
        if not all(isinstance(text, str) and text.isprintable() for text in texts):
            raise ValueError("its fields are not texts of one line")
        if type(holder.pid) is not int or not _TOKEN.fullmatch(holder.token):
            raise ValueError("it has no process, or no token")
        return holder

    @classmethod
    def here(cls, job: str) -> Holder:
        """Make a holder for this process, with a new token."""
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
    """The current holder of the lock. None if nobody holds the lock or the lock cannot be read."""
    data, _ = objects.try_read(LOCK_KEY, _BYTES)
    try:
        return None if data is None else Holder.parse(data)
    except ValueError:
        return None


def check(objects: Objects, mine: Holder) -> None:
    """Raise LockedError if this holder no longer has the lock."""
    current = holder(objects)
    if current is None or current.token != mine.token:
        same = current is not None and current.job == mine.job
        raise LockedError(f"{objects.url} was taken over by {current or 'another job'}", same)


@contextmanager
def locked(objects: Objects, job: str, take_over: bool = False) -> Generator[Holder]:
    """Hold the lock of a store during the context.

    Args:
        objects: The objects of the store.
        job: Identity of the job.
        take_over: Take the lock from its present holder, which can then neither write nor seal.

    Raises:
        LockedError: If another process holds the lock and may still be running.
        OSError: If there is a folder with files at the key of the lock.
    """
    objects.clear(LEASE_KEY)  # a folder of this name would stop renewals
    mine = Holder.here(job)
    data = json.dumps(asdict(mine)).encode()
    with ExitStack() as stack:
        stack.enter_context(_alive(mine.token))
        while True:
            try:
                objects.create(LOCK_KEY, data)
                break
            except FileExistsError:
                current = holder(objects)
                if current == mine:  # the answer to the first attempt was lost
                    break
                if take_over or _expired(objects, current):
                    objects.write(LOCK_KEY, data)
                    time.sleep(_SETTLING)
                    check(objects, mine)
                    break
        stack.callback(_release, objects, mine.token)
        stack.enter_context(_renewed(objects, mine.token))
        yield mine


def _expired(objects: Objects, current: Holder | None) -> bool:
    """Wait at most the length of a lease to see whether the holder still runs."""
    before = _lock_and_lease(objects)
    refused = LockedError(
        f"{objects.url} is being written by {current or 'another job'}: wait for it, or take over "
        "with --take-over if it has ended"
    )
    running = None if current is None else _is_running(current)
    if running:
        raise refused
    if running is False:
        return True
    logger.warning(
        "%s is locked by %s: waiting up to %.0f seconds to see whether it still runs "
        "(--take-over if it has ended)", objects.url, current or "an unknown job", LEASE,
    )  # fmt: skip
    end = time.monotonic() + LEASE
    while time.monotonic() < end:
        time.sleep(min(1.0, LEASE / 10))
        now = _lock_and_lease(objects)
        if now[0] is None:
            return False
        if now != before:
            raise refused
    return True


def _lock_and_lease(objects: Objects) -> tuple[bytes | None, ...]:
    """The bytes of the lock and of the lease. The lease changes each time the holder renews it."""
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
    """Hold a lock on a temporary file while the context is open, which shows other processes that
    this one is alive. If this process is killed, the kernel releases the lock."""
    path = _life_file(token)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with suppress(OSError):  # a file system without such locks: renewals must do
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_running(other: Holder) -> bool | None:
    """Whether the process of a holder still runs."""
    if not other.kernel or other.kernel != _kernel():
        return None
    path = _life_file(other.token)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it may run in a container with other files
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        with suppress(OSError):  # the file may belong to another user
            path.unlink()
        return False
    finally:
        os.close(descriptor)


def _life_file(token: str) -> Path:
    return Path(tempfile.gettempdir(), f"pdegen-{token}.lock")


@contextmanager
def _renewed(objects: Objects, token: str) -> Generator[None]:
    """Renew the lease in a thread during the context, as long as this job holds the lock."""
    done = threading.Event()

    def renew() -> None:
        for number in count():
            with suppress(OSError):  # the next renewal may succeed; workers report their own errors
                current = holder(objects)
                if current is None or current.token != token:
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


def _release(objects: Objects, token: str) -> None:
    current = holder(objects)
    if current is not None and current.token == token:
        objects.remove(LEASE_KEY)
        objects.remove(LOCK_KEY)


def _kernel() -> str:
    """The boot ID of this machine, which changes at every boot. Empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
