"""The card (README.md) of a folder that is exported for the Hugging Face Hub. It begins with a
header that the Hub and the package `datasets` read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdegen.markdown import block, code, escaped
from pdegen.store import card as cards
from pdegen.store.card import CARD
from pdegen.store.format import Description, Json, StoreMetadata

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
    lines = [f"{key}: {_UNPRINTED.sub(_escape, text)}" for key, text in texts.items()]
    return ["---", *lines, "---"]


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


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
