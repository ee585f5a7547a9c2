"""Verification of a sealed store."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np

from pdegen.checks.check import contradictions
from pdegen.equations.base import SampleError
from pdegen.generation.generate import RecipeJob, damage_of, unexpected_keys, values_of
from pdegen.generation.pools import pool
from pdegen.numerics.errors import SolveError
from pdegen.schema import SchemaError
from pdegen.store import lock
from pdegen.store.card import CARD, CROISSANT, documents
from pdegen.store.format import (
    METADATA_BYTES,
    ROOT,
    Json,
    MetadataError,
    Physics,
    parse,
    sha256,
)
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Seal, Store, StoreError, finished, sample_moments, seal_in
from pdegen.store.writing import (
    Fault,
    check_seal,
    closing_objects,
    encoded,
    fixed,
    fixed_keys,
    inspect,
    seal_faults,
    summary_faults,
    summary_of,
)

Block = tuple[np.ndarray, dict[str, np.ndarray]]  # numbers and values of samples

_LISTED = 1000  # largest number of faults of one kind that are listed
# relative tolerance for samples that were solved on a PyTorch device or with other transforms
_ROUNDING = 1e-5


@dataclass
class Verification:
    """The result of verifying a store."""

    url: str  # URL of the store
    faults: list[Fault] = field(default_factory=list)  # everything that is wrong
    repaired: list[str] = field(default_factory=list)  # keys of the restored objects
    # number of shards and of bytes that were read
    shards: int = 0
    bytes: int = 0
    values_checked: bool = False  # whether the law of the recipe, or what is declared, was checked
    # statistic of a recipe that selects samples, whose bounds were checked in place of moments
    selected: str = ""
    # numbers of the samples that were computed again and compared
    recomputed: list[int] = field(default_factory=list)

    def summary(self) -> Json:
        """The result as JSON."""
        return {
            "store": self.url,
            "verified": not self.faults,
            "faults": [vars(fault) for fault in self.faults],
            "repaired": self.repaired,
            "checked": {
                "shards": self.shards, "bytes": self.bytes, "law": self.values_checked,
                "recomputed": self.recomputed,
            },
        }  # fmt: skip


def verify(
    url: str,
    *,
    check_values: bool = True,
    deep: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Check a sealed store.

    All objects of the store are checked, except `log/`. Metadata, coordinates and card are compared
    with the seal. Data are compared with the records, and records with the seal. Records and the
    seal also contain their own digests, which are checked. Values must be finite and must have the
    recorded means. The statistics must follow from these means. There must be no other files,
    except the lock and temporary files of killed processes.

    Args:
        url: The store.
        check_values: Whether to check that the values satisfy the law of the recipe
            (`pdegen.checks`), or what an imported store declares about them.
        deep: Number of random samples that are computed again and compared bit for bit. If the
            store was solved on a PyTorch device, or with other Fourier transforms, the tolerance is
            1e-5, and variables with the role "quality" are not compared. An input after a burn-in
            may differ, since chaos amplifies the rounding of other processors; its label must then
            be, to 1e-5, the solution for the stored input.
        progress: Called after each shard with the number of checked shards and the number of all
            shards.

    Raises:
        StoreError: If there is no sealed store, or its metadata are too damaged to read it.
        SchemaError: If samples are to be computed again and the store has no recipe.
    """
    result = Verification(url)
    store, seal = opened(url, result)
    if seal is not None:
        result.faults += seal_faults(store)
        result.bytes += sum(len(fixed(store, key)[0] or b"") for key in seal.objects)
    for key in islice(unexpected_keys(store.objects, store), _LISTED):
        result.faults.append(Fault(key, "is not a file of this store: move it away"))
    job = _job(store, result, check_values or bool(deep))
    blocks = checked_blocks(store, seal, result, progress)
    if check_values and job is not None:
        result.values_checked = True
        result.selected = job.recipe.select.statistic if job.recipe.select else ""
        for finding in job.recipe.checks().check(blocks):
            result.faults.append(
                Fault(f"{finding.variable}, law", finding.message, None, finding.variable)
            )
    if check_values and store.metadata.imported is not None:
        blocks = _checked_as_declared(store, blocks, result)
    for _ in blocks:  # read the shards that no law has read
        pass
    if deep:
        _check_recomputed(store, job or RecipeJob.of(store), deep, result)
    return result


