"""A sealed store -> a folder in the layout of the Hugging Face Hub: a Parquet table of each split,
a card and Croissant metadata. `datasets.load_dataset(FOLDER)` reads it, without a script."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.foreign.arrays import ForeignError
from pdegen.foreign.columns import Column
from pdegen.foreign.hugging_card import CARD, CROISSANT, Told, card, metadata
from pdegen.making.generate import Progress
from pdegen.store.format import Array
from pdegen.store.store import Store

FILE_BYTES = 2**28  # of a Parquet file, before compression
_GROUP_BYTES = 2**24  # of a row group, which is what is in memory
_MOST_DIMS = 5  # of an array in a row: Array5D is the largest


def check_huggingface(store: Store) -> None:
    """Raise ForeignError where pyarrow is not installed, or an array has no type there."""
    _pyarrow()
    for array in store.arrays.values():
        own = array.shape[1:] if array.name in store.variables else array.shape
        if len(own) > _MOST_DIMS:
            raise ForeignError(
                f"{store.url}: {array.name} has {len(own)} dimensions in each sample, Hugging "
                f"Face's arrays have at most {_MOST_DIMS}: use --format hdf5"
            )


def huggingface_folder(
    store: Store, folder: Path, told: Told, progress: Callable[[Progress], None]
) -> None:
    """Write a store into a new folder: data/SPLIT-*.parquet with a row for each sample,
    data/coordinates.parquet with one row, README.md, croissant.json.

    Samples that could not be computed, and those in no split, are left out, and so is a split that
    has no other: `datasets` refuses a folder that names one without a file. One row group at a time
    is in memory, whatever the size of the store.

    Args:
        store: Sealed.
        folder: Where to; it is made.
        told: What the card says of the recipe.
        progress: Called after each row group.
    """
    (folder / "data").mkdir(parents=True)
    columns = [_column("sample", (), np.dtype("int64")), *map(_by_sample, _variables(store))]
    samples = {
        name: numbers
        for name, (start, stop) in store.said.splits.items()
        if len(numbers := np.setdiff1d(np.arange(start, stop), store.skipped))
    }
    row = sum(column.bytes for column in columns)
    size, group = max(1, FILE_BYTES // row), max(1, _GROUP_BYTES // row)
    total, done, start = sum(map(len, samples.values())), 0, time.monotonic()
    files: dict[str, list[Path]] = {}
    for split, numbers in samples.items():
        parts = [numbers[k : k + size] for k in range(0, len(numbers), size)]
        for number, part in enumerate(parts):
            path = folder / f"data/{split}-{number:05}-of-{len(parts):05}.parquet"
            files.setdefault(split, []).append(path)
            groups = (part[k : k + group] for k in range(0, len(part), group))
            for rows in _written(path, columns, (_values(store, one) for one in groups)):
                done += rows
                progress(Progress(done, total, time.monotonic() - start))
    coordinates = [
        store.arrays[name] for name in sorted(store.description.coordinates) if name != "sample"
    ]
    whole = [_column(array.name, array.shape, array.dtype) for array in coordinates]
    if whole:
        files["coordinates"] = [folder / "data/coordinates.parquet"]
        values = [np.asarray(store.array(array.name)[...])[None] for array in coordinates]
        list(_written(files["coordinates"][0], whole, iter([values])))
    counts = {split: len(numbers) for split, numbers in samples.items()}
    (folder / CARD).write_text(card(store.description, columns, whole, counts, told), "utf-8")
    said = metadata(store.description, columns, whole, folder, files)
    (folder / CROISSANT).write_text(json.dumps(said, indent=2, ensure_ascii=False), "utf-8")


def _variables(store: Store) -> list[Array]:
    return [store.arrays[name] for name in store.variables]


def _by_sample(array: Array) -> Column:
    return _column(array.name, array.shape[1:], array.dtype)


def _column(name: str, shape: Sequence[int], dtype: np.dtype) -> Column:
    return Column(name, tuple(shape), np.dtype(dtype))


def _values(store: Store, samples: np.ndarray) -> list[np.ndarray]:
    """The columns of these samples, which rise."""
    wanted = range(int(samples[0]), int(samples[-1]) + 1)
    rows = samples - wanted.start
    return [samples, *(store.values(name, wanted)[rows] for name in store.variables)]


def _written(
    path: Path, columns: Sequence[Column], groups: Iterator[list[np.ndarray]]
) -> Iterator[int]:
    """Write a Parquet file; gives the number of rows of each group, once it is written."""
    pa, parquet = _pyarrow()
    features = {column.name: column.feature for column in columns}
    said = {"huggingface": json.dumps({"info": {"features": features}})}
    writer = None
    try:
        for values in groups:
            arrays = [c.arrow(pa, v) for c, v in zip(columns, values, strict=True)]
            table = pa.table(arrays, names=[column.name for column in columns])
            table = table.replace_schema_metadata(said)
            if writer is None:
                writer = parquet.ParquetWriter(
                    path, table.schema, compression="zstd", use_dictionary=False
                )
            writer.write_table(table, row_group_size=len(table))
            yield len(table)
    finally:
        if writer is not None:
            writer.close()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ForeignError(
            "--format huggingface needs pyarrow: pip install 'pdegen-operators[huggingface]'"
        ) from None
