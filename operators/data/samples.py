"""A PyTorch dataset of samples of functions, read by a `Reader` or derived by a learning task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from itertools import islice
from math import gcd
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from operators.base import generator
from operators.data.resolution import DataError, Strided, strides
from pdegen.domains import Box, Domain
from pdegen.store.format import Axis, ParameterLaw

# Batches of samples, and the examples that a task derives from samples.


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
        """Training examples of a batch of samples."""
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


# Draws of samples from candidates with known probabilities.


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples that were drawn from candidates.

    Args:
        numbers: Numbers of the samples, in the order of their use.
        probabilities: Probability π of each sample that it is drawn. If n of M candidates are
            drawn, means over the drawn samples with the weights n/(M π) are unbiased estimates of
            means over all candidates.
    """

    numbers: Int[Tensor, " n"]
    probabilities: Float[Tensor, " n"]


def inclusion(
    scores: Float[Tensor, " candidates"], count: int, uniform: float
) -> Float[Tensor, " candidates"]:
    """Probabilities π = n (λ/M + (1 - λ) s/Σs) that candidates are drawn, at most 1.

    The sum of the probabilities is n. If some would exceed 1, these are 1, and the others are
    larger by a common factor.

    Args:
        scores: Scores s >= 0 of the M candidates, in float64. Equal if all are 0.
        count: Number n of samples to draw.
        uniform: Share λ > 0 of the probability that all candidates have in common.

    >>> inclusion(torch.tensor([1.0, 1.0, 2.0, 12.0]), 2, 0.5)
    tensor([0.3125, 0.3125, 0.3750, 1.0000])
    """
    total = scores.sum()
    shares = scores / total if total > 0 else torch.full_like(scores, 1 / len(scores))
    shares = uniform / len(scores) + (1 - uniform) * shares
    certain = torch.zeros(len(scores), dtype=torch.bool)
    while True:
        rest = (count - certain.sum()) * shares / shares[~certain].sum()
        if not bool((excess := ~certain & (rest > 1)).any()):
            return rest.where(~certain, 1.0)
        certain |= excess


def systematic(
    probabilities: Float[Tensor, " candidates"], random: torch.Generator
) -> Int[Tensor, " n"]:
    """Indices of candidates, each drawn with its inclusion probability, in random order.

    No candidate is drawn twice. The sum of the probabilities is the number of drawn candidates.

    References: W. G. Madow, On the theory of systematic sampling II, 1949.
    """
    count = round(float(probabilities.sum()))
    order = torch.randperm(len(probabilities), generator=random)
    ends = probabilities[order].double().cumsum(0)
    ends *= count / ends[-1]
    start = torch.rand((), generator=random, dtype=torch.float64)
    rows = order[torch.searchsorted(ends, start + torch.arange(count), right=True)]
    return rows[torch.randperm(count, generator=random)]


# PyTorch DataLoaders over the epochs of samples.


class Epochs(IterableDataset[Batch]):
    """A dataset of batches; each iteration yields the batches of the next epoch."""

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
    """A DataLoader over `Epochs`. Threads of this process read the files."""
    return DataLoader(Epochs(samples, batch, shuffle, seed), batch_size=None)


# Training at several resolutions of a box, with one resolution in each batch.


