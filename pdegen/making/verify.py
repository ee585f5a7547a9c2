"""Whether a sealed store is what it claims to be, and mending it where it is not."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.making.engines import pool
from pdegen.making.generate import values_of
from pdegen.making.job import RecipeJob
from pdegen.making.place import damage_of, strangers
from pdegen.schema import SchemaError
from pdegen.store import lock
from pdegen.store.arrays import MetadataError
from pdegen.store.card import CARD, CROISSANT, documents
from pdegen.store.checking import (
    Fault,
    check_seal,
    fixed,
    fixed_keys,
    inspect,
    seal_faults,
    summary_faults,
    summary_of,
)
from pdegen.store.description import parse
from pdegen.store.format import METADATA_BYTES, ROOT
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError, finished, seal_in
from pdegen.store.record import Record, Seal, sample_moments
from pdegen.store.signed import sha256
from pdegen.store.writing import closing, encoded

Mend = tuple[str, bytes]  # the key of an object and what is written there
_NAMED = 1000  # faults of one kind that are named one by one
_DEVICE_TOLERANCE = 1e-5  # relative, of samples solved on a device of PyTorch


@dataclass
class Verification:
    """What was found in a store.

    Args:
        url: The store.
        faults: What is wrong.
        repaired: Keys of the restored objects.
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
    digests and the seal, data by the records, and the seal by its own digest; `log/` alone is not.
    The values must be finite and have the recorded means, and the statistics must follow from them.
    There must be no other files, except the lock and what killed writers have left.

    Args:
        url: The store.
        law: Whether values must follow the law of the recipe (`pdegen.law`).
        deep: Number of samples, chosen at random, to compute again and to compare bit for bit;
            those solved on a device of PyTorch within 1e-5, without what estimates their quality.
        progress: Called after each shard with those done and all.

    Raises:
        StoreError: If there is no sealed store, or too little of its metadata is left to read it.
        SchemaError: If samples are to be computed again, and the store has no recipe.
    """
    result = Verification(url)
    store, seal = _opened(url, result)
    if seal is not None:
        result.faults += seal_faults(store)
        result.bytes += sum(len(fixed(store, key)[0] or b"") for key in seal.objects)
    for key in islice(strangers(store.objects, store), _NAMED):
        result.faults.append(Fault(key, "is no object of this store, and stays: move it away"))
    job = _job(store, result, law or bool(deep))
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


def _job(store: Store, result: Verification, needed: bool) -> RecipeJob | None:
    """What made the store; None, and a fault, where its recipe is wrong.

    Raises:
        SchemaError: If it is needed, and the equation is of a file that was not given.
    """
    if store.command != "generate":
        return None
    try:
        return RecipeJob.of(store)
    except SchemaError as error:
        if needed and store.said.equation_file is not None:
            raise
        result.faults.append(Fault("recipe", str(error)))
        return None


def _opened(url: str, result: Verification) -> tuple[Store, Seal | None]:
    """The store by the metadata that can be trusted most, and its seal where that is sound."""
    objects = Objects(url)
    try:
        seal = seal_in(objects)
        store = Store(url, root=seal.metadata.get(ROOT, "").encode(), seal=seal)
        if damage_of(store) is not None:
            raise StoreError("its copy of zarr.json is no description of a store")
        check_seal(store, seal)
    except StoreError as error:
        store = finished(Store(url))
        result.faults.append(Fault.of_seal(error))
        return store, None
    try:
        unsealed = not parse(objects.read(ROOT, at_most=METADATA_BYTES)).said.sealed
    except (OSError, MetadataError):
        unsealed = False
    if unsealed:  # it is being written again
        finished(Store(url))
    return store, seal


def _checked_blocks(
    store: Store, seal: Seal | None, result: Verification, progress: Callable[[int, int], None]
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """The values of each sound shard, without skipped samples, with the samples' numbers; faults of
    the shards and, in the end, of what is recorded of all of them go to the result."""
    before, shards = len(result.faults), range(store.shards)
    recorded = store.recorded()
    absent = store.shards - len(recorded)
    if absent > _NAMED:
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
            kept = [i for i in range(*record.samples) if i not in record.skipped]
            rows = np.array(kept, dtype=int) - record.samples[0]
            yield np.array(kept), {name: value[rows] for name, value in values.items()}
        progress(done, len(shards))
    if len(result.faults) == before:
        result.faults += summary_faults(store, seal)


def _faults_of_values(
    store: Store, record: Record, values: dict[str, np.ndarray]
) -> Iterator[Fault]:
    for name, array in values.items():
        kept = [i - record.samples[0] for i in range(*record.samples) if i not in record.skipped]
        if not np.isfinite(array[kept]).all():
            yield Fault.of_shard(record.shard, "values are not finite", name)
        if sample_moments(array) != (record.mean.get(name), record.mean_square.get(name)):
            yield Fault.of_shard(record.shard, "the recorded means differ", name)


def _check_again(store: Store, job: RecipeJob, count: int, result: Verification) -> None:
    """Samples that are computed again, with NumPy, against those that are stored."""
    chosen = sorted(random.sample(range(store.samples), min(count, store.samples)))
    exact, job = job.device is None, replace(job, device=None)
    roles = {name: store.arrays[name].said.role for name in store.variables}
    for sample in chosen:
        shard = sample // store.shard_size
        _, sound, _ = inspect(store, shard)
        try:
            again = job.compute(store, range(sample, sample + 1))
        except SampleError as error:
            if sample not in store.skipped:
                result.faults.append(Fault.of_shard(shard, f"it cannot be computed again: {error}"))
            continue
        for name, data in sound.items():
            if roles[name] == "quality" and not exact:  # round-off, and another iteration
                continue
            stored = store.shards_of(name).decoded(shard, data)[
                sample - store.shard_range(shard).start
            ]
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

    Metadata come from their copy in the seal, coordinates, records and data from the recipe, and a
    seal from all of them. Only what has the digest that the seal or a sound record holds is
    written; without a sound seal, only what makes the store that its recipe makes. Files that are
    not of the store stay, and remain faults.

    Args:
        url, law, deep, progress: As of `verify`.
        take_over: Take the lock of the store from another job.

    Returns:
        What a second `verify` finds: faults are those that could not be repaired.

    Raises:
        LockedError: If another job writes there.
        StoreError: As `verify`; and where a folder of the store is a symbolic link.
    """
    objects = Objects(url)
    if links := objects.links():
        raise StoreError(
            f"{url}: {links[0]} is a symbolic link in the place of a folder; nothing was written: "
            "move it away"
        )
    found = verify(url, law=False)
    made = list[str]()
    job = _opened(url, Verification(url))[0].said.job
    with lock.locked(objects, job, take_over) as mine:
        for key, data in _repaired(found) if found.faults else ():
            try:
                objects.write(key, data, partial(lock.check, objects, mine))
            except OSError as error:
                # foreign files are in the way, and stay
                if error.errno not in (errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP):
                    raise
            else:
                made.append(key)
        objects.remove_partial()
    result = verify(url, law=law, deep=deep, progress=progress)
    result.repaired = made
    return result


