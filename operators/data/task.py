"""What is learned from samples: a map, or the next frame, all frames or the state at a time.

A task makes examples of the inputs and the targets of a sample. One sample gives one example, or,
in training, one for each window or each time; the operator is then applied again and again where a
whole trajectory is asked for (`march`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Batch, Channel
from operators.data.pairs import Pairs, Samples, check_rank
from operators.data.store import DataError
from operators.seeds import generator

Apply = Callable[[Tensor], Tensor]  # of the operator, input -> output
_POOL = 2**28  # bytes of samples whose examples are shuffled together


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
        """Examples of a sample in training.

        Raises:
            TaskError: If there are none.
        """

    @abstractmethod
    def channels(self, pairs: Samples) -> tuple[int, int]:
        """Of the operator's inputs and outputs."""

    @abstractmethod
    def example(self, batch: Batch, number: Int[Tensor, " batch"], pairs: Samples) -> Batch:
        """For each sample of a batch its training example of this number."""

    def whole(self, batch: Batch, pairs: Samples) -> Batch:
        """What is evaluated of each sample."""
        return self.example(batch, torch.zeros(len(batch), dtype=torch.long), pairs)

    def outputs(self, pairs: Samples) -> slice:
        """Which of the target channels `whole` has."""
        return slice(None)

    def inputs(self, pairs: Samples) -> tuple[Channel, ...]:
        """The first channels of the inputs of `whole`: those that are functions of the data."""
        return pairs.input_channels

    def march(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        """All that the operator says of an input, step after step."""
        return apply(a)

    def disturbed(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
        """Inputs of a training step; `mask` is False at padding."""
        return a

    def held(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        """What is predicted where nothing changes: the last state of the inputs at all steps.

        Args:
            a: Inputs, as of `whole`.
            own: Channels of a state.
            steps: Times that are asked for.

        Returns:
            Shape (batch, *grid, steps own); None where the inputs are no state.
        """
        return torch.cat([a] * steps, dim=-1) if a.shape[-1] == own else None

    @property
    def seen(self) -> Task:
        """The task at the times that training sees alone: by it an epoch is chosen."""
        return self

    def check(self, frames: int, where: str) -> None:
        """Raise TaskError where trajectories of so many frames do not have the task's windows."""
        assert frames >= 0  # a map needs none

    def description(self) -> dict[str, Any]:
        """In plain values, for a checkpoint."""
        return {"kind": self.kind, **vars(self)}

    def training(self, pairs: Samples) -> Samples:
        """The examples to train on.

        Raises:
            TaskError: If the data do not have them.
        """
        return Examples.of(self, pairs, self.count(pairs))

    def tested(self, pairs: Samples) -> Samples:
        """What is evaluated, one example of each sample.

        Raises:
            TaskError: If the data do not have it.
        """
        self.count(pairs)
        examples = Examples.of(self, pairs, 0)
        if not isinstance(pairs, Pairs):
            return examples
        every = self.whole(pairs.all, pairs)
        return Pairs(**examples.shared, a=every.a, u=every.u, own=every.own)

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

    def tested(self, pairs: Samples) -> Samples:
        return super().tested(pairs) if self.parameters else pairs

    def count(self, pairs: Samples) -> int:
        return 1

    def channels(self, pairs: Samples) -> tuple[int, int]:
        inputs, outputs = pairs.channels
        return inputs + self._numbers(pairs), outputs

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return replace(batch, a=self._with_parameters(batch, batch.a))


@dataclass(frozen=True, kw_only=True)
class InTime(Task):
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
    def seen(self) -> Task:
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

    def held(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        if not self.history:
            return super().held(a, own, steps)
        last = a[..., (self.history - 1) * own : self.history * own]
        return torch.cat([last] * steps, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Rollout(InTime):
    """The last k frames -> the next one; a trajectory by feeding predictions back.

    Trained on all windows of all trajectories; evaluated from the first k frames to the end.

    Args:
        history, frames, ahead: See `InTime`; a history is at least one frame.
        steps: Frames s that are predicted in a training step, with gradients through all.
        teacher_forcing: Let the operator see true frames in these steps, not its own.
        noise: Deviation of Gaussian noise on the frames in training, by their root mean square.
        static: Whether the inputs of the samples are seen too, beside the frames.

    Raises:
        ValueError: If these are impossible.
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

    def channels(self, pairs: Samples) -> tuple[int, int]:
        own = self._own(pairs)
        return self.history * own + self.static * pairs.channels[0] + self._numbers(pairs), own

    def example(self, batch: Batch, number: Tensor, pairs: Samples) -> Batch:
        return self._cut(batch, number, self.steps, pairs)

    def whole(self, batch: Batch, pairs: Samples) -> Batch:
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

    def march(
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

    def disturbed(self, a: Tensor, channels: int, mask: Tensor | None = None) -> Tensor:
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
class AtTime(InTime):
    """(state, t) -> the state at the time t, which is the last channel of the input.

    The state is the first k frames, or without a history the inputs of the samples. Trained on
    each time by itself; evaluated at all times of the data.

    Args:
        history, frames, ahead: See `InTime`.
        skip: Frames after these that are not asked for: such as the first one, where it is 0 and
            nothing is relative to it.

    Raises:
        ValueError: If skip is negative.
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

    def whole(self, batch: Batch, pairs: Samples) -> Batch:
        times = times_of(pairs)[self.first : self._frames(pairs)]
        t, a = torch.tensor(times, dtype=batch.a.dtype), self._state(batch, pairs)
        asked = torch.cat([a, t.to(a.device).expand(*a.shape[:-1], -1)], dim=-1)
        return replace(batch, a=asked, u=batch.u[..., self.outputs(pairs)])

    def _state(self, batch: Batch, pairs: Samples) -> Tensor:
        first = batch.u[..., : self.history * self._own(pairs)]
        return self._with_parameters(batch, first if self.history else batch.a)

    def held(self, a: Tensor, own: int, steps: int) -> Tensor | None:
        return super().held(a[..., : a.shape[-1] - steps], own, steps)

    def march(
        self, apply: Apply, a: Tensor, steps: int, truth: Tensor | None = None
    ) -> Float[Tensor, "batch *grid channels"]:
        state, times = a.split([a.shape[-1] - steps, steps], dim=-1)
        found = [apply(torch.cat([state, t], dim=-1)) for t in times.split(1, dim=-1)]
        return found[0] if steps == 1 else torch.cat(found, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Block(InTime):
    """The first k frames -> all later ones at once, side by side as channels.

    Args:
        history: See `InTime`; at least one frame.

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


def described(content: dict[str, Any]) -> Task:
    """What `Task.description` has said."""
    settings = {key: value for key, value in content.items() if key != "kind"}
    return TASKS[content["kind"]](**settings)


def times_of(pairs: Samples) -> tuple[float, ...]:
    """The times of the targets, rising as they are stored.

    Raises:
        TaskError: If they have none, or have one variable after another, each at all times.
    """
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


@dataclass(frozen=True, kw_only=True)
class Examples(Samples):
    """The examples of a task.

    An epoch has all examples of nearly all samples: those of some samples at a time, as many as
    256 MiB hold, are shuffled together.

    Args:
        task: What is learned.
        pairs: The samples.
        count: Training examples of a sample; 0 for what is evaluated.
    """

    task: Task
    pairs: Samples
    count: int

    @classmethod
    def of(cls, task: Task, pairs: Samples, count: int) -> Examples:
        channels = task.channels(pairs)
        names = pairs.target_channels[task.outputs(pairs)] if not count else ()
        of = task.inputs(pairs) if not count else ()
        own = {"applied": channels, "target_channels": names, "input_channels": of}
        return cls(**pairs.shared | own, task=task, pairs=pairs, count=count)

    def __len__(self) -> int:
        if not self.count:
            return len(self.pairs)
        together = self._together
        return len(self.pairs) // together * together * self.count

    @cached_property
    def _together(self) -> int:
        """Samples whose examples are shuffled together."""
        number = len(self.pairs)
        most = max(1, _POOL // max(1, self.pairs.first().nbytes))
        return max(1, number // -(-number // most))

    @property
    def channels(self) -> tuple[int, int]:
        assert self.applied is not None
        return self.applied

    @property
    def masked(self) -> bool:
        return self.pairs.masked

    @property
    def reading(self) -> str:
        return self.pairs.reading

    @property
    def one_step(self) -> Samples:
        if isinstance(self.task, Rollout) and self.task.steps > 1:
            return replace(self.task, steps=1).training(self.pairs)
        return self

    def to(self, device: torch.device | str) -> Examples:
        return Examples.of(self.task, self.pairs.to(device), self.count)

    def one(self, place: int) -> Batch:
        sample, number = divmod(place, self.count or 1)
        batch = self.pairs.one(sample)
        if not self.count:
            return self.task.whole(batch, self.pairs)
        return self._examples(batch, torch.tensor([number]))

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        with closing(self.pairs.parts(-(-batch // (self.count or 1)))) as parts:
            for part in parts:
                yield from self._cut(part, batch)

    def _cut(self, samples: Batch, size: int) -> Generator[Batch, None, None]:
        """All examples of some samples in order, at most so many at a time."""
        if not self.count:
            yield from (self.task.whole(part, self.pairs) for part in samples.split(size))
            return
        for numbers in torch.arange(len(samples) * self.count).split(size):
            yield self._examples(samples, numbers)

    def _examples(self, samples: Batch, numbers: Tensor) -> Batch:
        rows = (numbers // self.count).to(samples.a.device)
        return self.task.example(samples[rows], numbers % self.count, self.pairs)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        check_rank(rank, ranks)
        together, wanted = self._together, len(self) // ranks // batch
        pool = together * self.count
        place, stop = first * ranks * batch, wanted * ranks * batch  # among all examples
        number = place // pool
        left: Batch | None = None  # examples of the pool before, fewer than a batch
        with closing(self.pairs.batches(seed, epoch, together, number)) as pools:
            for samples in pools if place < stop else ():
                order = torch.randperm(pool, generator=generator(seed, 4, epoch, number))
                start = place - number * pool
                number += 1
                while start < pool and place < stop:
                    missing = batch - (len(left) if left is not None else 0)
                    chosen = order[start : start + missing]
                    start, place = start + len(chosen), place + len(chosen)
                    found = self._examples(samples, chosen)
                    left = found if left is None else left.joined(found)
                    if len(left) == batch:
                        if (place // batch - 1) % ranks == rank:
                            yield left
                        left = None
                if place >= stop:
                    return
