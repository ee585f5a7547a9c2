"""What samples are read by: values in memory, in a store, or solved when they are asked for."""

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
    """What happens to inputs before an operator sees them."""

    @property
    def channels(self) -> int:
        """Number of channels that it puts after those of the inputs, such as its level."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it is another one in every epoch of training."""
        ...

    def __call__(self, a: np.ndarray, samples: Sequence[int], epoch: int | None) -> np.ndarray:
        """Inputs on the same points with this noise.

        Args:
            epoch: Of the training; None outside of it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Reader(ABC):
    """Gives the inputs and targets of samples, with the noise of the inputs."""

    samples: Int[np.ndarray, " samples"]
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.samples)

    @abstractmethod
    def __str__(self) -> str:
        """How the values are read, and what their order depends on beside the seed, for people."""

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
        """The same on a device."""

    def resident(self) -> Resident:
        all = reduce(Batch.joined, self.in_order(64))
        return Resident(
            a=all.a, u=all.u, per_sample=all.per_sample, samples=self.samples, device=self.device
        )

    @abstractmethod
    def rows(self, rows: Rows) -> Reader:
        """Some of the samples, by their places."""

    @abstractmethod
    def with_noise(self, noise: Perturbation) -> Reader:
        """The same with noise on the inputs."""

    @abstractmethod
    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """See `Samples.batches`."""

    @abstractmethod
    def in_order(self, batch: int) -> Generator[Batch, None, None]:
        """See `Samples.in_order`."""

    @abstractmethod
    def sample(self, place: int) -> Batch:
        """The sample at a place, as a batch of one."""

    def values(self, which: Literal["a", "u"]) -> Tensor | Iterable[Tensor]:
        """All inputs or all targets, as a tensor, or in blocks that are overwritten later."""
        return Blocks(partial(values_in, self.in_order, which))


@dataclass(frozen=True, kw_only=True)
class Resident(Reader):
    """Values in memory, on one device.

    Args:
        per_sample: What else differs by sample, by the name of its field in `Batch`.
        epoch_inputs: The inputs of an epoch where they are other ones in each.
    """

    a: Float[Tensor, "samples *grid c_in"]
    u: Float[Tensor, "samples *target_grid c_out"]
    per_sample: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    epoch_inputs: EpochInputs | None = None

    def __str__(self) -> str:
        return "resident"

    @property
    def all(self) -> Batch:
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
        places = rows if isinstance(rows, slice) else torch.from_numpy(rows)
        return self._of(self.all[places], samples=self.samples[rows])

    def _of(self, all: Batch, **changes: object) -> Resident:
        return replace(self, a=all.a, u=all.u, per_sample=all.per_sample, **changes)  # pyright: ignore[reportArgumentType]

    def with_noise(self, noise: Perturbation) -> Resident:
        epoch_inputs = EpochInputs(noise, self.a.cpu(), self.samples.tolist())
        # what is normalised by, and seen outside of training, has the noise of no epoch
        a = epoch_inputs.of(None).to(self.device)
        return replace(self, a=a, epoch_inputs=epoch_inputs if noise.fresh else None)

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

    def sample(self, place: int) -> Batch:
        return self.all[place : place + 1]

    def values(self, which: Literal["a", "u"]) -> Tensor:
        return getattr(self, which)


class EpochInputs:
    """The inputs of an epoch with its own noise.

    Where a GPU learns, a thread makes those of the next epoch meanwhile.
    """

    def __init__(self, noise: Perturbation, clean: Tensor, samples: Sequence[int]) -> None:
        self.noise, self.clean, self.samples = noise, clean, samples
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[Tensor]] | None = None

    def of(self, epoch: int | None) -> Tensor:
        """The inputs of an epoch, or those outside of training."""
        return torch.from_numpy(self.noise(self.clean.numpy(), self.samples, epoch))

    def __call__(self, epoch: int, device: torch.device) -> Tensor:
        if device.type == "cpu":  # the processor that learns has no time to spare
            return self.of(epoch)
        waiting, self._next = self._next, None
        ready = waiting is not None and waiting[0] == epoch
        found = waiting[1].result() if waiting is not None and ready else self.of(epoch)
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="inputs")
        self._next = epoch + 1, self._thread.submit(self.of, epoch + 1)
        return found.to(device)


@dataclass(frozen=True)
class Blocks:
    """All values of one kind in blocks, made anew each time; memory is used again for the next but
    one."""

    made: Callable[[], Iterator[Tensor]]

    def __iter__(self) -> Iterator[Float[Tensor, "block *grid c"]]:
        return self.made()


def values_in(
    parts: Callable[[int], Generator[Batch, None, None]], which: str, block: int = 64
) -> Iterator[Tensor]:
    """Inputs or targets of all parts, block by block."""
    with closing(parts(block)) as batches:
        for batch in batches:
            yield getattr(batch, which)
