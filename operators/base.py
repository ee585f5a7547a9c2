"""The contract that every operator obeys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Preset:
    """A published configuration of an operator.

    Args:
        settings: Arguments of the constructor that differ from its defaults.
        parameters: Trainable real numbers that it has with `channels`; a test counts them.
        source: Publication and table, or released code, that it is from.
        channels, dim: Input and output channels and dimension of the domain of that count.
    """

    settings: Mapping[str, object]
    parameters: int
    source: str
    channels: tuple[int, int] = (1, 1)
    dim: int = 1


class Operator(nn.Module, ABC):
    """A map between functions on a grid, a -> u.

    Batch first, channels last, the grid between them. An operator holds no grid: the same
    weights act on every resolution, `x` says where the values of `a` lie, and `y` where those of
    `u` are asked for.
    """

    in_channels: int
    out_channels: int
    dim: int
    presets: ClassVar[Mapping[str, Preset]] = {}

    @abstractmethod
    def forward(
        self,
        a: Float[Tensor, "batch *grid c_in"],
        x: Float[Tensor, "*grid dim"],
        y: Float[Tensor, "*target_grid dim"] | None = None,
    ) -> Float[Tensor, "batch *target_grid c_out"]:
        """Evaluate the operator.

        Args:
            a: Input function values a(x), shape (batch, *grid, in_channels).
            x: Coordinates of the grid points, shape (*grid, dim), shared by the batch.
            y: Coordinates of the points of the output, shape (*target_grid, dim). None, the points
                x; an operator may accept nothing else.

        Returns:
            Output function values u(y), shape (batch, *target_grid, out_channels).
        """

    @property
    def parameter_count(self) -> int:
        """Number of trainable real numbers; a complex weight counts as two."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def check_input(model: Operator, a: Tensor, x: Tensor, y: Tensor | None = None) -> None:
    """Raise ValueError when `a`, `x` or `y` lacks the channels or dimensions `model` expects."""
    if a.ndim != model.dim + 2 or a.shape[-1] != model.in_channels:
        grid = ", ".join(f"n{i + 1}" for i in range(model.dim))
        raise ValueError(
            f"expected input of shape (batch, {grid}, {model.in_channels}), got {tuple(a.shape)}"
        )
    if x.shape != (*a.shape[1:-1], model.dim):
        raise ValueError(
            f"expected coordinates of shape {(*a.shape[1:-1], model.dim)}, got {tuple(x.shape)}"
        )
    if y is not None and (y.ndim != model.dim + 1 or y.shape[-1] != model.dim):
        grid = ", ".join(f"m{i + 1}" for i in range(model.dim))
        raise ValueError(
            f"expected output coordinates of shape ({grid}, {model.dim}), got {tuple(y.shape)}"
        )
