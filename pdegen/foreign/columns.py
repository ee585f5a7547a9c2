"""Arrays in the rows of a table: their types in the words of `datasets`, their values in Arrow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Column:
    """A column of a table: an array in each row.

    Args:
        name: Of the array in the store.
        shape: In a row; empty for a number.
        dtype: Of the numbers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        """Of a row."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def feature(self) -> dict[str, Any]:
        """Its type, in the words of `datasets`.

        >>> Column("t", (), np.dtype("float32")).feature
        {'dtype': 'float32', '_type': 'Value'}
        >>> Column("u", (4, 4), np.dtype("float32")).feature
        {'shape': [4, 4], 'dtype': 'float32', '_type': 'Array2D'}
        """
        if not self.shape:
            return {"dtype": self.dtype.name, "_type": "Value"}
        if len(self.shape) == 1:
            value = {"dtype": self.dtype.name, "_type": "Value"}
            return {"feature": value, "length": self.shape[0], "_type": "Sequence"}
        kind = f"Array{len(self.shape)}D"
        return {"shape": list(self.shape), "dtype": self.dtype.name, "_type": kind}

    @property
    def listed(self) -> dict[str, Any]:
        """The same in the header of a card.

        >>> Column("u", (4, 4), np.dtype("float32")).listed
        {'name': 'u', 'dtype': {'array2_d': {'shape': [4, 4], 'dtype': 'float32'}}}
        """
        if not self.shape:
            return {"name": self.name, "dtype": self.dtype.name}
        if len(self.shape) == 1:
            return {"name": self.name, "sequence": self.dtype.name, "length": self.shape[0]}
        said = {"shape": list(self.shape), "dtype": self.dtype.name}
        return {"name": self.name, "dtype": {f"array{len(self.shape)}_d": said}}

    def arrow(self, pa: Any, values: np.ndarray) -> Any:
        """Values, shape (rows, *shape), as an Arrow array of nested lists."""
        found = pa.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(self.shape[1:]):
            offsets = np.arange(0, len(found) + 1, size, dtype=np.int32)
            found = pa.ListArray.from_arrays(pa.array(offsets), found)
        if len(self.shape) == 1:
            return pa.FixedSizeListArray.from_arrays(found, self.shape[0])
        if self.shape:
            offsets = np.arange(0, len(found) + 1, self.shape[0], dtype=np.int32)
            found = pa.ListArray.from_arrays(pa.array(offsets), found)
        return found
