"""Learning rate schedules. A schedule is a function (lr, step, steps, epochs) -> rate of the step.

Here `lr` is the peak rate and `step` the number of earlier steps. `steps` is the number of all
steps, a multiple of `epochs`. The rate at step = steps is only recorded. A schedule has no state: a
resumed training has the same rates as an uninterrupted one.

A schedule may also have a method `check(steps, epochs)`, which raises ValueError if it cannot have
that length. The values of a method `momentum(step, steps, epochs)` are the momentum of optimisers
whose momentum is cycled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from operators.base import Count, Decay, Divisor, Factor, Fraction, require
from operators.registry import register_schedule

_HIGH, _LOW = 0.95, 0.85  # momentum of the 1cycle at the ends and at the peak of the rate


Schedule = Callable[[float, int, int, int], float]  # (lr, step, steps, epochs) -> rate


@dataclass(frozen=True)
class OneCycle:
    """1cycle: the rate rises from lr/div to lr and falls to lr/(div final_div), along cosines.

    Adam's β₁ falls from 0.95 to 0.85 while the rate rises, and rises back to 0.95.

    Args:
        warmup: Fraction of the steps before the peak of the learning rate. [1]
        div: The learning rate starts at lr/div. [1]
        final_div: The learning rate ends at lr/(div final_div). [1]

    References: L. N. Smith and N. Topin, Super-convergence, 2019; as `OneCycleLR` of PyTorch.
    """

    warmup: Fraction = 0.3
    div: Divisor = 1e4
    final_div: Divisor = 1e4

    def __post_init__(self) -> None:
        require(0 < self.warmup < 1, "need 0 < warmup < 1", self.warmup)
        require(min(self.div, self.final_div) >= 1, "need div, final_div >= 1", self.div,
                self.final_div)  # fmt: skip

    def check(self, steps: int, epochs: int) -> None:
        """Raise ValueError if the rise is a single step, whose slope would be infinite."""
        if self.warmup * steps == 1:
            raise ValueError(
                f"warmup {self.warmup} is one step of {steps}: the learning rate cannot rise "
                "within one step, use another warmup or more epochs"
            )

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        first = lr / self.div
        return self._between(first, lr, first / self.final_div, step, steps)

    def momentum(self, step: int, steps: int, epochs: int) -> float:
        """Adam's β₁ in a step."""
        return self._between(_HIGH, _LOW, _HIGH, step, steps)

    def _between(self, first: float, peak: float, last: float, step: int, steps: int) -> float:
        top = float(self.warmup * steps) - 1
        if step <= top:
            return _cosine(first, peak, step / top)
        return _cosine(peak, last, (step - top) / (steps - 1 - top))


@dataclass(frozen=True)
class Cosine:
    """The rate rises linearly to lr, then falls along a cosine to end · lr after the last step.

    With w = warmup · steps it is lr (s + 1)/(w + 1) in step s < w, and later
    lr (end + (1 - end) (1 + cos π(s - w)/(steps - w))/2).

    Args:
        warmup: Fraction of the steps in which the rate rises; 0 for none. [1]
        end: The rate after the last step, divided by lr. [1]

    References: I. Loshchilov and F. Hutter, SGDR, ICLR 2017, eq. 5.
    """

    warmup: Decay = 0.05
    end: Decay = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.warmup < 1 and 0 <= self.end < 1, "need 0 <= warmup, end < 1",
                self.warmup, self.end)  # fmt: skip

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        rise = self.warmup * steps
        if step < rise:
            return lr * (step + 1) / (rise + 1)
        return _cosine(lr, self.end * lr, (step - rise) / (steps - rise))


@dataclass(frozen=True)
class StepDecay:
    """The rate is multiplied by a factor after every few epochs: lr factor^⌊epoch/every⌋.

    Epochs are counted from 0.

    Args:
        factor: The factor. [1]
        every: Number of epochs with the same rate.
    """

    factor: Factor = 0.5
    every: Count = 100

    def __post_init__(self) -> None:
        require(0 < self.factor <= 1, "factor must be > 0 and <= 1", self.factor)
        require(self.every >= 1, "every must be >= 1", self.every)

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        return lr * self.factor ** (step * epochs // steps // self.every)


@dataclass(frozen=True)
class Constant:
    """The rate is lr in all steps."""

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        return lr


def _cosine(start: float, end: float, part: float) -> float:
    """Value between `start` and `end`, along half a cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


class Scheduled:
    """The learning rates of an optimiser, step by step.

    Each parameter group has its own peak, the rate with which it was constructed.

    Args:
        cycle_momentum: Whether the schedule also sets the momentum, or Adam's β₁, if it has one.

    Raises:
        ValueError: If the schedule cannot have this length, or if a rate is negative or not finite.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        steps: int,
        epochs: int,
        cycle_momentum: bool = False,
    ) -> None:
        self.optimizer, self.schedule, self.length = optimizer, schedule, (steps, epochs)
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self.momentum: Callable[..., float] | None = (
            getattr(schedule, "momentum", None) if cycle_momentum else None
        )
        self.go_to(0)

    def go_to(self, step: int) -> None:
        """Set the rates of a step, given by the number of earlier steps."""
        self.number = step
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            rate = self.schedule(peak, step, *self.length)
            if not 0 <= rate < math.inf:
                name = type(self.schedule).__name__
                raise ValueError(
                    f"the schedule {name} gives the learning rate {rate} in step {step}"
                )
            group["lr"] = rate
            if self.momentum is None:
                continue
            momentum = self.momentum(step, *self.length)
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            elif "momentum" in group:
                group["momentum"] = momentum
            else:
                raise ValueError("the optimizer has no momentum that a schedule can set")

    def step(self) -> None:
        """Set the rates of the next step."""
        self.go_to(self.number + 1)

    @property
    def rate(self) -> float:
        """Learning rate of the first parameter group in the present step."""
        return float(self.optimizer.param_groups[0]["lr"])


register_schedule("1cycle", OneCycle)
register_schedule("cosine", Cosine)
register_schedule("steps", StepDecay)
register_schedule("constant", Constant)
