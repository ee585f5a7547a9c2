"""What a store says of its own bytes, compared with them before they are used.

`seal.json` holds SHA-256 of the metadata and coordinates, `records/*.json` that of each shard. A
shard is compared when a process first reads it; after that the checksum of each chunk guards it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeGuard

from fsspec.implementations.local import (  # pyright: ignore[reportMissingTypeStubs]
    LocalFileSystem,
)

from pdegen.store.format import MARK, ROOT, Description, mark, sha256, unsigned

_LARGEST = 2**30  # bytes of a seal or of a coordinate, at most


class Changed(ValueError):
    """Bytes that are not those that were sealed; says what, in one line."""


def check_seal(
    files: Any, root: str, store: Description, data: bytes
) -> tuple[dict[str, bytes], str | None]:
    """Compare the metadata and coordinates of a store with its seal; in version 2 all records too.

    Args:
        files, root: The file system of the store, and its path there.
        store: What it says of itself.
        data: The bytes of its `zarr.json`.

    Returns:
        The objects of its coordinates by their keys, and the marks of all records, one after
        another; None in version 2.

    Raises:
        Changed: If they differ, or there is no sound seal.
    """
    seal = _content(read(files, f"{root}/seal.json", "seal.json"), "seal.json")
    digests: Any = seal.get("objects")
    if not is_table(digests):
        raise Changed("seal.json is damaged")
    labels = store.labels
    keys = [array.key() for array in store.coordinates.values()]
    keys += [] if labels is None else [labels.KEY]
    found = {key: read(files, f"{root}/{key}", key) for key in keys}
    for key, content in {ROOT: data, **found}.items():
        if sha256(content) != digests.get(key):
            raise Changed(f"{key} differs from the seal")
    if labels is not None and found.pop(labels.KEY) != labels.data:
        raise Changed(f"{labels.KEY} has other names than the channels")
    marks = seal.get("shards")
    if store.version > 2:
        if not isinstance(marks, str) or len(marks) != MARK * store.shards:
            raise Changed("seal.json is damaged")
        return found, marks
    records = hashlib.sha256()
    for shard in range(store.shards):
        key = f"records/{shard:06d}.json"
        records.update(read(files, f"{root}/{key}", key))
    if records.hexdigest() != seal.get("records"):
        raise Changed("the records differ from the seal")
    return found, None


def check_shard(
    files: Any,
    root: str,
    name: str,
    shard: int,
    pieces: Iterable[bytes],
    job: str | None,
    records: str | None,
) -> None:
    """Compare the stored bytes of a variable's shard with its record.

    Args:
        files, root: The file system of the store, and its path there.
        name, shard: Of the variable, and number of the shard.
        pieces: The bytes, in pieces.
        job: Which the record must name; None in stores of version 2.
        records: The marks of all records; None in version 2.

    Raises:
        Changed: If they differ, or there is no sound record.
    """
    key = f"records/{shard:06d}.json"
    data = read(files, f"{root}/{key}", key)
    record = _content(data, key)
    if record.get("job") != job or record.get("shard") != shard:
        raise Changed(f"{key} is the record of another {'job' if job else 'shard'}")
    if records is not None and records[shard * MARK : (shard + 1) * MARK] != mark(data):
        raise Changed(f"{key} is not the record that was sealed")
    digests: Any = record.get("digest")
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    if not is_table(digests) or digests.get(name) != found.hexdigest():
        raise Changed("the bytes differ from the recorded digest")


@cache
def sound() -> set[tuple[str, str, str, int, str]]:
    """The shards that this process has compared: of which store and content, variable, number, and
    the identity of the file."""
    return set()


def is_table(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON."""
    return isinstance(value, dict)


def _content(data: bytes, key: str) -> dict[str, Any]:
    """The content of JSON that ends with its own digest. Raises Changed on others."""
    try:
        return unsigned(data)
    except ValueError:
        raise Changed(f"{key} is damaged") from None


def check_file(files: Any, path: str) -> None:
    """Raise IsADirectoryError for what is no file on a disk, such as a pipe, which would wait."""
    if isinstance(files, LocalFileSystem) and not stat.S_ISREG(os.stat(path).st_mode):
        raise IsADirectoryError(f"{path} is no file")


def read(files: Any, path: str, key: str, largest: int = _LARGEST) -> bytes:
    """The bytes of an object. Raises Changed where there are none, or more than `largest`."""
    try:
        check_file(files, path)
        data = files.cat_file(path, start=0, end=largest + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        if key == ROOT:  # then there is no store
            raise
        raise Changed(f"{key} is missing") from None
    if len(data) > largest:
        raise Changed(f"{key} has more than {largest:,} bytes")
    return data
