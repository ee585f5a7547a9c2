"""Stores, checked: what is wrong with shards, records, seal, and all that they cover."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pdegen.store.card import CARD, CROISSANT
from pdegen.store.digests import sha256, short_digest, short_digest_of
from pdegen.store.format import METADATA_BYTES, ROOT
from pdegen.store.labels import CHANNEL, Labels
from pdegen.store.objects import TooLargeError
from pdegen.store.reading import Store, StoreError, seal_in
from pdegen.store.record import Record, Seal, Summary


@dataclass(frozen=True)
class Fault:
    """Something wrong in a store."""

    where: str  # the object, or what of the store
    what: str  # what is wrong with it
    shard: int | None = None  # number of the shard, where it is one
    variable: str | None = None  # name of the variable, where it is one

    @classmethod
    def of_shard(cls, shard: int, what: str, variable: str | None = None) -> Fault:
        where = f"shard {shard}" if variable is None else f"{variable}, shard {shard}"
        return cls(where, what, shard, variable)

    @classmethod
    def of_seal(cls, error: StoreError) -> Fault:
        """What `seal_in` or `check_seal` has said."""
        return cls(Seal.KEY, str(error).removeprefix(f"{Seal.KEY}: "))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def inspect(store: Store, shard: int) -> tuple[Record | None, dict[str, bytes], list[Fault]]:
    """The record of a shard, the bytes of each variable that fit it, and what is wrong."""
    try:
        record = store.record(shard)
    except StoreError as error:
        what = str(error).removeprefix(f"{store.url}: ")
        return None, {}, [Fault.of_shard(shard, what)]
    sound, faults, objects = dict[str, bytes](), list[Fault](), store.objects
    for name in store.variables:
        what = "the data differ from the recorded digest"
        try:
            data = objects.read(store.key(name, shard), store.arrays[name].limit)
            if sha256(data) == record.digest.get(name):
                sound[name] = data
                continue
        except (FileNotFoundError, NotADirectoryError):
            what = "the data are missing"
        except IsADirectoryError:
            what = "a folder is in the place of the data"
        except TooLargeError as error:
            what = f"the data are {error.strerror}"
        faults.append(Fault.of_shard(shard, what, name))
    return record, sound, faults


def missing(store: Store) -> list[int]:
    """The shards without a valid record, or with other data than it says."""
    return [shard for shard in range(store.shards) if inspect(store, shard)[2]]


def summary_of(store: Store, replaced: Mapping[int, Record] | None = None) -> Summary:
    """What follows from all records of a store, those of some shards replaced. Raises StoreError if
    a record is missing or damaged, or no training sample is left."""
    records = store.records()
    if replaced:
        records = (replaced.get(k) or store.record(k) for k in range(store.shards))
    try:
        return Summary.of(records, store.variables, store.metadata.splits["train"], store.samples)
    except StoreError:
        raise
    except ValueError as error:
        raise StoreError(f"{store.url}: {error}") from None


def summary_faults(store: Store, seal: Seal | None = None) -> list[Fault]:
    """What of all records together is other than the store says, and its seal where that is known.
    Raises StoreError if a record is missing or damaged."""
    summary, said, found = summary_of(store), store.metadata, list[Fault]()
    if seal is not None and summary.records != seal.records:
        found.append(Fault("records", "differ from the seal"))
    if summary.statistics != said.statistics:
        found.append(Fault("statistics", "differ from the recorded samples"))
    if summary.content != said.content:
        found.append(Fault("content", "the digest differs from the records"))
    if summary.skipped != store.skipped:
        found.append(Fault("skipped", "differs from the records"))
    return found


def check_seal(store: Store, seal: Seal) -> None:
    """Raise StoreError where a seal is that of another store."""
    if seal.objects.keys() != {ROOT, CARD, CROISSANT, *fixed_keys(store)}:
        raise StoreError(f"{Seal.KEY}: it is the seal of other objects than the store has")


def seal_faults(store: Store) -> list[Fault]:
    """What is wrong with the seal, or with what it covers beside records and shards."""
    try:
        seal = seal_in(store.objects)
        check_seal(store, seal)
    except StoreError as error:
        return [Fault.of_seal(error)]
    found, named = list[Fault](), store.description.labels
    for key, digest in seal.objects.items():
        data, what = fixed(store, key)
        if data is not None and sha256(data) != digest:
            what = "differs from the seal"
        elif named is not None and key == Labels.KEY and data not in (None, named.data):
            what = "has other names than the channels"
        if what:
            found.append(Fault(key, what))
    return found


def altered(store: Store) -> list[int]:
    """The shards whose record is another than the seal knows; none where there is no seal."""
    try:
        seal = seal_in(store.objects)
        check_seal(store, seal)
    except StoreError:
        return []
    found, objects = list[int](), store.objects
    for shard in store.recorded():
        with suppress(OSError):
            data = objects.read(Record.key(shard), METADATA_BYTES)
            if short_digest_of(seal.shards, shard) not in ("", short_digest(data)):
                found.append(shard)
    return found


def fixed(store: Store, key: str) -> tuple[bytes | None, str]:
    """The bytes of metadata, a coordinate or the card; or why there are none."""
    labels = store.description.labels
    if labels is not None and key == Labels.KEY:
        return store.objects.try_read(key, len(labels.data))
    name, _, chunk = key.partition("/c")
    limit = store.arrays[name].limit if chunk or key.endswith("/c") else METADATA_BYTES
    return store.objects.try_read(key, limit)


def fixed_keys(store: Store) -> list[str]:
    """The keys of what does not change after the layout: metadata of arrays, coordinates."""
    described = store.description
    chunks = [array.key() for array in described.coordinates.values()]
    labels = () if described.labels is None else (f"{CHANNEL}/{ROOT}", Labels.KEY)
    return sorted([*(f"{name}/{ROOT}" for name in described.arrays), *chunks, *labels])


def expects_key(store: Store, key: str) -> bool:
    """Whether it is the key of an object that a store of this layout has, beside its lock and
    `log/`."""
    if key in (ROOT, CARD, CROISSANT, Seal.KEY):
        return True
    first, _, rest = key.partition("/")
    if first == "records":
        shard = Record.number(rest)
        return shard is not None and shard < store.shards
    if first in store.variables and rest.startswith("c/"):
        digits = rest.split("/")[1]
        shard = int(digits) if digits.isdecimal() and len(digits) <= 18 else store.shards
        return shard < store.shards and key == store.key(first, shard)
    return key in fixed_keys(store)
