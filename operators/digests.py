"""What a store says of its own bytes, compared with them before they are used.

`seal.json` holds SHA-256 of the metadata and coordinates, `records/*.json` that of each shard. A
shard is compared when a process first reads it; after that the checksum of each chunk guards it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

_LARGEST = 2**30  # bytes of metadata or of a coordinate, at most


class Changed(ValueError):
    """Bytes that are not those that were sealed; says what, in one line."""


def check_sealed(files: Any, root: str, coordinates: Mapping[str, int]) -> None:
    """Compare the metadata and coordinates of a store with its seal.

    Args:
        files, root: The file system of the store, and its path there.
        coordinates: Number of axes of each coordinate.

    Raises:
        Changed: If they differ, or there is no sound seal.
    """
    digests = _signed(files, f"{root}/seal.json", "seal.json").get("objects")
    if not isinstance(digests, dict):
        raise Changed("seal.json is damaged")
    chunks = ["/".join([name, "c", *["0"] * axes]) for name, axes in coordinates.items()]
    for key in ("zarr.json", *chunks):
        if hashlib.sha256(_bytes(files, f"{root}/{key}", key)).hexdigest() != digests.get(key):
            raise Changed(f"{key} differs from the seal")


def check_shard(
    files: Any, root: str, name: str, shard: int, pieces: Iterable[bytes], job: str | None
) -> None:
    """Compare the stored bytes of a variable's shard with its record.

    Args:
        files, root: The file system of the store, and its path there.
        name, shard: Of the variable, and number of the shard.
        pieces: The bytes, in pieces.
        job: Which the record must name; None in stores of version 2.

    Raises:
        Changed: If they differ, or there is no sound record.
    """
    key = f"records/{shard:06d}.json"
    record = _signed(files, f"{root}/{key}", key)
    if record.get("job") != job or record.get("shard") != shard:
        raise Changed(f"{key} is the record of another {'job' if job else 'shard'}")
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
def sound() -> set[tuple[str, str, str, int]]:
    """The shards that this process has compared: of which store and content, variable, number."""
    return set()


def _signed(files: Any, path: str, key: str) -> dict[str, Any]:
    """The content of a JSON object that ends with the digest of all before."""
    data = _bytes(files, path, key)
    try:
        content = json.loads(data)
        digest = content.pop("sha256")
        text = json.dumps(content, separators=(",", ":"))
        signed = json.dumps({**content, "sha256": digest}, separators=(",", ":")).encode()
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise Changed(f"{key} is damaged") from None
    if signed != data or digest != hashlib.sha256(text.encode()).hexdigest():
        raise Changed(f"{key} is damaged")
    return content


def _bytes(files: Any, path: str, key: str) -> bytes:
    try:
        data = files.cat_file(path, start=0, end=_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise Changed(f"{key} is missing") from None
    if len(data) > _LARGEST:
        raise Changed(f"{key} is larger than {_LARGEST:,} bytes")
    return data
