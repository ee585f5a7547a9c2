"""PyTorch's .pt files, a dictionary of tensors. Runs in the child process of
`pdegen.formats.sandbox`.

`torch.load(weights_only=True)` runs none of the file's code, and maps the numbers; here they are
found in the file, for the parent to map. PyTorch does not look at what an entry of the archive
holds: that each has its checksum, that none is compressed, and that each tensor lies within one, is
checked here.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.formats.archive import ArchiveEntry, entries
from pdegen.formats.arrays import MOST_ARRAYS, Array, Contents, FormatError, Location, printable
from pdegen.formats.sandbox import Request

_torch: Any = importlib.import_module("torch")  # which only this format needs

_WHY = re.compile(r"(?:WeightsUnpickler error: |Trying to load )(\S.*?)(?: Please|\n|$)")


def read(request: Request) -> Contents:
    """The tensors of a file, in their places. Raises Exception if it is damaged, holds anything but
    a dictionary of tensors, or would execute."""
    path = request.file
    found, order = _entries(path)
    try:
        content = _torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except Exception as error:
        why = _WHY.search(str(error))  # around it are ways to read the file nevertheless
        text = printable(why.group(1)) if why else "its pickle is not of tensors alone"
        raise FormatError(f"{path.name} is damaged, or would execute code: {text}") from None
    if not isinstance(content, dict) or len(content) > MOST_ARRAYS:
        raise FormatError(f"{path.name} holds no dictionary of tensors")
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for key, value in content.items():
        if key is not None and type(key) not in (str, int, float, bool):
            raise FormatError(f"{path.name}: a key is a {type(key).__name__}: keys are texts")
        name = str(key)
        reason = _unreadable(value, name)
        if reason is None:
            arrays[name] = _array(path, name, value, found, order)
        else:
            unreadable[name] = reason
    if len(arrays) + len(unreadable) < len(content):
        raise FormatError(f"{path.name}: a name is there twice")
    return Contents(path, "PyTorch", arrays, unreadable)


def _entries(path: Path) -> tuple[list[ArchiveEntry], str]:
    """The entries, none of them compressed, and the byte order of the numbers."""
    found, order = entries(path), "<"
    if not any(entry.name.endswith("/data.pkl") for entry in found):
        raise FormatError(f"{path.name} is an archive, but none that torch.save or NumPy writes")
    with path.open("rb") as file:
        for entry in found:
            if entry.compressed:
                raise FormatError(
                    f"{path.name}: {printable(entry.name)} is compressed, to unpack to "
                    f"{entry.bytes:,} bytes: torch.save compresses nothing"
                )
            file.seek(entry.start)
            if entry.name.endswith("/byteorder") and file.read(3) == b"big":
                order = ">"
    return found, order


def _unreadable(value: Any, name: str) -> str | None:
    """Why a value is no array of numbers, if it is none."""
    if not isinstance(value, _torch.Tensor):
        return f"is {type(value).__name__}: tensors can be imported"
    dense = value.layout == _torch.strided and value.device.type == "cpu"
    if not dense or value.is_conj() or value.is_neg() or value.is_quantized:
        return f"is {value.layout} on {value.device}, or a view: dense tensors can be imported"
    try:
        np.dtype(str(value.dtype).removeprefix("torch."))
    except TypeError:
        return f"is of type {value.dtype}, which NumPy does not have"
    if value.dtype.is_complex:
        return "is complex: arrays of real numbers can be imported"
    if _layout(value) is None:
        return (
            f"of shape {tuple(value.shape)} is a view of other numbers (strides {value.stride()}): "
            f"save {name}.contiguous()"
        )
    return None


def _array(path: Path, name: str, tensor: Any, found: list[ArchiveEntry], order: str) -> Array:
    shape, dtype = tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch."))
    need = math.prod(shape) * dtype.itemsize
    start = _offset(tensor.data_ptr()) if need else 0
    if need and not any(one.start <= start and start + need <= one.stop for one in found):
        raise FormatError(f"{path.name}: {name} claims {need:,} bytes, its entry has fewer")
    location = Location(path, start, _layout(tensor) or "C", np.dtype(f"{order}{dtype.str[1:]}"))
    return Array(path, name, shape, dtype, location)


def _offset(address: int) -> int:
    """The place in its file of a mapped byte."""
    for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines():
        span, _, offset, *_ = line.split(None, 5)
        first, last = (int(word, 16) for word in span.split("-"))
        if first <= address < last:
            return address - first + int(offset, 16)
    raise ValueError("a tensor is not in the file")


def _layout(tensor: Any) -> Any:
    """ "C" or "F", by which axis is the fastest; None where numbers lie otherwise."""
    if tensor.is_contiguous():
        return "C"
    return "F" if tensor.permute(*reversed(range(tensor.ndim))).is_contiguous() else None
