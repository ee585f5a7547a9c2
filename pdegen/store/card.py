"""What a sealed store says of itself to people: a dataset card in Markdown.

It follows from the metadata of the store alone, so two makings of a dataset have the same bytes.
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
    """The card and the Croissant metadata by keys, from the SHA-256 of the bytes of `zarr.json`."""
    metadata = json.dumps(croissant(store, root_digest), indent=2, ensure_ascii=False)
    return {CARD: card(store).encode(), CROISSANT: metadata.encode()}


def card(store: Description, use: Iterable[str] | None = None) -> str:
    """The card of a store that was made from a recipe, with noise from another one, or imported;
    `use` are lines that say how to read it, where it is no longer a Zarr group."""
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
    """What it is, in a table."""
    said = store.metadata
    yield "| | |"
    yield "|---|---|"
    yield f"| equation | {escaped(said.equation)} |"
    for name, text in _declared(said.recipe.problem):
        yield f"| {name} | {text} |"
    if said.noise:
        yield f"| noise | {_pairs(store.raw_attributes['noise'])} |"
    yield f"| samples | {said.samples} |"
    yield f"| made | {_made(said)} |"
    if said.label_error:
        worst = f"up to {max(said.label_error.relative_l2):.2e} in relative L2"
        yield f"| label error | {worst}, from {escaped(said.label_error.reference)} |"
    if said.sampled_inputs:
        yield f"| inputs | {escaped(said.sampled_inputs.sentence)} |"
    if said.imported:
        yield "| licence | that of its source |"
    else:
        yield f"| licence | CC BY 4.0, <{LICENCE}> |"
    yield f"| fingerprint | {code(said.fingerprint)}: SHA-256 of what it was made from |"
    yield f"| content | {code(said.content)}: SHA-256 of the data |"


def _declared(problem: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Parameters, law and solver of a recipe, by their names there."""
    plain = {k: v for k, v in problem.items() if not isinstance(v, Mapping) and k != "equation"}
    if plain:
        yield "parameters", _pairs(plain)
    for name, value in problem.items():
        if isinstance(value, Mapping):
            yield escaped(name), _pairs(cast(Mapping[str, object], value))


def _made(said: StoreMetadata) -> str:
    by = f"pdegen {escaped(said.provenance.pdegen)}"
    if parent := said.parent:
        return f"by {by} from the dataset {escaped(parent.recipe)}, content {code(parent.content)}"
    if said.imported:
        files = ", ".join(escaped(one.name) for one in said.imported.files)
        return f"from {files} by {by}, in the type of the file"
    device = said.provenance.device
    where = f" on {escaped(device)}" if device else ""
    return f"by {by}{where}: solved in float64, rounded once; dimensionless"


def _arrays(store: Description) -> Iterator[str]:
    yield from ("## Arrays", "")
    yield "| array | dimensions | shape | type | meaning | units |"
    yield "|---|---|---|---|---|---|"
    for name in [*store.variables, *sorted(store.coordinates)]:
        array = store.arrays[name]
        dims, shape = ", ".join(array.dims) or "none", " x ".join(map(str, array.shape)) or "1"
        own, said = array.metadata, [f"`{name}`", dims, shape, array.dtype.name]
        yield f"| {' | '.join([*said, escaped(own.long_name), escaped(own.units)])} |"
    if store.labels is not None:
        names = store.labels.names
        meaning = f"{store.labels.attributes['long_name']}: {escaped(', '.join(names))}"
        yield f"| `channel` | channel | {len(names)} | string | {meaning} | |"


def _splits(said: StoreMetadata) -> Iterator[str]:
    yield from ("## Splits", "")
    for name, (start, stop) in said.splits.items():
        yield f"- {name}: samples {start} to {stop - 1}"
    if said.skipped:
        skipped = ", ".join(map(str, said.skipped))
        yield f"- in no split, for they could not be computed: samples {skipped}"
    yield from ("", "Over the training split:", "")
    for name, values in said.statistics.items():
        yield f"- `{name}`: mean {values['mean']:.6g}, standard deviation {values['std']:.6g}"


def _use(said: StoreMetadata) -> Iterator[str]:
    yield from ("## Use", "")
    yield "This folder is a Zarr v3 group. With xarray:"
    yield from ("", "```python", "import xarray as xr", "")
    yield 'dataset = xr.open_zarr("PATH OR URL OF THIS FOLDER")'
    yield f'print(dataset["{said.variables[0]}"].sel(sample=0))'
    yield from ("```", "", "With pdegen:", "", "```sh", "pdegen info PATH")
    yield from (
        "pdegen plot PATH --out picture.png",
        "pdegen export PATH --format npy --out FOLDER",
    )
    yield "```"


def _checks(said: StoreMetadata) -> Iterator[str]:
    yield from ("## Checks", "")
    yield "`records/` and `seal.json` hold the SHA-256 of all objects. `pdegen verify PATH` checks:"
    yield from ("", "- every byte against them, and that all values are finite;")
    if said.parent or said.imported:
        yield "- that the statistics above follow from the values."
        return
    yield "- that the statistics above follow from the values;"
    yield "- that inputs follow the declared law, and solutions what the equation demands;"
    yield "- with `--deep`, that samples which it computes again have the same values."


def _citation(said: StoreMetadata) -> Iterator[str]:
    yield from ("## Citation", "")
    if said.imported:
        yield "Cite the source of the files; the digests above say which data these are."
        return
    yield "Whoever has the recipe makes the data again; the digests prove that they are the same."
    yield from ("", *block("bibtex", citation(said)))


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
