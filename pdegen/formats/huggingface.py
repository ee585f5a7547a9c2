"""A sealed store -> a folder in the layout of the Hugging Face Hub: a Parquet table of each split,
and a card. `datasets.load_dataset(FOLDER)` reads it, without a script."""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.formats.arrays import FormatError
from pdegen.formats.hugging_card import CARD, COORDINATES, RecipeText, card
from pdegen.generation.generate import Progress
from pdegen.store.arrays import Json
from pdegen.store.reading import Store

FILE_BYTES = 2**28  # of a Parquet file, before compression
_GROUP_BYTES = 2**24  # of a row group, which is what is in memory
_MOST_DIMS = 5  # of an array in a row: Array5D is the largest


@dataclass(frozen=True)
class Column:
    """A column of a table: an array in each row."""

    name: str  # of the array in the store
    shape: tuple[int, ...]  # in a row; empty for a number
    dtype: np.dtype  # of the numbers

    @property
    def bytes(self) -> int:
        """Of a row."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def feature(self) -> Json:
        """Its type, in the words of `datasets`.

        >>> Column("t", (), np.dtype("float32")).feature
        {'dtype': 'float32', '_type': 'Value'}
        >>> Column("u", (4, 4), np.dtype("float32")).feature
        {'shape': [4, 4], 'dtype': 'float32', '_type': 'Array2D'}
        """
        if not self.shape:
            return {"dtype": self.dtype.name, "_type": "Value"}
        if len(self.shape) == 1:
            value = {"dtype": self.dtype.name, "_type": "Value"}
            return {"feature": value, "length": self.shape[0], "_type": "Sequence"}
        kind = f"Array{len(self.shape)}D"
        return {"shape": list(self.shape), "dtype": self.dtype.name, "_type": kind}

    def arrow(self, pa: Any, values: np.ndarray) -> Any:
        """Values, shape (rows, *shape), as an Arrow array of nested lists."""
        found = pa.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(self.shape[1:]):
            offsets = np.arange(0, len(found) + 1, size, dtype=np.int32)
            found = pa.ListArray.from_arrays(pa.array(offsets), found)
        if len(self.shape) == 1:
            return pa.FixedSizeListArray.from_arrays(found, self.shape[0])
        if self.shape:
            offsets = np.arange(0, len(found) + 1, self.shape[0], dtype=np.int32)
            found = pa.ListArray.from_arrays(pa.array(offsets), found)
        return found


def check_huggingface(store: Store) -> None:
    """Raise FormatError where pyarrow is not installed, or an array has no type there."""
    _pyarrow()
    for array in store.arrays.values():
        own = array.shape[1:] if array.name in store.variables else array.shape
        if len(own) > _MOST_DIMS:
            raise FormatError(
                f"{store.url}: {array.name} has {len(own)} dimensions in each sample, Hugging "
                f"Face's arrays have at most {_MOST_DIMS}: use --format hdf5"
            )


def huggingface_folder(
    store: Store, folder: Path, recipe_text: RecipeText, progress: Callable[[Progress], None]
) -> None:
    """Write a store into a new folder: data/SPLIT-*.parquet with a row for each sample,
    data/coordinates.parquet with one row, README.md.

    Samples that could not be computed, and those in no split, are left out, and so is a split that
    has no other: `datasets` refuses a folder that names one without a file. One row group at a time
    is in memory, whatever the size of the store.
    """
    (folder / "data").mkdir(parents=True)
    variables = [store.arrays[name] for name in store.variables]
    columns = [Column("sample", (), np.dtype("int64"))]
    columns += [Column(one.name, tuple(one.shape[1:]), np.dtype(one.dtype)) for one in variables]
    samples = {
        name: numbers
        for name, (start, stop) in store.metadata.splits.items()
        if len(numbers := np.setdiff1d(np.arange(start, stop), store.skipped))
    }
    row = sum(column.bytes for column in columns)
    size, group = max(1, FILE_BYTES // row), max(1, _GROUP_BYTES // row)
    total, done, start = sum(map(len, samples.values())), 0, time.monotonic()
    for split, numbers in samples.items():
        parts = [numbers[k : k + size] for k in range(0, len(numbers), size)]
        for number, part in enumerate(parts):
            path = folder / f"data/{split}-{number:05}-of-{len(parts):05}.parquet"
            groups = (part[k : k + group] for k in range(0, len(part), group))
            for rows in _written(path, columns, (_values(store, one) for one in groups)):
                done += rows
                progress(Progress(done, total, time.monotonic() - start))
    coordinates = [
        store.arrays[name] for name in sorted(store.description.coordinates) if name != "sample"
    ]
    whole = [Column(one.name, tuple(one.shape), np.dtype(one.dtype)) for one in coordinates]
    if whole:
        values = [store.values(one.name)[None] for one in coordinates]
        list(_written(folder / f"data/{COORDINATES}.parquet", whole, iter([values])))
    counts = {split: len(numbers) for split, numbers in samples.items()}
    (folder / CARD).write_text(card(store.description, bool(whole), counts, recipe_text), "utf-8")


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
        raise FormatError(
            "--format huggingface needs pyarrow: pip install 'pdegen-operators[huggingface]'"
        ) from None
