"""The metadata of a store that an export adds to the exported file, and that an import reads.

The metadata contain the SHA-256 of each array (`pdegen.formats.arrays`) and end with their
own SHA-256. If a part of the file was changed, the import refuses the file, or the change has no
effect on the restored store. The digests protect against accidents, not against forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic

from pdegen.formats import sandbox
from pdegen.formats.arrays import (
    KEY,
    MARK,
    SMALL_BYTES,
    Array,
    Contents,
    Digest,
    FormatError,
    printable,
)
from pdegen.formats.npy import npy
from pdegen.formats.plan import FieldPlan, Plan, View, check_digest
from pdegen.schema import SchemaError, Strict
from pdegen.store.card import CARD
from pdegen.store.format import Json, sha256, with_digest, without_digest
from pdegen.store.layout import Coordinate
from pdegen.store.reading import Store

FILE = "pdegen.json"  # file of the metadata in a folder of .npy or Parquet files
PARQUET = ".parquet"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_SHA256 = re.compile("[0-9a-f]{64}")
_PATH = re.compile(r"(data/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # of a file in a folder of tables
_NOT_IMPORTED = {  # attributes that an import sets again
    "format", "format_version", "sealed", "samples", "shard", "variables", "fingerprint",
    "content", "statistics", "skipped", "imported", "provenance",
}  # fmt: skip
_TYPES = {"bool", "float32", "float64", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))}


class ExportedArray(Strict):
    """An exported array: dimensions, shape, dtype, attributes, and SHA-256 of the values."""

    dims: list[str]
    shape: list[int]
    dtype: str
    attributes: Json
    sha256: str


class _StoreAttributes(Strict):
    """The attributes of the exported store that an import needs."""

    variables: list[str]
    splits: dict[str, Annotated[list[int], pydantic.Field(min_length=2, max_length=2)]]
    skipped: list[int] = pydantic.Field(default_factory=list)


class ExportMetadata(Strict):
    """The metadata of an exported store.

    Args:
        format: Name and version of the format of these metadata.
        arrays: The arrays, by name. They have the same names in the file.
        attributes: Attributes of the store.
        files: SHA-256 of each file of a folder of tables, by its path in the folder. Files of
            tables stand in the order of their rows. Empty for other formats.
    """

    format: Literal["pdegen export 2"]
    arrays: dict[str, ExportedArray]
    attributes: Json
    files: dict[str, str] = pydantic.Field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """Paths of the Parquet files in the folder, in the order of their rows."""
        return [name for name in self.files if name.endswith(PARQUET)]


def description(store: Store, digests: Mapping[str, str]) -> ExportMetadata:
    """The metadata to export with the arrays of a store.

    Args:
        store: The store.
        digests: SHA-256 of the values of each array. Keys are names of arrays.
    """
    return ExportMetadata(
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


def encoded(metadata: ExportMetadata) -> np.ndarray:
    """The metadata as JSON with its own SHA-256. The result is an array of bytes, because every
    format can store such an array."""
    # `files` is left out where it is empty
    return np.frombuffer(with_digest(metadata.model_dump(exclude_defaults=True)), np.uint8)


def folder_contents(folder: Path, scratch: Path) -> tuple[Contents, list[Path]]:
    """The contents of an exported folder of .npy, VTU or Parquet files, and the paths of the files
    that have them. Arrays of VTU and small ones of Parquet files are unpacked to `scratch`. Raises
    FormatError if the folder is not an export of pdegen or is damaged."""
    text, metadata = folder_metadata(folder)
    attributes = {KEY: text.decode()}
    if metadata.files:
        for name, fault in file_faults(folder, metadata, metadata.tables):
            raise FormatError(f"{folder.name}: {name} {fault}")
        files = [folder / name for name in metadata.tables]
        arrays, further = _tables(folder, metadata, scratch)
        contents = Contents(folder, "Parquet", arrays, attributes=attributes, further=further)
    else:
        files = sorted(folder.glob("*.npy"))
        arrays = {file.stem: npy(file).array(file.stem) for file in files}
        meshes = sorted(folder.glob("*.vtu"))
        further = dict[str, tuple[Array, ...]]()
        if meshes:
            own = {name: array for name, array in metadata.arrays.items() if name not in arrays}
            parts = [_of_mesh(sandbox.open_file(file, scratch), own) for file in meshes]
            arrays |= parts[0]
            further = {name: tuple(part[name] for part in parts[1:]) for name in own}
        _check_names(folder.name, {*arrays}, metadata.arrays)
        files += meshes
        kind = "VTU" if meshes else "NumPy"
        contents = Contents(folder, kind, arrays, attributes=attributes, further=further)
    return contents, [*files, folder / FILE]


def folder_metadata(folder: Path) -> tuple[bytes, ExportMetadata]:
    """The bytes of the metadata of an exported folder, and what they describe. Raises FormatError
    if the folder has none, or if they are damaged."""
    try:
        text = _bounded(folder / FILE)
    except FileNotFoundError:
        raise FormatError(
            f"{folder} is not an exported folder, it has no {FILE}: give its files"
        ) from None
    return text, _parsed(text, folder.name)


def file_faults(
    folder: Path, metadata: ExportMetadata, names: Collection[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (name, fault) for each file of an exported folder of tables that is missing or differs
    from its SHA-256, and for each table that was added.

    Args:
        folder: The folder.
        metadata: The description in pdegen.json of the folder.
        names: Files to compare with their SHA-256; None for all.
    """
    for name in metadata.files if names is None else names:
        file = folder / name
        if not file.is_file():
            yield name, "is missing"
        elif file_digest(file) != metadata.files[name]:
            yield name, "differs from its SHA-256: the file was changed"
    for file in sorted(folder.rglob(f"*{PARQUET}")):  # readers would take it for data
        name = file.relative_to(folder).as_posix()
        if name not in metadata.files:
            yield printable(name), "was not exported: move it away"


