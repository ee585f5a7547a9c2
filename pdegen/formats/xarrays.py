"""netCDF-3 files and Zarr groups, read by xarray. This module runs in the child process of
`pdegen.formats.sandbox`. Only arrays of numbers are read, so that no codec unpickles objects."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pdegen.formats.arrays import (
    MOST_ARRAYS,
    REAL,
    Array,
    Contents,
    FormatError,
    Location,
    Request,
    plain_attribute,
)

_BLOCK = 2**26  # bytes to read at a time


def read(request: Request) -> Contents:
    """Read the variables of a file, with the names of their axes. The name of a variable in a group
    is its path. Raises Exception if the file is damaged."""
    path = request.file
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    dims: dict[str, tuple[str, ...]] = {}
    attributes: dict[str, str | float | list[float]] = {}
    variables: dict[str, xr.Variable] = {}
    if path.is_dir():
        _check_codecs(path)
        groups = xr.open_groups(path, engine="zarr", decode_cf=False, chunks=None)
    else:
        groups = {"": xr.open_dataset(path, engine="scipy", decode_cf=False)}
    for group, dataset in groups.items():  # values are read later, as they are stored
        attributes |= _plain(group, dataset.attrs)
        for key, variable in dataset.variables.items():
            name = f"{group}/{key}".lstrip("/")
            attributes |= _plain(name, variable.attrs)
            if variable.dtype.kind not in "biuf":
                unreadable[name] = f"is of type {variable.dtype}: {REAL}"
                continue
            variables[name] = variable
            arrays[name] = Array(path, name, variable.shape, variable.dtype.newbyteorder("="))
            dims[name] = tuple(map(str, variable.dims))
    if len(arrays) > MOST_ARRAYS:
        raise FormatError(f"{path.name} has more than {MOST_ARRAYS:,} arrays")
    if "@sealed" in attributes and "@fingerprint" in attributes:
        raise FormatError(f"{path.name} is a store of pdegen: it needs no import")
    for name in request.wanted(arrays.values()):
        arrays[name] = _unpacked(request, arrays[name], variables[name])
    kind = "Zarr" if path.is_dir() else "netCDF-3"
    return Contents(path, kind, arrays, unreadable, attributes, dims)


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
                block = variable[start : start + rows].values
                np.ascontiguousarray(block, array.dtype).tofile(out)
        else:
            np.asarray(variable.values, array.dtype).tofile(out)
    return replace(array, location=Location(target, 0, "C", array.dtype))
