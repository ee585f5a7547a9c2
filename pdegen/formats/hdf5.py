"""HDF5 files, including files of MATLAB 7.3. This module runs in the child process of
`pdegen.formats.sandbox`.

A dataset that cannot be read is listed with the reason: references to other files (links, external
storage and virtual datasets), filters that would load a plugin, and other types than numbers. Pairs
of numbers named real and imag, as MATLAB writes them, are complex numbers. The HDF5 library does
not check the unpacked size of a compressed chunk. If a chunk is too short, the library returns
uninitialised memory. Each chunk is therefore first unpacked here, with a limit on its size.

MATLAB reverses the order of the axes when it writes HDF5. For its files, this module restores
MATLAB's order.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t, h5z  # pyright: ignore[reportAttributeAccessIssue]

from pdegen.formats.arrays import (
    KINDS,
    MOST_ARRAYS,
    NAMED,
    NUMBERS,
    Array,
    Contents,
    FormatError,
    Index,
    Location,
    Request,
    check_expansion,
    is_name,
    plain_attribute,
)

_LARGEST_CHUNK = 2**28
_BLOCK = 2**26  # bytes to read at a time, unless a chunk is larger
_LZF = 32000
_KNOWN_FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32, _LZF}
_INTERNAL_OF_MATLAB = {"#refs#", "#subsystem#"}
_NUMBERS_OF_MATLAB = {
    "double", "single", "logical",
    *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
}  # fmt: skip
_DEEPEST = 8

_Node = h5py.Group | h5py.Dataset


def read(request: Request) -> Contents:
    """Read the datasets of a file. The name of an array is the path of its dataset in the file.
    Raises Exception if the file is damaged, or if a dataset of `request.names` is unreadable."""
    path = request.file
    with path.open("rb") as head:
        matlab = head.read(10) == b"MATLAB 7.3"
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    dims: dict[str, tuple[str, ...]] = {}
    with h5py.File(path, "r", locking=False) as file:
        datasets: dict[str, h5py.Dataset] = {}
        attributes = _attributes("", file)
        for name, node in _nodes(file, path):
            if isinstance(node, str):
                unreadable[name] = node
                continue
            attributes.update(_attributes(name, node))
            if isinstance(node, h5py.Dataset):
                try:
                    if reason := _unreadable(name, node):
                        unreadable[name] = reason
                        continue
                    arrays[name] = _array(path, name, node, matlab)
                except FormatError as error:
                    unreadable[name] = str(error).removeprefix(f"{path.name}: {name} ")
                    continue
                datasets[name] = node
                if axes := () if _is_reversed(node, matlab) else _axes(node):
                    dims[name] = axes
        for name in request.wanted(arrays.values()):
            try:
                arrays[name] = _unpacked(request, arrays[name], datasets[name], matlab)
            except (FormatError, OSError) as error:
                if request.names:
                    raise
                unreadable[name] = str(error).removeprefix(f"{path.name}: {name} ")
                del arrays[name]
    kind = "MATLAB 7.3" if matlab else "HDF5"
    return Contents(path, kind, arrays, unreadable, attributes, dims)


def _nodes(file: h5py.File, path: Path) -> Iterator[tuple[str, _Node | str]]:
    """Yield all groups and datasets, with their names; of a link, why it is not followed."""
    links: list[tuple[str, Any]] = []
    file.visititems_links(lambda *link: len(links) > MOST_ARRAYS or links.append(link))
    for name, link in links:
        if name.partition("/")[0] in _INTERNAL_OF_MATLAB:
            continue
        if not isinstance(link, h5py.HardLink):
            kind = type(link).__name__
            yield name, f"is a link ({kind}): an imported file must hold its data itself"
            continue
        if len(links) > MOST_ARRAYS or name.count("/") >= _DEEPEST:
            raise FormatError(f"{path.name}: {name[:80]!r}: too many or too deeply nested names")
        node = file[name]
        if isinstance(node, _Node):
            yield name, node


def _attributes(name: str, node: _Node) -> dict[str, str | float | list[float]]:
    """The attributes of a group or dataset that are strings, or one or two numbers."""
    result: dict[str, str | float | list[float]] = {}
    for key in node.attrs:
        try:
            if math.prod(node.attrs.get_id(key).shape or ()) > 2:
                continue
            value = node.attrs[key]
        except (OSError, RuntimeError, TypeError, ValueError):  # a type that h5py does not support
            continue
        if (plain := plain_attribute(value)) is not None:
            result[f"{name}@{key}"[:1000]] = plain
    return result


def _axes(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Names of the axes of a dataset by their dimension scales, "" where there is none. Empty if
    no axis has a name."""
    names = list[str]()
    try:
        if dataset.is_scale and dataset.ndim == 1:
            return (str(dataset.name).lstrip("/"),)
        for axis in dataset.dims:
            names.append(str(axis[0].name).lstrip("/") if len(axis) else str(axis.label or ""))
    except (OSError, RuntimeError, TypeError, ValueError, AttributeError):  # damaged references
        return ()
    return tuple(names) if any(names) else ()


