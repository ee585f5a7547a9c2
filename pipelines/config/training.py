"""The tables `training` and `task` of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, cast

from pydantic import (
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from operators.data import AtTime, Block, Map, Rollout, Task
from operators.training.fit import Settings
from pdegen.schema import Count, NonNegative, Positive, SchemaError, Strict
from pipelines.config.choices import (
    LossSpec,
    OptimizerSpec,
    OptimizerTable,
    ScheduleSpec,
    ScheduleTable,
)
from pipelines.config.registry import Symmetries

Protocol = Literal["validation", "published"]
FORMER_KEYS = ("warmup", "div", "final_div")  # of the schedule 1cycle, in the table training
_CYCLE = "1cycle"
_ADAM = OptimizerTable.tables["adam"](name="adam")
_DEFAULT_SCHEDULE = ScheduleTable.tables[_CYCLE](name=_CYCLE)


def _not_of_the_cycle(former: Mapping[str, object], chosen: object) -> str:
    return f"{next(iter(former))} is a key of the schedule {_CYCLE}, not of {chosen}: leave it out"


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
        """Write the keys of 1cycle in place of its table in records, as older records do."""
        table: dict[str, object] = content(self)
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
