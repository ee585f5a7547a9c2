"""Some samples of a task, functions and what differs by sample beside them; and its examples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from operators.seeds import generator

if TYPE_CHECKING:
    from operators.data.samples import Samples
    from operators.data.task import Task


@dataclass(frozen=True)
class Channel:
    """What one channel of a function is.

    Args:
        component: Of a vector; empty where there is one.
        time: At which; None where the variable has no times.
        moves: Whether its component displaces the points.

    >>> Channel("u", "u_x", 0.5).name
    'u_x, t = 0.5'
    """

    variable: str
    component: str = ""
    time: float | None = None
    moves: bool = False

    @property
    def name(self) -> str:
        function = self.component or self.variable
        return function if self.time is None else f"{function}, t = {self.time:g}"


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets, with the points, weights and parameters that each sample has of its own.

    Args:
        a: Inputs, shape (batch, *grid, c_in).
        x, y: Positions of the points of inputs and of targets, shape (batch, *grid, dim); None
            where all samples share those of `Samples`.
        weight: Quadrature weights of the targets, shape (batch, *target_grid); None where all
            samples share those of `Samples`.
        mask: Which points a sample has, shape (batch, *grid); the others are padding. None where
            it has all.
        parameters: Numbers of a sample, shape (batch, p).

    >>> batch = Batch(torch.zeros(4, 8, 1), torch.ones(4, 8, 2))
    >>> len(batch), len(batch[:3]), batch.channels
    (4, 3, (1, 2))
    """

    a: Float[Tensor, "batch *grid c_in"]
    u: Float[Tensor, "batch *target_grid c_out"]
    x: Float[Tensor, "batch *grid dim"] | None = None
    y: Float[Tensor, "batch *target_grid dim"] | None = None
    weight: Float[Tensor, " batch *target_grid"] | None = None
    mask: Bool[Tensor, " batch *grid"] | None = None
    parameters: Float[Tensor, "batch p"] | None = None

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        """Some of the samples."""
        return self.map(lambda v: v[rows])

    @property
    def channels(self) -> tuple[int, int]:
        """Of inputs and of targets."""
        return self.a.shape[-1], self.u.shape[-1]

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.tensors())

    @property
    def names(self) -> list[str]:
        """Of the fields that there are."""
        return [name for name in NAMES if getattr(self, name) is not None]

    @property
    def per_sample(self) -> dict[str, Tensor]:
        """What there is beside inputs and targets, by name."""
        return {name: getattr(self, name) for name in self.names[2:]}

    def tensors(self) -> list[Tensor]:
        """All that there are, in the order of the fields."""
        return [getattr(self, name) for name in self.names]

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch of what a function makes of each tensor."""
        return Batch(**{name: function(getattr(self, name)) for name in self.names})

    def weights(self, shared: Tensor | None, y: Tensor | None) -> Tensor | None:
        """The weights of the targets: see `weights`, whose mask is of the inputs' points.

        Args:
            shared: Weights that all samples share, shape (*target_grid).
            y: Points of the targets that all samples share, where they are not those of the inputs.
        """
        own = shared if self.weight is None else self.weight
        return weights(own, self.mask if self.y is None and y is None else None, self.u)

    def joined(self, other: Batch) -> Batch:
        """The samples of both."""
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        return Batch(**dict(zip(self.names, map(torch.cat, pairs), strict=True)))

    def to(self, device: torch.device | str) -> Batch:
        return self.map(lambda v: v.to(device))

    def split(self, size: int) -> Iterator[Batch]:
        """Batches of at most so many samples."""
        return (self[start : start + size] for start in range(0, len(self), size))


NAMES = tuple(field.name for field in fields(Batch))


def weights(weight: Tensor | None, mask: Tensor | None, u: Tensor) -> Tensor | None:
    """Quadrature weights that are 0 at padding; None where all points count alike."""
    if mask is None:
        return weight
    return mask.to(u.dtype) if weight is None else weight * mask


_POOL = 2**28  # bytes of samples whose examples are shuffled together


@dataclass(frozen=True)
class Examples:
    """The examples of a task.

    An epoch has all examples of nearly all samples: those of some samples at a time, as many as
    256 MiB hold, are shuffled together.

    Args:
        count: Training examples of a sample; 0 for what is evaluated.
    """

    task: Task
    pairs: Samples
    count: int

    def __len__(self) -> int:
        number = len(self.pairs)
        return number // self._together * self._together * self.count if self.count else number

    @cached_property
    def _together(self) -> int:
        """Number of samples whose examples are shuffled together."""
        number = len(self.pairs)
        most = max(1, _POOL // max(1, self.pairs.first().nbytes))
        return max(1, number // -(-number // most))

    def sample(self, place: int) -> Batch:
        """The example at a place, as a batch of one."""
        sample, number = divmod(place, self.count or 1)
        batch = self.pairs.sample(sample)
        if not self.count:
            return self.task.evaluation_example(batch, self.pairs)
        return self._examples(batch, torch.tensor([number]))

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        with closing(self.pairs.in_order(-(-batch // (self.count or 1)))) as parts:
            for samples in parts:
                if not self.count:
                    yield from (
                        self.task.evaluation_example(v, self.pairs) for v in samples.split(batch)
                    )
                    continue
                number = len(samples) * self.count
                for first in range(0, number, batch):
                    yield self._examples(samples, torch.arange(first, min(first + batch, number)))

    def _examples(self, samples: Batch, numbers: Tensor) -> Batch:
        rows = (numbers // self.count).to(samples.a.device)
        return self.task.example(samples[rows], numbers % self.count, self.pairs)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
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
