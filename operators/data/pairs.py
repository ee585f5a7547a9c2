"""Pairs of functions to learn from, wherever their values are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from operators.data.batch import NAMES, Batch, Channel
from operators.data.loader import loader
from operators.data.store import DataError
from operators.seeds import generator
from pdegen.domains import Box, Domain
from pdegen.store.format import Axis

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Samples(Dataset[dict[str, Tensor]], ABC):
    """Input and target functions of some samples of a store, as a dataset of PyTorch.

    `samples[i]` holds the tensors of one sample by the names of `Batch`, and any DataLoader of
    PyTorch collects them; `loader` reads faster where the samples are in files.

    Args:
        x: Positions of the points of the inputs, shape (*grid, dim); None where each sample has its
            own, which are in its batches.
        y: Positions of the points of the targets, shape (*target_grid, dim); None where they are
            those of the inputs.
        samples: Their numbers in the store, rising.
        domain: Where the inputs live.
        source: Where they come from: url, recipe, fingerprint, content digest, resolution, names.
        weight: Quadrature weights of the targets, shape (*target_grid); None where they are equal,
            or each sample has its own.
        input_channels, target_channels: What the channels are; empty where nobody says.
        applied: Channels of the operator, where it is applied several times to reach the targets.
        near: The box, lower and upper end by axis, whose points have an error of their own.
        device: Where batches are.
    """

    x: Float[Tensor, "*grid dim"] | None
    y: Float[Tensor, "*target_grid dim"] | None
    samples: Int[np.ndarray, " samples"]
    domain: Domain
    source: dict[str, Any]
    weight: Float[Tensor, " *target_grid"] | None = None
    input_channels: tuple[Channel, ...] = ()
    target_channels: tuple[Channel, ...] = ()
    applied: tuple[int, int] | None = None
    near: Mapping[Axis, tuple[float, float]] = field(
        default_factory=dict[Axis, tuple[float, float]]
    )
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def dim(self) -> int:
        """Of space."""
        return self.domain.dim

    @property
    def grid(self) -> str:
        """What the points are: "periodic", "cell", "nodal" or "mixed" along the axes of a box, else
        "curvilinear" or "cloud"."""
        return self.domain.grid if isinstance(self.domain, Box) else self.domain.kind

    @property
    def periodic(self) -> bool:
        return self.grid == "periodic"

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
    def one_step(self) -> Samples:
        """The same with targets of one application of the operator: what normalisers see."""
        return self

    @property
    def masked(self) -> bool:
        """Whether some samples have fewer points than others."""
        return False

    @property
    def shared(self) -> dict[str, Any]:
        """What all kinds of samples have, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Samples)}

    def _on(self, device: torch.device | str) -> dict[str, Any]:
        """What all samples share, on a device."""
        place = torch.device(device)
        shared = {"x": self.x, "y": self.y, "weight": self.weight}
        moved = {name: None if v is None else v.to(place) for name, v in shared.items()}
        return {**moved, "device": place}

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """Of the operator's inputs and outputs."""

    @property
    @abstractmethod
    def reading(self) -> str:
        """How the values are read, and what their order depends on beside the seed, for people."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Samples:
        """The same on a device."""

    @abstractmethod
    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        """Batches of an epoch in random order, a function of the arguments and the data's layout.

        Every rank has len // ranks // batch of them. No sample comes twice, in one rank or in
        two; those that fill no batch on every rank are left out of the epoch.

        Args:
            seed, epoch: Of the order.
            batch: Samples of a batch, all full.
            first: Number of the batch to begin with.
            rank, ranks: The share of one process of several.

        Raises:
            ValueError: If rank is not one of the ranks.
            DataError: If the data cannot be read.
        """

    @abstractmethod
    def parts(self, batch: int) -> Generator[Batch, None, None]:
        """All samples once, in order, at most `batch` at a time.

        Raises:
            DataError: If the data cannot be read.
        """

    @property
    def inputs(self) -> Tensor | Iterable[Tensor]:
        """All inputs, as a tensor, or in blocks that are overwritten by those after them."""
        return Blocks(partial(self._values, "a"))

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        """All targets, in the same way."""
        return Blocks(partial(self._values, "u"))

    def _values(self, which: Literal["a", "u"], block: int = 64) -> Iterator[Tensor]:
        with closing(self.parts(block)) as parts:
            for part in parts:
                yield getattr(part, which)

    @abstractmethod
    def one(self, place: int) -> Batch:
        """The sample at a place, 0 <= place < len, as a batch of one."""

    def first(self) -> Batch:
        """The first sample, as a batch of one."""
        return self.one(0)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        """The tensors of one sample, without the axis of a batch, by their names in `Batch`."""
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} samples, asked for number {place}")
        batch = self.one(place % len(self))
        return {name: v[0] for name in NAMES if (v := getattr(batch, name)) is not None}

    def loader(self, batch: int, *, shuffle: bool = True, seed: int = 0) -> DataLoader[Batch]:
        """Batches of an epoch each time it is iterated, as `torch.utils.data.DataLoader`.

        Args:
            batch: Samples of a batch.
            shuffle: Whether in random order, full batches alone, another order in each epoch; else
                all samples in their own order.
            seed: Of the orders.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        return loader(self, batch, shuffle, seed)


