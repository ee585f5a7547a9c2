"""Generation of sealed stores from recipes and other jobs. Each task computes one shard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.generation import existing
from pdegen.generation.engines import check, pool
from pdegen.generation.job import Job, RecipeJob
from pdegen.generation.log import logged
from pdegen.generation.pools import Pool
from pdegen.numerics.device import WorkerError
from pdegen.ownership import check_room, enclosing_store
from pdegen.recipe import Recipe
from pdegen.store import lock
from pdegen.store.format import ROOT, Json
from pdegen.store.objects import Objects, retried_errors
from pdegen.store.reading import Record, Store, StoreError, seal_in
from pdegen.store.writing import (
    altered,
    encoded,
    inspect,
    layout_objects,
    seal,
    seal_faults,
    summary_faults,
    write_encoded,
)

_NOTES = 1000  # largest number of notes in a log
_CHECKS = 1024  # largest number of tasks that check shards
_ATTEMPTS = 3  # at a shard whose solver process ends unexpectedly


@dataclass(frozen=True)
class Progress:
    """The progress of a job."""

    # shards that this run has done, and all that it has to do
    done: int
    total: int
    seconds: float  # since the start
    # retried errors and skipped samples of the last shard; before the first the dashboard, if any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of a run. They do not change the written values."""

    # workers and scheduler, as in `pdegen.generation.engines.pool`
    workers: int | None = None
    scheduler: str = "threads"
    # continue an unfinished store of the same job, and restore damaged objects
    resume: bool = False
    overwrite: bool = False  # replace an existing store
    take_over: bool = False  # take the lock from another job, which must have ended
    # leave out samples that cannot be computed, instead of stopping at the first
    skip_failed: bool = False
    progress: Callable[[Progress], None] = lambda progress: None  # called after each shard


def generate(recipe: Recipe, url: str, device: str | None = None, **options: Any) -> Store:
    """Write the dataset of a recipe to a store and seal it.

    Args:
        recipe: The recipe.
        url: Path or URL of the store.
        device: PyTorch device, such as "cuda"; None solves with NumPy. The samples of PyTorch and
            NumPy agree up to the tolerance of the solver, not bit for bit.
        options: The fields of `Options`.

    Raises:
        SchemaError: If the recipe is not valid.
        MissingSolverError: If the solver of the recipe is not installed.
        StoreError, OSError, SampleError, ...: See `write`.
    """
    checked = Recipe.parse(
        recipe.model_dump(), f"recipe {recipe.name}"
    )  # pydantic does not check copies
    return write(RecipeJob(checked, device), url, Options(**options))


def write(job: Job, url: str, options: Options = Options()) -> Store:
    """Write the samples of a job to a store and seal it. The store is at a path, or at a URL that
    fsspec supports.

    The store has the same bytes for any scheduler and number of workers, and after any
    interruption. Only the files in `log/` differ, which describe each run.

    Raises:
        StoreError: If `url` is occupied, or the store to resume belongs to another job.
        LockedError: If another job writes to the store.
        UrlError: If the URL cannot be used, or its server cannot prevent a second process from
            writing.
        EngineError: If the scheduler cannot be used.
        WorkerLostError: If every worker that tried to compute a shard has died.
        OSError: If the location cannot be written or has no room.
        SampleError: If a sample cannot be computed. The finished shards stay, and a run with the
            option `resume` computes the others.
    """
    check(options.scheduler)
    objects = Objects(url)
    if objects.is_local and (around := enclosing_store(objects.root)):
        raise StoreError(f"{around} is a store and takes no other files: choose another --out")
    before = _existing(job, objects, options)
    job.check()
    plan = job.layout()
    job.probe(options.skip_failed)
    laid_out, resumes = layout_objects(plan, url), before is not None and options.resume
    if resumes:  # a sealed store has no unexpected files
        existing.check_no_unexpected(objects, Store(url, root=laid_out[ROOT]))
    elif objects.is_local:
        check_room(objects.root, plan.bytes, ": the store may take")
    objects.check_conditional()
    with (
        pool(options.scheduler, options.workers) as workers,  # first, because it may fail
        lock.locked(objects, job.identity, options.take_over) as mine,
        logged(objects, options.scheduler, options.workers, job.device) as log,
    ):
        store = _existing(job, objects, options)
        if (store is None) != (before is None):
            raise StoreError(f"{url} was changed by another job meanwhile: start again")
        begun = store if resumes and store and existing.damage_of(store) is None else None
        todo, suspects = None, []
        if begun is not None and begun.sealed and not seal_faults(begun):
            todo = _unsound(begun, mine.job, workers)
            if not todo and not summary_faults(begun, seal_in(objects)):
                return begun
        if begun is not None:
            suspects = altered(begun)
        still_mine = partial(lock.check, objects, mine)  # called around each write
        lay_out = existing.resumed if resumes else existing.laid_out
        store = lay_out(objects, laid_out, still_mine)
        if todo is None:
            todo = _unsound(store, mine.job, workers)
        todo = sorted({*todo, *suspects})
        _compute(job, store, todo, mine, workers, options, log)
        measured = job.measurements(workers)
        if changed := _unsound(store, mine.job, workers, todo):
            raise StoreError(
                f"{url}: shard {changed[0]} was changed by another job meanwhile: --resume "
                "computes it again"
            )
        if existing.differing(objects, laid_out):
            raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
        return seal(store, measured, still_mine)


