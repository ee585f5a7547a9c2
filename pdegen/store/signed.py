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


def signed(content: dict[str, Any]) -> bytes:
    """JSON with the digest of the rest as its last entry, so that a change of any byte is seen.

    >>> unsigned(signed({"shard": 3}))
    {'shard': 3}
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b'%s,"sha256":"%s"}' % (text[:-1], sha256(text).encode())


def unsigned(data: bytes) -> dict[str, Any]:
    """The content of what `signed` has made.

    Raises:
        ValueError: On anything else.
    """
    rest, end = data[:-_END], data[-_END:]
    if end != b',"sha256":"%s"}' % sha256(rest + b"}").encode():
        raise ValueError("it differs from its own digest")
    try:
        return json.loads(rest + b"}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error!r:.120}") from None
