"""What is learned, by which task, and how."""

from typing import Annotated, Literal

from pydantic import Field

from operators.data import AtTime, Block, Map, Rollout, Task
from operators.training.settings import Settings
from pdegen.schema import Count, NonNegative, Positive, Strict
from pipelines.config.registry import AdamOptimizer, LossSpec, OptimizerSpec, Symmetries

Protocol = Literal["validation", "published"]


class Training(Strict):
    """How to train. See `operators.training.settings.Settings`.

    Args:
        protocol: "validation" chooses the epoch on the validation split and reads the test split
            once, at the end. "published" watches the test split after every epoch and reports
            the last and the best epoch, for comparison with published tables.
        epochs: Passes over the training samples.
        batch: Samples in a step; the last incomplete batch of an epoch is dropped.
        lr: Peak learning rate of the 1cycle schedule. [1]
        warmup: Share of the steps before the peak. [1]
        div: The learning rate begins at lr/div. [1]
        final_div: It ends at lr/(div final_div). [1]
        clip: Largest norm of the gradient. [1]
        seed: Seed of initial weights, order of the samples, augmentation and dropout.
        average: Decay of an exponential moving average of the weights, which is then what is
            evaluated and saved; 0 for none. [1]
        weights: What points of meshes count in the loss and in the choice of the epoch: their
            "area", or all alike, "points", as published.
        start: A safetensors file of weights that the training starts from, such as published ones;
            the run records its SHA-256. By default weights are drawn by the seed.
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
        """Whether points count by their area."""
        return self.weights == "area"

    @property
    def selection_split(self) -> str:
        return "test" if self.protocol == "published" else "validation"

    @property
    def reported(self) -> tuple[str, ...]:
        """The checkpoints whose test scores are reported."""
        return ("last", "best") if self.protocol == "published" else ("best",)


Names = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class MapTask(Strict):
    """Inputs -> targets, all channels at once (`operators.data.Map`).

    Args:
        inputs, targets: Names of the variables, side by side as channels; by default data.input and
            data.target.
        parameters: Whether the numbers of a sample are further inputs.
    """

    kind: Literal["map"]
    inputs: Names | None = None
    targets: Names | None = None
    parameters: bool = False

    def build(self) -> Task:
        return Map(parameters=self.parameters)


class RolloutTask(Strict):
    """The last frames of data.target -> the next one (`operators.data.Rollout`).

    Args:
        history: Frames that are seen.
        steps: Frames that are predicted in a step of training, one after another.
        teacher_forcing: Whether these steps see true frames in place of predicted ones.
        noise: Deviation of Gaussian noise on the frames in training, over their root mean
            square. [1]
        static: Whether data.input is seen beside the frames.
        parameters: Whether the numbers of a sample are further inputs.
        frames: Frames of the trajectories in training; later ones are scored apart. By default all.
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
    """data.input, or the first frames, and a time -> data.target then (`operators.data.AtTime`).

    Args:
        history: Frames that are seen; 0 for data.input in their place.
        skip: Frames after these that are not asked for, such as a first one that is 0.
        parameters: Whether the numbers of a sample are further inputs.
        frames: Frames of the trajectories in training; later ones are scored apart. By default all.
    """

    kind: Literal["time"]
    history: Annotated[int, Field(ge=0)] = 0
    skip: Annotated[int, Field(ge=0)] = 0
    parameters: bool = False
    frames: Count | None = None

    def build(self) -> Task:
        return AtTime(**self.model_dump(exclude={"kind"}))


class BlockTask(Strict):
    """The first frames of data.target -> all later ones at once (`operators.data.Block`).

    Args:
        history: Frames that are seen.
        parameters: Whether the numbers of a sample are further inputs.
    """

    kind: Literal["block"]
    history: Count = 1
    parameters: bool = False

    def build(self) -> Task:
        return Block(**self.model_dump(exclude={"kind"}))


TaskSpec = Annotated[MapTask | RolloutTask | TimeTask | BlockTask, Field(discriminator="kind")]
