"""Files of MATLAB 4 and 5, read by SciPy. This module runs in the child process of
`pdegen.formats.sandbox`.

SciPy reads a whole variable into memory, and the format limits a variable to 2 GiB. Numbers are
unpacked in Fortran order, which is the order of MATLAB. SciPy verifies the checksums of compressed
variables, but does not report every file that is cut off. Therefore this module checks that the
last variable ends at the end of the file.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatlabOpaque
from scipy.sparse import issparse

from pdegen.formats.arrays import (
    KEY,
    KINDS,
    MARK,
    MOST_ARRAYS,
    NUMBERS,
    WRITTEN,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    check_expansion,
)

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX, _FLAGS_WITHIN = 2**11, 256  # bit of the flags, and bytes that hold them
_CLASSES = {
    "double": "f8", "single": "f4", "logical": "?",
    **{f"{s}int{8 * n}": f"{s or 'i'}{n}" for s in ("", "u") for n in (1, 2, 4, 8)},
}  # fmt: skip


def read(request: Request) -> Contents:
    """Read the variables of a file, with their axes in MATLAB's order. Raises Exception if the file
    is damaged or cut off, or if it states an impossible size."""
    path = request.file
    with path.open("rb") as file:
        exported = WRITTEN.encode() in file.read(_HEADER)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    with warnings.catch_warnings(action="error"):  # SciPy warns of what it cannot read
        are_complex = _check_variables(path)
        variables = _variables(path)
        if len(variables) > MOST_ARRAYS or len({name for name, *_ in variables}) < len(variables):
            raise FormatError(f"{path.name}: a name is repeated, or more than {MOST_ARRAYS:,} are")
        for number, (name, shape, kind) in enumerate(variables):
            if kind in _CLASSES:
                dtype = np.dtype(_CLASSES[kind])
                if are_complex[number : number + 1] == [True]:
                    dtype = np.result_type(dtype, np.complex64)
                arrays[name] = Array(path, name, tuple(shape), dtype)
                check_expansion(arrays[name], path.stat().st_size)
            elif not name.startswith("__"):  # internal variables of MATLAB
                unreadable[name] = f"is {kind}: {NUMBERS}"
        wanted = request.wanted(arrays.values())
        # small variables together, because SciPy reads from the start of the file; large ones one
        # by one
        for names in [[name] for name in wanted] if request.names else [wanted]:
            loaded = loadmat(path, appendmat=False, variable_names=[*names]) if names else {}
            for name in names:
                values = loaded[name]
                if issparse(values):
                    unreadable[name] = f"is sparse: {NUMBERS}"
                    del arrays[name]
                    continue
                if values.shape != arrays[name].shape or values.dtype.kind not in KINDS:
                    unreadable[name] = f"is of another shape or type: {NUMBERS}"
                    del arrays[name]
                    continue
                values = values.astype(arrays[name].dtype, copy=False)
                location = Location(request.target(), 0, "F", values.dtype)
                values.T.tofile(location.file)
                arrays[name] = replace(arrays[name], location=location)
    return Contents(path, "MATLAB", arrays, unreadable, {f"@{KEY}": MARK} if exported else {})


def _variables(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and class of each variable.

    SciPy cannot list a file that contains an object of MATLAB, such as a string. It can read it.
    """
    try:
        return whosmat(path, appendmat=False)
    except TypeError:
        loaded = loadmat(path, appendmat=False)
    classes = {np.dtype(code): name for name, code in _CLASSES.items()}
    variables = list[tuple[str, tuple[int, ...], str]]()
    for name, values in loaded.items():
        if isinstance(values, MatlabOpaque):  # its name is in its first field
            name, kind = (bytes(values[0][field]).decode() for field in ("s0", "s2"))
            variables.append((name, values.shape, f"a {kind}"))
        elif isinstance(values, np.ndarray):
            variables.append((name, values.shape, classes.get(values.dtype, "another class")))
    return variables


def _check_variables(path: Path) -> list[bool]:
    """Whether each variable of a file is complex. Raises FormatError if a file is not a sequence of
    complete variables."""
    size, are_complex = path.stat().st_size, list[bool]()
    with path.open("rb") as file:
        mark = file.read(_HEADER)[-2:]
        if mark not in (b"IM", b"MI"):  # of MATLAB 4, whose variables SciPy checks
            return []
        order = "<" if mark == b"IM" else ">"
        start = _HEADER
        while start < size:
            file.seek(start)
            kind, count = struct.unpack(f"{order}II", file.read(8).ljust(8, b"\xff"))
            start += 8
            if kind not in (_MATRIX, _COMPRESSED):
                raise FormatError(
                    f"{path.name}: byte {start - 8:,} does not begin a variable: damaged"
                )
            if start + count > size:
                raise FormatError(
                    f"{path.name}: a variable ends at byte {start + count:,}, the file has "
                    f"{size:,}: it is cut off"
                )
            head = file.read(min(count, _FLAGS_WITHIN))
            if kind == _COMPRESSED:
                head = zlib.decompressobj().decompress(head, 20)[8:]
            flags = int.from_bytes(head[8:12], "little" if order == "<" else "big")
            are_complex.append(bool(flags & _COMPLEX))
            start += count
    return are_complex
