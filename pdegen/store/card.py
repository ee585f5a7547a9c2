"""The dataset card of a sealed store, in Markdown.

The card depends only on the metadata of the store. A regenerated dataset therefore has the same
card, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from pdegen.schema import visible
from pdegen.store.format import CHANNEL, Array, Description, Json, Labels, StoreMetadata

# Croissant metadata of a sealed store. Croissant is a JSON-LD format of MLCommons for datasets.


LICENCE = "https://creativecommons.org/licenses/by/4.0/"  # licence of generated data

TYPES = {"bool": "sc:Boolean"} | {
    f"{stem}{bits}": f"cr:{word}{bits}"
    for stem, word, sizes in (
        ("float", "Float", (32, 64)), ("int", "Int", (8, 16, 32, 64)),
        ("uint", "UInt", (8, 16, 32, 64)),
    )
    for bits in sizes
}  # fmt: skip
CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/",
    "equivalentProperty": "cr:equivalentProperty", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "arrayShape": "cr:arrayShape", "citeAs": "cr:citeAs",
    "column": "cr:column", "conformsTo": "dct:conformsTo", "containedIn": "cr:containedIn",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"}, "excludes": "cr:excludes",
    "extract": "cr:extract", "field": "cr:field", "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty", "fileSet": "cr:fileSet", "format": "cr:format",
    "includes": "cr:includes", "isArray": "cr:isArray", "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath", "key": "cr:key", "md5": "cr:md5", "parentField": "cr:parentField",
    "path": "cr:path", "recordSet": "cr:recordSet", "references": "cr:references",
    "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace",
    "samplingRate": "cr:samplingRate", "separator": "cr:separator", "source": "cr:source",
    "subField": "cr:subField", "transform": "cr:transform",
}  # fmt: skip


def croissant(store: Description, root_digest: str) -> Json:
    """Metadata of a store in the Croissant format 1.1.

    A file set contains all objects of an array. A record set contains a whole coordinate, or a
    variable, with one record for each sample. Croissant has no codec for Zarr. Readers decode the
    objects with Zarr and `zarr.json`. The digest of `zarr.json` is listed here, and `zarr.json`
    contains the digest of the data. No date is written, so that a regenerated dataset has the same
    bytes.

    References: Croissant Format Specification 1.1, https://docs.mlcommons.org/croissant/.
    """
    arrays, metadata = store.arrays, store.metadata
    names = [*store.variables, *sorted(store.coordinates)]
    labels = () if store.labels is None else (CHANNEL,)
    with_axes = {*labels, *(name for name in names if arrays[name].shape)}
    name, content = metadata.recipe.name, metadata.content
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": name,
        "description": description(metadata),
        **({"license": LICENCE, "citeAs": citation(metadata)} if not metadata.imported else {}),
        "version": f"1.0.0+{content[:12]}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "metadata",
                "name": "metadata",
                "description": "metadata of the Zarr group, with the digest of the data",
                "contentUrl": "zarr.json",
                "encodingFormat": "application/json",
                "sha256": root_digest,
            },
            *(
                {
                    "@type": "cr:FileSet",
                    "@id": f"objects-of-{name}",
                    "name": f"objects-of-{name}",
                    "description": f"the Zarr array {name}",
                    "encodingFormat": "application/vnd.zarr",
                    "includes": f"{name}/c/**" if name in with_axes else f"{name}/c",
                }
                for name in (*names, *labels)
            ),
        ],
        "recordSet": [
            *(_array(arrays[name], name in store.variables) for name in names),
            *(_labels(names) for names in (store.labels,) if names is not None),
            _split_records(metadata.splits),
        ],
    }  # fmt: skip


def description(metadata: StoreMetadata) -> str:
    """Title and equation of the dataset. Only the title if it already contains the equation."""
    return (
        metadata.title
        if metadata.equation in metadata.title
        else f"{metadata.title}: {metadata.equation}"
    )


def citation(metadata: StoreMetadata) -> str:
    """BibTeX entry of a dataset that pdegen made.

    The entry lists the recipe and the fingerprint, which determine the numbers, and the digest of
    the content. It has no year, so that a regenerated dataset has the same bytes.
    """
    name = metadata.recipe.name.replace("_", r"\_")
    origin = f"the dataset {metadata.parent.content}" if metadata.parent else "its recipe"
    return (
        f"@misc{{pdegen-{metadata.content[:12]},\n"
        f"  title = {{{{The dataset {name}}}}},\n"
        f"  note = {{Made by pdegen {metadata.provenance.pdegen} from {origin};\n"
        f"    fingerprint {metadata.fingerprint};\n"
        f"    content {metadata.content}}}\n"
        "}"
    )


def _array(array: Array, by_sample: bool) -> Json:
    shape = array.shape[1:] if by_sample else array.shape
    name, units = array.name, array.metadata.units
    meaning, rows = array.metadata.long_name or name, "one for each sample" if by_sample else ""
    values = f"{meaning}, unit {units}" if units else meaning
    return _record_set(name, meaning, rows, values, TYPES[array.dtype.name], shape)


def _labels(labels: Labels) -> Json:
    meaning = labels.attributes["long_name"]
    return _record_set(CHANNEL, meaning, "", meaning, "sc:Text", (len(labels.names),))


def _record_set(
    name: str, meaning: str, rows: str, values: str, kind: str, shape: tuple[int, ...]
) -> Json:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"{meaning}; {rows or 'of all samples'}",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/values",
                "name": f"{name}/values",
                "description": values,
                "dataType": kind,
                **({"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {}),
                "source": {
                    "fileSet": {"@id": f"objects-of-{name}"},
                    "extract": {"fileProperty": "content"},
                },
            }
        ],
    }


def _split_records(splits: Mapping[str, tuple[int, int]]) -> Json:
    kinds = {"name": "sc:Text", "first": "cr:Int64", "end": "cr:Int64"}
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "description": "number of the first sample, and of the one past the last",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"splits/{name}", "name": f"splits/{name}",
             "dataType": kind}
            for name, kind in kinds.items()
        ],
        "data": [
            {"splits/name": name, "splits/first": start, "splits/end": stop}
            for name, (start, stop) in splits.items()
        ],
    }  # fmt: skip


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


# Titles, names and equations from stores and files are shown literally in Markdown: they cannot
# create HTML, links, pictures or headings, and cannot end a table cell or a code block.


_MARKS = str.maketrans({mark: f"\\{mark}" for mark in r"\`*_[]<>|~#$&"})


def escaped(text: object) -> str:
    """Convert a text to one line that is escaped for Markdown, including table cells.

    >>> escaped("[u](https://example.org) <b>\\n|")
    '\\\\[u\\\\](https://example.org) \\\\<b\\\\> \\\\|'
    """
    return visible(" ".join(str(text).split())).translate(_MARKS)


def code(text: object) -> str:
    """Convert a text to a code span, which is also safe in table cells.

    >>> code("a|b`c")
    "`a\\\\|b'c`"
    """
    line = visible(" ".join(str(text).split()))
    return f"`{line.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def block(language: str, text: str) -> list[str]:
    """The lines of a fenced code block. The text cannot end the block.

    >>> block("json", '{"a": "```"}')
    ['```json', '{"a": "\\'\\'\\'"}', '```']
    """
    lines = text.replace("```", "'''").split("\n")
    return [f"```{language}", *map(visible, lines), "```"]
