"""The metadata of a store. They are the attributes of its Zarr group in `zarr.json`, typed and
checked.

A store may come from an untrusted source. Its attributes are checked before they are used, so that
each value has the expected type.
"""

from __future__ import annotations

import itertools
import json
import math
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
METADATA_BYTES = 2**26  # largest size of zarr.json, a record, the seal or the card

# `zarr.json` of a store whose layout is not finished
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
    """The version of pdegen that made a store, and the PyTorch device if one was used."""

    pdegen: str
    device: str = ""


@typed(frozen=True, config=_TYPED)
class StoredRecipe:
    """The recipe of a store. `problem` is empty if pdegen did not solve the samples."""

    name: str
    problem: Json = field(default_factory=Json)


@typed(frozen=True, config=_TYPED)
class Parent:
    """The parent store from which a derived store was made."""

    recipe: str
    fingerprint: str
    content: str
    provenance: Json


@typed(frozen=True, config=_TYPED)
class AddedNoise:
    """The noise of a derived store. `deviation` is the SHA-256 of the standard deviation σ(x)."""

    variable: str
    kind: str
    deviation: str
    levels: tuple[Finite, ...]


@typed(frozen=True, config=_TYPED)
class SourceFile:
    """A file that was imported into a store, or that contains the code of its equation."""

    name: str
    sha256: str

    def __str__(self) -> str:
        """Name of the file and the first digits of its SHA-256."""
        return f"{self.name} (SHA-256 {self.sha256[:12]}...)"


@typed(frozen=True, config=_TYPED)
class Imported:
    """The files from which a store was imported."""

    files: tuple[SourceFile, ...]


@typed(frozen=True, config=_TYPED)
class LabelError:
    """The errors of the labels of the first samples. The error of a label is its relative L²
    difference from a solution on a finer grid."""

    relative_l2: Annotated[tuple[float, ...], Field(min_length=1)]
    reference: str


@typed(frozen=True, config=_TYPED)
class SampledInputs:
    """Facts about inputs that have too few stored points to determine them."""

    # points along each axis, and the largest wave number of the inputs
    points: int
    modes: int
    # relative L² differences between labels of the first samples and solutions for the
    # trigonometric interpolants of the stored inputs
    relative_l2: tuple[Finite, ...] = ()

    @property
    def sentence(self) -> str:
        """The description as one sentence, for the dataset card."""
        modes = f"wave numbers up to {self.modes} on {self.points} points"
        meaning = f"{modes}: the label belongs to the function, not to its sampled values"
        if not self.relative_l2:
            return meaning
        return (
            f"{meaning}; for the interpolant of the stored input it would differ by up to "
            f"{max(self.relative_l2):.1e} in relative L2 ({len(self.relative_l2)} samples)"
        )


def _not_zero(value: float) -> float:
    if value == 0:
        raise ValueError("expected another number than 0")
    return value


@typed(frozen=True, config=_TYPED)
class SurfaceCurve:
    """A curve that shows (v - offset)/scale along the surface of the bodies inside a mesh. v is the
    variable."""

    symbol: Annotated[str, Field(min_length=1)]  # symbol of the curve
    # offset and scale of the formula; the scale is not 0
    offset: Finite = 0.0
    scale: Annotated[Finite, AfterValidator(_not_zero)] = 1.0


@typed(frozen=True, config=_TYPED)
class Drawing:
    """How pictures show a variable."""

    symbol: str = ""  # symbol of the variable in formulas; empty: its name
    # colour map: "phases" of a coefficient, "sequential" or "diverging"
    colours: Literal["phases", "sequential", "diverging"] = "sequential"
    log: bool = False  # whether the colour scale is logarithmic
    moves: bool = (
        False  # whether its channels displace the points, so that it is drawn on moved points
    )
    contours: bool = False  # whether contour lines are drawn over the colours
    along: SurfaceCurve | None = None  # its curve along bodies, if it has one
    # speed of descent of a body above points that move, if the variable is the height of that body
    # over the first axis
    falls: Finite | None = None


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:
        raise ValueError(f"expected two rising numbers, got {pair}")
    return pair


Pair = Annotated[tuple[Finite, Finite], AfterValidator(_rising)]
Axis = Literal["x", "y", "z"]


