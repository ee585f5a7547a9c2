"""Repair of damaged objects in a sealed store."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from functools import partial

from pdegen.generation.engines import pool
from pdegen.generation.generate import values_of
from pdegen.generation.job import RecipeJob
from pdegen.generation.verify import Verification, checked_blocks, opened, verify
from pdegen.schema import SchemaError
from pdegen.store import lock
from pdegen.store.card import CARD, CROISSANT, documents
from pdegen.store.format import ROOT, sha256
from pdegen.store.objects import Objects
from pdegen.store.reading import Record, Seal, Store, StoreError
from pdegen.store.writing import closing_objects, encoded, fixed, fixed_keys, inspect, summary_of

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
    """Yield the restored objects of a damaged store. The caller must write each object before it
    requests the next one."""
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
    """Restore damaged metadata, coordinates and card. They are computed, or copied from the seal.
    Yields an object only if its digest then agrees with the seal."""
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
    """Restore damaged metadata and coordinates of a store without a valid seal. Yields the objects,
    which are computed from the recipe in `zarr.json`."""
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
    """Compute the data of a shard again. Yields the damaged objects if all digests agree with the
    record."""
    objects, computed = _computed(store, job, record.shard, dict(record.skipped))
    if computed.digest == record.digest:
        for name in store.variables:
            if name not in sound:
                key = store.key(name, record.shard)
                yield key, objects[key]


def _repaired_records(
    store: Store, seal: Seal | None, job: RecipeJob, shards: list[int]
) -> Iterator[RepairedObject]:
    """Compute again the shards that have no valid record. Yields their data and records if the
    digest of all records then agrees with the seal, or with the metadata if there is no seal."""
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
    """Compute a shard with the job. Returns two values: a dictionary that maps the keys of the data
    objects to their bytes, and the record of the shard."""
    job.check()
    samples = store.shard_range(shard)
    values = values_of(job, store, samples, skipped if store.skipped else None)
    return encoded(store, shard, values, skipped)


def _new_seal(store: Store, job: RecipeJob) -> Iterator[RepairedObject]:
    """Yield new cards and a new seal for a store without a valid seal.

    Nothing is yielded if verification finds a fault, or if the metadata differ from those that the
    recipe gives.
    """
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
