"""PyTorch's .pt files: a dictionary of tensors, mapped, and unable to execute anything.

They are read without PyTorch: an archive that is not compressed, whose pickle says where the
numbers of each tensor lie. Python's unpickler does not run: what the pickle says is followed by an
interpreter that knows the few opcodes and names of tensors in dictionaries, lists and tuples, and
refuses all others. (`torch.load(weights_only=True)` allocates what a pickle asks for, and reads
beyond an entry that is shorter than its tensor claims; any unpickler hashes the keys that it is
given, and a key of nested tuples can take it for ever, or overflow its stack.)
"""

from __future__ import annotations

import io
import math
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdegen.foreign.arrays import MOST_ARRAYS, Array, Contents, FlatArray, ForeignError

MAGIC = b"PK\x03\x04"
_PICKLE_BYTES = 2**22
_MOST_OPCODES = 2**19  # a tensor takes about 40
_DEEPEST = 8
_LONGEST_NAME = 2**11
_MOST_AXES = 64  # that numpy has
_LARGEST = 2**59  # so that bytes are below 2⁶³
_LOCAL_HEADER = 30


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
    dtype: np.dtype


class _Tuple(NamedTuple):
    values: tuple[Any, ...]
    depth: int


@dataclass
class _Dict:
    """A dictionary as it was written: its tensors, and of any other value the type's name.

    Names are not hashed before they are known to be text; nothing holds another container, so
    that no cycle and no depth is built.
    """

    kind: str = "dict"
    items: list[tuple[str, _Tensor | str]] = field(default_factory=list)

    def add(self, key: Any, value: Any) -> None:
        if key is None or type(key) in (int, float, bool):
            key = str(key)
        if type(key) is not str or len(key) > _LONGEST_NAME:
            raise ValueError(f"a key of a dictionary is a {_kind(key)}, or long: keys are texts")
        self.items.append((key, value if isinstance(value, _Tensor) else _kind(value)))


def _kind(value: Any) -> str:
    if isinstance(value, _Dict):
        return value.kind
    return "tuple" if isinstance(value, _Tuple) else type(value).__name__


def _whole(*numbers: Any) -> bool:
    return all(type(n) is int and 0 <= n < _LARGEST for n in numbers)


def _storage(pid: Any) -> _Storage:
    """The persistent object ("storage", type, key, device, count)."""
    if not isinstance(pid, _Tuple) or len(pid.values) != 5:
        raise ValueError("a persistent object is no storage")
    kind, dtype, key, _, count = pid.values
    if kind != "storage" or not isinstance(dtype, np.dtype):
        raise ValueError("a persistent object is no storage")
    if type(key) is not str or len(key) > _LONGEST_NAME or not _whole(count):
        raise ValueError("a storage has no name, or no number of elements")
    return _Storage(dtype, key, count)


def _ordered_dict() -> _Dict:
    return _Dict("OrderedDict")


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, stride: Any, _requires_gradient: Any, _hooks: Any,
    dtype: Any, metadata: Any = None,
) -> _Tensor:  # fmt: skip
    if not isinstance(storage, _Storage) or not isinstance(dtype, np.dtype):
        raise ValueError("a tensor has no storage, or no type")
    if metadata is not None:
        raise ValueError("a tensor has metadata: it may be conjugate or negative")
    for sizes in (shape, stride):
        if not isinstance(sizes, _Tuple) or len(sizes.values) > _MOST_AXES:
            raise ValueError(f"the shape or stride of a tensor is a {_kind(sizes)}, or long")
    if not _whole(offset, *shape.values, *stride.values):
        raise ValueError("shape, stride or offset of a tensor is no whole number, or large")
    return _Tensor(storage, offset, shape.values, stride.values, dtype)


def _tensor_v2(
    storage: Any, offset: Any, shape: Any, stride: Any, requires_gradient: Any, hooks: Any,
    metadata: Any = None,
) -> _Tensor:  # fmt: skip
    dtype = storage.dtype if isinstance(storage, _Storage) else None
    return _tensor_v3(storage, offset, shape, stride, requires_gradient, hooks, dtype, metadata)


