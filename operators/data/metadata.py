"""URL -> the Zarr group of a sealed store, once its metadata are such as the format has them.

A store may come from anywhere. What its metadata claim is checked before anything is allocated or
decoded by it; what `datasets/README.md` does not have is refused.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any
from urllib.parse import urlsplit

import fsspec
import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem

from operators.data.digests import Changed, check_sealed

FORMAT_VERSIONS = (2, 3)  # version 3 has a checksum in each chunk, and records that name a job
METADATA_BYTES = 2**26  # of zarr.json
SAMPLES = 2**24
LARGEST = 2**30  # bytes of a chunk, and of a coordinate along several axes
LARGEST_SHARD = 2**31
LARGEST_AXIS = 8 * SAMPLES  # of a coordinate along one

_TYPES = {"bool", "float32", "float64"} | {
    f"{u}int{8 * n}" for u in ("", "u") for n in (1, 2, 4, 8)
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class DataError(ValueError):
    """A store that cannot be read as asked; one line."""


def one_line(error: BaseException) -> str:
    r"""What an error says.

    >>> one_line(ValueError("no such\n  codec"))
    'no such codec'
    """
    return " ".join(str(error).split())


def location(url: str) -> tuple[Any, str]:
    """The file system that a URL or path names, and the path in it.

    Raises:
        DataError: On an unknown protocol, one whose package is missing, credentials in the URL, or
            a chain of file systems.
    """
    if "::" in url:  # fsspec would take its parts for several places
        raise DataError(
            "the path or URL of a store has no '::': chains of file systems are not read, and a "
            "folder needs another name"
        )
    if "://" in url and "@" in urlsplit(url).netloc:
        scheme = urlsplit(url).scheme
        raise DataError(f"a {scheme}:// URL must not hold credentials: put them in the environment")
    try:
        return fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"{url}: {error}") from None


def open_group(url: str) -> tuple[zarr.Group, str | None]:
    """The group of a sealed store at a URL that fsspec knows, or a path; and what its seal knows
    its records by (`operators.data.digests.check_sealed`).

    Raises:
        DataError: If there is none, or its metadata are not those of the format.
    """
    filesystem, root = location(url)
    try:
        filesystem.invalidate_cache()  # others write too
        if (filesystem.size(f"{root}/zarr.json") or 0) > METADATA_BYTES:  # None where none is told
            raise ValueError(f"zarr.json has more than {METADATA_BYTES:,} bytes")
        # Zarr makes a slower store of the URL of a local file
        place = root if isinstance(filesystem, LocalFileSystem) else url
        group = zarr.open_group(place, mode="r", zarr_format=3)
        attributes: dict[str, Any] = group.attrs.asdict()
        arrays = dict(group.arrays())
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise DataError(f"{url}: no such store, or not a pdegen store") from None
    except Exception as error:  # zarr raises many kinds on damaged metadata
        raise DataError(f"{url}: the metadata are damaged: {one_line(error)}") from error
    if attributes.get("format") != "pdegen":
        raise DataError(f"{url} is a Zarr group, but not a pdegen store")
    version = attributes.get("format_version")
    if type(version) is not int or version not in FORMAT_VERSIONS:
        raise DataError(
            f"{url} has format version {version!r:.20}, readable are "
            f"{' and '.join(map(str, FORMAT_VERSIONS))}"
        )
    if attributes.get("sealed") is not True:
        raise DataError(f"{url} is not sealed: finish it with pdegen generate ... --resume")
    try:
        _check_attributes(attributes)
        for name, array in arrays.items():
            _check_array(name, array, attributes)
        for name in arrays:
            _check_axes(name, arrays)
        coordinates = arrays.keys() - set(attributes["variables"])
        axes = {name: arrays[name].ndim for name in sorted(coordinates)}
        shards = math.ceil(attributes["samples"] / attributes["shard"])
        records = check_sealed(filesystem, root, axes, shards, version)
    except (DataError, Changed) as error:
        raise DataError(f"{url}: {error}") from None
    return group, records


def array_of(group: zarr.Group, url: str, name: str) -> zarr.Array:
    """An array of a store.

    Raises:
        DataError: If there is none of this name.
    """
    array = group.get(name)
    if not isinstance(array, zarr.Array):
        raise DataError(f"{url} has no variable {name}")
    return array


def _check_attributes(attributes: dict[str, Any]) -> None:
    samples: Any = attributes.get("samples")
    shard: Any = attributes.get("shard")
    if not (_is_count(samples) and samples <= SAMPLES):
        raise DataError(f"samples is 1 to {SAMPLES:,}, got {samples!r:.80}")
    if not (_is_count(shard) and shard <= samples):
        raise DataError(f"shard is 1 to samples = {samples}, got {shard!r:.80}")
    variables = attributes.get("variables")
    if not (isinstance(variables, list) and all(isinstance(name, str) for name in variables)):
        raise DataError(f"variables is a list of names, got {variables!r:.80}")
    splits = attributes.get("splits")
    if not isinstance(splits, dict):
        raise DataError(f"splits has a range of samples for each name, got {splits!r:.80}")
    for name, ends in splits.items():
        if not _NAME.fullmatch(name):
            raise DataError(f"a split is named by letters, digits, _ and -, got {name!r:.80}")
        whole = isinstance(ends, list) and len(ends) == 2 and all(type(v) is int for v in ends)
        if not (whole and 0 <= ends[0] <= ends[1] <= samples):
            raise DataError(f"split {name} is a range of 0 to {samples}, got {ends!r:.80}")
    recipe = attributes.get("recipe")
    if not (isinstance(recipe, dict) and isinstance(recipe.get("name"), str)):
        raise DataError(f"recipe has a name, got {recipe!r:.80}")
    for key in ("fingerprint", "content"):
        if not isinstance(attributes.get(key), str):
            raise DataError(f"{key} is a text, got {attributes.get(key)!r:.80}")
    skipped = attributes.get("skipped", [])
    if not (isinstance(skipped, list) and all(type(v) is int for v in skipped)):
        raise DataError(f"skipped is a list of sample numbers, got {skipped!r:.80}")
    rising = all(a < b for a, b in itertools.pairwise(skipped))
    if skipped and not (rising and skipped[0] >= 0 and skipped[-1] < samples):
        raise DataError(f"skipped has samples 0 to {samples - 1} in order, got {skipped!r:.80}")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _check_array(name: str, array: zarr.Array, attributes: dict[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        raise DataError(f"an array is named by letters, digits, _ and -, got {name!r:.80}")
    if not isinstance(array.metadata.attributes, dict):
        raise DataError(f"{name} has attributes that have no names")
    kind = array.dtype
    if not (isinstance(kind, np.dtype) and kind.name in _TYPES):
        raise DataError(f"{name} is of type {kind}: allowed are bool, integers, float32, float64")
    codecs: list[Any] = [codec.to_dict() for codec in array.metadata.codecs]  # pyright: ignore
    checksum = ["crc32c"] if attributes["format_version"] > 2 else []
    if name not in attributes["variables"]:
        if [codec["name"] for codec in codecs] != ["bytes", *checksum]:
            raise DataError(f"{name} has codecs {_listed(codecs)}: allowed are bytes, crc32c")
        allowed = LARGEST_AXIS if array.ndim <= 1 else LARGEST
        if array.nbytes > allowed:
            raise DataError(f"{name} has {array.nbytes:,} bytes: allowed are {allowed:,}")
        if array.chunks != array.shape:
            raise DataError(
                f"{name} has shape {array.shape} in chunks {array.chunks}: allowed is a whole one"
            )
        return
    inner = codecs[0].get("configuration", {})
    if (
        [codec["name"] for codec in codecs] != ["sharding_indexed"]
        or _pipeline(inner["codecs"])
        not in [
            ", ".join([first, *compressor, *checksum])
            for first in ("bytes little", "bytes")
            for compressor in (["blosc"], [])
        ]
        or _pipeline(inner["index_codecs"]) != "bytes little, crc32c"
        or inner["index_location"] != "end"
    ):
        raise DataError(
            f"{name} has codecs {_listed(codecs)}: allowed is sharding_indexed of little-endian "
            f"{', '.join(['bytes', 'blosc', *checksum])}, its index bytes and crc32c at the end; "
            "or the same without blosc"
        )
    if (chunk := math.prod(array.chunks) * kind.itemsize) > LARGEST:
        raise DataError(f"{name} has chunks of {chunk:,} bytes: allowed are {LARGEST:,}")
    if (size := math.prod(array.shards or ()) * kind.itemsize) > LARGEST_SHARD:
        raise DataError(f"{name} has shards of {size:,} bytes: allowed are {LARGEST_SHARD:,}")
    samples, shard, rest = attributes["samples"], attributes["shard"], array.shape[1:]
    if array.shape[:1] != (samples,):
        raise DataError(f"{name} has shape {array.shape}: the store has samples = {samples}")
    shards = array.shards
    if shards != (shard, *rest) or array.chunks[1:] != rest or shard % array.chunks[0]:
        raise DataError(
            f"{name} has shards {shards} of chunks {array.chunks}: a shard has {shard} whole "
            "samples, and a chunk a divisor of these"
        )


def _check_axes(name: str, arrays: dict[str, zarr.Array]) -> None:
    """The coordinates along the axes of an array are as long as these."""
    dims: Any = getattr(arrays[name].metadata, "dimension_names", None) or ()
    for dim, n in zip(dims, arrays[name].shape, strict=False):
        found = arrays[dim].shape if dim in arrays else (n,)
        if found != (n,) and (dim, n, found) != ("time", 1, ()):
            raise DataError(f"{name} has {n} points along {dim}, the coordinate has shape {found}")


def is_compressed(array: zarr.Array) -> bool:
    """Whether the chunks of a variable are compressed."""
    codecs: list[Any] = [codec.to_dict() for codec in array.metadata.codecs]  # pyright: ignore
    return "blosc" in _pipeline(codecs[0]["configuration"]["codecs"])


def _pipeline(codecs: Any) -> str:
    """Names of codecs, and the order of bytes where there is one.

    >>> _pipeline([{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "blosc"}])
    'bytes big, blosc'
    """
    words = [(c["name"], c.get("configuration", {}).get("endian", "")) for c in codecs]
    return ", ".join(f"{name} {endian}".strip() for name, endian in words)


def _listed(codecs: list[Any]) -> str:
    inner = codecs[0].get("configuration", {})
    within = f" of {_pipeline(inner['codecs'])}" if "codecs" in inner else ""
    return f"{_pipeline(codecs)}{within}"[:120]
