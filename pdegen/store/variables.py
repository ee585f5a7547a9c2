"""Variables and coordinates of a store, and the conversion of domains and functions to these
arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Box, Cloud, Domain, Grid
from pdegen.schema import SchemaError
from pdegen.store.arrays import Json


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
