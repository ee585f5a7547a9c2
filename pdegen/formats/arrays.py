"""Arrays of a file, mapped and read slice by slice; and what is refused of any file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Index = tuple[slice, ...]

# deflate makes at most 1032 bytes of one: who claims more does not describe the file
LARGEST_EXPANSION = 1100
SMALL_BYTES = 2**24  # of an array that is read as a whole, such as a coordinate
MOST_ARRAYS = 10_000
# of files that were exported: the array of bytes that says what they are, and a second mark
KEY, MARK, WRITTEN = "pdegen", "export", "written by pdegen"
REAL = "arrays of real numbers can be imported"

_PART = r"[A-Za-z0-9_][A-Za-z0-9_ .,=+-]{0,127}"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,7}}")


class FormatError(ValueError):
    """A file that cannot be imported, or a store that cannot be exported; one line."""

    exit_status = 2


@dataclass(frozen=True)
class Location:
    """Numbers that lie in a file one after the other."""

    file: Path  # the file; that of the array, or one that the array was unpacked to
    offset: int  # the first byte
    order: Literal["C", "F"]  # "C", the last axis is the fastest; or "F", the first one
    stored: np.dtype  # type of the numbers, in the byte order of the file


@dataclass(frozen=True)
class Array:
    """An array of a file; no value of it is in memory before it is read. Raises FormatError if the
    name could be taken for a path, the numbers are of another kind than bool, integer and float, or
    the file is shorter than the array."""

    path: Path  # the file
    name: str  # name in the file
    # shape, dtype: as in the file; the dtype in the byte order of this machine
    shape: tuple[int, ...]
    dtype: np.dtype
    place: Location | None = None  # where the numbers lie; None before they are unpacked

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FormatError(
                f"{self.path.name}: an array is named {self.name[:80]!r}: names are letters, "
                "digits and _ .,=+-, in groups parted by /"
            )
        if self.dtype.kind not in "biuf":
            raise FormatError(
                f"{self.where} is of type {self.dtype}: bool, integers and floats can be imported"
            )
        if any(n < 0 for n in self.shape):
            raise FormatError(f"{self.where} has the impossible shape {self.shape}")
        if self.place is not None:
            need = self.place.offset + math.prod(self.shape) * self.place.stored.itemsize
            size = self.place.file.stat().st_size
            if need > size:
                raise FormatError(
                    f"{self.where} of shape {self.shape} ends at byte {need:,}, the file has "
                    f"{size:,}: it is cut off"
                )

    @property
    def where(self) -> str:
        """File and name, for errors."""
        return f"{self.path.name}: {self.name}"

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, index: Index) -> np.ndarray:
        """The values of a slice of each axis."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)[index]
        assert self.place is not None, f"{self.where} is not unpacked"
        at = self.place
        values = np.memmap(at.file, at.stored, "r", at.offset, self.shape, at.order)
        return values[index].astype(self.dtype)

    def values(self) -> np.ndarray:
        """All values of a small array, such as a coordinate. Raises FormatError if it is large."""
        if self.bytes > SMALL_BYTES or self.place is None:
            raise FormatError(
                f"{self.where} has {self.bytes:,} bytes: a coordinate has at most {SMALL_BYTES:,}"
            )
        return self.read(tuple(slice(None) for _ in self.shape))

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"


@dataclass(frozen=True)
class Contents:
    """What a file holds."""

    path: Path  # the file, or the folder of several
    format: str  # its format, for people
    arrays: Mapping[str, Array]  # arrays of numbers by name
    # what else it holds by name, and why it is no array of numbers
    unreadable: Mapping[str, str] = field(default_factory=dict)
    # texts and numbers that it says of itself, by "group@attribute"
    attributes: Mapping[str, str | float] = field(default_factory=dict)

    def array(self, name: str) -> Array:
        """An array by name. Raises FormatError if there is none; it lists what there is."""
        if name in self.unreadable:
            raise FormatError(f"{self.path.name}: {name} {self.unreadable[name]}")
        if name not in self.arrays:
            raise FormatError(f"{self.path.name} has no array {name!r}: {self.summary}")
        return self.arrays[name]

    @property
    def summary(self) -> str:
        """What it holds, in one line."""
        arrays = [str(array) for array in self.arrays.values()]
        others = [f"{name} (which {why})" for name, why in self.unreadable.items()]
        shown = [*arrays, *others][:20]
        more = len(arrays) + len(others) - len(shown)
        rest = f" and {more} more" if more else ""
        return f"{self.path.name} ({self.format}) holds {', '.join(shown) or 'nothing'}{rest}"


def check_proportion(array: Array, held: int) -> None:
    """Raise FormatError where the values of an array cannot come from so few bytes of a file."""
    if array.bytes > LARGEST_EXPANSION * max(held, 1):
        raise FormatError(
            f"{array.where} claims {array.bytes:,} bytes from {held:,} in the file: at most "
            f"{LARGEST_EXPANSION} times as many are unpacked"
        )


def printable(text: object) -> str:
    """A text of a file in one line for people.

    >>> printable("two\\nlines")
    'two lines'
    """
    line = " ".join(str(text).split())[:200]
    return line if line.isprintable() else ascii(line)
