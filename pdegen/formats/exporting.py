"""Lossless export of a sealed store to a file or folder in another format."""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
import struct
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from scipy.io import savemat

from pdegen.domains import NAMES, Box, Cloud, Domain
from pdegen.files import MANIFEST, check_room, enclosing_store, is_url, note_all, start_manifest
from pdegen.formats.arrays import KEY, MARK, WRITTEN, Contents, Digest, FormatError
from pdegen.formats.export_metadata import (
    FILE,
    description,
    encoded,
    exported_plan,
    file_faults,
    folder_contents,
    folder_metadata,
    is_export,
)
from pdegen.formats.huggingface import CARD, RecipeText, check_huggingface, huggingface_folder
from pdegen.formats.plan import check_replaceable, replacing
from pdegen.formats.sandbox import open_file, unpacked
from pdegen.generation.generate import Progress
from pdegen.schema import near
from pdegen.store.reading import Store, open_sealed
from pdegen.store.writing import Fault

# Writers of MATLAB 5, MATLAB 7.3, .npy, HDF5, .pt, netCDF-3 and VTU files. Arrays are written slice
# by slice.


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array to write."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Sink(ABC):
    """A destination for the values of one array."""

    @abstractmethod
    def put(self, start: int, values: np.ndarray) -> None:
        """Write values along the first axis, beginning at index `start`. An array without axes is
        written in one call."""


@dataclass(frozen=True)
class MappedSink(Sink):
    """A sink that writes to a memory-mapped array."""

    target: np.ndarray

    def put(self, start: int, values: np.ndarray) -> None:
        if values.ndim == 0:
            self.target[...] = values
        else:
            self.target[start : start + len(values)] = values


@contextmanager
def npy_folder(path: Path, arrays: Mapping[str, ArraySpec]) -> Iterator[dict[str, Sink]]:
    """Write a folder with one file NAME.npy for each array."""
    path.mkdir()
    yield {
        name: MappedSink(
            np.lib.format.open_memmap(
                path / f"{name}.npy", mode="w+", dtype=array.dtype, shape=array.shape
            )
        )
        for name, array in arrays.items()
    }


@contextmanager
def hdf5_file(path: Path, arrays: Mapping[str, ArraySpec]) -> Iterator[dict[str, Sink]]:
    """Write an HDF5 file with one dataset for each array. Datasets have the names of the arrays."""
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        _mark(file)
        yield {
            name: DatasetSink(file.create_dataset(name, array.shape, array.dtype), reverse=False)
            for name, array in arrays.items()
        }


@dataclass(frozen=True)
class DatasetSink(Sink):
    """A sink that writes to an HDF5 dataset. For MATLAB, it reverses the axes."""

    target: h5py.Dataset
    reverse: bool

    def put(self, start: int, values: np.ndarray) -> None:
        if values.ndim == 0:
            self.target[...] = values
        elif self.reverse:
            columns = values.reshape(_at_least_two(values.shape))
            self.target[..., start : start + len(values)] = columns.T
        else:
            self.target[start : start + len(values)] = values


def _mark(file: h5py.File) -> None:
    """Add the attribute by which an import recognises an export with damaged metadata."""
    file.attrs[KEY] = np.bytes_(MARK)


_MATLAB_CLASSES = {"float64": "double", "float32": "single", "bool": "logical"}


@contextmanager
def mat73_file(path: Path, arrays: Mapping[str, ArraySpec]) -> Iterator[dict[str, Sink]]:
    """Write a MATLAB 7.3 file, which is HDF5 after a header of 512 bytes. Arrays have at least two
    axes, in reversed order."""
    sinks = {}
    with h5py.File(path, "w", userblock_size=512, libver=("earliest", "v108")) as file:
        _mark(file)
        for name, array in arrays.items():
            stored = np.dtype("u1") if array.dtype == bool else array.dtype
            target = file.create_dataset(name, _at_least_two(array.shape)[::-1], stored)
            matlab_class = _MATLAB_CLASSES.get(array.dtype.name, array.dtype.name)
            target.attrs["MATLAB_class"] = np.bytes_(matlab_class)
            if array.dtype == bool:
                target.attrs["MATLAB_int_decode"] = np.int32(1)
            sinks[name] = DatasetSink(target, reverse=True)
        yield sinks
    with path.open("r+b") as file:
        file.write(_header(f"MATLAB 7.3 MAT-file, {WRITTEN}", 0x0200))


