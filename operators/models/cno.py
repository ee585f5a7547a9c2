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
from operators.nn.pointwise import CONVOLUTIONS, NORMS
from operators.nn.resample import Resampling, resampled
from operators.nn.tokens import Coordinates, PointOperator, Positions
from pdegen.domains import Domain

Normalization = Literal["batch", "none"]
Image = Float[Tensor, "batch c *grid"]

_SCRIPT = "released script of CNO2d_classic in the simplified network"
_CLASSIC = {"levels": 3, "width": 32, "neck_blocks": 6, "size": 64}


class Activation(nn.Module):
    """D σ(U u), where σ = LeakyReLU acts on a grid with twice the points along each axis (eq. 5).

    U resamples u to twice the points along each axis, and D resamples the result to a grid of given
    sizes. D filters out the frequencies of σ(U u) that this grid does not resolve, which prevents
    aliasing.

    Args:
        resampling: Method of the resamplings U and D, see `CNO`.
    """

    def __init__(self, resampling: Resampling) -> None:
        super().__init__()
        self.resampling: Resampling = resampling
        self.sigma = nn.LeakyReLU()

    def forward(self, u: Image, sizes: Sequence[int]) -> Float[Tensor, "batch c ..."]:
        fine = resampled(u, self.resampling, [2 * n for n in u.shape[2:]])
        return resampled(self.sigma(fine), self.resampling, sizes)


class Layers:
    """Makes the convolutions, norms and activations of a network with common settings.

    Args:
        dim: Number of axes of the grid.
        resampling, normalization: Methods of resampling and of normalisation, see `CNO`.
    """

    def __init__(self, dim: int, resampling: Resampling, normalization: Normalization) -> None:
        self.dim, self.normalization = dim, normalization
        self.resampling: Resampling = resampling

    def convolution(self, in_channels: int, out_channels: int) -> nn.Module:
        """A convolution over 3 points along each axis."""
        mode = "zeros" if self.resampling == "bicubic" else "circular"
        kind = CONVOLUTIONS[self.dim]
        return kind(in_channels, out_channels, 3, padding=1, padding_mode=mode)

    def norm(self, channels: int) -> nn.Module:
        if self.normalization == "none":
            return nn.Identity()
        return NORMS["batch"][self.dim](channels)

    def activation(self) -> Activation:
        return Activation(self.resampling)


class Block(nn.Module):
    """A convolution, a norm, and an `Activation` whose result is on a grid of given sizes."""

    def __init__(self, make: Layers, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.convolution = make.convolution(in_channels, out_channels)
        self.norm = make.norm(out_channels)
        self.activation = make.activation()

    def forward(self, u: Image, sizes: Sequence[int]) -> Float[Tensor, "batch c_out ..."]:
        return self.activation(self.norm(self.convolution(u)), sizes)


class Lift(nn.Module):
    """A `Block` without a norm, followed by a convolution. `CNO` begins and ends with a `Lift`."""

    def __init__(self, make: Layers, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        plain = Layers(make.dim, make.resampling, "none")
        self.block = Block(plain, in_channels, hidden)
        self.convolution = make.convolution(hidden, out_channels)

    def forward(self, u: Image) -> Float[Tensor, "batch c_out *grid"]:
        return self.convolution(self.block(u, u.shape[2:]))


class Residual(nn.Module):
    """u + N C A N C u with convolutions C, norms N and an `Activation` A, all on one grid."""

    def __init__(self, make: Layers, channels: int) -> None:
        super().__init__()
        self.block = Block(make, channels, channels)
        self.convolution, self.norm = make.convolution(channels, channels), make.norm(channels)

    def forward(self, u: Image) -> Image:
        return u + self.norm(self.convolution(self.block(u, u.shape[2:])))


class CNO(PointOperator):
    """A U-Net on grids of n, n/2, n/4 ... points, with residual blocks in the skip connections.

    This is the simplified network of the released code, in one and two dimensions. With resampling
    "bicubic" and inputs on grids of `size` points it computes the same function as that code. Two
    other networks of that code are not implemented here: the first one, with windowed-sinc filters,
    and one for time-dependent problems, with other norms.

    Convolution kernels cover 3 points along each axis on every grid. If `size` > 0, the input is
    interpolated to a grid of `size` points along each axis, and the output is interpolated back.
    The network then acts in the same way at every resolution. With resampling "fourier" the output
    does not depend on the resolution at which a band-limited input is sampled. If `size` is 0, the
    network acts on the grid of the input. On a mesh it acts along the indices of the points.

    Args:
        width: Number of channels after the first step to a coarser grid. Each further step doubles
            the number; on the finest grid there are width/2 channels.
        levels: Number of steps to coarser grids. The grid needs at least 2^levels points along each
            axis.
        blocks: Number of residual blocks in the skip connection of each grid except the coarsest.
        neck_blocks: Number of residual blocks on the coarsest grid.
        lift_width: Number of hidden channels of the first and the last `Lift`.
        size: Number of points of the network's finest grid along each axis. 0: the grid of the
            input is used.
        resampling: "bicubic", as released: cubic interpolation between points (j + ½)/n;
            convolutions are padded with zeros. "periodic": the same interpolation between periodic
            points j/n. "fourier": trigonometric interpolation, which drops the modes that the new
            grid does not resolve. In the last two cases convolutions are padded periodically.
        normalization: "batch": a batch norm after each convolution, except in the first and the
            last `Lift`. "none": no norms, as in the released scripts of the simplified network.
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

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        most = max(1, min(domain.shape).bit_length() - 1)
        levels = settings["levels"]
        too_many = isinstance(levels, int) and levels > most and not settings["size"]
        return {"levels": most} if too_many else {}

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
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        at_least(2, width=width)
        at_least(1, levels=levels, blocks=blocks, neck_blocks=neck_blocks, lift_width=lift_width)
        at_least(0, size=size)
        self.size, self.levels = size, levels
        self.resampling: Resampling = resampling
        make = Layers(dim, resampling, normalization)
        c = [width // 2, *(width << i for i in range(levels))]  # channels from fine to coarse

        def residuals(channels: int, count: int) -> nn.Module:
            return nn.Sequential(*(Residual(make, channels) for _ in range(count)))

        self.lift = Lift(make, self.features, lift_width, c[0])
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
