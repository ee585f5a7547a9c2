"""What a sealed store says of itself: a dataset card for people, Croissant metadata for machines.

Both follow from the metadata of the store alone, so two makings of a dataset have the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LICENCE = "https://creativecommons.org/licenses/by/4.0/"  # of data made from a recipe
CARD, CROISSANT = "README.md", "croissant.json"
_TYPES = {"bool": "sc:Boolean", "float32": "cr:Float32", "float64": "cr:Float64"}
_CONTEXT = {
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


def documents(description: Mapping[str, Any], root_digest: str) -> dict[str, bytes]:
    """The card and the Croissant metadata, by their keys in the store.

    Args:
        description: The content of the sealed store's `zarr.json`.
        root_digest: SHA-256 of its bytes.
    """
    croissant = json.dumps(_croissant(description, root_digest), indent=2, ensure_ascii=False)
    return {CARD: _card(description).encode(), CROISSANT: croissant.encode()}


def _arrays(description: Mapping[str, Any]) -> Mapping[str, Any]:
    return description["consolidated_metadata"]["metadata"]


def _card(description: Mapping[str, Any]) -> str:
    """The card, in Markdown."""
    attributes, arrays = description["attributes"], _arrays(description)
    lines = [
        f"# {_plain(attributes['title'])}",
        "",
        f"    {_plain(attributes['equation'])}",
        "",
        f"{attributes['samples']} samples, made by pdegen: dimensionless, solved in float64 and "
        "rounded once. The whole format is that of Zarr v3; `zarr.json` has all that is said here.",
        "",
        "| array | dimensions | shape | type | meaning | units |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*attributes["variables"], *sorted(arrays.keys() - attributes["variables"])]:
        array = arrays[name]
        own = array["attributes"]
        row = [
            f"`{name}`", ", ".join(array.get("dimension_names") or []) or "none",
            " x ".join(map(str, array["shape"])) or "1", array["data_type"],
            _plain(own.get("long_name", "")), _plain(own.get("units", "")),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "## Splits", ""]
    for name, (start, stop) in attributes["splits"].items():
        lines.append(f"- {name}: samples {start} to {stop - 1}")
    if attributes.get("skipped"):
        skipped = ", ".join(map(str, attributes["skipped"]))
        lines.append(f"- in no split, for they could not be computed: samples {skipped}")
    lines += ["", "Over the training split:", ""]
    for name, values in attributes["statistics"].items():
        lines.append(
            f"- `{name}`: mean {values['mean']:.6g}, standard deviation {values['std']:.6g}"
        )
    if "label_error" in attributes:
        error = attributes["label_error"]
        worst = max(error["relative_l2"])
        lines += [
            "",
            f"Labels differ by up to {worst:.2e} (relative L2) from {error['reference']}.",
        ]
    lines += [
        "",
        "## Use",
        "",
        "```python",
        "import xarray as xr",
        "",
        'dataset = xr.open_zarr("PATH OR URL OF THIS FOLDER")',
        "```",
        "",
        "`pdegen verify PATH --deep` checks every byte against `seal.json`, and samples against "
        "the recipe.",
        "",
        "## Origin",
        "",
    ]
    for name in ("recipe", "parent", "noise", "imported", "provenance"):
        if name in attributes:
            block = json.dumps(attributes[name], indent=1, ensure_ascii=False).replace("```", "'''")
            lines += [f"{name}:", "", "```json", block, "```", ""]
    if "imported" not in attributes:
        lines.append(f"- licence of the data: CC BY 4.0, <{LICENCE}>")
    lines += [
        f"- fingerprint of what it was made from: `{attributes['fingerprint']}`",
        f"- digest of the data: `{attributes['content']}`",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: object) -> str:
    """Text in one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def _croissant(description: Mapping[str, Any], root_digest: str) -> dict[str, Any]:
    """Metadata by the Croissant format 1.1 (MLCommons)."""
    attributes, arrays = description["attributes"], _arrays(description)
    variables = attributes["variables"]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": attributes["recipe"]["name"],
        "description": f"{attributes['title']}: {attributes['equation']}",
        **({} if "imported" in attributes else {"license": LICENCE}),
        "version": f"1.0.0+{attributes['content'][:12]}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "metadata",
                "name": "metadata",
                "contentUrl": "zarr.json",
                "encodingFormat": "application/json",
                "sha256": root_digest,
            },
            *(
                {
                    "@type": "cr:FileSet",
                    "@id": f"shards-of-{name}",
                    "name": f"shards-of-{name}",
                    "encodingFormat": "application/octet-stream",
                    "includes": f"{name}/c/**",
                }
                for name in variables
            ),
        ],
        "recordSet": [
            *(
                {
                    "@type": "cr:RecordSet",
                    "@id": name,
                    "name": name,
                    "description": f"{name} of every sample, in the order of their numbers",
                    "field": [_field(name, arrays[name])],
                }
                for name in variables
            ),
            {
                "@type": "cr:RecordSet",
                "@id": "splits",
                "name": "splits",
                "dataType": "cr:Split",
                "key": {"@id": "splits/name"},
                "field": [
                    {"@type": "cr:Field", "@id": f"splits/{name}", "name": f"splits/{name}",
                     "dataType": kind}
                    for name, kind in (
                        ("name", "sc:Text"), ("first", "sc:Integer"), ("end", "sc:Integer"))
                ],
                "data": [
                    {"splits/name": name, "splits/first": start, "splits/end": stop}
                    for name, (start, stop) in attributes["splits"].items()
                ],
            },
        ],
    }  # fmt: skip


def _field(name: str, array: Mapping[str, Any]) -> dict[str, Any]:
    shape = array["shape"][1:]
    return {
        "@type": "cr:Field",
        "@id": f"{name}/values",
        "name": f"{name}/values",
        "description": array["attributes"].get("long_name", name),
        "dataType": _TYPES.get(array["data_type"], "sc:Integer"),
        **({"isArray": True, "arrayShape": ",".join(map(str, shape))} if shape else {}),
        "source": {"fileSet": {"@id": f"shards-of-{name}"}, "extract": {"fileProperty": "content"}},
    }
