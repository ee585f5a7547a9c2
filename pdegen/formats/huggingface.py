"""Export of a sealed store to a folder for the Hugging Face Hub. The folder has Parquet tables for
each split, a card, and the metadata of the store. `datasets.load_dataset(FOLDER)` reads the folder
without a script, and `pdegen import FOLDER` makes a store of it."""

from __future__ import annotations

import importlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.formats.arrays import Array, Contents, Digest, FormatError, Location, Request
from pdegen.formats.export_metadata import (
    FILE,
    PARQUET,
    ExportMetadata,
    description,
    encoded,
    file_digest,
)
from pdegen.generation.generate import Progress
from pdegen.store import card as cards
from pdegen.store.card import CARD, block, code, escaped
from pdegen.store.format import Description, Json, StoreMetadata
from pdegen.store.reading import Store

# The card (README.md) of a folder that is exported for the Hugging Face Hub. It begins with a
# header that the Hub and the package `datasets` read.


__all__ = ["CARD", "RecipeText", "card", "yaml"]

COORDINATES = "coordinates"  # table of the coordinates, which all samples share
# characters that YAML forbids, and characters that reorder or hide others
_UNPRINTED = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]")
_SIZES = {10**k: text for k, text in zip(range(3, 8), (
    "n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M"), strict=True)}  # fmt: skip


@dataclass(frozen=True)
class RecipeText:
    """Text about a recipe, which the card shows in addition to the metadata of the store."""

    recipe: str = ""  # the recipe as TOML; empty if there is none
    # meaning of each key of its problem
    meanings: Mapping[str, str] = field(default_factory=dict[str, str])


def card(
    store: Description, shared: bool, counts: Mapping[str, int], recipe_text: RecipeText
) -> str:
    """The text of README.md: the header, the card of the store, and instructions for loading the
    folder.

    Args:
        store: Description of the store.
        shared: Whether there is a table of coordinates.
        counts: Number of samples of each split.
        recipe_text: Text about the recipe.
    """
    header = yaml(_header(store.metadata, shared, counts))
    body = cards.card(store, [*_use(store), *_recipe_section(recipe_text)])
    return "\n".join([*header, "", body])


def yaml(header: Mapping[str, Any]) -> list[str]:
    """The lines of the header of a card, in YAML. Each value is JSON on one line. JSON is valid
    YAML once the characters that YAML forbids, or that break lines, are escaped.

    >>> yaml({"name": "a: b\\x7f"})
    ['---', 'name: "a: b\\\\u007f"', '---']
    """
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in header.items()}
    escaped = {
        key: _UNPRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        for key, text in texts.items()
    }
    return ["---", *(f"{key}: {text}" for key, text in escaped.items()), "---"]


def _header(metadata: StoreMetadata, shared: bool, counts: Mapping[str, int]) -> Json:
    total = sum(counts.values())
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in counts]
    configs = [{"config_name": "default", "default": True, "data_files": files}]
    if shared:
        table = [{"split": "shared", "path": f"data/{COORDINATES}.parquet"}]
        configs.append({"config_name": COORDINATES, "data_files": table})
    return {
        "license": "other" if metadata.imported else "cc-by-4.0",
        "pretty_name": metadata.title,
        "task_categories": ["other"],
        "tags": ["physics", "pde", "operator-learning"],
        "size_categories": [next((text for most, text in _SIZES.items() if total < most), "n>10M")],
        "configs": configs,
    }


def _use(store: Description) -> Iterator[str]:
    name, first = store.metadata.variables[0], next(iter(store.metadata.splits))
    dims = json.dumps(list(store.arrays[name].dims))
    yield from ("## Use", "")
    yield "A row of the table is a sample, `sample` its number in the store. What all samples share"
    yield f"is the row of the table `{COORDINATES}`. Samples in no split are left out."
    yield from ("", "With `datasets`, and as batches of PyTorch:", "", "```python")
    yield from ("from datasets import load_dataset", "from torch.utils.data import DataLoader", "")
    yield 'FOLDER = "PATH OF THIS FOLDER, OR ITS NAME ON THE HUB"'
    yield 'data = load_dataset(FOLDER).with_format("torch")'
    yield f'for batch in DataLoader(data["{first}"], batch_size=8):'
    yield f'    print(batch["{name}"].shape)'
    yield from ("```", "", "With xarray:", "", "```python", "import xarray as xr", "")
    yield f'rows = load_dataset(FOLDER, split="{first}").with_format("numpy")[:]'
    yield f'{name} = xr.DataArray(rows["{name}"], dims={dims}, coords={{"sample": rows["sample"]}})'
    yield from ("```", "")


