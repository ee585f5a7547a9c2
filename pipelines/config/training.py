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
        protocol: "validation" chooses the epoch on the validation split and reads the test split
            once, at the end. "published" evaluates the test split after every epoch and reports
            the last and the best epoch, for comparison with published tables.
        epochs: Passes over the training samples.
        batch: Samples in a step; the last incomplete batch of an epoch is dropped.
        lr: Peak learning rate of the 1cycle schedule. [1]
        warmup: Fraction of the steps before the peak of the learning rate. [1]
        div: The learning rate starts at lr/div. [1]
        final_div: The learning rate ends at lr/(div final_div). [1]
        clip: Largest norm of the gradient; larger gradients are scaled down. [1]
        seed: Seed of initial weights, order of the samples, augmentation and dropout.
        average: Decay of an exponential moving average of the weights, which is evaluated and
            saved in their place; 0 for no average. [1]
        weights: Quadrature on meshes in the loss and in the choice of the epoch: "area" weights
            points by their area, "points" weights all alike, as published.
        start: A safetensors file of initial weights, such as published ones; the run records its
            SHA-256. By default weights are drawn from the seed.
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
        """The settings as `operators.training.fit` takes them."""
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
        """The split that chooses the epoch."""
        return "test" if self.protocol == "published" else "validation"

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the checkpoints whose test scores are reported."""
        return ("last", "best") if self.protocol == "published" else ("best",)


Names = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class MapTask(Strict):
    """Inputs -> targets, all channels at once (`operators.data.Map`).

    Args:
        inputs, targets: Names of the variables, which become channels; by default data.input and
            data.target.
        parameters: Whether the parameters of a sample are further inputs.
    """

    kind: Literal["map"]
    inputs: Names | None = None
    targets: Names | None = None
    parameters: bool = False

    def build(self) -> Task:
        return Map(parameters=self.parameters)


class RolloutTask(Strict):
    """The last frames of data.target -> the next frame (`operators.data.Rollout`).

    Args:
        history: Number of past frames that the operator sees.
        steps: Number of frames that a training step predicts one after another.
        teacher_forcing: Whether each of these predictions sees true frames instead of predicted
            ones.
        noise: Standard deviation of Gaussian noise on the frames in training, relative to their
            root mean square. [1]
        static: Whether data.input is a further input.
        parameters: Whether the parameters of a sample are further inputs.
        frames: Number of frames used in training; later frames are scored separately. By default
            all.
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
    """data.input, or the first frames, and a time t -> data.target at t (`operators.data.AtTime`).

    Args:
        history: Number of first frames that the operator sees; 0 for data.input instead.
        skip: Number of frames after these that are not predicted, such as a first frame of 0.
        parameters: Whether the parameters of a sample are further inputs.
        frames: Number of frames used in training; later frames are scored separately. By default
            all.
    """

    kind: Literal["time"]
    history: Annotated[int, Field(ge=0)] = 0
    skip: Annotated[int, Field(ge=0)] = 0
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return AtTime(**self.model_dump(exclude={"kind"}))


class BlockTask(Strict):
    """The first frames of data.target -> all later frames at once (`operators.data.Block`).

    Args:
        history: Number of first frames that the operator sees.
        parameters: Whether the parameters of a sample are further inputs.
    """

    kind: Literal["block"]
    history: Count = 1
    parameters: bool = False

    def build(self) -> Task:
        return Block(**self.model_dump(exclude={"kind"}))


TaskSpec = Annotated[MapTask | RolloutTask | TimeTask | BlockTask, Field(discriminator="kind")]
