"""Lossless export of a sealed store to a file or folder in another format."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from pdegen.formats import writers
from pdegen.formats.array_digests import Digest
from pdegen.formats.arrays import KEY, Contents, FormatError
from pdegen.formats.export_metadata import (
    FILE,
    description,
    encoded,
    exported_plan,
    file_faults,
    folder_contents,
    folder_metadata,
    is_export,
)
from pdegen.formats.hugging_card import CARD, RecipeText
from pdegen.formats.huggingface import check_huggingface, huggingface_folder
from pdegen.formats.opening import open_file, unpacked
from pdegen.formats.replacing import check_replaceable, replacing
from pdegen.formats.writers import ArraySpec, Sink
from pdegen.generation.generate import Progress
from pdegen.ownership import MANIFEST, check_room, enclosing_store, is_url, note_all, start_manifest
from pdegen.schema import near
from pdegen.store.reading import Store, open_sealed
from pdegen.store.writing import Fault

_HUB = "huggingface"
FORMATS = ("mat", "npy", "hdf5", "pt", _HUB)
_MARKS = {"npy": (FILE,), _HUB: (CARD, "data")}  # names that identify an exported folder

_Writer = Callable[[Path, Mapping[str, ArraySpec]], AbstractContextManager[dict[str, Sink]]]
_MATLAB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_LARGEST_MAT5 = 2**31  # largest variable of MATLAB 5 in bytes


def export(
    url: str,
    format: str,
    path: Path | str,
    *,
    overwrite: bool = False,
    recipe_text: RecipeText | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Write a sealed store to a file or folder in another format.

    Each array keeps its name. The metadata of the store are written as JSON, to an array of bytes
    with the name "pdegen". The format "npy" writes them to the file pdegen.json instead. The
    metadata contain the SHA-256 of each array and of themselves. `import_files` restores the same
    variables, coordinates and splits, bit for bit, or refuses a modified file; `verify_export`
    checks a file or folder. The folder of "huggingface", which `datasets.load_dataset` reads, also
    has pdegen.json, with the SHA-256 of each file. It leaves out samples that were skipped or are
    in no split, and an import numbers the others anew. The write is atomic: an older file is
    replaced only when the new one is complete (`pdegen.formats.replacing`).

    Args:
        url: Path or URL of a sealed store.
        format: "mat" is MATLAB 5, or MATLAB 7.3 if a variable has 2 GiB or more; the axes have the
            order of the store. "hdf5" is HDF5. "pt" is a dictionary of tensors. "npy" is a folder
            with a file for each array. "huggingface" is a folder with Parquet tables and a card.
        path: Path of the file or folder to write.
        overwrite: Whether an earlier export is replaced.
        recipe_text: Text about the recipe, which the card of "huggingface" shows.
        progress: Called after each shard.

    Returns:
        The path of the written file or folder.

    Raises:
        FormatError: If `path` is occupied, or if the format is unknown or does not allow the name
            of an array.
        StoreError: If the store cannot be read or is damaged.
        OSError: If the path cannot be written or has no room.
    """
    if format not in FORMATS:
        raise FormatError(f"no format {format!r}: {near(format, [*FORMATS])}")
    path = Path(path)
    if "\0" in str(path):
        raise FormatError("the path of a file has no NUL character")
    store = open_sealed(url)
    _check_free(path, format, overwrite)
    if format == _HUB:
        return _export_hub(store, path, overwrite, recipe_text or RecipeText(), progress)
    arrays = _specs(store) | (_metadata_spec(store) if format != "npy" else {})
    writer = _writer(store, format, arrays)
    buffered = writer in (writers.pt_file, writers.mat5_file)  # they need a second copy on disk
    need = sum(array.bytes for array in arrays.values()) * (2 if buffered else 1)
    with replacing(path) as partial:
        _check_free(path, format, overwrite)  # again, as an older file may have been restored
        check_room(path.absolute().parent, need, ": the file takes")
        with writer(partial, arrays) as sinks:
            text = encoded(description(store, _fill(store, sinks, progress)))
            if format != "npy":
                sinks[KEY].put(0, text)
        if format == "npy":
            (partial / FILE).write_bytes(text.tobytes())
            _note_files(partial)
    return path


def _export_hub(
    store: Store,
    path: Path,
    overwrite: bool,
    recipe_text: RecipeText,
    progress: Callable[[Progress], None],
) -> Path:
    check_huggingface(store)
    with replacing(path) as partial:
        _check_free(path, _HUB, overwrite)  # again, as an older file may have been restored
        need = sum(array.bytes for array in _specs(store).values())
        check_room(path.absolute().parent, need, ": the folder takes up to")
        huggingface_folder(store, partial, recipe_text, progress)
        _note_files(partial)
    return path


