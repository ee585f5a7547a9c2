"""An experiment: data, model, training and evaluation, declared in one TOML file."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from operators.base import Operator
from operators.data import AtTime, Block, Map, Rollout, Samples, Task
from operators.norms import has_one_spacing
from operators.registry import OPERATORS
from operators.symmetries import (
    DiagonalShifts,
    KolmogorovSymmetries,
    SquareSymmetries,
    TorusSymmetries,
)
from operators.training.fit import Settings
from operators.training.step import Augmentation
from operators.transforms import Normalizer
from pdegen.domains import Box, Cloud, Domain
from pdegen.recipe import Recipe, load_recipe
from pdegen.sampling.noise import Levels, NoiseKind, NoiseModel, recorded
from pdegen.schema import (
    LARGEST,
    Count,
    Extended,
    Name,
    NonNegative,
    Positive,
    SchemaError,
    Strict,
    brief,
    flattened,
    is_name,
    near,
)
from pdegen.store.format import Physics
from pdegen.store.reading import Store, StoreError, open_sealed
from pipelines.config.conditions import EVERY, StudyCondition
from pipelines.config.conditions import changed as changed_conditions
from pipelines.config.declared import (
    LossSpec,
    LossTable,
    Model,
    ModelSpec,
    OptimizerSpec,
    OptimizerTable,
    ScheduleSpec,
    ScheduleTable,
    parse_model,
)
from pipelines.config.shipped import check_asked, file_of


def physics_of(store: Store) -> Physics:
    """The physics of a store, such as its boundary values, symmetries and phases.

    If the store does not describe its physics, the description is taken from its recipe, provided
    that the equation of the recipe is registered.
    """
    if "physics" in store.raw_attributes or not store.metadata.recipe.problem:
        return store.metadata.physics
    try:
        return Recipe.parse(store.raw_attributes["recipe"], store.url).problem.physics()
    except SchemaError:  # the equation is not registered
        return Physics()


def domain_of(store: Store) -> Domain:
    """The domain on which the functions of a store are defined.

    Raises StoreError if the store describes no domain.
    """
    described = store.description
    axes = max(map(described.axes_of, described.variables.values()), key=len)
    return store.domain(axes)


def functions_in(store: Store, role: str) -> list[str]:
    """Names of the variables that have a given role and are functions on the domain.

    If a store has no variable with the role "input", its samples differ only in geometry. The
    positions of the points, which have the role "geometry", are then its inputs.

    Raises:
        StoreError: If there is no such variable.
    """
    names = [
        name
        for name, variable in store.description.variables.items()
        if variable.metadata.role == role and store.description.axes_of(variable)
    ]
    if not names and role == "input":
        return functions_in(store, "geometry")
    if not names:
        raise StoreError(f"{store.url} has no function with the role {role}")
    return names


Level = Annotated[float, Field(allow_inf_nan=False)] | tuple[float, float]


class Symmetries(Extended):
    """Augmentation of training samples by random symmetries (`operators.symmetries`).

    Args:
        shift: Random shifts along each axis of a torus, such as the circle.
        reflection: Random odd reflections u(x) -> -u(-x) of a torus; with `wave`, those of a
            Kolmogorov flow with a shift by half a wave, and rotations by half a turn.
        square: Random reflections and rotations of the square.
        diagonal: Random shifts of the torus along (1, -1), for the vorticity equation.
        wave: Wave number of a Kolmogorov flow; random shifts along x, and along y by multiples of
            its wavelength. 0 for none.
        mean: With `square`, whether predictions of the trained operator are means over the 8 images
            of the input. A prediction then takes eight times as long. The epoch is chosen without
            the mean.
    """

    later: ClassVar = ("diagonal", "wave", "mean")

    shift: bool = False
    reflection: bool = False
    square: bool = False
    diagonal: bool = False
    wave: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    mean: bool = False

    @model_validator(mode="after")
    def _of_one_domain(self) -> Self:
        kinds = {
            "shift or reflection": self.shift or (self.reflection and not self.wave),
            "square": self.square,
            "diagonal": self.diagonal,
            "wave": bool(self.wave),
        }
        drawn = [kind for kind, is_drawn in kinds.items() if is_drawn]
        if len(drawn) > 1:
            raise ValueError(f"choose one kind of symmetries, not {' and '.join(drawn)}")
        if self.mean and not self.square:
            raise ValueError("mean is a mean over the symmetries of the square: set square = true")
        return self

    @property
    def for_maps(self) -> bool:
        """Whether one is drawn that only the task map allows."""
        return self.shift or self.reflection or self.square

    def build(self) -> Augmentation | None:
        if self.diagonal:
            return DiagonalShifts()
        if self.wave:
            return KolmogorovSymmetries(self.wave, self.reflection)
        if self.square:
            return SquareSymmetries(self.mean)
        if self.shift or self.reflection:
            return TorusSymmetries(self.shift, self.reflection)
        return None


Scaling = Literal["none", "scalar", "pointwise"]


class Normalization(Strict):
    """Normalisation of inputs and targets, fitted to the training samples
    (`operators.transforms.Normalizer`).

    Args:
        input, target: "none" is the identity. "scalar" uses one mean and deviation per channel, and
            "pointwise" one per channel and point. On meshes, "pointwise" requires that all samples
            have the same nodes, and uses one per channel and node.
        eps: Number added to pointwise deviations; by default a thousandth of their root mean
            square. The published value is 1e-5. [the quantity's]
    """

    input: Scaling = "none"
    target: Scaling = "none"
    eps: NonNegative | None = None

    @model_validator(mode="after")
    def _of_points(self) -> Self:
        if self.eps is not None and "pointwise" not in (self.input, self.target):
            raise ValueError("eps is for pointwise scaling: set input or target to 'pointwise'")
        return self

    def of(self, pairs: Samples) -> tuple[Normalizer, Normalizer]:
        """Normalisers of the inputs and of the targets.

        Parameters of samples that have a law, such as a viscosity, are normalised by their law.

        Raises SchemaError if a channel is constant, or if the scaling is pointwise and the samples
        share neither points nor nodes.
        """
        step = pairs.single_step
        input = self._of(self.input, step, "a").with_laws(step.input_laws)
        return input, self._of(self.target, step, "u")

    def _of(self, scaling: Scaling, pairs: Samples, which: Literal["a", "u"]) -> Normalizer:
        if pairs.masked:  # without the padding of samples with fewer points
            parts = pairs.in_order(64)
            values = (getattr(part, which)[part.mask] for part in parts if part.mask is not None)
        else:
            values = pairs.inputs if which == "a" else pairs.targets
        if scaling == "pointwise":
            if not _same_nodes(pairs, which):
                raise SchemaError(
                    f"normalization: pointwise needs points or nodes that samples share, those of "
                    f"{pairs.source.get('url')} differ: use scalar"
                )
            x = pairs.x if which == "a" or pairs.y is None else pairs.y
            fit = partial(Normalizer.pointwise, values, x, self.eps, isinstance(pairs.domain, Box))
        elif scaling == "scalar":
            fit = partial(Normalizer.of, values)
        else:
            return Normalizer.identity(pairs.channels["au".index(which)])
        try:
            return fit()
        except ValueError as error:
            key = "input" if which == "a" else "target"
            option = ", or normalization.eps" if scaling == "pointwise" else ""
            raise SchemaError(
                f"normalization.{key}: a channel of the training samples of "
                f"{pairs.source.get('url')} is constant: use none{option}"
            ) from error


def _same_nodes(pairs: Samples, which: Literal["a", "u"]) -> bool:
    """Whether value i belongs to the same point or mesh node in all samples."""
    if pairs.masked:
        return False
    if pairs.x is not None:
        return True
    meshed = not isinstance(pairs.domain, Cloud) or pairs.domain.cells is not None
    return meshed and (which == "a" or pairs.first().y is None)


class InputNoise(NoiseKind):
    """Noise on the inputs or the training targets (`pdegen.sampling.noise`). On the inputs, it is
    fixed for validation and test samples.

    Args:
        on: Values with noise: "inputs", "targets" of training samples, or "both", independently.
            Noise on targets is drawn once for each sample, like that of a measured label.
            Validation and test samples keep targets without noise.
        level: Noise level, or a range [low, high] in which each sample has a random level
            (`pdegen.sampling.noise`). With a range, the operator receives the level in an
            additional input channel, as the constant (level/high)^½. "snr" does not allow a range,
            because no level in decibels stands for zero noise. [dimensionless, dB for "snr"]
        fresh: Whether noise and levels are drawn anew in each training epoch. If not, they are
            drawn once, as in the published code. Noise on targets is always drawn once.
    """

    on: Literal["inputs", "targets", "both"] = "inputs"
    level: Level
    fresh: bool = True

    @field_validator("level", mode="before")
    @classmethod
    def _range(cls, level: Any) -> Any:
        if not isinstance(level, list | tuple):
            if type(level) not in (int, float) or not math.isfinite(level):
                raise ValueError(
                    f"must be a finite number or a range [low, high], got {brief(level)}"
                )
            return level
        ends = cast("Sequence[Any]", level)
        if len(ends) != 2:
            raise ValueError(f"a range of levels must be [low, high], got {list(ends)}")
        if not all(type(end) in (int, float) for end in ends):
            raise ValueError(f"the ends of a range of levels must be numbers, got {list(ends)}")
        Levels(*ends)
        return tuple(map(float, ends))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for level in self.level if isinstance(self.level, tuple) else (self.level,):
            self.check_level(level)
        if isinstance(self.level, tuple) and self.kind == "snr":
            raise ValueError(
                f"snr takes one level in decibels and no range, got {list(self.level)}"
            )
        if self.on == "targets" and not self.fresh:
            raise ValueError(
                "noise.fresh is for noise on inputs; noise on targets is always drawn once: leave "
                "it out"
            )
        if self.on_targets and isinstance(self.level, tuple):
            raise ValueError(
                f"noise.on = {self.on!r} takes one level, got {list(self.level)}: only "
                "the level of noise on inputs can vary, because the operator gets it as an input"
            )
        if self.on_targets and self.kind in ("sensors", "missing"):
            absent = "without a sensor" if self.kind == "sensors" else "that are absent"
            raise ValueError(
                f"{self.kind} sets inputs {absent} to 0 and is not for targets: use "
                "noise.on = 'inputs', or another kind"
            )
        return self

    @model_serializer(mode="wrap")
    def _in_order(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise in the order of `NoiseKind`."""
        table = recorded(content(self))
        if table.get("on") == "inputs":
            del table["on"]
        return {key: table[key] for key in ("kind", "level") if key in table} | table

    @property
    def on_inputs(self) -> bool:
        """Whether inputs have noise."""
        return self.on != "targets"

    @property
    def on_targets(self) -> bool:
        """Whether the targets of training samples have noise."""
        return self.on != "inputs"

    @property
    def levels(self) -> Levels | None:
        """The range of levels; None for a single level."""
        return Levels(*self.level) if isinstance(self.level, tuple) else None

    def tested(self, changes: Mapping[str, Any], where: str) -> InputNoise:
        """Noise of test inputs in which `changes` replaces values. Another kind keeps only the
        level and the seed. Raises SchemaError if the noise is impossible."""
        table = self.model_dump(exclude={"on", "fresh"})
        if changes.get("kind", self.kind) != self.kind:
            table = {"level": self.level, "seed": self.seed}
        noise = InputNoise.parse({**table, **changes}, where)
        if isinstance(noise.level, tuple):
            raise SchemaError(f"{where}: test data have one level, got {list(noise.level)}")
        return noise

    def build(self) -> NoiseModel:
        """The noise model for the level, or for the upper end of the range."""
        return self.at(self.level[1] if isinstance(self.level, tuple) else self.level)


_TABLE = "data.stream"
CANDIDATES = 8  # for each drawn sample, by default
RECIPE_KEYS = ("overrides", "coarse")  # tables whose keys are those of a recipe


class Stream(Strict):
    """An unlimited stream of training samples. Each one is solved during training and used once.

    Args:
        recipe: Name of the recipe that generates the samples, or its TOML file.
        overrides: Values of keys of this recipe.
        sampling: "uniform" uses all samples in turn. "tail" draws the samples of each epoch from
            several times as many candidates, more of those with large errors of the current
            weights.
        coarse: Values of keys of the recipe that make cheap solutions. With `sampling = "tail"` the
            errors of candidates are those against these solutions.
        candidates: With `sampling = "tail"`, number of candidates for each drawn sample. More of
            them lower large errors further, and their solutions and predictions take longer.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    sampling: Literal["uniform", "tail"] = "uniform"
    coarse: Annotated[dict[str, Any], Field(default_factory=dict)]
    candidates: Annotated[Count, Field(ge=2)] = CANDIDATES

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.sampling == "tail" and not self.coarse:
            raise ValueError(
                'sampling = "tail" predicts errors with cheap solutions: set keys of the recipe in '
                'coarse, such as coarse = {"solver.resolution" = 256}'
            )
        if self.sampling != "tail" and self.coarse:
            raise ValueError('coarse is for sampling = "tail": leave it out')
        if self.sampling != "tail" and self.candidates != CANDIDATES:
            raise ValueError('candidates is for sampling = "tail": leave it out')
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys of uniform streams that records of earlier versions do not have."""
        table = content(self)
        if self.sampling == "uniform":
            del table["sampling"], table["coarse"], table["candidates"]
        return table

    @property
    def numbers_per_sample(self) -> int:
        """How many numbers of samples of the recipe each sample of an epoch takes."""
        return self.candidates if self.sampling == "tail" else 1

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)

    def load_coarse(self) -> Recipe:
        """The recipe with cheap solutions. Raises SchemaError if its functions have other points or
        components."""
        recipe = self.load_recipe()
        coarse = recipe.with_overrides(self.coarse)
        shapes = [{v.name: v.shape for v in r.problem.variables()} for r in (recipe, coarse)]
        if coarse.problem.domain != recipe.problem.domain or shapes[0] != shapes[1]:
            raise SchemaError(
                f"{_TABLE}.coarse: samples of {self.recipe} would have other points or components: "
                "change keys of the solver alone"
            )
        keys = [f"problem.{key}" for key in recipe.problem.discretization]
        words = {"name", "summary", "remark"}  # which say nothing of the samples
        dumps = [r.model_dump(mode="json", exclude=words) for r in (recipe, coarse)]
        contents = [_exact(dump, keys) for dump in dumps]
        if contents[0] != contents[1]:
            raise SchemaError(
                f"{_TABLE}.coarse: samples of {self.recipe} would be of another problem: change "
                f"{', '.join(recipe.problem.discretization)} and modes alone"
            )
        return coarse


