r"""Some of the points of a cloud as its supernodes, and the points near each of them.

No shape depends on values: there are as many supernodes, and as many candidates of each, as
settings and the number of points say.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from operators.nn.neighbours import within_box
from operators.nn.position import ENTRIES
from operators.nn.tokens import Real

BITS = 20  # of a place along an axis
_EDGE = 1 / 8  # of a cell: points on an edge fall to one side, in float32 too
_ROUNDING = 8 * torch.finfo(torch.float32).eps  # of distances in a box of size 1


class Supernodes(NamedTuple):
    """Which points are supernodes, m of them; e is the number of samples, or 1 for shared points.

    Args:
        index: Their numbers among the points.
        real: False where a sample has fewer points than supernodes; None, nowhere.
    """

    index: Int[Tensor, "e m"]
    real: Bool[Tensor, "e m"] | None


def places_on_curve(p: Float[Tensor, "e n dim"]) -> Int[Tensor, "e n"]:
    """Places of points of [0, 1]^dim on the Z-curve, cells of side 2^-20 in its order.

    The bits of the coordinates in turn, the largest first: halves of the box, one after another,
    then halves of these. Along one axis, the order of the points.

    References: G. M. Morton, A computer oriented geodetic data base, IBM 1966.

    >>> corners = torch.tensor([[[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    >>> places_on_curve(corners).argsort()
    tensor([[3, 2, 1, 0]])
    """
    cells = (p.double() * 2**BITS + _EDGE).floor().long().clamp(0, 2**BITS - 1)
    bits = torch.arange(BITS, device=p.device)
    axes = torch.arange(p.shape[-1], device=p.device)
    set_bits = (cells[..., None] >> bits) & 1  # (e, n, dim, bits)
    return (set_bits << (bits * p.shape[-1] + axes[:, None])).flatten(2).sum(dim=-1)


def supernodes(
    x: Float[Tensor, "e n dim"], count: int, random: bool, mask: Real | None = None
) -> Supernodes:
    """So many of the points, or all of them if there are fewer.

    They stand at equal distances in an order of the points, the middle of each part of it: an order
    by their places on a curve, or a random one, in which they are a uniform draw. Either way the
    supernodes are as dense as the points. By the curve they are a function of the set of points;
    points of one cell of it, 2^-20 of the box, stay in the order that they are given in.

    >>> supernodes(torch.tensor([[[0.3], [0.1], [0.9], [0.2], [0.4], [0.8]]]), 2, False).index
    tensor([[3, 5]])
    """
    x = x if mask is None else x.expand(len(mask), -1, -1)
    n = x.shape[1]
    if random:
        keys = torch.rand(x.shape[:2], device=x.device)
        keys = keys if mask is None else keys.masked_fill(~mask, 2.0)
    else:
        keys = places_on_curve(within_box(x, x, mask))
        keys = keys if mask is None else keys.masked_fill(~mask, 2**62)
    order = keys.argsort(dim=-1, stable=True)
    j = torch.arange(min(count, n), device=x.device)
    if mask is None:
        return Supernodes(order[:, (2 * j + 1) * n // (2 * len(j))], None)
    points = mask.sum(dim=-1, keepdim=True)
    chosen = points.clamp(min=1, max=count)
    ranks = ((2 * j + 1) * points // (2 * chosen)).clamp(max=n - 1)
    return Supernodes(order.gather(1, ranks), j < chosen)


@torch.no_grad()
def points_near(
    centres: Float[Tensor, "e m dim"],
    x: Float[Tensor, "e n dim"],
    radius: float,
    most: int,
    mask: Real | None = None,
) -> tuple[Int[Tensor, "e m k"], Bool[Tensor, "e m k"]]:
    """The nearest points to each centre, and which of them count as its neighbours.

    Those within the radius, at most so many of them, the nearest ones. Of points at one distance
    all count or none does, so that their order has no influence: where more than `most` lie within
    the radius, the neighbours are those nearer than number `most + 1`.

    >>> x = torch.tensor([[[0.0], [0.1], [0.2], [0.9]]])
    >>> index, near = points_near(x[:, 1:2], x, 0.5, 2)
    >>> index[near].tolist()  # both others are 0.1 away, and there is room for one of them
    [1]
    """
    if mask is not None:
        x = x.expand(len(mask), -1, -1)
    rows = max(1, ENTRIES // x[..., 0].numel())
    found = [_nearest(some, x, most, mask) for some in centres.split(rows, dim=1)]
    squared, index = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
    near = squared <= radius**2 + _ROUNDING * radius
    if x.shape[1] <= most:
        return index, near
    beyond = squared[..., -1:]
    least = (beyond - _ROUNDING * beyond.sqrt()).nan_to_num(math.inf)  # where there is padding
    return index[..., :-1], (near & (squared < least.clamp(min=1e-30)))[..., :-1]


def _nearest(
    centres: Float[Tensor, "e m dim"], x: Float[Tensor, "e n dim"], most: int, mask: Real | None
) -> tuple[Float[Tensor, "_ m k"], Int[Tensor, "_ m k"]]:
    """Squared distances to the nearest points, one more than `most`, and their numbers."""
    squared = torch.zeros_like(centres[:, :, :1])
    for c, p in zip(centres.unbind(-1), x.unbind(-1), strict=True):
        squared = squared + (c[:, :, None] - p[:, None]).square()
    if mask is not None:
        squared = squared.masked_fill(~mask[:, None], math.inf)
    found = squared.topk(min(most + 1, x.shape[1]), largest=False)
    return found.values, found.indices
