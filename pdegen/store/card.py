"""The dataset card of a sealed store, in Markdown.

The card depends only on the metadata of the store. A regenerated dataset therefore has the same
card, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from pdegen.markdown import block, code, escaped
from pdegen.store.croissant import LICENCE, citation, croissant
from pdegen.store.description import Description
from pdegen.store.format import StoreMetadata

CARD, CROISSANT = "README.md", "croissant.json"


def documents(store: Description, root_digest: str) -> dict[str, bytes]:
    """A dictionary that maps the keys of the card and of the Croissant metadata to their bytes.

    Args:
        store: Description of the store.
        root_digest: SHA-256 of `zarr.json`.
    """
    metadata = json.dumps(croissant(store, root_digest), indent=2, ensure_ascii=False)
    return {CARD: card(store).encode(), CROISSANT: metadata.encode()}


def card(store: Description, use: Iterable[str] | None = None) -> str:
    """The dataset card of a generated, derived or imported store.

    Args:
        store: Description of the store.
        use: Lines that explain how to read an exported dataset. None for the Zarr store itself.
    """
    sections = (
        _facts(store),
        _arrays(store),
        _splits(store.metadata),
        *((_use(store.metadata), _checks(store.metadata)) if use is None else (use,)),
        _citation(store.metadata),
        _origin(store.raw_attributes),
    )
    lines = [f"# {escaped(store.metadata.title)}", ""]
    for section in sections:
        lines += [*section, ""]
    return "\n".join(lines)


def _facts(store: Description) -> Iterator[str]:
    """The rows of a table of facts about the dataset."""
    metadata = store.metadata
    yield "| | |"
    yield "|---|---|"
    yield f"| equation | {escaped(metadata.equation)} |"
    for name, text in _problem_rows(metadata.recipe.problem):
        yield f"| {name} | {text} |"
    if metadata.noise:
        yield f"| noise | {_pairs(store.raw_attributes['noise'])} |"
    yield f"| samples | {metadata.samples} |"
    yield f"| made | {_provenance(metadata)} |"
    if metadata.label_error:
        worst = f"up to {max(metadata.label_error.relative_l2):.2e} in relative L2"
        yield f"| label error | {worst}, from {escaped(metadata.label_error.reference)} |"
    if metadata.sampled_inputs:
        yield f"| inputs | {escaped(metadata.sampled_inputs.sentence)} |"
    if metadata.imported:
        yield "| licence | that of its source |"
    else:
        yield f"| licence | CC BY 4.0, <{LICENCE}> |"
    yield f"| fingerprint | {code(metadata.fingerprint)}: SHA-256 of what it was made from |"
    yield f"| content | {code(metadata.content)}: SHA-256 of the data |"


def _problem_rows(problem: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Table rows for the parameters, input law and solver of a recipe. Each row is (key, text)."""
    plain = {k: v for k, v in problem.items() if not isinstance(v, Mapping) and k != "equation"}
    if plain:
        yield "parameters", _pairs(plain)
    for name, value in problem.items():
        if isinstance(value, Mapping):
            yield escaped(name), _pairs(cast(Mapping[str, object], value))


def _provenance(metadata: StoreMetadata) -> str:
    software = f"pdegen {escaped(metadata.provenance.pdegen)}"
    if parent := metadata.parent:
        dataset = f"{escaped(parent.recipe)}, content {code(parent.content)}"
        return f"by {software} from the dataset {dataset}"
    if metadata.imported:
        files = ", ".join(escaped(file.name) for file in metadata.imported.files)
        return f"from {files} by {software}, in the type of the file"
    device = metadata.provenance.device
    where = f" on {escaped(device)}" if device else ""
    return f"by {software}{where}: solved in float64, rounded once; dimensionless"


def _arrays(store: Description) -> Iterator[str]:
    yield from ("## Arrays", "")
    yield "| array | dimensions | shape | type | meaning | units |"
    yield "|---|---|---|---|---|---|"
    for name in [*store.variables, *sorted(store.coordinates)]:
        array = store.arrays[name]
        dims, shape = ", ".join(array.dims) or "none", " x ".join(map(str, array.shape)) or "1"
        metadata, cells = array.metadata, [f"`{name}`", dims, shape, array.dtype.name]
        yield f"| {' | '.join([*cells, escaped(metadata.long_name), escaped(metadata.units)])} |"
    if store.labels is not None:
        names = store.labels.names
        meaning = f"{store.labels.attributes['long_name']}: {escaped(', '.join(names))}"
        yield f"| `channel` | channel | {len(names)} | string | {meaning} | |"


def _splits(metadata: StoreMetadata) -> Iterator[str]:
    yield from ("## Splits", "")
    for name, (start, stop) in metadata.splits.items():
        yield f"- {name}: samples {start} to {stop - 1}"
    if metadata.skipped:
        skipped = ", ".join(map(str, metadata.skipped))
        yield f"- in no split, for they could not be computed: samples {skipped}"
    yield from ("", "Over the training split:", "")
    for name, values in metadata.statistics.items():
        yield f"- `{name}`: mean {values['mean']:.6g}, standard deviation {values['std']:.6g}"


def _use(metadata: StoreMetadata) -> Iterator[str]:
    yield from ("## Use", "")
    yield "This folder is a Zarr v3 group. With xarray:"
    yield from ("", "```python", "import xarray as xr", "")
    yield 'dataset = xr.open_zarr("PATH OR URL OF THIS FOLDER")'
    yield f'print(dataset["{metadata.variables[0]}"].sel(sample=0))'
    yield from ("```", "", "With pdegen:", "", "```sh", "pdegen info PATH")
    yield from (
        "pdegen plot PATH --out picture.png",
        "pdegen export PATH --format npy --out FOLDER",
    )
    yield "```"


def _checks(metadata: StoreMetadata) -> Iterator[str]:
    yield from ("## Checks", "")
    yield "`records/` and `seal.json` hold the SHA-256 of all objects. `pdegen verify PATH` checks:"
    yield from ("", "- every byte against them, and that all values are finite;")
    if metadata.parent or metadata.imported:
        yield "- that the statistics above follow from the values."
        return
    yield "- that the statistics above follow from the values;"
    yield "- that inputs follow the declared law, and solutions what the equation demands;"
    yield "- with `--deep`, that samples which it computes again have the same values."


def _citation(metadata: StoreMetadata) -> Iterator[str]:
    yield from ("## Citation", "")
    if metadata.imported:
        yield "Cite the source of the files; the digests above say which data these are."
        return
    yield "Whoever has the recipe makes the data again; the digests prove that they are the same."
    yield from ("", *block("bibtex", citation(metadata)))


def _origin(attributes: Mapping[str, object]) -> Iterator[str]:
    yield from ("## Origin", "")
    for name in ("recipe", "parent", "noise", "imported", "provenance"):
        if name in attributes:
            text = json.dumps(attributes[name], indent=1, ensure_ascii=False)
            yield from (f"{name}:", "", *block("json", text), "")


def _pairs(values: Mapping[str, object]) -> str:
    return escaped(", ".join(f"{name} {_value(value)}" for name, value in values.items()))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
