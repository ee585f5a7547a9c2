r"""Sums over the points near each node of a lattice, or over the nodes near each point.

Each point has candidate nodes: the nodes in the cube that encloses a ball around the point. Their
number depends only on the radius and the spacing of the lattice, and tensor shapes are therefore
independent of the positions. No neighbour search is needed.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from operators.nn.tokens import Real

_MARGIN = 1e-4  # in spacings: nodes up to this far beyond the radius along an axis are candidates
_SLACK = 1 + 4 * torch.finfo(torch.float32).eps  # so that float32 and float64 find the same nodes


class Edges(NamedTuple):
    """Pairs of a point and a node of a lattice, with k candidate nodes for each point.

    The first axis has length e: the number of samples, or 1 if all samples share the points.

    Args:
        points: Positions of the points.
        node_points: Positions of the nodes.
        nodes: Indices of the candidate nodes of each point.
        near: Whether a candidate lies within the radius; False at padding.
        to_nodes: If True, a sum at a node (the query) runs over points (the sources). If False, a
            sum at a point runs over nodes.
    """

    points: Float[Tensor, "e n dim"]
    node_points: Float[Tensor, "m dim"]
    nodes: Int[Tensor, "e n k"]
    near: Bool[Tensor, "e n k"]
    to_nodes: bool


@dataclass(frozen=True)
class Lattice:
    """A product grid on [-1, 1]^dim, with `sizes` points along the axes, including the ends.

    >>> edges = Lattice([3]).edges(torch.tensor([[[0.2]], [[-3.0]]]), 0.9, to_nodes=True)
    >>> edges.nodes[edges.near]  # the first sample is near 0 and 1, the other far from all
    tensor([1, 2])
    """

    sizes: list[int]

    @property
    def count(self) -> int:
        """Number of nodes."""
        return math.prod(self.sizes)

    def points(self, like: Tensor) -> Float[Tensor, "m dim"]:
        """Positions of the nodes, in the dtype and on the device of `like`."""
        axes = [torch.arange(n, device=like.device).to(like) * 2 / (n - 1) - 1 for n in self.sizes]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)

    def edges(
        self, p: Float[Tensor, "e n dim"], radius: float, to_nodes: bool, mask: Real | None = None
    ) -> Edges:
        """Pairs of the points p and their candidate nodes; `near` marks those within the radius."""
        p = p if mask is None else p.expand(len(mask), -1, -1)
        dim, nodes, squared = len(self.sizes), 0, 0.0
        near = torch.ones(*p.shape[:2], *[1] * dim, dtype=torch.bool, device=p.device)
        for i, n in enumerate(self.sizes):
            h = 2 / (n - 1)
            position = (p[..., i].clamp(-2 - radius, 2 + radius) + 1) / h  # in spacings
            first = (position - radius / h - _MARGIN).ceil()
            steps = torch.arange(math.floor(2 * (radius / h + _MARGIN)) + 1, device=p.device)
            node = first[..., None].long() + steps
            shape = [*p.shape[:2], *[1] * i, len(steps), *[1] * (dim - i - 1)]
            offset = p[..., i, None] - (node.clamp(0, n - 1).to(p) * h - 1)
            near = near & ((node >= 0) & (node < n)).view(shape)
            nodes = nodes * n + node.clamp(0, n - 1).view(shape)
            squared = squared + offset.square().view(shape)
        near = (near & (squared <= radius**2 * _SLACK)).flatten(2)
        near = near if mask is None else near & mask[..., None]
        return Edges(p, self.points(p), torch.as_tensor(nodes).flatten(2), near, to_nodes)


def of_sources(v: Float[Tensor, "batch _ c"], edges: Edges) -> Float[Tensor, "_ n _ c"]:
    """Values v of points or nodes, at the source of each pair; broadcasts over the candidates."""
    return v[:, :, None] if edges.to_nodes else gather(v, edges.nodes)


def of_queries(v: Float[Tensor, "batch _ c"], edges: Edges) -> Float[Tensor, "_ n _ c"]:
    """Values v of points or nodes, at the query of each pair; broadcasts over the candidates."""
    return gather(v, edges.nodes) if edges.to_nodes else v[:, :, None]


def summed(v: Float[Tensor, "batch n k c"], edges: Edges) -> Float[Tensor, "batch _ c"]:
    """Sum of the values v over the pairs of each query."""
    if not edges.to_nodes:
        return v.sum(dim=2)
    m = len(edges.node_points)
    if len(edges.nodes) == 1:
        zeros = v.new_zeros(len(v), m, v.shape[-1])
        return zeros.index_add(1, edges.nodes.flatten(), v.flatten(1, 2))
    zeros = v.new_zeros(len(v) * m, v.shape[-1])
    return zeros.index_add(0, _rows(edges.nodes, m), v.flatten(0, 2)).unflatten(0, (-1, m))


def ends(edges: Edges) -> tuple[Float[Tensor, "e n k dim"], Float[Tensor, "e n k dim"]]:
    """Positions of the source and of the query of each pair."""
    points = edges.points[:, :, None].expand(*edges.nodes.shape, -1)
    nodes = edges.node_points[edges.nodes]
    return (points, nodes) if edges.to_nodes else (nodes, points)


def gather(v: Float[Tensor, "batch m c"], index: Int[Tensor, "e n k"]) -> Float[Tensor, "_ n k c"]:
    """Select the rows of v with the given indices. If e is 1, all samples share the indices.

    >>> gather(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[[2, 0]]])).flatten()
    tensor([3., 1.])
    """
    e = len(index)
    if e == 1:
        rows = v.index_select(1, index.flatten())
    else:
        rows = v.expand(e, -1, -1).flatten(0, 1).index_select(0, _rows(index, v.shape[1]))
    return rows.reshape(-1, *index.shape[1:], v.shape[-1])


def _rows(index: Int[Tensor, "e n k"], m: int) -> Int[Tensor, " rows"]:
    """Convert row indices of each sample to indices into the concatenated rows of all samples."""
    samples = torch.arange(len(index), device=index.device)
    return (index + m * samples[:, None, None]).flatten()


def within_box(
    p: Float[Tensor, "e _ dim"], x: Float[Tensor, "e n dim"], mask: Real | None = None
) -> Float[Tensor, "_ _ dim"]:
    """Apply to p the affine map that takes the bounding box of x in each sample to [0, 1]^dim."""
    real = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
    low = x.masked_fill(~real[..., None], math.inf).amin(dim=1, keepdim=True)
    high = x.masked_fill(~real[..., None], -math.inf).amax(dim=1, keepdim=True)
    return (p - low) / torch.where(high > low, high - low, 1)


def statistics(edges: Edges) -> Float[Tensor, "e _ s"]:
    """Statistics of the sources near each query; 0 for queries without sources.

    The statistics are the number of sources, mean and variance of their distances, the mean of
    their offsets, and the eigenvalues of the covariance of the offsets, in descending order.
    """
    source, query = ends(edges)
    offset = source - query
    distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
    second = offset[..., :, None] * offset[..., None, :]
    parts = [torch.ones_like(distance), distance, offset, second.flatten(-2)]
    dim = offset.shape[-1]
    sums = summed(torch.cat(parts, dim=-1) * edges.near[..., None], edges)
    count = sums[..., :1]
    length, mean, second = (sums[..., 1:] / count.clamp(min=1)).split([1, dim, dim**2], dim=-1)
    second = second.unflatten(-1, (dim, dim))
    # the mean squared distance is the trace of the second moments
    variance = second.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - length.square()
    covariance = second - mean[..., :, None] * mean[..., None, :]
    spread = eigenvalues(covariance)
    return torch.cat([count, length, variance.clamp(min=0), mean, spread], dim=-1)


def eigenvalues(c: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim"]:
    """Eigenvalues of symmetric 1 x 1 or 2 x 2 matrices, in descending order."""
    if c.shape[-1] == 1:
        return c[..., 0]
    half = (c[..., 0, 0] + c[..., 1, 1]) / 2
    deviator = torch.stack([(c[..., 0, 0] - c[..., 1, 1]) / 2, c[..., 0, 1]], dim=-1)
    root = torch.linalg.vector_norm(deviator, dim=-1)
    return torch.stack([half + root, half - root], dim=-1)


def standardized(f: Float[Tensor, "e n s"], real: Real | None) -> Float[Tensor, "_ n s"]:
    """Scale f to mean 0 and standard deviation 1 over the points, ignoring padding.

    If the standard deviation is below 1e-6, f is not divided by it.
    """
    weight = f.new_ones(1, f.shape[1], 1) if real is None else real[..., None].to(f)
    n = weight.sum(dim=1, keepdim=True)
    f = f - (f * weight).sum(dim=1, keepdim=True) / n
    std = ((f.square() * weight).sum(dim=1, keepdim=True) / (n - 1).clamp(min=1)).sqrt()
    return f / std.masked_fill(std < 1e-6, 1)
