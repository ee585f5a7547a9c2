"""Some samples of a task: functions, and what differs from sample to sample beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Channel:
    """What one channel of a function is.

    Args:
        component: Of a vector; empty where there is one.
        time: At which; None where the variable has no times.
        moves: Whether its component displaces the points.

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


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets, with the points, weights and parameters that each sample has of its own.

    Args:
        a: Inputs, shape (batch, *grid, c_in).
        x, y: Positions of the points of inputs and of targets, shape (batch, *grid, dim); None
            where all samples share those of `Samples`.
        weight: Quadrature weights of the targets, shape (batch, *target_grid); None where all
            samples share those of `Samples`.
        mask: Which points a sample has, shape (batch, *grid); the others are padding. None where
            it has all.
        parameters: Numbers of a sample, shape (batch, p).

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
        """Some of the samples."""
        return self.map(lambda v: v[rows])

    @property
    def channels(self) -> tuple[int, int]:
        """Of inputs and of targets."""
        return self.a.shape[-1], self.u.shape[-1]

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.tensors())

    @property
    def names(self) -> list[str]:
        """Of the fields that there are."""
        return [name for name in NAMES if getattr(self, name) is not None]

    @property
    def own(self) -> dict[str, Tensor]:
        """What there is beside inputs and targets, by name."""
        return {name: getattr(self, name) for name in self.names[2:]}

    def tensors(self) -> list[Tensor]:
        """All that there are, in the order of the fields."""
        return [getattr(self, name) for name in self.names]

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The batch of what a function makes of each tensor."""
        return Batch(**{name: function(getattr(self, name)) for name in self.names})

    def weights(self, shared: Tensor | None, y: Tensor | None) -> Tensor | None:
        """The weights of the targets: see `weights`, whose mask is of the inputs' points."""
        own = shared if self.weight is None else self.weight
        return weights(own, self.mask if self.y is None and y is None else None, self.u)

    def joined(self, other: Batch) -> Batch:
        """The samples of both."""
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        return Batch(**dict(zip(self.names, map(torch.cat, pairs), strict=True)))

    def to(self, device: torch.device | str) -> Batch:
        return self.map(lambda v: v.to(device))

    def split(self, size: int) -> Iterator[Batch]:
        """Batches of at most so many samples."""
        return (self[start : start + size] for start in range(0, len(self), size))


NAMES = tuple(field.name for field in fields(Batch))


def weights(weight: Tensor | None, mask: Tensor | None, u: Tensor) -> Tensor | None:
    """Quadrature weights that are 0 at padding; None where all points count alike."""
    if mask is None:
        return weight
    return mask.to(u.dtype) if weight is None else weight * mask
