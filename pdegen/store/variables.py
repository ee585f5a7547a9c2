"""The arrays of a store: what has a value for every sample, and what all samples share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pdegen.domains import NAMES, Box, Cloud, Domain, Grid
from pdegen.schema import SchemaError
from pdegen.store.arrays import Json


@dataclass(frozen=True)
class Variable:
    """An array with a value for every sample."""

    name: str  # name in the store
    dims: tuple[str, ...]  # names of its dimensions after `sample`
    shape: tuple[int, ...]  # sizes of these
    dtype: str  # type on disk
    # long_name, units and what else a reader should know
    attributes: Mapping[str, Any] = field(default_factory=Json)


@dataclass(frozen=True)
class Coordinate:
    """An array shared by all samples, such as the grid points."""

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
    """A variable whose values are functions on a domain, (time, channel, *axes) in each sample.

    Args:
        domain, name: Where, and how it is called in the store.
        role: "input", "target" or "geometry".
        long_name: For people.
        times: Of the values; a single one has no axis.
        channels: Names of the components; no axis where there are none.
        dtype: On disk.
        attributes: Parameters of the equation, and units, which are "1" by default.

    >>> function(Box.cell(8, 4), "u", "target", "velocity", channels=("u", "v")).shape
    (2, 8, 4)
    """
    timed = len(times) > 1
    words = ["time"] if len(times) else []
    words += [] if isinstance(domain, Box) or role == "geometry" else NAMES[: domain.dim]
    return Variable(
        name,
        (*(("time",) if timed else ()), *(("channel",) if channels else ()), *domain.axes),
        (*((len(times),) if timed else ()), *((len(channels),) if channels else ()), *domain.shape),
        dtype,
        {
            "long_name": long_name,
            "role": role,
            **({"coordinates": " ".join(words)} if words else {}),
            **({"channels": list(channels)} if channels else {}),
            "units": "1",
            **attributes,
        },
    )


def scalar(
    name: str, role: str, long_name: str, *, dtype: str = "float64", **attributes: Any
) -> Variable:
    """A variable with one number for each sample, of the role quality, parameter or count."""
    return Variable(
        name, (), (), dtype, {"long_name": long_name, "role": role, "units": "1", **attributes}
    )


def geometry(domain: Domain) -> tuple[Variable, ...]:
    """The variables that hold the positions of each sample, where those differ."""
    if not domain.moves:
        return ()
    return tuple(
        function(domain, name, "geometry", f"position {name} of each point")
        for name in NAMES[: domain.dim]
    )


def parameters(name: str, axis: str, count: int, long_name: str) -> Variable:
    """A variable with so many numbers for each sample, from which its inputs follow."""
    said = {"long_name": long_name, "role": "parameter", "units": "1"}
    return Variable(name, (axis,), (count,), "float64", said)


def positions(domain: Domain) -> tuple[Coordinate, ...]:
    """The coordinates of a domain: positions that all samples share, cells and the boundary."""
    found, names = list[Coordinate](), NAMES[: domain.dim]
    if isinstance(domain, Box):
        for name, grid in zip(domain.axes, domain.grids, strict=True):
            where = _where(grid, f"position {name}" if domain.dim > 1 else "position")
            said = {"long_name": where, "units": "1", "grid": grid.kind}
            found.append(Coordinate(name, (name,), grid.x, said))
    elif not domain.moves:
        for k, name in enumerate(names):
            said = {"long_name": f"position {name} of each point", "units": "1"}
            found.append(Coordinate(name, domain.axes, domain.points[..., k], said))
    if isinstance(domain, Cloud) and domain.cells is not None:
        said = {
            "long_name": "corners of each cell, in order around it; -1 fills up",
            "cf_role": "face_node_connectivity",
            "start_index": 0,
        }
        cells = domain.cells.astype(np.int64)
        found.append(Coordinate("cells", ("cell", "corner"), cells, said))
        said = {
            "long_name": "mesh of points and cells (UGRID)",
            "cf_role": "mesh_topology",
            "topology_dimension": 2,
            "node_coordinates": " ".join(names),
            "face_node_connectivity": "cells",
        }
        found.append(Coordinate("mesh", (), np.zeros((), np.int64), said))
    if isinstance(domain, Cloud) and domain.edge is not None:
        said = {"long_name": "whether the point lies on the boundary"}
        found.append(Coordinate("edge", ("point",), domain.edge, said))
    return tuple(found)


def _where(grid: Grid, position: str) -> str:
    """The points of a grid in words."""
    start, end = f"{grid.start:g}", f"{grid.start + grid.length:g}"
    return {
        "periodic": f"{position} on the circle of length {grid.length:g}",
        "cell": f"{position}, cell centres of ({start}, {end})",
        "nodal": f"{position}, nodes of [{start}, {end}], both ends included",
    }[grid.kind]


def times(values: Sequence[float] | np.ndarray) -> Coordinate:
    """The coordinate time: without an axis where there is one time."""
    array = np.asarray(values)
    attributes = {"long_name": "time", "units": "1"}
    if array.size == 1:
        return Coordinate("time", (), array.reshape(()), attributes)
    return Coordinate("time", ("time",), array, attributes)


def check_domain(domain: Domain, variables: Iterable[Variable]) -> None:
    """Raise SchemaError where variables do not fit the domain that they are functions on."""
    known = {variable.name: variable for variable in variables}
    between, sizes = ("level", "time", "channel"), dict(zip(domain.axes, domain.shape, strict=True))
    for name, variable in known.items():
        if not set(variable.dims) & set(domain.axes):
            continue
        if variable.dims != (*(dim for dim in between if dim in variable.dims), *domain.axes):
            wanted = ", ".join(domain.axes)
            raise SchemaError(
                f"{name} has the axes {', '.join(variable.dims)}: expected {wanted}, and before "
                "them none but level, time, channel, in this order"
            )
        for dim, n in zip(variable.dims, variable.shape, strict=True):
            if sizes.setdefault(dim, n) != n:
                raise SchemaError(f"{name} has {n} points along {dim}, expected {sizes[dim]}")
        channels = variable.attributes.get("channels", [])
        if "channel" in variable.dims and len(channels) != sizes["channel"]:
            raise SchemaError(f"{name} has {sizes['channel']} channels, and names of {channels}")
    for variable in geometry(domain):
        there = known.get(variable.name)
        if there is None or there.dims != variable.dims:
            raise SchemaError(
                f"the positions differ from sample to sample: a variable {variable.name} of the "
                f"role geometry, with the axes {', '.join(variable.dims)}, must hold them"
            )