def _note_files(folder: Path) -> None:
    start_manifest(folder)
    note_all(folder)


def _specs(store: Store) -> dict[str, ArraySpec]:
    return {
        name: ArraySpec(array.shape, array.dtype) for name, array in sorted(store.arrays.items())
    }


def _metadata_spec(store: Store) -> dict[str, ArraySpec]:
    """Shape and dtype of the array that stores the metadata. Its length does not depend on the
    values of the digests."""
    text = encoded(description(store, dict.fromkeys(store.arrays, "0" * 64)))
    return {KEY: ArraySpec(text.shape, text.dtype)}


def _check_free(path: Path, format: str, overwrite: bool) -> None:
    if is_url(path):
        raise FormatError(
            f"{path}: an export is written to a local path, not to a URL: write it there, then "
            "copy it"
        )
    if around := enclosing_store(path):
        raise FormatError(f"{around} is a store and takes no other files: choose another --out")
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise FormatError(f"{path} exists: use --overwrite to replace it")
    marks = _MARKS.get(format)
    if marks is None:
        exported = path.is_file() and _is_export(path)
    else:
        exported = all((path / mark).exists() for mark in (*marks, MANIFEST))
    if not exported or path.is_symlink():
        kind = "file" if marks is None else "folder"
        changed = ", or it was changed since" if path.is_file() else ""
        raise FormatError(f"{path} is not an exported {kind}{changed}: it is not replaced")
    if marks is not None:
        check_replaceable(path)


def _is_export(file: Path) -> bool:
    """Whether a file was exported by pdegen and has not been modified."""
    try:
        return not verify_export(file)
    except FormatError:
        return False


def verify_export(path: Path) -> list[Fault]:
    """Check that a file or folder is as `export` has written it. In a folder for Hugging Face, all
    files are compared with their SHA-256. In other exports, the values of all arrays are.

    Returns:
        The faults; empty if there are none.

    Raises:
        FormatError: If `path` was not exported by pdegen, or cannot be read as an export.
        OSError: If a file cannot be read.
    """
    if path.is_dir():
        metadata = folder_metadata(path)[1]
        if metadata.files:
            return [Fault(*fault) for fault in file_faults(path, metadata)]
    with tempfile.TemporaryDirectory(prefix="pdegen-") as name:
        scratch = Path(name)
        contents = None if path.is_dir() else _contents(path, scratch)
        try:
            plan = exported_plan([contents or folder_contents(path, scratch)[0]])
            assert plan is not None  # it is an export
            for field in plan.reading(unpacked(plan.arrays, scratch)).fields:
                field.check()
        except FormatError as error:
            return [Fault("arrays", str(error).removeprefix(f"{path.name}: "))]
    return []


def _contents(path: Path, scratch: Path) -> Contents:
    """The contents of an exported file. Raises FormatError if the file is no export."""
    try:
        contents = open_file(path, scratch)
    except FormatError as error:
        raise FormatError(f"{path} is neither a store nor an export: {error}") from None
    if not is_export(contents):
        raise FormatError(
            f"{path} is neither a store nor an export: pdegen has not written its digests"
        )
    return contents


def _writer(store: Store, format: str, arrays: Mapping[str, ArraySpec]) -> _Writer:
    if format == "mat":
        for name in arrays:
            if not _MATLAB_NAME.fullmatch(name):
                raise FormatError(f"{store.url}: {name} is not a valid name of a MATLAB variable")
        large = any(array.bytes >= _LARGEST_MAT5 for array in arrays.values())
        return writers.mat73_file if large else writers.mat5_file
    return {"npy": writers.npy_folder, "hdf5": writers.hdf5_file, "pt": writers.pt_file}[format]


def _fill(
    store: Store, sinks: Mapping[str, Sink], progress: Callable[[Progress], None]
) -> dict[str, str]:
    """Write the values of all arrays. Returns a dictionary that maps the names of arrays to their
    SHA-256."""
    start = time.monotonic()
    digests = {name: Digest() for name in store.arrays}
    for name in store.arrays:
        if name not in store.variables:
            values = store.values(name)
            digests[name].add(values)
            sinks[name].put(0, values)
    for shard in range(store.shards):
        samples = store.shard_range(shard)
        for name in store.variables:
            values = store.values(name, samples)
            digests[name].add(values)
            sinks[name].put(samples.start, values)
        progress(Progress(shard + 1, store.shards, time.monotonic() - start))
    return {name: digest.hex for name, digest in digests.items()}
