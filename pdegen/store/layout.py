"""The layout of a new store: variables, coordinates, attributes, and their Zarr metadata."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from pdegen.domains import NAMES, Box, Cloud, Domain, Grid
from pdegen.schema import SchemaError
from pdegen.store.format import (
    CHANNEL,
    CHUNK_BYTES,
    FORMAT,
    FORMAT_VERSION,
    ROOT,
    SAMPLES,
    SHARD_BYTES,
    Json,
    Labels,
    fill,
    splits_fault,
)

if TYPE_CHECKING:
    import zarr


# Variables and coordinates of a store, and the conversion of domains and functions to these
# arrays.


@dataclass(frozen=True)
class Variable:
    """An array that has values for each sample."""

    name: str  # name in the store
    dims: tuple[str, ...]  # names of the dimensions after `sample`
    shape: tuple[int, ...]  # sizes of these dimensions
    dtype: str  # type on disk
    # long_name, units and further attributes for readers
    attributes: Mapping[str, Any] = field(default_factory=Json)

    @property
    def bytes(self) -> int:
        """Size of the values of one sample before compression, in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Coordinate:
    """An array that all samples share, such as the grid points."""

    name: str
    dims: tuple[str, ...]
    values: np.ndarray
    attributes: Mapping[str, Any] = field(default_factory=Json)


def function(
    domain: Domain,
    name: str,
    role: str,
    long_name: str,
    *,
    times: Sequence[float] = (),
    channels: Sequence[str] = (),
    dtype: str = "float32",
    **attributes: Any,
) -> Variable:
    """Make a variable whose samples are functions on a domain. A sample has the shape (time,
    channel, *axes).

    Args:
        domain: Domain of the functions.
        name: Name in the store.
        role: "input", "target" or "geometry".
        long_name: Description for people.
        times: Times of the values. The variable has an axis `time` if there are several times.
        channels: Names of the components. The variable has an axis `channel` if there are any.
        dtype: Dtype of the stored values.
        attributes: Parameters of the equation, and units ("1" by default).

    >>> function(Box.cell(8, 4), "u", "target", "velocity", channels=("u", "v")).shape
    (2, 8, 4)
    """
    timed = len(times) > 1
    coordinates = ["time"] if len(times) else []
    coordinates += [] if isinstance(domain, Box) or role == "geometry" else NAMES[: domain.dim]
    return Variable(
        name,
        (*(("time",) if timed else ()), *(("channel",) if channels else ()), *domain.axes),
        (*((len(times),) if timed else ()), *((len(channels),) if channels else ()), *domain.shape),
        dtype,
        {
            "long_name": long_name,
            "role": role,
            **({"coordinates": " ".join(coordinates)} if coordinates else {}),
            **({"channels": list(channels)} if channels else {}),
            "units": "1",
            **attributes,
        },
    )


def scalar(
    name: str, role: str, long_name: str, *, dtype: str = "float64", **attributes: Any
) -> Variable:
    """Make a variable with one number for each sample. Its role is "quality", "parameter" or
    "count"."""
    return Variable(
        name, (), (), dtype, {"long_name": long_name, "role": role, "units": "1", **attributes}
    )


def geometry(domain: Domain) -> tuple[Variable, ...]:
    """The variables that store the positions of the points, if each sample has its own domain.
    Empty if all samples share one domain."""
    if not domain.moves:
        return ()
    return tuple(
        function(domain, name, "geometry", f"position {name} of each point")
        for name in NAMES[: domain.dim]
    )


def parameters(name: str, axis: str, count: int, long_name: str) -> Variable:
    """Make a variable with `count` parameters for each sample. The parameters determine the inputs
    of the sample."""
    attributes = {"long_name": long_name, "role": "parameter", "units": "1"}
    return Variable(name, (axis,), (count,), "float64", attributes)


def positions(domain: Domain) -> tuple[Coordinate, ...]:
    """The coordinates that describe a domain: positions of the points, cells and boundary.
    Positions are left out if they differ between samples."""
    coordinates, names = list[Coordinate](), NAMES[: domain.dim]
    if isinstance(domain, Box):
        for name, grid in zip(domain.axes, domain.grids, strict=True):
            text = _grid_text(grid, f"position {name}" if domain.dim > 1 else "position")
            attributes = {"long_name": text, "units": "1", "grid": grid.kind}
            coordinates.append(Coordinate(name, (name,), grid.x, attributes))
    elif not domain.moves:
        for k, name in enumerate(names):
            attributes = {"long_name": f"position {name} of each point", "units": "1"}
            coordinates.append(Coordinate(name, domain.axes, domain.points[..., k], attributes))
    if isinstance(domain, Cloud) and domain.cells is not None:
        attributes = {
            "long_name": "corners of each cell, in order around it; -1 fills up",
            "cf_role": "face_node_connectivity",
            "start_index": 0,
        }
        cells = domain.cells.astype(np.int64)
        coordinates.append(Coordinate("cells", ("cell", "corner"), cells, attributes))
        attributes = {
            "long_name": "mesh of points and cells (UGRID)",
            "cf_role": "mesh_topology",
            "topology_dimension": 2,
            "node_coordinates": " ".join(names),
            "face_node_connectivity": "cells",
        }
        coordinates.append(Coordinate("mesh", (), np.zeros((), np.int64), attributes))
    if isinstance(domain, Cloud) and domain.edge is not None:
        attributes = {"long_name": "whether the point lies on the boundary"}
        coordinates.append(Coordinate("edge", ("point",), domain.edge, attributes))
    return tuple(coordinates)