def _exact(value: object, keys: Collection[str], place: str = "") -> object:
    """A recipe without the dotted `keys` and numbers of modes, which change only its resolution."""
    if not isinstance(value, Mapping):
        return value
    table = {f"{place}{key}": item for key, item in value.items() if key != "modes"}
    return {key: _exact(item, keys, f"{key}.") for key, item in table.items() if key not in keys}


def overridden(
    recipe: Recipe, overrides: Mapping[str, object], values: Mapping[str, object]
) -> dict[str, object]:
    """Overrides of a recipe, with other values of some keys. A key may be given by a short or the
    full name, or in a table."""
    changed = {recipe.resolved_key(key, values): value for key, value in values.items()}
    kept = flattened(overrides).items()
    return {k: v for k, v in kept if recipe.resolved_key(k, overrides) not in changed} | changed


def change_stream(
    stream: Stream | None,
    changes: dict[str, Any],
    of_recipes: Mapping[str, Mapping[str, Any]],
    where: str,
) -> None:
    """Replace changes of keys below data.stream by a change of the whole table.

    Args:
        stream: The stream before the changes.
        changes: New values by dotted key.
        of_recipes: New values of keys of recipes, for each of `RECIPE_KEYS`.
        where: Name of the experiment in error messages.

    Raises:
        SchemaError: If the table lacks a recipe, or a key of a recipe is unknown.
    """
    below = [key for key in changes if key.startswith(f"{_TABLE}.")]
    recipe = changes.get(f"{_TABLE}.recipe", None if stream is None else stream.recipe)
    if recipe is None:
        for name, values in of_recipes.items():
            if values:
                raise SchemaError(f"{where}: {_TABLE}.{name} needs a stream: set {_TABLE}.recipe")
        return  # other keys are refused as those of a table that is not declared
    if not below and not any(of_recipes.values()):
        return
    table = {"overrides": {}} if stream is None else stream.model_dump()
    given = {key.removeprefix(f"{_TABLE}."): changes.pop(key) for key in below}
    table |= {key: value for key, value in given.items() if value != {}}
    for name, values in of_recipes.items():
        named = {key: table[key] for key in ("recipe", "overrides")}
        loaded = Stream.parse(named, f"{where}, {_TABLE}").load_recipe() if values else None
        if loaded is not None:
            table[name] = overridden(loaded, table.get(name, {}), values)
    changes[_TABLE] = Stream.parse(table, f"{where}, {_TABLE}").model_dump()