def _checked_as_declared(
    store: Store, blocks: Iterator[Block], result: Verification
) -> Iterator[Block]:
    """Yield blocks of an imported store. What the store declares about their values is checked."""
    try:
        physics, domain = Physics.of(store.raw_attributes), None
        for name in physics.boundary.keys() & store.arrays.keys():
            domain = store.domain(store.description.axes_of(store.arrays[name]))
    except (MetadataError, StoreError) as error:
        result.faults.append(Fault("physics", str(error).removeprefix(f"{store.url}: ")))
        yield from blocks
        return
    result.values_checked = True
    for numbers, values in blocks:
        for name, row, fault in contradictions(physics, domain, values):
            result.faults.append(Fault(f"{name}, sample {numbers[row]}", fault, None, name))
        yield numbers, values


def _job(store: Store, result: Verification, needed: bool) -> RecipeJob | None:
    """The job that generated a store."""
    if store.command != "generate":
        return None
    try:
        return RecipeJob.of(store)
    except SchemaError as error:
        if needed and store.metadata.equation_file is not None:
            raise
        result.faults.append(Fault("recipe", str(error)))
        return None


def opened(url: str, result: Verification) -> tuple[Store, Seal | None]:
    """Open a store, but read its metadata from the copy in the seal. Returns the store and the
    seal. If the seal is damaged, the store is opened with its own metadata, and the returned seal
    is None."""
    objects = Objects(url)
    try:
        seal = seal_in(objects)
        store = Store(url, root=seal.metadata.get(ROOT, "").encode(), seal=seal)
        if damage_of(store) is not None:
            raise StoreError("its copy of zarr.json does not describe a store")
        check_seal(store, seal)
    except StoreError as error:
        store = finished(Store(url))
        result.faults.append(Fault.of_seal(error))
        return store, None
    try:
        unsealed = not parse(objects.read(ROOT, at_most=METADATA_BYTES)).metadata.sealed
    except (OSError, MetadataError):
        unsealed = False
    if unsealed:  # a job has resumed it
        finished(Store(url))
    return store, seal


def checked_blocks(
    store: Store, seal: Seal | None, result: Verification, progress: Callable[[int, int], None]
) -> Iterator[Block]:
    """Yield the numbers and values of the samples in each valid shard, without skipped samples.
    Faults of shards are added to the result. If there are none, the summary of all records is
    compared at the end, and its faults are added."""
    before, shards = len(result.faults), range(store.shards)
    recorded = store.recorded()
    absent = store.shards - len(recorded)
    if absent > _LISTED:
        result.faults.append(Fault("records", f"{absent} of {store.shards} shards have none"))
        shards = recorded
    for done, shard in enumerate(shards, 1):
        record, sound, faults = inspect(store, shard)
        result.faults += faults
        if record is not None and not faults:
            values = {
                name: store.shards_of(name).decoded(shard, data) for name, data in sound.items()
            }
            result.faults += _faults_of_values(store, record, values)
            result.shards += 1
            result.bytes += sum(map(len, sound.values()))
            numbers = [i for i in range(*record.samples) if i not in record.skipped]
            rows = np.array(numbers, dtype=int) - record.samples[0]
            yield np.array(numbers), {name: value[rows] for name, value in values.items()}
        progress(done, len(shards))
    if len(result.faults) == before:
        result.faults += summary_faults(store, seal)


def _faults_of_values(
    store: Store, record: Record, values: dict[str, np.ndarray]
) -> Iterator[Fault]:
    for name, array in values.items():
        rows = [i - record.samples[0] for i in range(*record.samples) if i not in record.skipped]
        if not np.isfinite(array[rows]).all():
            yield Fault.of_shard(record.shard, "values are not finite", name)
        if sample_moments(array) != (record.mean.get(name), record.mean_square.get(name)):
            yield Fault.of_shard(record.shard, "the recorded means differ", name)


