"""MATLAB's version 5 files, walked element by element.

MATLAB stores the first axis fastest, which here is that of the samples, so a slice of samples lies
all over a variable. Uncompressed variables are mapped. Of a compressed one nothing can be read but
from its beginning; so it is unpacked once to a temporary file, which is mapped: memory stays
bounded, and the disk takes the variable's size. (`scipy.io.loadmat` would take that in memory.)

Format: "MAT-File Format", The MathWorks, chapter 1.
"""

from __future__ import annotations

import errno
import math
import shutil
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pdegen.foreign.arrays import (
    MOST_ARRAYS,
    Array,
    Contents,
    FlatArray,
    ForeignError,
    Index,
    check_proportion,
)

_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_NUMBERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
_KINDS = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 16: "function"}
_COMPLEX, _LOGICAL = 0x08, 0x02
_HEADER = 128
_HEAD = 4096  # bytes that hold the description of any variable
_PIECE = 2**20
_PADDING = 64  # more than follows the numbers of a variable


def mat5(path: Path) -> Contents:
    """The variables of a file, in MATLAB's order of axes.

    Raises:
        ForeignError: If it is damaged or cut off, or claims more than it can hold.
    """
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        order = _byte_order(path, file.read(_HEADER))
        place = _HEADER
        while place < size:
            file.seek(place)
            tag = file.read(8)
            if len(tag) < 8:
                raise _cut_off(path)
            kind, length = struct.unpack(f"{order}II", tag)
            if place + 8 + length > size:
                raise _cut_off(path)
            if kind not in (_MATRIX, _COMPRESSED):
                raise ForeignError(f"{path.name}: an element of the unknown type {kind}")
            if len(arrays) + len(unreadable) == MOST_ARRAYS:
                raise ForeignError(f"{path.name} has more than {MOST_ARRAYS:,} variables")
            found = _variable(path, file, order, kind == _COMPRESSED, place, length)
            if isinstance(found, Array):
                arrays[found.name] = found
            elif found is not None:
                unreadable[found[0]] = found[1]
            place += 8 + length
    return Contents(path, "MATLAB 5", arrays, unreadable)


def _byte_order(path: Path, header: bytes) -> str:
    """ "<" or ">", for `struct` and NumPy."""
    if len(header) < _HEADER:
        raise _cut_off(path)
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if order is None or struct.unpack(f"{order}H", header[124:126])[0] != 0x0100:
        raise ForeignError(f"{path.name} is no MATLAB file of version 5 or 7.3")
    return order


def _cut_off(path: Path) -> ForeignError:
    return ForeignError(f"{path.name} is cut off: its last element is not whole")


def _variable(
    path: Path, file: BinaryIO, order: str, compressed: bool, place: int, length: int
) -> Array | tuple[str, str] | None:
    """The array of an element; or name and reason where it is none; or None without a name."""
    if compressed:
        packed = file.read(min(length, _HEAD))
        try:
            head = zlib.decompressobj().decompress(packed, _HEAD)
        except zlib.error as error:
            raise ForeignError(f"{path.name}: an element is damaged ({error})") from None
        if len(head) < 8 or struct.unpack_from(f"{order}I", head)[0] != _MATRIX:
            raise ForeignError(f"{path.name}: a compressed element holds no variable")
        (inner,) = struct.unpack_from(f"{order}I", head, 4)
        check_proportion(f"{path.name}: a compressed element", inner, length)
        head = head[8:]
    else:
        inner, head = length, file.read(min(length, _HEAD))
    try:
        kind, flags, shape, name, number, start, held = _described(head, order)
    except (struct.error, UnicodeDecodeError, ValueError):
        raise ForeignError(f"{path.name}: the description of a variable is damaged") from None
    if not name:  # what MATLAB keeps for itself
        return None
    if kind not in _CLASSES or flags & _COMPLEX:
        what = "complex" if kind in _CLASSES else _KINDS.get(kind, f"of class {kind}")
        return name, f"is {what}: arrays of real numbers can be imported"
    dtype = np.dtype(bool) if flags & _LOGICAL else np.dtype(_CLASSES[kind])
    if number not in _NUMBERS:
        raise ForeignError(f"{path.name}: {name} is stored in the unknown type {number}")
    stored = np.dtype(order + _NUMBERS[number])
    if held != math.prod(shape) * stored.itemsize or start + held > inner:
        raise ForeignError(
            f"{path.name}: {name} claims shape {shape} of {stored.itemsize} bytes each, and "
            f"{held:,} bytes in an element of {inner:,}"
        )
    if compressed:
        return PackedArray(path, name, shape, dtype, place + 8, length, start + 8, stored)
    return FlatArray(path, name, shape, dtype, place + 8 + start, "F", stored)


