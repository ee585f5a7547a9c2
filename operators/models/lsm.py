r"""LSM: a U-Net; on each of its grids a spectral map acts on a few latent tokens of each patch.

References: H. Wu, T. Hu, H. Luo, J. Wang and M. Long, Solving High-Dimensional PDEs with Latent
Spectral Models, ICML 2023, sections 3.1-3.3; released code thuml/Latent-Spectral-Models, and
thuml/Neural-Solver-Library for the sizes and for clouds.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from operators.base import MESHES, Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.pointwise import Norm, PooledUNet, mlp
from operators.nn.resample import joined, windows
from operators.nn.spectral import Deformation, NonuniformConv, Transform
from operators.nn.tokens import (
    Coordinates,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
    merged,
    split,
)

_LIBRARY = "Neural-Solver-Library (db942b72)"
_MESH = {"coordinates": "none", "width": 32}
_CLOUD = _MESH | {"latent": 96, "transform": "sum"}

Image = Float[Tensor, "batch c *grid"]


class SpectralBlock(nn.Module):
    """Attention from points u to latent tokens t, a trigonometric series of t, and attention back.

        t = softmax(t₀Kᵀ) V + t₀,    K, V = u W_k, u W_v,  t₀ learned.
        t <- t + Σ_i α_i sin(π i t / basis) + β_i cos(π i t / basis),    i = 0 ... basis - 1.
        u <- u + softmax(Q tᵀ) t,    Q = u W_q.

    All of this happens in each head separately. Each feature has its own α and β, which are the
    same for all tokens. Attention scores have no factor 1/√d.

    Args:
        width, heads: Number of features, and number of heads of d = width/heads features each.
        tokens, basis: Number of tokens in each head, and number of frequencies i.
    """

    frequencies: Tensor

    def __init__(self, width: int, heads: int, tokens: int, basis: int) -> None:
        super().__init__()
        self.heads = heads
        self.latent = nn.Parameter(torch.rand(heads, tokens, width // heads) / width)
        self.weight = nn.Parameter(torch.rand(width, 2, basis) / width)  # α, β
        self.register_buffer("frequencies", torch.arange(basis).float(), persistent=False)
        self.key_value = nn.Linear(width, 2 * width)
        self.query = nn.Linear(width, width)

    def transition(
        self, t: Float[Tensor, "batch heads tokens d"]
    ) -> Float[Tensor, "batch heads tokens d"]:
        """The tokens t plus a learned series of sines and cosines of them."""
        phase = t[..., None] * (math.pi / len(self.frequencies)) * self.frequencies
        alpha, beta = self.weight.unflatten(0, (self.heads, 1, -1)).unbind(-2)
        return t + (alpha * phase.sin() + beta * phase.cos()).sum(-1)

    def forward(self, u: Tokens) -> Tokens:
        k, v = (split(part, self.heads) for part in self.key_value(u).chunk(2, dim=-1))
        start = self.latent.expand(len(u), -1, -1, -1)
        t = self.transition(scaled_dot_product_attention(start, k, v, scale=1.0) + start)
        q = split(self.query(u), self.heads)
        return u + merged(scaled_dot_product_attention(q, t, t, scale=1.0))


class Patches(nn.Module):
    """Applies a block separately to each of the patches of an image, `count` along each axis."""

    def __init__(self, block: SpectralBlock, count: int) -> None:
        super().__init__()
        self.block, self.count = block, count

    def forward(self, u: Image) -> Image:
        sides = [n // self.count for n in u.shape[2:]]
        parts = windows(u.movedim(1, -1), sides)  # (batch, *patches, points of a patch, width)
        parts = self.block(parts.flatten(0, -3)).view(parts.shape)
        return joined(parts, sides).movedim(-1, 1)


class LSM(TokenOperator):
    """An MLP of a and the positions, a U-Net with spectral blocks on each of its grids, and an MLP.

    The defaults are the settings of the Darcy example in the released benchmark library. On boxes
    and meshes the U-Net acts on the grid of the points. With a `latent` grid the points may lie
    anywhere: as in Geo-FNO, a learned deformation moves them, and Fourier sums (`NonuniformConv`)
    map the features to the latent grid and back.

    Convolution kernels cover 3 points at every resolution, whereas a patch covers a fixed fraction
    of the grid. The operator accepts every grid, but its values do not converge as grids are
    refined. With a `latent` grid, whose size is fixed, and transform "mean" values converge as
    points are added.

    Differences from the released library. Here the number of patches is given; the library fixes
    the number of points in a patch instead, for all grids. If exactly one axis of a grid needs no
    padding with zeros, the library crops the result wrongly; this is corrected here. With a
    `latent` grid frequencies are completed exactly, see `GeoFNO`. The deformation of the library
    has 1,376 more parameters, for a shape that it never reads; they are left out here.

    Args:
        levels: Number of grids of the U-Net. Each has half the points of the previous one along
            each axis.
        patches: Number of patches along each axis of the finest grid, and half as many on each
            further grid. It must be a multiple of 2^(levels - 1). Grids that do not consist of
            whole patches are extended by zeros.
        tokens: Number of latent tokens of each head in each patch.
        basis: Number of frequencies of the trigonometric series.
        normalization: Norms after convolutions: "batch", or "instance", as published for
            time-dependent flows.
        latent: Number of points of the latent grid along each axis. 0: the U-Net acts on the grid
            of the points.
        modes: Number of modes of the Fourier sums, if there is a latent grid.
        transform: Fourier sums over points are a "mean" or, as released, a "sum".
        deformation_width: Number of features after the first map of the deformation.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 19_195_969, f"{_LIBRARY}, Darcy script: 19.2M", dim=2),
        "navier-stokes": Preset(
            {"normalization": "instance"},
            19_197_121,
            f"{_LIBRARY}, Navier-Stokes script: 19.2M",
            (10, 1),
            dim=2,
        ),
        # on meshes a holds the positions, which are not appended again (in the first release pipes
        # have width 48)
        "airfoil": Preset(_MESH, 4_812_769, f"{_LIBRARY}, Airfoil script: 4.81M", (2, 1), 2),
        "pipe": Preset(_MESH, 4_812_769, f"{_LIBRARY}, Pipe script: 4.81M", (2, 1), 2),
        "elasticity": Preset(
            _CLOUD, 6_054_787, f"{_LIBRARY}, Elasticity script: 6.06M", (2, 1), dim=2
        ),
        # time is a channel of a; the published model embeds it by 2,112 further parameters, has
        # four outputs (130 more) and one input fewer (64 less)
        "plasticity": Preset(
            {"width": 32, "normalization": "instance"},
            4_812_962,
            f"{_LIBRARY}, Plasticity script: 4.82M",
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
        width: int = 64,
        levels: int = 5,
        patches: int = 16,
        heads: int = 8,
        tokens: int = 4,
        basis: int = 12,
        normalization: Norm = "batch",
        coordinates: Coordinates = "raw",
        latent: int = 0,
        modes: int = 12,
        transform: Transform = "mean",
        deformation_width: int = 32,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_least(2, levels=levels)
        at_least(1, patches=patches, tokens=tokens, basis=basis, modes=modes)
        at_least(4, deformation_width=deformation_width)
        if patches % 2 ** (levels - 1):
            raise ValueError(f"2^(levels - 1) must divide patches, got {levels=}, {patches=}")
        self.embed = mlp(self.features, 2 * width, width)
        blocks = [
            Patches(SpectralBlock(c, heads, tokens, basis), patches // 2**i)
            for i in range(levels)
            for c in [width * 2 ** min(i, levels - 2)]
        ]
        self.pyramid = PooledUNet(dim, width, levels - 1, normalization, blocks, patches)
        self.head = mlp(width, 2 * width, out_channels)
        self.grid = [latent] * dim
        if latent:
            at_least(2 * modes, latent=latent)
            # as released: the deformation differs from that of the last Geo-FNO
            self.deformation = Deformation(dim, deformation_width, 3, nn.Tanh, 1e-4)
            self.first, self.last = (
                NonuniformConv(dim, width, width, modes, transform) for _ in range(2)
            )
        else:
            self.domains, self.masks, self.other_points = MESHES, False, False

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        if self.grid[0]:
            return super().forward(a, x, y, mask)
        check_input(self, a, x, y, mask)
        return self.head(self.pyramid(self.embed(self.positions.beside(a, x))))

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        at_x = self.first.waves(self.deformation(x))
        at_y = at_x if y is x else self.last.waves(self.deformation(y))
        u = self.pyramid(self.first.from_points(self.embed(v), at_x, mask, self.grid))
        return self.head(self.last.to_points(u, at_y))
