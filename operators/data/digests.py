"""What a store says of its own bytes, compared with them before they are used.

`seal.json` holds SHA-256 of the metadata and coordinates, `records/*.json` that of each shard. A
shard is compared when a process first reads it; after that the checksum of each chunk guards it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fsspec.implementations.local import LocalFileSystem

_SIGNATURE = 77  # bytes of `,"sha256":"..."}`, with which a signed object ends
_MARK = 16  # digits by which the seal knows a record
_LARGEST = 2**30  # bytes of metadata or of a coordinate, at most


class Changed(ValueError):
    """Bytes that are not those that were sealed; says what, in one line."""


def check_sealed(
    files: Any, root: str, coordinates: Mapping[str, int], shards: int, version: int
) -> str | None:
    """Compare the metadata and coordinates of a store with its seal; in version 2 all records too.

    Args:
        files, root: The file system of the store, and its path there.
        coordinates: Number of axes of each coordinate.
        shards: Number of shards.
        version: Of the format.

    Returns:
        The first 16 digits of SHA-256 of each record, one after another; None in version 2.

    Raises:
        Changed: If they differ, or there is no sound seal.
    """
    seal = _signed(files, f"{root}/seal.json", "seal.json")
    digests = seal.get("objects")
    if not isinstance(digests, dict):
        raise Changed("seal.json is damaged")
    chunks = ["/".join([name, "c", *["0"] * axes]) for name, axes in coordinates.items()]
    for key in ("zarr.json", *chunks):
        if hashlib.sha256(_bytes(files, f"{root}/{key}", key)).hexdigest() != digests.get(key):
            raise Changed(f"{key} differs from the seal")
    marks = seal.get("shards")
    if version > 2:
        if not isinstance(marks, str) or len(marks) != _MARK * shards:
            raise Changed("seal.json is damaged")
        return marks
    found = hashlib.sha256()
    for shard in range(shards):
        key = f"records/{shard:06d}.json"
        found.update(_bytes(files, f"{root}/{key}", key))
    if found.hexdigest() != seal.get("records"):
        raise Changed("the records differ from the seal")
    return None


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
        records: What `check_sealed` has returned.

    Raises:
        Changed: If they differ, or there is no sound record.
    """
    key = f"records/{shard:06d}.json"
    data = _bytes(files, f"{root}/{key}", key)
    record = _content(data, key)
    if record.get("job") != job or record.get("shard") != shard:
        raise Changed(f"{key} is the record of another {'job' if job else 'shard'}")
    mark = hashlib.sha256(data).hexdigest()[:_MARK]
    if records is not None and records[shard * _MARK : (shard + 1) * _MARK] != mark:
        raise Changed(f"{key} is not the record that was sealed")
    digests, found = record.get("digest"), hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    if not isinstance(digests, dict) or digests.get(name) != found.hexdigest():
        raise Changed("the bytes differ from the recorded digest")


def job_of(attributes: Mapping[str, Any]) -> str | None:
    """What every record of a store names: fingerprint, and a device that is not NumPy."""
    if attributes["format_version"] == 2:
        return None
    provenance = attributes.get("provenance")
    device = provenance.get("device") if isinstance(provenance, dict) else None
    return f"{attributes['fingerprint']}@{device}" if device else attributes["fingerprint"]


@cache
def sound() -> set[tuple[str, str, str, int, str]]:
    """The shards that this process has compared: of which store and content, variable, number, and
    the identity of the file."""
    return set()


def _signed(files: Any, path: str, key: str) -> dict[str, Any]:
    """The content of a JSON object that ends with the digest of all before."""
    return _content(_bytes(files, path, key), key)


def _content(data: bytes, key: str) -> dict[str, Any]:
    """The content of such bytes. Raises Changed on others."""
    digest = hashlib.sha256(data[:-_SIGNATURE] + b"}").hexdigest()
    if data[-_SIGNATURE:] != f',"sha256":"{digest}"}}'.encode():
        raise Changed(f"{key} is damaged")
    return json.loads(data)


def check_file(files: Any, path: str) -> None:
    """Raise IsADirectoryError for what is no file on a disk, such as a pipe, which would wait."""
    if isinstance(files, LocalFileSystem) and not stat.S_ISREG(os.stat(path).st_mode):
        raise IsADirectoryError(f"{path} is no file")


def _bytes(files: Any, path: str, key: str) -> bytes:
    try:
        check_file(files, path)
        data = files.cat_file(path, start=0, end=_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise Changed(f"{key} is missing") from None
    if len(data) > _LARGEST:
        raise Changed(f"{key} is larger than {_LARGEST:,} bytes")
    return data