@typed(frozen=True, config=_TYPED)
class ParameterLaw:
    """The law of a number that differs from sample to sample, on (low, high)."""

    law: Literal["uniform", "log-uniform"]
    low: Finite
    high: Finite

    @validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"expected the ends of a range, got {self.low} and {self.high}")
        return self

    @property
    def log(self) -> bool:
        """Whether the logarithm of the number is uniform."""
        return self.law == "log-uniform"

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the number, or of its logarithm if this is uniform.

        >>> ParameterLaw("uniform", 1.0, 3.0).moments
        (2.0, 0.5773502691896258)
        """
        ends = self.low, self.high
        low, high = map(math.log, ends) if self.log else ends
        return (low + high) / 2, (high - low) / math.sqrt(12)


@typed(frozen=True, config=_TYPED)
class Physics:
    """The attribute `physics`. It contains facts about the fields for readers that do not know the
    equation.

    >>> Physics.of({"physics": {"boundary": {"u": 0.0}}}).boundary
    {'u': 0.0}
    """

    # value of a variable on the boundary of the domain, by name
    boundary: Mapping[Name, Finite] = field(default_factory=dict[str, float])
    # symmetries of the solution map: "shift", "odd-reflection", "square" or "diagonal-shift"
    symmetries: tuple[str, ...] = ()
    # variable that weights the derivative in the loss weighted-h1
    loss_weight: Name | None = None
    # the two values of a variable that takes only two, by name
    phases: Mapping[Name, Pair] = field(default_factory=dict[str, tuple[float, float]])
    # a part of the recipe in words, by key of the recipe
    sentences: Mapping[Name, str] = field(default_factory=dict[str, str])
    # how a variable is drawn, by name
    drawing: Mapping[Name, Drawing] = field(default_factory=dict[str, Drawing])
    # box, as lower and upper end by axis, for whose points reports give a separate error
    near: Mapping[Axis, Pair] = field(default_factory=dict[Axis, tuple[float, float]])
    # laws of the variables with the role parameter that are conditions of a sample, such as a
    # viscosity, by name
    parameters: Mapping[Name, ParameterLaw] = field(default_factory=dict[str, ParameterLaw])

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """Read the attribute `physics` of a group. Without this attribute, the result is empty.

        Unknown keys are ignored. Raises MetadataError if a value is impossible.
        """
        try:
            return TypeAdapter(cls).validate_json(json.dumps(attributes.get("physics", {})))
        except ValidationError as error:
            raise MetadataError(f"physics: {explained(error)}") from None

    def attributes(self) -> Json:
        """The value of the attribute `physics`, without empty entries."""
        content = TypeAdapter(type(self)).dump_python(self, mode="json")
        content["drawing"] = {
            name: {key: value for key, value in drawing.items() if value}
            for name, drawing in content["drawing"].items()
        }
        return {key: value for key, value in content.items() if value}


@typed(frozen=True, config=_TYPED, kw_only=True)
class StoreMetadata:
    """The attributes of the Zarr group of a store."""

    sealed: bool  # whether the store is complete
    # title and equation, as text for people
    title: str
    equation: str
    recipe: StoredRecipe  # the recipe of the store
    fingerprint: str  # SHA-256 of everything that the numbers depend on
    # number of samples, and of samples in a shard
    samples: Annotated[int, Field(ge=1, le=SAMPLES)]
    shard: Annotated[int, Field(ge=1)]
    # names of the arrays with values of each sample
    variables: Annotated[tuple[Name, ...], Field(min_length=1)]
    # first and one past the last sample of each split; splits share no sample
    splits: Mapping[Name, tuple[int, int]]
    provenance: Provenance  # software and device that made the store
    content: str = ""  # SHA-256 of the data; empty before the store is sealed
    # "mean" and "std" of each variable over the training split
    statistics: Mapping[Name, Mapping[str, Finite]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    skipped: tuple[int, ...] = ()  # samples that could not be computed, in rising order
    parent: Parent | None = None
    noise: AddedNoise | None = None
    imported: Imported | None = None
    label_error: LabelError | None = None
    sampled_inputs: SampledInputs | None = (
        None  # present if the stored points do not determine the inputs
    )
    physics: Physics = field(default_factory=Physics)
    # `pdegen.domains.Domain.attributes`; None if the coordinates determine the domain
    domain: Json | None = None
    equation_file: SourceFile | None = (
        None  # the file of the option --plugin that computed the samples
    )

    @property
    def job(self) -> str:
        """Identity of the job that computed the samples (`job_of`)."""
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
    """Identity of a job. It consists of the fingerprint, and of the PyTorch device if there is one.
    Jobs with the same identity compute the same samples, bit for bit."""
    return f"{fingerprint}@{device}" if device else fingerprint


def _check(sound: bool, claim: str, value: object) -> None:
    if not sound:
        raise MetadataError(f"{claim}, got {value!r:.80}")
