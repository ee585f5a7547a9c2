"""`zarr.json` of a store, parsed: what the store says of itself, and all its arrays.

A store may come from a stranger: what it says is checked before anything is read by it, so a store
can neither name files elsewhere nor claim memory without bound.
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
# what is raised on the way to a value where keys are missing and types are others
_ABSURD = (KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)


class UnfinishedMetadataError(MetadataError):
    """The layout of the store was interrupted."""


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
    """What a store says of itself."""

    raw: Json  # the JSON of `zarr.json`
    version: int  # of the format
    metadata: StoreMetadata  # the attributes of the group
    # variables, coordinates: arrays with values of each sample, and those of all samples
    variables: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    # the coordinate `channel`, which is not among `coordinates`: its values are text
    labels: Labels | None = None

    @property
    def raw_attributes(self) -> Json:
        """The attributes of the group as they stand there."""
        return self.raw["attributes"]

    @property
    def zarr_metadata(self) -> Mapping[str, Json]:
        """Zarr's metadata of all arrays."""
        return self.raw["consolidated_metadata"]["metadata"]

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        return {**self.variables, **self.coordinates}

    @property
    def shards(self) -> int:
        return math.ceil(self.metadata.samples / self.metadata.shard)

    def axes_of(self, array: Array) -> tuple[str, ...]:
        """The axes of the domain that an array of functions has last; none of other arrays."""
        said = self.metadata.domain or {}
        axes: object = said.get("axes", list(SPACE))
        listed = cast("list[object]", axes) if isinstance(axes, list) else []
        known = [
            cast(Json, axis).get("name") if isinstance(axis, dict) else axis for axis in listed
        ]
        found = tuple(dim for dim in array.dims if dim in known)
        last = array.dims[len(array.dims) - len(found) :] == found
        return found if last and array.dims[:1] == ("sample",) else ()

    def domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        """The domain of functions along the axes of a variable, from the values of all coordinates.
        Raises MetadataError if the store describes none, or one of other axes or points."""
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
                    raise MetadataError(f"{axis} has other points")
        except (ValueError, *_ABSURD) as error:  # DomainError, and what it cannot compute
            raise MetadataError(f"the domain is damaged: {error}") from None
        return domain

    def _domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        said = self.metadata.domain
        if said is None:
            return Box(tuple(self._grid(axis, values) for axis in axes))
        shared = [values[name] for name in SPACE if name in values]
        positions = np.stack(shared, axis=-1) if said.get("moves") is False else None
        return from_attributes(said, positions, values.get("cells"), values.get("edge"))

    def _grid(self, axis: str, values: Mapping[str, Values]) -> Grid:
        array = self.coordinates.get(axis)
        kind = "" if array is None else array.metadata.grid
        if kind not in GRIDS:
            raise MetadataError(f"the grid of {axis} is {kind!r}: known are {', '.join(GRIDS)}")
        return GRIDS[kind].through(values[axis])


def parse(data: bytes) -> Description:
    """What the bytes of a store's `zarr.json` say. Raises MetadataError if they describe no store
    that this version reads."""
    try:
        raw: object = json.loads(data, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    if not isinstance(raw, dict) or cast(Json, raw).get("node_type") != "group":
        raise MetadataError("not a pdegen store")
    content = cast(Json, raw)
    said: object = content.get("attributes")
    if not isinstance(said, dict) or cast(Json, said).get("format") != FORMAT:
        raise MetadataError("a Zarr group, but not a pdegen store")
    version: object = cast(Json, said).get("format_version")
    if type(version) is not int or version not in READABLE:
        found = str(version)[:20] if type(version) is int else type(version).__name__
        known = " and ".join(map(str, READABLE))
        raise MetadataError(f"format version {found}, this version reads {known}")
    if "consolidated_metadata" not in content:
        raise UnfinishedMetadataError("its layout was interrupted: start again with --resume")
    try:
        return _described(content, cast(Json, said), version)
    except MetadataError as error:
        raise MetadataError(f"the metadata are damaged: {error}") from None
    except ValidationError as error:
        what = explained(error).removeprefix("attributes.")
        what = what.removeprefix("consolidated_metadata.metadata.")[:200]
        raise MetadataError(f"the metadata are damaged: {what}") from None
    except _ABSURD as error:
        raise MetadataError(f"the metadata are damaged: {repr(error)[:120]}") from None


def _described(raw: Json, attributes: Json, version: int) -> Description:
    group = _GROUP.validate_json(json.dumps(_without_labels(raw)))
    said, metadata = group.attributes, group.consolidated_metadata.metadata
    needed = ("content", "statistics") if said.sealed else ()
    lost = [name for name in needed if name not in attributes]
    lost += [name for name in _OPTIONAL if attributes.get(name, "") is None]
    _check(not lost, "values are those of the format", lost)
    arrays = dict[str, Array]()
    for name, array in metadata.items():
        for value in raw["consolidated_metadata"]["metadata"][name]["attributes"].values():
            below = type(value) is not int or abs(value) < 2**64  # in a title it is a float at last
            _check(below, f"{name}: numbers are below 2**64", value)
        cut = (said.samples, said.shard) if name in said.variables else None
        arrays[name] = Array.of(name, array, cut)
    _check(set(said.variables) <= arrays.keys(), "variables have metadata", said.variables)
    variables = {name: arrays[name] for name in said.variables}
    coordinates = {name: array for name, array in arrays.items() if name not in variables}
    check_axes(variables, coordinates, said.domain is not None)
    labels = None
    if version > 3 and CHANNEL not in arrays:
        labels = Labels.common((a.dims, a.shape, a.metadata.channels) for a in variables.values())
    found = None if CHANNEL in arrays else raw["consolidated_metadata"]["metadata"].get(CHANNEL)
    expected = None if labels is None else labels.zarr_metadata
    _check(same(found, expected), "channel is the coordinate of the names of the channels", found)
    return Description(raw, version, said, variables, coordinates, labels)


def _without_labels(raw: Json) -> Json:
    """The metadata of a group without those of the coordinate of text."""
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
