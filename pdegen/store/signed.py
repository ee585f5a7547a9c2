"""JSON that ends with its own digest, and the digests by which a store knows its objects."""

from __future__ import annotations

import hashlib
import json
from typing import Any

MARK = 16  # digits of SHA-256 by which the seal knows a record
_END = 77  # bytes of `,"sha256":"..."}`


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mark(record: bytes) -> str:
    """What the seal knows a record by."""
    return sha256(record)[:MARK]


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of a JSON reader that refuses repeated keys, of which one reader has
    the first value, another one the last.

    Raises:
        ValueError: If a key is repeated.

    >>> json.loads('{"train": [0, 4], "test": [4, 6]}', object_pairs_hook=unique)
    {'train': [0, 4], 'test': [4, 6]}
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r:.80} is repeated")
    return content


def signed(content: dict[str, Any]) -> bytes:
    """JSON with the digest of the rest as its last entry, so that a change of any byte is seen.

    >>> unsigned(signed({"shard": 3}))
    {'shard': 3}
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b'%s,"sha256":"%s"}' % (text[:-1], sha256(text).encode())


def unsigned(data: bytes) -> dict[str, Any]:
    """The content of what `signed` has made. Raises ValueError on anything else."""
    rest, end = data[:-_END], data[-_END:]
    if end != b',"sha256":"%s"}' % sha256(rest + b"}").encode():
        raise ValueError("it differs from its own digest")
    try:
        return json.loads(rest + b"}", object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error!r:.120}") from None
