"""`zarr.json` of a store, parsed and typed. Both packages read stores by this module.

A store may come from a stranger: what it says is checked before anything is read by it, so a store
can neither name files elsewhere nor claim memory without bound, and a reader finds what it looks
for, in the type that it expects.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import model_validator as validator
from pydantic.dataclasses import dataclass as typed

from pdegen.domains import GRIDS, Box, Domain, Grid, from_attributes
from pdegen.domains import NAMES as SPACE
from pdegen.schema import explained
from pdegen.store.arrays import (
    SAMPLES,
    Array,
    Json,
    Metadata,
    MetadataError,
    Name,
    Values,
    check_axes,
    same,
)
from pdegen.store.labels import CHANNEL, Labels
from pdegen.store.signed import MARK as MARK  # and these, which readers take from here
from pdegen.store.signed import mark as mark
from pdegen.store.signed import sha256 as sha256
from pdegen.store.signed import unique
from pdegen.store.signed import unsigned as unsigned
from pdegen.store.splits import fault_of_splits

FORMAT = "pdegen"
FORMAT_VERSION = 4
# version 2 has no checksums of chunks, and records that name no job; 2 and 3 no labels of channels
READABLE = (2, 3, 4)
CONTINUED = (3, 4)  # whose shards and records are those of this version
ROOT = "zarr.json"
METADATA_BYTES = 2**26  # of zarr.json, and of other descriptions
# what is raised on the way to a value where keys are missing and types are others
_ABSURD = (KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)

# the root of a store whose layout is not finished
BEGUN = json.dumps(
    {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": FORMAT, "format_version": FORMAT_VERSION, "sealed": False},
    }
).encode()


class BegunError(MetadataError):
    """The layout of the store was interrupted."""


Finite = Annotated[float, Field(allow_inf_nan=False)]
_TYPED = ConfigDict(strict=True, extra="ignore", defer_build=True)
_CLOSED = ConfigDict(strict=True, extra="forbid", defer_build=True)


@typed(frozen=True, config=_TYPED)
class Provenance:
    """The software that made a store, and the device that solved, where it is not NumPy."""

    pdegen: str
    device: str = ""


@typed(frozen=True, config=_TYPED)
class Made:
    """The recipe of a store; `problem` is empty where the store was not solved."""

    name: str
    problem: Json = field(default_factory=Json)


@typed(frozen=True, config=_TYPED)
class Parent:
    """The store that another one was made from."""

    recipe: str
    fingerprint: str
    content: str
    provenance: Json


@typed(frozen=True, config=_TYPED)
class AddedNoise:
    """The noise of a derived store; `deviation` is the digest of σ(x)."""

    variable: str
    kind: str
    deviation: str
    levels: tuple[Finite, ...]


@typed(frozen=True, config=_TYPED)
class File:
    """A file that a store was imported from, or whose code made it."""

    name: str
    sha256: str

    @property
    def said(self) -> str:
        """Its name and the first digits of its digest."""
        return f"{self.name} (SHA-256 {self.sha256[:12]}...)"


@typed(frozen=True, config=_TYPED)
class Imported:
    """The files that a store was imported from."""

    files: tuple[File, ...]


@typed(frozen=True, config=_TYPED)
class LabelError:
    """Relative L² differences of the first labels to solutions on a finer grid."""

    relative_l2: Annotated[tuple[float, ...], Field(min_length=1)]
    reference: str


@typed(frozen=True, config=_TYPED)
class SampledInputs:
    """Inputs that the points of the store do not determine.

    Args:
        points, modes: Points along each axis, and the largest wave number of the inputs.
        relative_l2: Relative L² differences of the first labels to those of the trigonometric
            interpolants of the stored inputs.
    """

    points: int
    modes: int
    relative_l2: tuple[Finite, ...] = ()

    @property
    def sentence(self) -> str:
        """What it means for a reader."""
        of = f"wave numbers up to {self.modes} on {self.points} points"
        said = f"{of}: the label belongs to the function, not to its sampled values"
        if not self.relative_l2:
            return said
        return (
            f"{said}; for the interpolant of the stored input it would differ by up to "
            f"{max(self.relative_l2):.1e} in relative L2 ({len(self.relative_l2)} samples)"
        )


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError("expected another number than 0")
    return value


@typed(frozen=True, config=_TYPED)
class Along:
    """A curve of a variable v along the bodies that a mesh goes around: (v - offset)/scale.

    Args:
        symbol: What the curve is called.
        offset, scale: Those of the formula; the scale is not 0.
    """

    symbol: Annotated[str, Field(min_length=1)]
    offset: Finite = 0.0
    scale: Annotated[Finite, AfterValidator(_not_zero)] = 1.0


@typed(frozen=True, config=_TYPED)
class Drawing:
    """How a variable is drawn.

    Args:
        symbol: What it is called in formulas; its name where empty.
        colours: "phases" of a coefficient, "sequential" or "diverging".
        log: Whether the scale of colours is logarithmic.
        moves: Whether its channels displace the points: then it is drawn where they are.
        contours: Whether lines of equal values are drawn over its colours.
        along: A curve of it along bodies, where there is one.
        falls: Where it is the height, over the first axis, of a body above what moves: the speed at
            which that comes down.
    """

    symbol: str = ""
    colours: Literal["phases", "sequential", "diverging"] = "sequential"
    log: bool = False
    moves: bool = False
    contours: bool = False
    along: Along | None = None
    falls: Finite | None = None


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:
        raise ValueError(f"expected two rising numbers, got {pair}")
    return pair


Pair = Annotated[tuple[Finite, Finite], AfterValidator(_rising)]
Axis = Literal["x", "y", "z"]


@typed(frozen=True, config=_TYPED)
class Physics:
    """What an equation says of its fields to readers that do not know it: the attribute `physics`.

    Args:
        boundary: The value that a variable has on the boundary of the domain, by its name.
        symmetries: Of the solution map, such as "shift", "odd-reflection" or "square".
        loss_weight: The variable that weights the derivative in the loss weighted-h1.
        phases: The two values of a variable that has just two, by its name.
        sentences: A part of the recipe in words, by its key.
        drawing: How a variable is drawn, by its name.
        near: The box, lower and upper end by axis, whose points have an error of their own.

    >>> Physics.of({"physics": {"boundary": {"u": 0.0}}}).boundary
    {'u': 0.0}
    """

    boundary: Mapping[Name, Finite] = field(default_factory=dict[str, float])
    symmetries: tuple[str, ...] = ()
    loss_weight: Name | None = None
    phases: Mapping[Name, Pair] = field(default_factory=dict[str, tuple[float, float]])
    sentences: Mapping[Name, str] = field(default_factory=dict[str, str])
    drawing: Mapping[Name, Drawing] = field(default_factory=dict[str, Drawing])
    near: Mapping[Axis, Pair] = field(default_factory=dict[Axis, tuple[float, float]])

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """What the attributes of a group say; nothing where they have no `physics`.

        Keys that this version does not know are left out.

        Raises:
            MetadataError: If they say what cannot be.
        """
        try:
            return TypeAdapter(cls).validate_json(json.dumps(attributes.get("physics", {})))
        except ValidationError as error:
            raise MetadataError(f"physics: {explained(error)}") from None

    def attributes(self) -> Json:
        """The attribute that `of` reads; what is not said is left out."""
        said = TypeAdapter(type(self)).dump_python(self, mode="json")
        said["drawing"] = {
            name: {key: value for key, value in how.items() if value}
            for name, how in said["drawing"].items()
        }
        return {key: value for key, value in said.items() if value}


@typed(frozen=True, config=_TYPED, kw_only=True)
class Attributes:
    """What the group of a store says.

    Args:
        sealed: Whether the store is complete.
        title, equation: For people.
        recipe: What it was made by.
        fingerprint: SHA-256 of all that the numbers depend on.
        samples, shard: How many samples there are, and in a shard.
        variables: Names of the arrays with values of each sample.
        splits: First and one past the last sample of each; they share no sample.
        provenance: What made it.
        content: SHA-256 of the data; empty before the store is sealed.
        statistics: "mean" and "std" of each variable over the training split.
        skipped: Samples that could not be computed, rising.
        domain: `pdegen.domains.Domain.attributes`; None where the coordinates say all of it.
        equation_file: The file of --equation that made it.
        sampled_inputs: Where its points do not determine its inputs.
    """

    sealed: bool
    title: str
    equation: str
    recipe: Made
    fingerprint: str
    samples: Annotated[int, Field(ge=1, le=SAMPLES)]
    shard: Annotated[int, Field(ge=1)]
    variables: Annotated[tuple[Name, ...], Field(min_length=1)]
    splits: Mapping[Name, tuple[int, int]]
    provenance: Provenance
    content: str = ""
    statistics: Mapping[Name, Mapping[str, Finite]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    skipped: tuple[int, ...] = ()
    parent: Parent | None = None
    noise: AddedNoise | None = None
    imported: Imported | None = None
    label_error: LabelError | None = None
    sampled_inputs: SampledInputs | None = None
    physics: Physics = field(default_factory=Physics)
    domain: Json | None = None
    equation_file: File | None = None

    @property
    def job(self) -> str:
        """What its samples were made by, to the bit."""
        return job_of(self.fingerprint, self.provenance.device)

    @validator(mode="after")
    def _agrees(self) -> Self:
        samples = self.samples
        _check(self.shard <= samples, f"shard is 1 to samples = {samples}", self.shard)
        once = len(set(self.variables)) == len(self.variables)
        _check(once, "variables is a list of names, each once", self.variables)
        if fault := fault_of_splits(self.splits, samples):
            raise MetadataError(fault)
        rising = all(i < j for i, j in itertools.pairwise([-1, *self.skipped, samples]))
        _check(rising, f"skipped has samples 0 to {samples - 1} in order", [*self.skipped])
        for name, moments in self.statistics.items():
            _check(name in self.variables, "statistics are of variables", name)
            _check({"mean", "std"} <= moments.keys(), f"{name} has mean and std", [*moments])
        return self


@typed(frozen=True, config=_CLOSED)
class _Arrays:
    kind: Literal["inline"]
    must_understand: Literal[False]
    metadata: Annotated[Mapping[Name, Metadata], Field(max_length=256)]


@typed(frozen=True, config=_CLOSED)
class _Group:
    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: Attributes
    consolidated_metadata: _Arrays


@dataclass(frozen=True)
class Description:
    """What a store says of itself.

    Args:
        raw: The JSON of `zarr.json`.
        version: Of the format.
        said: The attributes of the group.
        variables, coordinates: Arrays with values of each sample, and those of all samples.
        labels: The coordinate `channel`, which is not among `coordinates`: its values are text.
    """

    raw: Json
    version: int
    said: Attributes
    variables: Mapping[str, Array]
    coordinates: Mapping[str, Array]
    labels: Labels | None = None

    @property
    def attributes(self) -> Json:
        """The attributes of the group as they stand there."""
        return self.raw["attributes"]

    @property
    def metadata(self) -> Mapping[str, Json]:
        """Zarr's metadata of all arrays."""
        return self.raw["consolidated_metadata"]["metadata"]

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        return {**self.variables, **self.coordinates}

    @property
    def shards(self) -> int:
        return math.ceil(self.said.samples / self.said.shard)

    @property
    def job(self) -> str | None:
        """What every record must name; None in version 2, where records name nothing."""
        return None if self.version == 2 else self.said.job

    def axes_of(self, array: Array) -> tuple[str, ...]:
        """The axes of the domain that an array of functions has last; none of other arrays."""
        said = self.said.domain or {}
        axes: object = said.get("axes", list(SPACE))
        listed = cast("list[object]", axes) if isinstance(axes, list) else []
        known = [
            cast(Json, axis).get("name") if isinstance(axis, dict) else axis for axis in listed
        ]
        found = tuple(dim for dim in array.dims if dim in known)
        last = array.dims[len(array.dims) - len(found) :] == found
        return found if last and array.dims[:1] == ("sample",) else ()

    def domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        """The domain of functions along these axes.

        Args:
            axes: Of a variable.
            values: Of all coordinates.

        Raises:
            MetadataError: If the store describes none, or one of other axes or points.
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
                    raise MetadataError(f"{axis} has other points")
        except (ValueError, *_ABSURD) as error:  # DomainError, and what it cannot compute
            raise MetadataError(f"the domain is damaged: {error}") from None
        return domain

    def _domain(self, axes: tuple[str, ...], values: Mapping[str, Values]) -> Domain:
        said = self.said.domain
        if said is None:
            return Box(tuple(self._grid(axis, values) for axis in axes))
        shared = [values[name] for name in SPACE if name in values]
        positions = np.stack(shared, axis=-1) if said.get("moves") is False else None
        return from_attributes(said, positions, values.get("cells"), values.get("edge"))

    def _grid(self, axis: str, values: Mapping[str, Values]) -> Grid:
        array = self.coordinates.get(axis)
        kind = "" if array is None else array.said.grid
        if kind not in GRIDS:
            raise MetadataError(f"the grid of {axis} is {kind!r}: known are {', '.join(GRIDS)}")
        return GRIDS[kind].through(values[axis])


def job_of(fingerprint: str, device: str | None) -> str:
    """What makes a store's samples, to the bit: the fingerprint, and a device that is not NumPy."""
    return f"{fingerprint}@{device}" if device else fingerprint