def _grid_text(grid: Grid, position: str) -> str:
    """A sentence fragment that describes the points of a grid, for the attribute `long_name`."""
    start, end = f"{grid.start:g}", f"{grid.start + grid.length:g}"
    return {
        "periodic": f"{position} on the circle of length {grid.length:g}",
        "cell": f"{position}, cell centres of ({start}, {end})",
        "nodal": f"{position}, nodes of [{start}, {end}], both ends included",
    }[grid.kind]


def times(values: Sequence[float] | np.ndarray) -> Coordinate:
    """The coordinate `time`. It is a scalar without axes if there is a single time."""
    array = np.asarray(values)
    attributes = {"long_name": "time", "units": "1"}
    if array.size == 1:
        return Coordinate("time", (), array.reshape(()), attributes)
    return Coordinate("time", ("time",), array, attributes)


def check_domain(domain: Domain, variables: Iterable[Variable]) -> None:
    """Raise SchemaError if variables do not match the domain on which they are functions."""
    by_name = {variable.name: variable for variable in variables}
    between, sizes = ("level", "time", "channel"), dict(zip(domain.axes, domain.shape, strict=True))
    for name, variable in by_name.items():
        if not set(variable.dims) & set(domain.axes):
            continue
        if variable.dims != (*(dim for dim in between if dim in variable.dims), *domain.axes):
            wanted = ", ".join(domain.axes)
            raise SchemaError(
                f"{name} has the axes {', '.join(variable.dims)}: expected {wanted}, after level, "
                "time and channel in this order, if present"
            )
        for dim, n in zip(variable.dims, variable.shape, strict=True):
            if sizes.setdefault(dim, n) != n:
                raise SchemaError(f"{name} has {n} points along {dim}, expected {sizes[dim]}")
        channels = variable.attributes.get("channels", [])
        if "channel" in variable.dims and len(channels) != sizes["channel"]:
            raise SchemaError(f"{name} has {sizes['channel']} channels, but the names {channels}")
    for variable in geometry(domain):
        stored = by_name.get(variable.name)
        if stored is None or stored.dims != variable.dims:
            raise SchemaError(
                f"the points of each sample differ: they need a variable {variable.name} with the "
                f"role geometry and the axes {', '.join(variable.dims)}"
            )


_CHUNK_BYTES = min(2**19, CHUNK_BYTES)  # half a megabyte: small enough to read single samples
_SAMPLE_BYTES = min(2**24, CHUNK_BYTES)  # a sample above this is split into chunks along time


@dataclass(frozen=True)
class Layout:
    """The variables, coordinates, attributes and shard size of a new store. Raises SchemaError if
    the store would be larger than readers accept, or if its splits are impossible."""

    samples: int
    shard: int
    variables: tuple[Variable, ...]
    coordinates: tuple[Coordinate, ...]
    attributes: Mapping[str, Any]
    # compression of chunks: "lz4", "zstd" (both in Blosc, after a byte shuffle) or "none"
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
        """The coordinate `channel`."""
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
            chunk = variable.shape
            if variable.bytes > _SAMPLE_BYTES and variable.dims[0] == "time":
                frames, *rest = variable.shape
                at_most = max(1, _SAMPLE_BYTES * frames // variable.bytes)
                chunk = (_divisor(frames, at_most), *rest)
            group.create_array(
                variable.name,
                shape=(self.samples, *variable.shape),
                chunks=(rows, *chunk),
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
    """Raise SchemaError if a store would be larger than readers accept (`pdegen.store.format`)."""
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
    """Add the Zarr metadata of the coordinate `channel` to a group."""
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
    """The entries of a list of strings."""
    values = tuple(cast("list[object]", value)) if isinstance(value, list) else ()
    texts = tuple(text for text in values if isinstance(text, str))
    return texts if len(texts) == len(values) else ()


def _divisor(n: int, at_most: int) -> int:
    return max(d for d in range(1, min(n, at_most) + 1) if n % d == 0)