def _check_recomputed(store: Store, job: RecipeJob, count: int, result: Verification) -> None:
    """Compute random samples again with NumPy, and compare them with the stored samples."""
    chosen = sorted(random.sample(range(store.samples), min(count, store.samples)))
    transforms, drawn = store.raw_attributes["provenance"].get("transforms", ""), job.recipe.problem
    alike = job.device is None and transforms == drawn.transforms.get("transforms", "")
    job = replace(job, device=None)
    roles = {name: store.arrays[name].metadata.role for name in store.variables}
    for sample in chosen:
        shard, exact = sample // store.shard_size, alike
        _, sound, _ = inspect(store, shard)
        row = sample - store.shard_range(shard).start
        stored = {
            name: store.shards_of(name).decoded(shard, data)[row] for name, data in sound.items()
        }
        try:
            values = job.compute(store, range(sample, sample + 1))
            a = stored.get("a")
            if drawn.burnt_in and a is not None and not np.array_equal(a, values["a"][0]):
                problem = drawn.of_sample(*job.recipe.stream(sample))
                values |= {"a": a[None], "u": problem.target_of_interpolant(a[None])}
                exact = False
        except (SampleError, SolveError) as error:
            if sample not in store.skipped:
                result.faults.append(Fault.of_shard(shard, f"it cannot be computed again: {error}"))
            continue
        for name, expected in stored.items():
            if roles[name] == "quality" and not exact:  # depends on rounding and iteration counts
                continue
            computed = np.asarray(values[name][0], dtype=expected.dtype)
            scale = 0.0 if exact else _ROUNDING * float(np.abs(expected).max())
            if not (np.abs(computed.astype(float) - expected) <= scale).all():
                fault = f"sample {sample} differs from its recomputed values"
                result.faults.append(Fault.of_shard(shard, fault, name))
        result.recomputed.append(sample)


# Repair of damaged objects in a sealed store.


RepairedObject = tuple[str, bytes]  # key and bytes of an object to write