_NAMES: dict[str, np.dtype | Callable[..., Any]] = {
    "collections OrderedDict": _ordered_dict,
    "torch._utils _rebuild_tensor_v2": _tensor_v2,
    "torch._utils _rebuild_tensor_v3": _tensor_v3,
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


def pt(path: Path) -> Contents:
    """The tensors of a file.

    Raises:
        ForeignError: If it is damaged, holds anything but a dictionary of tensors, or claims more
            than it holds.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = _entries(path, archive)
            for name, most in (("data.pkl", _PICKLE_BYTES), ("byteorder", 16)):
                if name in entries and entries[name].file_size > most:
                    raise ForeignError(f"{path.name}: {name} has more than {most:,} bytes")
            content = _unpickled(path, archive.read(entries["data.pkl"]))
            order = archive.read(entries["byteorder"]) if "byteorder" in entries else b"little"
            if not isinstance(content, _Dict) or len(content.items) > MOST_ARRAYS:
                raise ForeignError(f"{path.name} holds no dictionary of tensors")
            if len(dict(content.items)) < len(content.items):
                raise ForeignError(f"{path.name}: a name is there twice")
            found = {
                name: _array(path, name, value, entries, order, file)
                if isinstance(value, _Tensor)
                else f"is {value}: tensors can be imported"
                for name, value in content.items
            }
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError, EOFError, IndexError,
            AttributeError, OverflowError, struct.error, RuntimeError,
            MemoryError) as error:  # fmt: skip
        if isinstance(error, ForeignError):
            raise
        text = " ".join(str(error).split())[:200]
        raise ForeignError(f"{path.name} is cut off or damaged: {text}") from None
    return Contents(
        path,
        "PyTorch",
        {name: one for name, one in found.items() if isinstance(one, Array)},
        {_shown(name): one for name, one in found.items() if isinstance(one, str)},
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
    """What the pickle describes. Nothing runs; time and memory are at most in proportion to it."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stacks below the marks
    memo: dict[Any, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
        if count == _MOST_OPCODES:
            raise ForeignError(f"{path.name}: the pickle has more than {_MOST_OPCODES:,} opcodes")
        match opcode.name:
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "MARK":
                below.append(stack)
                stack = []
            case "EMPTY_TUPLE":
                stack.append(_Tuple((), 1))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                values = [stack.pop() for _ in range(int(opcode.name[-1]))]
                stack.append(_tuple(values[::-1]))
            case "TUPLE":
                values, stack = stack, below.pop()
                stack.append(_tuple(values))
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND" | "APPENDS":
                if opcode.name == "APPEND":
                    stack.pop()
                else:
                    stack = below.pop()
                if type(stack[-1]) is not list:  # which keeps no values
                    raise ValueError(f"values are appended to a {_kind(stack[-1])}")
            case "EMPTY_DICT":
                stack.append(_Dict())
            case "SETITEM" | "SETITEMS":
                if opcode.name == "SETITEM":
                    values = [stack.pop(), stack.pop()][::-1]
                else:
                    values, stack = stack, below.pop()
                if not isinstance(stack[-1], _Dict):
                    raise ValueError(f"values are given to keys of a {_kind(stack[-1])}")
                for key, value in zip(values[::2], values[1::2], strict=True):
                    stack[-1].add(key, value)
            case "GLOBAL" if argument in _NAMES:
                stack.append(_NAMES[argument])
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                if not isinstance(arguments, _Tuple) or not callable(function):
                    raise ValueError(f"a {_kind(function)} is called")
                stack.append(function(*arguments.values))
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "PROTO" | "STOP":
                pass
            case name:
                what = argument if name == "GLOBAL" else name
                raise ForeignError(
                    f"{path.name}: its pickle would execute {str(what)[:80]!r}: a file that is "
                    "imported holds a dictionary of tensors and nothing else"
                )
    return stack.pop()


def _tuple(values: list[Any]) -> _Tuple:
    depth = 1 + max((value.depth for value in values if isinstance(value, _Tuple)), default=0)
    if depth > _DEEPEST:
        raise ValueError(f"tuples are nested more than {_DEEPEST} deep")
    return _Tuple(tuple(values), depth)


def _array(
    path: Path, name: str, tensor: _Tensor, entries: dict[str, zipfile.ZipInfo], order: bytes,
    file: Any,
) -> FlatArray:  # fmt: skip
    storage, shape, dtype = tensor.storage, tensor.shape, tensor.dtype
    entry, shown = entries[f"data/{storage.key}"], _shown(name)
    last = sum((n - 1) * step for n, step in zip(shape, tensor.stride, strict=True))
    held = min(entry.file_size, storage.count * storage.dtype.itemsize)
    claimed = (tensor.offset + last + 1) * dtype.itemsize
    # numpy multiplies the other axes of an array without numbers, too
    if claimed > held or math.prod(max(n, 1) for n in shape) >= _LARGEST:
        raise ForeignError(f"{path.name}: {shown} claims {claimed:,} bytes of {held:,}")
    layout = _layout(shape, tensor.stride)
    if layout is None:
        raise ForeignError(
            f"{path.name}: {shown} of shape {shape} is a view of other numbers (strides "
            f"{tensor.stride}): save {shown}.contiguous()"
        )
    file.seek(entry.header_offset)
    names = struct.unpack("<26xHH", file.read(_LOCAL_HEADER))
    start = entry.header_offset + _LOCAL_HEADER + sum(names) + tensor.offset * dtype.itemsize
    stored = dtype.newbyteorder(">" if order == b"big" else "<")
    return FlatArray(path, name, shape, dtype, start, layout, stored)


def _shown(name: str) -> str:
    """A name in a line for people."""
    return name[:80] if name.isprintable() else ascii(name[:80])


def _layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """ "C" or "F", by which axis is the fastest; None where numbers lie otherwise."""
    sizes = [n for n in shape if n != 1]
    steps = [step for n, step in zip(shape, stride, strict=True) if n != 1]
    if steps == [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]:
        return "C"
    return "F" if steps == [math.prod(sizes[:i]) for i in range(len(sizes))] else None