def _compute(
    job: Job, store: Store, todo: list[int], mine: lock.Holder, workers: Pool, options: Options,
    log: Json,
) -> None:  # fmt: skip
    start = time.monotonic()
    if workers.note:
        options.progress(Progress(0, len(todo), 0.0, (workers.note,)))
    task = partial(_computed, job, store.url, options.skip_failed, mine)
    shards = workers.overlapped(task, partial(_written, mine), todo)
    with closing(shards) as results:  # ends all tasks before the lock is released
        for done, (shard, notes) in enumerate(results, 1):
            log["shards"] = done
            room = max(0, _NOTES - len(log["notes"]))
            log["notes"] += [f"shard {shard}: {note}" for note in notes[:room]]
            options.progress(Progress(done, len(todo), time.monotonic() - start, notes))


@dataclass(frozen=True)
class _Shard:
    """A shard that a worker has computed and encoded."""

    store: Store
    objects: dict[str, bytes]
    record: Record
    notes: tuple[str, ...]  # messages about failed attempts


def _computed(job: Job, url: str, skip_failed: bool, mine: lock.Holder, shard: int) -> _Shard:
    """Compute and encode one shard, if this job still holds the lock."""
    store = Store(url)
    if store.metadata.job != mine.job:  # records name the job of the store
        raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
    lock.check(store.objects, mine)
    samples = store.shard_range(shard)
    with retried_errors() as notes:
        for attempt in range(1, _ATTEMPTS + 1):
            skipped = dict(job.skipped(samples))
            try:
                values = values_of(job, store, samples, skipped if skip_failed else None)
                break
            except WorkerError as error:
                if attempt == _ATTEMPTS:
                    raise
                notes.append(f"attempt {attempt} failed: {error}")
    return _Shard(store, *encoded(store, shard, values, skipped), tuple(notes))


def _written(mine: lock.Holder, shard: _Shard) -> tuple[str, ...]:
    """Write a shard, if this job still holds the lock. Returns messages about retried errors and
    skipped samples."""
    with retried_errors() as notes:
        still_mine = partial(lock.check, shard.store.objects, mine)
        write_encoded(shard.store, shard.objects, shard.record, still_mine)
    skipped = shard.record.skipped.items()
    return (
        *shard.notes,
        *notes,
        *(f"sample {sample} is skipped: {why}" for sample, why in skipped),
    )


def values_of(
    job: Job, store: Store, samples: range, skipped: dict[int, str] | None
) -> dict[str, np.ndarray]:
    """Compute the values of samples. Returns a dictionary that maps the names of variables to
    arrays.

    Args:
        job: The job that computes them.
        store: The store, whose metadata and coordinates are written.
        samples: Numbers of the samples.
        skipped: A dictionary from numbers of samples to reasons. If a sample cannot be computed,
            its values are NaN and the reason is added here. If `skipped` is None, SampleError is
            raised instead.
    """
    if skipped is None:
        return job.compute(store, samples)
    pieces = list(_pieces(job, store, samples, skipped))
    values = {}
    for name in store.variables:
        array = store.arrays[name]
        empty = np.nan if np.issubdtype(array.dtype, np.inexact) else -1  # the fill values
        values[name] = np.full((len(samples), *array.shape[1:]), empty, array.dtype)
        for piece, computed in pieces:
            values[name][piece.start - samples.start : piece.stop - samples.start] = computed[name]
    return values


def _pieces(
    job: Job, store: Store, samples: range, skipped: dict[int, str]
) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Yield each range of samples that can be computed, with the values of these samples. The other
    samples are added to `skipped`, with the reasons."""
    ranges = [samples]
    while ranges:
        piece = ranges.pop()
        if not piece:
            continue
        try:
            yield piece, job.compute(store, piece)
        except SampleError as failure:
            skipped[failure.sample] = failure.reason
            ranges += [range(failure.sample + 1, piece.stop), range(piece.start, failure.sample)]


def _unsound(
    store: Store, job: str, workers: Pool, shards: Sequence[int] | None = None
) -> list[int]:
    """Numbers of the shards that have no valid record of the job, or whose data differ from the
    record. Workers read and check the shards."""
    shards = range(store.shards) if shards is None else shards
    recorded = set(store.recorded())
    written = [shard for shard in shards if shard in recorded]
    size = -(-len(written) // _CHECKS) or 1
    groups = [tuple(written[k : k + size]) for k in range(0, len(written), size)]
    task = partial(_sound, store.url, job)
    sound = {shard for _, part in workers.run(task, groups) for shard in part}
    return [shard for shard in shards if shard not in sound]


def _sound(url: str, job: str, shards: Sequence[int]) -> list[int]:
    """The shards with a valid record of the job whose data match the record."""
    store = Store(url)
    if store.metadata.job != job:
        return []
    return [shard for shard in shards if not inspect(store, shard)[2]]


def _existing(job: Job, objects: Objects, options: Options) -> Store | None:
    """The existing store at the URL, which is to be resumed or replaced. None if there is no store.
    Raises StoreError if the options allow neither, or if something other than a store is at the
    URL."""
    store = existing.store_at(objects, job.identity if options.resume else None)
    if store is None:
        return None
    damage = existing.damage_of(store)
    if options.overwrite:
        if objects.is_local and os.path.islink(objects.root):
            target = os.path.realpath(objects.root)
            raise StoreError(
                f"{objects.url} is a symbolic link to {target}, whose store --overwrite would "
                "replace: give the path of the store"
            )
        existing.check_no_unexpected(objects, None if damage else store)
    elif not options.resume:
        finished = damage is None and store.sealed
        hint = " and is finished: use it," if finished else ": use --resume to finish it"
        raise StoreError(f"{objects.url} exists{hint} or --overwrite to replace it")
    elif (damage or not job.matches(store)) and not existing.holds_only_job(objects, job.identity):
        raise damage or StoreError(job.difference(store))
    return store
