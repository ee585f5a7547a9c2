"""Writing of stores. A store is first laid out, then filled shard by shard, and finally sealed.

`datasets/README.md` describes the format. The record of a shard is written after the data of the
shard. It contains the digests of the data and the identity of the job. To resume an interrupted
store, the shards without a valid record are written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

from pdegen.store.arrays import MetadataError
from pdegen.store.card import documents
from pdegen.store.checking import fixed_keys, summary_of
from pdegen.store.chunks import encoded_shard
from pdegen.store.description import parse
from pdegen.store.digests import sha256
from pdegen.store.format import ROOT, UNFINISHED_ROOT
from pdegen.store.layout import Layout
from pdegen.store.objects import Objects
from pdegen.store.reading import Store, StoreError, not_finite
from pdegen.store.record import Record, Seal, sample_moments


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


def write_shard(
    store: Store,
    shard: int,
    values: Mapping[str, np.ndarray],
    skipped: Mapping[int, str] | None = None,
    check: Callable[[], None] | None = None,
) -> Record:
    """Write the data of one shard, then its record.

    Args:
        store: A store that is already laid out.
        shard: Number of the shard.
        values: Values of each variable, shape (samples of the shard, ...).
        skipped: The reasons why samples were skipped. Keys are numbers of samples. The values of
            skipped samples are NaN.
        check: Called before and after each write (`pdegen.store.objects.Objects.write`).

    Raises:
        ValueError: If a variable is missing, has the wrong shape, or has a value that is not
            finite.
    """
    objects, record = encoded(store, shard, values, skipped or {})
    write_encoded(store, objects, record, check)
    return record


def write_encoded(
    store: Store,
    objects: Mapping[str, bytes],
    record: Record,
    check: Callable[[], None] | None = None,
) -> None:
    """Write the data objects of one shard, then its record. The arguments are the results of
    `encoded` and `check` of `write_shard`."""
    store.objects.write_all(objects, check)
    store.objects.write(Record.key(record.shard), record.encode(), check)


def encoded(
    store: Store, shard: int, values: Mapping[str, np.ndarray], skipped: Mapping[int, str]
) -> tuple[dict[str, bytes], Record]:
    """Encode a shard. Returns two values: a dictionary that maps the keys of the data objects to
    their bytes, and the record of the shard. The arguments are those of `write_shard`."""
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
        check: Called before and after each write, as in `write_shard`.

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
