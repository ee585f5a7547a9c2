r"""FactFormer: attention along each axis of a grid; kernels depend on means over the other axes.

References: Z. Li, D. Shu and A. Barati Farimani, Scalable Transformer for PDE Surrogate Modeling,
NeurIPS 2023 (arXiv 2305.17560); released code BaratiLab/FactFormer at commit cd3e263.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import (
    MESHES,
    Function,
    Mask,
    Operator,
    Points,
    Preset,
    Targets,
    at_least,
    check_input,
)
from operators.nn.pointwise import CONVOLUTIONS, GEGLU, alternating, mlp
from operators.nn.tokens import RandomWaves, mesh, rotated, split

_CODE = "released settings, counted from the released classes"
_NAVIER_STOKES = {
    "depth": 4, "heads": 8, "wave_scale": 8.0, "decoder": "marching", "frame_channels": 1,
}  # fmt: skip
_OURS = "not published: the settings of Darcy flow, by indices"

Line = Float[Tensor, "n 1"] | Float[Tensor, "batch n 1"]
Coordinate = Float[Tensor, "_ 1"] | Float[Tensor, "batch _ 1"]
Lines = Float[Tensor, "batch heads *grid d"]


class AxisKernel(nn.Module):
    """K_ij = s q_i·k_j between the indices i and j along one axis, in each head.

    The queries are q = φ W_q and the keys k = φ W_k, with φ = MLP(LN(ū W)), where ū is the mean of
    u over the other axes. Both are rotated by an angle that depends on the coordinate (rotary
    positions). There is neither a softmax nor a division by the number of points.

    Args:
        width, heads: Features of u, and number of heads.
        features: Features of q and k in each head.
        scale: The factor s.
    """

    def __init__(self, width: int, heads: int, features: int, scale: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.pooled = nn.Linear(width, width, bias=False)
        self.norm, self.mlp = nn.LayerNorm(width), GEGLU(width, width, width)
        self.query, self.key = (nn.Linear(width, heads * features, bias=False) for _ in range(2))
        for linear in (self.query, self.key):
            nn.init.xavier_uniform_(linear.weight, gain=0.02)

    def forward(
        self, means: Float[Tensor, "batch n width"], x: Line
    ) -> Float[Tensor, "batch heads n n"]:
        """The kernel along an axis with coordinates x, computed from the means ū."""
        f = self.mlp(self.norm(self.pooled(means)))
        q, k = (rotated(split(w(f), self.heads), x, 64.0) for w in (self.query, self.key))
        return (q * self.scale) @ k.mT


def along(kernels: list[Float[Tensor, "batch heads _ _"]], v: Lines) -> Lines:
    """Σ_j K₁[i₁, j₁] K₂[i₂, j₂] ... v_j, computed as one matrix product along each axis."""
    for axis, kernel in enumerate(kernels, start=2):
        w = v.movedim(axis, 2)
        w = (kernel @ w.flatten(3)).reshape(w.shape)
        v = w.movedim(2, axis)
    return v


class Block(nn.Module):
    """W₂ GELU(W₁ N(Σ_j K_ij v_j)) with v = LN(u) W and the product K of the kernels of all axes.

    Args:
        width, heads: Features of u, and number of heads.
        head_features: Features of v in each head.
        multiplier: Features of q and k in each head, in multiples of `head_features`.
        normalization: The norm N, see `FactFormer`.
        dim: Number of axes.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_features: int,
        multiplier: int,
        normalization: Literal["rows", "heads"],
        dim: int,
    ) -> None:
        super().__init__()
        self.heads, self.normalization = heads, normalization
        features = head_features * multiplier
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, heads * head_features, bias=False)
        self.means = nn.Linear(width, width, bias=False)
        scale = features**-0.5 if multiplier > 4 else 1.0
        self.kernels = nn.ModuleList(AxisKernel(width, heads, features, scale) for _ in range(dim))
        self.out = mlp(heads * head_features, width, width, bias=False)

    def forward(self, u: Function, axes: list[Coordinate]) -> Function:
        u, grid = self.norm(u), range(1, u.ndim - 1)
        kernels = []
        for axis, kernel, x in zip(grid, self.kernels, axes, strict=True):
            # a linear map without bias: it may follow the mean, on fewer points
            rest = [i for i in grid if i != axis]
            means = u.mean(rest) if rest else u
            kernels.append(kernel(self.means(means), x))
        v = self.value(u).unflatten(-1, (self.heads, -1)).movedim(-2, 1)
        v = along(kernels, v)  # (batch, heads, *grid, d)
        if self.normalization == "heads":
            v = nn.functional.layer_norm(v, v.shape[2:])
        v = v.movedim(1, -2).flatten(-2)
        if self.normalization == "rows":
            v = nn.functional.layer_norm(v, v.shape[2:])
        return self.out(v)


