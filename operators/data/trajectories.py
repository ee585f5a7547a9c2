"""What is learned of trajectories: the next frame, all frames, or the state at a time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from operators.data.batch import Batch, Channel
from operators.data.samples import Samples
from operators.data.task import Apply, Map, Task, TaskError, times_of


@dataclass(frozen=True, kw_only=True)
class TrajectoryTask(Task):
    """What is learned of trajectories: frames, of which the operator sees the first ones.

    Args:
        history: Frames k that the operator sees.
        frames: Train on the first so many frames alone; None for all. Evaluated are all.
        ahead: Whether frames that training does not see are evaluated.
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
        """Frames before those that are predicted."""
        return self.history

    @property
    @abstractmethod
    def window(self) -> int:
        """Frames of a training example."""

    def check(self, frames: int, where: str) -> None:
        if not frames:
            raise TaskError(f"{where}: the targets have no times, which the task needs")
        if self.frames is not None and self.frames > frames:
            raise TaskError(f"{where}: frames to train on are {self.frames}, there are {frames}")
        if (self.frames or frames) < self.window:
            given = f"got {frames}" if self.frames is None else f"trained are {self.frames}"
            raise TaskError(f"{where}: {self._needs} needs {self.window} frames, {given}")

    @property
    @abstractmethod
    def _needs(self) -> str:
        """The task in words."""

    def count(self, pairs: Samples) -> int:
        frames = len(times_of(pairs))
        self.check(frames, str(pairs.source.get("url")))
        return (self.frames or frames) - self.window + 1

    def _frames(self, pairs: Samples) -> int:
        """Frames that are evaluated, with those that the operator sees."""
        every = len(times_of(pairs))
        return every if self.ahead else self.frames or every

    def _own(self, pairs: Samples) -> int:
        """Channels of a frame."""
        return pairs.channels[1] // len(times_of(pairs))

    def outputs(self, pairs: Samples) -> slice:
        own = self._own(pairs)
        return slice(self.first * own, self._frames(pairs) * own)

    def inputs(self, pairs: Samples) -> tuple[Channel, ...]:
        seen = pairs.target_channels[: self.history * self._own(pairs)]
        return seen or super().inputs(pairs)

    def persistence(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        if not self.history:
            return super().persistence(a, own, steps)
        last = a[..., (self.history - 1) * own : self.history * own]
        return torch.cat([last] * steps, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Rollout(TrajectoryTask):
    """The last k frames -> the next one; a trajectory by feeding predictions back.

    Trained on all windows of all trajectories; evaluated from the first k frames to the end.

    Args:
        steps: Frames s that are predicted in a training step, with gradients through all.
        teacher_forcing: Let the operator see true frames in these steps, not its own.
        noise: Deviation of Gaussian noise on the frames in training, by their root mean square.
        static: Whether the inputs of the samples are seen too, beside the frames.
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
    def _needs(self) -> str:
        return f"a rollout of {self.steps} steps from {self.history} frames"

    @property
    def single_step(self) -> Rollout:
        return self if self.steps == 1 else replace(self, steps=1)

    def channels(self, pairs: Samples) -> tuple[int, int]:
        own = self._own(pairs)
        return self.history * own + self.static * pairs.channels[0] + self._numbers(pairs), own

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return self._cut(batch, number, self.steps, pairs)

    def evaluation_example(self, batch: Batch, pairs: Samples) -> Batch:
        first = torch.zeros(len(batch), dtype=torch.long)
        return self._cut(batch, first, self._frames(pairs) - self.history, pairs)

    def _cut(self, batch: Batch, number: Tensor, steps: int, pairs: Samples) -> Batch:
        frames, own = len(times_of(pairs)), batch.u.shape[-1] // len(times_of(pairs))
        u = batch.u.unflatten(-1, (frames, own)).movedim(-2, 1)  # (batch, frames, *grid, own)
        places = number[:, None] + torch.arange(self.history + steps)
        rows = torch.arange(len(batch))[:, None]
        window = u[rows.to(u.device), places.to(u.device)].movedim(1, -2).flatten(-2)
        seen, asked = window.split([self.history * own, steps * own], dim=-1)
        a = self._with_parameters(batch, seen, *([batch.a] if self.static else []))
        return replace(batch, a=a, u=asked)

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        found: list[Tensor] = []
        for step in range(steps):
            u = apply(a)
            found.append(u)
            own, seen = u.shape[-1], self.history * u.shape[-1]
            last = u if truth is None else truth[..., step * own : (step + 1) * own]
            a = torch.cat([a[..., own:seen], last, a[..., seen:]], dim=-1)
        return found[0] if steps == 1 else torch.cat(found, dim=-1)

    def noisy_inputs(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
        if not self.noise:
            return a
        seen = a[..., : self.history * channels]
        every, squares = tuple(range(1, a.ndim)), seen.square()
        if mask is not None:
            there = mask[..., None].to(a)
            squares = squares * there / there.mean(every, keepdim=True)
        size = squares.mean(every, keepdim=True).sqrt()
        noisy = seen + self.noise * size * torch.randn_like(seen)
        return torch.cat([noisy, a[..., self.history * channels :]], dim=-1)


@dataclass(frozen=True, kw_only=True)
class AtTime(TrajectoryTask):
    """(state, t) -> the state at the time t, which is the last channel of the input.

    The state is the first k frames, or without a history the inputs of the samples. Trained on
    each time by itself; evaluated at all times of the data.

    Args:
        skip: Frames after these that are not asked for: such as the first one, where it is 0 and
            nothing is relative to it.
    """

    skip: int = 0

    kind = "time"

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
    def _needs(self) -> str:
        return f"a time after {self.first} frames"

    def channels(self, pairs: Samples) -> tuple[int, int]:
        own = self._own(pairs)
        state = self.history * own if self.history else pairs.channels[0]
        return state + self._numbers(pairs) + 1, own

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
        asked = torch.cat([a, t.to(a.device).expand(*a.shape[:-1], -1)], dim=-1)
        return replace(batch, a=asked, u=batch.u[..., self.outputs(pairs)])

    def _state(self, batch: Batch, pairs: Samples) -> Tensor:
        first = batch.u[..., : self.history * self._own(pairs)]
        return self._with_parameters(batch, first if self.history else batch.a)

    def persistence(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        return super().persistence(a[..., : a.shape[-1] - steps], own, steps)

    def predict(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        state, times = a.split([a.shape[-1] - steps, steps], dim=-1)
        found = [apply(torch.cat([state, t], dim=-1)) for t in times.split(1, dim=-1)]
        return found[0] if steps == 1 else torch.cat(found, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Block(TrajectoryTask):
    """The first k frames -> all later ones at once, side by side as channels.

    Raises:
        ValueError: If it is impossible, and on `frames`: an operator of so many frames has no more.
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
    def _needs(self) -> str:
        return f"a block after {self.history} frames"

    def count(self, pairs: Samples) -> int:
        super().count(pairs)
        return 1

    def channels(self, pairs: Samples) -> tuple[int, int]:
        seen = self.history * self._own(pairs)
        return seen + self._numbers(pairs), pairs.channels[1] - seen

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        seen, later = batch.u.tensor_split([self.history * self._own(pairs)], dim=-1)
        return replace(batch, a=self._with_parameters(batch, seen), u=later)


TASKS: dict[str, type[Task]] = {task.kind: task for task in (Map, Rollout, AtTime, Block)}


def task_from(content: dict[str, Any]) -> Task:
    """What `Task.description` has said."""
    settings = {key: value for key, value in content.items() if key != "kind"}
    return TASKS[content["kind"]](**settings)
