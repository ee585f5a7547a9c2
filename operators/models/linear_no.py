r"""LinearNO: points interact through slices as in Transolver, without attention among slices.

References: W. Hu et al., Transolver Is a Linear Transformer: Revisiting Physics-Attention Through
the Lens of Linear Attention, AAAI 2026 (arXiv 2511.06294).
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import nn

from operators.base import Function, Preset, at_least
from operators.nn.attention import over_points
from operators.nn.encoder import inner, slice_sums
from operators.nn.tokens import (
    Coordinates,
    Padding,
    Positions,
    Projection,
    Real,
    SliceOperator,
    check_heads,
    means,
    merged,
    projected,
    split,
)

_OURS = "sizes of Transolver; no code was found, and no count is known"
_POSITIONS = {"coordinates": "none"}  # on meshes a holds the positions

Shares = Literal["points", "slices"]


class LinearPhysicsAttention(nn.Module):
    """v = softmax_g(x W_q + b) Kᵀ(x W_v) in each head, where x is a projection of u.

    softmax_g is taken over the slices. K contains the share of each point in each slice. The shares
    in a slice sum to 1 over the points:

        "points"   K = softmax_n(x W_k).
        "slices"   K = w / (Σ_n w + 1e-5),  w = softmax_g(x W_k + b).

    All heads share W_q, W_k and W_v. With "points" K has no bias, because it would cancel. The cost
    is linear in the number n of points: 2 n · slices numbers are stored for each head.

    Args:
        width: Features of u.
        heads, slices: Numbers of heads and of slices in each head.
        project: The map from u to x.
        shares: The definition of K, "points" or "slices".
    """

    def __init__(
        self, width: int, heads: int, slices: int, project: nn.Module, shares: Shares
    ) -> None:
        super().__init__()
        self.heads, self.shares, d = heads, shares, width // heads
        self.project = project
        self.query = nn.Linear(d, slices)
        self.key = nn.Linear(d, slices, bias=shares == "slices")
        self.value = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        x = split(self.project(u).flatten(1, -2), self.heads)
        flat, f = x.flatten(0, 1), self.value(x).flatten(0, 1)
        real = None if mask is None else mask.repeat_interleave(self.heads, 0)
        if self.shares == "points":
            points = None if real is None else real[..., None]
            t = inner(over_points(self.key(flat), points).to(f.dtype), f)
        else:
            weight, bias = (v.repeat(len(flat), 1, 1) for v in (self.key.weight.mT, self.key.bias))
            _, sums, totals = slice_sums(flat, weight, bias, f, real)
            t = means(sums, totals)
        t = t.unflatten(0, (-1, self.heads))  # (batch, heads, slices, d)
        v = self.query(x).softmax(dim=-1).to(t.dtype) @ t
        return self.out(merged(v).reshape(u.shape))


class LinearNO(SliceOperator):
    """An MLP of a and the positions, blocks that couple points through slices, and a linear map.

    There are three changes to Transolver: no attention among slices, separate maps from the points
    to the slices and back, and one projection of the features instead of two. The two models agree
    if LinearNO has shares "slices" and W_q = W_k, and if in Transolver both projections are equal,
    the temperature is 1, and the identity replaces the attention among slices. With shares "points"
    this model is not a special case of Transolver.

    The paper is the only source; no released code was found. The paper states three things. Q is a
    softmax over slices and K a softmax over points. Models on grids have convolutions. On average
    there are 40 % fewer parameters than in Transolver. Our interpretation is one projection x,
    shared by Q, K and V, which gives 38 % fewer parameters with the settings of Darcy. A separate
    convolution for each of Q, K and V would give more parameters than Transolver has.

    With projection "convolution" the kernels cover 3 points along each axis at every resolution,
    not a fixed length. The operator accepts every grid, but its values do not converge as grids are
    refined. With projection "linear" points interact only through sums over points, and values
    converge.

    Args:
        shares: How the shares K of the points in a slice are computed. "points": by a softmax over
            the points. "slices", as in Transolver: by a softmax over the slices, divided by its sum
            over the points.
        projection: The map of the features before Q, K and V: "convolution" on grids, or "linear",
            which takes point clouds too. With "linear" and coordinates "none" the operator commutes
            with permutations of the points.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 1_913_473, _OURS, dim=2),
        "navier-stokes": Preset(
            {"width": 256, "slices": 32, "feedforward": 512}, 7_554_049, _OURS, (10, 1), 2
        ),
        "airfoil": Preset(_POSITIONS, 1_897_345, _OURS, (2, 1), 2),
        "pipe": Preset(_POSITIONS, 1_897_345, _OURS, (2, 1), 2),
        "elasticity": Preset(_POSITIONS | {"projection": "linear"}, 848_769, _OURS, (2, 1), 2),
        # time is a channel of a
        "plasticity": Preset(
            {"coordinates": "raw", "feedforward": 128}, 1_634_818, _OURS, (2, 2), 2
        ),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        slices: int = 64,
        feedforward: int = 256,
        shares: Shares = "points",
        projection: Projection = "convolution",
        padding: Padding = "zeros",
        coordinates: Literal["lattice"] | Coordinates = "lattice",
        lattice: int = 8,
    ) -> None:
        check_heads(width, heads)
        at_least(2, slices=slices)

        def attention() -> nn.Module:
            project = projected(projection, dim, width, padding)
            return LinearPhysicsAttention(width, heads, slices, project, shares)

        super().__init__(
            in_channels,
            out_channels,
            dim,
            Positions(coordinates, dim, lattice),
            width,
            depth,
            feedforward,
            projection,
            attention,
        )
        for module in self.modules():
            if isinstance(module, LinearPhysicsAttention):
                nn.init.orthogonal_(module.query.weight)
                nn.init.orthogonal_(module.key.weight)
