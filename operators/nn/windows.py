"""Grids cut into windows of equal sides."""

from jaxtyping import Float
from torch import Tensor


def windows(
    u: Float[Tensor, "batch *grid c"], side: int | list[int]
) -> Float[Tensor, "batch *coarse p c"]:
    """The values in windows of `side` points along each axis, the last axis fastest.

    >>> import torch
    >>> windows(torch.arange(8).view(1, 2, 4, 1).float(), 2).flatten(-2).tolist()
    [[[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]]]
    """
    dim = u.ndim - 2
    for axis in range(dim, 0, -1):
        u = u.unflatten(axis, (-1, side if isinstance(side, int) else side[axis - 1]))
    # (batch, m1, side, m2, side, c)
    u = u.permute(0, *range(1, 2 * dim, 2), *range(2, 2 * dim + 1, 2), 2 * dim + 1)
    return u.flatten(dim + 1, 2 * dim)


def joined(
    v: Float[Tensor, "batch *coarse p c"], side: int | list[int]
) -> Float[Tensor, "batch *grid c"]:
    """The inverse of `windows`."""
    dim = v.ndim - 3
    v = v.unflatten(dim + 1, [side] * dim if isinstance(side, int) else side)
    v = v.permute(0, *[k for i in range(dim) for k in (1 + i, 1 + dim + i)], 2 * dim + 1)
    for axis in range(dim, 0, -1):
        v = v.flatten(2 * axis - 1, 2 * axis)
    return v