def containing(domain: Domain, resolutions: Sequence[int], where: str) -> int:
    """The smallest resolution whose points contain those of all `resolutions`.

    Args:
        where: URL of the store, for messages.

    Raises:
        DataError: If the domain is not a box, or a resolution does not fit it.

    >>> containing(Box.cell(421, 421), [43, 85], "a store"), containing(Box.periodic(8), [2, 4], "")
    (85, 4)
    >>> containing(Box.cell(421, 421), [61, 85], "a store")
    421
    """
    if not isinstance(domain, Box):
        raise DataError(
            f"several training resolutions need a grid of a box, {where} has a {domain.kind} domain"
        )
    stride = gcd(*(strides(domain, n, where)[0] for n in resolutions))
    return -(-domain.shape[0] // stride)


def subsamples(domain: Domain, resolutions: Sequence[int], where: str) -> tuple[Strided, ...]:
    """The subsample of a domain's points at each resolution. For errors see `containing`."""
    containing(domain, resolutions, where)
    return tuple(Strided(strides(domain, n, where)) for n in resolutions)


def subsampled(values: Tensor, by: Strided, first: int) -> Tensor:
    """Values at the points of a subsample. The grid axes begin at the axis `first`."""
    points = (slice(None, None, r) for r in by.strides)
    return values[(*[slice(None)] * first, *points)].contiguous()


def drawn(by: Sequence[Strided], seed: int, epoch: int, count: int) -> list[Strided]:
    """The subsample of each of the `count` batches of an epoch.

    The batches are divided equally among the subsamples, in random order. If their number is not
    divisible, the subsamples take turns from epoch to epoch.
    """
    order = torch.randperm(count, generator=generator(seed, 5, epoch))
    return [by[number] for number in ((order + epoch) % len(by)).tolist()]


def mixed(
    batches: Generator[Batch, None, None], by: Iterable[Strided], with_targets: bool
) -> Generator[Batch, None, None]:
    """Subsample each batch.

    Args:
        by: The subsample of each batch.
        with_targets: Whether targets have the points of the inputs. Other targets are unchanged.
    """
    with closing(batches):
        for chosen, batch in zip(by, batches, strict=True):
            u = subsampled(batch.u, chosen, 1) if with_targets else batch.u
            yield replace(batch, a=subsampled(batch.a, chosen, 1), u=u)


# The interface of sample readers, and the reader of samples in memory.


CPU = torch.device("cpu")
Rows = slice | np.ndarray


@runtime_checkable
class Perturbation(Protocol):
    """A change of the inputs before the operator sees them, or of the targets, such as noise."""

    @property
    def channels(self) -> int:
        """Number of channels appended to the inputs, for example 1 if it is the noise level."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether the perturbation is drawn anew in every training epoch."""
        ...

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None, /) -> np.ndarray:
        """The perturbed values, at the same points.

        Args:
            a: Inputs or targets, shape (batch, *grid, c).
            samples: Numbers of the samples in their store.
            epoch: Training epoch; None outside of training.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Reads inputs and targets of samples, and adds noise to the inputs.

    Args:
        samples: Numbers of the samples in their store, ascending.
        device: Device of the batches.
    """

    samples: Int[np.ndarray, " samples"]
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.samples)

    @abstractmethod
    def __str__(self) -> str:
        """Summary for users: "resident" or "streamed", and how much is shuffled together."""

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """Numbers of channels of inputs and of targets."""

    @property
    def masked(self) -> bool:
        """Whether some samples have fewer points than others."""
        return False

    @abstractmethod
    def to(self, device: torch.device | str) -> Reader:
        """A reader of the same samples whose batches are on a device."""

    def resident(self) -> Resident:
        """Read the samples into memory."""
        all = reduce(Batch.joined, self.in_order(64))
        return Resident(
            a=all.a, u=all.u, per_sample=all.per_sample, samples=self.samples, device=self.device
        )

    @abstractmethod
    def rows(self, rows: Rows) -> Reader:
        """A reader of the samples at the indices `rows`."""

    @abstractmethod
    def with_noise(self, noise: Perturbation) -> Reader:
        """A reader of the same samples with noise on the inputs."""

    @abstractmethod
    def with_target_noise(self, noise: Perturbation) -> Reader:
        """A reader of the same samples with noise on the targets, the same in every epoch."""

    @abstractmethod
    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """See `Samples.batches`."""

    @abstractmethod
    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        """See `Samples.in_order`."""

    @abstractmethod
    def sample(self, index: int) -> Batch:
        """The sample at an index, as a batch of one."""

    def values(self, which: Literal["a", "u"]) -> Tensor | Iterable[Tensor]:
        """All inputs ("a") or targets ("u"), as one tensor or as an iterable of blocks.

        Later blocks may overwrite the memory of earlier blocks.
        """
        return Blocks(partial(values_in, self.in_order, which))


