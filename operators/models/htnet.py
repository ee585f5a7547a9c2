r"""HT-Net: attention without softmax in windows of a pyramid of grids, then Fourier layers.

References: X. Liu, B. Xu, S. Cao and L. Zhang, Mitigating Spectral Bias for the Multiscale Operator
Learning, Journal of Computational Physics 2024; released code xlliu2017/HANO at its first commit
(c3e56c9), whose `models.py` has the published network. Later commits use the name for another
network.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.pointwise import CONVOLUTIONS, Convolution, alternating, mlp, start_truncated
from operators.nn.resample import joined, stretched, windows
from operators.nn.spectral import SPECTRAL_CONVOLUTIONS
from operators.nn.tokens import Block, Coordinates, PointOperator, Positions, check_heads

_PADDED = {"padding_points": 5}
_OURS = "ours: the settings of Darcy without stride"


class WindowAttention(nn.Module):
    """(QKᵀ/p + B) V among the p points of each window; B_ij is learned for each offset of i from j.

    Args:
        dim: Number of axes.
        width, heads: Features, and number of heads.
        window: Points along each side of a window.
    """

    index: Tensor

    def __init__(self, dim: int, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.empty((2 * window - 1) ** dim, heads))
        nn.init.trunc_normal_(self.bias, std=0.02)
        axes = torch.meshgrid(*[torch.arange(window)] * dim, indexing="ij")
        indices = torch.stack(axes, dim=-1).flatten(0, -2)  # (p, dim)
        offsets = indices[:, None] - indices + window - 1
        powers = torch.tensor([(2 * window - 1) ** i for i in reversed(range(dim))])
        self.register_buffer("index", (offsets * powers).sum(-1), persistent=False)

    def forward(self, u: Function) -> Function:
        v = windows(u, self.window)  # (batch, *coarse, p, c)
        q, k, v = self.qkv(v).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)
        matrix = q @ k.mT / q.shape[-2] + self.bias[self.index].movedim(-1, 0)
        return self.out(joined((matrix @ v).transpose(-3, -2).flatten(-2), self.window))


class WindowPyramid(nn.Module):
    """Blocks on each grid of a pyramid, and the sum of their results on the finest grid.

    Each grid has half the points of the next finer one along each of the d axes. On the way to the
    coarser grid the features of 2ᵈ points are concatenated, normalised and mapped to twice the
    width. On the way back a linear map recovers the features of these points from those of the
    coarser point.

    Args:
        dim: Number of axes.
        width: Features on the finest grid, doubled at each coarser one.
        levels: Number of grids.
        heads, window, blocks: Numbers of heads, of points along each side of a window, and of
            blocks on each grid.
    """

    def __init__(
        self, dim: int, width: int, levels: int, heads: int, window: int, blocks: int
    ) -> None:
        super().__init__()
        widths, points = [width << i for i in range(levels)], 2**dim
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(Block(c, WindowAttention(dim, c, heads, window), 4 * c) for _ in range(blocks))
            )
            for c in widths
        )
        self.down = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(points * c), nn.Linear(points * c, 2 * c, bias=False))
            for c in widths[:-1]
        )
        self.up = nn.ModuleList(nn.Linear(2 * c, points * c) for c in widths[:-1])
        self.least = window << (levels - 1)

    def forward(self, u: Function) -> Function:
        grid = u.shape[1:-1]
        # zeros after each axis, up to whole windows of the coarsest grid
        margins = [(0, -n % self.least) for n in reversed(grid)]
        u = nn.functional.pad(u, [0, 0, *sum(margins, ())])
        fields = [self.blocks[0](u)]
        for down, blocks in zip(self.down, list(self.blocks)[1:], strict=True):
            fields.append(blocks(down(windows(fields[-1], 2).flatten(-2))))
        u = fields.pop()
        for up in reversed(self.up):
            fine = fields.pop()
            u = fine + joined(up(u).unflatten(-1, (-1, fine.shape[-1])), 2)
        for axis, n in enumerate(grid, start=1):
            u = u.narrow(axis, 0, n)
        return u


class LocalSpectralLayer(nn.Module):
    """Sum of a spectral convolution of u and a convolution of u with 3 points along each axis."""

    def __init__(self, dim: int, width: int, modes: int) -> None:
        super().__init__()
        self.spectral = SPECTRAL_CONVOLUTIONS[dim](width, width, modes)
        bound = math.sqrt(3) / (4 * width**2 * modes ** (dim / 2))
        nn.init.uniform_(self.spectral.weight, -bound, bound)
        self.local = Convolution(dim, width, "zeros")

    def forward(self, u: Function) -> Function:
        return self.spectral(u) + self.local(u)


class HTNet(PointOperator):
    """A convolution over patches, a pyramid of window attention, Fourier layers, a pointwise MLP.

    The released code is for squares. In evaluation, if the grid consists of whole windows, it
    computes the same function as this network with stride 1 and one block. The differences are:

    * In the released code all blocks of a level act on the same input, and only the output of the
      last one is used. Each level thus acts as a single block, although more are declared (2, 4, 2
      for Navier-Stokes). The other blocks and one linear map have no effect. Here the blocks are
      composed, as in the paper, and there are no unused weights.
    * The released code drops blocks at random in training (rates 0 to 0.1). This network never
      does.
    * The released code needs grids of whole windows. Here zeros extend the features to a multiple
      of 2^(levels - 1) windows along each axis.
    * The released Darcy example has patches of 6 points with stride 2 and without padding. It
      computes u at half the points of a along each axis. The values at the last three of these
      points come from the zero padding of the Fourier layers. Here, if `stride` > 1, features are
      interpolated to the points of a before the MLP.
    * The released code sets u to zero at the boundary after denormalisation. Here boundary values
      are learned.

    Windows cover a fixed number of points, not a fixed length, so values do not converge as grids
    are refined. On a mesh the operator acts along the indices.

    Args:
        width: Features on the finest grid, doubled at each coarser one.
        levels: Number of grids in the pyramid.
        blocks: Number of blocks on each grid.
        window: Points along each side of a window.
        patch, stride: Kernel size and stride of the first convolution, in points. Its padding is
            (patch - stride)/2 zeros before and after each axis.
        modes: Number of modes of the Fourier layers. The features need n >= 2 · modes points along
            each axis.
        decoder_depth: Number of Fourier layers, with GELU between them.
        padding_points: Number of zeros after each axis in the Fourier layers; 5 in all published
            settings.
    """

    domains = MESHES
    masks = False
    # the released class counts idle weights too: 13,368,532 and 1,219,389 parameters
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset(
            _PADDED | {"patch": 6, "stride": 2},
            13_360_212,
            "released code, ex_darcysmooth.py",
            dim=2,
        ),
        "navier-stokes": Preset(
            _PADDED | {"width": 20, "decoder_depth": 4},
            1_076_244,
            "released code, ex_ns.py",
            (10, 1),
            2,
        ),
        "airfoil": Preset(_PADDED, 13_359_060, _OURS, (2, 1), 2),
        "pipe": Preset(_PADDED, 13_359_060, _OURS, (2, 1), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 64,
        levels: int = 3,
        blocks: int = 1,
        heads: int = 1,
        window: int = 4,
        patch: int = 3,
        stride: int = 1,
        modes: int = 12,
        decoder_depth: int = 5,
        padding_points: int = 0,
        head_width: int = 128,
        coordinates: Coordinates = "none",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        check_heads(width, heads)
        at_least(1, levels=levels, blocks=blocks, window=window, patch=patch, stride=stride)
        at_least(1, modes=modes, decoder_depth=decoder_depth, head_width=head_width)
        at_least(0, padding_points=padding_points)
        if patch < stride:
            raise ValueError(f"patch must be at least stride, got patch={patch}, stride={stride}")
        self.padding = padding_points
        margin = (patch - stride) // 2
        self.embed = CONVOLUTIONS[dim](self.features, width, patch, stride, margin)
        self.norm = nn.LayerNorm(width)
        self.pyramid = WindowPyramid(dim, width, levels, heads, window, blocks)
        layers = (LocalSpectralLayer(dim, width, modes) for _ in range(decoder_depth))
        self.decoder = alternating(nn.GELU, layers)
        self.head = mlp(width, head_width, out_channels)
        start_truncated(self)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        patch, margin = self.embed.kernel_size[0], 2 * int(self.embed.padding[0])
        if min(a.shape[1:-1]) + margin < patch:
            raise ValueError(
                f"patch={patch} needs at least {patch - margin} points along each axis, "
                f"got {min(a.shape[1:-1])}"
            )
        u = self.embed(self.positions.beside(a, x).movedim(-1, 1)).movedim(1, -1)
        u = self.pyramid(self.norm(u))
        margins = [0, 0, *[0, self.padding] * self.dim]
        u = self.decoder(nn.functional.pad(u, margins))
        u = nn.functional.pad(u, [-m for m in margins])
        return self.head(stretched(u, a.shape[1:-1]))
