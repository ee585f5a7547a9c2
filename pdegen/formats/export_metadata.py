"""What an exported file says of the store that it was: written with it, and read again.

It has the SHA-256 of each array (`pdegen.formats.array_digests`) and ends with its own: whatever
changes in a file, and wherever, the import refuses it or makes the identical store. Digests protect
against accidents; who makes all of them anew has made another dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from pdegen.formats.array_digests import Digest
from pdegen.formats.arrays import KEY, MARK, SMALL_BYTES, Array, Contents, FormatError, printable
from pdegen.formats.npy import npy
from pdegen.formats.plan import Field, Plan, View, check_digest
from pdegen.schema import SchemaError, Strict
from pdegen.store.arrays import Json
from pdegen.store.digests import with_digest, without_digest
from pdegen.store.reading import Store
from pdegen.store.variables import Coordinate

FILE = "pdegen.json"  # beside .npy files

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_SHA256 = re.compile("[0-9a-f]{64}")
_NEW = {  # attributes of a store that are made anew when it is imported
    "format", "format_version", "sealed", "samples", "shard", "variables", "fingerprint",
    "content", "statistics", "skipped", "imported", "provenance",
}  # fmt: skip
_TYPES = {"bool", "float32", "float64", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))}


class ExportedArray(Strict):
    """An array of the store: dimensions, shape, type, attributes, digest of its values."""

    dims: list[str]
    shape: list[int]
    dtype: str
    attributes: Json
    sha256: str


class _Taken(Strict):
    """Attributes of the store that are read here: variables, splits, samples without values."""

    variables: list[str]
    splits: dict[str, Annotated[list[int], pydantic.Field(min_length=2, max_length=2)]]
    skipped: list[int] = pydantic.Field(default_factory=list)


class Exported(Strict):
    """A store in another format.

    Args:
        format: Says that it is one.
        arrays: Its arrays by name; the file has them under the same names.
        attributes: Those of the store.
    """

    format: Literal["pdegen export 2"]
    arrays: dict[str, ExportedArray]
    attributes: Json


def description(store: Store, digests: Mapping[str, str]) -> Exported:
    """What is written beside the arrays of a store."""
    return Exported(
        format="pdegen export 2",
        arrays={
            name: ExportedArray(
                dims=list(array.get("dimension_names") or []),
                shape=list(array["shape"]),
                dtype=array["data_type"],
                attributes=dict(array["attributes"]),
                sha256=digests[name],
            )
            for name, array in sorted(store.description.zarr_metadata.items())
            if name in store.arrays  # the labels of channels follow from attributes
        },
        attributes=store.raw_attributes,
    )


def encoded(exported: Exported) -> np.ndarray:
    """The text with its own digest, as an array of bytes, which every format can hold."""
    return np.frombuffer(with_digest(exported.model_dump()), np.uint8)


def folder_contents(folder: Path) -> tuple[Contents, list[Path]]:
    """The arrays of a folder of .npy files that was exported, and the files. Raises FormatError if
    it is none, or not sound."""
    try:
        text = _bounded(folder / FILE)
    except FileNotFoundError:
        raise FormatError(
            f"{folder} is a folder, but none that was exported: give its files"
        ) from None
    names = list(_parsed(text, folder.name).arrays)
    files = [folder / f"{name}.npy" for name in names]
    _check_names(folder.name, {file.stem for file in folder.glob("*.npy")}, names)
    arrays: dict[str, Array] = {
        name: npy(file).array(name) for name, file in zip(names, files, strict=True)
    }
    attributes = {KEY: text.decode()}
    return Contents(folder, "NumPy", arrays, attributes=attributes), [*files, folder / FILE]


def _bounded(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # to read a pipe is to wait for a writer
        raise FormatError(f"{path} is no file")
    with path.open("rb") as file:
        data = file.read(SMALL_BYTES + 1)
    if len(data) > SMALL_BYTES:
        raise FormatError(f"{path.name} has more than {SMALL_BYTES:,} bytes")
    return data


def exported_plan(files: Sequence[Contents]) -> Plan | None:
    """The store that a file was exported from; None where it was not exported. Raises FormatError
    if it was, and is damaged; or there are several."""
    ours = [one for one in files if is_export(one)]
    if not ours:
        return None
    contents = ours[0]
    where = contents.path.name
    if len(files) > 1:
        raise FormatError(f"{where} was exported: it is imported by itself")
    if KEY in contents.attributes:  # of a folder, whose files its description has named
        found = _parsed(str(contents.attributes[KEY]).encode(), where)
    else:
        found = _parsed(contents.array(KEY).values().tobytes(), where)
        _check_names(where, {*contents.arrays, *contents.unreadable} - {KEY}, found.arrays)
    try:
        return _plan(found, contents)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise _damaged(contents.path.name, repr(error)) from None


def is_export(contents: Contents) -> bool:
    """Whether a file was exported; MATLAB and HDF5 have a second mark of it, for where a damaged
    name hides the first."""
    named = {*contents.attributes, *contents.arrays, *contents.unreadable}
    return KEY in named or contents.attributes.get(f"@{KEY}") == MARK


def _check_names(where: str, found: set[str], said: Iterable[str]) -> None:
    """Raise FormatError where arrays are not those that were exported."""
    if missing := set(said) - found:
        raise FormatError(f"{where}: the array {min(missing)} is missing")
    if others := found - set(said):
        raise FormatError(
            f"{where} holds {printable(min(others))}, which was not exported: move it away"
        )


def _parsed(text: bytes, where: str) -> Exported:
    try:
        found = Exported.parse(without_digest(text), where)
        json.dumps(found.model_dump(), allow_nan=False)  # NaN is no JSON
    except (ValueError, SchemaError) as error:
        raise _damaged(where, f"{error}; export the store again") from None
    for name, array in found.arrays.items():
        for word in (name, *array.dims):
            if not _NAME.fullmatch(word):
                raise _damaged(where, f"the name {word[:80]!r}")
        sound = all(0 <= n < 2**40 for n in array.shape) and array.dtype in _TYPES
        if not sound or len(array.dims) != len(array.shape):
            raise _damaged(where, f"{name}: shape {array.shape} of {array.dtype}")
        if not _SHA256.fullmatch(array.sha256):
            raise _damaged(where, f"{name}: sha256 {array.sha256[:80]!r}")
    return found


def _damaged(where: str, what: str) -> FormatError:
    text = " ".join(what.split())[:200]
    return FormatError(f"{where}: what it says of its arrays is damaged: {text}")


def _plan(found: Exported, contents: Contents) -> Plan:
    attributes = found.attributes
    taken = _Taken.parse(
        {key: attributes[key] for key in _Taken.model_fields if key in attributes}, "attributes"
    )
    names, samples = taken.variables, found.arrays["sample"].shape[0]
    if len(set(names)) < len(names) or not set(taken.skipped) < set(range(samples)):
        raise ValueError(f"variables {names} or skipped samples {taken.skipped}")
    variables = [(name, found.arrays[name]) for name in names]
    why = "skipped in the store that was exported"
    return Plan(
        name=attributes["recipe"]["name"],
        title=attributes["title"],
        equation=attributes["equation"],
        source="exported by pdegen",
        fields=tuple(
            Field(
                name, (_view(contents, name, array),), array.attributes, array.dtype, array.sha256
            )
            for name, array in variables
        ),
        coordinates=tuple(
            _coordinate(contents, name, array)
            for name, array in found.arrays.items()
            if name not in names
        ),
        splits={name: (ends[0], ends[1]) for name, ends in taken.splits.items()},
        attributes={
            **{key: value for key, value in attributes.items() if key not in _NEW},
            "exported": _origin(attributes),
        },
        skipped={i: why for i in taken.skipped},
    )


def _origin(attributes: Mapping[str, Any]) -> Json:
    """What the store was."""
    return {key: attributes[key] for key in ("fingerprint", "content", "provenance")}


def _view(contents: Contents, name: str, array: ExportedArray) -> View:
    """MATLAB has at least two axes: what it adds to one is a single point."""
    there = contents.array(name)
    _check(there, array)
    added = len(there.shape) - len(array.shape)
    if array.dims[:1] != ["sample"]:
        raise FormatError(f"{there.where} should begin with the samples, has {array.dims}")
    return View(there, (*array.dims, *[""] * added))


def _coordinate(contents: Contents, name: str, array: ExportedArray) -> Coordinate:
    there = contents.array(name)
    _check(there, array)
    values = there.values().reshape(array.shape).astype(array.dtype, copy=False)
    digest = Digest()
    digest.add(values)
    check_digest(there, digest, array.sha256)
    return Coordinate(name, tuple(array.dims), values, array.attributes)


def _check(there: Array, array: ExportedArray) -> None:
    """Raise FormatError where an array is not as it is said to be."""
    shape = tuple(array.shape)
    padded = (*shape, *[1] * (len(there.shape) - len(shape)))
    if there.shape != padded or there.dtype != np.dtype(array.dtype):
        raise FormatError(
            f"{there.where} is {there.shape} of {there.dtype}, should be {shape} of {array.dtype}"
        )
