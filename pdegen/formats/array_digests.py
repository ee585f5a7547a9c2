"""SHA-256 of the values of an array. It does not depend on the file format that stores the
array."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCK = 2**24  # bytes to read at a time


@dataclass(frozen=True)
class Digest:
    """SHA-256 of the values of an array. The values are little-endian and in C order. A bool is one
    byte with the value 0 or 1.

    >>> u, whole, parts = np.arange(6.0).reshape(3, 2), Digest(), Digest()
    >>> whole.add(np.asfortranarray(u))
    >>> parts.add(u[:1])
    >>> parts.add(u[1:])
    >>> whole.hex == parts.hex
    True
    """

    _sha256: Any = field(default_factory=hashlib.sha256)

    def add(self, values: np.ndarray) -> None:
        """Add the next values along the first axis. An array without axes is added in one call."""
        stored = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
        self._sha256.update(stored.tobytes())

    @property
    def hex(self) -> str:
        """The digest of the values that were added, as 64 hexadecimal digits."""
        return self._sha256.hexdigest()
