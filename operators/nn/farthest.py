"""Farthest-point sampling: a few points of a cloud that cover it evenly.

References: T. Gonzalez, Clustering to minimize the maximum intercluster distance, Theoretical
Computer Science 38, 1985. C. Qi et al., PointNet++, NeurIPS 2017, section 3.2.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# distances that differ by less than rounding of float32 coordinates are equal
_EQUAL = 1 - 1e-5


def farthest_points(
    x: Float[Tensor, "batch n dim"],
    count: int,
    periodic: bool = False,
    mask: Bool[Tensor, "batch n"] | None = None,
) -> Int[Tensor, "batch count"]:
    """Indices j₁, j₂, ... of points, each the farthest from the points chosen before it.

        jₖ₊₁ = argmaxⱼ minₗ≤ₖ |xⱼ - x_{jₗ}|

    Of several farthest points, the one with the smallest x · (1, √2) is chosen. The first point
    has the smallest such product of all points. The chosen points therefore do not depend on the
    order of the points. Each point lies within r of a chosen one, where r is at most the smallest
    distance of two chosen points, and at most twice the smallest r that any `count` points allow
    (Gonzalez 1985). The cost is O(batch · n · count).

    Args:
        x: Points, in one to three dimensions.
        count: Number of points to choose. If a sample has fewer, points are chosen repeatedly.
        periodic: Whether distances are those on the unit torus.
        mask: False at padding, which is never chosen.

    >>> line = torch.tensor([[[0.5], [0.0], [0.4], [1.0]]])
    >>> farthest_points(line, 3)
    tensor([[1, 3, 0]])
    """
    real = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
    return _chosen(x.detach(), real, count, periodic)


# one operation for compilers, which would write out its loop
@torch.library.custom_op("operators::farthest_points", mutates_args=())
def _chosen(x: Tensor, real: Tensor, count: int, periodic: bool) -> Tensor:
    directions = x.new_tensor([1.0, 2**0.5, 3**0.5][: x.shape[-1]])
    order = x @ directions
    distance = order.new_full(order.shape, torch.inf).masked_fill(~real, -1.0)
    chosen = torch.empty((len(x), count), dtype=torch.int64, device=x.device)
    for k in range(count):
        farthest = distance >= _EQUAL * distance.amax(dim=1, keepdim=True)
        index = order.masked_fill(~farthest, torch.inf).argmin(dim=1)
        chosen[:, k] = index
        difference = x - x.gather(1, index[:, None, None].expand(-1, 1, x.shape[-1]))
        if periodic:
            difference = difference - difference.round()
        distance = torch.minimum(distance, difference.square().sum(-1))
    return chosen


@_chosen.register_fake
def _(x: Tensor, real: Tensor, count: int, periodic: bool) -> Tensor:
    return x.new_empty((len(x), count), dtype=torch.int64)
