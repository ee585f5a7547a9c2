"""MATLAB's version 5 files, by SciPy. Runs in the child process of `pdegen.formats.sandbox`.

SciPy takes a variable in memory as a whole; the format ends at 2 GiB of numbers in a variable.
MATLAB stores the first axis fastest, and so the numbers are unpacked. SciPy takes the end of the
file for the end of its variables: that these end there is checked here. It compares the checksums
of compressed ones.
"""

from __future__ import annotations

import struct
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.io import loadmat, whosmat

from pdegen.formats.arrays import (
    KEY,
    MARK,
    MOST_ARRAYS,
    REAL,
    WRITTEN,
    Array,
    Contents,
    FormatError,
    Location,
    check_proportion,
)
from pdegen.formats.sandbox import Request

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_CLASSES = {
    "double": "f8", "single": "f4", "logical": "?",
    **{f"{s}int{8 * n}": f"{s or 'i'}{n}" for s in ("", "u") for n in (1, 2, 4, 8)},
}  # fmt: skip


def read(request: Request) -> Contents:
    """The variables of a file, in MATLAB's order of axes. Raises Exception if it is damaged or cut
    off, or claims more than it can hold."""
    path = request.file
    with path.open("rb") as file:
        ours = WRITTEN.encode() in file.read(_HEADER)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    with warnings.catch_warnings(action="error"):  # SciPy warns of what it cannot read
        _check_variables(path)
        found = whosmat(path, appendmat=False)
        if len(found) > MOST_ARRAYS or len({name for name, *_ in found}) < len(found):
            raise FormatError(f"{path.name}: a name is there twice, or {MOST_ARRAYS:,} are")
        for name, shape, kind in found:
            if kind in _CLASSES:
                arrays[name] = Array(path, name, tuple(shape), np.dtype(_CLASSES[kind]))
                check_proportion(arrays[name], path.stat().st_size)
            elif not name.startswith("__"):  # what MATLAB keeps for itself
                unreadable[name] = f"is {kind}: {REAL}"
        wanted = request.wanted(arrays.values())
        # small ones together, for SciPy begins at the first; large ones one after the other
        for names in [[name] for name in wanted] if request.names else [wanted]:
            loaded = loadmat(path, appendmat=False, variable_names=[*names]) if names else {}
            for name in names:
                values = loaded[name]
                if values.shape != arrays[name].shape or values.dtype.kind not in "biuf":
                    what = "complex" if values.dtype.kind == "c" else "of another shape"
                    unreadable[name] = f"is {what}: {REAL}"
                    del arrays[name]
                    continue
                place = Location(request.target(), 0, "F", values.dtype)
                values.T.tofile(place.file)
                arrays[name] = replace(arrays[name], place=place)
    return Contents(path, "MATLAB 5", arrays, unreadable, {f"@{KEY}": MARK} if ours else {})


def _check_variables(path: Path) -> None:
    """Raise FormatError where a file is not variables, one after the other, until its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(_HEADER)[-2:] == b"IM" else ">"
        start = _HEADER
        while start < size:
            file.seek(start)
            kind, count = struct.unpack(f"{order}II", file.read(8).ljust(8, b"\xff"))
            start += 8
            if kind not in (_MATRIX, _COMPRESSED):
                raise FormatError(f"{path.name}: byte {start - 8:,} begins no variable: damaged")
            if start + count > size:
                raise FormatError(
                    f"{path.name}: a variable ends at byte {start + count:,}, the file has "
                    f"{size:,}: it is cut off"
                )
            start += count