def repair(
    url: str,
    *,
    check_values: bool = True,
    deep: int = 0,
    take_over: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Restore the objects that `verify` finds damaged. Other objects are not changed.

    Metadata are copied from the seal. Coordinates, records and data are computed from the recipe. A
    damaged seal is computed from all other objects. An object is written only if its digest is that
    in the seal or in a valid record. If there is no valid seal, an object is written only if the
    repaired store has the digests of its recipe. Files that do not belong to the store are not
    removed, and are reported as faults again.

    Args:
        url, check_values, deep, progress: Arguments of `verify`, which checks the store again after
            the repair.
        take_over: Take the lock of the store from another job.

    Returns:
        The result of the second verification. It includes the keys of the restored objects.

    Raises:
        LockedError: If another job writes to the store.
        StoreError: If there is no sealed store, its metadata are too damaged, or one of its folders
            is a symbolic link.
    """
    objects = Objects(url)
    if links := objects.links():
        raise StoreError(
            f"{url}: {links[0]} is a symbolic link in the place of a folder; nothing was written: "
            "move it away"
        )
    damage = verify(url, check_values=False)
    written = list[str]()
    job = opened(url, Verification(url))[0].metadata.job
    with lock.locked(objects, job, take_over) as mine:
        for key, data in _repaired(damage) if damage.faults else ():
            try:
                objects.write(key, data, partial(lock.check, objects, mine))
            except OSError as error:
                # files that are not of the store are in the way, and stay
                if error.errno not in (errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP):
                    raise
            else:
                written.append(key)
        objects.remove_partial()
    result = verify(url, check_values=check_values, deep=deep, progress=progress)
    result.repaired = written
    return result


def _repaired(damage: Verification) -> Iterator[RepairedObject]:
    """Yield the restored objects of a damaged store."""
    store, seal = opened(damage.url, Verification(damage.url))
    try:
        job = RecipeJob.of(store)
    except SchemaError:
        job = None
    if seal is not None:
        yield from _from_seal(store, seal, job, {fault.where for fault in damage.faults})
    elif job is not None:
        yield from _from_recipe(store, job)
    if job is None:
        return
    recorded, unrecorded = set(store.recorded()), list[int]()
    damaged = {fault.shard for fault in damage.faults if fault.shard is not None}
    for shard in sorted(damaged | (set(range(store.shards)) - recorded)):
        record, sound, _ = inspect(store, shard)
        if record is None:
            unrecorded.append(shard)
        else:
            yield from _repaired_data(store, job, record, sound)
    if unrecorded:
        yield from _repaired_records(store, seal, job, unrecorded)
    if seal is None:
        yield from _new_seal(store, job)


def _from_seal(
    store: Store, seal: Seal, job: RecipeJob | None, damaged: set[str]
) -> Iterator[RepairedObject]:
    """Restore damaged metadata, coordinates and card."""
    objects = {key: text.encode() for key, text in seal.metadata.items()}
    objects |= documents(store.description, sha256(objects[ROOT]))
    if (labels := store.description.labels) is not None:
        objects[labels.KEY] = labels.data
    if job is not None:
        objects = {**job.layout().objects(store.version), **objects}
    for key in sorted(damaged & seal.objects.keys() & objects.keys()):
        if sha256(objects[key]) == seal.objects[key]:
            yield key, objects[key]


def _from_recipe(store: Store, job: RecipeJob) -> Iterator[RepairedObject]:
    """Restore damaged metadata and coordinates of a store without a valid seal."""
    objects = job.layout().objects(store.version)
    zarr_metadata = json.loads(objects[ROOT])["consolidated_metadata"]["metadata"]
    if zarr_metadata != store.description.zarr_metadata:
        return
    for key in fixed_keys(store):
        if fixed(store, key)[0] != objects[key]:
            yield key, objects[key]


def _repaired_data(
    store: Store, job: RecipeJob, record: Record, sound: dict[str, bytes]
) -> Iterator[RepairedObject]:
    """Compute the data of a shard again."""
    objects, computed = _computed(store, job, record.shard, dict(record.skipped))
    if computed.digest == record.digest:
        for name in store.variables:
            if name not in sound:
                key = store.key(name, record.shard)
                yield key, objects[key]


def _repaired_records(
    store: Store, seal: Seal | None, job: RecipeJob, shards: list[int]
) -> Iterator[RepairedObject]:
    """Compute again the shards that have no valid record."""
    records = {shard: _computed(store, job, shard, {})[1] for shard in shards}
    try:
        summary = summary_of(store, records)
    except StoreError:  # further records could not be repaired
        return
    if seal is not None:
        matches = seal.records == summary.records
    else:
        matches = store.metadata.content == summary.content
    if not matches:
        return
    for shard in shards:
        # computed a second time, because the data of all shards do not fit in memory
        objects, record = _computed(store, job, shard, {})
        for name in store.variables:
            key = store.key(name, shard)
            data, _ = store.objects.try_read(key, store.arrays[name].limit)
            if data is None or sha256(data) != record.digest[name]:
                yield key, objects[key]
        yield Record.key(shard), record.encode()


def _computed(
    store: Store, job: RecipeJob, shard: int, skipped: dict[int, str]
) -> tuple[dict[str, bytes], Record]:
    """Compute a shard with the job."""
    job.check()
    samples = store.shard_range(shard)
    if store.skipped:
        values = values_of(job, store, samples, skipped)
    else:
        values = job.compute(store, samples)
    return encoded(store, shard, values, skipped)


def _new_seal(store: Store, job: RecipeJob) -> Iterator[RepairedObject]:
    """Yield new cards and a new seal for a store without a valid seal."""
    plan = json.loads(job.layout().objects(store.version)[ROOT])
    plan["attributes"]["provenance"] = store.raw_attributes["provenance"]
    result = Verification(store.url)
    for _ in checked_blocks(store, None, result, lambda done, total: None):
        pass
    if result.faults:
        return
    with pool("threads", None) as workers:
        measured = job.measurements(workers)
    closing = closing_objects(Store(store.url, root=json.dumps(plan).encode()), measured)
    if closing[ROOT] != fixed(store, ROOT)[0]:
        return
    for key in (CARD, CROISSANT, Seal.KEY):
        if fixed(store, key)[0] != closing[key]:
            yield key, closing[key]
