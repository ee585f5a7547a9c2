"""Samples to learn from, as one dataset: what reads them, and what a task makes of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from operators.data.batch import NAMES, Batch, Channel, Examples
from operators.data.reading import Blocks, Perturbation, Reader, Resident, Rows, values_in
from operators.data.variables import DataError
from pdegen.domains import Box, Domain
from pdegen.store.format import Axis

if TYPE_CHECKING:
    from operators.data.samples import Samples


@dataclass(frozen=True, kw_only=True)
class Samples(Dataset[dict[str, Tensor]]):
    """Input and target functions of some samples of a store, as a dataset of PyTorch.

    `samples[i]` holds the tensors of one sample by the names of `Batch`, and any DataLoader of
    PyTorch collects them; `loader` reads faster where the samples are in files.

    Args:
        reader: Where the values are, with the noise of the inputs.
        x: Positions of the points of the inputs, shape (*grid, dim); None where each sample has its
            own, which are in its batches.
        y: Positions of the points of the targets, shape (*target_grid, dim); None where they are
            those of the inputs.
        source: Where they come from: url, recipe, fingerprint, content digest, resolution, names.
        weight: Quadrature weights of the targets, shape (*target_grid); None where they are equal,
            or each sample has its own.
        input_channels, target_channels: What the channels are; empty where nobody says.
        near: The box, lower and upper end by axis, whose points have an error of their own.
        examples: What a task makes of what is read; None for inputs and targets as they are.
        operator_channels: Numbers of input and output channels of the operator, where several
            applications of it reach the targets.
        length: Samples of an epoch, if it is not one pass: pass after pass goes on where the epoch
            before ended, so a sample may come twice in an epoch.
    """

    reader: Reader
    x: Float[Tensor, "*grid dim"] | None
    y: Float[Tensor, "*target_grid dim"] | None
    domain: Domain
    source: dict[str, Any]
    weight: Float[Tensor, " *target_grid"] | None = None
    input_channels: tuple[Channel, ...] = ()
    target_channels: tuple[Channel, ...] = ()
    near: Mapping[Axis, tuple[float, float]] = field(
        default_factory=dict[Axis, tuple[float, float]]
    )
    examples: Examples | None = None
    operator_channels: tuple[int, int] | None = None
    length: int | None = None

    @classmethod
    def of(
        cls,
        *,
        a: Float[Tensor, "samples *grid c_in"],
        u: Float[Tensor, "samples *target_grid c_out"],
        samples: Int[np.ndarray, " samples"],
        per_sample: Mapping[str, Tensor] | None = None,
        **shared: Any,
    ) -> Samples:
        """Samples whose values are in memory."""
        return cls(
            reader=Resident(a=a, u=u, samples=samples, per_sample=per_sample or {}), **shared
        )

    def __len__(self) -> int:
        return self._in_a_pass if self.length is None else self.length

    @property
    def _in_a_pass(self) -> int:
        return len(self.reader if self.examples is None else self.examples)

    @property
    def samples(self) -> Int[np.ndarray, " samples"]:
        """Their numbers in the store, rising."""
        return self.reader.samples

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self.reader.device

    @property
    def dim(self) -> int:
        """Number of space dimensions."""
        return self.domain.dim

    @property
    def grid(self) -> str:
        """What the points are: "periodic", "cell", "nodal" or "mixed" along the axes of a box, else
        "curvilinear" or "cloud"."""
        return self.domain.grid if isinstance(self.domain, Box) else self.domain.kind

    @property
    def points(self) -> Float[Tensor, "*grid dim"]:
        """Positions of the points of the inputs.

        Raises:
            DataError: If they differ from sample to sample.
        """
        if self.x is None:
            raise DataError(f"{self.source.get('url')}: each sample has points of its own")
        return self.x

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Positions of the points of the targets.

        Raises:
            DataError: If they differ from sample to sample.
        """
        return self.points if self.y is None else self.y

    @property
    def channels(self) -> tuple[int, int]:
        """Numbers of channels of the operator's inputs and outputs."""
        return self.operator_channels or self.reader.channels

    @property
    def masked(self) -> bool:
        """Whether some samples have fewer points than others."""
        return self.reader.masked

    @property
    def reading(self) -> str:
        """How the values are read, and what their order depends on beside the seed, for people."""
        if self.length is None:
            return str(self.reader)
        return f"{self.reader}, {self.length:,} an epoch of {self._in_a_pass:,}"

    @property
    def single_step(self) -> Samples:
        """The same with targets of one application of the operator: what normalisers see."""
        if self.examples is None or not self.examples.count:
            return replace(self, length=None)
        return self.examples.task.single_step.training(self.examples.pairs)

    @property
    def all(self) -> Batch:
        """All samples, where they are in memory.

        Raises:
            DataError: If they are not.
        """
        if isinstance(self.reader, Resident) and self.examples is None:
            return self.reader.all
        raise DataError(f"{self.source.get('url')}: the samples are not in memory: see resident()")

    @property
    def a(self) -> Float[Tensor, "samples *grid c_in"]:
        """All inputs, where they are in memory."""
        return self.all.a

    @property
    def u(self) -> Float[Tensor, "samples *target_grid c_out"]:
        """All targets, where they are in memory."""
        return self.all.u

    @property
    def inputs(self) -> Tensor | Iterable[Tensor]:
        """All inputs, as a tensor, or in blocks that are overwritten by those after them."""
        return self.reader.values("a") if self.examples is None else self._in_blocks("a")

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        """All targets, in the same way."""
        return self.reader.values("u") if self.examples is None else self._in_blocks("u")

    def _in_blocks(self, which: str) -> Blocks:
        return Blocks(partial(values_in, self.in_order, which))

    def to(self, device: torch.device | str) -> Samples:
        """The same on a device."""
        return self._with(lambda reader: reader.to(device)).geometry_to(device)

    def geometry_to(self, device: torch.device | str) -> Samples:
        """The same with points and weights on a device."""
        shared = {"x": self.x, "y": self.y, "weight": self.weight}
        moved = {name: None if v is None else v.to(device) for name, v in shared.items()}
        if self.examples is None:
            return replace(self, **moved)
        pairs = self.examples.pairs.geometry_to(device)
        return replace(self, **moved, examples=replace(self.examples, pairs=pairs))

    def rows(self, rows: Rows) -> Samples:
        """Some of the samples, by their places."""
        return self._with(lambda reader: reader.rows(rows))

    def with_noise(self, noise: Perturbation) -> Samples:
        """The same with noise on the inputs."""
        return self._with(lambda reader: reader.with_noise(noise))

    def resident(self) -> Samples:
        """The same in memory.

        Raises:
            DataError: If the data cannot be read, or are too large.
        """
        found = self._with(lambda reader: reader.resident())
        if found.examples is None or found.examples.count:
            return found
        all = found.examples.task.evaluation_example(found.examples.pairs.all, found.examples.pairs)
        reader = Resident(
            a=all.a, u=all.u, per_sample=all.per_sample, samples=self.samples, device=found.device
        )
        return replace(found, reader=reader, examples=None)

    def with_reader(self, **changes: Any) -> Samples:
        """The same with other attributes of the reader, such as the `window` of a streamed one."""
        return self._with(lambda reader: replace(reader, **changes))

    def _with(self, change: Callable[[Reader], Reader]) -> Samples:
        reader = change(self.reader)
        if self.examples is None:
            return replace(self, reader=reader)
        pairs = replace(self.examples.pairs, reader=reader)
        return replace(self, reader=reader, examples=replace(self.examples, pairs=pairs))

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """Batches of an epoch in random order, a function of the arguments and the data's layout.

        Every rank has len // ranks // batch of them. No sample comes twice, in one rank or in
        two; those that fill no batch on every rank are left out of the epoch.

        Args:
            first: Number of the batch to begin with.
            rank, ranks: The share of one process of several.

        Raises:
            ValueError: If rank is not one of the ranks.
            DataError: If the data cannot be read.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank is one of 0 to ranks - 1, got rank {rank} of {ranks}")
        one_pass = self.reader if self.examples is None else self.examples
        if self.length is None:
            yield from one_pass.batches(seed, epoch, batch, first, rank, ranks)
            return
        in_pass, in_epoch = (n // ranks // batch for n in (self._in_a_pass, self.length))
        step, end = epoch * in_epoch + first, (epoch + 1) * in_epoch
        while step < end:
            number, start = divmod(step, in_pass)
            with closing(one_pass.batches(seed, number, batch, start, rank, ranks)) as batches:
                yield from islice(batches, end - step)
            step = min(end, (number + 1) * in_pass)

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        """All samples once, in order, at most `batch` at a time.

        Raises:
            DataError: If the data cannot be read.
        """
        return (self.reader if self.examples is None else self.examples).in_order(batch)

    def sample(self, place: int) -> Batch:
        """The sample at a place, 0 <= place < len, as a batch of one."""
        place %= self._in_a_pass
        return (self.reader if self.examples is None else self.examples).sample(place)

    def first(self) -> Batch:
        """The first sample, as a batch of one."""
        return self.sample(0)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        """The tensors of one sample, without the axis of a batch, by their names in `Batch`."""
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} samples, asked for number {place}")
        batch = self.sample(place % len(self))
        return {name: v[0] for name in NAMES if (v := getattr(batch, name)) is not None}

    def loader(self, batch: int, *, shuffle: bool = True, seed: int = 0) -> DataLoader[Batch]:
        """Batches of an epoch each time it is iterated, as `torch.utils.data.DataLoader`.

        Args:
            shuffle: Whether in random order, full batches alone, another order in each epoch; else
                all samples in their own order.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        return loader(self, batch, shuffle, seed)