def _recipe_section(recipe_text: RecipeText) -> Iterator[str]:
    if recipe_text.meanings:
        yield from ("## Parameters", "", "| key | meaning |", "|---|---|")
        for key, meaning in recipe_text.meanings.items():
            yield f"| {code(key)} | {escaped(meaning)} |"
        yield ""
    if recipe_text.recipe:
        yield from ("## Recipe", "", "`pdegen generate recipe.toml` makes the data again:", "")
        yield from block("toml", recipe_text.recipe)


FILE_BYTES = 2**28  # size of a Parquet file, before compression
_GROUP_BYTES = 2**24  # size of a row group, which is written at once
_MOST_DIMS = 5  # axes of an array in a row: `datasets` has Array2D to Array5D


@dataclass(frozen=True)
class Column:
    """A column of a table. It has one array in each row."""

    name: str  # name of the array in the store
    shape: tuple[int, ...]  # shape in a row; () for a number
    dtype: np.dtype  # type of the numbers

    @property
    def bytes(self) -> int:
        """Size of a row in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def feature(self) -> Json:
        """The type of the column, as a feature of `datasets`.

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
        """Convert values, shape (rows, *shape), to an Arrow array of nested lists."""
        nested = pa.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(self.shape[1:]):
            offsets = np.arange(0, len(nested) + 1, size, dtype=np.int32)
            nested = pa.ListArray.from_arrays(pa.array(offsets), nested)
        if len(self.shape) == 1:
            return pa.FixedSizeListArray.from_arrays(nested, self.shape[0])
        if self.shape:
            offsets = np.arange(0, len(nested) + 1, self.shape[0], dtype=np.int32)
            nested = pa.ListArray.from_arrays(pa.array(offsets), nested)
        return nested


def check_huggingface(store: Store) -> None:
    """Raise FormatError if pyarrow is not installed, or if an array has too many axes for
    `datasets`."""
    _pyarrow()
    for array in store.arrays.values():
        shape = array.shape[1:] if array.name in store.variables else array.shape
        if len(shape) > _MOST_DIMS:
            raise FormatError(
                f"{store.url}: {array.name} has {len(shape)} dimensions in each sample, Hugging "
                f"Face's arrays have at most {_MOST_DIMS}: use --format hdf5"
            )