def file_digest(file: Path) -> str:
    """The SHA-256 of a file of an exported folder. That of a card leaves out the line of its
    licence, which authors write themselves."""
    if file.name == CARD:
        return card_digest(file.read_bytes())
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def card_digest(card: bytes) -> str:
    """The SHA-256 of a card without the line of its licence.

    >>> cards = (b"---\\nlicense: unknown\\n---\\n", b"---\\nlicense: mit\\n---\\n")
    >>> len({card_digest(card) for card in cards})
    1
    """
    return sha256(re.sub(rb"\A(---\n)license: .*\n", rb"\1", card))


def _tables(
    folder: Path, metadata: ExportMetadata, scratch: Path
) -> tuple[dict[str, Array], dict[str, tuple[Array, ...]]]:
    """The arrays of the Parquet files in a folder: the first part of each, and the others."""
    parts: dict[str, list[Array]] = {}
    for name in metadata.tables:
        for array in sandbox.read_file(folder / name, "parquet", scratch).arrays.values():
            parts.setdefault(array.name, []).append(array)
    _check_names(folder.name, {*parts}, metadata.arrays)
    numbers = scratch / "sample.npy"  # the samples are numbered anew
    np.save(numbers, np.arange(sum(array.shape[0] for array in parts.pop("sample"))))
    arrays = {"sample": npy(numbers).array("sample")}
    for name, (first, *_) in parts.items():
        shared = "sample" not in metadata.arrays[name].dims  # the axis of its single row goes
        arrays[name] = replace(first, shape=first.shape[1:]) if shared else first
    return arrays, {name: tuple(of_name[1:]) for name, of_name in parts.items()}


def _of_mesh(mesh: Contents, exported: Mapping[str, ExportedArray]) -> dict[str, Array]:
    """The arrays of a sample in a VTU file, whose components and points count along the first axes
    first. Raises FormatError if they have other sizes."""
    arrays: dict[str, Array] = {}
    for name, array in exported.items():
        found, shape = mesh.array(name), (1, *array.shape[1:])
        if math.prod(found.shape) != math.prod(shape) or found.location is None:
            raise FormatError(f"{found.where} {found.shape} should have {math.prod(shape)} numbers")
        location = replace(found.location, order="F")
        arrays[name] = replace(found, shape=shape, dtype=np.dtype(array.dtype), location=location)
    return arrays