def _repaired(found: Verification) -> Iterator[Mend]:
    """What mends a store, by its keys; each is written before the next is asked for."""
    store, seal = _opened(found.url, Verification(found.url))
    try:
        job = RecipeJob.of(store)
    except SchemaError:
        job = None
    if seal is not None:
        yield from _mended_fixed(store, seal, job, {fault.where for fault in found.faults})
    elif job is not None:
        yield from _mended_layout(store, job)
    if job is None:
        return
    recorded, unrecorded = set(store.recorded()), list[int]()
    damaged = {fault.shard for fault in found.faults if fault.shard is not None}
    for shard in sorted(damaged | (set(range(store.shards)) - recorded)):
        record, sound, _ = inspect(store, shard)
        if record is None:
            unrecorded.append(shard)
        else:
            yield from _mended_data(store, job, record, sound)
    if unrecorded:
        yield from _mended_records(store, seal, job, unrecorded)
    if seal is None:
        yield from _sealed_again(store, job)


def _mended_fixed(
    store: Store, seal: Seal, job: RecipeJob | None, damaged: set[str]
) -> Iterator[Mend]:
    """Metadata, coordinates and card by what the seal holds of them."""
    made = {key: text.encode() for key, text in seal.metadata.items()}
    made |= documents(store.description, sha256(made[ROOT]))
    if (labels := store.description.labels) is not None:
        made[labels.KEY] = labels.data
    if job is not None:
        made = {**job.layout().objects(store.version), **made}
    for key in sorted(damaged & seal.objects.keys() & made.keys()):
        if sha256(made[key]) == seal.objects[key]:
            yield key, made[key]


