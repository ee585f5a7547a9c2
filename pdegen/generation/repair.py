"""Mending a sealed store where it is not what it claims to be."""

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
from pdegen.store.checking import fixed, fixed_keys, inspect, summary_of
from pdegen.store.digests import sha256
from pdegen.store.format import ROOT
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError
from pdegen.store.record import Record, Seal
from pdegen.store.writing import closing_objects, encoded

Mend = tuple[str, bytes]  # the key of an object and what is written there


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
        url, law, deep, progress: As of `verify`, and what a second one finds is returned.
        take_over: Take the lock of the store from another job.

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
    job = opened(url, Verification(url))[0].metadata.job
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
    store, seal = opened(found.url, Verification(found.url))
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
    if (
        json.loads(made[ROOT])["consolidated_metadata"]["metadata"]
        != store.description.zarr_metadata
    ):
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
        store.metadata.content, summary.content
    )  # fmt: skip
    if known[0] != known[1]:
        return
    for shard in shards:
        made, record = _made_again(store, job, shard, {})  # again: few are held at a time
        for name in store.variables:
            key = store.key(name, shard)
            data, _ = store.objects.try_read(key, store.arrays[name].limit)
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
    plan["attributes"]["provenance"] = store.raw_attributes["provenance"]
    found = Verification(store.url)
    for _ in checked_blocks(store, None, found, lambda done, total: None):
        pass
    if found.faults:
        return
    with pool("threads", None) as workers:
        measured = job.measurements(workers)
    closed = closing_objects(Store(store.url, root=json.dumps(plan).encode()), measured)
    if closed[ROOT] != fixed(store, ROOT)[0]:
        return
    for key in (CARD, CROISSANT, Seal.KEY):
        if fixed(store, key)[0] != closed[key]:
            yield key, closed[key]
