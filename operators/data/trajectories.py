"""Tasks on trajectories: predict the next frame, all frames, or the state at a given time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from operators.data.samples import Apply, Batch, Channel, Map, Samples, Task, TaskError, times_of


@dataclass(frozen=True, kw_only=True)
class TrajectoryTask(Task):
    """A task on trajectories. The targets of a sample are the frames, in order of time.

    Args:
        history: Number k of input frames.
        frames: Number of leading frames that training uses; None for all frames.
        ahead: Whether evaluation also uses the frames after the first `frames`.
    """

    history: int = 0
    frames: int | None = None
    ahead: bool = True

    def __post_init__(self) -> None:
        if self.frames is not None and self.frames < 1:
            raise ValueError(f"need frames >= 1, got {self.frames}")

    @property
    def for_selection(self) -> Task:
        return self if self.frames is None else replace(self, ahead=False)

    @property
    def first(self) -> int:
        """Index of the first predicted frame."""
        return self.history

    @property
    @abstractmethod
    def window(self) -> int:
        """Number of frames in a training example, inputs included."""

    def check(self, frames: int, where: str) -> None:
        if not frames:
            raise TaskError(f"{where}: the targets have no times, which the task needs")
        if self.frames is not None and self.frames > frames:
            raise TaskError(f"{where}: cannot train on {self.frames} frames, there are {frames}")
        if (self.frames or frames) < self.window:
            got = f"got {frames}" if self.frames is None else f"training uses {self.frames}"
            raise TaskError(f"{where}: {self._name} needs {self.window} frames, {got}")

    @property
    @abstractmethod
    def _name(self) -> str:
        """The task in words, for messages."""

    def count(self, pairs: Samples) -> int:
        frames = len(times_of(pairs))
        self.check(frames, str(pairs.source.get("url")))
        return (self.frames or frames) - self.window + 1

    def _frames(self, pairs: Samples) -> int:
        """Number of frames up to the last evaluated frame, counted from the start."""
        frames = len(times_of(pairs))
        return frames if self.ahead else self.frames or frames

    def _frame_channels(self, pairs: Samples) -> int:
        """Number of channels of a frame."""
        return pairs.channels[1] // len(times_of(pairs))

    def outputs(self, pairs: Samples) -> slice:
        channels = self._frame_channels(pairs)
        return slice(self.first * channels, self._frames(pairs) * channels)

    def inputs(self, pairs: Samples) -> tuple[Channel, ...]:
        history = pairs.target_channels[: self.history * self._frame_channels(pairs)]
        return history or super().inputs(pairs)

    def persistence(self, a: Tensor, channels: int, steps: int) -> Tensor | None:
        if not self.history:
            return super().persistence(a, channels, steps)
        last = a[..., (self.history - 1) * channels : self.history * channels]
        return torch.cat([last] * steps, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Rollout(TrajectoryTask):
    """The map from the last k frames to the next frame.

    A rollout applies the map repeatedly to its own predictions. Training examples are windows of
    k + s consecutive frames, with every possible start. Evaluation predicts all frames after the
    first k frames.

    Args:
        steps: Number s of frames predicted in a training step. Gradients flow through all s steps.
        teacher_forcing: Whether the s applications in training get true frames as inputs instead
            of earlier predictions.
        noise: Standard deviation of Gaussian noise on the input frames in training, relative to
            their root mean square.
        static: Whether the inputs of the samples are also input channels, after the frames.
    """

    history: int = 1
    steps: int = 1
    teacher_forcing: bool = False
    noise: float = 0.0
    static: bool = False

    kind = "rollout"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history < 1 or self.steps < 1 or self.noise < 0:
            raise ValueError(
                f"need history, steps >= 1 and noise >= 0, got {self.history}, {self.steps}, "
                f"{self.noise}"
            )

    @property
    def window(self) -> int:
        return self.history + self.steps

    @property
    def _name(self) -> str:
        return f"a rollout of {self.steps} steps from {self.history} frames"

    @property
    def single_step(self) -> Rollout:
        return self if self.steps == 1 else replace(self, steps=1)

    def channels(self, pairs: Samples) -> tuple[int, int]:
        frame = self._frame_channels(pairs)
        static = self.static * pairs.channels[0]
        return self.history * frame + static + self._parameter_count(pairs), frame

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return self._cut(batch, number, self.steps, pairs)

    def evaluation_example(self, batch: Batch, pairs: Samples) -> Batch:
        first = torch.zeros(len(batch), dtype=torch.long)
        return self._cut(batch, first, self._frames(pairs) - self.history, pairs)

    def _cut(self, batch: Batch, number: Tensor, steps: int, pairs: Samples) -> Batch:
        """Cut one window from each trajectory, and split it into inputs and targets."""
        frames = len(times_of(pairs))
        channels = batch.u.shape[-1] // frames
        u = batch.u.unflatten(-1, (frames, channels)).movedim(-2, 1)  # (batch, frames, *grid, c)
        indices = number[:, None] + torch.arange(self.history + steps)
        rows = torch.arange(len(batch))[:, None]
        window = u[rows.to(u.device), indices.to(u.device)].movedim(1, -2).flatten(-2)
        history, later = window.split([self.history * channels, steps * channels], dim=-1)
        a = self._with_parameters(batch, history, *([batch.a] if self.static else []))
        return replace(batch, a=a, u=later)

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        predictions: list[Tensor] = []
        for step in range(steps):
            u = apply(a)
            predictions.append(u)
            frame, history = u.shape[-1], self.history * u.shape[-1]  # numbers of channels
            last = u if truth is None else truth[..., step * frame : (step + 1) * frame]
            a = torch.cat([a[..., frame:history], last, a[..., history:]], dim=-1)
        return predictions[0] if steps == 1 else torch.cat(predictions, dim=-1)

    def noisy_inputs(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
        if not self.noise:
            return a
        frames = a[..., : self.history * channels]
        axes, squares = tuple(range(1, a.ndim)), frames.square()
        if mask is not None:
            real = mask[..., None].to(a)
            squares = squares * real / real.mean(axes, keepdim=True)
        size = squares.mean(axes, keepdim=True).sqrt()  # root mean square of each sample
        noisy = frames + self.noise * size * torch.randn_like(frames)
        return torch.cat([noisy, a[..., self.history * channels :]], dim=-1)


@dataclass(frozen=True, kw_only=True)
class AtTime(TrajectoryTask):
    """The map from a given state and a time t to the state at t. The last input channel is t.

    The given state consists of the first k frames or, if k = 0, of the inputs of the samples. In
    training, each time gives one example. An evaluation example contains all times.

    Args:
        skip: Number of frames after the first k that are not predicted. Frames that are 0, for
            example, should be skipped, because they have no relative error.
    """

    skip: int = 0

    kind = "time"
    channels_after_parameters = 1  # the time

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.skip < 0:
            raise ValueError(f"need skip >= 0, got {self.skip}")

    @property
    def first(self) -> int:
        return self.history + self.skip

    @property
    def window(self) -> int:
        return self.first + 1

    @property
    def _name(self) -> str:
        return f"a time after {self.first} frames"

    def channels(self, pairs: Samples) -> tuple[int, int]:
        frame = self._frame_channels(pairs)
        state = self.history * frame if self.history else pairs.channels[0]
        return state + self._parameter_count(pairs) + 1, frame

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        times, grid = times_of(pairs), batch.a.shape[1:-1]
        number = number.to(batch.u.device) + self.first
        u = batch.u.unflatten(-1, (len(times), -1)).movedim(-2, 1)
        t = torch.tensor(times, dtype=batch.a.dtype).to(batch.a.device)[number]
        t = t[(slice(None), *[None] * (len(grid) + 1))].expand(-1, *grid, 1)
        a = torch.cat([self._state(batch, pairs), t], dim=-1)
        return replace(batch, a=a, u=u[torch.arange(len(batch), device=u.device), number])

    def evaluation_example(self, batch: Batch, pairs: Samples) -> Batch:
        times = times_of(pairs)[self.first : self._frames(pairs)]
        t, a = torch.tensor(times, dtype=batch.a.dtype), self._state(batch, pairs)
        a = torch.cat([a, t.to(a.device).expand(*a.shape[:-1], -1)], dim=-1)
        return replace(batch, a=a, u=batch.u[..., self.outputs(pairs)])

    def _state(self, batch: Batch, pairs: Samples) -> Tensor:
        """The given state; the parameters are appended if the task uses them."""
        first = batch.u[..., : self.history * self._frame_channels(pairs)]
        return self._with_parameters(batch, first if self.history else batch.a)

    def persistence(self, a: Tensor, channels: int, steps: int) -> Tensor | None:
        return super().persistence(a[..., : a.shape[-1] - steps], channels, steps)

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        state, times = a.split([a.shape[-1] - steps, steps], dim=-1)
        predictions = [apply(torch.cat([state, t], dim=-1)) for t in times.split(1, dim=-1)]
        return predictions[0] if steps == 1 else torch.cat(predictions, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Block(TrajectoryTask):
    """The map from the first k frames to all later frames, concatenated as channels.

    Raises:
        ValueError: If history < 1, or if `frames` is not None: training always uses all frames.
    """

    history: int = 1

    kind = "block"

    def __post_init__(self) -> None:
        if self.history < 1 or self.frames is not None:
            raise ValueError(
                f"need history >= 1 and no frames, got {self.history} and {self.frames}"
            )

    @property
    def window(self) -> int:
        return self.history + 1

    @property
    def _name(self) -> str:
        return f"a block after {self.history} frames"

    def count(self, pairs: Samples) -> int:
        super().count(pairs)
        return 1

    def channels(self, pairs: Samples) -> tuple[int, int]:
        history = self.history * self._frame_channels(pairs)
        return history + self._parameter_count(pairs), pairs.channels[1] - history

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        history, later = batch.u.tensor_split([self.history * self._frame_channels(pairs)], dim=-1)
        return replace(batch, a=self._with_parameters(batch, history), u=later)


TASKS: dict[str, type[Task]] = {task.kind: task for task in (Map, Rollout, AtTime, Block)}


def task_from(description: dict[str, Any]) -> Task:
    """Create the task from its `description`."""
    settings = {key: value for key, value in description.items() if key != "kind"}
    return TASKS[description["kind"]](**settings)
