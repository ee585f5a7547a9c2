"""Pairs of functions to learn from, wherever their values are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from operators.data.batch import Batch
from operators.data.variables import GridKind
from operators.seeds import generator


@dataclass(frozen=True, kw_only=True)
class Samples(ABC):
    """Input and target functions of some samples of a store.

    Args:
        x: Coordinates of the inputs, shape (*grid, dim).
        y: Coordinates of the targets, shape (*target_grid, dim); None where they are x.
        samples: Their numbers in the store, rising.
        grid: What the points are: "periodic" (i/n, the ends meet), "cell" (centres, (i + ½)/n), or
            "nodal" (i/(n-1), both ends included).
        source: Where they come from: url, recipe, fingerprint, content digest, resolution, names.
    """

    x: Float[Tensor, "*grid dim"]
    y: Float[Tensor, "*target_grid dim"] | None
    samples: Int[np.ndarray, " samples"]
    grid: GridKind
    source: dict[str, Any]

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def periodic(self) -> bool:
        return self.grid == "periodic"

    @property
    def target_points(self) -> Float[Tensor, "*target_grid dim"]:
        """Coordinates of the targets."""
        return self.x if self.y is None else self.y

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self.x.device

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """Of inputs and of targets."""

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
    @abstractmethod
    def inputs(self) -> Tensor | Iterable[Tensor]:
        """All inputs, as a tensor, or in blocks that are overwritten by those after them."""

    @property
    @abstractmethod
    def targets(self) -> Tensor | Iterable[Tensor]:
        """All targets, in the same way."""

    @abstractmethod
    def first(self) -> Batch:
        """The first sample, as a batch of one."""


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
        return self.all.channels

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
        y = None if self.y is None else self.y.to(device)
        own = {name: v.to(device) for name, v in self.own.items()}
        return replace(
            self, a=self.a.to(device), u=self.u.to(device), x=self.x.to(device), y=y, own=own
        )

    def first(self) -> Batch:
        return self.all[:1]

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
        return cls(
            x=pairs.x, y=pairs.y, samples=pairs.samples, grid=pairs.grid, source=pairs.source,
            pairs=pairs, length=length,
        )  # fmt: skip

    def __len__(self) -> int:
        return self.length

    @property
    def channels(self) -> tuple[int, int]:
        return self.pairs.channels

    @property
    def reading(self) -> str:
        return f"{self.pairs.reading}, {self.length:,} an epoch of {len(self.pairs):,}"

    @property
    def inputs(self) -> Tensor | Iterable[Tensor]:
        return self.pairs.inputs

    @property
    def targets(self) -> Tensor | Iterable[Tensor]:
        return self.pairs.targets

    def to(self, device: torch.device | str) -> Passes:
        return Passes.of(self.pairs.to(device), self.length)

    def first(self) -> Batch:
        return self.pairs.first()

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


def check_rank(rank: int, ranks: int) -> None:
    """Raise ValueError unless 0 <= rank < ranks."""
    if not 0 <= rank < ranks:
        raise ValueError(f"rank is one of 0 to ranks - 1, got rank {rank} of {ranks}")
