r"""U-Nets for functions on grids: convolutions on coarser grids and back, with skip connections.

The network needs grid sizes that are multiples of 2^levels, or of another `multiple`. Other grids
are padded with zeros after their last points, and the result is cropped. A convolution covers a
fixed number of points at every grid spacing.

References: O. Ronneberger, P. Fischer, T. Brox, U-Net, MICCAI 2015; G. Wen et al., U-FNO, Advances
in Water Resources 163 (2022), and its code gegewen/ufno at 8315fd7b; thuml/Neural-Solver-Library at
db942b72.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from operators.base import Function

Norm = Literal["batch", "instance"]

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
POOLS = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
NORMS = {
    "batch": {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d},
    "instance": {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d},
}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class UNet(nn.Module):
    """A U-Net v = U(u), where u and v have `width` channels.

    Args:
        levels: Number of coarser grids.
        normalization: Norm of each channel after each convolution. "batch": over batch and grid.
            "instance": over the grid of each sample.
        multiple: Divisor of the sizes of the padded grid; 0 means 2^levels.
    """

    def __init__(
        self, dim: int, width: int, levels: int, normalization: Norm, multiple: int = 0
    ) -> None:
        super().__init__()
        self.dim, self.width, self.levels, self.normalization = dim, width, levels, normalization
        self.multiple = multiple or 2**levels

    def forward(self, u: Function) -> Function:
        margins = [-n % self.multiple for n in u.shape[1:-1]]
        longest = max(n + margin for n, margin in zip(u.shape[1:-1], margins, strict=True))
        if self.normalization == "instance" and longest == 2**self.levels:
            raise ValueError(
                f'normalization "instance" with levels={self.levels} needs an axis of more than '
                f"{longest} points, got {max(u.shape[1:-1])}"
            )
        outside = [0, 0, *(side for margin in reversed(margins) for side in (0, margin))]
        v = self.coarsened(nn.functional.pad(u, outside).movedim(-1, 1)).movedim(1, -1)
        return nn.functional.pad(v, [-side for side in outside])

    @abstractmethod
    def coarsened(self, u: Tensor) -> Tensor:
        """The map U on grids whose sizes are multiples of `multiple`. Channels come first."""

    def convolution(
        self, c_in: int, c_out: int, activation: nn.Module, stride: int = 1
    ) -> nn.Sequential:
        """Convolution with 3 points along each axis, without bias; then norm and activation."""
        norm = NORMS[self.normalization][self.dim]
        return nn.Sequential(
            CONVOLUTIONS[self.dim](c_in, c_out, 3, stride, padding=1, bias=False),
            norm(c_out, affine=True),
            activation,
        )


class StridedUNet(UNet):
    """The U-Net of U-FNO: strided convolutions down, transposed convolutions up.

    All grids have `width` channels. Activations are LeakyReLU with slope 0.1. The last convolution,
    on the finest grid, has neither norm nor activation.

    >>> StridedUNet(2, 4, 3, "batch")(torch.randn(2, 16, 13, 4)).shape
    torch.Size([2, 16, 13, 4])
    """

    def __init__(self, dim: int, width: int, levels: int, normalization: Norm) -> None:
        super().__init__(dim, width, levels, normalization)

        def convolution(stride: int) -> nn.Module:
            return self.convolution(width, width, nn.LeakyReLU(0.1), stride)

        def up(c_in: int) -> nn.Module:
            transposed = TRANSPOSED[dim](c_in, width, 4, stride=2, padding=1)
            return nn.Sequential(transposed, nn.LeakyReLU(0.1))

        coarser = (nn.Sequential(convolution(2), convolution(1)) for _ in range(levels - 1))
        self.down = nn.ModuleList([convolution(2), *coarser])
        self.up = nn.ModuleList([up(width), *(up(2 * width) for _ in range(levels - 1))])
        self.out = CONVOLUTIONS[dim](2 * width, width, 3, padding=1)

    def coarsened(self, u: Tensor) -> Tensor:
        skips = [u]
        for down in self.down:
            skips.append(down(skips[-1]))
        v = skips.pop()
        for up in self.up:
            v = torch.cat([skips.pop(), up(v)], 1)
        return self.out(v)


class PooledUNet(UNet):
    """The U-Net of Neural-Solver-Library and PyTorch examples: max pooling down, interpolation up.

    Each grid has two convolutions with ReLU before its pooling and two after the interpolation back
    to it. The coarsest grid has two in all. The number of channels doubles at each level except the
    coarsest. The last layer is a pointwise linear map.

    Args:
        beside: Modules in the skip connections, one for each of the `levels + 1` grids, finest grid
            first. Their inputs have channels first. The default is the identity.

    >>> PooledUNet(1, 4, 4, "instance")(torch.randn(2, 43, 4)).shape
    torch.Size([2, 43, 4])
    """

    def __init__(
        self,
        dim: int,
        width: int,
        levels: int,
        normalization: Norm,
        beside: Sequence[nn.Module] = (),
        multiple: int = 0,
    ) -> None:
        super().__init__(dim, width, levels, normalization, multiple)

        def two(c_in: int, c: int, c_out: int) -> nn.Module:
            first = self.convolution(c_in, c, nn.ReLU())
            return nn.Sequential(first, self.convolution(c, c_out, nn.ReLU()))

        channels = [width * 2**level for level in range(levels)]
        self.first = two(width, width, width)
        self.pool = POOLS[dim](2)
        self.down = nn.ModuleList(
            two(c, c_next, c_next)
            for c, c_next in zip(channels, [*channels[1:], channels[-1]], strict=True)
        )
        self.up = nn.ModuleList(
            two(2 * c, c, c_next)
            for c, c_next in zip(channels[::-1], [*channels[-2::-1], width], strict=True)
        )
        self.beside = nn.ModuleList(beside or [nn.Identity()] * (levels + 1))
        self.out = CONVOLUTIONS[dim](width, width, 1)

    def coarsened(self, u: Tensor) -> Tensor:
        skips = [self.first(u)]
        for down in self.down:
            skips.append(down(self.pool(skips[-1])))
        skips = [beside(u) for beside, u in zip(self.beside, skips, strict=True)]
        v = skips.pop()
        for up in self.up:
            u = skips.pop()
            finer = nn.functional.interpolate(
                v, u.shape[2:], mode=LINEAR[self.dim], align_corners=True
            )
            v = up(torch.cat([u, finer], 1))
        return self.out(v)
