"""The tables `training` and `task` of an experiment."""

from typing import Annotated, Literal

from pydantic import Field

from operators.data import AtTime, Block, Map, Rollout, Task
from operators.training.settings import Settings
from pdegen.schema import Count, NonNegative, Positive, Strict
from pipelines.config.registry import AdamOptimizer, LossSpec, OptimizerSpec, Symmetries

Protocol = Literal["validation", "published"]


class Training(Strict):
    """Settings of a training (`operators.training.settings.Settings`).

    Args:
        protocol: "validation" chooses the epoch with the validation split and evaluates the test
            split only once, at the end. "published" evaluates the test split after every epoch and
            reports the last and the best epoch, for comparison with published tables.
        epochs: Number of passes over the training samples.
        batch: Number of samples in a step. An incomplete last batch of an epoch is dropped.
        lr: Peak learning rate of the 1cycle schedule. [1]
        warmup: Fraction of the steps before the peak of the learning rate. [1]
        div: The learning rate starts at lr/div. [1]
        final_div: The learning rate ends at lr/(div final_div). [1]
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
    warmup: Annotated[float, Field(gt=0, lt=1)] = 0.3
    div: Annotated[float, Field(ge=1)] = 1e4
    final_div: Annotated[float, Field(ge=1)] = 1e4
    clip: Positive = 0.999
    seed: Annotated[int, Field(ge=0)] = 0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weights: Literal["area", "points"] = "area"
    loss: LossSpec
    optimizer: OptimizerSpec = AdamOptimizer(name="adam")
    symmetries: Symmetries = Symmetries()
    start: str | None = None

    def settings(self) -> Settings:
        """Convert this table to the settings that `operators.training.fit` expects."""
        return Settings(
            loss=self.loss.build(),
            optimizer=self.optimizer.build(),
            cycle_momentum=self.optimizer.cycle_momentum,
            augment=self.symmetries.build(),
            **self.model_dump(
                exclude={"protocol", "weights", "loss", "optimizer", "symmetries", "start"}
            ),
        )

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
