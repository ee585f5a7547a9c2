"""Recipe, or another job -> one task for each shard -> sealed store."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.equations.registry import source_of
from pdegen.making import place
from pdegen.making.contents import compute, layout, probe
from pdegen.making.engines import Pool, check, pool
from pdegen.making.label_error import label_error
from pdegen.making.log import logged
from pdegen.making.sampled_inputs import sampled_inputs
from pdegen.numerics.failure import WorkerError
from pdegen.owned import store_around
from pdegen.reasons import check_room
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pdegen.store import lock
from pdegen.store.format import CONTINUED, FORMAT_VERSION, ROOT, job_of
from pdegen.store.layout import Layout
from pdegen.store.objects import Objects, causes
from pdegen.store.store import Store, StoreError, described_by

_NOTES = 1000  # that a log keeps at most
_ATTEMPTS = 3  # at a shard whose solver process dies


@dataclass(frozen=True)
class Progress:
    """Where a job is.

    Args:
        done, total: Shards done in this run, and to do in it.
        seconds: Since its start.
        notes: What went wrong with the last shard and was mended, or was skipped.
    """

    done: int
    total: int
    seconds: float
    notes: tuple[str, ...] = ()


class Job(ABC):
    """What a store is to hold. It travels to the processes that compute it."""

    device: str | None = None  # of PyTorch, that solves

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of all that the numbers depend on."""

    @property
    def identity(self) -> str:
        """What its records name: all that its bits depend on except versions of the software."""
        return self.fingerprint

    @abstractmethod
    def check(self) -> None:
        """Raise an error where the job cannot be done here."""

    def probe(self, failures: bool) -> None:
        """Raise an error where code of a user is wrong, before anything is written.

        Args:
            failures: Whether samples may fail.
        """
        return

    @abstractmethod
    def layout(self) -> Layout:
        """Variables, coordinates and attributes of the store, `fingerprint` among them."""

    @abstractmethod
    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        """The values of these samples for each variable; `store` is laid out already.

        Raises:
            SampleError: If a sample cannot be computed or is not finite.
        """

    def skipped(self, samples: range) -> Mapping[int, str]:
        """Samples that have no values, which `compute` gives as NaN, and why."""
        return {}

    def measured(self, workers: Pool) -> dict[str, Any]:
        """Further attributes of the complete store."""
        return {}

    def made(self, store: Store) -> bool:
        """Whether the store is of this job, so that it may go on there."""
        return store.said.job == self.identity

    @abstractmethod
    def difference(self, store: Store) -> str:
        """What to say of a store that is of another job."""


@dataclass(frozen=True)
class RecipeJob(Job):
    """The dataset of a recipe, solved on a device of PyTorch, or with NumPy."""

    recipe: Recipe
    device: str | None

    @classmethod
    def of(cls, store: Store) -> RecipeJob:
        """What made a store.

        Raises:
            SchemaError: If it was not made from a recipe, or not from one of this version.
        """
        if store.command != "generate":
            raise SchemaError(
                f"{store.url} was made from other data, not from a recipe: its samples are made "
                "again by the command that made it, with --resume"
            )
        where, file = f"the recipe of {store.url}", store.said.equation_file
        try:
            recipe = Recipe.parse(store.attributes["recipe"], where)
        except SchemaError as error:
            said = f"; the store was made with --equation {file.said}" if file else ""
            raise SchemaError(f"{error}{said}") from None
        if recipe.fingerprint != store.said.fingerprint:
            raise SchemaError(f"{store.url}: {_other_recipe(recipe, store)}")
        return cls(recipe, store.said.provenance.device or None)

    @property
    def fingerprint(self) -> str:
        return self.recipe.fingerprint

    def check(self) -> None:
        self.recipe.problem.check_solver(self.device)

    def probe(self, failures: bool) -> None:
        probe(self.recipe, self.device, failures)

    def layout(self) -> Layout:
        return layout(self.recipe, self.device, self.recipe.problem.software(self.device))

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        return compute(self.recipe, samples, self.device)

    def measured(self, workers: Pool) -> dict[str, Any]:
        recipe = self.recipe
        return {**label_error(recipe, workers), **sampled_inputs(recipe, workers)}

    @property
    def identity(self) -> str:
        return job_of(self.fingerprint, self.device)

    def difference(self, store: Store) -> str:
        if store.said.fingerprint == self.fingerprint:
            device = store.said.provenance.device or "cpu"
            return f"{store.url} was begun with --device {device}: resume it with that"
        there = store.said.fingerprint
        own, others = self.recipe.model_dump(mode="json"), store.attributes["recipe"]
        same = {key for key in own if own[key] == others.get(key)}
        if own.keys() - same - {"name", "summary", "remark"} == {"splits"}:
            earlier = ", as an earlier version chose them" if store.version == 2 else ""
            return (
                f"{store.url} was laid out with other splits{earlier} "
                f"({json.dumps(others.get('splits'))}, this one {json.dumps(own['splits'])}): "
                "--overwrite starts anew"
            )
        return (
            f"{store.url} was made from another recipe (fingerprint {there[:12]}, this one "
            f"{self.fingerprint[:12]})"
        )


