"""The list of the files that pdegen has written to a folder (manifest). pdegen replaces only these
files.

The manifest `.written.jsonl` has one line for each file below its folder. The line is added before
the file is written. For files that people may edit (reports, tables, pictures), it contains the
SHA-256, and an edited file is not replaced. Files that only programs read (`_MACHINE`) contain
their own digests. They are listed only by name, and a damaged one may be replaced.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MANIFEST = ".written.jsonl"
PARTIAL = ".partial"  # ends the name of a file that is being written
LOCK = "lock"  # file in a folder that a process is writing, or was when it was killed
_MACHINE = {".json", ".jsonl", ".pt", ".safetensors", ""}
_EVENTS = re.compile(r"(.*/)?tensorboard/events\.out\.tfevents\.\d{10}\.[^/]+\.pdegen")
_STORE = ("zarr.json", "seal.json")
_LARGE = 2**23  # bytes at each end of a large file that its digest covers
_DEPTH = 6  # number of folders above a file that are searched for a manifest


def start_manifest(folder: Path) -> None:
    """Start the manifest of an existing folder. Files that are written below the folder from now on
    are listed in it."""
    with (folder / MANIFEST).open("a"):
        pass


def note(path: Path, data: bytes) -> Path | None:
    """List a file in the manifest of a folder above it, before the file is written. Returns this
    folder, or None if no folder above has a manifest.

    Args:
        path: Path of the file.
        data: Bytes that will be written to the file.

    Raises:
        PermissionError: If the file exists and was not written by pdegen, or if a folder above it
            is a symbolic link.
    """
    path = Path(os.path.abspath(path))
    root = _above(path)
    if root is None:
        return None
    name = path.relative_to(root).as_posix()
    links = [p for p in (path, *path.parents) if root in p.parents and p.is_symlink()]
    noted = _noted(root)
    if links or (path.exists() and not _is_ours(root, name, noted)):
        foreign = links[0] if links else path
        raise PermissionError(f"{foreign} was not written by pdegen: it is kept, move it away")
    digest = None if path.suffix in _MACHINE else _digest(io.BytesIO(data), len(data))
    if digest not in noted.get(name, ()):
        _append(root, [(name, digest)])
    return root


def note_part(folder: Path) -> None:
    """List a folder that will have its own manifest in the manifest of a folder above it. Without
    this entry, all files in the inner folder would count as foreign."""
    path = Path(os.path.abspath(folder))
    root = _above(path)
    if root is not None:
        _append(root, [(f"{path.relative_to(root).as_posix()}/", None)])


def enclosing_store(path: Path | str) -> Path | None:
    """The sealed store that contains a path. None if there is none. Files that do not belong to a
    store must not be written into it."""
    above = Path(os.path.abspath(path)).parents
    return next((p for p in above if all((p / name).is_file() for name in _STORE)), None)


def is_url(path: Path) -> bool:
    """Whether a path is a URL such as `s3://bucket/run`, of which paths keep a single slash."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)) is not None


def _above(path: Path) -> Path | None:
    """The nearest folder above a path that has a manifest."""
    return next((p for p in path.parents[:_DEPTH] if (p / MANIFEST).is_file()), None)


def note_all(folder: Path) -> None:
    """List all files of a new folder in its manifest. If it has none, they are listed in the
    manifest of the nearest folder above it that has one. Does nothing if there is no such
    folder."""
    path = Path(os.path.abspath(folder))
    root = path if (path / MANIFEST).is_file() else _above(path)
    if root is None:
        return
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.name != MANIFEST)
    entries = list[tuple[str, str | None]]()
    for file in files:
        name = file.relative_to(root).as_posix()
        entries.append((name, None if file.suffix in _MACHINE else _digest_of(file)))
    _append(root, entries)


def foreign_files(folder: Path) -> list[str]:
    """Sorted names of the files that pdegen did not write, or that were edited since."""
    return sorted(name for name, ours in _all(folder) if not ours)


def is_ours(folder: Path, name: str) -> bool:
    """Whether pdegen wrote a file in a folder with a manifest, and nobody has edited the file
    since."""
    return _is_ours(folder, name, _noted(folder))


def remove(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove the files that pdegen has written to a folder with a manifest. Empty folders are
    removed too.

    Args:
        folder: The folder. If `keep` is empty and no files are left, the folder itself is removed.
        keep: Names of files to keep.
    """
    for name, ours in list(_all(folder)):
        if ours and name not in keep:
            (folder / name).unlink(missing_ok=True)
    for directory, _, _ in os.walk(folder, topdown=False):
        inner = Path(directory)
        if inner == folder and keep:
            continue
        names = [path.name for path in inner.iterdir()]
        if names == [MANIFEST]:
            (inner / MANIFEST).unlink()
        with suppress(OSError):  # it has foreign files
            inner.rmdir()


def _all(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield the name of each file and link below a folder, and whether pdegen wrote it."""
    roots = {folder: _noted(folder)}
    for directory, folders, files in os.walk(folder):
        inner = Path(directory)
        if inner != folder and (inner / MANIFEST).is_file():
            above = next(parent for parent in inner.parents if parent in roots)
            part = f"{inner.relative_to(above).as_posix()}/" in roots[above]
            roots[inner] = _noted(inner) if part else {}
        root = next(path for path in (inner, *inner.parents) if path in roots)
        for file in files:
            path = inner / file
            if file != MANIFEST:
                ours = _is_ours(root, path.relative_to(root).as_posix(), roots[root])
                yield path.relative_to(folder).as_posix(), ours
        for link in (inner / name for name in folders if (inner / name).is_symlink()):
            yield link.relative_to(folder).as_posix(), False


def _is_ours(root: Path, name: str, noted: dict[str, set[str | None]]) -> bool:
    path = root / name
    if path.is_symlink() or not path.is_file():
        return False
    if path.name == LOCK or _EVENTS.fullmatch(name):
        return True
    if name.endswith(PARTIAL):
        return name.removesuffix(PARTIAL) in noted
    digests = noted.get(name, set())
    return None in digests or (bool(digests) and _digest_of(path) in digests)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return _digest(file, os.fstat(file.fileno()).st_size)


def _digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of a file. For a large file, only its size, its first bytes and its last bytes are
    included."""
    if size <= 2 * _LARGE:
        return hashlib.sha256(file.read()).hexdigest()
    digest = hashlib.sha256(str(size).encode() + file.read(_LARGE))
    file.seek(size - _LARGE)
    digest.update(file.read())
    return digest.hexdigest()


def _append(root: Path, entries: Iterable[tuple[str, str | None]]) -> None:
    lines = [json.dumps({"name": name, "sha256": digest}) for name, digest in entries]
    with (root / MANIFEST).open("ab") as file:
        # a line break comes first, because the last line may be cut off
        file.write("".join(f"\n{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def _noted(root: Path) -> dict[str, set[str | None]]:
    """A dictionary that maps the names of the files in a manifest to their digests. Incomplete
    lines are ignored."""
    digests: dict[str, set[str | None]] = {}
    try:
        lines = (root / MANIFEST).read_bytes().splitlines()
    except FileNotFoundError:
        return digests
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            digests.setdefault(entry["name"], set()).add(entry["sha256"])
    return digests
