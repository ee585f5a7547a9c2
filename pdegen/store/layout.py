"""The layout of a new store: variables, coordinates, attributes, and their Zarr metadata."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from pdegen.domains import Domain
from pdegen.schema import SchemaError
from pdegen.store.arrays import CHUNK_BYTES, SAMPLES, SHARD_BYTES, fill
from pdegen.store.format import FORMAT, FORMAT_VERSION, ROOT
from pdegen.store.labels import CHANNEL, Labels
from pdegen.store.splits import splits_fault
from pdegen.store.variables import Coordinate, Variable, check_domain

if TYPE_CHECKING:  # recipes check sizes with this module, and Zarr takes half a second to import
    import zarr

_CHUNK_BYTES = min(2**19, CHUNK_BYTES)  # half a megabyte: small enough to read single samples


@dataclass(frozen=True)
class Layout:
    """The variables, coordinates, attributes and shard size of a new store. Raises SchemaError if
    the store would be larger than readers accept, or if its splits are impossible."""

    samples: int
    shard: int
    variables: tuple[Variable, ...]
    coordinates: tuple[Coordinate, ...]
    attributes: Mapping[str, Any]
    # compression of chunks: "lz4", "zstd" (both in Blosc, after a byte shuffle) or "none";
    # `python -m benchmarks.codecs` prints sizes and speeds
    codec: Literal["lz4", "zstd", "none"] = "lz4"
    domain: Domain | None = None  # domain of the variables, unless the attributes have it

    def __post_init__(self) -> None:
        check_sizes(self.samples, self.shard, self.variables)
        if self.domain is not None:
            check_domain(self.domain, self.variables)
        if fault := splits_fault(self.attributes["splits"], self.samples):
            raise SchemaError(fault)
        total = sum(coordinate.values.nbytes for coordinate in self.coordinates)
        if total > CHUNK_BYTES:
            raise SchemaError(
                f"all coordinates together have {total:,} bytes, readers accept {CHUNK_BYTES:,}"
            )

    @property
    def shards(self) -> int:
        """Number of shards of each variable."""
        return math.ceil(self.samples / self.shard)

    @property
    def bytes(self) -> int:
        """Size of all variables before compression, in bytes."""
        return self.samples * sum(v.bytes for v in self.variables)

    @property
    def labels(self) -> Labels | None:
        """The coordinate `channel`. None if the variables have no common channel names, or if
        another array is named `channel`."""
        if CHANNEL in {array.name for array in (*self.variables, *self.coordinates)}:
            return None
        return Labels.common(
            (v.dims, v.shape, _texts(v.attributes.get("channels"))) for v in self.variables
        )

    def objects(self, version: int = FORMAT_VERSION) -> dict[str, bytes]:
        """A dictionary that maps the keys of all metadata and coordinates to their bytes. The last
        key is `zarr.json`. Stores of format version 3 have no coordinate `channel`."""
        import zarr
        from zarr.codecs import BloscCodec, Crc32cCodec
        from zarr.errors import ZarrUserWarning
        from zarr.storage import MemoryStore

        compressors: list[BloscCodec | Crc32cCodec] = []
        if self.codec != "none":
            compressors.append(BloscCodec(cname=self.codec, clevel=5, shuffle="shuffle"))
        compressors.append(Crc32cCodec())  # every reader checks it
        memory = MemoryStore()
        group = zarr.create_group(  # pyright: ignore[reportUnknownMemberType]
            store=memory,
            attributes={
                "format": FORMAT,
                "format_version": version,
                "sealed": False,
                "samples": self.samples,
                "shard": self.shard,
                "variables": [v.name for v in self.variables],
                **({} if self.domain is None else {"domain": self.domain.attributes()}),
                **self.attributes,
            },
        )
        for coordinate in self.coordinates:
            _put(coordinate, group)
        labels = self.labels if version > 3 else None
        if labels is not None:
            _add(labels, group)
        for variable in self.variables:
            rows = _divisor(self.shard, at_most=max(1, _CHUNK_BYTES // variable.bytes))
            group.create_array(
                variable.name,
                shape=(self.samples, *variable.shape),
                chunks=(rows, *variable.shape),
                shards=(self.shard, *variable.shape),
                dtype=variable.dtype,
                compressors=compressors,
                fill_value=fill(np.dtype(variable.dtype)),
                dimension_names=("sample", *variable.dims),
                attributes=dict(variable.attributes),
            )
        with warnings.catch_warnings():
            # zarr warns that other readers may ignore this part, which is harmless
            warnings.filterwarnings("ignore", "Consolidated metadata", ZarrUserWarning)
            zarr.consolidate_metadata(memory, zarr_format=3)  # pyright: ignore[reportUnknownMemberType]
        # objects that Zarr has written to memory, by key
        written = memory._store_dict  # pyright: ignore[reportPrivateUsage]
        objects = {key: buffer.to_bytes() for key, buffer in written.items()}
        objects |= {} if labels is None else {labels.KEY: labels.data}
        return {
            **{key: objects[key] for key in sorted(objects) if key != ROOT},
            ROOT: objects[ROOT],
        }


def check_sizes(samples: int, shard: int, variables: Iterable[Variable]) -> None:
    """Raise SchemaError if a store would be larger than readers accept (`pdegen.store.arrays`)."""
    if samples > SAMPLES:
        raise SchemaError(f"samples must be at most {SAMPLES:,}, got {samples:,}")
    for variable in variables:
        for dim, n in zip(variable.dims, variable.shape, strict=True):
            if n > SAMPLES:
                raise SchemaError(
                    f"{variable.name} has {n:,} points along {dim}, readers accept {SAMPLES:,}"
                )
        size = variable.bytes
        if size > CHUNK_BYTES:
            raise SchemaError(
                f"{variable.name} has {size:,} bytes in each sample, readers accept {CHUNK_BYTES:,}"
            )
        if size * shard > SHARD_BYTES:
            raise SchemaError(
                f"{variable.name} has {size:,} bytes in each sample, so {size * shard:,} in a "
                f"shard of {shard:,}, readers accept {SHARD_BYTES:,}: choose a shard of at most "
                f"{SHARD_BYTES // size:,}"
            )


def _put(coordinate: Coordinate, group: zarr.Group) -> None:
    from zarr.codecs import Crc32cCodec

    array = group.create_array(
        coordinate.name,
        shape=coordinate.values.shape,
        chunks=coordinate.values.shape,
        dtype=coordinate.values.dtype,
        compressors=[Crc32cCodec()],
        fill_value=fill(coordinate.values.dtype),
        dimension_names=coordinate.dims,
        attributes=dict(coordinate.attributes),
        config={"write_empty_chunks": True},  # zeros are values
    )
    array[...] = coordinate.values


def _add(labels: Labels, group: zarr.Group) -> None:
    """Add the Zarr metadata of the coordinate `channel` to a group. Its values are
    `Labels.data`."""
    from zarr.codecs import Crc32cCodec

    group.create_array(
        CHANNEL,
        shape=(len(labels.names),),
        chunks=(len(labels.names),),
        dtype="string",
        compressors=[Crc32cCodec()],
        dimension_names=(CHANNEL,),
        attributes=labels.attributes,
    )


def _texts(value: object) -> tuple[str, ...]:
    """The entries of a list of strings. For any other value, the result is an empty tuple. Readers
    refuse such a value."""
    values = tuple(cast("list[object]", value)) if isinstance(value, list) else ()
    texts = tuple(text for text in values if isinstance(text, str))
    return texts if len(texts) == len(values) else ()


def _divisor(n: int, at_most: int) -> int:
    return max(d for d in range(1, min(n, at_most) + 1) if n % d == 0)
