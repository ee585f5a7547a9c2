"""What an exported file says of the store that it was: written with it, and read again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pdegen.foreign.arrays import SMALL_BYTES, Array, Contents, ForeignError
from pdegen.foreign.npy import npy
from pdegen.foreign.plan import Field, Plan, View
from pdegen.schema import SchemaError, Strict
from pdegen.store.layout import Coordinate
from pdegen.store.store import Store

KEY = "pdegen"  # the array of bytes that holds the text, in UTF-8
FILE = "pdegen.json"  # beside .npy files

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_NEW = {  # attributes of a store that are made anew when it is imported
    "format", "format_version", "sealed", "samples", "shard", "variables", "fingerprint",
    "content", "statistics", "skipped", "imported", "provenance",
}  # fmt: skip
_TYPES = {"bool", "float32", "float64", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))}


class ExportedArray(Strict):
    """An array of the store: dimensions, shape, type, attributes."""

    dims: list[str]
    shape: list[int]
    dtype: str
    attributes: dict[str, Any]


class Exported(Strict):
    """A store in another format.

    Args:
        format: Says that it is one.
        arrays: Its arrays by name; the file has them under the same names.
        attributes: Those of the store.
    """

    format: Literal["pdegen export 1"]
    arrays: dict[str, ExportedArray]
    attributes: dict[str, Any]


def description(store: Store) -> Exported:
    """What is written beside the arrays of a store."""
    return Exported(
        format="pdegen export 1",
        arrays={
            name: ExportedArray(
                dims=list(array.get("dimension_names") or []),
                shape=list(array["shape"]),
                dtype=array["data_type"],
                attributes=dict(array["attributes"]),
            )
            for name, array in sorted(store.description.metadata.items())
        },
        attributes=store.attributes,
    )


def encoded(exported: Exported) -> np.ndarray:
    """The text as an array of bytes, which every format can hold."""
    return np.frombuffer(json.dumps(exported.model_dump()).encode(), np.uint8)


def folder_contents(folder: Path) -> tuple[Contents, list[Path]]:
    """The arrays of a folder of .npy files that was exported, and the files.

    Raises:
        ForeignError: If it is none, or not sound.
    """
    try:
        text = _bounded(folder / FILE)
    except FileNotFoundError:
        raise ForeignError(
            f"{folder} is a folder, but none that was exported: give its files"
        ) from None
    names = list(_parsed(text, folder.name).arrays)
    files = [folder / f"{name}.npy" for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ForeignError(f"{folder}: {missing[0]} is missing")
    arrays: dict[str, Array] = {
        name: npy(file).array(name) for name, file in zip(names, files, strict=True)
    }
    attributes = {KEY: text.decode("utf-8", "replace")}
    return Contents(folder, "NumPy", arrays, attributes=attributes), [*files, folder / FILE]


def _bounded(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # to read a pipe is to wait for a writer
        raise ForeignError(f"{path} is no file")
    with path.open("rb") as file:
        data = file.read(SMALL_BYTES + 1)
    if len(data) > SMALL_BYTES:
        raise ForeignError(f"{path.name} has more than {SMALL_BYTES:,} bytes")
    return data


def exported(files: Sequence[Contents]) -> Plan | None:
    """The store that a file was exported from; None where it was not exported.

    Raises:
        ForeignError: If it was, and is damaged; or there are several.
    """
    contents = files[0]
    if KEY in contents.attributes:
        text = str(contents.attributes[KEY])
    elif KEY in contents.arrays and contents.arrays[KEY].dtype == np.uint8:
        text = contents.array(KEY).values().tobytes()
    else:
        return None
    if len(files) > 1:
        raise ForeignError(f"{contents.path.name} was exported: it is imported by itself")
    found = _parsed(text, contents.path.name)
    try:
        return _plan(found, contents)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ForeignError):
            raise
        raise _damaged(contents.path.name, repr(error)) from None


def _parsed(text: bytes | str, where: str) -> Exported:
    try:
        found = Exported.parse(json.loads(text), where)
    except (ValueError, RecursionError, SchemaError) as error:
        raise _damaged(where, str(error)) from None
    for name, array in found.arrays.items():
        for word in (name, *array.dims):
            if not _NAME.fullmatch(word):
                raise _damaged(where, f"the name {word[:80]!r}")
        sound = all(0 <= n < 2**40 for n in array.shape) and array.dtype in _TYPES
        if not sound or len(array.dims) != len(array.shape):
            raise _damaged(where, f"{name}: shape {array.shape} of {array.dtype}")
    return found


def _damaged(where: str, what: str) -> ForeignError:
    text = " ".join(what.split())[:200]
    return ForeignError(f"{where}: what it says of its arrays is damaged: {text}")


def _plan(found: Exported, contents: Contents) -> Plan:
    attributes = found.attributes
    names = attributes["variables"]
    variables = [(name, found.arrays[name]) for name in names]
    why = "skipped in the store that was exported"
    return Plan(
        name=attributes["recipe"]["name"],
        title=attributes["title"],
        equation=attributes["equation"],
        source="exported by pdegen",
        fields=tuple(
            Field(name, (_view(contents, name, array),), array.attributes, array.dtype)
            for name, array in variables
        ),
        coordinates=tuple(
            _coordinate(contents, name, array)
            for name, array in found.arrays.items()
            if name not in names
        ),
        splits={name: (int(ends[0]), int(ends[1])) for name, ends in attributes["splits"].items()},
        attributes={
            **{key: value for key, value in attributes.items() if key not in _NEW},
            "exported": _origin(attributes),
        },
        skipped={int(i): why for i in attributes.get("skipped", [])},
    )


def _origin(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What the store was."""
    return {key: attributes[key] for key in ("fingerprint", "content", "provenance")}


def _view(contents: Contents, name: str, array: ExportedArray) -> View:
    """MATLAB has at least two axes: what it adds to one is a single point."""
    there = contents.array(name)
    _check(there, array)
    added = len(there.shape) - len(array.shape)
    if array.dims[:1] != ["sample"]:
        raise ForeignError(f"{there.where} should begin with the samples, has {array.dims}")
    return View(there, (*array.dims, *[""] * added))


def _coordinate(contents: Contents, name: str, array: ExportedArray) -> Coordinate:
    there = contents.array(name)
    _check(there, array)
    values = there.values().reshape(array.shape).astype(array.dtype, copy=False)
    return Coordinate(name, tuple(array.dims), values, array.attributes)


def _check(there: Array, array: ExportedArray) -> None:
    """Raise ForeignError where an array is not as it is said to be."""
    shape = tuple(array.shape)
    padded = (*shape, *[1] * (len(there.shape) - len(shape)))
    if there.shape != padded or there.dtype != np.dtype(array.dtype):
        raise ForeignError(
            f"{there.where} is {there.shape} of {there.dtype}, should be {shape} of {array.dtype}"
        )
