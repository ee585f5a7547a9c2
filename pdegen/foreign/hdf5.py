"""HDF5 files, MATLAB's version 7.3 among them: datasets read slice by slice.

Nothing is followed out of the file: external links, external storage and virtual datasets are
refused, and so are filters that would load a plugin. Each compressed chunk of a dataset that is
imported is unpacked once with a bound before HDF5 sees it, for HDF5 itself sets none. The library
still parses the file's structure in this process; it cannot promise more than it does there.

MATLAB reverses the order of the axes when it writes HDF5; here they are as in MATLAB.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5o, h5z  # pyright: ignore[reportAttributeAccessIssue]

from pdegen.foreign.arrays import (
    MOST_ARRAYS,
    Array,
    Contents,
    ForeignError,
    Index,
    check_proportion,
)

_LARGEST_CHUNK = 2**28
_LZF = 32000
_KNOWN_FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32, _LZF}
_OWN_OF_MATLAB = {"#refs#", "#subsystem#"}
_NUMBERS_OF_MATLAB = {
    "double", "single", "logical",
    *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
}  # fmt: skip
_DEEPEST = 8


def hdf5(path: Path) -> Contents:
    """The datasets of a file, by their path in it.

    Raises:
        ForeignError: If it is damaged, refers to other files, or claims more than it can hold.
    """
    with path.open("rb") as file:
        matlab = file.read(10) == b"MATLAB 7.3"
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    attributes: dict[str, Any] = {}
    with _opened(path) as file:
        attributes.update(_attributes("", file))
        for name, found in _walked(path, file, "", set()):
            attributes.update(_attributes(name, found))
            if isinstance(found, h5py.Dataset):
                reason = _unreadable(found)
                if reason:
                    unreadable[name] = reason
                else:
                    arrays[name] = _array(path, name, found, matlab)
    return Contents(path, "MATLAB 7.3" if matlab else "HDF5", arrays, unreadable, attributes)


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """The file; what HDF5 says of a damaged one, as one line."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except ForeignError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise ForeignError(
            f"{path.name} cannot be read as HDF5: {' '.join(str(error).split())[:200]}"
        ) from None


