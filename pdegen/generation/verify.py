"""Verification of a sealed store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.generation.existing import damage_of, unexpected_keys
from pdegen.generation.job import RecipeJob
from pdegen.schema import SchemaError
from pdegen.store.format import METADATA_BYTES, ROOT, Json, MetadataError, parse
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Seal, Store, StoreError, finished, sample_moments, seal_in
from pdegen.store.writing import Fault, check_seal, fixed, inspect, seal_faults, summary_faults

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
    values_checked: bool = False  # whether the law of the recipe was checked
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
            (`pdegen.checks`).
        deep: Number of random samples that are computed again and compared bit for bit. If the
            store was solved on a PyTorch device, or with other Fourier transforms, the tolerance is
            1e-5, and variables with the role "quality" are not compared.
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
        for finding in job.recipe.problem.checks_of_store().check(blocks):
            result.faults.append(
                Fault(f"{finding.variable}, law", finding.message, None, finding.variable)
            )
    for _ in blocks:  # read the shards that no law has read
        pass
    if deep:
        _check_recomputed(store, job or RecipeJob.of(store), deep, result)
    return result


def _job(store: Store, result: Verification, needed: bool) -> RecipeJob | None:
    """The job that generated a store. None if the store was not generated, or if its recipe is
    wrong. In the second case, a fault is added to the result. Raises SchemaError if the job is
    needed and its equation is in a file that was not loaded."""
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
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
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
    transforms = store.raw_attributes["provenance"].get("transforms", "")
    exact = job.device is None and transforms == job.recipe.problem.transforms.get("transforms", "")
    job = replace(job, device=None)
    roles = {name: store.arrays[name].metadata.role for name in store.variables}
    for sample in chosen:
        shard = sample // store.shard_size
        _, sound, _ = inspect(store, shard)
        try:
            values = job.compute(store, range(sample, sample + 1))
        except SampleError as error:
            if sample not in store.skipped:
                result.faults.append(Fault.of_shard(shard, f"it cannot be computed again: {error}"))
            continue
        for name, data in sound.items():
            if roles[name] == "quality" and not exact:  # depends on rounding and iteration counts
                continue
            stored = store.shards_of(name).decoded(shard, data)[
                sample - store.shard_range(shard).start
            ]
            computed = np.asarray(values[name][0], dtype=stored.dtype)
            scale = 0.0 if exact else _ROUNDING * float(np.abs(stored).max())
            if not (np.abs(computed.astype(float) - stored) <= scale).all():
                problem = f"sample {sample} differs from its recomputed values"
                result.faults.append(Fault.of_shard(shard, problem, name))
        result.recomputed.append(sample)