_GRIDS = ("resolution", "resolutions")  # keys of `Data`, of which exactly one is set
_NAMES = {"resolution", *(f"data.{key}" for key in _GRIDS)}  # `resolutions` is another key


class Data(Strict):
    """The dataset, the grid to train on, and the input and target variables.

    Exactly one of `resolution` and `resolutions` is set.

    Args:
        recipe: Name of the recipe of the dataset, or its TOML file.
        overrides: Values of keys of this recipe.
        resolution: Number of points along each axis of the inputs, and by default of the targets.
        resolutions: Several such numbers, on grids of a box. Each training batch has one of them,
            and each of them has the same number of batches. The finest one chooses the epoch.
        input: Name of the input variable: "a" for forward problems, "u" for inverse problems.
        target: Name of the target variable.
        target_resolution: Number of cells along each axis of the targets. The targets are averaged
            over these cells.
        reading: "resident" keeps all samples in memory, on the device; "streamed" reads shards
            ahead and shuffles a few at a time; "auto" is "resident" if the samples fit.
        samples: Number of training samples. The first samples of the training split are used; by
            default all of them.
        epoch_samples: Number of samples in an epoch. The default is the number of training samples,
            or with a stream the size of the training split.
        stream: Recipe whose samples replace the training split.
    """

    recipe: str
    overrides: Annotated[dict[str, Any], Field(default_factory=dict)]
    resolution: Count | None = None
    resolutions: Annotated[tuple[Count, ...], Field(min_length=2, strict=False)] | None = None
    input: str = "a"
    target: str = "u"
    target_resolution: Count | None = None
    reading: Literal["auto", "resident", "streamed"] = "auto"
    samples: Count | None = None
    epoch_samples: Count | None = None
    stream: Stream | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.resolution is None) == (self.resolutions is None):
            both = "both" if self.resolution is not None else "neither"
            raise ValueError(f"needs either resolution or resolutions, got {both}")
        if self.resolutions and len(set(self.resolutions)) < len(self.resolutions):
            raise ValueError(f"resolutions must differ, got {list(self.resolutions)}")
        if self.resolutions and self.stream is not None and self.stream.sampling == "tail":
            raise ValueError('resolutions are for uniform streams: leave sampling = "tail" out')
        stored = {"reading": self.reading != "auto", "samples": self.samples is not None}
        for key in (key for key, is_set in stored.items() if is_set):
            if self.stream is not None:
                raise ValueError(
                    f"{key} is for stored samples, replaced by the stream of {self.stream.recipe}: "
                    "leave one of the two out"
                )
        return self

    @model_serializer(mode="wrap")
    def _with_one_grid(self, content: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out `resolution` or `resolutions` if unset, as earlier records do."""
        table = content(self)
        return {key: v for key, v in table.items() if key not in _GRIDS or v is not None}

    @property
    def training_resolutions(self) -> tuple[int, ...]:
        """Numbers of points along the first axis of the training batches."""
        if self.resolutions is not None:
            return self.resolutions
        assert self.resolution is not None
        return (self.resolution,)

    @property
    def finest_resolution(self) -> int:
        """The largest of these numbers. Selection and the main scores are at this resolution."""
        return max(self.training_resolutions)

    def load_recipe(self) -> Recipe:
        return load_recipe(self.recipe).with_overrides(self.overrides)


def merged(*layers: Mapping[str, object]) -> dict[str, object]:
    """Overrides of an experiment in which later layers replace the keys of earlier ones. In this
    sense `data.resolution` and `data.resolutions` are the same key."""
    overrides = dict[str, object]()
    for layer in layers:
        replaced = layer.keys() | (_NAMES if layer.keys() & _NAMES else set())
        kept = {key: value for key, value in overrides.items() if key not in replaced}
        overrides = {**kept, **layer}  # those of a later layer come last
    return overrides


def alternatives(changes: Mapping[str, object]) -> dict[str, object]:
    """Changes of an experiment's keys, in which `data.resolution` and `data.resolutions` replace
    each other."""
    keys = [f"data.{name}" for name in _GRIDS]
    replaced = dict.fromkeys(keys) if len(changes.keys() & set(keys)) == 1 else {}
    return {**replaced, **changes}


class ResidualTerm(Strict):
    """The residual of the equation as a part of the loss (`Problem.residual`).

    Each step adds the mean relative residual of its predictions to the loss.

    Args:
        weight: Weight of the residual, whose size is that of relative errors. [1]
        unlabelled: Number of training samples after the first data.samples whose inputs are used
            without labels: as many in each step as samples with labels.
        aim: Largest mean residual of the labels; above it the training is refused, because the
            labels' scheme and the residual's differ by more than the error aimed at. [1]
    """

    weight: Positive = 1.0
    unlabelled: Annotated[int, Field(ge=0)] = 0
    aim: Positive = 0.05


Protocol = Literal["validation", "published"]
FORMER_KEYS = ("warmup", "div", "final_div")  # of the schedule 1cycle, in the table training
_CYCLE = "1cycle"
_ADAM = OptimizerTable.tables["adam"](name="adam")
_DEFAULT_SCHEDULE = ScheduleTable.tables[_CYCLE](name=_CYCLE)


def _not_of_the_cycle(former: Mapping[str, object], chosen: object) -> str:
    return f"{next(iter(former))} is a key of the schedule {_CYCLE}, not of {chosen}: leave it out"


CALIBRATING = 9  # fewest samples that calibrate a band of probability 0.9


class Training(Strict):
    """Settings of a training (`operators.training.fit.Settings`).

    The keys `warmup`, `div` and `final_div` of the schedule 1cycle may also stand in this table, as
    in older files. Records write them here.

    Args:
        protocol: "validation" chooses the epoch with the validation split and evaluates the test
            split only once, at the end. "published" evaluates the test split after every epoch and
            reports the last and the best epoch, for comparison with published tables.
        epochs: Number of passes over the training samples.
        batch: Number of samples in a step. An incomplete last batch of an epoch is dropped.
        lr: Peak learning rate of the schedule. [1]
        clip: Largest norm of the gradient. Gradients with a larger norm are scaled down to it. [1]
        seed: Seed of initial weights, order of the samples, augmentation and dropout.
        average: Decay of an exponential moving average of the weights; 0 for no average. The
            average is evaluated and saved instead of the weights. [1]
        weights: Quadrature on meshes and clouds, for the loss and the choice of the epoch. "area"
            weights each point by its area. "points" gives all points the same weight, as in
            published code.
        start: A safetensors file with initial weights, for example published ones. The run records
            its SHA-256. By default initial weights are random.
        conformal: Whether only the first half of the validation samples chooses the epoch. The
            second half then calibrates conformal bands in a noise study.
        residual: The residual of the equation as a part of the loss; by default none.
    """

    protocol: Protocol = "validation"
    epochs: Count = 100
    batch: Count = 8
    lr: Positive = 1e-3
    schedule: ScheduleSpec = _DEFAULT_SCHEDULE
    clip: Positive = 0.999
    seed: Annotated[int, Field(ge=0)] = 0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weights: Literal["area", "points"] = "area"
    loss: LossSpec
    optimizer: OptimizerSpec = _ADAM
    symmetries: Symmetries = Symmetries()
    start: str | None = None
    conformal: bool = False
    residual: ResidualTerm | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_the_cycle(cls, content: object) -> object:
        """Move the former keys of 1cycle into the table `schedule`."""
        if not isinstance(content, Mapping):
            return content
        table = cast("Mapping[str, object]", content)
        former = {key: table[key] for key in FORMER_KEYS if key in table}
        schedule = table.get("schedule", {"name": _CYCLE})
        if not former or not isinstance(schedule, Mapping):
            return table
        stated = dict(cast("Mapping[str, object]", schedule))
        if stated.get("name") != _CYCLE:
            raise ValueError(_not_of_the_cycle(former, stated.get("name")))
        if twice := former.keys() & stated.keys():
            raise ValueError(f"{min(twice)} is given twice, also as schedule.{min(twice)}")
        rest = {key: value for key, value in table.items() if key not in former}
        return {**rest, "schedule": {**stated, **former}}

    @model_serializer(mode="wrap")
    def _recorded(
        self, content: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, object]:
        """Write the keys of 1cycle in place of its table in records, as older records do, and
        leave out `conformal` and `residual` where they are not used."""
        table: dict[str, object] = content(self)
        if not self.conformal:
            table.pop("conformal", None)
        if self.residual is None:
            table.pop("residual", None)
        if info.mode != "json" or self.schedule.name != _CYCLE:
            return table
        written = dict[str, object]()
        for key, value in table.items():
            written |= self.schedule.arguments if key == "schedule" else {key: value}
        return written

    def moved(self, former: Mapping[str, object], where: str) -> dict[str, object]:
        """The dotted keys in an experiment of former keys, with their values.

        Raises SchemaError if the schedule is not 1cycle.
        """
        if self.schedule.name != _CYCLE:
            reason = _not_of_the_cycle(former, self.schedule.name)
            raise SchemaError(f"{where}: training: {reason}")
        return {f"training.schedule.{key}": value for key, value in former.items()}

    def settings(self) -> Settings:
        """Convert this table to the settings that `operators.training.fit` expects."""
        return Settings(
            loss=self.loss.build(),
            optimizer=self.optimizer.build(),
            schedule=self.schedule.build(),
            cycle_momentum=self.optimizer.cycles_momentum,
            augment=self.symmetries.build(),
            epochs=self.epochs,
            batch=self.batch,
            lr=self.lr,
            clip=self.clip,
            seed=self.seed,
            average=self.average,
        )

    @property
    def momentum(self) -> str:
        """Whether the momentum is "cycled" by the schedule, or "constant"."""
        cycled = self.optimizer.cycles_momentum and hasattr(self.schedule.declares, "momentum")
        return "cycled" if cycled else "constant"

    @property
    def area(self) -> bool:
        """Whether points are weighted by their area."""
        return self.weights == "area"

    @property
    def selection_split(self) -> str:
        """The split that is used to choose the epoch."""
        return "test" if self.protocol == "published" else "validation"

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the checkpoints whose errors on the test split are reported."""
        return ("last", "best") if self.protocol == "published" else ("best",)


Names = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class MapTask(Strict):
    """A map from inputs to targets, all channels at once (`operators.data.Map`).

    Args:
        inputs, targets: Names of the variables that become channels; by default data.input and
            data.target.
        parameters: Whether the parameters of a sample are additional inputs.
    """

    kind: Literal["map"]
    inputs: Names | None = None
    targets: Names | None = None
    parameters: bool = False

    def build(self) -> Task:
        return Map(parameters=self.parameters)


class RolloutTask(Strict):
    """A map from the last frames of data.target to the next one (`operators.data.Rollout`).

    Args:
        history: Number of past frames that are inputs of the operator.
        steps: Number of frames that are predicted one after another in a training step.
        teacher_forcing: Whether the inputs of these predictions are true frames instead of
            predicted ones.
        noise: Standard deviation of Gaussian noise that is added to input frames in training,
            relative to their root mean square. [1]
        static: Whether data.input is an additional input.
        parameters: Whether the parameters of a sample are additional inputs.
        frames: Number of first frames used in training; by default all. Later frames are scored
            separately.
    """

    kind: Literal["rollout"]
    history: Count = 1
    steps: Count = 1
    teacher_forcing: bool = False
    noise: NonNegative = 0.0
    static: bool = False
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return Rollout(**self.model_dump(exclude={"kind"}))


class TimeTask(Strict):
    """A map from data.input or the first frames to data.target at time t (`operators.data.AtTime`).

    Args:
        history: Number of first frames that are inputs of the operator; if it is 0, data.input is
            the input.
        skip: Number of frames after the history that are not predicted, for example a first frame
            that is 0.
        parameters: Whether the parameters of a sample are additional inputs.
        frames: Number of first frames used in training; by default all. Later frames are scored
            separately.
    """

    kind: Literal["time"]
    history: Annotated[int, Field(ge=0)] = 0
    skip: Annotated[int, Field(ge=0)] = 0
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return AtTime(**self.model_dump(exclude={"kind"}))


class BlockTask(Strict):
    """A map from the first frames of data.target to all later ones (`operators.data.Block`).

    Args:
        history: Number of first frames that are inputs of the operator.
        parameters: Whether the parameters of a sample are additional inputs.
    """

    kind: Literal["block"]
    history: Count = 1
    parameters: bool = False

    def build(self) -> Task:
        return Block(**self.model_dump(exclude={"kind"}))


TaskSpec = Annotated[MapTask | RolloutTask | TimeTask | BlockTask, Field(discriminator="kind")]


_T = TypeVar("_T")
_FORMER = {f"training.{key}": key for key in FORMER_KEYS}
_OF_RECIPES = ("data.overrides", *(f"data.stream.{name}" for name in RECIPE_KEYS))
_FREE = (*_OF_RECIPES, "conditions")  # tables whose keys are not those of an experiment


class Experiment(Strict):
    """All settings of a training run.

    Args:
        name: Name of the experiment and of its run folder.
        summary: Description in one line.
        data, model, training, normalization: Tables that have their own keys.
        noise: Noise on the inputs or the training targets; by default there is no noise.
        resolutions: Numbers of points along each axis of the grids on which the trained operator is
            evaluated without retraining.
        task: The learning task; by default the map from data.input to data.target.
        conditions: Test data of a noise study that differ from what methods are told, by name. No
            training depends on them, so records of trainings leave them out.
    """

    name: Name
    summary: str
    resolutions: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)]
    data: Data
    model: ModelSpec
    training: Training
    normalization: Normalization = Normalization()
    noise: InputNoise | None = None
    task: TaskSpec | None = None
    conditions: Annotated[dict[Name, StudyCondition], Field(default_factory=dict)]

    @model_serializer(mode="wrap")
    def _recorded(
        self, content: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Leave out the conditions in records."""
        table = content(self)
        return {k: v for k, v in table.items() if k != "conditions" or info.mode != "json"}

    @model_validator(mode="before")
    @classmethod
    def _of_a_map(cls, content: Any) -> Any:
        """Set the kind "map" if a task has inputs or targets but states no kind."""
        task = content.get("task") if isinstance(content, dict) else None
        if isinstance(task, dict) and "kind" not in task and task.keys() & {"inputs", "targets"}:
            return {**content, "task": {"kind": "map", **task}}
        return content

    @model_validator(mode="after")
    def _of_one_task(self) -> Self:
        self.model.check_installed()
        levels = None if self.noise is None else self.noise.levels
        if levels is not None and self.training.symmetries.reflection:
            raise ValueError(
                "reflection changes the sign of all inputs, the noise level among them"
            )
        if self.noise and self.noise.kind == "sensors" and self.data.resolutions:
            raise ValueError(
                "noise.kind = 'sensors' chooses points of one grid and is not for "
                "data.resolutions: use data.resolution, or another kind"
            )
        several = self.data.stream is not None or self.data.resolutions is not None
        if several and self.training.residual is not None:
            raise ValueError(
                "training.residual is for stored samples at one resolution: leave it out, or leave "
                "data.stream and data.resolutions out"
            )
        if EVERY in self.conditions:
            raise ValueError(f"a condition cannot have the name {EVERY!r}, which stands for all")
        if self.task is None:
            return self
        if self.noise is not None and not isinstance(self.task, MapTask):
            raise ValueError(f"noise is for the task map, the task is {self.task.kind}")
        if self.training.symmetries.for_maps and not isinstance(self.task, MapTask):
            raise ValueError(
                "symmetries other than the shifts of diagonal and wave are for the task map, the "
                f"task is {self.task.kind}"
            )
        if self.training.symmetries.reflection and self.task.parameters:
            raise ValueError("reflection changes the sign of all inputs, parameters among them")
        return self

    @classmethod
    def full_key(
        cls, key: str, preferred: Collection[str] = (), content: Mapping[str, Any] | None = None
    ) -> str:
        """The full dotted key that ends with `key`. Former keys of the schedule are their own."""
        for table in (Model, OptimizerTable, ScheduleTable, LossTable):
            table.variants()  # declares the classes that were registered since the last call
        return key if key in _FORMER else super().full_key(key, preferred, content)

    @property
    def has_noisy_inputs(self) -> bool:
        """Whether the operator sees inputs with noise."""
        return self.noise is not None and self.noise.on_inputs

    @property
    def learned(self) -> Task:
        """The learning task."""
        return Map() if self.task is None else self.task.build()

    @property
    def variables(self) -> tuple[str | list[str], str | list[str]]:
        """Names of the input and target variables."""
        task, data = self.task, self.data
        lists = (task.inputs, task.targets) if isinstance(task, MapTask) else (None, None)
        pairs = zip(lists, (data.input, data.target), strict=True)
        input, target = ([*names] if names else default for names, default in pairs)
        return input, target

    def check_applies(self, domain: Domain, validation: int, where: str) -> None:
        """Raise SchemaError if the experiment sets a key that has no effect on this domain, or one
        that is impossible with this number of validation samples."""
        published, needed = self.training.protocol == "published", 2 * CALIBRATING
        if self.training.conformal and (published or validation < needed):
            raise SchemaError(
                f'training.conformal needs the protocol "validation" and {needed} validation '
                f"samples, {where} has {validation} and the protocol {self.training.protocol}"
            )
        task, noise, stream = self.task, self.noise, self.data.stream
        if isinstance(task, RolloutTask) and task.teacher_forcing and task.steps == 1:
            raise SchemaError(
                "task.teacher_forcing needs several frames per training step, task.steps is 1: "
                "increase it, or leave task.teacher_forcing out"
            )
        if isinstance(domain, Box) and not self.training.area:
            raise SchemaError(
                f"training.weights is for meshes and clouds, {where} has a grid, whose points all "
                "have the same weight: leave it out"
            )
        if noise is not None and stream is not None and not noise.fresh:
            raise SchemaError(
                f"noise.fresh is for stored samples, the stream of {stream.recipe} uses each "
                "sample once: leave it out"
            )
        if (
            stream is not None
            and stream.sampling == "tail"
            and not isinstance(task, MapTask | None)
        ):
            raise SchemaError(
                f'data.stream.sampling = "tail" is for the task map, the task is {task.kind}'
            )

    def check_loss(self, phases: Mapping[str, object], where: str) -> None:
        """Raise SchemaError if the loss is for another task, target, normaliser or operator.

        Args:
            phases: The two values of each variable that has two (`Physics.phases`).
        """
        name, targets = self.training.loss.name, self.variables[1]
        names = (targets,) if isinstance(targets, str) else targets
        stream, upper = self.data.stream, [v for v in names if v in phases]
        normalised, fault = self.normalization.target != "none", ""
        of_targets = OPERATORS[self.model.name].operator.adapt is not Operator.adapt
        if name not in ("cross-entropy", "flow", "gaussian"):
            return
        if not isinstance(self.learned, Map):
            fault = "needs the task map"
        elif name == "cross-entropy" and (len(names) != 1 or not upper):
            fault = f"needs a target of two phases: {', '.join(names)} of {where} has none"
        elif name == "cross-entropy" and normalised:
            fault = 'predicts logits: set normalization.target = "none"'
        elif name == "gaussian" and upper:
            fault = f"is for values, {upper[0]} of {where} has two phases: use cross-entropy"
        elif name != "cross-entropy" and not normalised:
            fault = 'needs normalised targets: set normalization.target = "scalar"'
        elif name != "cross-entropy" and of_targets:
            fault = f"needs an operator without a basis of the targets, not {self.model.name}"
        elif name == "flow" and self.data.resolutions is not None:
            fault = "trains at one resolution: use data.resolution"
        elif name == "flow" and self.training.symmetries.mean:
            fault = "takes no mean over the symmetries of the square: leave symmetries.mean out"
        elif name == "flow" and stream is not None and stream.sampling == "tail":
            fault = 'needs samples that are drawn alike: leave data.stream.sampling = "tail" out'
        if fault:
            raise SchemaError(f"training.loss: {name} {fault}")

    @property
    def unread(self) -> dict[str, str]:
        """Keys of `data` that the task does not use, with the reason for each."""
        task = self.task
        if isinstance(task, MapTask):
            lists = {"data.input": task.inputs, "data.target": task.targets}
            return {
                key: f"{key.replace('data.', 'task.')}s names the variables, {', '.join(names)}"
                for key, names in lists.items()
                if names
            }
        static = isinstance(task, RolloutTask) and task.static
        if task is None or static or not task.history:
            return {}
        frames = f"the task {task.kind} starts from frames of data.target"
        condition = ", without task.static" if isinstance(task, RolloutTask) else ""
        return {"data.input": f"{frames}{condition}"}

    def mapped(self, store: str | Store) -> str:
        """One line that names the inputs and the targets, and unused inputs of the store."""
        inputs, targets = ([name] if isinstance(name, str) else name for name in self.variables)
        opened = open_sealed(store)
        task, described = self.task, opened.description
        if isinstance(task, RolloutTask | TimeTask | BlockTask) and task.history:
            frames = [f"the {'last' if task.kind == 'rollout' else 'first'} frames of {targets[0]}"]
            inputs = frames + (inputs if isinstance(task, RolloutTask) and task.static else [])
        unused = [
            name
            for name, variable in described.variables.items()
            if variable.metadata.role == "input"
            and name not in (*inputs, *targets)
            and described.axes_of(variable)
        ]
        laws = physics_of(opened).parameters
        numbers = [f"log {name}" if law.log else name for name, law in laws.items()]
        if task is None or not task.parameters:
            used, unused = inputs, [*unused, *laws]
        else:
            used = [*inputs, *(numbers or ["the parameters"])]
        rest = f" ({', '.join(unused)} of the store not used)" if unused else ""
        return f"inputs {', '.join(used)} -> {', '.join(targets)}{rest}"

    @classmethod
    def on_store(cls, store: str | Store, model: str) -> Experiment:
        """An experiment for a store: an operator with default settings, trained on all its points.

        The protocol is "validation". All inputs of the store become input channels, and its first
        target is predicted. Numbers that differ from sample to sample by a law, such as a
        viscosity, are input channels too. On a circle, the loss is the relative H¹ error. On a
        plane grid with one spacing, it is the weighted H¹ error if the store names the weight. In
        all other cases, it is the relative L² error. Modes, sensors and levels that the grid does
        not allow are smaller than by default (`operators.base.Operator.suited`).

        Raises:
            StoreError: If the store is absent, or has no inputs or no targets.
        """
        declared = parse_model({"name": model})  # raises SchemaError for an unknown operator
        opened = open_sealed(store)
        recipe, domain = opened.metadata.recipe.name, domain_of(opened)
        inputs, (target, *_) = (functions_in(opened, role) for role in ("input", "target"))
        first = inputs[0]
        name, box = f"{model}-on-{recipe}", domain if isinstance(domain, Box) else None
        circle = box is not None and box.axes == ("x",) and box.grid == "periodic"
        plane = box is not None and box.dim == 2 and has_one_spacing(box)
        weighted = plane and physics_of(opened).loss_weight == first
        content = {
            "name": name if is_name(name) else f"{model}-on-a-store",
            "summary": f"{model} on a store of {recipe}",
            "resolutions": [domain.shape[0]],
            "data": {
                "recipe": recipe, "resolution": domain.shape[0], "input": first, "target": target,
            },
            "model": {"name": model, **declared.suited(domain)},
            "training": {"loss": {"name": "weighted-h1" if weighted else "h1" if circle else "l2"}},
            "normalization": dict.fromkeys(("input", "target"), "none" if circle else "scalar"),
        }  # fmt: skip
        task: dict[str, object] = {"inputs": inputs} if len(inputs) > 1 else {}
        task |= {"parameters": True} if physics_of(opened).parameters else {}
        content |= {"task": {"kind": "map", **task}} if task else {}
        return cls.parse(content, f"model {model} on {opened.url}")

    def chosen_conditions(self, names: Sequence[str]) -> dict[str, StudyCondition]:
        """The conditions with these names, or all for the only name `EVERY`.

        Raises SchemaError for an unknown name, or if there is none.
        """
        if [*names] == [EVERY] and self.conditions:
            return {**self.conditions}
        for name in names:
            if name not in self.conditions:
                hint = near(name, list(self.conditions)) if self.conditions else "it has none"
                raise SchemaError(f"experiment {self.name}: unknown condition {name!r}: {hint}")
        return {name: self.conditions[name] for name in names}

    @property
    def unconditioned(self) -> Experiment:
        """This experiment without conditions."""
        return self.model_copy(update={"conditions": {}})

    def at_level(self, level: float) -> Experiment:
        """This experiment with another noise level.

        Raises SchemaError for an impossible level.
        """
        noise = self.noise or InputNoise(level=0.0)
        if not noise.on_inputs:
            raise SchemaError(
                f"noise level {level:g}: experiment {self.name} has noise on the targets of "
                "training samples alone: leave the level out"
            )
        where = f"experiment {self.name}, noise"
        return self.model_copy(update={"noise": noise.replaced({"level": level}, where)})

    def on(self, store: str | Store | None, overrides: Mapping[str, object]) -> Experiment:
        """This experiment with overrides (see `with_overrides`), to be run on a given store.

        Raises:
            SchemaError: See `with_overrides`. It is also raised if the overrides change the recipe
                and the given store was not generated from the changed recipe.
        """
        changed = self.with_overrides(overrides)
        before, after = (
            (experiment.data.recipe, experiment.data.overrides) for experiment in (self, changed)
        )
        if store is None or before == after:
            return changed
        opened = open_sealed(store)
        if opened.metadata.fingerprint != changed.data.load_recipe().fingerprint:
            raise SchemaError(
                f"{opened.url} is not a store of {after[0]} with {after[1]}: leave out data.recipe "
                "and data.overrides, or leave out --data"
            )
        return changed

    def with_overrides(self, overrides: Mapping[str, Any]) -> Experiment:
        """This experiment with new values of some keys such as "training.epochs".

        Keys below `data.overrides`, `data.stream.overrides` and `data.stream.coarse` are keys of
        the recipes; those below `conditions.NAME` are keys of the recipe and of the noise. A table
        stands for its dotted keys (`pdegen.schema.flattened`). Keys of a table that the experiment
        does not have add it: `data.stream.recipe` adds a stream, `task.kind` a task, and
        `noise.level` noise.

        Raises:
            SchemaError: For an unknown key, an impossible value, or a key that the task does not
                use.
        """
        where, overrides = f"experiment {self.name}", flattened(overrides)
        below = {
            prefix: {k.removeprefix(f"{prefix}."): v for k, v in overrides.items()
                     if k.startswith(f"{prefix}.")}
            for prefix in _FREE
        }  # fmt: skip
        of_recipes = {f"{prefix}.{key}" for prefix, values in below.items() for key in values}
        direct = {key: value for key, value in overrides.items() if key not in of_recipes}
        table = self.with_values(direct)
        changes = dict[str, Any]()
        for key, value in direct.items():
            full = self.full_key(key, content=table)
            for other in [name for name in changes if _present(name) == _present(full)]:
                del changes[other]
            changes[full] = value
        streamed = {name: below[f"data.stream.{name}"] for name in RECIPE_KEYS}
        change_stream(self.data.stream, changes, streamed, where)
        if values := below["conditions"]:
            changes["conditions"] = changed_conditions(self.conditions, values)
        if values := below["data.overrides"]:
            changes["data.overrides"] = overridden(
                self.data.load_recipe(), self.data.overrides, values
            )
        former = {name: changes.pop(key) for key, name in _FORMER.items() if key in changes}
        changed = self.replaced(alternatives(changes), where)
        if former:
            changed = changed.replaced(changed.training.moved(former, where), where)
        for key, reason in changed.unread.items():
            if key in changes and not any(
                changed_key.startswith("task") for changed_key in changes
            ):
                raise SchemaError(f"{where}: {key} has no effect: {reason}")
        if changed.data.stream is not None:
            changed.data.stream.load_coarse()  # reports a wrong recipe now
        return changed


def without(changes: Mapping[str, _T], keys: Iterable[str]) -> dict[str, _T]:
    """Overrides of an experiment, without those of keys in `keys`. Keys may be given by short, full
    or former names."""
    changed = {_full(key) for key in keys}
    return {key: value for key, value in changes.items() if _full(key) not in changed}


def _full(key: str) -> str:
    if key.startswith(tuple(f"{prefix}." for prefix in _FREE)):
        return key
    return _present(Experiment.full_key(key))


def _present(full: str) -> str:
    """The present name of a full key."""
    return f"training.schedule.{_FORMER[full]}" if full in _FORMER else full


def asked_for(
    experiment: str | Experiment | None, model: str | None, data: str | Store | None
) -> Experiment:
    """The requested experiment.

    A request names either an experiment or an operator and a store. `experiment` is an object, a
    name or the path of a TOML file.

    Raises:
        SchemaError: If both or neither of these are named, or the experiment is impossible.
        StoreError: See `Experiment.on_store`.
    """
    if isinstance(experiment, Experiment) and model is None:
        return experiment
    name = experiment.name if isinstance(experiment, Experiment) else experiment
    check_asked(name, model, data)
    if name is not None:
        return load_experiment(name, data)
    assert data is not None
    return Experiment.on_store(data, str(model))


def load_experiment(name: str, store: str | Store | None = None) -> Experiment:
    """Load an experiment by name or from a TOML file.

    Raises SchemaError for an unknown name or an impossible experiment. The message suggests similar
    names.
    """
    experiment = Experiment.load(file_of("experiment", name))
    data, stream = experiment.data, experiment.data.stream
    if store is None or data.recipe != open_sealed(store).metadata.recipe.name:
        data.load_recipe()  # reports a wrong recipe now
    if stream is not None:
        stream.load_coarse()
    return experiment
