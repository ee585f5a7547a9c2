"""NumPy's .npy files: mapped, never unpickled."""

from __future__ import annotations

import math
import struct
import tokenize
from pathlib import Path

import numpy as np

from pdegen.foreign.arrays import Array, Contents, FlatArray, ForeignError

MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 10_000
# what NumPy raises on headers that are no dictionary
_DAMAGED = (
    ValueError, TypeError, struct.error, SyntaxError, tokenize.TokenError, RecursionError,
    MemoryError,
)  # fmt: skip


def npy(path: Path) -> Contents:
    """The array of a file, under the file's name without its suffix.

    Raises:
        ForeignError: If it is damaged, holds Python objects, or is shorter than it claims.
    """
    return Contents(path, "NumPy", {path.stem: _array(path)})


def _array(path: Path) -> Array:
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"format version {version}")
            width, code = (2, "<H") if version == (1, 0) else (4, "<I")
            (length,) = struct.unpack(code, file.read(width))
            if length > _HEADER_BYTES:
                raise ValueError(f"a header of {length:,} bytes")
            file.seek(-width, 1)
            # versions 2 and 3 differ in the text's encoding, which names of fields alone show
            read = np.lib.format.read_array_header_2_0
            if version == (1, 0):
                read = np.lib.format.read_array_header_1_0
            shape, fortran, dtype = read(file, max_header_size=_HEADER_BYTES)
        except _DAMAGED as error:
            text = " ".join(str(error).split())[:200]
            raise ForeignError(f"{path.name} is no .npy file that can be read: {text}") from None
        offset = file.tell()
    if dtype.hasobject:
        raise ForeignError(
            f"{path.name} holds Python objects, which execute code when they are read: save "
            "an array of numbers"
        )
    claimed, held = math.prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if claimed != held:
        raise ForeignError(
            f"{path.name} claims shape {shape}, {claimed:,} bytes, and holds {held:,}: it is cut "
            "off or damaged"
        )
    order = "F" if fortran else "C"
    return FlatArray(path, path.stem, shape, dtype.newbyteorder("="), offset, order, dtype)
