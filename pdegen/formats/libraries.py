"""netCDF-3 and GRIB files and Zarr groups, read by xarray, and meshes, read by meshio. This module
runs in the child process of `pdegen.formats.sandbox`. Only arrays of numbers are read, so that no
codec unpickles objects.

The arrays of a mesh are `points`, `cells` (corners of plane cells, padded by -1), `edge` (whether a
point lies on a side of a single cell), and the data of the points.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import xarray as xr
import zarr
from xarray.backends import list_engines
from zarr.errors import ContainsArrayError

from pdegen.formats.arrays import (
    KINDS,
    MESH,
    MESHES,
    MOST_ARRAYS,
    NAMED,
    NUMBERS,
    REFERENCES,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    is_name,
    plain_attribute,
)

_BLOCK = 2**26  # bytes to read at a time
# types that netCDF-3 does not have, by the attribute `dtype` of arrays; xarray writes that of bool
_WIDER = ("bool", "uint8", "uint16", "uint32", "int64", "uint64")


def read(request: Request) -> Contents:
    """Read the variables of a file, with the names of their axes. The name of a variable in a group
    is its path. Raises Exception if the file is damaged."""
    path = request.file
    if kind := mesh_format(path):
        return _mesh(request, kind)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    dims: dict[str, tuple[str, ...]] = {}
    attributes: dict[str, str | float | list[float]] = {}
    variables: dict[str, xr.Variable] = {}
    if path.is_dir():
        _check_codecs(path)
        try:
            groups = xr.open_groups(path, engine="zarr", decode_cf=False, chunks=None)
        except (KeyError, FileNotFoundError, ContainsArrayError):  # no names of axes
            groups = {"": _unnamed(path)}
    elif _is_grib(path):
        if "cfgrib" not in list_engines():
            raise FormatError(f"{path.name} is a GRIB file, which needs cfgrib: pip install cfgrib")
        options: Any = {"indexpath": ""}  # no file beside the given one
        groups = {"": xr.open_dataset(path, engine="cfgrib", decode_cf=False, **options)}
    else:
        groups = {"": xr.open_dataset(path, engine="scipy", decode_cf=False)}
    for group, dataset in groups.items():  # values are read later, as they are stored
        attributes |= _plain(group, dataset.attrs)
        for key, variable in dataset.variables.items():
            name = f"{group}/{key}".lstrip("/")
            attributes |= _plain(name, variable.attrs)
            if variable.dtype.kind not in KINDS:
                unreadable[name] = f"is of type {variable.dtype}: {NUMBERS}"
                continue
            variables[name] = variable
            wider = variable.attrs.get("dtype")
            dtype = np.dtype(wider) if wider in _WIDER else variable.dtype.newbyteorder("=")
            arrays[name] = Array(path, name, variable.shape, dtype)
            if axes := getattr(variable, "dims", ()):
                dims[name] = tuple(map(str, axes))
    if len(arrays) > MOST_ARRAYS:
        raise FormatError(f"{path.name} has more than {MOST_ARRAYS:,} arrays")
    if "@sealed" in attributes and "@fingerprint" in attributes:
        raise FormatError(f"{path.name} is a store of pdegen: it needs no import")
    for name in request.wanted(arrays.values()):
        arrays[name] = _unpacked(request, arrays[name], variables[name])
    kind = "Zarr" if path.is_dir() else "GRIB" if _is_grib(path) else "netCDF-3"
    return Contents(path, kind, arrays, unreadable, attributes, dims)


def _is_grib(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GRIB"


def _unnamed(path: Path) -> Any:
    """The attributes and variables of Zarr arrays that xarray does not read, since they have no
    names of their axes."""
    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Array):
        return SimpleNamespace(attrs={}, variables={path.stem: root})
    nodes = sorted(root.members(max_depth=None))
    arrays = {name: node for name, node in nodes if isinstance(node, zarr.Array)}
    return SimpleNamespace(attrs=root.attrs, variables=arrays)


def _check_codecs(folder: Path) -> None:
    """Raise FormatError if a Zarr group has a codec that executes code, or refers to other files.
    xarray decodes coordinates as soon as it opens a group."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise FormatError(f"{folder.name}: {path.name[:80]!r} is a link to another file")
        if path.name not in (".zarray", ".zmetadata", "zarr.json"):
            continue
        text = json.dumps(json.loads(path.read_bytes()))  # with no letter escaped
        if "pickle" in text.lower():
            raise FormatError(f"{folder.name} has the codec pickle, which executes code")


