"""What the metadata of a store may say. They are checked before anything is read by them, so a
store from a stranger can neither name files elsewhere nor claim memory without bound."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

FORMAT = "pdegen"
FORMAT_VERSION = 2
METADATA_BYTES = 2**26  # of zarr.json, and of other descriptions
SHARD_BYTES = 2**33
CHUNK_BYTES = 2**30
_SAMPLES = 2**40
_DTYPES = {
    "bool",
    "float32",
    "float64",
    *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_INDEX = [_BYTES, {"name": "crc32c"}]


# the root of a store whose layout is not finished
BEGUN = json.dumps(
    {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": FORMAT, "format_version": FORMAT_VERSION, "sealed": False},
    }
).encode()


class MetadataError(ValueError):
    """Metadata of a store that are damaged or not ours; says where and what."""


class BegunError(MetadataError):
    """The layout of the store was interrupted."""


def parse(data: bytes) -> dict[str, Any]:
    """The content of a store's zarr.json.

    Raises:
        MetadataError: If it is no description of a store that this version reads.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    if not isinstance(content, dict) or content.get("node_type") != "group":
        raise MetadataError("not a pdegen store")
    attributes = content.get("attributes")
    if not isinstance(attributes, dict) or attributes.get("format") != FORMAT:
        raise MetadataError("a Zarr group, but not a pdegen store")
    version = attributes.get("format_version")
    if version != FORMAT_VERSION:
        raise MetadataError(f"format version {version}, this version reads {FORMAT_VERSION}")
    if "consolidated_metadata" not in content:
        raise BegunError("was interrupted while it was laid out: start again with --resume")
    try:
        _check_attributes(attributes)
        arrays = content["consolidated_metadata"]["metadata"]
        for name, array in arrays.items():
            _check_array(name, array)
        for name in attributes["variables"]:
            _check_variable(name, arrays[name], attributes)
    except MetadataError as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise MetadataError(f"the metadata are damaged: {error!r}") from None
    return content


def _check_attributes(attributes: dict[str, Any]) -> None:
    for name in ("samples", "shard"):
        _check(_is_count(attributes[name], 1, _SAMPLES), name, attributes[name])
    for name in ("title", "equation", "fingerprint"):
        _check(isinstance(attributes[name], str), name, attributes[name])
    made = attributes["provenance"]
    _check(isinstance(made.get("pdegen"), str), "provenance", made)
    _check(type(attributes["sealed"]) is bool, "sealed", attributes["sealed"])
    names = attributes["variables"]
    _check(isinstance(names, list) and bool(names), "variables", names)
    for name in names:
        _check_name(name)
    for name, ends in attributes["splits"].items():
        _check_name(name)
        _check(
            len(ends) == 2
            and all(_is_count(end, 0, attributes["samples"]) for end in ends)
            and ends[0] < ends[1],
            f"splits.{name}", ends,
        )  # fmt: skip
    _check(isinstance(attributes["recipe"]["name"], str), "recipe", attributes["recipe"])
    skipped = attributes.get("skipped", [])
    _check(
        isinstance(skipped, list)
        and all(_is_count(i, 0, attributes["samples"] - 1) for i in skipped),
        "skipped", skipped,
    )  # fmt: skip


def _check_array(name: str, array: dict[str, Any]) -> None:
    _check_name(name)
    _check(array["node_type"] == "array", f"{name}: node type", array["node_type"])
    _check(array["data_type"] in _DTYPES, f"{name}: data type", array["data_type"])
    item = np.dtype(array["data_type"]).itemsize
    shape, grid, codecs = array["shape"], array["chunk_grid"], array["codecs"]
    _check(_is_shape(shape, 0), f"{name}: shape", shape)
    _check(grid["name"] == "regular", f"{name}: chunk grid", grid["name"])
    chunk = grid["configuration"]["chunk_shape"]
    _check(_is_shape(chunk, 1) and len(chunk) == len(shape), f"{name}: chunks", chunk)
    _check(item * math.prod(chunk) <= SHARD_BYTES, f"{name}: chunks", chunk)
    _check(
        array["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}},
        f"{name}: keys", array["chunk_key_encoding"],
    )  # fmt: skip
    _check(not array.get("storage_transformers"), f"{name}: storage transformers", "some")
    if codecs[0]["name"] == "sharding_indexed":
        _check(len(codecs) == 1, f"{name}: codecs", codecs)
        options = codecs[0]["configuration"]
        inner, codecs = options["chunk_shape"], options["codecs"]
        _check(_is_shape(inner, 1) and len(inner) == len(chunk), f"{name}: inner chunks", inner)
        _check(item * math.prod(inner) <= CHUNK_BYTES, f"{name}: inner chunks", inner)
        _check(options["index_codecs"] == _INDEX, f"{name}: index", options["index_codecs"])
    _check(bool(codecs), f"{name}: codecs", codecs)
    first, *rest = codecs
    plain = {"name": "bytes"} if item == 1 else _BYTES
    _check(
        first in (plain, _BYTES) and [codec["name"] for codec in rest] in ([], ["blosc"]),
        f"{name}: codecs", codecs,
    )  # fmt: skip


def _check_variable(name: str, array: dict[str, Any], attributes: dict[str, Any]) -> None:
    shape, shard = array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"]
    _check(shape[0] == attributes["samples"], f"{name}: samples", shape[0])
    _check(shard == [attributes["shard"], *shape[1:]], f"{name}: shards", shard)
    _check(array["codecs"][0]["name"] == "sharding_indexed", f"{name}: codecs", array["codecs"])


def _check_name(name: object) -> None:
    _check(isinstance(name, str) and _NAME.fullmatch(name) is not None, "a name", name)


def _is_count(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_shape(value: object, low: int) -> bool:
    return isinstance(value, list) and all(_is_count(n, low, _SAMPLES) for n in value)


def _check(sound: bool, what: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{what} cannot be {str(value)[:80]!r}")
