"""The table `training` of an experiment: how to train."""

from typing import Annotated, Literal

from pydantic import Field

from operators.training.settings import Settings
from pdegen.schema import Count, Positive, Strict
from pipelines.declared.registry import AdamOptimizer, LossSpec, OptimizerSpec, Symmetries

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