def parse(data: bytes) -> Description:
    """What the bytes of a store's `zarr.json` say.

    Raises:
        MetadataError: If they describe no store that this version reads.
    """
    try:
        raw: object = json.loads(data, object_pairs_hook=unique)
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
        known = f"{', '.join(map(str, READABLE[:-1]))} and {READABLE[-1]}"
        raise MetadataError(f"format version {found}, this version reads {known}")
    if "consolidated_metadata" not in content:
        raise BegunError("was interrupted while it was laid out: start again with --resume")
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
        arrays[name] = Array.of(name, array, version, cut)
    _check(set(said.variables) <= arrays.keys(), "variables have metadata", said.variables)
    variables = {name: arrays[name] for name in said.variables}
    coordinates = {name: array for name, array in arrays.items() if name not in variables}
    check_axes(variables, coordinates, said.domain is not None)
    labels = None
    if version > 3 and CHANNEL not in arrays:
        labels = Labels.common((a.dims, a.shape, a.said.channels) for a in variables.values())
    found = None if CHANNEL in arrays else raw["consolidated_metadata"]["metadata"].get(CHANNEL)
    expected = None if labels is None else labels.metadata
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
    "parent",
    "noise",
    "imported",
    "label_error",
    "sampled_inputs",
    "domain",
    "equation_file",
)
