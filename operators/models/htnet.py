r"""HT-Net: attention without softmax in windows of a pyramid of grids, then Fourier layers.

References: X. Liu, B. Xu, S. Cao and L. Zhang, Mitigating Spectral Bias for the Multiscale Operator
Learning, Journal of Computational Physics 2024; released code xlliu2017/HANO at its first commit
(c3e56c9), whose `models.py` has the published network. In later commits the name means another one.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.pointwise import Convolution, mlp, start_truncated
from operators.nn.resample import joined, stretched, windows
from operators.nn.slices import Block
from operators.nn.spectral import SpectralConv1d, SpectralConv2d
from operators.nn.tokens import Coordinates, PointOperator, Positions, check_heads

_PADDED = {"padding_points": 5}
_OURS = "ours: the settings of Darcy without stride"


class WindowAttention(nn.Module):
    """(QKᵀ/p + B) V among the p points of each window; B_ij depends on the offset of i from j.

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
    """Blocks on each of several grids, from fine to coarse, and the sum of all on the finest.

    On the way to the next coarser grid the values of 2ᵈ points are concatenated, normalised and
    mapped to twice the features. On the way back a linear map gives the values of the 2ᵈ points.

    Args:
        dim: Number of axes.
        width: Features on the finest grid, doubled at each coarser one.
        levels: Number of grids.
        heads, window, blocks: Heads, points along each side of a window, and blocks on each grid.
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
    """K u + W u with a spectral convolution K and a convolution W of 3 points along each axis."""

    def __init__(self, dim: int, width: int, modes: int) -> None:
        super().__init__()
        self.spectral = (SpectralConv1d if dim == 1 else SpectralConv2d)(width, width, modes)
        bound = math.sqrt(3) / (4 * width**2 * modes ** (dim / 2))
        nn.init.uniform_(self.spectral.weight, -bound, bound)
        self.local = Convolution(dim, width, "zeros")

    def forward(self, u: Function) -> Function:
        return self.spectral(u) + self.local(u)


class HTNet(PointOperator):
    """Patches, a pyramid of window attention, Fourier layers, and an MLP at each point.

    With stride 1, on grids of whole windows, and in evaluation this is the function of the released
    code. Differences from that code, which is for squares:

    * There all blocks of a level act on the same input and only the output of the last one is
      used. Its function is that of one block, whatever number is declared (2, 4, 2 for
      Navier-Stokes); the other blocks and one linear map are idle weights. Here `blocks` are
      composed, as in the paper; with one block the functions agree, without idle weights.
    * There blocks are dropped at random in training (rates 0 to 0.1), here never.
    * There grids must consist of whole windows. Here zeros are appended to the features, up to the
      next multiple of 2^(levels - 1) windows.
    * There the Darcy example has no zeros before its patches of 6 points and stride 2. It gives u
      on half the points of a, the last three from the zeros of the Fourier layers. Here, with a
      `stride`, features are interpolated to the points of a before the MLP.
    * There zero boundary values are set after denormalisation; here they are learned.

    Windows cover points, not lengths: the operator does not converge to one map as grids are
    refined. On a mesh it acts along the indices.

    Args:
        width: Features on the finest grid, doubled at each coarser one.
        levels: Grids of the pyramid.
        blocks: Blocks on each grid.
        window: Points along each side of a window.
        patch, stride: Points of the kernel of the first convolution, and its stride; it has
            (patch - stride)/2 zeros before and after each axis.
        modes: Modes of the Fourier layers; the features need n >= 2 modes points along each axis.
        decoder_depth: Number of Fourier layers, with GELU between them.
        padding_points: Zeros after each axis in the Fourier layers, 5 in all published settings.
    """

    domains = MESHES
    masks = False
    # the released class counts idle weights too: 13,368,532 and 1,219,389 parameters
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
        positions = Positions(coordinates, dim, last=True)
        super().__init__(in_channels, out_channels, dim, positions)
        check_heads(width, heads)
        at_least(1, levels=levels, blocks=blocks, window=window, patch=patch, stride=stride)
        at_least(1, modes=modes, decoder_depth=decoder_depth, head_width=head_width)
        at_least(0, padding_points=padding_points)
        if patch < stride:
            raise ValueError(f"patch must be at least stride, got patch={patch}, stride={stride}")
        self.padding = padding_points
        self.embed = (nn.Conv1d if dim == 1 else nn.Conv2d)(
            in_channels + positions.count, width, patch, stride, (patch - stride) // 2
        )
        self.norm = nn.LayerNorm(width)
        self.pyramid = WindowPyramid(dim, width, levels, heads, window, blocks)
        layers: list[nn.Module] = []
        for _ in range(decoder_depth):
            layers += [LocalSpectralLayer(dim, width, modes), nn.GELU()]
        self.decoder = nn.Sequential(*layers[:-1])
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