def quadrature(domain: Domain) -> Float[Tensor, " *grid"] | None:
    """The weights of the points that losses and scores carry, their mean 1; None for equal ones.

    Points of a box count alike, its ends included, as in published tables. Where the points differ
    from sample to sample a batch has the weights.

    >>> quadrature(Box.nodal(5)) is None
    True
    """
    if isinstance(domain, Box) or domain.moves:
        return None
    weights = domain.weights
    if np.ptp(weights) <= 1e-6 * weights.max():
        return None
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))


class Epochs(IterableDataset[Batch]):
    """An epoch each time it is iterated."""

    def __init__(self, samples: Samples, batch: int, shuffle: bool, seed: int) -> None:
        self.samples, self.batch, self.shuffle, self.seed = samples, batch, shuffle, seed
        self.epoch = 0

    def __len__(self) -> int:
        count = len(self.samples)
        return count // self.batch if self.shuffle else -(-count // self.batch)

    def __iter__(self) -> Iterator[Batch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        samples = self.samples
        batches = (
            samples.batches(self.seed, epoch, self.batch)
            if self.shuffle
            else samples.in_order(self.batch)
        )
        with closing(batches):
            yield from batches


def loader(samples: Samples, batch: int, shuffle: bool, seed: int) -> DataLoader[Batch]:
    """Batches of epoch after epoch; files are read by threads of this process."""
    return DataLoader(Epochs(samples, batch, shuffle, seed), batch_size=None)
