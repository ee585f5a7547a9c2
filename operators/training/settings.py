"""Settings of a training: loss, optimizer and learning rate schedule."""

from dataclasses import dataclass, field

import torch

from operators.training.optimizers import Adam, MakeOptimizer
from operators.training.schedules import OneCycle, Schedule, Scheduled
from operators.training.step import Augmentation, Loss


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    Args:
        loss: Function (prediction, target, input) -> scalar. Its arguments are in physical units.
        epochs: Number of epochs.
        batch: Number of samples in a batch, summed over all processes.
        optimizer: Function (parameters, lr) -> optimizer.
        lr: Peak learning rate of the schedule.
        schedule: Function (lr, step, steps, epochs) -> learning rate of the step.
        cycle_momentum: Whether the schedule also sets the momentum, if it has one for each step.
        clip: Norm to which larger gradients are scaled down.
        seed: Seed of the sample order, augmentation and dropout.
        augment: Function (inputs, targets) -> (inputs, targets) applied to each batch; None for no
            augmentation.
        average: Decay of an exponential moving average of the weights. The averaged weights are
            then evaluated and saved. 0 turns averaging off.
    """

    loss: Loss
    epochs: int = 100
    batch: int = 8
    optimizer: MakeOptimizer = field(default_factory=Adam)
    lr: float = 1e-3
    schedule: Schedule = field(default_factory=OneCycle)
    cycle_momentum: bool = True
    clip: float = 0.999
    seed: int = 0
    augment: Augmentation | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"need epochs, batch >= 1, got {self.epochs}, {self.batch}")
        if not (self.lr > 0 and self.clip > 0 and 0 <= self.average < 1):
            raise ValueError(
                "need lr > 0, clip > 0, 0 <= average < 1, got "
                f"{self.lr}, {self.clip}, {self.average}"
            )

    def steps(self, samples: int) -> int:
        """Total number of training steps with `samples` training samples.

        Raises:
            ValueError: If a batch is larger than the data, or if the schedule cannot have this
                number of steps.
        """
        if self.batch > samples:
            raise ValueError(f"batch {self.batch} is larger than the {samples} training samples")
        steps = samples // self.batch * self.epochs
        check = getattr(self.schedule, "check", None)
        if check is not None:
            check(steps, self.epochs)
        return steps

    def scheduled(self, optimizer: torch.optim.Optimizer, steps: int) -> Scheduled:
        """The learning rates of an optimiser over `steps` steps."""
        return Scheduled(optimizer, self.schedule, steps, self.epochs, self.cycle_momentum)
