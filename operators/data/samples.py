"""Samples as a dataset of PyTorch: a reader, the points, and the examples of a task."""

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
from operators.data.errors import DataError
from operators.data.reading import Blocks, Perturbation, Reader, Resident, Rows, values_in
from pdegen.domains import Box, Domain
from pdegen.store.format import Axis

if TYPE_CHECKING:
    from operators.data.samples import Samples


@dataclass(frozen=True, kw_only=True)
class Samples(Dataset[dict[str, Tensor]]):
    """Input and target functions of samples of a store, as a dataset of PyTorch.

    `samples[i]` holds the tensors of one sample by field name of `Batch`, so that any DataLoader of
    PyTorch can collate them. `loader` is faster for samples in files.

    Args:
        reader: Reads the values, with noise on the inputs.
        x: Positions of the points of the inputs, shape (*grid, dim); None if they differ by sample,
            and are in the batches.
        y: Positions of the points of the targets, shape (*target_grid, dim); None if they are
            those of the inputs.
        source: Origin: url, recipe, fingerprint, content digest, resolution, names.
        weight: Quadrature weights of the targets, shape (*target_grid); None if they are equal or
            differ by sample.
        input_channels, target_channels: Descriptions of the channels; empty if unknown.
        near: Lower and upper end along each axis of a box whose points get a separate error.
        examples: The examples of a task; None for inputs and targets as they are.
        operator_channels: Numbers of input and output channels of the operator, where several
            applications of it reach the targets.
        length: Number of samples of an epoch; None for one pass over the samples. Passes then
            continue from epoch to epoch, so a sample may come twice in an epoch.
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
        return self._pass_length if self.length is None else self.length

    @property
    def _pass_length(self) -> int:
        """Number of samples or examples of one pass."""
        return len(self.reader if self.examples is None else self.examples)

    @property
    def samples(self) -> Int[np.ndarray, " samples"]:
        """Numbers of the samples in the store, ascending."""
        return self.reader.samples

    @property
    def device(self) -> torch.device:
        """Device of the batches."""
        return self.reader.device

    @property
    def dim(self) -> int:
        """Number of space dimensions."""
        return self.domain.dim

    @property
    def grid(self) -> str:
        """Kind of grid: "periodic", "cell", "nodal" or "mixed" for a box, else "curvilinear" or
        "cloud"."""
        return self.domain.grid if isinstance(self.domain, Box) else self.domain.kind

    @property
    def points(self) -> Float[Tensor, "*grid dim"]:
        """Positions of the points of the inputs.

        Raises:
            DataError: If they differ by sample.
        """
        if self.x is None:
            raise DataError(f"{self.source.get('url')}: the points differ by sample")
        return self.x

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Positions of the points of the targets.

        Raises:
            DataError: If they differ by sample.
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
        """How values are read, and what besides the seed their order depends on, for people."""
        if self.length is None:
            return str(self.reader)
        return f"{self.reader}, {self.length:,} an epoch of {self._pass_length:,}"

    @property
    def single_step(self) -> Samples:
        """Samples whose targets are one application of the operator; normalisers use them."""
        if self.examples is None or not self.examples.count:
            return replace(self, length=None)
        return self.examples.task.single_step.training(self.examples.pairs)

    @property
    def all(self) -> Batch:
        """All samples as one batch.

        Raises:
            DataError: If they are not in memory.
        """
        if isinstance(self.reader, Resident) and self.examples is None:
            return self.reader.all
        raise DataError(
            f"{self.source.get('url')}: the samples are not in memory: call resident() first"
        )

    @property
    def a(self) -> Float[Tensor, "samples *grid c_in"]:
        """All inputs; they must be in memory."""
        return self.all.a

    @property
    def u(self) -> Float[Tensor, "samples *target_grid c_out"]:
        """All targets; they must be in memory."""
        return self.all.u

    @property
    def inputs(self) -> Tensor | Iterable[Tensor]:
        """All inputs, as one tensor, or in blocks that are overwritten by later ones."""
        return self.reader.values("a") if self.examples is None else self._in_blocks("a")

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        """All targets, as one tensor, or in blocks that are overwritten by later ones."""
        return self.reader.values("u") if self.examples is None else self._in_blocks("u")

    def _in_blocks(self, which: str) -> Blocks:
        return Blocks(partial(values_in, self.in_order, which))

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on a device."""
        return self._with(lambda reader: reader.to(device)).geometry_to(device)

    def geometry_to(self, device: torch.device | str) -> Samples:
        """The same samples, with shared points and weights on a device."""
        shared = {"x": self.x, "y": self.y, "weight": self.weight}
        moved = {name: None if v is None else v.to(device) for name, v in shared.items()}
        if self.examples is None:
            return replace(self, **moved)
        pairs = self.examples.pairs.geometry_to(device)
        return replace(self, **moved, examples=replace(self.examples, pairs=pairs))

    def rows(self, rows: Rows) -> Samples:
        """The samples at these indices."""
        return self._with(lambda reader: reader.rows(rows))

    def with_noise(self, noise: Perturbation) -> Samples:
        """The same samples with noise on the inputs."""
        return self._with(lambda reader: reader.with_noise(noise))

    def resident(self) -> Samples:
        """The same samples in memory.

        Raises:
            DataError: If the data cannot be read, or are too large.
        """
        resident = self._with(lambda reader: reader.resident())
        examples = resident.examples
        if examples is None or examples.count:
            return resident
        all = examples.task.evaluation_example(examples.pairs.all, examples.pairs)
        reader = Resident(
            a=all.a,
            u=all.u,
            per_sample=all.per_sample,
            samples=self.samples,
            device=resident.device,
        )
        return replace(resident, reader=reader, examples=None)

    def with_reader(self, **changes: Any) -> Samples:
        """The same samples with changed attributes of the reader, such as `window`."""
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
        """Batches of an epoch in random order, a function of arguments and data layout.

        Every rank gets len // ranks // batch of them. No sample comes twice in one pass; samples
        that do not fill a batch on every rank are left out of the epoch.

        Args:
            first: Number of the first batch.
            rank, ranks: Number of this process, and number of processes that share the epoch.

        Raises:
            ValueError: If rank is not in 0 to ranks - 1.
            DataError: If the data cannot be read.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be 0 to ranks - 1, got rank {rank} of {ranks}")
        one_pass = self.reader if self.examples is None else self.examples
        if self.length is None:
            yield from one_pass.batches(seed, epoch, batch, first, rank, ranks)
            return
        in_pass, in_epoch = (n // ranks // batch for n in (self._pass_length, self.length))
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

    def sample(self, index: int) -> Batch:
        """The sample at an index, 0 <= index < len, as a batch of one."""
        index %= self._pass_length
        return (self.reader if self.examples is None else self.examples).sample(index)

    def first(self) -> Batch:
        """The first sample, as a batch of one."""
        return self.sample(0)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """The tensors of one sample, without the batch axis, by field name of `Batch`."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} samples, got index {index}")
        batch = self.sample(index % len(self))
        return {name: v[0] for name in NAMES if (v := getattr(batch, name)) is not None}

    def loader(self, batch: int, *, shuffle: bool = True, seed: int = 0) -> DataLoader[Batch]:
        """A DataLoader of PyTorch whose iterations are the epochs, one after another.

        Args:
            batch: Number of samples of a batch.
            shuffle: Whether samples come in random order, another one in each epoch, in full
                batches only; otherwise all samples come in the order of the store.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        return loader(self, batch, shuffle, seed)


def quadrature(domain: Domain) -> Float[Tensor, " *grid"] | None:
    """Quadrature weights of losses and scores, of mean 1; None for equal ones.

    Points of a box count alike, its ends included, as in published tables. If the points differ by
    sample, the batches have the weights.

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
    """Batches of one epoch at each iteration."""

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
    """A DataLoader over `Epochs`; files are read by threads of this process."""
    return DataLoader(Epochs(samples, batch, shuffle, seed), batch_size=None)
