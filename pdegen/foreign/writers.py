"""Arrays into files, filled slice by slice: MATLAB 5 and 7.3, .npy, HDF5, .pt."""

from __future__ import annotations

import importlib
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np


@dataclass(frozen=True)
class Declared:
    """An array that is to be written: shape and type."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Sink(ABC):
    """Where the values of one array go."""

    @abstractmethod
    def put(self, start: int, values: np.ndarray) -> None:
        """Write values from a place of the first axis on; arrays without axes as a whole."""


@dataclass(frozen=True)
class Mapped(Sink):
    """A mapped array."""

    target: np.ndarray

    def put(self, start: int, values: np.ndarray) -> None:
        if values.ndim == 0:
            self.target[...] = values
        else:
            self.target[start : start + len(values)] = values


@contextmanager
def npy_folder(path: Path, arrays: Mapping[str, Declared]) -> Iterator[dict[str, Sink]]:
    """A folder with a file NAME.npy of each array."""
    path.mkdir()
    yield {
        name: Mapped(
            np.lib.format.open_memmap(
                path / f"{name}.npy", mode="w+", dtype=array.dtype, shape=array.shape
            )
        )
        for name, array in arrays.items()
    }


@contextmanager
def hdf5_file(path: Path, arrays: Mapping[str, Declared]) -> Iterator[dict[str, Sink]]:
    """Datasets of the same names."""
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        yield {
            name: Dataset(file.create_dataset(name, array.shape, array.dtype), reverse=False)
            for name, array in arrays.items()
        }


@dataclass(frozen=True)
class Dataset(Sink):
    """A dataset of HDF5, its axes reversed where MATLAB reads it."""

    target: h5py.Dataset
    reverse: bool

    def put(self, start: int, values: np.ndarray) -> None:
        if values.ndim == 0:
            self.target[...] = values
        elif self.reverse:
            self.target[..., start : start + len(values)] = _columns(values).T
        else:
            self.target[start : start + len(values)] = values


_MATLAB_CLASSES = {"float64": "double", "float32": "single", "bool": "logical"}


@contextmanager
def mat73_file(path: Path, arrays: Mapping[str, Declared]) -> Iterator[dict[str, Sink]]:
    """MATLAB 7.3: HDF5 after a header of 512 bytes, the axes reversed, at least two of them."""
    sinks = {}
    with h5py.File(path, "w", userblock_size=512, libver=("earliest", "v108")) as file:
        for name, array in arrays.items():
            stored = np.dtype("u1") if array.dtype == bool else array.dtype
            target = file.create_dataset(name, _at_least_two(array.shape)[::-1], stored)
            word = _MATLAB_CLASSES.get(array.dtype.name, array.dtype.name)
            target.attrs["MATLAB_class"] = np.bytes_(word)
            if array.dtype == bool:
                target.attrs["MATLAB_int_decode"] = np.int32(1)
            sinks[name] = Dataset(target, reverse=True)
        yield sinks
    with path.open("r+b") as file:
        file.write(_header("MATLAB 7.3 MAT-file, written by pdegen", 0x0200))


_MATLAB_TYPES = {  # class and type of the numbers
    "float64": (6, 9), "float32": (7, 7), "int8": (8, 1), "uint8": (9, 2), "int16": (10, 3),
    "uint16": (11, 4), "int32": (12, 5), "uint32": (13, 6), "int64": (14, 12),
    "uint64": (15, 13), "bool": (9, 2),
}  # fmt: skip
_LOGICAL = 0x0200


@contextmanager
def mat5_file(path: Path, arrays: Mapping[str, Declared]) -> Iterator[dict[str, Sink]]:
    """MATLAB 5, not compressed: the first axis is the fastest, at least two of them."""
    places = {}
    with path.open("wb") as file:
        file.write(_header("MATLAB 5.0 MAT-file, written by pdegen", 0x0100))
        for name, array in arrays.items():
            file.write(_described(name, array))
            places[name] = file.tell()
            file.seek(array.bytes + -array.bytes % 8, 1)
        file.truncate()
    yield {
        name: Mapped(np.memmap(path, array.dtype, "r+", places[name], array.shape or (1,), "F"))
        for name, array in arrays.items()
    }


def _header(text: str, version: int) -> bytes:
    return text.encode().ljust(116) + bytes(8) + struct.pack("<H", version) + b"IM"


def _described(name: str, array: Declared) -> bytes:
    """All of an element but its numbers. Format: "MAT-File Format", The MathWorks, chapter 1."""
    shape, text = _at_least_two(array.shape), name.encode()
    array_class, number = _MATLAB_TYPES[array.dtype.name]
    flags = array_class | (_LOGICAL if array.dtype == bool else 0)
    parts = (
        struct.pack("<IIII", 6, 8, flags, 0)
        + struct.pack("<II", 5, 4 * len(shape))
        + struct.pack(f"<{len(shape)}i", *shape).ljust(-(-len(shape) // 2) * 8, b"\0")
        + struct.pack("<II", 1, len(text))
        + text.ljust(-(-len(text) // 8) * 8, b"\0")
        + struct.pack("<II", number, array.bytes)
    )
    return struct.pack("<II", 14, len(parts) + array.bytes + -array.bytes % 8) + parts


def _at_least_two(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, *[1] * (2 - len(shape)))


def _columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(_at_least_two(values.shape))


@contextmanager
def pt_file(path: Path, arrays: Mapping[str, Declared]) -> Iterator[dict[str, Sink]]:
    """PyTorch: a dictionary of tensors, which lie in mapped files until they are saved."""
    torch = _torch()
    folder = path.with_suffix(".tensors")
    mapped: dict[str, Any] = {}
    try:
        with npy_folder(folder, arrays) as sinks:
            yield sinks
        for name in arrays:
            values = np.load(folder / f"{name}.npy", mmap_mode="r+", allow_pickle=False)
            mapped[name] = torch.from_numpy(values)
        torch.save(mapped, path)
    finally:
        mapped.clear()
        for name in arrays:
            (folder / f"{name}.npy").unlink(missing_ok=True)
        folder.rmdir()


def _torch() -> Any:
    """PyTorch, which is needed only to write its files."""
    return importlib.import_module("torch")