def _other_recipe(recipe: Recipe, store: Store) -> str:
    """Why a recipe has not the fingerprint of the store that says it."""
    made, own = store.said.equation_file, source_of(type(recipe.problem))
    word = recipe.problem.word
    if made is not None and (own is None or own.digest != made.sha256):
        there = "" if own is None else f", {own.path} is another version of it"
        return f"its equation {word} is of the file {made.said}{there}: give that by --equation"
    if made is None and own is not None:
        return (
            f"its equation {word} was registered by an import, not by the file {own.path}: verify "
            "it where that is imported, or generate it by --equation or pdegen.load_equation"
        )
    return "the recipe does not have the store's fingerprint"


@dataclass(frozen=True)
class Options:
    """How a job is done; none of it changes the result.

    Args:
        workers, scheduler: As of `pdegen.making.engines.pool`.
        resume: Continue an unfinished store of the same job, and restore damaged objects.
        overwrite: Remove a store that is there.
        take_over: Take the lock of the store from another job, which has ended.
        skip_failed: Leave out samples that cannot be computed, instead of stopping at the first.
        progress: Called after each shard.
    """

    workers: int | None = None
    scheduler: str = "threads"
    resume: bool = False
    overwrite: bool = False
    take_over: bool = False
    skip_failed: bool = False
    progress: Callable[[Progress], None] = lambda progress: None


def generate(recipe: Recipe, url: str, device: str | None = None, **options: Any) -> Store:
    """Write the dataset of a recipe to a store and seal it: `write` with a recipe.

    Args:
        recipe: What to make.
        url: Where to; a path, or a URL that fsspec knows.
        device: A device of PyTorch to solve on, such as "cuda"; by default NumPy on the CPU. Then
            samples agree with those of the CPU up to the solver's tolerance, not bit for bit.
        options: The fields of `Options`.

    Raises:
        SchemaError: If the recipe cannot be.
        MissingSolverError: If the recipe's solver is not installed.
        StoreError, OSError, SampleError, ...: As `write`.
    """
    checked = Recipe.parse(recipe.model_dump(), f"recipe {recipe.name}")  # a copy need not be sound
    return write(RecipeJob(checked, device), url, Options(**options))


def write(job: Job, url: str, options: Options = Options()) -> Store:
    """Write what a job makes to a store and seal it.

    The store is the same, byte for byte, for any scheduler and number of workers, and after any
    interruption. `log/` says when and how it was made, and differs.

    Args:
        job: What to make.
        url: Where to; a path, or a URL that fsspec knows.
        options: How.

    Raises:
        StoreError: If something is in the way at `url`, or the store to resume is another's.
        LockedError: If another job writes there.
        UrlError: If the URL cannot be used, or its server cannot refuse a second writer.
        EngineError: If tasks cannot be run as asked.
        WorkerLostError: If every worker that computed a shard has died.
        OSError: If the place cannot be written or has no room.
        SampleError: If a sample cannot be computed; finished shards stay, `resume` continues.
    """
    check(options.scheduler)
    objects = Objects(url)
    if objects.is_local and (around := store_around(objects.root)):
        raise StoreError(f"{around} is a store, which holds nothing else: choose another --out")
    there = _found(job, objects, options)
    job.check()
    plan = job.layout()
    job.probe(options.skip_failed)
    described, resumes = described_by(plan, url), there is not None and options.resume
    if resumes:  # what is sealed has nothing else in it
        place.check_all_ours(objects, Store(url, root=described[ROOT]))
    else:
        _check_room(objects, plan)
    objects.check_conditional()
    with (
        pool(options.scheduler, options.workers) as workers,  # which must be there, before all else
        lock.locked(objects, job.identity, options.take_over) as mine,
        logged(objects, options.scheduler, options.workers, job.device) as log,
    ):
        if (_found(job, objects, options) is None) != (there is None):
            raise StoreError(f"{url} was changed by another job meanwhile: start again")
        if resumes and _complete(Store(url), mine.job, workers):
            return Store(url)
        still_mine = partial(lock.check, objects, mine)  # before each step that cannot be undone
        altered = Store(url).altered() if resumes and Store(url).damage is None else []
        layout = place.continued if resumes else place.laid_out
        store = layout(objects, described, still_mine)
        todo = sorted({*_to_do(store, mine.job, workers), *altered})
        _compute(job, store, todo, mine, workers, options, log)
        measured = job.measured(workers)
        if changed := _to_do(store, mine.job, workers):  # what is sealed is read again
            raise StoreError(
                f"{url}: shard {changed[0]} was changed by another job meanwhile: --resume makes "
                "it again"
            )
        if place.differing(objects, described):
            raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
        store.seal(measured, still_mine)
    return store


