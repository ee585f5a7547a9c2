"""Linear interpolation between grids that are products of two axes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

Function = Float[Tensor, "batch n1 n2 c"]
Grid = Float[Tensor, "n1 n2 2"]


def resized(u: Function, n1: int, n2: int) -> Float[Tensor, "batch {n1} {n2} c"]:
    """Bilinear interpolation to n1 x n2 points, evenly spaced between the first and the last.

    Exact in the coordinates where both grids are uniform with common ends; coordinates resized
    like functions (`resized_grid`) are those of the new points.
    """
    if u.shape[1:3] == (n1, n2):
        return u
    channels_first = u.permute(0, 3, 1, 2)  # strides of channels last: no copy, the fast kernel
    v = nn.functional.interpolate(channels_first, (n1, n2), mode="bilinear", align_corners=True)
    return v.permute(0, 2, 3, 1)


def resized_grid(x: Grid, n1: int, n2: int) -> Float[Tensor, "{n1} {n2} 2"]:
    """The coordinates of the points of `resized`."""
    return resized(x[None], n1, n2)[0]


def interpolation(x: Float[Tensor, " n"], y: Float[Tensor, " m"]) -> Float[Tensor, "m n"]:
    """The matrix of linear interpolation from ascending points x to points y.

    Rows sum to 1. Beyond the ends the value is that of the end.

    >>> interpolation(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.5, 2.5, 9.0]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.2500, 0.7500],
            [0.0000, 0.0000, 1.0000]])
    """
    upper = torch.searchsorted(x, y.contiguous(), right=True).clamp(1, len(x) - 1)
    lower = upper - 1
    weight = ((y - x[lower]) / (x[upper] - x[lower])).clamp(0, 1)
    columns = torch.arange(len(x), device=x.device)
    return (columns == lower[:, None]) * (1 - weight)[:, None] + (
        columns == upper[:, None]
    ) * weight[:, None]


def interpolated(
    u: Function, x: Grid, y: Float[Tensor, "m1 m2 2"]
) -> Float[Tensor, "batch m1 m2 c"]:
    """Bilinear interpolation from the points x to the points y, by their coordinates."""
    batch, m1 = len(u), len(y)
    first = interpolation(x[:, 0, 0].contiguous(), y[:, 0, 0])
    second = interpolation(x[0, :, 1].contiguous(), y[0, :, 1])
    v = torch.bmm(first.expand(batch, -1, -1), u.flatten(2))  # (batch, m1, n2 c)
    v = v.unflatten(2, (u.shape[2], -1)).flatten(0, 1)  # (batch m1, n2, c)
    return torch.bmm(second.expand(batch * m1, -1, -1), v).unflatten(0, (batch, m1))
