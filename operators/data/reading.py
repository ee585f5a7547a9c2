"""The interface of sample readers, and the reader of samples in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Batch
from operators.seeds import generator

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
