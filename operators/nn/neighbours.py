r"""Sums over the points near each node of a lattice, or over the nodes near each point.

Each point has candidate nodes: the nodes in the cube that encloses a ball around the point. Their
number depends only on the radius and the spacing of the lattice, and tensor shapes are therefore
independent of the positions. No neighbour search is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from operators.base import Function, Points
from operators.nn.tokens import Real

# Farthest-point sampling: a few points of a cloud that cover it evenly.


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


# Values of functions at fixed sensors, and branch networks with these values as input.


Activation = Literal["tanh", "relu", "gelu", "silu"]
Branch = Literal["mlp", "convolution"]
SensorGrid = Literal["periodic", "cells", "ends", "points"]

CHANNELS = 64  # default of the first convolution of a branch
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def linear(c_in: int, c_out: int, gain: float = 1.0, offset: float = 0.0) -> nn.Linear:
    """A linear layer with Glorot-normal initial weights and initial biases `offset`."""
    layer = nn.Linear(c_in, c_out)
    nn.init.xavier_normal_(layer.weight, gain)
    nn.init.constant_(layer.bias, offset)
    return layer


def mlp(
    sizes: Sequence[int], activation: Activation, gain: float = 1.0, offset: float = 0.0
) -> nn.Sequential:
    """Linear layers with activations between them; `gain` and `offset` are for the last layer."""
    *hidden, last = pairwise(sizes)
    layers: list[nn.Module] = []
    for pair in hidden:
        layers += [linear(*pair), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, linear(*last, gain, offset))


def at_sensors(
    a: Function, x: Points, sensors: int, sensor_grid: SensorGrid
) -> Float[Tensor, "batch ... c_in"]:
    """Values of a at the sensors, which form a grid with `sensors` points along each axis.

    With sensor_grid "points" the sensors are all points of a, and `sensors` is their total number.

    Raises:
        ValueError: If the sensors are not points of the grid x.
    """
    if sensor_grid == "points":
        a = a.flatten(1, -2)
        if a.shape[1] != sensors:
            raise ValueError(
                f"the branch reads a at all points: there must be {sensors}, got {a.shape[1]}"
            )
        return a
    refined = False
    for axis, n in enumerate(x.shape[:-1]):
        if n == sensors:
            continue
        refined = True
        if sensor_grid == "ends":
            stride, rest = divmod(n - 1, sensors - 1)
            start, rule = 0, f"r * {sensors - 1} + 1 points"
        else:
            stride, rest = divmod(n, sensors)
            start, rule = 0, f"r * {sensors} points"
            if sensor_grid == "cells":
                # the centre of a coarse cell is that of a fine cell if the ratio is odd
                start, rule = stride // 2, f"{rule}, r odd"
                rest = rest or stride % 2 == 0
        if rest or not stride:
            raise ValueError(
                f"{sensors} sensors on a grid of kind {sensor_grid!r} lie on grids of {rule} "
                f"along each axis, got {n}"
            )
        chosen = torch.arange(start, n, stride, device=a.device)
        a, x = a.index_select(axis + 1, chosen), x.index_select(axis, chosen)
    if refined and sensor_grid != "ends":
        offset = 0.5 if sensor_grid == "cells" else 0.0
        line = (torch.arange(sensors, dtype=x.dtype, device=x.device) + offset) / sensors
        lines = torch.meshgrid([line] * x.shape[-1], indexing="ij")
        # reads values of x, which waits for the device and breaks the graph of torch.compile once
        if not torch.allclose(x, torch.stack(lines, dim=-1), rtol=0, atol=0.01 / sensors):
            raise ValueError(
                f"sensors on a grid of kind {sensor_grid!r} lie at (j + {offset}) / {sensors}, "
                "but the grid x of the input has no points there"
            )
    return a


def convolutions(
    in_channels: int, channels: int, sensors: int, dim: int, activation: Activation
) -> tuple[list[nn.Module], int]:
    """Two convolutions with stride 2 and 5 kernel points per axis, and their number of outputs."""
    size = ((sensors - 3) // 2 - 3) // 2
    if size < 1:
        raise ValueError(f"the convolution branch needs at least 13 sensors, got {sensors}")
    convolution = nn.Conv1d if dim == 1 else nn.Conv2d
    layers: list[nn.Module] = []
    for c_in, c_out in pairwise((in_channels, channels, 2 * channels)):
        layer = convolution(c_in, c_out, 5, stride=2)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType] - not None
        layers += [layer, ACTIVATIONS[activation]()]
    return [*layers, nn.Flatten()], 2 * channels * size**dim


def sensor_count(sensors: int, sensor_grid: SensorGrid, dim: int) -> int:
    """Total number of sensors, equal to `sensors` if the sensor grid is "points"."""
    return sensors if sensor_grid == "points" else sensors**dim


def branch_net(
    branch: Branch,
    in_channels: int,
    sensors: int,
    sensor_grid: SensorGrid,
    dim: int,
    channels: int,
    hidden: Sequence[int],
    outputs: int,
    activation: Activation,
) -> nn.Sequential:
    """Network that maps values at sensors, shape (batch, c_in, *sensors), to coefficients."""
    if channels != CHANNELS and branch != "convolution":
        raise ValueError(f'channels={channels} needs branch "convolution", got {branch!r}')
    layers = list[nn.Module]([nn.Flatten()])
    values = in_channels * sensor_count(sensors, sensor_grid, dim)
    if branch == "convolution":
        if sensor_grid == "points":
            raise ValueError('the convolution branch needs sensors on a grid, got "points"')
        layers, values = convolutions(in_channels, channels, sensors, dim, activation)
    return nn.Sequential(*layers, *mlp([values, *hidden, outputs], activation))


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