def _bounded(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise FormatError(f"{path} is not a file")
    with path.open("rb") as file:
        data = file.read(SMALL_BYTES + 1)
    if len(data) > SMALL_BYTES:
        raise FormatError(f"{path.name} has more than {SMALL_BYTES:,} bytes")
    return data


def exported_plan(files: Sequence[Contents]) -> Plan | None:
    """The import plan of an exported file. None if no file was exported by pdegen. Raises
    FormatError if the exported file is damaged, or if other files are given with it."""
    exports = [contents for contents in files if is_export(contents)]
    if not exports:
        return None
    contents = exports[0]
    where = contents.path.name
    if len(files) > 1:
        raise FormatError(f"{where} was exported: it is imported by itself")
    if KEY in contents.attributes:  # a folder, whose files were checked by `folder_contents`
        metadata = _parsed(str(contents.attributes[KEY]).encode(), where)
    else:
        metadata = _parsed(contents.array(KEY).values().tobytes(), where)
        _check_names(where, {*contents.arrays, *contents.unreadable} - {KEY}, metadata.arrays)
    try:
        return _plan(metadata, contents)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise _damaged(contents.path.name, repr(error)) from None


def is_export(contents: Contents) -> bool:
    """Whether a file was exported by pdegen. A file is an export if it has the array "pdegen" of
    metadata. MATLAB and HDF5 files also have an attribute that shows this if the name of the array
    is damaged."""
    names = {*contents.attributes, *contents.arrays, *contents.unreadable}
    return KEY in names or contents.attributes.get(f"@{KEY}") == MARK


def _check_names(where: str, names: set[str], exported: Iterable[str]) -> None:
    """Raise FormatError if the file has other arrays than those that were exported."""
    if missing := set(exported) - names:
        raise FormatError(f"{where}: the array {min(missing)} is missing")
    if added := names - set(exported):
        raise FormatError(
            f"{where} holds {printable(min(added))}, which was not exported: move it away"
        )


def _parsed(text: bytes, where: str) -> ExportMetadata:
    try:
        metadata = ExportMetadata.parse(without_digest(text), where)
        json.dumps(metadata.model_dump(), allow_nan=False)  # JSON has no NaN
    except (ValueError, SchemaError) as error:
        raise _damaged(where, f"{error}; export the store again") from None
    for name, array in metadata.arrays.items():
        for label in (name, *array.dims):
            if not _NAME.fullmatch(label):
                raise _damaged(where, f"the name {label[:80]!r}")
        sound = all(0 <= n < 2**40 for n in array.shape) and array.dtype in _TYPES
        if not sound or len(array.dims) != len(array.shape):
            raise _damaged(where, f"{name}: shape {array.shape} of {array.dtype}")
        if not _SHA256.fullmatch(array.sha256):
            raise _damaged(where, f"{name}: sha256 {array.sha256[:80]!r}")
    for name, digest in metadata.files.items():
        if not _PATH.fullmatch(name) or not _SHA256.fullmatch(digest):
            raise _damaged(where, f"the file {name[:80]!r} of SHA-256 {digest[:80]!r}")
    return metadata


def _damaged(where: str, problem: str) -> FormatError:
    text = " ".join(problem.split())[:200]
    return FormatError(f"{where}: the metadata of its arrays are damaged: {text}")


def _plan(metadata: ExportMetadata, contents: Contents) -> Plan:
    attributes = metadata.attributes
    needed = _StoreAttributes.parse(
        {key: attributes[key] for key in _StoreAttributes.model_fields if key in attributes},
        "attributes",
    )
    names, samples = needed.variables, metadata.arrays["sample"].shape[0]
    if len(set(names)) < len(names) or not set(needed.skipped) < set(range(samples)):
        raise ValueError(f"variables {names} or skipped samples {needed.skipped}")
    variables = [(name, metadata.arrays[name]) for name in names]
    reason = "skipped in the exported store"
    return Plan(
        name=attributes["recipe"]["name"],
        title=attributes["title"],
        equation=attributes["equation"],
        source="exported by pdegen",
        fields=tuple(
            FieldPlan(
                name, _views(contents, name, array), array.attributes, array.dtype, array.sha256
            )
            for name, array in variables
        ),
        coordinates=tuple(
            _coordinate(contents, name, array)
            for name, array in metadata.arrays.items()
            if name not in names
        ),
        splits={name: (ends[0], ends[1]) for name, ends in needed.splits.items()},
        attributes={
            **{key: value for key, value in attributes.items() if key not in _NOT_IMPORTED},
            "exported": {key: attributes[key] for key in ("fingerprint", "content", "provenance")},
        },
        skipped={i: reason for i in needed.skipped},
    )


def _views(contents: Contents, name: str, array: ExportedArray) -> tuple[View, ...]:
    """The views of a variable of an export, one for each file that has samples of it."""
    parts = contents.parts(name)
    first, samples = parts[0], sum(part.shape[0] for part in parts[1:])
    _check(first, array, samples)
    added = len(first.shape) - len(array.shape)
    if array.dims[:1] != ["sample"]:
        raise FormatError(f"{first.where} has the axes {array.dims}: the first should be sample")
    return tuple(View(part, (*array.dims, *[""] * added)) for part in parts)


def _coordinate(contents: Contents, name: str, array: ExportedArray) -> Coordinate:
    stored = contents.array(name)
    _check(stored, array)
    values = stored.values().reshape(array.shape).astype(array.dtype, copy=False)
    digest = Digest()
    digest.add(values)
    check_digest(stored, digest, array.sha256)
    return Coordinate(name, tuple(array.dims), values, array.attributes)


def _check(stored: Array, array: ExportedArray, further: int = 0) -> None:
    """Check an array against the metadata, which count `further` samples of other files too."""
    shape, found = tuple(array.shape), stored.shape
    if further:
        found = (found[0] + further, *found[1:])
    padded = (*shape, *[1] * (len(found) - len(shape)))
    if found != padded or stored.dtype != np.dtype(array.dtype):
        raise FormatError(
            f"{stored.where} is {found} of {stored.dtype}, expected {shape} of {array.dtype}"
        )
