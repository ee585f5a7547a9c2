"""Base class of learning tasks, and the task without time steps; see also `trajectories`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Batch, Channel, Examples
from operators.data.errors import DataError
from operators.data.reading import Resident
from operators.data.samples import Samples

Apply = Callable[[Tensor], Tensor]  # the operator, input -> output


class TaskError(DataError):
    """The data do not fit the task. The message is one line."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A learning task: how samples become examples, and how the operator makes predictions.

    A sample gives one evaluation example. In training it may give several examples, such as one for
    each window of a trajectory. `predict` may apply the operator repeatedly.

    Args:
        parameters: Whether the parameters of a sample are appended to the inputs, as channels that
            are constant over the domain.
    """

    parameters: bool = False

    kind = ""

    channels_after_parameters = 0
    """Number of input channels after the parameters."""

    @abstractmethod
    def count(self, pairs: Samples) -> int:
        """Number of training examples from each sample."""

    @abstractmethod
    def channels(self, pairs: Samples) -> tuple[int, int]:
        """Numbers of channels of the operator's inputs and outputs."""

    @abstractmethod
    def example(self, batch: Batch, number: Int[Tensor, " batch"], pairs: Samples) -> Batch:
        """Training examples, one for each sample of a batch.

        Args:
            number: Index of the example among those of its sample.
        """

    def evaluation_example(self, batch: Batch, pairs: Samples) -> Batch:
        """Evaluation examples, one for each sample of a batch."""
        return self.example(batch, torch.zeros(len(batch), dtype=torch.long), pairs)

    def outputs(self, pairs: Samples) -> slice:
        """Slice of the target channels of samples that evaluation examples have as targets."""
        return slice(None)

    def inputs(self, pairs: Samples) -> tuple[Channel, ...]:
        """Descriptions of the first input channels of evaluation examples.

        Later channels, such as parameters and times, have no description.
        """
        return pairs.input_channels

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        """Predictions of all steps, concatenated as channels.

        Args:
            apply: The operator, input -> output.
            a: Inputs of the examples.
            steps: Number of applications of the operator.
            truth: True targets. If given, the inputs of each later step contain true targets
                instead of predictions (teacher forcing).
        """
        return apply(a)

    def noisy_inputs(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
        """Inputs of a training step after adding the noise of the task.

        Args:
            channels: Number of channels of the operator's outputs.
            mask: False at padding; None without padding.
        """
        return a

    def persistence(self, a: Tensor, channels: int, steps: int) -> Tensor | None:
        """The persistence forecast: the last state of the inputs, repeated at all steps.

        Args:
            channels: Number of channels of one state.

        Returns:
            Tensor of shape (batch, *grid, steps * channels); None if the inputs are not states.
        """
        return torch.cat([a] * steps, dim=-1) if a.shape[-1] == channels else None

    @property
    def single_step(self) -> Task:
        """The same task, but a training step applies the operator only once."""
        return self

    @property
    def for_selection(self) -> Task:
        """The same task, restricted to the times of training. Its scores select the best epoch."""
        return self

    def check(self, frames: int, where: str) -> None:
        """Raise TaskError if trajectories have too few frames for the task."""
        assert frames >= 0  # a map needs none

    def description(self) -> dict[str, Any]:
        """Kind and settings of the task, as stored in checkpoints."""
        return {"kind": self.kind, **vars(self)}

    def training(self, pairs: Samples) -> Samples:
        """Training examples, derived from the samples."""
        return self._of(pairs, self.count(pairs))

    def evaluation(self, pairs: Samples) -> Samples:
        """Evaluation examples, derived from the samples."""
        self.count(pairs)  # raises if the task does not fit
        examples = replace(
            self._of(pairs, 0),
            input_channels=self.inputs(pairs),
            target_channels=pairs.target_channels[self.outputs(pairs)],
        )
        return examples.resident() if isinstance(pairs.reader, Resident) else examples

    def _of(self, pairs: Samples, count: int) -> Samples:
        """Examples, derived from the samples.

        Args:
            count: Number of training examples from each sample; 0 for evaluation examples.
        """
        changes = {
            "examples": Examples(self, pairs, count),
            "operator_channels": self.channels(pairs),
        }
        return replace(pairs, input_channels=(), target_channels=(), **changes)

    def _with_parameters(self, batch: Batch, *functions: Tensor) -> Tensor:
        """Concatenate functions as channels; append the parameters if the task uses them."""
        values = list(functions)
        if self.parameters:
            if batch.parameters is None:
                raise TaskError("the samples have no parameters")
            grid = functions[0].shape[1:-1]
            parameters = batch.parameters[(slice(None), *[None] * len(grid))]
            values.append(parameters.expand(-1, *grid, -1))
        return values[0] if len(values) == 1 else torch.cat(values, dim=-1)

    def _parameter_count(self, pairs: Samples) -> int:
        """Number of input channels that are parameters of a sample."""
        if not self.parameters:
            return 0
        parameters = pairs.first().parameters
        if parameters is None:
            raise TaskError(f"{pairs.source.get('url')}: the samples have no parameters")
        return parameters.shape[-1]


@dataclass(frozen=True, kw_only=True)
class Map(Task):
    """The task that maps inputs to targets, all channels in one application of the operator."""

    kind = "map"

    def training(self, pairs: Samples) -> Samples:
        return super().training(pairs) if self.parameters else pairs

    def evaluation(self, pairs: Samples) -> Samples:
        return super().evaluation(pairs) if self.parameters else pairs

    def count(self, pairs: Samples) -> int:
        return 1

    def channels(self, pairs: Samples) -> tuple[int, int]:
        inputs, outputs = pairs.channels
        return inputs + self._parameter_count(pairs), outputs

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return replace(batch, a=self._with_parameters(batch, batch.a))


def times_of(pairs: Samples) -> tuple[float, ...]:
    """The times of the targets, ascending.

    Raises:
        TaskError: If the targets have no times or consist of several variables.
    """
    distinct = tuple(dict.fromkeys(channel.time for channel in pairs.target_channels))
    times = tuple(t for t in distinct if t is not None)
    if not times or len(times) != len(distinct):
        raise TaskError(
            f"{pairs.source.get('url')}: {pairs.source.get('target')} has no times, which the task "
            "needs"
        )
    components = len(pairs.target_channels) // len(times)
    if any(
        channel.time != times[index // components]
        for index, channel in enumerate(pairs.target_channels)
    ):
        raise TaskError(
            f"{pairs.source.get('url')}: the task needs targets of one variable, got "
            f"{', '.join(dict.fromkeys(c.variable for c in pairs.target_channels))}"
        )
    return times
