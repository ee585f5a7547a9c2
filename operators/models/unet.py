r"""A plain U-Net of convolutions on ever coarser grids: a baseline that is not a neural operator.

References: O. Ronneberger, P. Fischer, T. Brox, U-Net: Convolutional Networks for Biomedical Image
Segmentation, MICCAI 2015; thuml/Neural-Solver-Library at db942b72.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from operators.base import Preset, at_least
from operators.nn.pointwise import Norm, PooledUNet, mlp
from operators.nn.resample import GridOperator
from operators.nn.tokens import Coordinates

_CODE = "Neural-Solver-Library, script of"
_IN_TIME = {"normalization": "instance"}


class PlainUNet(GridOperator):
    """A pointwise MLP, a U-Net, and a pointwise MLP: a baseline for operators on grids.

    This is the U-Net of Neural-Solver-Library, with max pooling, bilinear upsampling, norms and
    ReLU. Its errors are listed in the published tables for Darcy, Navier-Stokes and the meshes. The
    U-Nets of PDEBench and The Well differ: they have tanh instead of ReLU, transposed convolutions
    for upsampling, twice as many channels on the coarsest grid, and no MLPs.

    Convolutions cover 3 points on every grid, not a fixed length, so the same weights define
    another map on a finer grid. As published, each axis is padded with zeros to a multiple of
    2^levels and cropped at the end. Convolutions are not periodic, even on periodic grids.

    Args:
        levels: Number of times the grid is halved, 4 as published.
        normalization: Norms after each convolution. "batch": over batch and grid. "instance": over
            the grid of each sample, as published for time-dependent problems.

    On boxes u is interpolated linearly to other points y. The library has another network, which
    first maps point clouds (elasticity) to a grid.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 69_257_473, f"{_CODE} Darcy: 69.3M", dim=2),
        "navier-stokes": Preset(
            {"width": 256} | _IN_TIME, 276_964_353, f"{_CODE} Navier-Stokes: 277M", (10, 1), dim=2
        ),
        # on meshes a holds the positions, which are not appended again
        "airfoil": Preset(
            {"width": 32, "coordinates": "none"}, 4_331_137, f"{_CODE} airfoils: 4.33M", (2, 1), 2
        ),
        "pipe": Preset({"coordinates": "none"}, 69_241_345, f"{_CODE} pipes: 69.2M", (2, 1), 2),
        # time is a channel of a; the published model embeds it by 33,024 further parameters, has
        # four outputs (258 more) and one input fewer (256 less)
        "plasticity": Preset(
            {"coordinates": "raw"} | _IN_TIME, 69_241_986, f"{_CODE} plasticity: 69.3M", (2, 2), 2
        ),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        levels: int = 4,
        normalization: Norm = "batch",
        coordinates: Literal["lattice"] | Coordinates = "lattice",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, coordinates)
        at_least(1, width=width, levels=levels)
        self.lift = mlp(self.features, 2 * width, width)
        self.layers = PooledUNet(dim, width, levels, normalization)
        self.head = mlp(width, width, out_channels)