@contextmanager
def mat5_file(path: Path, arrays: Mapping[str, ArraySpec]) -> Iterator[dict[str, Sink]]:
    """Write a MATLAB 5 file with SciPy. Arrays have at least two axes. One array at a time is in
    memory."""
    options = {"appendmat": False, "oned_as": "column"}
    with _saved(path, arrays, lambda mapped: savemat(path, mapped, **options)) as sinks:
        yield sinks
    with path.open(
        "r+b"
    ) as file:  # the header of SciPy has the time, which would make exports differ
        file.write(_header(f"MATLAB 5.0 MAT-file, {WRITTEN}", 0x0100))


def _header(text: str, version: int) -> bytes:
    return text.encode().ljust(116) + bytes(8) + struct.pack("<H", version) + b"IM"


def _at_least_two(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, *[1] * (2 - len(shape)))


@contextmanager
def pt_file(path: Path, arrays: Mapping[str, ArraySpec]) -> Iterator[dict[str, Sink]]:
    """Write a PyTorch file with a dictionary of tensors."""
    torch: Any = importlib.import_module("torch")  # imported for this format alone

    def save(mapped: dict[str, np.ndarray]) -> None:
        torch.save({name: torch.from_numpy(values) for name, values in mapped.items()}, path)

    with _saved(path, arrays, save) as sinks:
        yield sinks


@contextmanager
def _saved(
    path: Path, arrays: Mapping[str, ArraySpec], save: Callable[[dict[str, np.ndarray]], None]
) -> Iterator[dict[str, Sink]]:
    """Yield sinks that write to memory-mapped files, which `save` receives at the end as arrays."""
    folder = path.with_suffix(".arrays")
    mapped: dict[str, np.ndarray] = {}
    try:
        with npy_folder(folder, arrays) as sinks:
            yield sinks
        for name in arrays:
            mapped[name] = np.load(folder / f"{name}.npy", mmap_mode="r+", allow_pickle=False)
        save(mapped)
    finally:
        mapped.clear()
        shutil.rmtree(folder)


_SIGNED = {"bool": "i1", "uint8": "i1", "uint16": "i2", "uint32": "i4"}  # in netCDF-3


@contextmanager
def netcdf_file(
    store: Store, path: Path, arrays: Mapping[str, ArraySpec]
) -> Iterator[dict[str, Sink]]:
    """Write a netCDF-3 file with xarray: dimensions, positions, times and units by the CF
    conventions. netCDF-3 has signed integers of at most 32 bits, so the attribute `dtype` of other
    arrays states their type. All arrays are in memory at the end."""
    metadata = store.description.zarr_metadata

    def variable(name: str, values: np.ndarray) -> xr.Variable:
        dims, attributes = [KEY], dict[str, Any]()
        if name != KEY:
            dims = metadata[name].get("dimension_names") or []
            plain = metadata[name]["attributes"].items()
            attributes = {key: value for key, value in plain if type(value) in (str, float)}
        stored = values
        if values.dtype.name in _SIGNED:
            stored = values.view(_SIGNED[values.dtype.name])
        elif values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            stored = values.astype("i4")
            if not np.array_equal(stored, values):
                raise FormatError(f"{name} has integers of more than 32 bits: netCDF-3 has none")
        if stored.dtype != values.dtype:
            attributes["dtype"] = values.dtype.name
        return xr.Variable(dims, stored, attributes, {"_FillValue": None})

    def save(mapped: dict[str, np.ndarray]) -> None:
        title = store.raw_attributes["title"]
        about = {"Conventions": "CF-1.11", "title": title, "source": WRITTEN, KEY: MARK}
        variables = {name: variable(name, values) for name, values in mapped.items()}
        xr.Dataset(variables, attrs=about).to_netcdf(path, format="NETCDF3_64BIT", engine="scipy")

    for name, array in arrays.items():
        if array.bytes >= _LARGEST_NETCDF:
            raise FormatError(f"{name} has {array.bytes:,} bytes, too many for netCDF-3: use hdf5")
    with _saved(path, arrays, save) as sinks:
        yield sinks


