"""What may happen to a job: it is killed at a change of its files, its disk fails, its power is
cut, or a process of its cluster is killed.

A harm does an action in a forked process and says how that ended and what happened to it.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tests.forked import Ended, forked
from tests.soak.disk import MODES
from tests.soak.forgetful import Power
from tests.soak.works import Action, Work, succeed

# events of Python, each before the operation
_CHANGES = {
    "open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate",
    "shutil.rmtree",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR
_LATE = 1.0  # seconds in which a worker may still write that has lost its driver


@dataclass
class Harm:
    """A kind of harm.

    Args:
        home: The folder of the places of jobs.
        chance: What is drawn at random.
        patience: How often a job is harmed before it is left in peace.
    """

    home: Path
    chance: random.Random
    patience: int = 6

    def settle(self) -> None:
        """What was prepared will stay."""

    def count(self, action: Action, place: Path) -> int:
        """Do it in peace; how many moments there are in which it can be harmed."""
        succeed(forked(action))
        return 0

    def __call__(self, action: Action, place: Path, moments: int) -> tuple[Ended, str]:
        """Do it; how it ended, and what happened to it, or "" where it ended before."""
        raise NotImplementedError

    def after(self, work: Work, place: Path) -> str:
        """What happens after the end of a job."""
        return ""


def watch(folder: Path, before: Callable[[str, str, set[str]], None], reads: bool = False) -> None:
    """Call something before each change of the files below a folder in this process, for good.

    Args:
        folder: Whose files.
        before: Given the event, the path and all paths that were opened for writing.
        reads: Whether files that are read count as well.
    """
    busy, written = False, set[str]()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if event not in _CHANGES or busy or not isinstance(arguments[0], (str, bytes, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith(f"{folder}{os.sep}"):
            return
        busy = True  # what is done before a change is none
        try:
            writes = event != "open" or bool(arguments[2] & _WRITING)
            if writes or reads or os.path.isdir(path):  # folders are opened to be synced
                before(event, path, written)
            if event == "open" and writes:
                written.add(path)
        finally:
            busy = False

    sys.addaudithook(hook)


class Kills(Harm):
    """A process kills itself before one of its changes of files; what it is about to rename or to
    link may have half of its bytes, as in the midst of a write."""

    def count(self, action: Action, place: Path) -> int:
        ended, said = self.killed(action, place, 0, False)
        succeed(ended)
        return len(said.splitlines())

    def __call__(self, action: Action, place: Path, moments: int) -> tuple[Ended, str]:
        at, within = self.chance.randint(1, moments), self.chance.random() < 0.3
        ended, said = self.killed(action, place, at, within)
        return ended, said.splitlines()[-1] if ended.killed else ""

    def killed(self, action: Action, place: Path, at: int, within: bool) -> tuple[Ended, str]:
        note, numbers = self.home / "note", count(1)
        note.write_text("")

        def before(event: str, path: str, written: set[str]) -> None:
            here = within and event in ("os.rename", "os.link") and path in written
            with note.open("a") as file:
                print(f"{'within' if here else 'before'} {event}", file=file)
            if next(numbers) != at:
                return
            if here:
                os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

        def run() -> None:
            watch(place.parent, before)
            action()

        return forked(run), note.read_text()


class Failures(Harm):
    """A share of the openings, changes and removals of files fails."""

    def __call__(self, action: Action, place: Path, moments: int) -> tuple[Ended, str]:
        chance = random.Random(self.chance.random())
        share = self.chance.choice((0.02, 0.1, 0.4))

        def before(event: str, path: str, written: set[str]) -> None:
            if chance.random() >= share:
                return
            if event == "open" and path.endswith(".partial"):  # some bytes arrive
                Path(path).write_bytes(b"half")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        def run() -> None:
            watch(place.parent, before, reads=True)
            action()

        ended = forked(run)
        return ended, f"{share:.0%} failed" if ended.status else ""


@dataclass
class Cuts(Harm):
    """The power of the disk is cut in place of one of its operations, and after the end.

    Args:
        power: Its switch.
    """

    power: Power = field(kw_only=True)

    def settle(self) -> None:
        self.power("sync")

    def count(self, action: Action, place: Path) -> int:
        self.power("arm")
        super().count(action, place)
        return self.power("look")["count"]

    def __call__(self, action: Action, place: Path, moments: int) -> tuple[Ended, str]:
        at, mode, seed = self.chance.randint(1, moments), *self._mode()

        def rebooted() -> None:
            """On a machine that was started again the kernel does not know who held a lock."""
            from pdegen.store import lock

            lock._kernel = lambda: str(seed)
            action()

        ended = forked(
            rebooted, lambda pid: self.power("arm", at=at, victim=pid, mode=mode, seed=seed)
        )
        during = self.power("on")["last"]
        return ended, f"{mode} {during.split()[0]}" if during else ""

    def after(self, work: Work, place: Path) -> str:
        mode, seed = self._mode()
        self.power("cut", mode=mode, seed=seed)
        return f"{mode} after the end"

    def _mode(self) -> tuple[Any, int]:
        return self.chance.choice(MODES), self.chance.randint(0, 2**30)


@dataclass
class ClusterKills(Harm):
    """Drivers and workers of a Dask cluster are killed at random moments, which are milliseconds;
    the cluster goes on.

    Args:
        nanny: The process of the cluster.
    """

    nanny: int = field(kw_only=True)

    def count(self, action: Action, place: Path) -> int:
        start = time.monotonic()
        super().count(action, place)
        return int(1000 * (time.monotonic() - start))

    def __call__(self, action: Action, place: Path, moments: int) -> tuple[Ended, str]:
        victim = self.chance.choice(("driver", "driver", "worker"))
        drivers, done = list[int](), list[str]()

        def kill() -> None:
            with suppress(OSError, psutil.Error, IndexError):
                if victim == "driver":
                    os.killpg(drivers[0], signal.SIGKILL)
                else:
                    self.chance.choice(self._workers()).kill()
                done.append(victim)

        timer = threading.Timer(self.chance.uniform(0, 1.2 * moments) / 1000, kill)

        def begun(pid: int) -> None:
            drivers.append(pid)
            timer.start()

        try:
            ended = forked(action, begun)
        finally:
            timer.cancel()
            timer.join()
        # a job survives the loss of a worker, unless none is left
        harmed = ended.killed or (ended.refused and "died" in ended.said)
        return ended, f"{victim} of a cluster" if done and harmed else ""

    def after(self, work: Work, place: Path) -> str:
        """A late worker may damage a store, which verify finds and --resume mends."""
        time.sleep(_LATE)
        if place.exists() and work.faults(place):
            forked(work.action(place, "--resume"))
        return ""

    def _workers(self) -> list[psutil.Process]:
        found = psutil.Process(self.nanny).children()
        return [process for process in found if "spawn_main" in " ".join(process.cmdline())]


@contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """A Dask cluster in another process: its address, and the number of the process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,))
    process.start()
    assert process.pid is not None
    try:
        yield ours.recv(), process.pid
    finally:
        ours.close()
        process.join(20)
        process.kill()


def _serve(pipe: Any) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1",
                      dashboard_address="127.0.0.1:0") as served, suppress(EOFError):  # fmt: skip
        pipe.send(served.scheduler_address)
        pipe.recv()  # until the other end is closed
