"""SHA-256 of stored objects, and JSON documents that end with their own SHA-256."""

from __future__ import annotations

import hashlib
import json
from typing import Any

SHORT_DIGITS = 16  # digits of the SHA-256 of a record that the seal holds
_END = 77  # bytes of `,"sha256":"..."}`


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def short_digest(record: bytes) -> str:
    """The first digits of the SHA-256 of a record. The seal stores these digits for every
    record."""
    return sha256(record)[:SHORT_DIGITS]


def short_digest_of(digests: str, shard: int) -> str:
    """The short digest of the record of a shard, from the string of all short digests. Empty if the
    string is too short."""
    return digests[shard * SHORT_DIGITS : (shard + 1) * SHORT_DIGITS]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for `json` that refuses repeated keys.

    Some JSON readers use the first value of a repeated key, others the last.

    Raises:
        ValueError: If a key is repeated.

    >>> json.loads('{"train": [0, 4], "test": [4, 6]}', object_pairs_hook=unique_keys)
    {'train': [0, 4], 'test': [4, 6]}
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r:.80} is repeated")
    return content


def with_digest(content: dict[str, Any]) -> bytes:
    """Encode JSON and append its SHA-256 as the last entry. Any changed byte is then detected.

    >>> without_digest(with_digest({"shard": 3}))
    {'shard': 3}
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b'%s,"sha256":"%s"}' % (text[:-1], sha256(text).encode())


def without_digest(data: bytes) -> dict[str, Any]:
    """Decode JSON that `with_digest` has written, and remove the digest. Raises ValueError if any
    byte was changed."""
    text, end = data[:-_END], data[-_END:]
    if end != b',"sha256":"%s"}' % sha256(text + b"}").encode():
        raise ValueError("it differs from its own digest")
    try:
        return json.loads(text + b"}", object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error!r:.120}") from None
