"""PyTorch's .pt files: a dictionary of tensors, mapped, and unable to execute anything.

They are read without PyTorch: an archive that is not compressed, whose pickle says where the
numbers of each tensor lie. The pickle is given stand-ins for the few names that rebuild a tensor,
and is refused if it names anything else. (`torch.load(weights_only=True)` allocates what a pickle
asks for, and reads beyond an entry that is shorter than its tensor claims.)
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdegen.foreign.arrays import MOST_ARRAYS, Array, Contents, FlatArray, ForeignError

MAGIC = b"PK\x03\x04"
_PICKLE_BYTES = 2**22
_LOCAL_HEADER = 30
_OPCODES = {
    "PROTO", "STOP", "MARK", "GLOBAL", "REDUCE", "BINPERSID", "BINPUT", "LONG_BINPUT", "BINGET",
    "LONG_BINGET", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINUNICODE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE",
}  # fmt: skip


class _Storage(NamedTuple):
    """The numbers of a tensor: their type, the entry that holds them, how many there are."""

    dtype: np.dtype
    key: str
    count: int


@dataclass(frozen=True)
class _Tensor:
    """What a pickle says of a tensor, in PyTorch's order."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_gradient: bool = False
    hooks: Any = None
    dtype: np.dtype | None = None
    metadata: Any = None


_STAND_INS: dict[str, Any] = {
    "collections OrderedDict": OrderedDict,
    "torch._utils _rebuild_tensor_v2": _Tensor,
    "torch._utils _rebuild_tensor_v3": _Tensor,
    "torch.storage UntypedStorage": np.dtype("u1"),
    **{f"torch uint{n}": np.dtype(f"uint{n}") for n in (16, 32, 64)},
    **{
        f"torch {kind}Storage": np.dtype(code)
        for kind, code in (
            ("Float", "f4"), ("Double", "f8"), ("Half", "f2"), ("Bool", "?"), ("Byte", "u1"),
            ("Char", "i1"), ("Short", "i2"), ("Int", "i4"), ("Long", "i8"),
        )
    },
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    """Knows the stand-ins and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return _STAND_INS[f"{module_name} {global_name}"]

    def persistent_load(self, pid: Any, /) -> _Storage:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(key, str) or not isinstance(count, int):
            raise ValueError(f"a persistent object {kind!r}")
        return _Storage(np.dtype(dtype), key, count)


def pt(path: Path) -> Contents:
    """The tensors of a file.

    Raises:
        ForeignError: If it is damaged, holds anything but a dictionary of tensors, or claims more
            than it holds.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = _entries(path, archive)
            content = _unpickled(path, archive.read(entries["data.pkl"]))
            order = archive.read(entries["byteorder"]) if "byteorder" in entries else b"little"
            if not isinstance(content, dict) or len(content) > MOST_ARRAYS:
                raise ForeignError(f"{path.name} holds no dictionary of tensors")
            found = {
                name: _array(path, name, value, entries, order, file)
                if isinstance(value, _Tensor)
                else f"is {type(value).__name__}: tensors can be imported"
                for name, value in content.items()
            }
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError, pickle.PickleError,
            EOFError, IndexError, AttributeError, OverflowError, struct.error,
            NotImplementedError) as error:  # fmt: skip
        if isinstance(error, ForeignError):
            raise
        text = " ".join(str(error).split())[:200]
        raise ForeignError(f"{path.name} is cut off or damaged: {text}") from None
    return Contents(
        path,
        "PyTorch",
        {name: one for name, one in found.items() if isinstance(one, Array)},
        {str(name)[:80]: one for name, one in found.items() if isinstance(one, str)},
    )


def _entries(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries by their names below the one folder. None is compressed or lies elsewhere."""
    entries, size = archive.infolist(), path.stat().st_size
    folder = entries[0].filename.partition("/")[0] if entries else ""
    if not any(entry.filename == f"{folder}/data.pkl" for entry in entries):
        raise ForeignError(f"{path.name} is an archive, but none that torch.save writes")
    for entry in entries:
        stored = entry.compress_type == zipfile.ZIP_STORED
        if not stored or entry.file_size != entry.compress_size:
            raise ForeignError(
                f"{path.name}: {entry.filename[:80]!r} is compressed, to unpack to "
                f"{entry.file_size:,} bytes: torch.save compresses nothing"
            )
    total = sum(entry.file_size for entry in entries)
    if total > size:
        raise ForeignError(f"{path.name} has {size:,} bytes, its entries claim {total:,}")
    found = {entry.filename.removeprefix(f"{folder}/"): entry for entry in entries}
    if len(found) < len(entries):
        raise ForeignError(f"{path.name}: an entry of the archive is there twice")
    return found


def _unpickled(path: Path, data: bytes) -> Any:
    """What the pickle describes; refused before it runs where it names more than stand-ins."""
    if len(data) > _PICKLE_BYTES:
        raise ForeignError(f"{path.name}: the pickle has more than {_PICKLE_BYTES:,} bytes")
    for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
        named = opcode.name == "GLOBAL"
        if opcode.name not in _OPCODES or (named and argument not in _STAND_INS):
            what = argument if named else opcode.name
            raise ForeignError(
                f"{path.name}: its pickle would execute {str(what)[:80]!r}: a file that is "
                "imported holds a dictionary of tensors and nothing else"
            )
        if opcode.name == "LONG_BINPUT" and int(argument or 0) > len(data):
            raise ForeignError(f"{path.name}: its pickle claims more memory than it can need")
    return _Unpickler(io.BytesIO(data)).load()


def _array(
    path: Path, name: Any, tensor: _Tensor, entries: dict[str, zipfile.ZipInfo], order: bytes,
    file: Any,
) -> FlatArray:  # fmt: skip
    storage, shape = tensor.storage, tuple(map(int, tensor.shape))
    dtype = tensor.dtype if tensor.dtype is not None else storage.dtype
    entry = entries[f"data/{storage.key}"]
    last = sum((n - 1) * step for n, step in zip(shape, tensor.stride, strict=True))
    held = min(entry.file_size, storage.count * storage.dtype.itemsize)
    claimed = (tensor.offset + last + 1) * dtype.itemsize
    if tensor.offset < 0 or min(shape, default=1) < 0 or claimed > held:
        raise ForeignError(f"{path.name}: {name} claims {claimed:,} bytes of {held:,}")
    layout = _layout(shape, tensor.stride)
    if layout is None:
        raise ForeignError(
            f"{path.name}: {name} of shape {shape} is a view of other numbers (strides "
            f"{tuple(tensor.stride)}): save {name}.contiguous()"
        )
    file.seek(entry.header_offset)
    names = struct.unpack("<26xHH", file.read(_LOCAL_HEADER))
    start = entry.header_offset + _LOCAL_HEADER + sum(names) + tensor.offset * dtype.itemsize
    stored = dtype.newbyteorder(">" if order == b"big" else "<")
    return FlatArray(path, str(name), shape, dtype, start, layout, stored)


def _layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """ "C" or "F", by which axis is the fastest; None where numbers lie otherwise."""
    sizes = [n for n in shape if n != 1]
    steps = [step for n, step in zip(shape, stride, strict=True) if n != 1]
    if steps == [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]:
        return "C"
    return "F" if steps == [math.prod(sizes[:i]) for i in range(len(sizes))] else None
