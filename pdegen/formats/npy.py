"""NumPy's .npy files, which are memory-mapped, and .npz files, which are archives of them. Archives
are read in the child process of `pdegen.formats.sandbox`. Nothing is unpickled."""

from __future__ import annotations

import shutil
import struct
import tokenize
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as _format

from pdegen.formats.arrays import (
    KINDS,
    NAMED,
    NUMBERS,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    entries,
    is_name,
    printable,
)

MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 10_000
# errors of NumPy on headers that are not a dictionary
_DAMAGED = (
    ValueError, TypeError, struct.error, SyntaxError, tokenize.TokenError, RecursionError,
    MemoryError, OverflowError,
)  # fmt: skip


def npy(path: Path) -> Contents:
    """The contents of a .npy file, which are one array with the name of the file. Raises
    FormatError if the file is damaged, contains Python objects, or is shorter than its header
    says."""
    with path.open("rb") as file:
        head = file.read(12)
    try:
        wide = head[6:7] > b"\x01"  # NumPy would read a header of any length
        (length,) = struct.unpack_from("<I" if wide else "<H", head, 8)
        if length > _HEADER_BYTES:
            raise ValueError(f"a header of {length:,} bytes")
        values = np.load(path, "r", allow_pickle=False, max_header_size=_HEADER_BYTES)
    except _DAMAGED as error:
        text = printable(error)
        raise FormatError(
            f"{path.name} cannot be read as .npy (damaged, cut off, or Python objects): {text}"
        ) from None
    order = "C" if values.flags.c_contiguous else "F"
    location = Location(path, values.offset, order, values.dtype)
    native = values.dtype.newbyteorder("=")
    return Contents(
        path, "NumPy", {path.stem: Array(path, path.stem, values.shape, native, location)}
    )


# Archives

ENDING = ".npy"


def read(request: Request) -> Contents:
    """Read the arrays of a file. The name of an array is that of its entry. Arrays that are not
    compressed have a location. Raises Exception if the file is damaged."""
    path = request.file
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    checked = entries(path)
    with zipfile.ZipFile(path) as archive:
        for entry in checked:
            name = entry.name.removesuffix(ENDING)
            if name == entry.name or not is_name(name):
                unreadable[name] = "is not a .npy file" if name == entry.name else NAMED
                continue
            try:
                with archive.open(entry.name) as content:
                    shape, order, stored = _header(content)
                    offset = content.tell()
            except _DAMAGED as error:
                unreadable[name] = f"is no array of NumPy: {printable(error)}"
                continue
            if stored.kind not in KINDS or min(shape, default=0) < 0:
                of = f"shape {shape}" if stored.kind in KINDS else f"type {stored}"
                unreadable[name] = f"is of {of}: {NUMBERS}"
                continue
            array = Array(path, name, shape, stored.newbyteorder("="))
            if entry.bytes != offset + array.bytes:
                unreadable[name] = (
                    f"has {entry.bytes - offset:,} bytes, its shape {shape} takes {array.bytes:,}"
                )
                continue
            if not entry.compressed:
                array = replace(array, location=Location(path, entry.start + offset, order, stored))
            arrays[name] = array
        for name in request.wanted(arrays.values()):
            target = request.target()
            with archive.open(f"{name}{ENDING}") as content, target.open("wb") as out:
                _, order, stored = _header(content)
                shutil.copyfileobj(content, out)
            arrays[name] = replace(arrays[name], location=Location(target, 0, order, stored))
    return Contents(path, "NumPy archive", arrays, unreadable)


def _header(content: Any) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype]:
    """Shape, memory order and dtype of an array, from the header of a .npy file."""
    readers = {(1, 0): _format.read_array_header_1_0, (2, 0): _format.read_array_header_2_0}
    version = _format.read_magic(content)
    if version not in readers:
        raise ValueError(f"the version {version} of .npy")
    shape, fortran, stored = readers[version](content, max_header_size=_HEADER_BYTES)
    return shape, "F" if fortran else "C", stored
