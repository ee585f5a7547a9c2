"""The coordinate `channel`: the names of the components, by which readers of Zarr select.

Its bytes follow from the attribute `channels` of the variables, so whoever knows that needs not
read it; xarray reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pdegen.store.arrays import KEYS, Json, checksum

CHANNEL = "channel"


@dataclass(frozen=True)
class Labels:
    """Names along the axis `channel` of all variables that have it."""

    names: tuple[str, ...]  # of the components, each once

    KEY = f"{CHANNEL}/c/0"

    @classmethod
    def common(
        cls, variables: Iterable[tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]]
    ) -> Self | None:
        """The labels of a store; None where no variable has channels, or they have other names in
        different variables, no names, or names that are not of one channel each.

        >>> Labels.common([(("x",), (8,), ()), (("channel", "x"), (2, 8), ("u", "v"))])
        Labels(names=('u', 'v'))
        """
        found = {
            (shape[dims.index(CHANNEL)], names) for dims, shape, names in variables
            if CHANNEL in dims
        }  # fmt: skip
        if len(found) != 1:
            return None
        ((count, names),) = found
        if not len(names) == len(set(names)) == count:
            return None
        try:
            "".join(names).encode()
        except UnicodeEncodeError:  # half of a pair of UTF-16, which JSON can hold
            return None
        return cls(names)

    @property
    def attributes(self) -> Json:
        """What it says of itself."""
        return {"long_name": "names of the channels"}

    @property
    def zarr_metadata(self) -> Json:
        """Zarr's metadata of it."""
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
        """The bytes of its object: the number of names, each after its length, and the CRC-32C.

        >>> Labels(("rho", "m")).data[:15]
        b'\\x02\\x00\\x00\\x00\\x03\\x00\\x00\\x00rho\\x01\\x00\\x00\\x00'
        """
        parts = [len(self.names).to_bytes(4, "little")]
        for name in self.names:
            text = name.encode()
            parts += [len(text).to_bytes(4, "little"), text]
        data = b"".join(parts)
        return data + checksum(data)