def _described(head: bytes, order: str) -> tuple[int, int, tuple[int, ...], str, int, int, int]:
    """Class, flags, shape, name, type of the numbers, where they begin and their bytes."""
    kind, length, data, place = _element(head, 0, order)
    if kind != _UINT32 or length != 8:
        raise ValueError("array flags")
    (word,) = struct.unpack_from(f"{order}I", head, data)
    array_class, flags = word & 0xFF, word >> 8 & 0xFF
    if array_class not in _CLASSES and array_class not in _KINDS:
        return array_class, flags, (), _opaque_name(head, place, order), 0, 0, 0
    kind, length, data, place = _element(head, place, order)
    if kind != _INT32 or not 8 <= length <= 32 * 4:
        raise ValueError("dimensions")
    shape = struct.unpack_from(f"{order}{length // 4}i", head, data)
    kind, length, data, place = _element(head, place, order)
    if kind != _INT8 or data + length > len(head):
        raise ValueError("name")
    name = head[data : data + length].decode("ascii")
    if array_class in _KINDS:
        return array_class, flags, shape, name, 0, 0, 0
    number, length, data, _ = _element(head, place, order)
    return array_class, flags, shape, name, number, data, length


def _opaque_name(head: bytes, place: int, order: str) -> str:
    kind, length, data, _ = _element(head, place, order)
    return head[data : data + length].decode("ascii") if kind == _INT8 else ""


def _element(head: bytes, place: int, order: str) -> tuple[int, int, int, int]:
    """Type and bytes of a part, where its data begin, and where the next part does."""
    word, length = struct.unpack_from(f"{order}II", head, place)
    if word >> 16:  # the small format: data of at most four bytes within the tag
        return word & 0xFFFF, word >> 16, place + 4, place + 8
    return word, length, place + 8, place + 8 + (length + 7) // 8 * 8


@dataclass(frozen=True)
class PackedArray(Array):
    """A compressed variable.

    Args:
        offset, length: The packed bytes in the file.
        start: First byte of the numbers in what they unpack to.
        stored: Type of the numbers.
    """

    offset: int
    length: int
    start: int
    stored: np.dtype

    @property
    def _held(self) -> int:
        return math.prod(self.shape) * self.stored.itemsize

    def read(self, index: Index) -> np.ndarray:
        """Unpacks the array in memory: for small ones."""
        data = b"".join(self._pieces())
        values = np.frombuffer(data, self.stored).reshape(self.shape, order="F")
        return values[index].astype(self.dtype)

    def ready(self, folder: Path) -> FlatArray:
        free = shutil.disk_usage(folder).free
        if free < self._held:
            text = f"no room to unpack {self.name}: {self._held:,} bytes, {free:,} are free"
            raise OSError(errno.ENOSPC, text, str(folder))
        target = folder / uuid.uuid4().hex
        with target.open("wb") as file:
            for piece in self._pieces():
                file.write(piece)
        return FlatArray(target, self.name, self.shape, self.dtype, 0, "F", self.stored)

    def _pieces(self) -> Iterator[bytes]:
        """The bytes of the numbers, no more than there should be."""
        unpacker, skip, left = zlib.decompressobj(), self.start, self._held
        packed, packed_left = b"", self.length
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while left > -_PADDING and not unpacker.eof:
                if not packed:
                    packed = file.read(min(_PIECE, packed_left))
                    packed_left -= len(packed)
                ends = not packed
                try:
                    piece = unpacker.decompress(packed, _PIECE if left > 0 else _PADDING)
                except zlib.error as error:
                    raise ForeignError(f"{self.where} is damaged ({error})") from None
                if ends and not piece:
                    raise ForeignError(f"{self.where} is cut off: its packed bytes end early")
                packed = unpacker.unconsumed_tail
                piece, skip = piece[skip:], max(0, skip - len(piece))
                if left > 0:
                    yield piece[:left]
                left -= len(piece)
        if not -_PADDING < left <= 0:
            what = "less" if left > 0 else "more"
            raise ForeignError(f"{self.where} unpacks to {what} bytes than its shape {self.shape}")
