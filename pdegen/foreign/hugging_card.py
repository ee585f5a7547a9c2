"""What a folder in the layout of the Hugging Face Hub says of itself: the card with the header that
`datasets` and the Hub read, and Croissant metadata of its Parquet files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdegen.foreign.columns import Column
from pdegen.markdown import block, code, escaped
from pdegen.store import card as cards
from pdegen.store.card import CARD, CROISSANT
from pdegen.store.croissant import CONTEXT, LICENCE, TYPES, citation, description
from pdegen.store.format import Attributes, Description

__all__ = ["CARD", "CROISSANT", "Told", "card", "metadata", "yaml"]

DEFAULT, COORDINATES = "default", "coordinates"  # the two tables
# letters that YAML does not print, and letters that reorder or hide others
_UNPRINTED = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]")
_SIZES = {10**k: text for k, text in zip(range(3, 8), (
    "n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M"), strict=True)}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """What is said of a recipe beside what the store says.

    Args:
        recipe: As TOML; empty where there is none.
        meanings: Of the keys of its problem.
    """

    recipe: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict[str, str])


def card(
    store: Description, columns: Sequence[Column], coordinates: Sequence[Column],
    counts: Mapping[str, int], told: Told,
) -> str:  # fmt: skip
    """README.md: the header, and the card of the store with how to load the folder.

    Args:
        store: What the store says of itself.
        columns, coordinates: Of the tables of samples and of what all samples share.
        counts: Rows of each split.
        told: Of the recipe.
    """
    header = yaml(_header(store.said, columns, coordinates, counts))
    body = cards.card(store, [*_use(store), *_told(told)])
    return "\n".join([*header, "", body])


def yaml(header: Mapping[str, Any]) -> list[str]:
    """The lines of a header of a card. JSON of one line is YAML, where letters that YAML does not
    print or that end its lines are escaped.

    >>> yaml({"name": "a: b\\x7f"})
    ['---', 'name: "a: b\\\\u007f"', '---']
    """
    texts = {key: json.dumps(value, ensure_ascii=False) for key, value in header.items()}
    lines = [f"{key}: {_UNPRINTED.sub(_escape, text)}" for key, text in texts.items()]
    return ["---", *lines, "---"]


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _header(
    said: Attributes, columns: Sequence[Column], coordinates: Sequence[Column],
    counts: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    total = sum(counts.values())
    row = sum(column.bytes for column in columns)
    size = next((text for most, text in _SIZES.items() if total < most), "n>10M")
    tables = [(DEFAULT, columns, counts)]
    if coordinates:
        tables.append((COORDINATES, coordinates, {"shared": 1}))
    return {
        "license": "other" if said.imported else "cc-by-4.0",
        "pretty_name": said.title,
        "task_categories": ["other"],
        "tags": ["physics", "pde", "operator-learning", "croissant"],
        "size_categories": [size],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == DEFAULT else {}),
                "data_files": [
                    {
                        "split": split,
                        "path": f"data/{f'{split}-*' if name == DEFAULT else name}.parquet",
                    }
                    for split in rows
                ],
            }
            for name, _, rows in tables
        ],
        "dataset_info": [
            {
                "config_name": name,
                "features": [column.listed for column in listed],
                "splits": [
                    {"name": split, "num_bytes": count * row, "num_examples": count}
                    for split, count in rows.items()
                ],
            }
            for name, listed, rows in tables
        ],
    }


def _use(store: Description) -> Iterator[str]:
    name, first = store.said.variables[0], next(iter(store.said.splits))
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
    yield from ("```", "", "`croissant.json` has the SHA-256 of each Parquet file.", "")


def _told(told: Told) -> Iterator[str]:
    if told.meanings:
        yield from ("## Parameters", "", "| key | meaning |", "|---|---|")
        for key, meaning in told.meanings.items():
            yield f"| {code(key)} | {escaped(meaning)} |"
        yield ""
    if told.recipe:
        yield from ("## Recipe", "", "`pdegen generate recipe.toml` makes the data again:", "")
        yield from block("toml", told.recipe)


def metadata(
    store: Description, columns: Sequence[Column], coordinates: Sequence[Column], folder: Path,
    files: Mapping[str, Sequence[Path]],
) -> dict[str, Any]:  # fmt: skip
    """Croissant metadata: each Parquet file with its digest, each split as a record set.

    Args:
        store: What the store says of itself.
        columns, coordinates: Of the tables.
        folder: Of the files.
        files: Of each split, and of the coordinates.

    References: Croissant Format Specification 1.1, https://docs.mlcommons.org/croissant/.
    """
    said = store.said
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": said.recipe.name,
        "description": description(said),
        **({"license": LICENCE, "citeAs": citation(said)} if not said.imported else {}),
        "version": f"1.0.0+{said.content[:12]}",
        "distribution": [
            *(_file(path, folder) for paths in files.values() for path in paths),
            *(_files(split) for split, paths in files.items() if len(paths) > 1),
        ],
        "recordSet": [
            _records(store, split, paths, coordinates if split == COORDINATES else columns, folder)
            for split, paths in files.items()
        ],
    }


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _file(path: Path, folder: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    name = _name(path, folder)
    return {
        "@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B", "encodingFormat": "application/x-parquet",
        "sha256": digest,
    }  # fmt: skip


def _files(split: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet", "@id": f"files-of-{split}", "name": f"files-of-{split}",
        "encodingFormat": "application/x-parquet", "includes": f"data/{split}-*.parquet",
    }  # fmt: skip


def _records(
    store: Description, split: str, paths: Sequence[Path], columns: Sequence[Column], folder: Path
) -> dict[str, Any]:
    one = {"fileObject": {"@id": _name(paths[0], folder)}}
    source = one if len(paths) == 1 else {"fileSet": {"@id": f"files-of-{split}"}}
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{column.name}",
                "name": f"{split}/{column.name}",
                "description": _meaning(store, column.name),
                "dataType": TYPES[column.dtype.name],
                **(
                    {"isArray": True, "arrayShape": ",".join(map(str, column.shape))}
                    if column.shape
                    else {}
                ),
                "source": {**source, "extract": {"column": column.name}},
            }
            for column in columns
        ],
    }


def _meaning(store: Description, name: str) -> str:
    if name not in store.arrays:
        return "number of the sample in the store"
    own = store.arrays[name].said
    return f"{own.long_name or name}, unit {own.units}" if own.units else own.long_name or name
