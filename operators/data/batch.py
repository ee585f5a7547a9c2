"""Batches of samples, and the examples that a task derives from samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
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
    """Description of one channel of a function.

    Args:
        variable: Name of the variable in the store.
        component: Name of the vector component; empty for a scalar.
        time: Time of the values; None for a variable without a time axis.
        moves: Whether the component is a displacement of the points.

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


def distinguished(channels: Sequence[Channel]) -> list[Channel]:
    """The channels, with the variable before the component if the component has the name of a
    function of another variable.

    >>> mach, *velocity = Channel("u"), Channel("velocity", "u"), Channel("velocity", "v")
    >>> [channel.name for channel in distinguished([mach, *velocity])]
    ['u', 'velocity.u', 'v']
    """
    variables = dict[str, set[str]]()
    for channel in channels:
        variables.setdefault(channel.component or channel.variable, set()).add(channel.variable)
    return [
        replace(channel, component=f"{channel.variable}.{channel.component}")
        if channel.component and len(variables[channel.component]) > 1
        else channel
        for channel in channels
    ]


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets of samples; also points, weights and parameters if these differ by sample.

    Args:
        a: Inputs, shape (batch, *grid, c_in).
        u: Targets, shape (batch, *target_grid, c_out).
        x: Positions of the points of the inputs, shape (batch, *grid, dim); None if all samples
            share the points.
        y: Positions of the points of the targets, shape (batch, *target_grid, dim); None if all
            samples share these points, or if inputs and targets have the same points.
        weight: Quadrature weights of the targets, shape (batch, *target_grid); None if all
            samples share the weights.
        mask: False at padding, True at the points of a sample, shape (batch, *grid); None without
            padding.
        parameters: Parameters of the samples, shape (batch, p).

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
        """The samples at the indices `rows`."""
        return self.map(lambda v: v[rows])

    @property
    def channels(self) -> tuple[int, int]:
        """Numbers of channels of inputs and of targets."""
        return self.a.shape[-1], self.u.shape[-1]

    @property
    def nbytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(v.nbytes for v in self.tensors())

    @property
    def names(self) -> list[str]:
        """Names of the fields that are not None."""
        return [name for name in NAMES if getattr(self, name) is not None]

    @property
    def per_sample(self) -> dict[str, Tensor]:
        """A dict of all tensors except inputs and targets; the keys are field names."""
        return {name: getattr(self, name) for name in self.names[2:]}

    def tensors(self) -> list[Tensor]:
        """The tensors that are not None, in the order of the fields."""
        return [getattr(self, name) for name in self.names]

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function to each tensor, and return the results as a batch."""
        return Batch(**{name: function(getattr(self, name)) for name in self.names})

    def weights(self, shared: Tensor | None, y: Tensor | None) -> Tensor | None:
        """Quadrature weights of the targets, 0 at padding; None if all points count alike.

        The mask describes the points of the inputs. It is ignored if the targets have other points.

        Args:
            shared: Weights that all samples share, shape (*target_grid).
            y: Points of the targets that all samples share; None if samples have their own points,
                or if inputs and targets have the same points.
        """
        weight = shared if self.weight is None else self.weight
        return weights(weight, self.mask if self.y is None and y is None else None, self.u)

    def joined(self, other: Batch) -> Batch:
        """A batch of the samples of this batch, followed by those of `other`."""
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        return Batch(**dict(zip(self.names, map(torch.cat, pairs), strict=True)))

    def to(self, device: torch.device | str) -> Batch:
        return self.map(lambda v: v.to(device))

    def split(self, size: int) -> Iterator[Batch]:
        """Split into consecutive batches of at most `size` samples."""
        return (self[start : start + size] for start in range(0, len(self), size))


NAMES = tuple(field.name for field in fields(Batch))


def weights(weight: Tensor | None, mask: Tensor | None, u: Tensor) -> Tensor | None:
    """Quadrature weights, 0 at padding; None if all points count alike.

    Args:
        weight: Weights, not yet 0 at padding; None for equal weights.
        mask: False at padding; None without padding.
        u: Targets. If `weight` is None, the result is the mask in the dtype of `u`.
    """
    if mask is None:
        return weight
    return mask.to(u.dtype) if weight is None else weight * mask


_POOL_BYTES = 2**28  # size of the samples whose examples are shuffled together


@dataclass(frozen=True)
class Examples:
    """The training or evaluation examples of a task.

    In training, samples are read in groups of up to 256 MiB, called pools, and the examples of a
    pool are shuffled together. An epoch consists of full pools; the remaining samples are not used.

    Args:
        pairs: The samples from which the examples are made.
        count: Number of training examples of each sample; 0 for evaluation examples.
    """

    task: Task
    pairs: Samples
    count: int

    def __len__(self) -> int:
        samples = len(self.pairs)
        if not self.count:
            return samples
        return samples // self._pool_samples * self._pool_samples * self.count

    @cached_property
    def _pool_samples(self) -> int:
        """Number of samples in a pool."""
        samples = len(self.pairs)
        limit = max(1, _POOL_BYTES // max(1, self.pairs.first().nbytes))
        return max(1, samples // -(-samples // limit))

    def sample(self, index: int) -> Batch:
        """The example at an index, as a batch of one."""
        sample, number = divmod(index, self.count or 1)
        batch = self.pairs.sample(sample)
        if not self.count:
            return self.task.evaluation_example(batch, self.pairs)
        return self._examples(batch, torch.tensor([number]))

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        """All examples once, in order, at most `batch` at a time."""
        with closing(self.pairs.in_order(-(-batch // (self.count or 1)))) as parts:
            for samples in parts:
                if not self.count:
                    yield from (
                        self.task.evaluation_example(v, self.pairs) for v in samples.split(batch)
                    )
                    continue
                examples = len(samples) * self.count
                for first in range(0, examples, batch):
                    last = min(first + batch, examples)
                    yield self._examples(samples, torch.arange(first, last))

    def _examples(self, samples: Batch, numbers: Tensor) -> Batch:
        """Training examples of a batch of samples.

        Args:
            numbers: Indices of the examples; example k of sample i has the index i * count + k.
        """
        rows = (numbers // self.count).to(samples.a.device)
        return self.task.example(samples[rows], numbers % self.count, self.pairs)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """Batches of an epoch in random order; see `Samples.batches`."""
        batches_per_rank = len(self) // ranks // batch
        pool_size = self._pool_samples * self.count
        position, stop = first * ranks * batch, batches_per_rank * ranks * batch  # of examples
        pool = position // pool_size
        partial: Batch | None = None  # fewer examples than a batch, from the pool before
        with closing(self.pairs.batches(seed, epoch, self._pool_samples, pool)) as pools:
            for samples in pools if position < stop else ():
                order = torch.randperm(pool_size, generator=generator(seed, 4, epoch, pool))
                start = position - pool * pool_size
                pool += 1
                while start < pool_size and position < stop:
                    missing = batch - (len(partial) if partial is not None else 0)
                    chosen = order[start : start + missing]
                    start, position = start + len(chosen), position + len(chosen)
                    examples = self._examples(samples, chosen)
                    partial = examples if partial is None else partial.joined(examples)
                    if len(partial) == batch:
                        if (position // batch - 1) % ranks == rank:
                            yield partial
                        partial = None
                if position >= stop:
                    return
