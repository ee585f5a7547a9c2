"""Writers of MATLAB 5, MATLAB 7.3, .npy, HDF5 and .pt files. Arrays are written slice by slice."""

from __future__ import annotations

import importlib
import math
import shutil
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat

from pdegen.formats.arrays import KEY, MARK, WRITTEN


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
            self.target[..., start : start + len(values)] = _columns(values).T
        else:
            self.target[start : start + len(values)] = values


def _mark(file: h5py.File) -> None:
    """Add the attribute by which an import recognises exported files even if the metadata are
    damaged."""
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


def _columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(_at_least_two(values.shape))


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
    """Yield sinks that write the arrays to memory-mapped files in a temporary folder with the
    suffix .arrays. At the end of the context, pass the arrays to `save` and remove the folder."""
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
