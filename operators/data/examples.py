"""Examples of a task: what an operator learns from samples, several of each, shuffled in pools."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from operators.data.batch import Batch
from operators.seeds import generator

if TYPE_CHECKING:
    from operators.data.samples import Samples
    from operators.data.task import Task

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

    def one(self, place: int) -> Batch:
        """The example at a place, as a batch of one."""
        sample, number = divmod(place, self.count or 1)
        batch = self.pairs.one(sample)
        if not self.count:
            return self.task.whole(batch, self.pairs)
        return self._examples(batch, torch.tensor([number]))

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        with closing(self.pairs.parts(-(-batch // (self.count or 1)))) as parts:
            for samples in parts:
                if not self.count:
                    yield from (self.task.whole(v, self.pairs) for v in samples.split(batch))
                    continue
                for numbers in torch.arange(len(samples) * self.count).split(batch):
                    yield self._examples(samples, numbers)

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