_WITHOUT_VALUES = b"This is a netCDF dimension but not a netCDF variable"


def _unreadable(name: str, dataset: h5py.Dataset) -> str | None:
    """The reason why a dataset is not an array of numbers, or None if it is such an array."""
    if not is_name(name):
        return NAMED
    scale = dataset.attrs.get("NAME")
    if isinstance(scale, bytes) and scale.startswith(_WITHOUT_VALUES):
        return "is a dimension without values"
    kind = _matlab_class(dataset)
    if kind and kind not in _NUMBERS_OF_MATLAB:
        return f"is {kind}: {NUMBERS}"
    try:
        dtype = _dtype(dataset)
    except (TypeError, ValueError):
        return f"is of a type that NumPy does not have: {NUMBERS}"
    if dataset.shape is None:
        return f"has no values: {NUMBERS}"
    if dtype.kind not in KINDS:
        content = "objects or texts of variable length" if dtype.hasobject else str(dtype)
        content = "references" if h5py.check_ref_dtype(dtype) else content
        return f"holds {content}: {NUMBERS}"
    return None


def _matlab_class(dataset: h5py.Dataset) -> str:
    """The class of a variable of MATLAB; empty for other datasets."""
    kind = dataset.attrs.get("MATLAB_class")
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else ""


def _dtype(dataset: h5py.Dataset) -> np.dtype:
    """The type of the values, in the byte order of this machine; complex for pairs of numbers."""
    dtype = dataset.dtype
    if _is_pair(dtype):
        return np.result_type(dtype["real"], dtype["imag"], np.complex64)
    return dtype.newbyteorder("=")


def _is_pair(dtype: np.dtype) -> bool:
    """Whether a type is a compound of a real and an imaginary part."""
    return dtype.names is not None and {*dtype.names} == {"real", "imag"} and all(
        dtype[part].kind in "iuf" for part in dtype.names
    )  # fmt: skip


def _array(path: Path, name: str, dataset: h5py.Dataset, matlab: bool) -> Array:
    reverse = _is_reversed(dataset, matlab)
    logical = _matlab_class(dataset) == "logical"
    array = Array(
        path,
        name,
        dataset.shape[::-1] if reverse else dataset.shape,
        np.dtype(bool) if logical else _dtype(dataset),
    )
    if dataset.is_virtual or dataset.external is not None:
        problem = "a virtual dataset" if dataset.is_virtual else "stored in another file"
        raise FormatError(f"{array.where} is {problem}: references to other files are refused")
    check_expansion(array, min(dataset.id.get_storage_size(), path.stat().st_size))
    _check_written(array, dataset)
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    if chunk > _LARGEST_CHUNK:
        raise FormatError(
            f"{array.where} has chunks of {chunk:,} bytes: at most {_LARGEST_CHUNK:,}"
        )
    unknown = set(_filters(dataset)) - _KNOWN_FILTERS
    if unknown:
        raise FormatError(
            f"{array.where} has the filter {min(unknown)}: gzip, lzf, shuffle and fletcher32 are "
            "read"
        )
    offset = None if _is_pair(dataset.dtype) else dataset.id.get_offset()
    plain = dataset.id.get_type().equal(h5t.py_create(dataset.dtype, logical=True))
    if offset is None or not plain or dataset.chunks is not None:
        return array
    return replace(array, location=Location(path, offset, "F" if reverse else "C", dataset.dtype))


