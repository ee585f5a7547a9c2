"""Drivers and workers of a Dask cluster are killed at random moments; the cluster goes on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.forked import Ended, forked
from tests.soak.harms import Action, Harm
from tests.soak.works import Work

_LATE = 1.0  # seconds in which a worker may still write that has lost its driver
_LARGER = (
    "generate", "burgers-r10", "--samples", "512", "--resolution", "64", "--set", "shard=8",
    "--set", "modes=31", "--set", "solver.resolution=2048", "--set", "train=400", "--set",
    "validation=50", "--set", "test=50", "--out", "PLACE",
)  # fmt: skip


@dataclass
class ClusterKills(Harm):
    """Kills at random moments; moments are milliseconds.

    Args:
        nanny: The process of the cluster.
    """

    nanny: int = field(kw_only=True)

    def count(self, action: Action, place: Path) -> int:
        start, ended = time.monotonic(), forked(action)
        assert ended.status == 0, ended.said
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


def on_cluster(address: str) -> Work:
    """A larger dataset, which may have to replace one of another seed."""
    words = (*_LARGER, "--scheduler", address)
    return Work("cluster", words, ("verify",), (*words, "--set", "seed=1"))


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

    served: Any = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )  # fmt: skip
    with served, suppress(EOFError):  # until the other end is closed
        pipe.send(served.scheduler_address)
        pipe.recv()