def _plain(name: str, attributes: Mapping[Any, object]) -> dict[str, str | float | list[float]]:
    found = {f"{name.lstrip('/')}@{key}": plain_attribute(v) for key, v in attributes.items()}
    return {key[:1000]: value for key, value in found.items() if value is not None}


def _unpacked(request: Request, array: Array, variable: xr.Variable) -> Array:
    """Write an array to a separate file, block by block along its first axis."""
    target = request.target()
    row = math.prod(array.shape[1:]) * array.dtype.itemsize
    rows = max(1, _BLOCK // max(row, 1))
    with target.open("wb") as out:
        if array.shape:
            for start in range(0, array.shape[0], rows):
                np.ascontiguousarray(variable[start : start + rows], array.dtype).tofile(out)
        else:
            np.asarray(variable[()], array.dtype).tofile(out)
    return replace(array, location=Location(target, 0, "C", array.dtype))


# Meshes.

# plane cells, and the number of their corners, which come before other points; None for all
_VOLUMES = ("tetra", "hexahedron", "wedge", "pyramid", "polyhedron")
_PLANE_CELLS = {
    "triangle": 3, "triangle6": 3, "triangle7": 3,
    "quad": 4, "quad8": 4, "quad9": 4, "polygon": None,
}  # fmt: skip


def mesh_format(path: Path) -> str | None:
    """Name in meshio of the format of a mesh, by the beginning of its file; None for others."""
    if path.is_dir():
        return None
    with path.open("rb") as file:
        head = file.read(1024).lstrip()
    if head.startswith(b"<?xml"):
        head = head[head.find(b"?>") + 2 :].lstrip()
    if head.startswith(b"<!DOCTYPE"):
        head = head[head.find(b">") + 1 :].lstrip()
    return next((name for start, name in MESHES.items() if head.startswith(start)), None)


def _mesh(request: Request, kind: str) -> Contents:
    """Read the points, plane cells and data of a mesh. A series of XDMF has the axis `time`.

    Raises FormatError if an XDMF file refers to other files than HDF5 files in its folder. Raises
    Exception if the file is damaged.
    """
    path = request.file
    meshio: Any = importlib.import_module("meshio")  # an extra package, without types
    unreadable: dict[str, str] = {}
    values: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {}
    references = _references(path) if kind == "xdmf" else []
    if kind == "xdmf" and b"Temporal" in path.read_bytes():
        with importlib.import_module("meshio.xdmf").TimeSeriesReader(path) as reader:
            points, cells = reader.read_points_cells()
            steps = [reader.read_data(k) for k in range(reader.num_steps)]
        values["time"] = np.array([time for time, *_ in steps]), ("time",)
        names, of_cells = [*steps[0][1]], {*steps[0][2]}
        for name in names:
            stacked = np.stack([data[name] for _, data, _ in steps])
            values[name] = stacked, ("time", "point", "channel")[: stacked.ndim]
    else:
        mesh = meshio.read(path, file_format=kind)
        points, cells, of_cells = mesh.points, mesh.cells, {*mesh.cell_data}
        for name, data in mesh.point_data.items():
            values[name] = np.asarray(data), ("point", "channel")[: np.ndim(data)]
    while points.shape[1] > 1 and not np.ptp(points[:, -1]):  # the z of plane meshes
        points = points[:, :-1]
    unreadable |= {name: "has values of cells: give values of points" for name in of_cells}
    own: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {"points": (points, ("point", "part"))}
    if any(block.type.startswith(_VOLUMES) for block in cells):
        unreadable["cells"] = "are volumes, which a store does not keep: its points count alike"
    elif (corners := _corners(cells)) is not None:
        own["cells"] = corners, ("cell", "corner")
        own["edge"] = _edge(corners, len(points)), ("point",)
    # data with the names of these get other ones
    values = {f"{name}_data" if name in own else name: pair for name, pair in values.items()} | own
    arrays = {}
    for name, (numbers, _) in list(values.items()):
        if not is_name(name):
            unreadable[name] = NAMED
            del values[name]
            continue
        target = request.target()
        np.ascontiguousarray(numbers).tofile(target)
        native = numbers.dtype.newbyteorder("=")
        location = Location(target, 0, "C", numbers.dtype)
        arrays[name] = Array(path, name, numbers.shape, native, location)
    dims = {name: dims for name, (_, dims) in values.items()}
    attributes = {REFERENCES: "\n".join(references)} if references else {}
    return Contents(path, MESH, arrays, unreadable, attributes, dims)


def _references(path: Path) -> list[str]:
    """Names of the HDF5 files beside an XDMF file that have its numbers. Raises FormatError if it
    refers to others, or to bytes of a file."""
    names = dict[str, None]()
    for item in ElementTree.parse(path).iter("DataItem"):
        name = (item.text or "").strip().rpartition(":")[0]
        if item.get("Format", "XML").upper() == "XML":
            continue
        plain = bool(name) and Path(name).name == name and not (path.parent / name).is_symlink()
        if item.get("Format", "").upper() != "HDF" or not plain:
            raise FormatError(
                f"{path.name} refers to {(item.text or '').strip()[:80]!r}: the numbers of an XDMF "
                "file may stand in itself, or in an HDF5 file in the same folder"
            )
        names[name] = None
    for name in names:
        _check_inside(path.parent / name)
    return [*names]


def _check_inside(path: Path) -> None:
    """Raise FormatError if an HDF5 file refers to other files."""
    links: list[tuple[str, Any]] = []
    with h5py.File(path, "r", locking=False) as file:
        file.visititems_links(lambda *link: links.append(link))
        for name, link in links:
            node = file[name] if isinstance(link, h5py.HardLink) else None
            elsewhere = isinstance(node, h5py.Dataset) and (node.is_virtual or node.external)
            if node is None or elsewhere:
                raise FormatError(f"{path.name}: {name[:80]!r} is a link, or in another file")


def _corners(blocks: Sequence[Any]) -> np.ndarray | None:
    """The corners of all plane cells, padded by -1; None if there are none."""
    plane = [
        np.asarray(block.data)[:, : _PLANE_CELLS[block.type]]
        for block in blocks
        if block.type in _PLANE_CELLS
    ]
    if not plane:
        return None
    most = max(cells.shape[1] for cells in plane)
    padded = [
        np.pad(cells, ((0, 0), (0, most - cells.shape[1])), constant_values=-1)
        for cells in (cells.astype(np.int64) for cells in plane)
    ]
    return np.concatenate(padded)


def _edge(cells: np.ndarray, count: int) -> np.ndarray:
    """Whether each point lies on a side that belongs to a single cell."""
    following = np.roll(cells, -1, axis=1)
    last = (cells >= 0).sum(axis=1) - 1
    following[np.arange(len(cells)), last] = cells[:, 0]
    sides = np.sort(np.stack([cells, following], axis=-1)[cells >= 0], axis=-1)
    unique, counts = np.unique(sides, axis=0, return_counts=True)
    edge = np.zeros(count, bool)
    edge[unique[counts == 1].ravel()] = True
    return edge
