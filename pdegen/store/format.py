"""What the metadata of a store may say. They are checked before anything is read by them, so a
store from a stranger can neither name files elsewhere nor claim memory without bound, and readers
find what they look for, in the type they expect."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

FORMAT = "pdegen"
FORMAT_VERSION = 3
READABLE = (2, 3)  # version 2 has no checksums of chunks, and records that name no job
METADATA_BYTES = 2**26  # of zarr.json, and of other descriptions
SAMPLES = 2**24  # and so many shards, at most
SHARD_BYTES = 2**31
CHUNK_BYTES = 2**30  # of a chunk, and of all coordinates together
AXIS_BYTES = 8 * SAMPLES  # of a coordinate along one axis: the numbers of the samples are one
_ARRAYS = 256
_AXES = 16  # of an array
_DTYPES = {
    "bool",
    "float32",
    "float64",
    *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_BLOSC = {"clevel": 5, "shuffle": "shuffle", "blocksize": 0}
_GROUP_KEYS = {"zarr_format", "node_type", "attributes", "consolidated_metadata"}
_ARRAY_KEYS = {
    "zarr_format", "node_type", "attributes", "shape", "data_type", "chunk_grid",
    "chunk_key_encoding", "fill_value", "codecs", "dimension_names", "storage_transformers",
}  # fmt: skip
_WORDS = ("long_name", "units", "role", "grid", "coordinates", "type_in_file")  # of an array
_ORIGIN = {  # what a store says of where it comes from, and the words in it
    "provenance": ("pdegen",),
    "recipe": ("name",),
    "parent": ("recipe", "fingerprint", "content"),
    "noise": ("variable", "kind", "deviation"),
    "imported": (),
    "label_error": ("reference",),
}
_SPACE = ("x", "y", "z")
# what is raised on the way to a value where keys are missing and types are others
_ABSURD = (KeyError, TypeError, AttributeError, IndexError, RecursionError)


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
    if type(version) is not int or version not in READABLE:
        found = str(version)[:20] if type(version) is int else type(version).__name__
        known = " and ".join(map(str, READABLE))
        raise MetadataError(f"format version {found}, this version reads {known}")
    if "consolidated_metadata" not in content:
        raise BegunError("was interrupted while it was laid out: start again with --resume")
    try:
        _check_group(content)
        _check_attributes(attributes)
        _check_statistics(attributes)
        _check_origin(attributes)
        Physics.of(attributes)
        arrays = content["consolidated_metadata"]["metadata"]
        for name, array in arrays.items():
            _check_array(name, array)
            if name in attributes["variables"]:
                _check_variable(name, array, attributes)
            else:
                _check_coordinate(name, array, version)
        _check_axes(arrays, attributes)
        _check_text(content)
    except MetadataError as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    except _ABSURD as error:
        raise MetadataError(f"the metadata are damaged: {repr(error)[:120]}") from None
    return content


def _check_text(content: dict[str, Any]) -> None:
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeError:
        raise MetadataError("they hold half a character, which cannot be written") from None


def _check_group(content: dict[str, Any]) -> None:
    _check(content.keys() == _GROUP_KEYS, "zarr.json", list(content))
    _check(_same(content["zarr_format"], 3), "Zarr's format", content["zarr_format"])
    arrays = content["consolidated_metadata"]["metadata"]
    rest = {k: v for k, v in content["consolidated_metadata"].items() if k != "metadata"}
    _check(_same(rest, {"kind": "inline", "must_understand": False}), "metadata of arrays", rest)
    _check(len(arrays) <= _ARRAYS, "the number of arrays", len(arrays))


def _check_attributes(attributes: dict[str, Any]) -> None:
    samples, shard, sealed = (attributes[name] for name in ("samples", "shard", "sealed"))
    _check(_is_count(samples, 1, SAMPLES), "samples", samples)
    _check(_is_count(shard, 1, samples), "shard", shard)
    _check(type(sealed) is bool, "sealed", sealed)
    for name in ("title", "equation", "fingerprint", *(["content"] if sealed else [])):
        _check(isinstance(attributes[name], str), name, attributes[name])
    names = attributes["variables"]
    _check(isinstance(names, list) and bool(names), "variables", names)
    for name in names:
        _check_name(name)
    _check(len(set(names)) == len(names), "variables", names)
    splits = attributes["splits"]
    _check(isinstance(splits, dict) and "train" in splits, "splits", splits)
    for name, ends in splits.items():
        _check_name(name)
        _check(
            isinstance(ends, list)
            and len(ends) == 2
            and all(_is_count(end, 0, samples) for end in ends)
            and ends[0] < ends[1],
            f"splits.{name}", ends,
        )  # fmt: skip
    skipped = attributes.get("skipped", [])
    _check(
        isinstance(skipped, list)
        and all(_is_count(i, 0, samples - 1) for i in skipped)
        and all(i < j for i, j in itertools.pairwise(skipped)),
        "skipped", skipped,
    )  # fmt: skip


def _check_statistics(attributes: dict[str, Any]) -> None:
    statistics = attributes["statistics"] if attributes["sealed"] else (
        attributes.get("statistics", {})
    )  # fmt: skip
    _check(isinstance(statistics, dict), "statistics", statistics)
    for name, values in statistics.items():
        _check(name in attributes["variables"], "statistics of a variable", name)
        _check(
            isinstance(values, dict)
            and {"mean", "std"} <= values.keys()
            and all(map(_is_finite, values.values())),
            f"statistics.{name}", values,
        )  # fmt: skip


def _check_origin(attributes: dict[str, Any]) -> None:
    for name, words in _ORIGIN.items():
        if name in attributes or name in ("provenance", "recipe"):
            said = attributes[name]
            sound = isinstance(said, dict) and all(isinstance(said[word], str) for word in words)
            _check(sound, name, said)
    device = attributes["provenance"].get("device", "")
    _check(isinstance(device, str), "provenance.device", device)
    problem = attributes["recipe"].get("problem", {})
    _check(isinstance(problem, dict), "recipe.problem", problem)
    if "parent" in attributes:
        made = attributes["parent"]["provenance"]
        _check(isinstance(made, dict), "parent.provenance", made)
    if "noise" in attributes:
        levels = attributes["noise"]["levels"]
        _check(isinstance(levels, list) and all(map(_is_finite, levels)), "noise.levels", levels)
    if "imported" in attributes:
        files = attributes["imported"]["files"]
        sound = all(isinstance(file[key], str) for file in files for key in ("name", "sha256"))
        _check(sound and isinstance(files, list), "imported.files", files)
    if "label_error" in attributes:
        errors = attributes["label_error"]["relative_l2"]
        sound = isinstance(errors, list) and all(type(error) in (int, float) for error in errors)
        _check(sound and bool(errors), "label_error.relative_l2", errors)


def _check_array(name: str, array: dict[str, Any]) -> None:
    """What variables and coordinates have alike."""
    _check_name(name)
    _check(array.keys() <= _ARRAY_KEYS, f"{name}: keys of the metadata", list(array))
    _check(_same(array["zarr_format"], 3), f"{name}: Zarr's format", array["zarr_format"])
    _check(array["node_type"] == "array", f"{name}: node type", array["node_type"])
    _check(array["data_type"] in _DTYPES, f"{name}: data type", array["data_type"])
    shape, dims, own = array["shape"], _dims(array), array["attributes"]
    _check(_is_shape(shape) and len(shape) <= _AXES, f"{name}: shape", shape)
    _check(isinstance(dims, list) and len(dims) == len(shape), f"{name}: dimensions", dims)
    for dim in dims:
        _check_name(dim)
    _check(len(set(dims)) == len(dims), f"{name}: dimensions", dims)
    keys, transformers = array["chunk_key_encoding"], array.get("storage_transformers", [])
    _check(_same(keys, _named("default", separator="/")), f"{name}: keys", keys)
    _check(transformers == [], f"{name}: storage transformers", transformers)
    _check(isinstance(own, dict), f"{name}: attributes", own)
    for key in _WORDS:
        _check(isinstance(own.get(key, ""), str), f"{name}: {key}", own.get(key))
    for value in own.values():  # a number of a title is a float at last
        _check(type(value) is not int or abs(value) < 2**64, f"{name}: an attribute", value)


def _check_variable(name: str, array: dict[str, Any], attributes: dict[str, Any]) -> None:
    shape, codecs, item = array["shape"], array["codecs"], _dtype(array).itemsize
    _check(shape[:1] == [attributes["samples"]], f"{name}: shape", shape)
    _check(_dims(array)[0] == "sample", f"{name}: dimensions", _dims(array))
    shard = [attributes["shard"], *shape[1:]]
    _check_cut(name, array, shard)
    _check(item * math.prod(shard) <= SHARD_BYTES, f"{name}: shards", shard)
    chunk = codecs[0]["configuration"]["chunk_shape"]
    whole = _is_shape(chunk) and chunk[1:] == shape[1:] and shard[0] % chunk[0] == 0
    _check(whole and item * math.prod(chunk) <= CHUNK_BYTES, f"{name}: chunks", chunk)
    checksum = _checksum(attributes["format_version"])
    known = [
        _named(
            "sharding_indexed",
            chunk_shape=chunk,
            codecs=[_bytes(array), *compressor, *checksum],
            index_codecs=[_BYTES, {"name": "crc32c"}],
            index_location="end",
        )
        for compressor in (
            [_named("blosc", typesize=item, cname="lz4", **_BLOSC)],
            [_named("blosc", typesize=item, cname="zstd", **_BLOSC)],
            [],
        )
    ]
    _check(any(_same(codecs, [one]) for one in known), f"{name}: codecs", codecs)
    _check_fill(name, array, "NaN", attributes["format_version"])


def _check_coordinate(name: str, array: dict[str, Any], version: int) -> None:
    _check(len(array["shape"]) > 1 or _size(array) <= AXIS_BYTES, f"{name}: shape", array["shape"])
    _check_cut(name, array, array["shape"])
    codecs = [_bytes(array), *_checksum(version)]
    _check(_same(array["codecs"], codecs), f"{name}: codecs", array["codecs"])
    _check_fill(name, array, 0.0 if version == 2 else "NaN", version)


def _check_cut(name: str, array: dict[str, Any], chunk: list[int]) -> None:
    grid = array["chunk_grid"]
    _check(_same(grid, _named("regular", chunk_shape=chunk)), f"{name}: chunk grid", grid)


def _check_fill(name: str, array: dict[str, Any], of_floats: float | str, version: int) -> None:
    """What was never written is no value, where the type has one that is none."""
    of_integers = 0 if version == 2 else -1
    fill = {"b": False, "f": of_floats, "i": of_integers}.get(_dtype(array).kind, 0)
    _check(_same(array["fill_value"], fill), f"{name}: fill value", array["fill_value"])


def _check_axes(arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Each axis is as long in all arrays, and those of space, level and time have a coordinate."""
    variables, sizes = attributes["variables"], {"sample": attributes["samples"]}
    _check(set(variables) <= arrays.keys(), "variables", variables)
    coordinates = {name: array for name, array in arrays.items() if name not in variables}
    _check(sum(map(_size, coordinates.values())) <= CHUNK_BYTES, "coordinates", [*coordinates])
    for name in variables:
        _check_lengths(name, arrays[name], sizes)
    for dim in [dim for dim in sizes if dim != "sample"]:
        _check(dim in coordinates, "an axis without a coordinate", dim)
        dims = _dims(coordinates[dim])
        one_time = dim == "time" and sizes[dim] == 1 and not dims
        _check(one_time or dims == [dim], f"{dim}: dimensions", dims)
    for name, array in coordinates.items():
        _check(name not in _SPACE or name in sizes, "an axis that no variable has", name)
        _check(name not in _SPACE or "grid" in array["attributes"], f"{name}: grid", None)
        if name in ("sample", "time", "level"):
            _check(_dims(array) in ([], [name]), f"{name}: dimensions", _dims(array))
        _check_lengths(name, array, sizes)


