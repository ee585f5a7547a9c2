"""What a store says of itself, typed: the attributes of its group in `zarr.json`.

A store may come from a stranger: its attributes are checked before anything is read by them, so a
reader finds what it looks for, in the type that it expects.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import model_validator as validator
from pydantic.dataclasses import dataclass as typed

from pdegen.schema import explained
from pdegen.store.arrays import SAMPLES, Json, MetadataError, Name
from pdegen.store.splits import splits_fault

FORMAT = "pdegen"
FORMAT_VERSION = 4
READABLE = (3, 4)  # version 3 has no labels of channels
ROOT = "zarr.json"
METADATA_BYTES = 2**26  # of zarr.json, and of other descriptions

# the root of a store whose layout is not finished
UNFINISHED_ROOT = json.dumps(
    {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": FORMAT, "format_version": FORMAT_VERSION, "sealed": False},
    }
).encode()


Finite = Annotated[float, Field(allow_inf_nan=False)]
_TYPED = ConfigDict(strict=True, extra="ignore", defer_build=True)


@typed(frozen=True, config=_TYPED)
class Provenance:
    """The software that made a store, and the device that solved, where it is not NumPy."""

    pdegen: str
    device: str = ""


@typed(frozen=True, config=_TYPED)
class StoredRecipe:
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
class SourceFile:
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

    files: tuple[SourceFile, ...]


@typed(frozen=True, config=_TYPED)
class LabelError:
    """Relative L² differences of the first labels to solutions on a finer grid."""

    relative_l2: Annotated[tuple[float, ...], Field(min_length=1)]
    reference: str


@typed(frozen=True, config=_TYPED)
class SampledInputs:
    """Inputs that the points of the store do not determine."""

    # points, modes: points along each axis, and the largest wave number of the inputs
    points: int
    modes: int
    # relative L² differences of the first labels to those of the trigonometric interpolants of the
    # stored inputs
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
class SurfaceCurve:
    """A curve of a variable v along the bodies that a mesh goes around: (v - offset)/scale."""

    symbol: Annotated[str, Field(min_length=1)]  # what the curve is called
    # offset, scale: those of the formula; the scale is not 0
    offset: Finite = 0.0
    scale: Annotated[Finite, AfterValidator(_not_zero)] = 1.0


@typed(frozen=True, config=_TYPED)
class Drawing:
    """How a variable is drawn."""

    symbol: str = ""  # what it is called in formulas; its name where empty
    # "phases" of a coefficient, "sequential" or "diverging"
    colours: Literal["phases", "sequential", "diverging"] = "sequential"
    log: bool = False  # whether the scale of colours is logarithmic
    moves: bool = False  # whether its channels displace the points: then it is drawn where they are
    contours: bool = False  # whether lines of equal values are drawn over its colours
    along: SurfaceCurve | None = None  # a curve of it along bodies, where there is one
    # where it is the height, over the first axis, of a body above what moves: the speed at which
    # that comes down
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

    >>> Physics.of({"physics": {"boundary": {"u": 0.0}}}).boundary
    {'u': 0.0}
    """

    # the value that a variable has on the boundary of the domain, by its name
    boundary: Mapping[Name, Finite] = field(default_factory=dict[str, float])
    # of the solution map, such as "shift", "odd-reflection" or "square"
    symmetries: tuple[str, ...] = ()
    # the variable that weights the derivative in the loss weighted-h1
    loss_weight: Name | None = None
    # the two values of a variable that has just two, by its name
    phases: Mapping[Name, Pair] = field(default_factory=dict[str, tuple[float, float]])
    # a part of the recipe in words, by its key
    sentences: Mapping[Name, str] = field(default_factory=dict[str, str])
    # how a variable is drawn, by its name
    drawing: Mapping[Name, Drawing] = field(default_factory=dict[str, Drawing])
    # the box, lower and upper end by axis, whose points have an error of their own
    near: Mapping[Axis, Pair] = field(default_factory=dict[Axis, tuple[float, float]])

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """What the attributes of a group say; nothing where they have no `physics`.

        Keys that this version does not know are left out. Raises MetadataError if they say what
        cannot be.
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
class StoreMetadata:
    """What the group of a store says."""

    sealed: bool  # whether the store is complete
    # title, equation: for people
    title: str
    equation: str
    recipe: StoredRecipe  # what it was made by
    fingerprint: str  # SHA-256 of all that the numbers depend on
    # samples, shard: how many samples there are, and in a shard
    samples: Annotated[int, Field(ge=1, le=SAMPLES)]
    shard: Annotated[int, Field(ge=1)]
    # names of the arrays with values of each sample
    variables: Annotated[tuple[Name, ...], Field(min_length=1)]
    # first and one past the last sample of each; they share no sample
    splits: Mapping[Name, tuple[int, int]]
    provenance: Provenance  # what made it
    content: str = ""  # SHA-256 of the data; empty before the store is sealed
    # "mean" and "std" of each variable over the training split
    statistics: Mapping[Name, Mapping[str, Finite]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    skipped: tuple[int, ...] = ()  # samples that could not be computed, rising
    parent: Parent | None = None
    noise: AddedNoise | None = None
    imported: Imported | None = None
    label_error: LabelError | None = None
    sampled_inputs: SampledInputs | None = None  # where its points do not determine its inputs
    physics: Physics = field(default_factory=Physics)
    # `pdegen.domains.Domain.attributes`; None where the coordinates say all of it
    domain: Json | None = None
    equation_file: SourceFile | None = None  # the file of --equation that made it

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
        if fault := splits_fault(self.splits, samples):
            raise MetadataError(fault)
        rising = all(i < j for i, j in itertools.pairwise([-1, *self.skipped, samples]))
        _check(rising, f"skipped has samples 0 to {samples - 1} in order", [*self.skipped])
        for name, moments in self.statistics.items():
            _check(name in self.variables, "statistics are of variables", name)
            _check({"mean", "std"} <= moments.keys(), f"{name} has mean and std", [*moments])
        return self


def job_of(fingerprint: str, device: str | None) -> str:
    """What makes a store's samples, to the bit: the fingerprint, and a device that is not NumPy."""
    return f"{fingerprint}@{device}" if device else fingerprint


def _check(sound: bool, claim: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{claim}, got {value!r:.80}")
