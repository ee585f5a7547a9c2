"""Stores, written: laid out first, filled shard by shard by one writer each, and sealed last.

`datasets/README.md` describes the format. A shard counts as written once its record, written after
its data, carries the digests of the data and names the job that made them. So an interrupted store
is continued by writing the shards that have no valid record.
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
    """Create an empty store: metadata and coordinates, no data yet. Raises StoreError if the layout
    is beyond what a store can have, and OSError if the place cannot be written."""
    objects, described = Objects(url), described_by(layout, url)
    objects.write(ROOT, UNFINISHED_ROOT)
    for key, data in described.items():  # the root last
        objects.write(key, data)
    return Store(url)


def described_by(layout: Layout, url: str) -> dict[str, bytes]:
    """The metadata and coordinates of a layout by their keys, `zarr.json` last. Raises StoreError
    if the layout is beyond what a store can have."""
    described = layout.objects()
    try:
        parse(described[ROOT])
    except MetadataError as error:
        raise StoreError(f"{url}: {error}") from None
    return described


def write_shard(
    store: Store,
    shard: int,
    values: Mapping[str, np.ndarray],
    skipped: Mapping[int, str] | None = None,
    check: Callable[[], None] | None = None,
) -> Record:
    """Write the data of one shard of a store that is laid out, then its record. Skipped samples
    have a reason, and NaN. `check` is called before and after each object, such as to raise
    LockedError (`pdegen.store.objects.Objects.write`). Raises ValueError on missing variables,
    other shapes, or values that are not finite."""
    made, record = encoded(store, shard, values, skipped or {})
    objects = store.objects
    for key, data in made.items():
        objects.write(key, data, check)
    objects.write(Record.key(shard), record.encode(), check)
    return record


def encoded(
    store: Store, shard: int, values: Mapping[str, np.ndarray], skipped: Mapping[int, str]
) -> tuple[dict[str, bytes], Record]:
    """The objects of a shard's data by keys, and its record; as `write_shard` writes them."""
    samples = store.shard_range(shard)
    stored, objects = dict[str, np.ndarray](), dict[str, bytes]()
    moments = dict[str, tuple[list[float | None], list[float | None]]]()
    for name in store.variables:
        if name not in values:
            raise ValueError(f"{name}: no values are given")
        array = store.arrays[name]
        data = stored[name] = np.asarray(values[name], dtype=array.dtype)
        expected = (len(samples), *array.shape[1:])
        if data.shape != expected:
            raise ValueError(f"{name}: expected shape {expected}, got {data.shape}")
        moments[name] = sample_moments(data)
        # where all means are finite, all values are
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
    """Close a store whose shards are written, with further attributes; as it is then. `check` is
    that of `write_shard`. Raises StoreError if a shard has no record, or no training sample is
    left."""
    made, objects = closing(store, measured or {}), store.objects
    for key, data in made.items():
        if key == ROOT:  # the last one, before which failed writes of the others are cleared away
            objects.remove_partial()
        objects.write(key, data, check)
    return Store(store.url)


def closing(store: Store, measured: Mapping[str, object]) -> dict[str, bytes]:
    """What closes a store whose shards are written: card, description, seal, and `zarr.json` with
    further attributes, statistics and content digest, by keys. Raises StoreError if a shard has no
    record, or no training sample is left."""
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