def _check_lengths(name: str, array: dict[str, Any], sizes: dict[str, int]) -> None:
    for dim, n in zip(_dims(array), array["shape"], strict=True):
        _check(sizes.setdefault(dim, n) == n, f"{name}: the length of {dim}", n)


def _check_name(name: object) -> None:
    _check(isinstance(name, str) and _NAME.fullmatch(name) is not None, "a name", name)


def _dims(array: dict[str, Any]) -> list[str]:
    """Names of an array's axes; Zarr leaves out the key of a number."""
    dims = array.get("dimension_names")
    return [] if dims is None else dims


def _dtype(array: dict[str, Any]) -> np.dtype:
    return np.dtype(array["data_type"])


def _size(array: dict[str, Any]) -> int:
    return _dtype(array).itemsize * math.prod(array["shape"])


def _bytes(array: dict[str, Any]) -> dict[str, Any]:
    return {"name": "bytes"} if _dtype(array).itemsize == 1 else _BYTES


def _checksum(version: int) -> list[dict[str, Any]]:
    """The codec after which a damaged chunk is an error in every reader."""
    return [] if version == 2 else [{"name": "crc32c"}]


def _named(name: str, **configuration: Any) -> dict[str, Any]:
    """A part of Zarr's metadata."""
    return {"name": name, "configuration": configuration}


