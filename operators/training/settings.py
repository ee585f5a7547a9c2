"""Settings of a training: loss, optimizer and learning rate schedule."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from operators.training.step import Augmentation, Loss

MakeOptimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]


def adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Adam with its default constants and one fused kernel for all parameters."""
    return torch.optim.Adam(parameters, lr=lr, fused=True)


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    Args:
        loss: Function (prediction, target, input) -> scalar. Its arguments are in physical units.
        epochs: Number of epochs.
        batch: Number of samples in a batch, summed over all processes.
        optimizer: Function (parameters, lr) -> optimizer.
        lr: Peak learning rate of the 1cycle schedule (Smith and Topin 2019). The rate rises from
            lr/div to lr and falls to lr/(div final_div), both along a cosine.
        cycle_momentum: Whether β₁ falls from 0.95 to 0.85 and rises back to 0.95, as published.
        warmup: Fraction of all steps that come before the peak of the learning rate.
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
    optimizer: MakeOptimizer = adam
    lr: float = 1e-3
    cycle_momentum: bool = True
    warmup: float = 0.3
    div: float = 1e4
    final_div: float = 1e4
    clip: float = 0.999
    seed: int = 0
    augment: Augmentation | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"need epochs, batch >= 1, got {self.epochs}, {self.batch}")
        if not (self.lr > 0 and 0 < self.warmup < 1 and self.clip > 0 and 0 <= self.average < 1):
            raise ValueError(
                "need lr > 0, 0 < warmup < 1, clip > 0, 0 <= average < 1, got "
                f"{self.lr}, {self.warmup}, {self.clip}, {self.average}"
            )

    def steps(self, samples: int) -> int:
        """Total number of training steps with `samples` training samples.

        Raises:
            ValueError: If a batch is larger than the data, or if the warmup is a single step.
        """
        if self.batch > samples:
            raise ValueError(f"batch {self.batch} is larger than the {samples} training samples")
        steps = samples // self.batch * self.epochs
        if self.warmup * steps == 1:  # PyTorch divides by the length of the rise, steps - 1
            raise ValueError(
                f"warmup {self.warmup} is one step of {steps}: the learning rate cannot rise "
                "within one step, use another warmup or more epochs"
            )
        return steps

    def schedule(
        self, optimizer: torch.optim.Optimizer, steps: int
    ) -> torch.optim.lr_scheduler.OneCycleLR:
        """The 1cycle schedule over `steps` steps."""
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            self.lr,
            total_steps=steps,
            pct_start=self.warmup,
            cycle_momentum=self.cycle_momentum,
            div_factor=self.div,
            final_div_factor=self.final_div,
        )
