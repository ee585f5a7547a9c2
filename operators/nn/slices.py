"""What Transolver and its successors share: blocks of points that meet in slices."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, at_least
from operators.nn.pointwise import Convolution, mlp, start_truncated
from operators.nn.tokens import FieldOperator, Positions, Real

Projection = Literal["convolution", "linear"]
Padding = Literal["zeros", "circular"]


def projected(projection: Projection, dim: int, width: int, padding: Padding) -> nn.Module:
    """The map of the features that leads to slices: of neighbours in a grid, or of each point."""
    if projection == "linear":
        return nn.Linear(width, width)
    return Convolution(dim, width, padding)


def means(
    sums: Float[Tensor, "*heads slices d"], totals: Float[Tensor, "*heads 1 slices"]
) -> Float[Tensor, "*heads slices d"]:
    """Sums over the points of each slice, divided by its size."""
    return (sums / (totals.mT + 1e-5)).to(sums.dtype)


class Block(nn.Module):
    """u <- u + attention(LN(u)), u <- u + MLP(LN(u)); a mask goes to the attention."""

    def __init__(self, width: int, attention: nn.Module, feedforward: int) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp(width, feedforward, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, u: Function, *mask: Real | None) -> Function:
        u = u + self.attention(self.norm1(u), *mask)
        return u + self.mlp(self.norm2(u))


class SliceOperator(FieldOperator):
    """MLP of a and the positions, a learned vector, blocks, LN and a linear map at each point.

    Linear maps start truncated normal.

    Args:
        slices: Slices of each head.
        projection: What leads to slices. "convolution" is that of grids, "linear" that of point
            clouds, which the operator then takes: with coordinates "none" it commutes with
            permutations of the points.
        padding: Convolutions continue the values by "zeros" or "circular", for periodic functions:
            with coordinates "none" the operator then commutes with shifts.
        orthogonal: The map to the slices starts orthogonal, as released attention modules have it.
            False: truncated normal like the other linear maps; in the released models that
            initialisation comes last and is the one in effect. All slices then start alike.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        positions: Positions,
        width: int,
        depth: int,
        feedforward: int,
        projection: Projection,
        attention: Callable[[], nn.Module],
    ) -> None:
        super().__init__(in_channels, out_channels, dim, positions)
        at_least(1, depth=depth)
        at_least(2, lattice=positions.lattice)
        if projection == "convolution":
            self.domains, self.masks = MESHES, False
        self.embed = mlp(in_channels + positions.count, 2 * width, width)
        self.placeholder = nn.Parameter(torch.rand(width) / width)
        self.blocks = nn.ModuleList(Block(width, attention(), feedforward) for _ in range(depth))
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        start_truncated(self)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        u = u + self.placeholder
        for block in self.blocks:
            u = block(u, mask)
        return u
