"""SHA-256 of the objects of a store, and JSON that ends with its own SHA-256."""

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
    """The first digits of the SHA-256 of a record, which the seal holds."""
    return sha256(record)[:SHORT_DIGITS]


def short_digest_of(digests: str, shard: int) -> str:
    """The short digest of a shard's record, from those of all records in order; "" if too few."""
    return digests[shard * SHORT_DIGITS : (shard + 1) * SHORT_DIGITS]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for JSON that refuses repeated keys.

    Of a repeated key one reader takes the first value and another the last.

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
    """JSON whose last entry is the SHA-256 of the rest, so that any changed byte is detected.

    >>> without_digest(with_digest({"shard": 3}))
    {'shard': 3}
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b'%s,"sha256":"%s"}' % (text[:-1], sha256(text).encode())


def without_digest(data: bytes) -> dict[str, Any]:
    """The content of JSON that `with_digest` wrote. Raises ValueError if any byte was changed."""
    text, end = data[:-_END], data[-_END:]
    if end != b',"sha256":"%s"}' % sha256(text + b"}").encode():
        raise ValueError("it differs from its own digest")
    try:
        return json.loads(text + b"}", object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error!r:.120}") from None
