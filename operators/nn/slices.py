"""Blocks and operators with attention among slices, for Transolver and its successors."""

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
    """Layer that maps features before the attention: a convolution, or a pointwise linear map."""
    if projection == "linear":
        return nn.Linear(width, width)
    return Convolution(dim, width, padding)


def means(
    sums: Float[Tensor, "*heads slices d"], totals: Float[Tensor, "*heads 1 slices"]
) -> Float[Tensor, "*heads slices d"]:
    """Weighted mean over each slice: the weighted sum divided by the total weight."""
    return (sums / (totals.mT + 1e-5)).to(sums.dtype)


class Block(nn.Module):
    """u <- u + attention(LN(u)), then u <- u + MLP(LN(u)). The attention gets the mask."""

    def __init__(self, width: int, attention: nn.Module, feedforward: int) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp(width, feedforward, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, u: Function, *mask: Real | None) -> Function:
        u = u + self.attention(self.norm1(u), *mask)
        return u + self.mlp(self.norm2(u))


class SliceOperator(FieldOperator):
    """An operator that consists of a pointwise MLP, blocks, and a pointwise LN and linear map.

    The input of the MLP consists of a and the positions; a learned vector is added to its output.
    The initial weights of linear maps are truncated normal.

    Args:
        slices: Number of slices of each head.
        projection: Layer that maps features before the attention: "convolution", which needs a
            grid, or "linear". With "linear" and coordinates "none", the operator commutes with
            permutations of the points.
        padding: Padding of convolutions: "zeros", or "circular" for periodic functions. With
            "circular" and coordinates "none" the operator commutes with shifts.
        orthogonal: Whether the initial map to the slices is orthogonal, as in the released
            attention modules. Otherwise its weights are truncated normal, as in the released
            models, which initialise all linear maps again. All slices are then nearly equal at
            first.
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
        if positions.lattice != Positions.lattice and positions.kind != "lattice":
            raise ValueError(
                f'lattice={positions.lattice} needs coordinates "lattice", got {positions.kind!r}'
            )
        if projection == "convolution":
            self.domains, self.masks = MESHES, False
        self.embed = mlp(in_channels + positions.count, 2 * width, width)
        self.placeholder = nn.Parameter(torch.rand(width) / width)
        self.blocks = nn.ModuleList(Block(width, attention(), feedforward) for _ in range(depth))
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        start_truncated(self)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        """Add the learned vector, then apply the blocks."""
        u = u + self.placeholder
        for block in self.blocks:
            u = block(u, mask)
        return u