@dataclass(frozen=True, kw_only=True)
class Pairs(Samples):
    """Input and target functions, resident on one device.

    Args:
        a: Inputs, shape (samples, *grid, c_in).
        u: Targets, shape (samples, *target_grid, c_out).
        renewed: The inputs of an epoch, a function of its number alone, such as with fresh noise;
            None for `a` in every epoch.
        own: What else differs by sample, by the name of its field in `Batch`.
    """

    a: Float[Tensor, "samples *grid c_in"]
    u: Float[Tensor, "samples *target_grid c_out"]
    renewed: Callable[[int], Tensor] | None = None
    own: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def all(self) -> Batch:
        """All samples."""
        return Batch(self.a, self.u, **self.own)

    @property
    def channels(self) -> tuple[int, int]:
        return self.applied or self.all.channels

    @property
    def reading(self) -> str:
        return "resident"

    @property
    def inputs(self) -> Tensor:
        return self.a

    @property
    def targets(self) -> Tensor:
        return self.u

    def to(self, device: torch.device | str) -> Pairs:
        own = {name: v.to(device) for name, v in self.own.items()}
        a, u = self.a.to(device), self.u.to(device)
        return replace(self, a=a, u=u, own=own, **self._on(device))

    @property
    def masked(self) -> bool:
        return "mask" in self.own

    def one(self, place: int) -> Batch:
        return self.all[place : place + 1]

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        yield from self.all.split(batch)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        check_rank(rank, ranks)
        order = torch.randperm(len(self), generator=generator(seed, 0, epoch)).to(self.device)
        inputs = self.renewed(epoch).to(self.device) if self.renewed else self.a
        all = replace(self.all, a=inputs)
        for k in range(first, len(self) // ranks // batch):
            start = (k * ranks + rank) * batch
            yield all[order[start : start + batch]]


@dataclass(frozen=True, kw_only=True)
class Passes(Samples):
    """The samples of another, with epochs of another length: several passes, or parts of one.

    Pass after pass goes on where the epoch before ended, so a sample may come twice in an epoch.

    Args:
        pairs: The samples; at least one batch on every rank.
        length: Samples of an epoch.
    """

    pairs: Samples
    length: int

    @classmethod
    def of(cls, pairs: Samples, length: int) -> Passes:
        return cls(**pairs.shared, pairs=pairs, length=length)

    def __len__(self) -> int:
        return self.length

    @property
    def channels(self) -> tuple[int, int]:
        return self.pairs.channels

    @property
    def masked(self) -> bool:
        return self.pairs.masked

    @property
    def reading(self) -> str:
        return f"{self.pairs.reading}, {self.length:,} an epoch of {len(self.pairs):,}"

    @property
    def one_step(self) -> Samples:
        return self.pairs.one_step

    @property
    def inputs(self) -> Tensor | Iterable[Tensor]:
        return self.pairs.inputs

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        return self.pairs.targets

    def to(self, device: torch.device | str) -> Passes:
        return Passes.of(self.pairs.to(device), self.length)

    def one(self, place: int) -> Batch:
        return self.pairs.one(place % len(self.pairs))

    def parts(self, batch: int) -> Generator[Batch, None, None]:
        return self.pairs.parts(batch)

    def batches(
        self, seed: int, epoch: int, batch: int, first: int = 0, rank: int = 0, ranks: int = 1
    ) -> Generator[Batch, None, None]:
        check_rank(rank, ranks)
        in_pass, in_epoch = (n // ranks // batch for n in (len(self.pairs), self.length))
        step, end = epoch * in_epoch + first, (epoch + 1) * in_epoch
        while step < end:
            number, start = divmod(step, in_pass)
            with closing(self.pairs.batches(seed, number, batch, start, rank, ranks)) as batches:
                yield from islice(batches, end - step)
            step = min(end, (number + 1) * in_pass)


@dataclass(frozen=True)
class Blocks:
    """All values of one kind in blocks, made anew each time they are iterated; the memory of a
    block may be used again for the next but one."""

    made: Callable[[], Iterator[Tensor]]

    def __iter__(self) -> Iterator[Float[Tensor, "block *grid c"]]:
        return self.made()


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


def check_rank(rank: int, ranks: int) -> None:
    """Raise ValueError unless 0 <= rank < ranks."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank is one of 0 to ranks - 1, got rank {rank} of {ranks}")
