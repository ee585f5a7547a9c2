"""What a sealed store says of itself to people: a dataset card in Markdown.

It follows from the metadata of the store alone, so two makings of a dataset have the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pdegen.store.croissant import LICENCE, croissant

CARD, CROISSANT = "README.md", "croissant.json"


def documents(description: Mapping[str, Any], root_digest: str) -> dict[str, bytes]:
    """The card and the Croissant metadata, by their keys in the store.

    Args:
        description: The content of the sealed store's `zarr.json`.
        root_digest: SHA-256 of its bytes.
    """
    metadata = json.dumps(croissant(description, root_digest), indent=2, ensure_ascii=False)
    return {CARD: card(description).encode(), CROISSANT: metadata.encode()}


def card(description: Mapping[str, Any]) -> str:
    """The card of a store that was made from a recipe, with noise from another one, or imported.

    Args:
        description: The content of the sealed store's `zarr.json`.
    """
    attributes = description["attributes"]
    sections = (
        _facts(attributes),
        _arrays(attributes["variables"], description["consolidated_metadata"]["metadata"]),
        _splits(attributes),
        _use(attributes),
        _checks(attributes),
        _origin(attributes),
    )
    lines = [f"# {_plain(attributes['title'])}", ""]
    for section in sections:
        lines += [*section, ""]
    return "\n".join(lines)


def _facts(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What it is, in a table."""
    yield "| | |"
    yield "|---|---|"
    yield f"| equation | {_plain(attributes['equation'])} |"
    for name, text in _declared(attributes["recipe"].get("problem", {})):
        yield f"| {name} | {text} |"
    if "noise" in attributes:
        yield f"| noise | {_pairs(attributes['noise'])} |"
    yield f"| samples | {attributes['samples']} |"
    yield f"| made | {_made(attributes)} |"
    if "label_error" in attributes:
        error = attributes["label_error"]
        worst = f"up to {max(error['relative_l2']):.2e} in relative L2"
        yield f"| label error | {worst}, from {_plain(error['reference'])} |"
    if "imported" in attributes:
        yield "| licence | that of its source |"
    else:
        yield f"| licence | CC BY 4.0, <{LICENCE}> |"
    yield f"| fingerprint | `{attributes['fingerprint']}`: SHA-256 of what it was made from |"
    yield f"| content | `{attributes['content']}`: SHA-256 of the data |"


def _declared(problem: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parameters, law and solver of a recipe, by their names there."""
    plain = {k: v for k, v in problem.items() if not isinstance(v, Mapping) and k != "equation"}
    if plain:
        yield "parameters", _pairs(plain)
    for name, value in problem.items():
        if isinstance(value, Mapping):
            yield _plain(name), _pairs(value)


def _made(attributes: Mapping[str, Any]) -> str:
    by = f"pdegen {_plain(attributes['provenance']['pdegen'])}"
    if "parent" in attributes:
        parent = attributes["parent"]
        return f"by {by} from the dataset {_plain(parent['recipe'])}, content `{parent['content']}`"
    if "imported" in attributes:
        files = ", ".join(_plain(one["name"]) for one in attributes["imported"]["files"])
        return f"from {files} by {by}, in the type of the file"
    device = attributes["provenance"].get("device")
    where = f" on {_plain(device)}" if device else ""
    return f"by {by}{where}: solved in float64, rounded once; dimensionless"


def _arrays(variables: list[str], arrays: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Arrays", "")
    yield "| array | dimensions | shape | type | meaning | units |"
    yield "|---|---|---|---|---|---|"
    for name in [*variables, *sorted(arrays.keys() - set(variables))]:
        array = arrays[name]
        own = array["attributes"]
        row = [
            f"`{name}`", ", ".join(array.get("dimension_names") or []) or "none",
            " x ".join(map(str, array["shape"])) or "1", array["data_type"],
            _plain(own.get("long_name", "")), _plain(own.get("units", "")),
        ]  # fmt: skip
        yield f"| {' | '.join(row)} |"


def _splits(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Splits", "")
    for name, (start, stop) in attributes["splits"].items():
        yield f"- {name}: samples {start} to {stop - 1}"
    if attributes.get("skipped"):
        skipped = ", ".join(map(str, attributes["skipped"]))
        yield f"- in no split, for they could not be computed: samples {skipped}"
    yield from ("", "Over the training split:", "")
    for name, values in attributes["statistics"].items():
        yield f"- `{name}`: mean {values['mean']:.6g}, standard deviation {values['std']:.6g}"


def _use(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Use", "")
    yield "This folder is a Zarr v3 group. With xarray:"
    yield from ("", "```python", "import xarray as xr", "")
    yield 'dataset = xr.open_zarr("PATH OR URL OF THIS FOLDER")'
    yield f'print(dataset["{attributes["variables"][0]}"].sel(sample=0))'
    yield from ("```", "", "With pdegen:", "", "```sh", "pdegen info PATH")
    yield from (
        "pdegen plot PATH --out picture.png",
        "pdegen export PATH --format npy --out FOLDER",
    )
    yield "```"


def _checks(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Checks", "")
    yield "`records/` and `seal.json` hold the SHA-256 of all objects. `pdegen verify PATH` checks:"
    yield from ("", "- every byte against them, and that all values are finite;")
    if "parent" in attributes or "imported" in attributes:
        yield "- that the statistics above follow from the values."
        return
    yield "- that the statistics above follow from the values;"
    yield "- that inputs follow the declared law, and solutions what the equation demands;"
    yield "- with `--deep`, that samples which it computes again have the same values."


def _origin(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Origin", "")
    for name in ("recipe", "parent", "noise", "imported", "provenance"):
        if name in attributes:
            block = json.dumps(attributes[name], indent=1, ensure_ascii=False).replace("```", "'''")
            yield from (f"{name}:", "", "```json", block, "```", "")


def _pairs(values: Mapping[str, Any]) -> str:
    return _plain(", ".join(f"{name} {_value(value)}" for name, value in values.items()))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plain(text: object) -> str:
    """Text in one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")