def _mended_layout(store: Store, job: RecipeJob) -> Iterator[Mend]:
    """The same without a seal, by the recipe, which itself is read from `zarr.json`."""
    made = job.layout().objects(store.version)
    if json.loads(made[ROOT])["consolidated_metadata"]["metadata"] != store.description.metadata:
        return
    for key in fixed_keys(store):
        if fixed(store, key)[0] != made[key]:
            yield key, made[key]


def _mended_data(
    store: Store, job: RecipeJob, record: Record, sound: dict[str, bytes]
) -> Iterator[Mend]:
    """The data of a shard that its record knows."""
    made, again = _made_again(store, job, record.shard, dict(record.skipped))
    if again.digest == record.digest:
        for name in store.variables:
            if name not in sound:
                key = store.key(name, record.shard)
                yield key, made[key]


def _mended_records(
    store: Store, seal: Seal | None, job: RecipeJob, shards: list[int]
) -> Iterator[Mend]:
    """Shards without a sound record: all records together must have the digest that is known."""
    records = {shard: _made_again(store, job, shard, {})[1] for shard in shards}
    try:
        summary = summary_of(store, records)
    except StoreError:  # there are others that could not be mended
        return
    known = (seal.records, summary.records) if seal else (
        store.said.content, summary.content
    )  # fmt: skip
    if known[0] != known[1]:
        return
    for shard in shards:
        made, record = _made_again(store, job, shard, {})  # again: few are held at a time
        for name in store.variables:
            key = store.key(name, shard)
            data, _ = store.objects.found(key, store.arrays[name].limit)
            if data is None or sha256(data) != record.digest[name]:
                yield key, made[key]
        yield Record.key(shard), record.encode()


def _made_again(
    store: Store, job: RecipeJob, shard: int, skipped: dict[int, str]
) -> tuple[dict[str, bytes], Record]:
    """The objects and the record of a shard."""
    job.check()
    samples = store.shard_range(shard)
    values = values_of(job, store, samples, skipped if store.skipped else None)
    return encoded(store, shard, values, skipped)


def _sealed_again(store: Store, job: RecipeJob) -> Iterator[Mend]:
    """Card and seal, where all that they cover is what the recipe makes."""
    plan = json.loads(job.layout().objects(store.version)[ROOT])
    plan["attributes"]["provenance"] = store.attributes["provenance"]
    found = Verification(store.url)
    for _ in _checked_blocks(store, None, found, lambda done, total: None):
        pass
    if found.faults:
        return
    with pool("threads", None) as workers:
        measured = job.measured(workers)
    closed = closing(Store(store.url, root=json.dumps(plan).encode()), measured)
    if closed[ROOT] != fixed(store, ROOT)[0]:
        return
    for key in (CARD, CROISSANT, Seal.KEY):
        if fixed(store, key)[0] != closed[key]:
            yield key, closed[key]
