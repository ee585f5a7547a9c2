"""Parquet files of exported folders (`pdegen.formats.huggingface`). This module runs in the child
process of `pdegen.formats.sandbox`.

A row is a sample. A column has one array of the same shape in each row, as nested lists. The
checksums of the pages are verified.
"""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from pdegen.formats.arrays import Array, Contents, FormatError, Location, Request

_compute: Any = importlib.import_module("pyarrow.compute")  # its functions have no types


def read(request: Request) -> Contents:
    """Read the columns of a file. An array has the axis of the rows and those of its lists. Raises
    Exception if the file is damaged, or if it is not of an exported folder."""
    path = request.file
    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        arrays: dict[str, Array] = {}
        for field in schema:
            feature, column = features[field.name], field.type
            shape = feature.get("shape", [feature["length"]] if "length" in feature else [])
            while hasattr(column, "value_type"):  # the axes of an array are nested lists
                column = column.value_type
            arrays[field.name] = Array(
                path,
                field.name,
                (file.metadata.num_rows, *(int(n) for n in shape)),
                np.dtype(column.to_pandas_dtype()),
            )
        for name in request.wanted(arrays.values()):
            arrays[name] = _unpacked(request, file, arrays[name])
    return Contents(path, "Parquet", arrays)


def _unpacked(request: Request, file: pyarrow.parquet.ParquetFile, array: Array) -> Array:
    """Unpack a column to a separate file, one row group at a time."""
    target, written = request.target(), 0
    with target.open("wb") as out:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[array.name], use_threads=False)
            for chunk in table.column(array.name).chunks:
                written += out.write(_numbers(array, chunk).tobytes())
    if written != array.bytes:
        raise FormatError(f"{array.where} has {array.bytes:,} bytes, its pages {written:,}")
    return replace(array, location=Location(target, 0, "C", array.dtype))


def _numbers(array: Array, values: pyarrow.Array) -> np.ndarray:
    """The numbers of a part of a column, in C order."""
    rows, *shape = len(values), *array.shape[1:]
    for size in shape:
        lengths = _compute.list_value_length(values).to_numpy(zero_copy_only=False)
        if (lengths != size).any():  # the length of a missing list is NaN
            raise FormatError(f"{array.where} has rows of different shapes")
        values = values.flatten()
    if values.null_count or len(values) != rows * math.prod(shape):
        raise FormatError(f"{array.where} has rows without values")
    return values.to_numpy(zero_copy_only=False)
