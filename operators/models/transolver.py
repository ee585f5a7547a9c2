r"""Transolver: points are assigned to slices by weights, and attention acts among the slices.

References: H. Wu et al., Transolver: A Fast Transformer Solver for PDEs on General Geometries,
ICML 2024; released code thuml/Transolver, and thuml/Neural-Solver-Library for the sizes.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Preset, at_least
from operators.nn.attention import over_points
from operators.nn.encoder import inner, slice_sums
from operators.nn.pointwise import Convolution, mlp, start_truncated
from operators.nn.tokens import (
    Block,
    Coordinates,
    FieldOperator,
    Positions,
    Real,
    check_heads,
    merged,
    split,
)

# The operator that Transolver and its successors share.


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
        coordinates: Literal["lattice"] | Coordinates,
        lattice: int,
        width: int,
        depth: int,
        heads: int,
        slices: int,
        feedforward: int,
        projection: Projection,
        attention: Callable[[], nn.Module],
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, lattice))
        check_heads(width, heads)
        at_least(1, depth=depth)
        at_least(2, slices=slices, lattice=lattice)
        if lattice != Positions.lattice and coordinates != "lattice":
            raise ValueError(f'lattice={lattice} needs coordinates "lattice", got {coordinates!r}')
        if projection == "convolution":
            self.domains, self.masks = MESHES, False
        self.embed = mlp(self.features, 2 * width, width)
        self.placeholder = nn.Parameter(torch.rand(width) / width)
        self.blocks = nn.ModuleList(Block(width, attention(), feedforward) for _ in range(depth))
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        start_truncated(self)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        return super().encoded(u + self.placeholder, mask)


# LinearNO: points interact through slices as in Transolver, without attention among slices.


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
        t = t.reshape(-1, self.heads, *t.shape[1:])  # (batch, heads, slices, d)
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

    dims = (1, 2, 3)
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
        def attention() -> nn.Module:
            project = projected(projection, dim, width, padding)
            return LinearPhysicsAttention(width, heads, slices, project, shares)

        super().__init__(
            in_channels, out_channels, dim, coordinates, lattice, width, depth, heads, slices,
            feedforward, projection, attention,
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, LinearPhysicsAttention):
                nn.init.orthogonal_(module.query.weight)
                nn.init.orthogonal_(module.key.weight)


# Transolver++: slices with a temperature at each point, and with random weights in training.


_OURS_PLUS = "sizes of Transolver; those of this dataset are not released"

Heads = Float[Tensor, "batch heads n d"]
Weights = Float[Tensor, "batch heads n slices"]


def gumbel(like: Tensor) -> Tensor:
    """Independent Gumbel noise -log(-log U) of the shape of a tensor, with U uniform in [0, 1).

    For logits l, the largest entry of l + noise has index i with probability softmax(l)_i. As in
    the released code, 1e-8 is added to U and to -log U, so that no value is infinite.
    """
    uniform = torch.rand_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
    return -torch.log(-torch.log(uniform + 1e-8) + 1e-8)


class EideticAttention(nn.Module):
    """Multi-head attention among the slices of a field, with one projection x of u.

        w_jg = softmax_g((W x_j + b + noise)_g / τ_j),   τ_j = max(0.01, MLP(x_j) + β).
        t_g = Σ_j w_jg x_j / (Σ_j w_jg + 1e-5).
        v_j = Σ_g w_jg s_g,    s = softmax(QKᵀ/√d) V of Q = t W_q, K = t W_k, V = t W_v.

    The MLP ends in a GELU. The heads share all maps; each head has its own β, which starts at 0.5.
    The noise is Gumbel noise in training, and 0 in evaluation. The cost is linear in the number n
    of points: each head stores n · slices weights.

    Args:
        width: Features of u.
        heads, slices: Number of heads, and of slices in each.
    """

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.project = nn.Linear(width, width)
        self.slices = nn.Linear(d, slices)
        self.temperature = nn.Sequential(
            nn.Linear(d, slices), nn.GELU(), nn.Linear(slices, 1), nn.GELU()
        )
        self.offset = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.query, self.key, self.value = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def weights(self, x: Heads) -> Weights:
        """The positive weights w of points in slices; those of a point sum to 1 over the slices."""
        logits = self.slices(x)
        tau = (self.temperature(x) + self.offset).clamp(min=0.01)
        logits = (logits + gumbel(logits) if self.training else logits) / tau
        return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        x = split(self.project(u).flatten(1, -2), self.heads)
        w = self.weights(x)
        w = w if mask is None else w * mask[:, None, :, None]
        t = means(w.to(x.dtype).mT @ x, w.sum(dim=-2, keepdim=True))
        s = nn.functional.scaled_dot_product_attention(self.query(t), self.key(t), self.value(t))
        return self.out(merged(w.to(s.dtype) @ s).reshape(u.shape))


class TransolverPlus(SliceOperator):
    """An MLP of a and the positions, blocks of attention among slices, and a pointwise linear map.

    It differs in three ways from `Transolver` with projection "linear". Each point has its own
    temperature. In training, noise in the weights makes the assignment to slices random. There is
    one projection of the features instead of two.

    The released code draws the noise in evaluation too, so its predictions are random; here they
    are not. The released code distributes the points of one sample over a group of processes, which
    it always needs; here samples form a batch in one process. The released code has no
    convolutions. It contains a single script, for a data set of aircraft (width 256, depth 4, 32
    slices, feedforward 512). The settings for the six benchmarks of the paper are not released; the
    defaults are those of the Transolver scripts. The authors advise varying the number of slices
    and bounding the temperature, because training is unstable. An independent reproduction (April
    2026, in the released repository) found larger errors than those of Transolver on all six
    benchmarks: Plasticity 0.0019, Elasticity 0.011, Darcy 0.015, Airfoil 0.009, Pipe 0.005,
    Navier-Stokes 0.18.

    Points interact only through sums over points, so values converge under refinement. In
    evaluation with coordinates "none" the operator commutes with permutations of the points.

    Args:
        slices: Number of slices of each head, and of hidden features of the MLP that computes the
            temperature.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({"coordinates": "lattice"}, 606_921, _OURS_PLUS, dim=2),
        "navier-stokes": Preset(
            {"coordinates": "lattice", "width": 256, "slices": 32, "feedforward": 256},
            2_326_089,
            _OURS_PLUS,
            channels=(10, 1),
            dim=2,
        ),
        "airfoil": Preset(_POSITIONS, 590_793, _OURS_PLUS, (2, 1), 2),
        "pipe": Preset(_POSITIONS, 590_793, _OURS_PLUS, (2, 1), 2),
        "elasticity": Preset(_POSITIONS, 590_793, _OURS_PLUS, (2, 1), 2),
        "plasticity": Preset({}, 591_434, _OURS_PLUS, (2, 2), 2),  # time is a channel of a
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
        feedforward: int = 128,
        coordinates: Literal["lattice"] | Coordinates = "raw",
        lattice: int = 8,
        orthogonal: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, dim, coordinates, lattice, width, depth, heads, slices,
            feedforward, "linear", lambda: EideticAttention(width, heads, slices),
        )  # fmt: skip
        for module in self.modules():
            if orthogonal and isinstance(module, EideticAttention):
                nn.init.orthogonal_(module.slices.weight)


