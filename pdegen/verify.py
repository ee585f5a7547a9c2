"""Whether a sealed store is what it claims to be, and mending it where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdegen import lock
from pdegen.card import documents
from pdegen.generate import Job, RecipeJob, values_of
from pdegen.layout import ROOT
from pdegen.metadata import METADATA_BYTES, MetadataError, parse
from pdegen.objects import Objects, TooLargeError
from pdegen.problems.base import SampleError
from pdegen.record import Record, Seal, sample_moments, sha256
from pdegen.schema import SchemaError
from pdegen.store import Fault, Store, open_sealed

_DEVICE_TOLERANCE = 1e-5  # relative, of samples solved on another device than the CPU


@dataclass
class Verification:
    """What was found in a store.

    Args:
        url: The store.
        faults: What is wrong.
        repaired: Keys of the objects that were made again.
        shards, bytes: How much was read.
        law: Whether the law of the recipe was checked.
        recomputed: Samples that were computed again and compared.
    """

    url: str
    faults: list[Fault] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    shards: int = 0
    bytes: int = 0
    law: bool = False
    recomputed: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "store": self.url,
            "verified": not self.faults,
            "faults": [vars(fault) for fault in self.faults],
            "repaired": self.repaired,
            "checked": {
                "shards": self.shards, "bytes": self.bytes, "law": self.law,
                "recomputed": self.recomputed,
            },
        }  # fmt: skip


def verify(
    url: str,
    *,
    law: bool = True,
    deep: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Check a sealed store.

    Every byte of it is covered: metadata, coordinates and card by the seal, records by their own
    digests and the seal, data by the records, and the seal by its own digest; but for `log/`. The
    values must be finite and have the recorded means, and the statistics must follow from them.

    Args:
        url: The store.
        law: Whether values must follow the law of the recipe (`pdegen.law`).
        deep: Number of samples, chosen at random, to compute again and to compare bit for bit;
            those solved on another device than the CPU within 1e-5.
        progress: Called after each shard with those done and all.

    Raises:
        StoreError: If there is no sealed store, or too little of its metadata is left to read it.
        SchemaError: If samples are to be computed again, and the store has no recipe.
    """
    result = Verification(url)
    store, seal = _opened(url, result)
    _check_fixed(store, seal, result)
    job = _job(store, result)
    blocks = _checked_blocks(store, seal, result, progress)
    if law and job is not None:
        result.law = True
        for finding in job.recipe.problem.law().check(blocks):
            result.faults.append(
                Fault(f"{finding.variable}, law", finding.what, None, finding.variable)
            )
    for _ in blocks:  # where no law has read them
        pass
    if deep:
        _check_again(store, job or RecipeJob.of(store), deep, result)
    return result


def _job(store: Store, result: Verification) -> RecipeJob | None:
    """What made the store; None, and a fault, where its recipe is wrong."""
    if store.command != "generate":
        return None
    try:
        return RecipeJob.of(store)
    except SchemaError as error:
        result.faults.append(Fault("recipe", str(error)))
        return None


def _opened(url: str, result: Verification) -> tuple[Store, Seal | None]:
    """The store by the metadata that can be trusted most, and its seal where that is sound."""
    objects = Objects(url)
    seal, fault = None, "is missing"
    try:
        seal = Seal.parse(objects.read(Seal.KEY, at_most=METADATA_BYTES))
    except FileNotFoundError:
        pass
    except TooLargeError as error:
        fault = f"is {error.strerror}"
    except ValueError as error:
        fault = str(error)
    if seal is None:
        store = open_sealed(url)
        result.faults.append(Fault(Seal.KEY, fault))
        return store, None
    try:
        unsealed = not parse(objects.read(ROOT, at_most=METADATA_BYTES))["attributes"]["sealed"]
    except (OSError, MetadataError):
        unsealed = False
    if unsealed:  # it is being written again
        open_sealed(url)
    return Store(url, root=seal.metadata[ROOT].encode()), seal


def _check_fixed(store: Store, seal: Seal | None, result: Verification) -> None:
    """Metadata, coordinates and card against the seal."""
    if seal is None:
        return
    for key, digest in seal.objects.items():
        name, _, chunk = key.partition("/c")
        limit = store.limit(name) if chunk or key.endswith("/c") else METADATA_BYTES
        try:
            data = store.objects.read(key, limit)
        except (FileNotFoundError, NotADirectoryError):
            result.faults.append(Fault(key, "is missing"))
            continue
        except TooLargeError as error:
            result.faults.append(Fault(key, f"is {error.strerror}"))
            continue
        result.bytes += len(data)
        if sha256(data) != digest:
            result.faults.append(Fault(key, "differs from the seal"))