def huggingface_folder(
    store: Store, folder: Path, recipe_text: RecipeText, progress: Callable[[Progress], None]
) -> None:
    """Write a store to a new folder. The files data/SPLIT-*.parquet have one row for each sample,
    and data/coordinates.parquet has a single row. README.md is the card, and pdegen.json has the
    metadata with the SHA-256 of each file.

    Samples that were skipped or are in no split are left out. A split whose samples were all
    skipped is left out too, because `datasets` refuses a split without a file. Only one row group
    is in memory at a time.
    """
    (folder / "data").mkdir(parents=True)
    variables = [store.arrays[name] for name in store.variables]
    columns = [Column("sample", (), np.dtype("int64"))]
    columns += [Column(v.name, tuple(v.shape[1:]), np.dtype(v.dtype)) for v in variables]
    samples = {
        name: numbers
        for name, (start, stop) in sorted(store.metadata.splits.items(), key=lambda split: split[1])
        if len(numbers := np.setdiff1d(np.arange(start, stop), store.skipped))
    }
    row = sum(column.bytes for column in columns)
    size, group = max(1, FILE_BYTES // row), max(1, _GROUP_BYTES // row)
    total, done, start = sum(map(len, samples.values())), 0, time.monotonic()
    digests, files = {name: Digest() for name in store.arrays}, list[str]()
    for split, numbers in samples.items():
        parts = [numbers[k : k + size] for k in range(0, len(numbers), size)]
        for number, part in enumerate(parts):
            files.append(f"data/{split}-{number:05}-of-{len(parts):05}{PARQUET}")
            groups = (part[k : k + group] for k in range(0, len(part), group))
            values = (_values(store, numbers, digests) for numbers in groups)
            for rows in _written(folder / files[-1], columns, values):
                done += rows
                progress(Progress(done, total, time.monotonic() - start))
    digests["sample"].add(np.arange(total))
    coordinates = [
        store.arrays[name] for name in sorted(store.description.coordinates) if name != "sample"
    ]
    shared = [Column(c.name, tuple(c.shape), np.dtype(c.dtype)) for c in coordinates]
    if shared:
        of_all = [store.values(c.name) for c in coordinates]
        for column, values in zip(shared, of_all, strict=True):
            digests[column.name].add(values)
        files.append(f"data/{COORDINATES}{PARQUET}")
        list(_written(folder / files[-1], shared, iter([[values[None] for values in of_all]])))
    counts = {split: len(samples[split]) for split in store.metadata.splits if split in samples}
    (folder / CARD).write_text(card(store.description, bool(shared), counts, recipe_text), "utf-8")
    metadata = _metadata(store, folder, [*files, CARD], samples, digests)
    (folder / FILE).write_bytes(encoded(metadata).tobytes())


def _metadata(
    store: Store,
    folder: Path,
    files: Sequence[str],
    samples: Mapping[str, np.ndarray],
    digests: Mapping[str, Digest],
) -> ExportMetadata:
    """The metadata of the exported folder, which has `files`."""
    metadata = description(store, {name: digest.hex for name, digest in digests.items()})
    ends = list(accumulate(map(len, samples.values()), initial=0))
    for name in ("sample", *store.variables):
        metadata.arrays[name].shape[0] = ends[-1]
    ranges = dict(zip(samples, map(list, pairwise(ends)), strict=True))
    splits = {name: ranges[name] for name in store.metadata.splits if name in ranges}
    changed = {"samples": ends[-1], "splits": splits, "skipped": []}
    return ExportMetadata(
        format=metadata.format,
        arrays=metadata.arrays,
        attributes=metadata.attributes | changed,
        files={name: file_digest(folder / name) for name in files},
    )


def _values(store: Store, samples: np.ndarray, digests: Mapping[str, Digest]) -> list[np.ndarray]:
    """The values of all columns for some samples."""
    span = range(int(samples[0]), int(samples[-1]) + 1)
    rows = samples - span.start
    values = {name: store.values(name, span)[rows] for name in store.variables}
    for name, part in values.items():
        digests[name].add(part)
    return [samples, *values.values()]


def _written(
    path: Path, columns: Sequence[Column], groups: Iterator[list[np.ndarray]]
) -> Iterator[int]:
    """Write a Parquet file. After each row group, yields the number of rows that were written."""
    pa, parquet = _pyarrow()
    features = {column.name: column.feature for column in columns}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    writer = None
    try:
        for values in groups:
            arrays = [c.arrow(pa, v) for c, v in zip(columns, values, strict=True)]
            table = pa.table(arrays, names=[column.name for column in columns])
            table = table.replace_schema_metadata(metadata)
            if writer is None:
                writer = parquet.ParquetWriter(
                    path,
                    table.schema,
                    compression="zstd",
                    use_dictionary=False,
                    write_page_checksum=True,
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


# Reading of the Parquet files, in the child process of `pdegen.formats.sandbox`. A row is a sample.
# A column has one array of the same shape in each row, as nested lists. The checksums of the pages
# are verified.


def read(request: Request) -> Contents:
    """Read the columns of a file. An array has the axis of the rows and those of its lists. Raises
    Exception if the file is damaged, or if it is not of an exported folder."""
    path, (_, parquet) = request.file, _pyarrow()
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        arrays: dict[str, Array] = {}
        for field in schema:
            feature, column = features[field.name], field.type
            shape = feature.get("shape", [feature["length"]] if "length" in feature else [])
            while hasattr(column, "value_type"):  # the axes of an array are nested lists
                column = column.value_type
            arrays[field.name] = Array(
                path,
                field.name,
                (file.metadata.num_rows, *(int(n) for n in shape)),
                np.dtype(column.to_pandas_dtype()),
            )
        for name in request.wanted(arrays.values()):
            arrays[name] = _unpacked(request, file, arrays[name])
    return Contents(path, "Parquet", arrays)


def _unpacked(request: Request, file: Any, array: Array) -> Array:
    """Unpack a column to a separate file, one row group at a time."""
    target, written = request.target(), 0
    with target.open("wb") as out:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[array.name], use_threads=False)
            for chunk in table.column(array.name).chunks:
                written += out.write(_numbers(array, chunk).tobytes())
    if written != array.bytes:
        raise FormatError(f"{array.where} has {array.bytes:,} bytes, its pages {written:,}")
    return replace(array, location=Location(target, 0, "C", array.dtype))


def _numbers(array: Array, values: Any) -> np.ndarray:
    """The numbers of a part of a column, in C order."""
    rows, *shape = len(values), *array.shape[1:]
    length: Any = importlib.import_module("pyarrow.compute").list_value_length
    for size in shape:
        lengths = length(values).to_numpy(zero_copy_only=False)
        if (lengths != size).any():  # the length of a missing list is NaN
            raise FormatError(f"{array.where} has rows of different shapes")
        values = values.flatten()
    if values.null_count or len(values) != rows * math.prod(shape):
        raise FormatError(f"{array.where} has rows without values")
    return values.to_numpy(zero_copy_only=False)
