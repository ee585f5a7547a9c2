"""Which files of a folder were written by this package, so that no others are replaced or removed.

A folder that is claimed holds `.written.jsonl`: a line for each file below it, noted before the
file appears. Files that people may edit (reports, tables, pictures) are noted with their SHA-256;
an edited one counts as theirs. Files that only programs read (`_MACHINE`) have digests of their
own: they are noted by name, and a damaged one may be replaced.
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
LOCK = "lock"  # in a folder that is held, or whose holder was killed
_MACHINE = {".json", ".jsonl", ".pt", ".safetensors", ""}
_EVENTS = re.compile(r"(.*/)?tensorboard/events\.out\.tfevents\.\d{10}\.[^/]+\.pdegen")
_STORE = ("zarr.json", "seal.json")
_LARGE = 2**23  # bytes
_DEPTH = 6  # folders above a file that are searched for the one that is claimed


def start_manifest(folder: Path) -> None:
    """Note from now on what is written below a folder, which exists."""
    with (folder / MANIFEST).open("a"):
        pass


def note(path: Path, data: bytes) -> Path | None:
    """Note a file that is about to be written, where its folder is claimed; the claimed folder.
    Raises PermissionError where another file has its name, or a folder on the way is a link."""
    path = Path(os.path.abspath(path))
    root = _above(path)
    if root is None:
        return None
    name = path.relative_to(root).as_posix()
    links = [one for one in (path, *path.parents) if root in one.parents and one.is_symlink()]
    noted = _noted(root)
    if links or (path.exists() and not _is_ours(root, name, noted)):
        what = links[0] if links else path
        raise PermissionError(f"{what} was not written by pdegen: it stays, move it away")
    digest = None if path.suffix in _MACHINE else _digest(io.BytesIO(data), len(data))
    if digest not in noted.get(name, ()):
        _append(root, [(name, digest)])
    return root


def note_part(folder: Path) -> None:
    """Note a folder that is going to be claimed as a part of the claimed one above it, if there is
    one: what lies in other claimed folders is of others."""
    place = Path(os.path.abspath(folder))
    root = _above(place)
    if root is not None:
        _append(root, [(f"{place.relative_to(root).as_posix()}/", None)])


def enclosing_store(path: Path | str) -> Path | None:
    """The sealed store that a path lies in: its seal has each of its files, and no others."""
    above = Path(os.path.abspath(path)).parents
    return next((one for one in above if all((one / name).is_file() for name in _STORE)), None)


def _above(path: Path) -> Path | None:
    """The nearest claimed folder above a path."""
    return next((one for one in path.parents[:_DEPTH] if (one / MANIFEST).is_file()), None)


def note_all(folder: Path) -> None:
    """Note all files of a folder that was written just now, where it or one above is claimed."""
    place = Path(os.path.abspath(folder))
    root = place if (place / MANIFEST).is_file() else _above(place)
    if root is None:
        return
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.name != MANIFEST)
    entries = list[tuple[str, str | None]]()
    for path in files:
        name = path.relative_to(root).as_posix()
        entries.append((name, None if path.suffix in _MACHINE else _digest_of(path)))
    _append(root, entries)


def foreign_files(folder: Path) -> list[str]:
    """The names of what was not written by this package, or was edited since, sorted."""
    return sorted(name for name, ours in _all(folder) if not ours)


def is_ours(folder: Path, name: str) -> bool:
    """Whether a file of a claimed folder was written by this package."""
    return _is_ours(folder, name, _noted(folder))


def remove(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove what this package has written in a claimed folder, but for the names to keep, and
    folders that are empty then; the claimed one too, if none are kept."""
    for name, ours in list(_all(folder)):
        if ours and name not in keep:
            (folder / name).unlink(missing_ok=True)
    for place, _, _ in os.walk(folder, topdown=False):
        inner = Path(place)
        if inner == folder and keep:
            continue
        left = [path.name for path in inner.iterdir()]
        if left == [MANIFEST]:
            (inner / MANIFEST).unlink()
        with suppress(OSError):  # others' files are there
            inner.rmdir()


def _all(folder: Path) -> Iterator[tuple[str, bool]]:
    """Names of all files and links below a folder, and whether they are ours."""
    roots = {folder: _noted(folder)}
    for place, folders, files in os.walk(folder):
        inner = Path(place)
        if inner != folder and (inner / MANIFEST).is_file():
            above = next(one for one in inner.parents if one in roots)
            part = f"{inner.relative_to(above).as_posix()}/" in roots[above]
            roots[inner] = _noted(inner) if part else {}
        root = next(one for one in (inner, *inner.parents) if one in roots)
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
    """The SHA-256 of a file; of a large one of its size, its first and its last bytes."""
    if size <= 2 * _LARGE:
        return hashlib.sha256(file.read()).hexdigest()
    digest = hashlib.sha256(str(size).encode() + file.read(_LARGE))
    file.seek(size - _LARGE)
    digest.update(file.read())
    return digest.hexdigest()


def _append(root: Path, entries: Iterable[tuple[str, str | None]]) -> None:
    lines = [json.dumps({"name": name, "sha256": digest}) for name, digest in entries]
    with (root / MANIFEST).open("ab") as file:
        file.write("".join(f"\n{line}\n" for line in lines).encode())  # after one that is cut off
        file.flush()
        os.fsync(file.fileno())


def _noted(root: Path) -> dict[str, set[str | None]]:
    """Digests by name; lines that were cut off do not count."""
    found: dict[str, set[str | None]] = {}
    try:
        lines = (root / MANIFEST).read_bytes().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            found.setdefault(entry["name"], set()).add(entry["sha256"])
    return found