_LIBRARY = "Neural-Solver-Library"


class PhysicsAttention(nn.Module):
    """Multi-head attention among the slices of a field (section 3.2 of the paper).

    A projection x of u determines the weight w_jg of point j in slice g. The token t_g of a slice
    is the weighted mean of another projection f of u. Attention maps the tokens to s, and the
    weights map s to values v at the points:

        w_jg = softmax_g((W x_j + b)_g / τ).
        t_g = Σ_j w_jg f_j / (Σ_j w_jg + 1e-5).
        v_j = Σ_g w_jg s_g,    s = softmax(QKᵀ/√d) V of Q = t W_q, K = t W_k, V = t W_v.

    The heads share W, b, W_q, W_k, W_v; each head has its own τ, clamped to [0.1, 5]. The cost is
    linear in the number n of points: each head stores n · slices weights.

    Args:
        width: Features of u.
        heads, slices: Number of heads, and of slices in each.
        projections: The two maps of u, to x and to f.
    """

    def __init__(
        self, width: int, heads: int, slices: int, projections: tuple[nn.Module, nn.Module]
    ) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.to_slices, self.to_values = projections
        self.slices = nn.Linear(d, slices)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.query, self.key, self.value = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, u: Function) -> Heads:
        return split(u.flatten(1, -2), self.heads)

    def weights(self, u: Function) -> Float[Tensor, "batch heads n slices"]:
        """The positive weights w of points in slices; those of a point sum to 1 over the slices."""
        x = self.split(self.to_slices(u))
        return self._sums(x, x[..., :0], None)[0]

    def tokens(
        self, w: Float[Tensor, "batch heads n slices"], f: Heads
    ) -> Float[Tensor, "batch heads slices d"]:
        """The tokens t, which are the weighted means of f over each slice."""
        return means(w.to(f.dtype).mT @ f, w.sum(dim=-2, keepdim=True))

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        x, f = self.split(self.to_slices(u)), self.split(self.to_values(u))
        w, sums, totals = self._sums(x, f, mask)
        t = means(sums, totals)
        s = nn.functional.scaled_dot_product_attention(self.query(t), self.key(t), self.value(t))
        v = w.to(s.dtype) @ s  # (batch, heads, n, d)
        return self.out(merged(v).reshape(u.shape))

    def _sums(
        self, x: Heads, f: Float[Tensor, "batch heads n q"], mask: Real | None
    ) -> tuple[
        Float[Tensor, "batch heads n slices"],
        Float[Tensor, "batch heads slices q"],
        Float[Tensor, "batch heads 1 slices"],
    ]:
        """The weights w and the sums wᵀf and wᵀ1 over the points."""
        # W and b are divided by the temperature, instead of the logits of all points
        batch, tau = len(x), self.temperature.clamp(0.1, 5.0)
        weight, bias = (
            (v / tau).repeat(batch, 1, 1) for v in (self.slices.weight.mT, self.slices.bias)
        )
        real = None if mask is None else mask.repeat_interleave(self.heads, 0)
        flat = slice_sums(x.flatten(0, 1), weight, bias, f.flatten(0, 1), real)
        w, sums, totals = (v.reshape(batch, self.heads, *v.shape[1:]) for v in flat)
        return w, sums, totals