class Grouped(nn.Module):
    """A group norm for fields with channels last, followed by another module.

    Args:
        groups, channels: Numbers of groups and of channels.
        rest: The module after the norm.
    """

    def __init__(self, groups: int, channels: int, rest: nn.Module) -> None:
        super().__init__()
        self.norm, self.rest = nn.GroupNorm(groups, channels), rest

    def forward(self, u: Function) -> Float[Tensor, "batch *grid _"]:
        return self.rest(self.norm(u.movedim(-1, 1)).movedim(1, -1))


class GroupedLinear(nn.Module):
    """A block-diagonal linear map without bias: each group of features has its own matrix."""

    def __init__(self, groups: int, in_features: int, out_features: int) -> None:
        super().__init__()
        each = in_features // groups
        self.weight = nn.Parameter(torch.empty(groups, each, out_features // groups))
        nn.init.uniform_(self.weight, -(each**-0.5), each**-0.5)

    def forward(self, u: Function) -> Float[Tensor, "batch *grid _"]:
        parts = u.unflatten(-1, (len(self.weight), 1, -1))
        return (parts @ self.weight).flatten(-3)


class ConvolutionDecoder(nn.Module):
    """MLP(N([v, u])), where v is the result of convolutions of u on a coarser grid and on the grid.

    The first two convolutions reduce u to every second point. Their result is copied back to the
    nearest points of the grid, and two more convolutions follow. N is a group norm.
    """

    def __init__(self, width: int, dim: int, outputs: int) -> None:
        super().__init__()
        half, kind = width // 2, CONVOLUTIONS[dim]
        self.down = nn.Sequential(
            kind(width, half, 3, stride=2, padding=1), nn.GELU(), kind(half, half, 3, padding=1)
        )
        self.up = nn.Sequential(
            kind(half, half, 3, padding=1), nn.GELU(), kind(half, width, 3, padding=1)
        )
        last = nn.Linear(2 * width, width, bias=False), nn.Linear(width, outputs)
        self.head = Grouped(8, 2 * width, alternating(nn.GELU, last))

    def forward(self, u: Function) -> Float[Tensor, "batch *grid _"]:
        v = nn.functional.instance_norm(u.movedim(-1, 1))
        v = nn.functional.interpolate(self.down(v), tuple(u.shape[1:-1]), mode="nearest")
        return self.head(torch.cat([self.up(v).movedim(1, -1), u], dim=-1))


class LatentDecoder(nn.Module):
    """u <- W u, then for each frame: u <- u + b, u <- u + MLP(LN(u)), frame = MLP(N(u)).

    Each frame has its own learned vector b; the maps are the same for all frames. N is a group
    norm.

    Args:
        width: Features of u before W, which doubles their number.
        outputs: Number of output channels of all frames together.
        frame_channels: Number of channels of a frame. 0: all outputs are one frame.
    """

    def __init__(self, width: int, outputs: int, frame_channels: int) -> None:
        super().__init__()
        half, twice = width // 2, 2 * width
        self.outputs, self.frame_channels = outputs, frame_channels or outputs
        self.expand = nn.Linear(width, twice, bias=False)
        frames = max(1, outputs // self.frame_channels)
        self.times = nn.Parameter(0.02 * torch.randn(frames, twice))
        self.norm, self.step = nn.LayerNorm(twice), mlp(twice, width, twice)
        first, second = GroupedLinear(8, twice, width), nn.Linear(width, half, bias=False)
        last = nn.Linear(half, self.frame_channels)
        self.head = Grouped(16, twice, alternating(nn.GELU, (first, second, last)))

    def forward(self, u: Function) -> Float[Tensor, "batch *grid _"]:
        if self.outputs % self.frame_channels:
            raise ValueError(
                f"expected frames of {self.frame_channels} channels, got {self.outputs} channels "
                "in all"
            )
        u, frames = self.expand(u), []
        for time in self.times:
            u = u + time
            u = u + self.step(self.norm(u))
            frames.append(self.head(u))
        return torch.cat(frames, dim=-1)


class FactFormer(Operator):
    """Blocks of attention along each axis; before each block, random waves of x are added to u.

    The kernel between two points is the product of one kernel for each axis. On a grid of n = n₁ n₂
    points this takes n (n₁ + n₂) products instead of n².

    In two dimensions the released code at commit cd3e263 gives the same values with the same
    weights. A later commit has the norm "heads" instead, but fails with an error: it flattens the
    grid to one axis and then adds the result to values on the grid. The norm of that commit also
    adds 1e-8 instead of 1e-5 to the variance, and divides the variance by n - 1 instead of n.

    The paper divides the kernels by the number of points; the released code does not. The norm
    after the kernels removes such a factor, apart from the effect of the 1e-5 in its denominator.
    The model of this name in the library thuml/Neural-Solver-Library has a softmax; its parameter
    counts are not comparable.

    Args:
        width: Features of a point, a multiple of 8.
        depth: Number of blocks.
        heads: Heads of each block.
        head_features: Features of values in each head.
        multiplier: Features of queries and keys in each head, in multiples of `head_features`.
        normalization: The norm after the kernels, without weights. "rows": over all features and
            all points with the same index along the first axis. The released `InstanceNorm2d` acts
            in this way, because its input has channels last. "heads": over the points and the
            features of each head.
        wave_scale: Standard deviation of the frequencies of the random waves, in waves per unit
            length.
        decoder: "convolution", as released for Darcy flow: convolutions on a grid of every second
            point. A pointwise MLP then acts on their result and the features together. "marching",
            as released for Navier-Stokes: a residual MLP, applied once for each frame, and a
            pointwise MLP.
        frame_channels: Number of channels of a frame, if the channels of u are consecutive frames
            (the task `block`). This needs decoder "marching". 0: u is one frame.
        indices: Whether the indices of points in the grid, j/n along each axis, replace their
            positions, for curved meshes. If False, the coordinate of a grid line is the mean over
            its points.
    """

    dims = (1, 2, 3)
    domains = MESHES
    points_by_sample = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 3_749_953, _CODE, dim=2),
        "navier-stokes": Preset(_NAVIER_STOKES, 3_463_489, _CODE, (10, 4), dim=2),
        "airfoil": Preset({"indices": True}, 3_750_081, _OURS, (2, 1), dim=2),
        "pipe": Preset({"indices": True}, 3_750_081, _OURS, (2, 1), dim=2),
        "plasticity": Preset({"indices": True}, 3_750_210, _OURS, (2, 2), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 3,
        heads: int = 12,
        head_features: int = 64,
        multiplier: int = 2,
        normalization: Literal["rows", "heads"] = "rows",
        wave_scale: float = 1.0,
        decoder: Literal["convolution", "marching"] = "convolution",
        frame_channels: int = 0,
        indices: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        at_least(1, depth=depth, heads=heads, head_features=head_features, multiplier=multiplier)
        at_least(0, frame_channels=frame_channels)
        if width < 1 or width % 8:
            raise ValueError(f"width must be a positive multiple of 8, got {width}")
        if head_features * multiplier % 2:
            raise ValueError(
                f"head_features times multiplier must be even, got {head_features * multiplier}"
            )
        if frame_channels and decoder != "marching":
            raise ValueError(f"frame_channels needs decoder 'marching', got {decoder!r}")
        self.indices = indices
        self.embed = nn.Linear(in_channels, width)
        self.waves = nn.ModuleList(
            nn.Sequential(RandomWaves(dim, width, wave_scale), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.blocks = nn.ModuleList(
            Block(width, heads, head_features, multiplier, normalization, dim) for _ in range(depth)
        )
        if decoder == "convolution":
            self.end = ConvolutionDecoder(width, dim, out_channels)
        else:
            self.end = LatentDecoder(width, out_channels, frame_channels)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        if self.indices:
            x = mesh(a.shape[1:-1], x)
        axes = [line(x, i) for i in range(self.dim)]
        u = self.embed(a)
        for waves, block in zip(self.waves, self.blocks, strict=True):
            u = u + waves(x)
            u = u + block(u, axes)
        return self.end(u)


def line(x: Points, axis: int) -> Coordinate:
    """Component `axis` of the points x, averaged over all other axes of the grid."""
    dim = x.shape[-1]
    first = x.ndim - 1 - dim  # the first axis of the grid, 1 where samples have their own points
    rest = [first + i for i in range(dim) if i != axis]
    values = x[..., axis]
    return (values.mean(rest) if rest else values)[..., None]
