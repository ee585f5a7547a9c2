"""NumPy's .npy files. They are memory-mapped and never unpickled."""

from __future__ import annotations

import struct
import tokenize
from pathlib import Path

import numpy as np

from pdegen.formats.arrays import Array, Contents, FormatError, Location, printable

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
