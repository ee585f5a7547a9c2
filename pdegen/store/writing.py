"""Writing of stores. A store is first laid out, then filled shard by shard, and finally sealed.

`datasets/README.md` describes the format. The record of a shard is written after the data of the
shard. It contains the digests of the data and the identity of the job. To resume an interrupted
store, the shards without a valid record are written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pdegen.store.card import CARD, CROISSANT, documents
from pdegen.store.format import (
    CHANNEL,
    METADATA_BYTES,
    ROOT,
    UNFINISHED_ROOT,
    Labels,
    MetadataError,
    parse,
    sha256,
    short_digest,
    short_digest_of,
)
from pdegen.store.layout import Layout
from pdegen.store.objects import Objects, TooLargeError
from pdegen.store.reading import (
    Record,
    Seal,
    Store,
    StoreError,
    Summary,
    encoded_shard,
    not_finite,
    sample_moments,
    seal_in,
)

# Checks of a store: its shards, their records, the seal, and the objects that the seal covers.


@dataclass(frozen=True)
class Fault:
    """A fault of a store, described in one line."""

    where: str  # key of the object, or part of the store
    what: str  # the fault, as the end of a sentence
    shard: int | None = None  # number of the shard, for a fault of a shard
    variable: str | None = None  # name of the variable, for a fault of its values

    @classmethod
    def of_shard(cls, shard: int, what: str, variable: str | None = None) -> Fault:
        """A fault in one shard. If `variable` is given, only this variable of the shard is
        wrong."""
        where = f"shard {shard}" if variable is None else f"{variable}, shard {shard}"
        return cls(where, what, shard, variable)

    @classmethod
    def of_seal(cls, error: StoreError) -> Fault:
        """Make a fault of the seal from an error that `seal_in` or `check_seal` raised."""
        return cls(Seal.KEY, str(error).removeprefix(f"{Seal.KEY}: "))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def inspect(store: Store, shard: int) -> tuple[Record | None, dict[str, bytes], list[Fault]]:
    """Compare the data of a shard with its record. Returns the record (None if it is damaged), the
    bytes of each variable that matches, and a fault for each variable that does not match."""
    try:
        record = store.record(shard)
    except StoreError as error:
        problem = str(error).removeprefix(f"{store.url}: ")
        return None, {}, [Fault.of_shard(shard, problem)]
    sound, faults, objects = dict[str, bytes](), list[Fault](), store.objects
    for name in store.variables:
        problem = "the data differ from the recorded digest"
        try:
            data = objects.read(store.key(name, shard), store.arrays[name].limit)
            if sha256(data) == record.digest.get(name):
                sound[name] = data
                continue
        except (FileNotFoundError, NotADirectoryError):
            problem = "the data are missing"
        except IsADirectoryError:
            problem = "a folder is in the place of the data"
        except TooLargeError as error:
            problem = f"the data are {error.strerror}"
        faults.append(Fault.of_shard(shard, problem, name))
    return record, sound, faults


def missing(store: Store) -> list[int]:
    """Numbers of the shards that have no valid record, or whose data differ from their record."""
    return [shard for shard in range(store.shards) if inspect(store, shard)[2]]


def summary_of(store: Store, replaced: Mapping[int, Record] | None = None) -> Summary:
    """The summary of all records of a store.

    Args:
        store: The store.
        replaced: Records that are used instead of the stored ones. Keys are numbers of shards.

    Raises:
        StoreError: If a record is missing or damaged, or all training samples were skipped.
    """
    records = store.records()
    if replaced:
        records = (replaced.get(shard) or store.record(shard) for shard in range(store.shards))
    try:
        return Summary.of(records, store.variables, store.metadata.splits["train"], store.samples)
    except StoreError:
        raise
    except ValueError as error:
        raise StoreError(f"{store.url}: {error}") from None


def summary_faults(store: Store, seal: Seal | None = None) -> list[Fault]:
    """Compute the summary of all records. Returns a fault for each difference from the metadata of
    the store, and from the seal if one is given. Raises StoreError if a record is missing or
    damaged."""
    summary, metadata, faults = summary_of(store), store.metadata, list[Fault]()
    if seal is not None and summary.records != seal.records:
        faults.append(Fault("records", "differ from the seal"))
    if summary.statistics != metadata.statistics:
        faults.append(Fault("statistics", "differ from the recorded samples"))
    if summary.content != metadata.content:
        faults.append(Fault("content", "the digest differs from the records"))
    if summary.skipped != store.skipped:
        faults.append(Fault("skipped", "differs from the records"))
    return faults


def check_seal(store: Store, seal: Seal) -> None:
    """Raise StoreError if the seal does not cover exactly the objects that the store should
    have."""
    if seal.objects.keys() != {ROOT, CARD, CROISSANT, *fixed_keys(store)}:
        raise StoreError(f"{Seal.KEY}: it covers other objects than the store has")


def seal_faults(store: Store) -> list[Fault]:
    """Faults of the seal, and of the objects whose digests the seal lists."""
    try:
        seal = seal_in(store.objects)
        check_seal(store, seal)
    except StoreError as error:
        return [Fault.of_seal(error)]
    faults, labels = list[Fault](), store.description.labels
    for key, digest in seal.objects.items():
        data, problem = fixed(store, key)
        if data is not None and sha256(data) != digest:
            problem = "differs from the seal"
        elif labels is not None and key == Labels.KEY and data not in (None, labels.data):
            problem = "differs from the names of the channels"
        if problem:
            faults.append(Fault(key, problem))
    return faults


def altered(store: Store) -> list[int]:
    """Numbers of the shards whose record differs from the seal. The list is empty if the store has
    no valid seal."""
    try:
        seal = seal_in(store.objects)
        check_seal(store, seal)
    except StoreError:
        return []
    changed, objects = list[int](), store.objects
    for shard in store.recorded():
        with suppress(OSError):
            data = objects.read(Record.key(shard), METADATA_BYTES)
            if short_digest_of(seal.shards, shard) not in ("", short_digest(data)):
                changed.append(shard)
    return changed


def fixed(store: Store, key: str) -> tuple[bytes | None, str]:
    """Read a metadata object, a coordinate or the card. Returns its bytes and an empty string. If
    it cannot be read, returns None and the reason."""
    labels = store.description.labels
    if labels is not None and key == Labels.KEY:
        return store.objects.try_read(key, len(labels.data))
    name, _, chunk = key.partition("/c")
    limit = store.arrays[name].limit if chunk or key.endswith("/c") else METADATA_BYTES
    return store.objects.try_read(key, limit)


def fixed_keys(store: Store) -> list[str]:
    """Keys of the objects that do not change after the store is laid out: the metadata of all
    arrays, and the coordinates."""
    description = store.description
    chunks = [array.key() for array in description.coordinates.values()]
    labels = () if description.labels is None else (f"{CHANNEL}/{ROOT}", Labels.KEY)
    return sorted([*(f"{name}/{ROOT}" for name in description.arrays), *chunks, *labels])


def expects_key(store: Store, key: str) -> bool:
    """Whether a complete store with this layout contains an object with this key. False for the
    lock and for `log/`."""
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


def lay_out(url: str, layout: Layout) -> Store:
    """Write the metadata and coordinates of a new store, which has no data yet. Raises StoreError
    if the layout exceeds the limits of a store, and OSError if the location cannot be written."""
    objects, laid_out = Objects(url), layout_objects(layout, url)
    objects.write(ROOT, UNFINISHED_ROOT)
    for key, data in laid_out.items():  # the root last
        objects.write(key, data)
    return Store(url)


def layout_objects(layout: Layout, url: str) -> dict[str, bytes]:
    """A dictionary that maps the keys of the metadata and coordinates of a layout to their bytes.
    The last key is `zarr.json`. Raises StoreError if the layout exceeds the limits of a store."""
    objects = layout.objects()
    try:
        parse(objects[ROOT])
    except MetadataError as error:
        raise StoreError(f"{url}: {error}") from None
    return objects


def write_encoded(
    store: Store,
    objects: Mapping[str, bytes],
    record: Record,
    check: Callable[[], None] | None = None,
) -> None:
    """Write the data objects of one shard, then its record.

    Args:
        store: A store that is already laid out.
        objects, record: The results of `encoded`.
        check: Called before and after each write (`pdegen.store.objects.Objects.write`).
    """
    store.objects.write_all(objects, check)
    store.objects.write(Record.key(record.shard), record.encode(), check)


def encoded(
    store: Store, shard: int, values: Mapping[str, np.ndarray], skipped: Mapping[int, str]
) -> tuple[dict[str, bytes], Record]:
    """Encode a shard. Returns two values: a dictionary that maps the keys of the data objects to
    their bytes, and the record of the shard.

    Args:
        store: A store that is already laid out.
        shard: Number of the shard.
        values: Values of each variable, shape (samples of the shard, ...).
        skipped: The reasons why samples were skipped. Keys are numbers of samples. The values of
            skipped samples are NaN.

    Raises:
        ValueError: If a variable is missing, has the wrong shape, or has a value that is not
            finite.
    """
    samples = store.shard_range(shard)
    stored, objects = dict[str, np.ndarray](), dict[str, bytes]()
    moments = dict[str, tuple[list[float | None], list[float | None]]]()
    for name in store.variables:
        if name not in values:
            raise ValueError(f"{name}: the values are missing")
        array = store.arrays[name]
        data = stored[name] = np.asarray(values[name], dtype=array.dtype)
        expected = (len(samples), *array.shape[1:])
        if data.shape != expected:
            raise ValueError(f"{name}: expected shape {expected}, got {data.shape}")
        moments[name] = sample_moments(data)
        # finite means imply finite values
        if not np.isfinite(np.array(moments[name][0], dtype=float)).all():
            bad = not_finite(data, samples, skipped)
            if bad.size:
                raise ValueError(f"{name}: sample {bad[0]} is not finite")
    for name, data in stored.items():
        objects[store.key(name, shard)] = encoded_shard(store.arrays[name], data)
    record = Record(
        shard=shard,
        samples=(samples.start, samples.stop),
        digest={name: sha256(objects[store.key(name, shard)]) for name in store.variables},
        mean={name: mean for name, (mean, _) in moments.items()},
        mean_square={name: square for name, (_, square) in moments.items()},
        skipped=dict(sorted(skipped.items())),
        job=store.metadata.job,
    )
    return objects, record


def seal(
    store: Store,
    measured: Mapping[str, object] | None = None,
    check: Callable[[], None] | None = None,
) -> Store:
    """Seal a store after all its shards have been written. Returns the sealed store.

    Args:
        store: The store.
        measured: Attributes to add to those of the store.
        check: Called before and after each write, as in `write_encoded`.

    Raises:
        StoreError: If a shard has no record, or all training samples were skipped.
    """
    closing, objects = closing_objects(store, measured or {}), store.objects
    last = (Seal.KEY, ROOT)
    objects.write_all({key: closing[key] for key in closing if key not in last}, check)
    objects.write(Seal.KEY, closing[Seal.KEY], check)
    objects.remove_partial()  # of failed writes
    objects.write(ROOT, closing[ROOT], check)
    return Store(store.url)


def closing_objects(store: Store, measured: Mapping[str, object]) -> dict[str, bytes]:
    """A dictionary that maps the keys of the objects that seal a store to their bytes. The objects
    are the card, the Croissant metadata, the seal and `zarr.json`. `zarr.json` contains the added
    attributes, the statistics and the digest of the content. Raises the errors of `seal`."""
    summary = summary_of(store)
    content = dict(store.description.raw)
    content["attributes"] = {
        **store.raw_attributes,
        **measured,
        "statistics": summary.statistics,
        "content": summary.content,
        **({"skipped": summary.skipped} if summary.skipped else {}),
        "sealed": True,
    }
    objects = {key: store.objects.read(key) for key in fixed_keys(store)}
    objects[ROOT] = json.dumps(content, indent=2).encode()
    written = documents(parse(objects[ROOT]), sha256(objects[ROOT]))
    closed = Seal.of({**objects, **written}, summary.records, summary.shards)
    return {**written, Seal.KEY: closed.encode(), ROOT: objects[ROOT]}