@contextmanager
def vtu_folder(
    store: Store, path: Path, arrays: Mapping[str, ArraySpec]
) -> Iterator[dict[str, Sink]]:
    """Write a folder with a VTU file for each sample, which has the functions on its points, and
    files NAME.npy of the other arrays. Times and channels are components: the function u(t, c, i)
    has the component t + T c at the point i. Points of a curvilinear mesh count along x first."""
    described = store.description
    axes = max(map(described.axes_of, described.variables.values()), key=len)
    domain = store.domain(axes)
    if isinstance(domain, Box):
        raise FormatError(f"{store.url} is on a grid: vtu holds clouds and meshes, nc holds grids")
    try:
        meshio: Any = importlib.import_module("meshio")
    except ImportError:
        raise FormatError(
            "--format vtu needs meshio: pip install 'pdegen-operators[meshes]'"
        ) from None
    functions = [name for name in arrays if name in store.variables and domain.axes == (
        described.axes_of(described.variables[name]))]  # fmt: skip

    def save(mapped: dict[str, np.ndarray]) -> None:
        path.mkdir()
        for name in mapped.keys() - {*functions}:
            np.save(path / f"{name}.npy", mapped[name])
        cells, count = _vtu_cells(domain), math.prod(domain.shape)
        for k in range(store.samples):
            own = {name: mapped[name][k].T.reshape(count, -1) for name in functions}
            points = np.zeros((3, count))
            points[: domain.dim] = [
                (mapped[axis][k] if domain.moves else domain.points[..., i]).T.ravel()
                for i, axis in enumerate(NAMES[: domain.dim])
            ]
            mesh = meshio.Mesh(points.T, cells, own)
            meshio.write(path / f"sample{k:06d}.vtu", mesh)

    with _saved(path, arrays, save) as sinks:
        yield sinks


def _vtu_cells(domain: Domain) -> list[tuple[str, np.ndarray]]:
    """The cells of a domain, as meshio has them; its points if there are none."""
    count = math.prod(domain.shape)
    if isinstance(domain, Cloud) and domain.cells is not None:
        corners = (domain.cells >= 0).sum(axis=1)
        return [
            ({3: "triangle", 4: "quad"}.get(n, "polygon"), domain.cells[corners == n, :n])
            for n in map(int, np.unique(corners))
        ]
    if len(domain.shape) == 2:
        number = np.arange(count).reshape(domain.shape[::-1]).T
        ring = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
        return [("quad", np.stack([corner.ravel() for corner in ring], axis=-1))]
    return [("vertex", np.arange(count)[:, None])]


_HUB = "huggingface"
FORMATS = ("mat", "npy", "hdf5", "pt", "nc", "vtu", _HUB)
_FOLDERS = ("npy", "vtu")  # formats of folders that have arrays of their own
# names that identify an exported folder
_MARKS = {"npy": (FILE,), "vtu": (FILE,), _HUB: (CARD, "data")}

_Writer = Callable[[Path, Mapping[str, ArraySpec]], AbstractContextManager[dict[str, Sink]]]
_MATLAB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_LARGEST_MAT5 = 2**31  # largest variable of MATLAB 5 in bytes
_LARGEST_NETCDF = 2**31  # and of netCDF-3, as SciPy writes it