def _check_written(array: Array, dataset: h5py.Dataset) -> None:
    """Raise FormatError if some values of a dataset were never written."""
    if not array.bytes:
        return
    if dataset.chunks is not None:
        pairs = zip(dataset.shape, dataset.chunks, strict=True)
        chunks = math.prod(-(-n // size) for n, size in pairs)
        written = dataset.id.get_num_chunks()
        if written != chunks:
            raise FormatError(
                f"{array.where} has {chunks - written:,} of {chunks:,} chunks never written"
            )
    elif dataset.id.get_space_status() != h5d.SPACE_STATUS_ALLOCATED:
        raise FormatError(f"{array.where} was never written")


def _is_reversed(dataset: h5py.Dataset, matlab: bool) -> bool:
    return matlab or bool(_matlab_class(dataset))


def _filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def _unpacked(request: Request, array: Array, dataset: h5py.Dataset, matlab: bool) -> Array:
    """Unpack an array block by block to a separate file."""
    filters, target = _filters(dataset), request.target()
    if h5z.FILTER_DEFLATE in filters:
        _check_chunks(array, dataset, filters)
    if array.bytes:
        stored = _dtype(dataset)
        values = np.memmap(target, stored, "w+", shape=dataset.shape or (1,))
        for index in _blocks(dataset):
            block = dataset[index] if dataset.shape else dataset[()]
            if _is_pair(dataset.dtype):
                np.real(values)[index], np.imag(values)[index] = block["real"], block["imag"]
            else:
                values[index] = block
        values.flush()
    else:
        target.touch()
        stored = array.dtype
    order = "F" if _is_reversed(dataset, matlab) else "C"
    return replace(array, location=Location(target, 0, order, stored))


def _blocks(dataset: h5py.Dataset) -> Iterator[Index]:
    if not dataset.shape:
        yield (slice(None),)
        return
    sizes = list(dataset.chunks or [1] * len(dataset.shape))
    for axis in reversed(range(len(sizes))):
        size = math.prod(sizes) * dataset.dtype.itemsize
        sizes[axis] *= max(1, min(_BLOCK // size, -(-dataset.shape[axis] // sizes[axis])))
    starts = [range(0, n, size) for n, size in zip(dataset.shape, sizes, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(slice(k, k + size) for k, size in zip(corner, sizes, strict=True))


def _check_chunks(array: Array, dataset: h5py.Dataset, filters: list[int]) -> None:
    """Raise FormatError if a compressed chunk does not unpack to the size of a chunk."""
    assert dataset.chunks is not None  # filters work on chunks
    position = filters.index(h5z.FILTER_DEFLATE)
    if set(filters[position + 1 :]) - {h5z.FILTER_FLETCHER32}:
        raise FormatError(f"{array.where} has filters after gzip, which cannot be checked")
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    # filters before gzip may add a checksum
    allowed = size + 4 * filters[:position].count(h5z.FILTER_FLETCHER32)
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    for chunk in chunks:
        if chunk.size > 2 * size + 1024:
            raise FormatError(
                f"{array.where} cannot be read: a chunk of {size:,} bytes takes {chunk.size:,}"
            )
        if chunk.filter_mask >> position & 1:  # it is stored uncompressed, with its checksums
            sums = [k for k, number in enumerate(filters) if number == h5z.FILTER_FLETCHER32]
            if chunk.size != size + 4 * sum(not chunk.filter_mask >> k & 1 for k in sums):
                raise FormatError(
                    f"{array.where} cannot be read: a chunk of {size:,} bytes has {chunk.size:,}"
                )
            continue
        _, packed = dataset.id.read_direct_chunk(chunk.chunk_offset)
        unpacked = len(zlib.decompressobj().decompress(packed, allowed + 1))
        if unpacked != allowed:
            relation = "more" if unpacked > allowed else "less"
            raise FormatError(
                f"{array.where} cannot be read: a chunk unpacks to {relation} than {size:,} bytes"
            )
