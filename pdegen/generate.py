"""Recipe -> one task for each shard -> sealed store."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

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
    """Write the dataset of a recipe to a store and seal it.

    The store is the same, bit for bit, for any number of workers, either scheduler, and after
    any interruption.

    Args:
        recipe: What to make.
        url: Where to; a path, or a URL that fsspec knows.
        workers: Tasks at a time; by default the number of cores this process may use.
        scheduler: Dask's local "threads" or "processes".
        resume: Continue an unfinished store of the same recipe, or make again what is damaged.
        overwrite: Remove a store that is there.
        device: A device of PyTorch to solve on, such as "cuda"; by default NumPy on the CPU. Then
            samples agree with those of the CPU up to the solver's tolerance, not bit for bit.
        progress: Called after each shard.

    Raises:
        StoreError: If something is in the way at `url`, or the store to resume is another's.
        OSError: If the place cannot be written or has no room.
        SampleError: If a sample cannot be computed; finished shards stay, `resume` continues.
        MissingDolfinxError: If the recipe needs dolfinx, and no Python here has it.
    """
    workers = workers or len(os.sched_getaffinity(0))
    recipe.problem.check_solver(device)
    store = _prepared(recipe, url, resume, overwrite)
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

    content = recipe.model_dump(mode="json")
    tasks = [  # Dask begins with the last name: the first shard
        delayed(_shard)(
            content, str(url), shard, device, dask_key_name=f"shard-{999_999_999 - shard:09}"
        )
        for shard in todo
    ]
    with _one_thread(), _executor(scheduler, workers) as pool, Callback(posttask=after):
        dask_compute(*tasks, scheduler=scheduler, pool=pool, num_workers=workers)
        store.seal(recipe.problem.measured(recipe.seed, recipe.samples))
    return store


def _shard(content: dict, url: str, shard: int, device: str | None) -> Record:
    """The task: compute one shard and write it."""
    start = time.monotonic()
    recipe = Recipe.parse(content, "recipe")
    store = Store(url)
    values = compute(recipe, store.shard_range(shard), device)
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


def _prepared(recipe: Recipe, url: str, resume: bool, overwrite: bool) -> Store:
    """The store to write into: laid out anew, or the one to resume."""
    plan = layout(recipe)
    objects = Objects(url)
    there = objects.exists() and bool(objects.keys(""))
    if there and not resume and not overwrite:
        Store(url).check()  # something else than a store is reported as such
        raise StoreError(f"{url} exists: use --resume to finish it or --overwrite to replace it")
    if there and resume:
        store = Store(url)
        if store.attributes["fingerprint"] != recipe.fingerprint:
            raise StoreError(
                f"{url} was made from another recipe (fingerprint "
                f"{store.attributes['fingerprint'][:12]}, this one {recipe.fingerprint[:12]})"
            )
        return store
    _check_room(objects, plan)
    if there:
        Store(url).check()  # only a store is ever removed
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