def export(
    url: str,
    format: str,
    path: Path | str,
    *,
    overwrite: bool = False,
    recipe_text: RecipeText | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Write a sealed store to a file or folder in another format.

    Each array keeps its name. The metadata of the store are written as JSON, to an array of bytes
    with the name "pdegen". The formats "npy" and "vtu" write them to the file pdegen.json instead.
    The metadata contain the SHA-256 of each array and of themselves. `import_files` restores the
    same variables, coordinates and splits, bit for bit, or refuses a modified file; `verify_export`
    checks a file or folder. The folder of "huggingface", which `datasets.load_dataset` reads, also
    has pdegen.json, with the SHA-256 of each file. It leaves out samples that were skipped or are
    in no split, and an import numbers the others anew. The write is atomic: an older file is
    replaced only when the new one is complete (`pdegen.formats.plan`).

    Args:
        url: Path or URL of a sealed store.
        format: "mat" is MATLAB 5, or MATLAB 7.3 if a variable has 2 GiB or more; the axes have the
            order of the store. "hdf5" is HDF5, "nc" netCDF-3. "pt" is a dictionary of tensors.
            "npy" is a folder with a file for each array, and "vtu" one with a mesh for each sample,
            of stores on a cloud or mesh. "huggingface" is a folder with Parquet tables and a card.
        path: Path of the file or folder to write.
        overwrite: Whether an earlier export is replaced.
        recipe_text: Text about the recipe, which the card of "huggingface" shows.
        progress: Called after each shard.

    Returns:
        The path of the written file or folder.

    Raises:
        FormatError: If `path` is occupied, or if the format is unknown or does not allow the name
            of an array.
        StoreError: If the store cannot be read or is damaged.
        OSError: If the path cannot be written or has no room.
    """
    if format not in FORMATS:
        raise FormatError(f"no format {format!r}: {near(format, [*FORMATS])}")
    path = Path(path)
    if "\0" in str(path):
        raise FormatError("the path of a file has no NUL character")
    store = open_sealed(url)
    _check_free(path, format, overwrite)
    if format == _HUB:
        return _export_hub(store, path, overwrite, recipe_text or RecipeText(), progress)
    arrays = _specs(store) | (_metadata_spec(store) if format not in _FOLDERS else {})
    writer = _writer(store, format, arrays)
    buffered = writer not in (npy_folder, hdf5_file, mat73_file)  # they need a second copy on disk
    need = sum(array.bytes for array in arrays.values()) * (2 if buffered else 1)
    with replacing(path) as new:
        _check_free(path, format, overwrite)  # again, as an older file may have been restored
        check_room(path.absolute().parent, need, ": the file takes")
        with writer(new, arrays) as sinks:
            text = encoded(description(store, _fill(store, sinks, progress)))
            if format not in _FOLDERS:
                sinks[KEY].put(0, text)
        if format in _FOLDERS:
            (new / FILE).write_bytes(text.tobytes())
            _note_files(new)
    return path


def _export_hub(
    store: Store,
    path: Path,
    overwrite: bool,
    recipe_text: RecipeText,
    progress: Callable[[Progress], None],
) -> Path:
    check_huggingface(store)
    with replacing(path) as new:
        _check_free(path, _HUB, overwrite)  # again, as an older file may have been restored
        need = sum(array.bytes for array in _specs(store).values())
        check_room(path.absolute().parent, need, ": the folder takes up to")
        huggingface_folder(store, new, recipe_text, progress)
        _note_files(new)
    return path


def _note_files(folder: Path) -> None:
    start_manifest(folder)
    note_all(folder)


def _specs(store: Store) -> dict[str, ArraySpec]:
    return {
        name: ArraySpec(array.shape, array.dtype) for name, array in sorted(store.arrays.items())
    }


def _metadata_spec(store: Store) -> dict[str, ArraySpec]:
    """Shape and dtype of the array that stores the metadata."""
    text = encoded(description(store, dict.fromkeys(store.arrays, "0" * 64)))
    return {KEY: ArraySpec(text.shape, text.dtype)}


def _check_free(path: Path, format: str, overwrite: bool) -> None:
    if is_url(path):
        raise FormatError(
            f"{path}: an export is written to a local path, not to a URL: write it there, then "
            "copy it"
        )
    if around := enclosing_store(path):
        raise FormatError(f"{around} is a store and takes no other files: choose another --out")
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise FormatError(f"{path} exists: use --overwrite to replace it")
    marks = _MARKS.get(format)
    if marks is None:
        try:
            exported = path.is_file() and not verify_export(path)  # exported and not modified
        except FormatError:
            exported = False
    else:
        exported = all((path / mark).exists() for mark in (*marks, MANIFEST))
    if not exported or path.is_symlink():
        kind = "file" if marks is None else "folder"
        changed = ", or it was changed since" if path.is_file() else ""
        raise FormatError(f"{path} is not an exported {kind}{changed}: it is not replaced")
    if marks is not None:
        check_replaceable(path)


def verify_export(path: Path) -> list[Fault]:
    """Check that a file or folder is as `export` has written it. In a folder for Hugging Face, all
    files are compared with their SHA-256. In other exports, the values of all arrays are.

    Returns:
        The faults; empty if there are none.

    Raises:
        FormatError: If `path` was not exported by pdegen, or cannot be read as an export.
        OSError: If a file cannot be read.
    """
    if path.is_dir():
        metadata = folder_metadata(path)[1]
        if metadata.files:
            return [Fault(*fault) for fault in file_faults(path, metadata)]
    with tempfile.TemporaryDirectory(prefix="pdegen-") as name:
        scratch = Path(name)
        contents = None if path.is_dir() else _contents(path, scratch)
        try:
            plan = exported_plan([contents or folder_contents(path, scratch)[0]])
            assert plan is not None  # it is an export
            for field in plan.reading(unpacked(plan.arrays, scratch)).fields:
                field.check()
        except FormatError as error:
            return [Fault("arrays", str(error).removeprefix(f"{path.name}: "))]
    return []


def _contents(path: Path, scratch: Path) -> Contents:
    """The contents of an exported file. Raises FormatError if the file is no export."""
    try:
        contents = open_file(path, scratch)
    except FormatError as error:
        raise FormatError(f"{path} is neither a store nor an export: {error}") from None
    if not is_export(contents):
        raise FormatError(
            f"{path} is neither a store nor an export: pdegen has not written its digests"
        )
    return contents


def _writer(store: Store, format: str, arrays: Mapping[str, ArraySpec]) -> _Writer:
    if format == "mat":
        for name in arrays:
            if not _MATLAB_NAME.fullmatch(name):
                raise FormatError(f"{store.url}: {name} is not a valid name of a MATLAB variable")
        large = any(array.bytes >= _LARGEST_MAT5 for array in arrays.values())
        return mat73_file if large else mat5_file
    if format in ("nc", "vtu"):
        return partial(netcdf_file if format == "nc" else vtu_folder, store)
    return {"npy": npy_folder, "hdf5": hdf5_file, "pt": pt_file}[format]


def _fill(
    store: Store, sinks: Mapping[str, Sink], progress: Callable[[Progress], None]
) -> dict[str, str]:
    """Write the values of all arrays."""
    start = time.monotonic()
    digests = {name: Digest() for name in store.arrays}
    for name in store.arrays:
        if name not in store.variables:
            values = store.values(name)
            digests[name].add(values)
            sinks[name].put(0, values)
    for shard in range(store.shards):
        samples = store.shard_range(shard)
        for name in store.variables:
            values = store.values(name, samples)
            digests[name].add(values)
            sinks[name].put(samples.start, values)
        progress(Progress(shard + 1, store.shards, time.monotonic() - start))
    return {name: digest.hex for name, digest in digests.items()}
