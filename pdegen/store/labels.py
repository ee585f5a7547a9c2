"""The coordinate `channel`. Its values are the names of the components, by which xarray can select
them.

The names are copied from the attribute `channels` of the variables. pdegen reads that attribute and
not this coordinate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pdegen.store.arrays import KEYS, Json, checksum

CHANNEL = "channel"


@dataclass(frozen=True)
class Labels:
    """Names along the axis `channel`. All variables with this axis share them."""

    names: tuple[str, ...]  # names of the components, each once

    KEY = f"{CHANNEL}/c/0"

    @classmethod
    def common(
        cls, variables: Iterable[tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]]
    ) -> Self | None:
        """The common channel names of all variables.

        The result is None if no variable has channels, if two variables have different channel
        names, or if names are missing or repeated.

        Args:
            variables: Dimensions, shape and channel names of each variable.

        >>> Labels.common([(("x",), (8,), ()), (("channel", "x"), (2, 8), ("u", "v"))])
        Labels(names=('u', 'v'))
        """
        counted = {
            (shape[dims.index(CHANNEL)], names) for dims, shape, names in variables
            if CHANNEL in dims
        }  # fmt: skip
        if len(counted) != 1:
            return None
        ((count, names),) = counted
        if not len(names) == len(set(names)) == count:
            return None
        try:
            "".join(names).encode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can hold
            return None
        return cls(names)

    @property
    def attributes(self) -> Json:
        """The attributes of the coordinate."""
        return {"long_name": "names of the channels"}

    @property
    def zarr_metadata(self) -> Json:
        """The Zarr metadata of the coordinate."""
        shape = [len(self.names)]
        return {
            "shape": shape,
            "data_type": "string",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": KEYS,
            "fill_value": "",
            "codecs": [{"name": "vlen-utf8", "configuration": {}}, {"name": "crc32c"}],
            "attributes": self.attributes,
            "dimension_names": [CHANNEL],
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }

    @property
    def data(self) -> bytes:
        """The bytes of the stored object. They consist of the number of names, the length and text
        of each name, and a CRC-32C checksum.

        >>> Labels(("rho", "m")).data[:15]
        b'\\x02\\x00\\x00\\x00\\x03\\x00\\x00\\x00rho\\x01\\x00\\x00\\x00'
        """
        parts = [len(self.names).to_bytes(4, "little")]
        for name in self.names:
            text = name.encode()
            parts += [len(text).to_bytes(4, "little"), text]
        data = b"".join(parts)
        return data + checksum(data)
