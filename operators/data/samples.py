"""A PyTorch dataset of samples of functions, read by a `Reader` or derived by a learning task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from operators.data.batch import NAMES, Batch, Channel, Examples
from operators.data.errors import DataError
from operators.data.loading import loader
from operators.data.mixed import drawn, mixed, subsampled, subsamples
from operators.data.reading import Blocks, Perturbation, Reader, Resident, Rows, values_in
from operators.data.resolution import Strided
from pdegen.domains import Box, Domain
from pdegen.store.format import Axis, ParameterLaw

if TYPE_CHECKING:
    from operators.data.samples import Samples


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
        """Kind of grid: "periodic", "cell", "nodal" or "mixed" for a box, "curvilinear" for a
        mesh, "cloud" for a cloud."""
        return self.domain.grid if isinstance(self.domain, Box) else self.domain.kind

    @property
    def points(self) -> Float[Tensor, "*grid dim"]:
        """Positions of the points of the inputs.

        Raises:
            DataError: If the positions differ by sample.
        """
        if self.x is None:
            raise DataError(f"{self.source.get('url')}: the points differ by sample")
        return self.x

    @property
    def batch_points(self) -> tuple[Float[Tensor, "*grid dim"], ...]:
        """Positions of the points of each subsample that training batches may have."""
        return tuple(subsampled(self.points, by, 0) for by in self.subsamples)

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Positions of the points of the targets.

        Raises:
            DataError: If the positions differ by sample.
        """
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
        """The samples to which normalisers are fitted.

        Their targets belong to a single application of the operator, even if the task has several.
        """
        if self.examples is None or not self.examples.count:
            return replace(self, length=None)
        return self.examples.task.single_step.training(self.examples.pairs)

    @property
    def all(self) -> Batch:
        """All samples as one batch.

        Raises:
            DataError: If the samples are not in memory.
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
