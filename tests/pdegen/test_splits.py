"""Splits of a store are disjoint ranges of its samples, for whoever writes and reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.data import DataError, open_pairs
from pdegen.generation.generate import layout
from pdegen.generation.verify import verify
from pdegen.schema import SchemaError
from pdegen.store.format import sha256, short_digest
from pdegen.store.reading import Record, Seal, Store, StoreError, seal_in
from tests.stores import with_attributes

IMPOSSIBLE = {
    "the same range twice": {"train": [0, 8], "test": [0, 8]},
    "a common sample": {"train": [0, 8], "test": [7, 10]},
    "one within another": {"train": [0, 10], "validation": [3, 4]},
    "a pair that is not neighbouring": {"test": [2, 3], "train": [0, 8], "validation": [8, 9]},
    "beyond the samples": {"train": [0, 7], "test": [7, 99]},
    "empty": {"train": [0, 7], "test": [7, 7]},
    "backwards": {"train": [7, 0]},
    "negative": {"train": [-3, 5]},
    "no training": {"test": [0, 5]},
    "none": {},
}
EVERY = pytest.mark.parametrize("splits", IMPOSSIBLE.values(), ids=IMPOSSIBLE)


def forged(store, splits):
    """The store with other splits and a seal that says so."""
    keys = seal_in(store.objects).objects
    records = [store.objects.read(Record.key(shard)) for shard in range(store.shards)]
    with_attributes(store, splits=splits)
    objects = {key: store.objects.read(key) for key in keys}
    seal = Seal.of(objects, sha256(b"".join(records)), "".join(map(short_digest, records)))
    store.objects.write(Seal.KEY, seal.encode())
    return store.url


@EVERY
def test_impossible_splits_are_refused_by_every_reader(store, splits):
    url = forged(store, splits)
    for read, error in (
        (lambda: Store(url).metadata, StoreError),
        (lambda: verify(url), StoreError),
        (lambda: open_pairs(url, "train"), DataError),
    ):
        with pytest.raises(error, match="split") as refused:
            read()
        assert "\n" not in str(refused.value)


@EVERY
def test_impossible_splits_are_never_laid_out(small, splits):
    plan = layout(small)
    with pytest.raises(SchemaError, match="split"):
        type(plan)(**{**vars(plan), "attributes": {**plan.attributes, "splits": splits}})


def test_splits_need_not_cover_the_samples(store):
    assert with_attributes(store, splits={"test": [9, 10], "train": [1, 3]}).metadata.splits == {
        "test": (9, 10),
        "train": (1, 3),
    }


def test_a_split_that_is_named_twice_is_refused(store):
    path = Path(store.url, "zarr.json")
    text = path.read_text("utf-8")
    before, once, after = text.rpartition('"splits": {')  # the first one is of the recipe
    path.write_text(f'{before}{once} "train": [0, 1],{after}', "utf-8")
    with pytest.raises(StoreError, match="the key 'train' is repeated"):
        Store(store.url).sealed  # noqa: B018
