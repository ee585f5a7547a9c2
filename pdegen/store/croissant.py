"""Croissant metadata of a sealed store. Croissant is a JSON-LD format of MLCommons for datasets."""

from __future__ import annotations

from collections.abc import Mapping

from pdegen.store.arrays import Array, Json
from pdegen.store.description import Description
from pdegen.store.format import StoreMetadata
from pdegen.store.labels import CHANNEL, Labels

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
            _splits(metadata.splits),
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


def _splits(splits: Mapping[str, tuple[int, int]]) -> Json:
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
