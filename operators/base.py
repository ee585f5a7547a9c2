"""The contract that every operator obeys."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn


class Operator(nn.Module, ABC):
    """A map between functions on a grid, a -> u.

    Batch first, channels last, the grid between them. An operator holds no grid: the same
    weights act on every resolution, and `x` says where the values of `a` lie.
    """

    in_channels: int
    out_channels: int
    dim: int

    @abstractmethod
    def forward(
        self, a: Float[Tensor, "batch *grid c_in"], x: Float[Tensor, "*grid dim"]
    ) -> Float[Tensor, "batch *grid c_out"]:
        """Evaluate the operator.

        Args:
            a: Input function values a(x), shape (batch, *grid, in_channels).
            x: Coordinates of the grid points, shape (*grid, dim), shared by the batch.

        Returns:
            Output function values u(x), shape (batch, *grid, out_channels).
        """

    @property
    def parameter_count(self) -> int:
        """Number of trainable real numbers; a complex weight counts as two."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


def check_input(model: Operator, a: Tensor, x: Tensor) -> None:
    """Raise ValueError when `a` or `x` does not have the channels or grid that `model` expects."""
    if a.ndim != model.dim + 2 or a.shape[-1] != model.in_channels:
        grid = ", ".join(f"n{i + 1}" for i in range(model.dim))
        raise ValueError(
            f"expected input of shape (batch, {grid}, {model.in_channels}), got {tuple(a.shape)}"
        )
    if x.shape != (*a.shape[1:-1], model.dim):
        raise ValueError(
            f"expected coordinates of shape {(*a.shape[1:-1], model.dim)}, got {tuple(x.shape)}"
        )