def _is_count(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(_is_count(n, 1, SHARD_BYTES) for n in value)


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # pyright: ignore


def _same(value: object, expected: object) -> bool:
    """Whether both are the same JSON, where 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _check(sound: bool, what: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{what} cannot be {str(value)[:80]!r}")


COLOURS = ("phases", "sequential", "diverging")


@dataclass(frozen=True)
class Drawing:
    """How a variable is drawn.

    Args:
        symbol: What it is called in formulas; its name where empty.
        colours: "phases" of a coefficient, "sequential" or "diverging".
        log: Whether the scale of colours is logarithmic.
    """

    symbol: str = ""
    colours: str = "sequential"
    log: bool = False


@dataclass(frozen=True)
class Physics:
    """What an equation says of its fields to readers that do not know it: the attribute `physics`.

    Args:
        boundary: The value that a variable has on the boundary of the domain, by its name.
        symmetries: Of the solution map, such as "shift", "odd-reflection" or "square".
        loss_weight: The variable that weights the derivative in the loss weighted-h1.
        phases: The two values of a variable that has just two, by its name.
        sentences: A part of the recipe in words, by its key.
        drawing: How a variable is drawn, by its name.

    >>> Physics.of({"physics": {"boundary": {"u": 0.0}}}).boundary
    {'u': 0.0}
    """

    boundary: Mapping[str, float] = field(default_factory=dict)
    symmetries: tuple[str, ...] = ()
    loss_weight: str | None = None
    phases: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)
    drawing: Mapping[str, Drawing] = field(default_factory=dict)

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """What the attributes of a group say; nothing where they have no `physics`.

        Keys that this version does not know are left out.

        Raises:
            MetadataError: If they say what cannot be.
        """
        said = attributes.get("physics", {})
        _check(isinstance(said, dict), "physics", said)
        for key in ("boundary", "phases", "sentences", "drawing"):
            table = said.get(key, {})
            _check(isinstance(table, dict), f"physics.{key}", table)
            for name in table:
                _check_name(name)
        boundary, phases = said.get("boundary", {}), said.get("phases", {})
        _check(all(map(_is_finite, boundary.values())), "physics.boundary", boundary)
        for pair in phases.values():
            sound = isinstance(pair, list) and len(pair) == 2 and all(map(_is_finite, pair))
            _check(sound and pair[0] < pair[1], "physics.phases", pair)
        words = said.get("symmetries", [])
        _check(isinstance(words, list), "physics.symmetries", words)
        for text in (*words, *said.get("sentences", {}).values()):
            _check(isinstance(text, str), "a word of physics", text)
        weight = said.get("loss_weight")
        if weight is not None:
            _check_name(weight)
        return cls(
            {name: float(value) for name, value in boundary.items()},
            tuple(words),
            weight,
            {name: (float(low), float(high)) for name, (low, high) in phases.items()},
            dict(said.get("sentences", {})),
            {name: _drawing(how) for name, how in said.get("drawing", {}).items()},
        )

    def attributes(self) -> dict[str, Any]:
        """The attribute that `of` reads; what is not said is left out."""
        drawing = {
            name: {key: value for key, value in vars(how).items() if value}
            for name, how in self.drawing.items()
        }
        said = {
            "boundary": dict(self.boundary),
            "symmetries": list(self.symmetries),
            "loss_weight": self.loss_weight,
            "phases": {name: list(pair) for name, pair in self.phases.items()},
            "sentences": dict(self.sentences),
            "drawing": drawing,
        }
        return {key: value for key, value in said.items() if value}


def _drawing(how: object) -> Drawing:
    _check(isinstance(how, dict), "physics.drawing", how)
    assert isinstance(how, dict)
    symbol, colours, log = how.get("symbol", ""), how.get("colours", COLOURS[1]), how.get("log")
    _check(isinstance(symbol, str), "physics.drawing.symbol", symbol)
    _check(colours in COLOURS, "physics.drawing.colours", colours)
    _check(log is None or type(log) is bool, "physics.drawing.log", log)
    return Drawing(symbol, colours, bool(log))