class Transolver(SliceOperator):
    """An MLP of a and the positions, blocks of attention among slices, and a pointwise linear map.

    The defaults are the settings for Darcy in the released benchmark library: 3,090,113 parameters.
    In the scripts of the paper `feedforward` equals the width, 128.

    With projection "convolution" the kernels cover 3 points along each axis at every resolution,
    not a fixed length. The operator accepts every grid, but its values do not converge as grids are
    refined. With "linear" points interact only through sums over points, and values converge.

    Args:
        lattice: Number of reference points along each axis, including the ends. The released
            library has 8 x 8 reference points in the square and 8 on the interval.

    The released code adds the learned vector `placeholder` to the features only if there is no
    input function a. Here the vector is always added and acts as a second bias. The temperature τ
    starts at 0.5 and is always bounded; the released code bounds it for convolutions only. With a
    smaller τ > 0 each point would belong to a single slice, with τ < 0 the order of the weights
    would be inverted, and with a larger τ all weights would be nearly equal.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 3_090_113, f"{_LIBRARY}, Darcy script: 3.09M", dim=2),
        "navier-stokes": Preset(
            {"width": 256, "slices": 32, "feedforward": 512},
            12_282_945,
            f"{_LIBRARY}, Navier-Stokes script: 12.3M",
            channels=(10, 1),
            dim=2,
        ),
        # on meshes a holds the positions, which are not appended again
        "airfoil": Preset(_POSITIONS, 3_073_985, f"{_LIBRARY}, Airfoil script: 3.07M", (2, 1), 2),
        "pipe": Preset(_POSITIONS, 3_073_985, f"{_LIBRARY}, Pipe script: 3.07M", (2, 1), 2),
        "elasticity": Preset(
            _POSITIONS | {"projection": "linear"},
            976_833,
            f"{_LIBRARY}, Elasticity script: 0.977M",
            (2, 1),
            dim=2,
        ),
        # time is a channel of a; the published model embeds it by 33,024 further parameters, has
        # four outputs (258 more) and one input fewer (256 less)
        "plasticity": Preset(
            {"coordinates": "raw", "feedforward": 128},
            2_811_458,
            "Wu et al. 2024, table of settings; Neural-Solver-Library: 2.84M",
            (2, 2),
            dim=2,
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
        projection: Projection = "convolution",
        padding: Padding = "zeros",
        coordinates: Literal["lattice"] | Coordinates = "lattice",
        lattice: int = 8,
        orthogonal: bool = True,
    ) -> None:
        def attention() -> nn.Module:
            to_slices, to_values = (projected(projection, dim, width, padding) for _ in range(2))
            return PhysicsAttention(width, heads, slices, (to_slices, to_values))

        super().__init__(
            in_channels, out_channels, dim, coordinates, lattice, width, depth, heads, slices,
            feedforward, projection, attention,
        )  # fmt: skip
        for module in self.modules():
            if orthogonal and isinstance(module, PhysicsAttention):
                nn.init.orthogonal_(module.slices.weight)
