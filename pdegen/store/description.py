"""The parsed `zarr.json` of a store. It has the metadata of the store and of all its arrays.

A store may come from an untrusted source. Its metadata are checked before they are used: they can
neither refer to files outside the store nor cause unbounded use of memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, cast

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as typed

from pdegen.domains import GRIDS, Box, Domain, Grid, from_attributes
from pdegen.domains import NAMES as SPACE
from pdegen.schema import explained
from pdegen.store.arrays import (
    Array,
    Json,
    MetadataError,
    Name,
    Values,
    ZarrArray,
    check_axes,
    same,
)
from pdegen.store.digests import unique_keys
from pdegen.store.format import FORMAT, READABLE, StoreMetadata
from pdegen.store.labels import CHANNEL, Labels

_CLOSED = ConfigDict(strict=True, extra="forbid", defer_build=True)
# errors of an access to nested JSON in which keys are missing or types are wrong
_MALFORMED = (KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)


class UnfinishedMetadataError(MetadataError):
    """The store is unfinished: the process that laid it out was interrupted."""


@typed(frozen=True, config=_CLOSED)
class _Arrays:
    kind: Literal["inline"]
    must_understand: Literal[False]
    metadata: Annotated[Mapping[Name, ZarrArray], Field(max_length=256)]


@typed(frozen=True, config=_CLOSED)
class _Group:
    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: StoreMetadata
    consolidated_metadata: _Arrays


@dataclass(frozen=True)
class Description:
    """Metadata and arrays of a store."""

    raw: Json  # the JSON of `zarr.json`
    version: int  # version of the store format
    metadata: StoreMetadata  # the checked attributes of the store
    # variables: arrays with values of each sample; coordinates: arrays that all samples share
    variables: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    # the coordinate `channel`; not among `coordinates`, as its values are text
    labels: Labels | None = None

    @property
    def raw_attributes(self) -> Json:
        """The attributes of the store as JSON."""
        return self.raw["attributes"]

    @property
    def zarr_metadata(self) -> Mapping[str, Json]:
        """A dictionary that maps the names of all arrays to their Zarr metadata in JSON."""
        return self.raw["consolidated_metadata"]["metadata"]

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """A dictionary that maps names to variables and coordinates."""
        return {**self.variables, **self.coordinates}

    @property
    def shards(self) -> int:
        """Number of shards of each variable."""
        return math.ceil(self.metadata.samples / self.metadata.shard)

    def axes_of(self, array: Array) -> tuple[str, ...]:
        """The axes of an array that are axes of the domain. The tuple is empty if they are not its
        last axes, or if the array has no axis for the samples."""
        attributes = self.metadata.domain or {}
        axes: object = attributes.get("axes", list(SPACE))
        listed = cast("list[object]", axes) if isinstance(axes, list) else []
        names = [
            cast(Json, axis).get("name") if isinstance(axis, dict) else axis for axis in listed
        ]
        dims = tuple(dim for dim in array.dims if dim in names)
        last = array.dims[len(array.dims) - len(dims) :] == dims
        return dims if last and array.dims[:1] == ("sample",) else ()

    def domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        """The domain on which functions with these axes are defined.

        Args:
            axes: Names of the axes of a variable that belong to the domain.
            values: Values of all coordinates, by name.

        Raises:
            MetadataError: If the store describes no domain, or the described domain has other axes
                or points.
        """
        try:
            domain = self._domain(axes, values)
            sizes = {
                d: n for a in self.arrays.values() for d, n in zip(a.dims, a.shape, strict=True)
            }
            shape = tuple(sizes[axis] for axis in axes)
            if (axes, shape) != (domain.axes, domain.shape):
                raise MetadataError(
                    f"it has axes {domain.axes} of {domain.shape} points, not {axes} of {shape}"
                )
            grids = domain.grids if isinstance(domain, Box) else ()
            for axis, grid in zip(axes, grids, strict=False):
                if not np.allclose(values[axis], grid.x, rtol=0, atol=1e-3 * grid.spacing):
                    raise MetadataError(f"the points of {axis} are not those of its grid")
        except (ValueError, *_MALFORMED) as error:  # DomainError is a ValueError
            raise MetadataError(f"the domain is damaged: {error}") from None
        return domain

    def _domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        attributes = self.metadata.domain
        if attributes is None:
            return Box(tuple(self._grid(axis, values) for axis in axes))
        shared = [values[name] for name in SPACE if name in values]
        positions = np.stack(shared, axis=-1) if attributes.get("moves") is False else None
        return from_attributes(attributes, positions, values.get("cells"), values.get("edge"))

    def _grid(self, axis: str, values: Mapping[str, Values]) -> Grid:
        array = self.coordinates.get(axis)
        kind = "" if array is None else array.metadata.grid
        if kind not in GRIDS:
            raise MetadataError(f"the grid of {axis} is {kind!r}: known are {', '.join(GRIDS)}")
        return GRIDS[kind].through(values[axis])


def parse(data: bytes) -> Description:
    """Parse the bytes of a `zarr.json`. Raises MetadataError if they do not describe a store that
    this version can read."""
    try:
        raw: object = json.loads(data, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    if not isinstance(raw, dict) or cast(Json, raw).get("node_type") != "group":
        raise MetadataError("not a pdegen store")
    content = cast(Json, raw)
    attributes: object = content.get("attributes")
    if not isinstance(attributes, dict) or cast(Json, attributes).get("format") != FORMAT:
        raise MetadataError("a Zarr group, but not a pdegen store")
    version: object = cast(Json, attributes).get("format_version")
    if type(version) is not int or version not in READABLE:
        got = str(version)[:20] if type(version) is int else type(version).__name__
        readable = " and ".join(map(str, READABLE))
        raise MetadataError(f"format version {got}, this version reads {readable}")
    if "consolidated_metadata" not in content:
        raise UnfinishedMetadataError("its layout was interrupted: start again with --resume")
    try:
        return _described(content, cast(Json, attributes), version)
    except MetadataError as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    except ValidationError as error:
        problem = explained(error).removeprefix("attributes.")
        problem = problem.removeprefix("consolidated_metadata.metadata.")[:200]
        raise MetadataError(f"the metadata are damaged: {problem}") from None
    except _MALFORMED as error:
        raise MetadataError(f"the metadata are damaged: {repr(error)[:120]}") from None


def _described(raw: Json, attributes: Json, version: int) -> Description:
    group = _GROUP.validate_json(json.dumps(_without_labels(raw)))
    metadata, zarr_arrays = group.attributes, group.consolidated_metadata.metadata
    required = ("content", "statistics") if metadata.sealed else ()
    absent = [name for name in required if name not in attributes]
    absent += [name for name in _OPTIONAL if attributes.get(name, "") is None]
    _check(not absent, "the attributes of the format have values", absent)
    arrays = dict[str, Array]()
    for name, array in zarr_arrays.items():
        for value in raw["consolidated_metadata"]["metadata"][name]["attributes"].values():
            fits = type(value) is not int or abs(value) < 2**64  # titles print it as a float
            _check(fits, f"{name}: numbers are below 2**64", value)
        sizes = (metadata.samples, metadata.shard) if name in metadata.variables else None
        arrays[name] = Array.of(name, array, sizes)
    _check(set(metadata.variables) <= arrays.keys(), "variables are arrays", metadata.variables)
    variables = {name: arrays[name] for name in metadata.variables}
    coordinates = {name: array for name, array in arrays.items() if name not in variables}
    check_axes(variables, coordinates, metadata.domain is not None)
    labels = None
    if version > 3 and CHANNEL not in arrays:
        labels = Labels.common((a.dims, a.shape, a.metadata.channels) for a in variables.values())
    stored = None if CHANNEL in arrays else raw["consolidated_metadata"]["metadata"].get(CHANNEL)
    expected = None if labels is None else labels.zarr_metadata
    _check(same(stored, expected), "channel is the coordinate of channel names", stored)
    return Description(raw, version, metadata, variables, coordinates, labels)


def _without_labels(raw: Json) -> Json:
    """The JSON of `zarr.json` without the coordinate `channel`, whose values are strings."""
    consolidated = raw["consolidated_metadata"]
    arrays = consolidated["metadata"]
    if CHANNEL not in arrays or arrays[CHANNEL]["data_type"] != "string":
        return raw
    others = {name: array for name, array in arrays.items() if name != CHANNEL}
    return {**raw, "consolidated_metadata": {**consolidated, "metadata": others}}


def _check(sound: bool, claim: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{claim}, got {value!r:.80}")


_GROUP = TypeAdapter(_Group)
_OPTIONAL = (
    "parent", "noise", "imported", "label_error", "sampled_inputs", "domain", "equation_file",
)  # fmt: skip
