"""PyTorch's .pt files that contain a tensor, or a dictionary, tuple or list of tensors. This module
runs in the child process of `pdegen.formats.sandbox`.

`torch.load(weights_only=True)` runs no code from the file, and maps the numbers into memory. From
the addresses, this module determines where the numbers are in the file. The parent process then
maps them itself. PyTorch does not verify the archive. Therefore this module checks that each entry
has the right checksum and is not compressed, and that each tensor lies within one entry.
"""

from __future__ import annotations

import importlib
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.formats.arrays import (
    MOST_ARRAYS,
    PAIR,
    SINGLE,
    ArchiveEntry,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    check_expansion,
    entries,
    printable,
)

_torch: Any = importlib.import_module("torch")  # imported for this format alone

_WHY = re.compile(r"(?:WeightsUnpickler error: |Trying to load )(\S.*?)(?: Please|\n|$)")


def read(request: Request) -> Contents:
    """Read the tensors of a file, with their locations. Raises Exception if the file is damaged,
    does not contain a dictionary of tensors, or would execute code."""
    path = request.file
    archive, order = _entries(path)
    try:
        content = _torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        raise
    except Exception as error:
        why = _WHY.search(str(error))  # the rest of the message explains how to disable the check
        text = printable(why.group(1)) if why else "its pickle holds more than tensors"
        raise FormatError(f"{path.name} is damaged, or would execute code: {text}") from None
    kind = "PyTorch"
    if isinstance(content, _torch.Tensor):
        kind, content = SINGLE[1], {path.stem: content}
    elif isinstance(content, (tuple, list)):
        pair = isinstance(content, tuple) and len(content) == 2
        kind, content = PAIR if pair else kind, dict(enumerate(content))
    if not isinstance(content, dict) or len(content) > MOST_ARRAYS:
        raise FormatError(f"{path.name} does not hold tensors, or a dictionary or tuple of them")
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    tensors: dict[str, Any] = {}
    for key, value in content.items():
        if key is not None and type(key) not in (str, int, float, bool):
            raise FormatError(
                f"{path.name}: a key is of type {type(key).__name__}: keys must be texts"
            )
        name = str(key)
        reason = _unreadable(value)
        if reason is None:
            tensors[name] = value
            arrays[name] = _array(path, name, value, archive, order)
        else:
            unreadable[name] = reason
    if len(arrays) + len(unreadable) < len(content):
        raise FormatError(f"{path.name}: a name is repeated")
    for name in request.wanted(arrays.values()):
        # PyTorch has already changed the numbers to the byte order of this machine
        target, tensor = request.target(), tensors[name]
        with target.open("wb") as out:
            for row in tensor if tensor.ndim else [tensor]:
                values = row.float() if tensor.dtype == _torch.bfloat16 else row
                values.contiguous().numpy().tofile(out)
        location = Location(target, 0, "C", arrays[name].dtype)
        arrays[name] = replace(arrays[name], location=location)
    return Contents(path, kind, arrays, unreadable)


def _entries(path: Path) -> tuple[list[ArchiveEntry], str]:
    """The entries of the archive, and the byte order of the numbers."""
    archive, order = entries(path), "<"
    if not any(entry.name.endswith("/data.pkl") for entry in archive):
        raise FormatError(f"{path.name} is an archive, but not one of torch.save or NumPy")
    with path.open("rb") as file:
        for entry in archive:
            if entry.compressed:
                raise FormatError(
                    f"{path.name}: {printable(entry.name)} is compressed ({entry.bytes:,} "
                    "bytes unpacked), but torch.save does not compress"
                )
            file.seek(entry.start)
            if entry.name.endswith("/byteorder") and file.read(3) == b"big":
                order = ">"
    return archive, order


def _unreadable(value: Any) -> str | None:
    """The reason why a value is not an array of numbers, or None if it is such an array."""
    if not isinstance(value, _torch.Tensor):
        return f"is {type(value).__name__}: tensors can be imported"
    dense = value.layout == _torch.strided and value.device.type == "cpu"
    if not dense or value.is_conj() or value.is_neg() or value.is_quantized:
        return f"is {value.layout} on {value.device}, or a view: dense tensors can be imported"
    try:
        _dtype(value)
    except TypeError:
        return f"is of type {value.dtype}, which NumPy does not have"
    return None


def _dtype(tensor: Any) -> np.dtype:
    """The type of an array with the numbers of a tensor. That of bfloat16 is float32."""
    return np.dtype(str(tensor.dtype).removeprefix("torch.").replace("bfloat16", "float32"))


def _array(path: Path, name: str, tensor: Any, archive: list[ArchiveEntry], order: str) -> Array:
    """The array of a tensor, without location if it is a view of other numbers or of bfloat16."""
    shape, dtype = tuple(tensor.shape), _dtype(tensor)
    steps = zip(shape, tensor.stride(), strict=True)  # from the first to the last number
    span = (1 + sum((n - 1) * step for n, step in steps)) * tensor.element_size()
    need = span if math.prod(shape) else 0
    start = _offset(tensor.data_ptr()) if need else 0
    if start is None:  # it is unpacked by PyTorch, which has checked its bounds
        return Array(path, name, shape, dtype)
    if need and not any(entry.start <= start and start + need <= entry.stop for entry in archive):
        raise FormatError(f"{path.name}: {name} claims {need:,} bytes, its entry has fewer")
    if _layout(tensor) is None or tensor.element_size() != dtype.itemsize:
        array = Array(path, name, shape, dtype)
        check_expansion(array, need)
        return array
    location = Location(path, start, _layout(tensor) or "C", np.dtype(f"{order}{dtype.str[1:]}"))
    return Array(path, name, shape, dtype, location)


def _offset(address: int) -> int | None:
    """Convert the address of a byte in mapped memory to its offset in the mapped file. None where
    the system does not tell."""
    maps = Path("/proc/self/maps")
    if not maps.exists():  # not Linux
        return None
    for line in maps.read_text("utf-8", "surrogateescape").splitlines():
        span, _, offset, *_ = line.split(None, 5)
        first, last = (int(word, 16) for word in span.split("-"))
        if first <= address < last:
            return address - first + int(offset, 16)
    raise ValueError("a tensor is not in the file")


def _layout(tensor: Any) -> Any:
    """Memory order of a tensor, "C" or "F". None if its numbers are not contiguous."""
    if tensor.is_contiguous():
        return "C"
    return "F" if tensor.permute(*reversed(range(tensor.ndim))).is_contiguous() else None