@dataclass(frozen=True, kw_only=True)
class Resident(Reader):
    """Samples in memory, on one device.

    Args:
        a, u: Inputs and targets of all samples.
        per_sample: Other tensors that differ by sample; the keys are field names of `Batch`.
        epoch_inputs: Inputs of each epoch if noise is drawn anew in every epoch; None if all
            epochs use `a`.
    """

    a: Float[Tensor, "samples *grid c_in"]
    u: Float[Tensor, "samples *target_grid c_out"]
    per_sample: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    epoch_inputs: EpochInputs | None = None

    def __str__(self) -> str:
        return "resident"

    @property
    def all(self) -> Batch:
        """All samples as one batch."""
        return Batch(self.a, self.u, **self.per_sample)

    @property
    def channels(self) -> tuple[int, int]:
        return self.all.channels

    @property
    def masked(self) -> bool:
        return "mask" in self.per_sample

    def to(self, device: torch.device | str) -> Resident:
        return self._of(self.all.to(device), device=torch.device(device))

    def resident(self) -> Resident:
        return self

    def rows(self, rows: Rows) -> Resident:
        indices = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        fresh = self.epoch_inputs and self.epoch_inputs.rows(rows)
        return self._of(self.all[indices], samples=self.samples[rows], epoch_inputs=fresh)

    def _of(self, all: Batch, **changes: object) -> Resident:
        return replace(self, a=all.a, u=all.u, per_sample=all.per_sample, **changes)  # pyright: ignore[reportArgumentType]

    def with_noise(self, noise: Perturbation) -> Resident:
        epoch_inputs = EpochInputs(noise, self.a.cpu(), self.samples.tolist())
        # normalisers and evaluation use the noise for epoch None, not that of a training epoch
        a = epoch_inputs.of(None).to(self.device)
        return replace(self, a=a, epoch_inputs=epoch_inputs if noise.fresh else None)

    def with_target_noise(self, noise: Perturbation) -> Resident:
        noisy = noise(self.u.cpu().numpy(), self.samples.tolist(), None)
        return replace(self, u=torch.from_numpy(noisy).to(self.device))

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        order = torch.randperm(len(self), generator=generator(seed, 0, epoch)).to(self.device)
        all = self.all
        if self.epoch_inputs is not None:
            all = replace(all, a=self.epoch_inputs(epoch, self.device))
        for k in range(first, len(self) // ranks // batch):
            start = (k * ranks + rank) * batch
            yield all[order[start : start + batch]]

    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        yield from self.all.split(batch)

    def sample(self, index: int) -> Batch:
        return self.all[index : index + 1]

    def values(self, which: Literal["a", "u"]) -> Tensor:
        return getattr(self, which)


class EpochInputs:
    """Inputs of each training epoch, with noise that is drawn anew in every epoch.

    For training on a GPU, a thread prepares the inputs of the next epoch in advance.

    Args:
        clean: Inputs without noise, shape (samples, *grid, c).
        samples: Numbers of the samples in their store.
    """

    def __init__(self, noise: Perturbation, clean: Tensor, samples: Sequence[int]) -> None:
        self.noise, self.clean, self.samples = noise, clean, samples
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[Tensor]] | None = None

    def rows(self, rows: Rows) -> EpochInputs:
        """The inputs of the samples at the indices `rows`."""
        samples = np.asarray(self.samples)[rows].tolist()
        return EpochInputs(self.noise, self.clean[rows], samples)

    def of(self, epoch: int | None) -> Tensor:
        """The noisy inputs of a training epoch; if `epoch` is None, the inputs for evaluation."""
        return torch.from_numpy(self.noise(self.clean.numpy(), self.samples, epoch))

    def __call__(self, epoch: int, device: torch.device) -> Tensor:
        if device.type == "cpu":  # the processor is busy with training
            return self.of(epoch)
        prepared, self._next = self._next, None
        ready = prepared is not None and prepared[0] == epoch
        inputs = prepared[1].result() if prepared is not None and ready else self.of(epoch)
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="inputs")
        self._next = epoch + 1, self._thread.submit(self.of, epoch + 1)
        return inputs.to(device)


@dataclass(frozen=True)
class Blocks:
    """Inputs or targets of all samples, in blocks; each iteration reads the blocks again.

    Block k + 2 may overwrite the memory of block k.
    """

    read: Callable[[], Iterator[Tensor]]

    def __iter__(self) -> Iterator[Float[Tensor, "block *grid c"]]:
        return self.read()


def values_in(
    parts: Callable[[int], Generator[Batch, None, None]], which: str, block: int = 64
) -> Iterator[Tensor]:
    """Inputs or targets of all samples in order, in blocks of `block` samples.

    Args:
        parts: Function that yields all samples in batches of a given size, such as
            `Reader.in_order`.
        which: "a" for inputs, "u" for targets.
    """
    with closing(parts(block)) as batches:
        for batch in batches:
            yield getattr(batch, which)


