r"""The convolutional neural operator: a U-Net whose nonlinearities act on a finer grid.

References: B. Raonić, R. Molinaro et al., Convolutional Neural Operators for Robust and Accurate
Learning of PDEs, NeurIPS 2023, sections 2 and 3; released code
camlab-ethz/ConvolutionalNeuralOperator (6e76519), CNO1d_simplified and CNO2d_simplified.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.resample import Resampling, resampled
from operators.nn.tokens import Coordinates, PointOperator, Positions

Normalization = Literal["batch", "none"]
Image = Float[Tensor, "batch c *grid"]

_SCRIPT = "released script of CNO2d_classic in the simplified network"
_CLASSIC = {"levels": 3, "width": 32, "neck_blocks": 6, "size": 64}


class Activation(nn.Module):
    """D σ(U u): U to twice the points, σ = LeakyReLU, D to a given grid (eq. 5).

    D filters out the frequencies of σ(U u) that the grid does not resolve, so that they are not
    aliased to lower ones. With the identity for σ only the resampling is left.

    Args:
        resampling: Kind of the resamplings U and D, see `CNO`.
    """

    def __init__(self, resampling: Resampling) -> None:
        super().__init__()
        self.resampling: Resampling = resampling
        self.sigma = nn.LeakyReLU()

    def forward(self, u: Image, sizes: Sequence[int]) -> Float[Tensor, "batch c ..."]:
        fine = resampled(u, self.resampling, [2 * n for n in u.shape[2:]])
        return resampled(self.sigma(fine), self.resampling, sizes)


class Layers:
    """Factory of the layers of a network.

    Args:
        dim: Dimension of the grid.
        resampling, normalization: Kind of the resamplings and of the norms, see `CNO`.
    """

    def __init__(self, dim: int, resampling: Resampling, normalization: Normalization) -> None:
        self.dim, self.normalization = dim, normalization
        self.resampling: Resampling = resampling

    def convolution(self, in_channels: int, out_channels: int) -> nn.Module:
        """A convolution over 3 points along each axis."""
        mode = "zeros" if self.resampling == "bicubic" else "circular"
        kind = nn.Conv1d if self.dim == 1 else nn.Conv2d
        return kind(in_channels, out_channels, 3, padding=1, padding_mode=mode)

    def norm(self, channels: int) -> nn.Module:
        if self.normalization == "none":
            return nn.Identity()
        return (nn.BatchNorm1d if self.dim == 1 else nn.BatchNorm2d)(channels)

    def activation(self) -> Activation:
        return Activation(self.resampling)


class Block(nn.Module):
    """Convolution to `out_channels`, normalisation, and activation to a grid of given sizes."""

    def __init__(self, make: Layers, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.convolution = make.convolution(in_channels, out_channels)
        self.norm = make.norm(out_channels)
        self.activation = make.activation()

    def forward(self, u: Image, sizes: Sequence[int]) -> Float[Tensor, "batch c_out ..."]:
        return self.activation(self.norm(self.convolution(u)), sizes)


class Lift(nn.Module):
    """A block without normalisation, then a convolution: the first and last layers of CNO."""

    def __init__(self, make: Layers, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        plain = Layers(make.dim, make.resampling, "none")
        self.block = Block(plain, in_channels, hidden)
        self.convolution = make.convolution(hidden, out_channels)

    def forward(self, u: Image) -> Float[Tensor, "batch c_out *grid"]:
        return self.convolution(self.block(u, u.shape[2:]))


class Residual(nn.Module):
    """u + N C σ N C u with convolutions C, normalisations N, on one grid."""

    def __init__(self, make: Layers, channels: int) -> None:
        super().__init__()
        self.block = Block(make, channels, channels)
        self.convolution, self.norm = make.convolution(channels, channels), make.norm(channels)

    def forward(self, u: Image) -> Image:
        return u + self.norm(self.convolution(self.block(u, u.shape[2:])))


class CNO(PointOperator):
    """A U-Net of convolutions on grids of n, n/2, n/4 ... points, with residual blocks across.

    This is the simplified released network, in one and two dimensions; with "bicubic" on `size`
    points it is the same function. The first released network has other filters (windowed sinc),
    and the released network for problems in time has other normalisations.

    Convolutions are 3 points wide on every grid. With `size` > 0 functions are interpolated to a
    grid of fixed size and back: the network is then one operator on all resolutions. With
    "fourier" it gives the same function for the same band-limited input. With size 0 it acts on
    the grid of a. On a mesh it acts along the indices.

    Args:
        width: Channels after the first step to a coarser grid, doubled at each further step; the
            finest grid has half as many.
        levels: Steps to coarser grids; grids have at least 2^levels points along each axis.
        blocks: Residual blocks of the skip connection on each grid except the coarsest.
        neck_blocks: Residual blocks on the coarsest grid.
        lift_width: Hidden channels of the first and the last block.
        size: Points along each axis of the grid of the network; 0: the grid of a.
        resampling: "bicubic", as released: cubic convolution on cells, zeros beyond the ends.
            "periodic": the same kernel, continued periodically. "fourier": trigonometric
            interpolation and cut-off of modes. With the last two convolutions are periodic too.
        normalization: "batch": batch norms after all convolutions except those of the first and
            last block; "none", as in the released scripts of the simplified network.
    """

    domains = MESHES
    masks = False
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset(
            {"size": 256, "normalization": "none", "coordinates": "raw"},
            670_505,
            "released script of CNO1d_simplified, in the form of Allen-Cahn",
        ),
        "darcy": Preset(_CLASSIC, 2_606_929, _SCRIPT, dim=2),
        "navier-stokes": Preset(
            _CLASSIC | {"resampling": "fourier"},
            2_612_113,
            f"{_SCRIPT}, with periodic filters and convolutions",
            (10, 1),
            2,
        ),
        "airfoil": Preset(_CLASSIC | {"size": 128}, 2_607_505, _SCRIPT, (2, 1), 2),
        "pipe": Preset(_CLASSIC | {"size": 128}, 2_607_505, "ours: as airfoil", (2, 1), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 16,
        levels: int = 4,
        blocks: int = 4,
        neck_blocks: int = 4,
        lift_width: int = 64,
        size: int = 0,
        resampling: Resampling = "bicubic",
        normalization: Normalization = "batch",
        coordinates: Coordinates = "none",
    ) -> None:
        positions = Positions(coordinates, dim, last=True)
        super().__init__(in_channels, out_channels, dim, positions)
        at_least(2, width=width)
        at_least(1, levels=levels, blocks=blocks, neck_blocks=neck_blocks, lift_width=lift_width)
        at_least(0, size=size)
        self.size, self.levels = size, levels
        self.resampling: Resampling = resampling
        make = Layers(dim, resampling, normalization)
        c = [width // 2, *(width << i for i in range(levels))]  # channels from fine to coarse

        def residuals(channels: int, count: int) -> nn.Module:
            return nn.Sequential(*(Residual(make, channels) for _ in range(count)))

        self.lift = Lift(make, in_channels + positions.count, lift_width, c[0])
        self.across = nn.ModuleList(
            residuals(c[i], blocks if i < levels else neck_blocks) for i in range(levels + 1)
        )
        self.expand = nn.ModuleList(Block(make, c[i], c[i]) for i in range(levels + 1))
        self.down = nn.ModuleList(Block(make, c[i], c[i + 1]) for i in range(levels))
        self.up = nn.ModuleList(
            Block(make, c[i + 1] * (1 if i == levels - 1 else 2), c[i]) for i in range(levels)
        )
        self.project = Lift(make, 2 * c[0], lift_width, out_channels)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        grid = a.shape[1:-1]
        sizes = [[(self.size or n) >> i for n in grid] for i in range(self.levels + 1)]
        if min(sizes[-1]) < 1:
            raise ValueError(
                f"levels={self.levels} needs at least {2**self.levels} points along each axis, "
                f"got {min(sizes[0])}"
            )
        u = self.positions.beside(a, x).movedim(-1, 1).contiguous()
        u = self.lift(resampled(u, self.resampling, sizes[0]))
        fields: list[Tensor] = []
        for i in range(self.levels):
            fields.append(self.across[i](u))
            u = self.down[i](u, sizes[i + 1])
        u = self.expand[-1](self.across[-1](u), sizes[-1])
        for i in reversed(range(self.levels)):
            u = self.up[i](u, sizes[i])
            u = torch.cat([u, self.expand[i](fields[i], sizes[i])], dim=1)
        return resampled(self.project(u), self.resampling, grid).movedim(1, -1)