def _checked_blocks(
    store: Store, seal: Seal | None, result: Verification, progress: Callable[[int, int], None]
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """The values of each sound shard, without skipped samples, with the samples' numbers; faults of
    the shards and, in the end, of what is recorded of all of them go to the result."""
    before = len(result.faults)
    for shard in range(store.shards):
        record, sound, faults = store.inspect(shard)
        result.faults += faults
        if record is not None and not faults:
            values = {name: store.decode(name, shard, data) for name, data in sound.items()}
            result.faults += _faults_of_values(store, record, values)
            result.shards += 1
            result.bytes += sum(map(len, sound.values()))
            kept = [i for i in range(*record.samples) if i not in record.skipped]
            rows = np.array(kept, dtype=int) - record.samples[0]
            yield np.array(kept), {name: value[rows] for name, value in values.items()}
        progress(shard + 1, store.shards)
    if len(result.faults) == before:
        result.faults += _faults_of_summary(store, seal)


def _faults_of_values(
    store: Store, record: Record, values: dict[str, np.ndarray]
) -> Iterator[Fault]:
    for name, array in values.items():
        kept = [i - record.samples[0] for i in range(*record.samples) if i not in record.skipped]
        if not np.isfinite(array[kept]).all():
            yield Fault.of_shard(record.shard, "values are not finite", name)
        if sample_moments(array) != (record.mean.get(name), record.mean_square.get(name)):
            yield Fault.of_shard(record.shard, "the recorded means differ", name)


def _faults_of_summary(store: Store, seal: Seal | None) -> Iterator[Fault]:
    attributes, summary = store.attributes, store.summary()
    if seal is not None and summary.records != seal.records:
        yield Fault("records", "differ from the seal")
    if summary.statistics != attributes.get("statistics"):
        yield Fault("statistics", "differ from the recorded samples")
    if summary.content != attributes.get("content"):
        yield Fault("content", "the digest differs from the records")
    if summary.skipped != store.skipped:
        yield Fault("skipped", "differs from the records")


def _check_again(store: Store, job: Job, count: int, result: Verification) -> None:
    """Samples that are computed again against those that are stored."""
    chosen = sorted(random.sample(range(store.samples), min(count, store.samples)))
    exact = "device" not in store.attributes["provenance"]
    for sample in chosen:
        shard = sample // store.shard_size
        _, sound, _ = store.inspect(shard)
        try:
            again = job.compute(store, range(sample, sample + 1))
        except SampleError as error:
            if sample not in store.skipped:
                result.faults.append(Fault.of_shard(shard, f"it cannot be made again: {error}"))
            continue
        for name, data in sound.items():
            stored = store.decode(name, shard, data)[sample - store.shard_range(shard).start]
            computed = np.asarray(again[name][0], dtype=stored.dtype)
            scale = 0.0 if exact else _DEVICE_TOLERANCE * float(np.abs(stored).max())
            if not (np.abs(computed.astype(float) - stored) <= scale).all():
                what = f"sample {sample} differs from what the recipe gives"
                result.faults.append(Fault.of_shard(shard, what, name))
        result.recomputed.append(sample)


def repair(
    url: str,
    *,
    law: bool = True,
    deep: int = 0,
    take_over: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Make again exactly what `verify` finds damaged, and leave the rest untouched.

    Metadata come from their copy in the seal, coordinates and shards from the recipe, records from
    the shards, and the seal from all of them. Only what has the digest that the seal or a sound
    record holds is written.

    Args:
        url, law, deep, progress: As of `verify`.
        take_over: Take the lock of the store from another job.

    Returns:
        What a second `verify` finds: faults are those that could not be repaired.

    Raises:
        LockedError: If another job writes there.
        StoreError: As `verify`.
    """
    objects = Objects(url)
    found = verify(url, law=False)
    with lock.locked(objects, take_over):
        made = list(_repaired(found)) if found.faults else []
    result = verify(url, law=law, deep=deep, progress=progress)
    result.repaired = made
    return result


def _repaired(found: Verification) -> Iterator[str]:
    """Mend a store; the keys of what was written."""
    store, seal = _opened(found.url, Verification(found.url))
    damaged = {fault.where for fault in found.faults}
    if seal is not None:
        made = {key: text.encode() for key, text in seal.metadata.items()}
        made |= documents(store.description, sha256(made[ROOT]))
        if damaged & (seal.objects.keys() - made.keys()):
            made |= _coordinates(store)
        for key in sorted(damaged & seal.objects.keys()):
            if key in made and sha256(made[key]) == seal.objects[key]:
                store.objects.write(key, made[key])
                yield key
    for shard in sorted({fault.shard for fault in found.faults if fault.shard is not None}):
        yield from _repaired_shard(store, shard)
    if seal is None:
        rest = verify(found.url, law=False)
        if [fault.where for fault in rest.faults] == [Seal.KEY]:
            objects = {key: store.objects.read(key) for key in [*store.fixed_keys(), ROOT]}
            objects |= documents(store.description, sha256(objects[ROOT]))
            store.objects.write(Seal.KEY, Seal.of(objects, store.summary().records).encode())
            yield Seal.KEY


def _coordinates(store: Store) -> dict[str, bytes]:
    """Coordinates from the recipe, by keys; none without one."""
    try:
        objects = RecipeJob.of(store).layout().objects()
    except SchemaError:
        return {}
    return {key: data for key, data in objects.items() if not key.endswith(ROOT)}


def _repaired_shard(store: Store, shard: int) -> Iterator[str]:
    record, sound, _ = store.inspect(shard)
    try:
        job = RecipeJob.of(store)
    except SchemaError:
        return
    skipped = {} if record is None else dict(record.skipped)
    values = values_of(job, store, store.shard_range(shard), skipped if store.skipped else None)
    made, new = store.encoded(shard, values, skipped)
    if record is None:
        there = {name: store.objects.read(store.key(name, shard)) for name in store.variables}
        if all(sha256(data) == new.digest[name] for name, data in there.items()):
            store.objects.write(Record.key(shard), new.encode())
            yield Record.key(shard)
    elif new.digest == record.digest:
        for name in store.variables:
            if name not in sound:
                key = store.key(name, shard)
                store.objects.write(key, made[key])
                yield key
