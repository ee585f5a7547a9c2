"""Recipe, or another job -> one task for each shard -> sealed store."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from dask.base import compute as dask_compute
from dask.callbacks import Callback
from dask.delayed import delayed
from threadpoolctl import threadpool_limits

from pdegen.objects import Objects
from pdegen.problem import compute, layout
from pdegen.recipe import Recipe
from pdegen.store import Layout, Record, Store, StoreError, lay_out

Scheduler = Literal["threads", "processes"]


@dataclass(frozen=True)
class Progress:
    """Where a job is: shards done in this run, shards to do in it, seconds since its start."""

    done: int
    total: int
    seconds: float


class Job(ABC):
    """What a store is to hold. It travels to the processes that compute it."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of all that the numbers depend on."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error where the job cannot be done here."""

    @abstractmethod
    def layout(self) -> Layout:
        """Variables, coordinates and attributes of the store, `fingerprint` among them."""

    @abstractmethod
    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        """The values of these samples for each variable; `store` is laid out already.

        Raises:
            SampleError: If a sample cannot be computed or is not finite.
        """

    def measured(self) -> dict[str, Any]:
        """Further attributes of the complete store."""
        return {}

    @abstractmethod
    def difference(self, store: Store) -> str:
        """What to say of a store that is of another job."""


@dataclass(frozen=True)
class RecipeJob(Job):
    """The dataset of a recipe, solved on a device of PyTorch, or with NumPy."""

    recipe: Recipe
    device: str | None

    @property
    def fingerprint(self) -> str:
        return self.recipe.fingerprint

    def check(self) -> None:
        self.recipe.problem.check_solver(self.device)

    def layout(self) -> Layout:
        return layout(self.recipe)

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        return compute(self.recipe, samples, self.device)

    def measured(self) -> dict[str, Any]:
        return self.recipe.problem.measured(self.recipe.seed, self.recipe.samples)

    def difference(self, store: Store) -> str:
        there = store.attributes["fingerprint"]
        return (
            f"{store.url} was made from another recipe (fingerprint {there[:12]}, this one "
            f"{self.fingerprint[:12]})"
        )


def generate(
    recipe: Recipe,
    url: str,
    *,
    workers: int | None = None,
    scheduler: Scheduler = "threads",
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Store:
    """Write the dataset of a recipe to a store and seal it: `write` with a recipe.

    Args:
        recipe: What to make.
        device: A device of PyTorch to solve on, such as "cuda"; by default NumPy on the CPU. Then
            samples agree with those of the CPU up to the solver's tolerance, not bit for bit.
        url, workers, scheduler, resume, overwrite, progress: As of `write`.

    Raises:
        MissingDolfinxError: If the recipe needs dolfinx, and no Python here has it.
        StoreError, OSError, SampleError: As `write`.
    """
    return write(
        RecipeJob(recipe, device), url, workers=workers, scheduler=scheduler, resume=resume,
        overwrite=overwrite, progress=progress,
    )  # fmt: skip


def write(
    job: Job,
    url: str,
    *,
    workers: int | None = None,
    scheduler: Scheduler = "threads",
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Store:
    """Write what a job makes to a store and seal it.

    The store is the same, bit for bit, for any number of workers, either scheduler, and after
    any interruption.

    Args:
        job: What to make.
        url: Where to; a path, or a URL that fsspec knows.
        workers: Tasks at a time; by default the number of cores this process may use.
        scheduler: Dask's local "threads" or "processes".
        resume: Continue an unfinished store of the same job, or make again what is damaged.
        overwrite: Remove a store that is there.
        progress: Called after each shard.

    Raises:
        StoreError: If something is in the way at `url`, or the store to resume is another's.
        OSError: If the place cannot be written or has no room.
        SampleError: If a sample cannot be computed; finished shards stay, `resume` continues.
    """
    workers = workers or len(os.sched_getaffinity(0))
    store = _prepared(job, url, resume, overwrite)
    todo = store.missing()
    if store.sealed:
        if not todo:
            return store
        store.unseal()
    start, done = time.monotonic(), 0

    def after(key: object, value: object, graph: object, state: object, worker: object) -> None:
        nonlocal done
        if isinstance(value, Record):
            done += 1
            progress(Progress(done, len(todo), time.monotonic() - start))

    task = delayed(partial(_shard, job, str(url)))
    tasks = [  # Dask begins with the last name: the first shard
        task(shard, dask_key_name=f"shard-{999_999_999 - shard:09}") for shard in todo
    ]
    with _one_thread(), _executor(scheduler, workers) as pool, Callback(posttask=after):
        dask_compute(*tasks, scheduler=scheduler, pool=pool, num_workers=workers)
        store.seal(job.measured())
    return store


def _shard(job: Job, url: str, shard: int) -> Record:
    """The task: compute one shard and write it."""
    start = time.monotonic()
    store = Store(url)
    values = job.compute(store, store.shard_range(shard))
    return store.write_shard(shard, values, time.monotonic() - start)


def _executor(scheduler: Scheduler, workers: int) -> Executor:
    if scheduler == "threads":
        return ThreadPoolExecutor(workers)
    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    )


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: a worker ends its shard
    _one_thread()


def _one_thread() -> threadpool_limits:
    """Matrix products on one thread each: faster beside other tasks, and always the same bits."""
    return threadpool_limits(1)


def _prepared(job: Job, url: str, resume: bool, overwrite: bool) -> Store:
    """The store to write into: laid out anew, or the one to resume."""
    objects = Objects(url)
    there = objects.exists() and bool(objects.keys(""))
    if there:
        store = Store(url)
        store.check()  # something else than a store is reported as such, and never removed
        if not resume and not overwrite:
            raise StoreError(
                f"{url} exists: use --resume to finish it or --overwrite to replace it"
            )
        if resume and store.attributes["fingerprint"] != job.fingerprint:
            raise StoreError(job.difference(store))
    job.check()
    if there and resume:
        return Store(url)
    plan = job.layout()
    _check_room(objects, plan)
    if there:
        objects.remove_all()
    return lay_out(url, plan)


def _check_room(objects: Objects, plan: Layout) -> None:
    """Raise OSError before anything is written where the disk has no room for the arrays."""
    if not objects.is_local:
        return
    need = plan.bytes
    folder = os.path.abspath(objects.root)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise OSError(
            errno.ENOSPC, f"no room: the store may take {need:,} bytes, {free:,} are free", folder
        )
