"""Learning tasks: a map, or a task on trajectories (`trajectories`). A sample gives one example, or
in training one for each window or time. `predict` applies the operator repeatedly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Batch, Channel, Examples
from operators.data.reading import Resident
from operators.data.samples import Samples
from operators.data.variables import DataError

Apply = Callable[[Tensor], Tensor]  # of the operator, input -> output


class TaskError(DataError):
    """A task that the data do not have; one line."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What is learned.

    Args:
        parameters: Whether the numbers of a sample are further inputs, constant over the domain.
    """

    parameters: bool = False

    kind = ""

    @abstractmethod
    def count(self, pairs: Samples) -> int:
        """Examples of a sample in training."""

    @abstractmethod
    def channels(self, pairs: Samples) -> tuple[int, int]:
        """Of the operator's inputs and outputs."""

    @abstractmethod
    def example(self, batch: Batch, number: Int[Tensor, " batch"], pairs: Samples) -> Batch:
        """For each sample of a batch its training example of this number."""

    def evaluation_example(self, batch: Batch, pairs: Samples) -> Batch:
        """What is evaluated of each sample."""
        return self.example(batch, torch.zeros(len(batch), dtype=torch.long), pairs)

    def outputs(self, pairs: Samples) -> slice:
        """Which of the target channels `evaluation_example` has."""
        return slice(None)

    def inputs(self, pairs: Samples) -> tuple[Channel, ...]:
        """The leading input channels of `evaluation_example`, functions of the data."""
        return pairs.input_channels

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        """All that the operator says of an input, step after step."""
        return apply(a)

    def noisy_inputs(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
        """Inputs of a training step; `mask` is False at padding."""
        return a

    def persistence(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        """What is predicted where nothing changes: the last state of the inputs at all steps.

        Returns:
            Shape (batch, *grid, steps own); None where the inputs are no state.
        """
        return torch.cat([a] * steps, dim=-1) if a.shape[-1] == own else None

    @property
    def single_step(self) -> Task:
        """The task with one application of the operator in a training step."""
        return self

    @property
    def for_selection(self) -> Task:
        """The task at the times that training sees alone: by it an epoch is chosen."""
        return self

    def check(self, frames: int, where: str) -> None:
        """Raise TaskError where trajectories of so many frames do not have the task's windows."""
        assert frames >= 0  # a map needs none

    def description(self) -> dict[str, Any]:
        return {"kind": self.kind, **vars(self)}

    def training(self, pairs: Samples) -> Samples:
        return self._of(pairs, self.count(pairs))

    def evaluation(self, pairs: Samples) -> Samples:
        self.count(pairs)
        asked = self._of(pairs, 0)
        names = {
            "input_channels": self.inputs(pairs),
            "target_channels": pairs.target_channels[self.outputs(pairs)],
        }
        asked = replace(asked, **names)
        return asked.resident() if isinstance(pairs.reader, Resident) else asked

    def _of(self, pairs: Samples, count: int) -> Samples:
        """The examples of samples, of which there are so many of each in training."""
        changes = {
            "examples": Examples(self, pairs, count),
            "operator_channels": self.channels(pairs),
        }
        return replace(pairs, input_channels=(), target_channels=(), **changes)

    def _with_parameters(self, batch: Batch, *functions: Tensor) -> Tensor:
        """The inputs side by side, and the numbers of the samples where they are inputs too."""
        values = list(functions)
        if self.parameters:
            if batch.parameters is None:
                raise TaskError("the samples have no parameters")
            grid = functions[0].shape[1:-1]
            numbers = batch.parameters[(slice(None), *[None] * len(grid))]
            values.append(numbers.expand(-1, *grid, -1))
        return values[0] if len(values) == 1 else torch.cat(values, dim=-1)

    def _numbers(self, pairs: Samples) -> int:
        """Parameters of a sample, where they are inputs."""
        if not self.parameters:
            return 0
        found = pairs.first().parameters
        if found is None:
            raise TaskError(f"{pairs.source.get('url')}: the samples have no parameters")
        return found.shape[-1]


@dataclass(frozen=True, kw_only=True)
class Map(Task):
    """Inputs -> targets, all channels at once."""

    kind = "map"

    def training(self, pairs: Samples) -> Samples:
        return super().training(pairs) if self.parameters else pairs

    def evaluation(self, pairs: Samples) -> Samples:
        return super().evaluation(pairs) if self.parameters else pairs

    def count(self, pairs: Samples) -> int:
        return 1

    def channels(self, pairs: Samples) -> tuple[int, int]:
        inputs, outputs = pairs.channels
        return inputs + self._numbers(pairs), outputs

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return replace(batch, a=self._with_parameters(batch, batch.a))


def times_of(pairs: Samples) -> tuple[float, ...]:
    """The times of the targets, rising as they are stored."""
    times = tuple(dict.fromkeys(channel.time for channel in pairs.target_channels))
    found = tuple(t for t in times if t is not None)
    if not found or len(found) != len(times):
        raise TaskError(
            f"{pairs.source.get('url')}: {pairs.source.get('target')} has no times, which the task "
            "needs"
        )
    of_each = len(pairs.target_channels) // len(found)
    if any(
        channel.time != found[place // of_each]
        for place, channel in enumerate(pairs.target_channels)
    ):
        raise TaskError(
            f"{pairs.source.get('url')}: the task needs targets of one variable, got "
            f"{', '.join(dict.fromkeys(c.variable for c in pairs.target_channels))}"
        )
    return found