def _compute(
    job: Job, store: Store, todo: list[int], mine: lock.Holder, workers: Pool, options: Options,
    log: dict[str, Any],
) -> None:  # fmt: skip
    start = time.monotonic()
    task = partial(_shard, job, store.url, options.skip_failed, mine)
    with closing(workers.run(task, todo)) as results:  # no task runs on when the lock is given back
        for done, (shard, notes) in enumerate(results, 1):
            log["shards"] = done
            room = max(0, _NOTES - len(log["notes"]))
            log["notes"] += [f"shard {shard}: {note}" for note in notes[:room]]
            options.progress(Progress(done, len(todo), time.monotonic() - start, notes))


def _shard(job: Job, url: str, skip_failed: bool, mine: lock.Holder, shard: int) -> tuple[str, ...]:
    """The task: compute one shard and write it, where the store is of this job, which still holds
    the lock. Notes say what was tried again or skipped."""
    store = Store(url)
    if store.said.job != mine.job:  # its records would name the other one
        raise StoreError(f"{url}: its metadata were changed by another job: use --resume")
    still_mine = partial(lock.check, store.objects, mine)
    still_mine()
    samples = store.shard_range(shard)
    with causes() as notes:
        for attempt in range(1, _ATTEMPTS + 1):
            skipped = dict(job.skipped(samples))
            try:
                values = values_of(job, store, samples, skipped if skip_failed else None)
                break
            except WorkerError as error:
                if attempt == _ATTEMPTS:
                    raise
                notes.append(f"attempt {attempt} failed: {error}")
        store.write_shard(shard, values, skipped, still_mine)
    return (*notes, *(f"sample {sample} is skipped: {why}" for sample, why in skipped.items()))


def values_of(
    job: Job, store: Store, samples: range, skipped: dict[int, str] | None
) -> dict[str, np.ndarray]:
    """The values of these samples. Where `skipped` is given, samples that cannot be computed are
    NaN and entered there."""
    if skipped is None:
        return job.compute(store, samples)
    pieces = list(_pieces(job, store, samples, skipped))
    values = {}
    for name in store.variables:
        array = store.arrays[name]
        nothing = np.nan if np.issubdtype(array.dtype, np.inexact) else -1  # the fill values
        values[name] = np.full((len(samples), *array.shape[1:]), nothing, array.dtype)
        for piece, computed in pieces:
            values[name][piece.start - samples.start : piece.stop - samples.start] = computed[name]
    return values


def _pieces(
    job: Job, store: Store, samples: range, skipped: dict[int, str]
) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
    """Runs of samples that can be computed, with their values."""
    if not samples:
        return
    try:
        yield samples, job.compute(store, samples)
    except SampleError as failure:
        skipped[failure.sample] = failure.reason
        yield from _pieces(job, store, range(samples.start, failure.sample), skipped)
        yield from _pieces(job, store, range(failure.sample + 1, samples.stop), skipped)


def _to_do(store: Store, job: str, workers: Pool) -> list[int]:
    """The shards without a valid record of a job; workers read and check the others."""
    recorded = store.recorded()
    sound = {
        shard
        for shard, is_sound in workers.run(partial(_is_sound, store.url, job), recorded)
        if is_sound
    }
    return [shard for shard in range(store.shards) if shard not in sound]


def _is_sound(url: str, job: str, shard: int) -> bool:
    store = Store(url)
    return store.said.job == job and not store.faults_of(shard)


def _found(job: Job, objects: Objects, options: Options) -> Store | None:
    """The store that is there, which may be resumed or replaced; None where there is none.

    Raises:
        StoreError: If it may not, or something else is there.
    """
    store = place.found(objects, job.identity if options.resume else None)
    if store is None:
        return None
    if options.overwrite:
        place.check_all_ours(objects, None if store.damage else store)
    elif not options.resume:
        finished = store.damage is None and store.sealed
        ways = " and is finished: use it," if finished else ": use --resume to finish it"
        raise StoreError(f"{objects.url} exists{ways} or --overwrite to replace it")
    elif (store.damage or not job.made(store)) and not place.is_all_of(objects, job.identity):
        raise store.damage or StoreError(job.difference(store))
    return store


def _complete(store: Store, job: str, workers: Pool) -> bool:
    """Whether a store is sealed, and nothing in it is damaged.

    Raises:
        StoreError: If it is damaged or unfinished, and of a version that is not written any more.
    """
    if store.damage is not None:
        return False
    whole = store.sealed and not store.seal_faults()
    whole = whole and not _to_do(store, job, workers)
    whole = whole and not store.summary_faults(store.sealed_by())
    if not whole and store.version not in CONTINUED:
        raise StoreError(
            f"{store.url} has format version {store.version}, and is unfinished or damaged: "
            f"pdegen verify says how; --overwrite makes it again in version {FORMAT_VERSION}"
        )
    return whole


def _check_room(objects: Objects, plan: Layout) -> None:
    """Raise OSError before anything is written where the disk has no room for the arrays."""
    if objects.is_local:
        check_room(objects.root, plan.bytes, ": the store may take")