@dataclass(frozen=True, kw_only=True)
class Samples(Dataset[dict[str, Tensor]]):
    """A PyTorch dataset of the input and target functions of samples of a store.

    `samples[i]` is a dict of the tensors of one sample, which any PyTorch DataLoader can collate.
    The keys are field names of `Batch`. `loader` is faster for samples in files.

    Args:
        reader: Reads the values and adds noise to the inputs.
        x: Positions of the points of the inputs, shape (*grid, dim). None if they differ by sample;
            the batches then contain the positions.
        y: Positions of the points of the targets, shape (*target_grid, dim); None if they are
            those of the inputs.
        domain: Domain of the inputs.
        target_domain: Domain of the targets; None if it is that of the inputs.
        stored_domain: Domain of all stored points; None if all are points of the inputs.
        source: Origin of the samples: the URL, recipe, fingerprint and content digest of the store,
            the resolution and the names of the variables.
        weight: Quadrature weights of the targets, shape (*target_grid); None if all weights are
            equal, or if weights differ by sample.
        input_channels, target_channels: Descriptions of the channels; empty if unknown.
        near: Interval (lower end, upper end) for each axis. The error at the points in this box is
            also reported separately.
        parameter_laws: The law of each parameter of a sample; None if it has none.
        examples: The examples of a task; None if inputs and targets are used unchanged.
        operator_channels: Numbers of input and output channels of the operator; None if they are
            those of the inputs and targets.
        length: Number of samples in an epoch. If None, an epoch contains all samples once.
            Otherwise each epoch continues where the previous epoch ended, and may contain a sample
            twice.
        subsamples: Subsamples of the points; each training batch has one of them, and no other
            points (`mixed`). If empty, all batches have all points.
    """

    reader: Reader
    x: Float[Tensor, "*grid dim"] | None
    y: Float[Tensor, "*target_grid dim"] | None
    domain: Domain
    source: dict[str, Any]
    target_domain: Domain | None = None
    stored_domain: Domain | None = None
    weight: Float[Tensor, " *target_grid"] | None = None
    input_channels: tuple[Channel, ...] = ()
    target_channels: tuple[Channel, ...] = ()
    near: Mapping[Axis, tuple[float, float]] = field(
        default_factory=dict[Axis, tuple[float, float]]
    )
    parameter_laws: tuple[ParameterLaw | None, ...] = ()
    examples: Examples | None = None
    operator_channels: tuple[int, int] | None = None
    length: int | None = None
    subsamples: tuple[Strided, ...] = ()

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
        """Create samples from values in memory."""
        return cls(
            reader=Resident(a=a, u=u, samples=samples, per_sample=per_sample or {}), **shared
        )

    def __len__(self) -> int:
        return self._pass_length if self.length is None else self.length

    @property
    def _pass_length(self) -> int:
        """Number of all samples or, with a task, of all examples."""
        return len(self.reader if self.examples is None else self.examples)

    @property
    def ids(self) -> Int[np.ndarray, " samples"]:
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
        """Kind of grid: that of a box, or "mixed"; "curvilinear" of a mesh, "cloud" of a cloud."""
        return self.domain.grid if isinstance(self.domain, Box) else self.domain.kind

    @property
    def points(self) -> Float[Tensor, "*grid dim"]:
        """Positions of the points of the inputs."""
        if self.x is None:
            raise DataError(f"{self.source.get('url')}: the points differ by sample")
        return self.x

    @property
    def batch_points(self) -> tuple[Float[Tensor, "*grid dim"], ...]:
        """Positions of the points of each subsample that training batches may have."""
        return tuple(subsampled(self.points, by, 0) for by in self.subsamples)

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Positions of the points of the targets."""
        return self.points if self.y is None else self.y

    @property
    def input_laws(self) -> dict[int, ParameterLaw]:
        """The laws of those channels of the operator's inputs that are parameters with a law."""
        task = None if self.examples is None else self.examples.task
        if task is None or not task.parameters:
            return {}
        first = self.channels[0] - task.channels_after_parameters - len(self.parameter_laws)
        return {first + k: law for k, law in enumerate(self.parameter_laws) if law is not None}

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
        """Summary for users: how values are read and shuffled, and the length of an epoch."""
        parts = [str(self.reader)]
        if self.length is not None:
            parts.append(f"{self.length:,} an epoch of {self._pass_length:,}")
        if self.subsamples:
            shapes = (by.shape(self.domain.shape) for by in self.subsamples)
            grids = " or ".join(" x ".join(map(str, shape)) for shape in shapes)
            parts.append(f"each batch on {grids} points")
        return ", ".join(parts)

    @property
    def single_step(self) -> Samples:
        """The samples to which normalisers are fitted."""
        if self.examples is None or not self.examples.count:
            return replace(self, length=None)
        return self.examples.task.single_step.training(self.examples.pairs)

    @property
    def all(self) -> Batch:
        """All samples as one batch."""
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
        """All inputs, as one tensor or as blocks; later blocks overwrite earlier ones."""
        return self.reader.values("a") if self.examples is None else self._in_blocks("a")

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        """All targets, as one tensor or as blocks; later blocks overwrite earlier ones."""
        return self.reader.values("u") if self.examples is None else self._in_blocks("u")

    def _in_blocks(self, which: str) -> Blocks:
        return Blocks(partial(values_in, self.in_order, which))

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on a device."""
        return self._with(lambda reader: reader.to(device)).geometry_to(device)

    def geometry_to(self, device: torch.device | str) -> Samples:
        """The same samples, with the shared points and weights on a device."""
        shared = {"x": self.x, "y": self.y, "weight": self.weight}
        moved = {name: None if v is None else v.to(device) for name, v in shared.items()}
        if self.examples is None:
            return replace(self, **moved)
        pairs = self.examples.pairs.geometry_to(device)
        return replace(self, **moved, examples=replace(self.examples, pairs=pairs))

    def rows(self, rows: Rows) -> Samples:
        """The samples at the indices `rows`."""
        return self._with(lambda reader: reader.rows(rows))

    def with_noise(self, noise: Perturbation) -> Samples:
        """The same samples with noise on the inputs."""
        return self._with(lambda reader: reader.with_noise(noise))

    def with_target_noise(self, noise: Perturbation) -> Samples:
        """The same samples with noise on the targets, the same in every epoch."""
        return self._with(lambda reader: reader.with_target_noise(noise))

    def resident(self) -> Samples:
        """The same samples, read into memory.

        Raises:
            DataError: If the data cannot be read or do not fit into memory.
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
            samples=self.ids,
            device=resident.device,
        )
        return replace(resident, reader=reader, examples=None)

    def mixed(self, *resolutions: int) -> Samples:
        """The same samples, whose training batches have one of several resolutions each.

        Args:
            resolutions: Numbers of points along the first axis, all in the grid of these samples.

        Raises:
            DataError: If the domain is not a box, or a resolution does not fit its grid.
            ValueError: If there are no resolutions.
        """
        if not resolutions:
            raise ValueError("batches of several resolutions need the resolutions, got none")
        where = str(self.source.get("url"))
        return replace(self, subsamples=subsamples(self.domain, resolutions, where))

    def with_reader(self, **changes: Any) -> Samples:
        """The same samples with other attributes of the reader, such as `window`."""
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
        """Batches of an epoch in random order.

        The order depends only on the arguments and on the layout of the data. Every rank gets
        len // ranks // batch full batches; the remaining samples are left out of the epoch. If
        `length` is None, an epoch contains no sample twice.

        Args:
            first: Index of the first batch; the batches before it are skipped.
            rank: Index of this process.
            ranks: Number of processes that share the epoch.

        Raises:
            ValueError: If rank is not in 0 to ranks - 1.
            DataError: If the data cannot be read.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be 0 to ranks - 1, got rank {rank} of {ranks}")
        share = batch, first, rank, ranks
        if not self.subsamples:
            yield from self._whole_batches(seed, epoch, *share)
            return
        by = drawn(self.subsamples, seed, epoch, len(self) // ranks // batch)
        batches = self._whole_batches(seed, epoch, *share)
        yield from mixed(batches, by[first:], self.y is None)

    def _whole_batches(
        self, seed: int, epoch: int, batch: int, first: int, rank: int, ranks: int
    ) -> Generator[Batch, None, None]:
        """The batches of an epoch at all points."""
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
        """The tensors of one sample without the batch axis; the keys are fields of `Batch`."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} samples, got index {index}")
        batch = self.sample(index % len(self))
        return {name: v[0] for name in NAMES if (v := getattr(batch, name)) is not None}

    def loader(self, batch: int, *, shuffle: bool = True, seed: int = 0) -> DataLoader[Batch]:
        """A PyTorch DataLoader; each iteration over it is the next epoch.

        Args:
            batch: Number of samples in a batch.
            shuffle: If True, each epoch has its own random order and only full batches. If
                False, each epoch has all samples in the order of the store.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        return loader(self, batch, shuffle, seed)


def quadrature(domain: Domain) -> Float[Tensor, " *grid"] | None:
    """Quadrature weights for losses and scores, normalised to mean 1; None if all are equal.

    As in published results, all points of a box have equal weights, including boundary points. The
    result is also None if the points differ by sample, because batches then contain the weights.

    >>> quadrature(Box.nodal(5)) is None
    True
    """
    if isinstance(domain, Box) or domain.moves:
        return None
    weights = domain.weights
    if np.ptp(weights) <= 1e-6 * weights.max():
        return None
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))


# Base class of learning tasks, and the task without time steps; see also `trajectories`.


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
        """Examples, derived from the samples."""
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