def _walked(
    path: Path, group: h5py.Group, prefix: str, seen: set[Any]
) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """All groups and datasets below a group; links that leave it are refused."""
    for key in group:
        name = f"{prefix}{key}"
        if not prefix and key in _OWN_OF_MATLAB:
            continue
        link = group.get(key, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ForeignError(
                f"{path.name}: {name[:80]!r} is a link to elsewhere ({type(link).__name__}): a "
                "file that is imported holds its data itself"
            )
        if key in (".", "..") or len(seen) == MOST_ARRAYS or name.count("/") == _DEEPEST:
            raise ForeignError(f"{path.name}: {name[:80]!r}: no such name, depth or number of them")
        found = group[key]
        place = h5o.get_info(found.id).addr
        if place in seen:
            continue
        seen.add(place)
        if isinstance(found, (h5py.Group, h5py.Dataset)):
            yield name, found
        if isinstance(found, h5py.Group):
            yield from _walked(path, found, f"{name}/", seen)


def _attributes(name: str, found: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """Its attributes that are a text or a number."""
    result = {}
    for key in found.attrs:
        try:
            if found.attrs.get_id(key).shape != ():
                continue
            value = found.attrs[key]
        except (OSError, RuntimeError, TypeError, ValueError):  # of a type that h5py does not know
            continue
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if isinstance(value, (str, np.generic, int, float)):
            result[f"{name}@{key}"] = value[:1000] if isinstance(value, str) else value
    return result


def _unreadable(dataset: h5py.Dataset) -> str | None:
    """Why a dataset is no array of numbers, if it is none."""
    kind = dataset.attrs.get("MATLAB_class")
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else None
    if kind is not None and kind not in _NUMBERS_OF_MATLAB:
        return f"is {kind}: arrays of real numbers can be imported"
    try:
        dtype = dataset.dtype
    except (TypeError, ValueError):
        return "is of a type that NumPy does not have: arrays of real numbers can be imported"
    if dtype.kind not in "biuf" or dataset.shape is None:
        what = "objects or texts of any length" if dtype.hasobject else str(dtype)
        return f"holds {what}: arrays of real numbers can be imported"
    return None


def _array(path: Path, name: str, dataset: h5py.Dataset, matlab: bool) -> HdfArray:
    if dataset.is_virtual or dataset.external is not None:
        what = "a virtual dataset" if dataset.is_virtual else "stored in another file"
        raise ForeignError(f"{path.name}: {name} is {what}: it would read other files")
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    held = min(dataset.id.get_storage_size(), path.stat().st_size)
    check_proportion(f"{path.name}: {name}", claimed, held)
    if dataset.chunks is not None:
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
        if chunk > _LARGEST_CHUNK:
            raise ForeignError(
                f"{path.name}: {name} has chunks of {chunk:,} bytes: at most {_LARGEST_CHUNK:,}"
            )
    unknown = set(_filters(dataset)) - _KNOWN_FILTERS
    if unknown:
        raise ForeignError(
            f"{path.name}: {name} has the filter {min(unknown)}: gzip, lzf, shuffle and fletcher32 "
            "are read"
        )
    reverse = matlab or "MATLAB_class" in dataset.attrs
    shape = dataset.shape[::-1] if reverse else dataset.shape
    logical = dataset.attrs.get("MATLAB_class") == b"logical"
    dtype = np.dtype(bool) if logical else dataset.dtype.newbyteorder("=")
    return HdfArray(path, name, shape, dtype, reverse)


def _filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


@dataclass(frozen=True)
class HdfArray(Array):
    """A dataset.

    Args:
        reverse: Whether the order of its axes is reversed to that in HDF5.
    """

    reverse: bool

    def read(self, index: Index) -> np.ndarray:
        with _opened(self.path) as file:
            dataset = self._dataset(file)
            if self.reverse:
                return np.asarray(dataset[index[::-1]], self.dtype).T
            return np.asarray(dataset[index], self.dtype)

    def _dataset(self, file: h5py.File) -> h5py.Dataset:
        dataset = file[self.name]
        assert isinstance(dataset, h5py.Dataset)
        return dataset

    def ready(self, folder: Path) -> HdfArray:
        """Checks every compressed chunk: it unpacks to one chunk and no more."""
        with _opened(self.path) as file:
            dataset = self._dataset(file)
            filters = _filters(dataset)
            if h5z.FILTER_DEFLATE in filters:
                self._check_chunks(dataset, filters)
        return self

    def _check_chunks(self, dataset: h5py.Dataset, filters: list[int]) -> None:
        assert dataset.chunks is not None  # filters work on chunks
        position = filters.index(h5z.FILTER_DEFLATE)
        if set(filters[position + 1 :]) - {h5z.FILTER_FLETCHER32}:
            raise ForeignError(f"{self.where} has filters after gzip, which cannot be checked")
        size = math.prod(dataset.chunks) * dataset.dtype.itemsize
        # what filters before gzip may add: a checksum
        allowed = size + 4 * filters[:position].count(h5z.FILTER_FLETCHER32)
        chunks: list[Any] = []
        dataset.id.chunk_iter(chunks.append)
        for chunk in chunks:
            if chunk.size > 2 * size + 1024:
                raise ForeignError(f"{self.where}: a chunk of {size:,} bytes takes {chunk.size:,}")
            if chunk.filter_mask >> position & 1:
                continue
            _, packed = dataset.id.read_direct_chunk(chunk.chunk_offset)
            unpacker = zlib.decompressobj()
            try:
                unpacked = len(unpacker.decompress(packed, allowed + 1))
            except zlib.error as error:
                raise ForeignError(f"{self.where}: a chunk is damaged ({error})") from None
            if unpacked != allowed:
                what = "more" if unpacked > allowed else "less"
                raise ForeignError(f"{self.where}: a chunk unpacks to {what} than {size:,} bytes")
