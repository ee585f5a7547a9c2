r"""U-FNO: Fourier layers, the last of them with a U-Net beside the convolution.

References: G. Wen, Z. Li, K. Azizzadenesheli, A. Anandkumar, S. M. Benson, U-FNO - An enhanced
Fourier neural operator-based deep-learning model for multiphase flow, Advances in Water Resources
163 (2022), section 2; released code gegewen/ufno at 8315fd7b, and for two dimensions
thuml/Neural-Solver-Library at db942b72.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import nn

from operators.base import Function, Preset, at_least
from operators.nn.fourier import ACTIVATIONS, FourierLayer
from operators.nn.grids import GridOperator
from operators.nn.pointwise import mlp
from operators.nn.tokens import Coordinates
from operators.nn.unet import Norm, PooledUNet, StridedUNet, UNet

U_NETS: Mapping[str, type[UNet]] = {"strided": StridedUNet, "pooled": PooledUNet}

_LIBRARY = {
    "width": 32,
    "depth": 2,
    "u_depth": 2,
    "modes": 12,
    "u_net": "pooled",
    "levels": 4,
    "activation": "gelu",
    "last_activation": False,
    "lift": "mlp",
    "head_width": 32,
}
_WIDE = _LIBRARY | {"width": 128, "head_width": 128}
_CODE = "Neural-Solver-Library, script of"


class UFourierLayer(nn.Module):
    """v = K u + W u + b + U(u) with a U-Net U; the activation follows outside.

    Args:
        fourier: The map K u + W u + b.
        u_net: U.
    """

    def __init__(self, fourier: FourierLayer, u_net: UNet) -> None:
        super().__init__()
        self.fourier, self.u_net = fourier, u_net

    def forward(self, u: Function) -> Function:
        return self.fourier(u) + self.u_net(u)


class UFNO(GridOperator):
    """A map at each point, Fourier layers, Fourier layers with U-Nets, and a pointwise network.

    The defaults are those of the released code: three layers of each kind and 36 features. Its
    grid has two axes of space and time as the third one: preset "gas-saturation", with the frames
    along an axis. The numbers of tables on Darcy, Navier-Stokes and the meshes are from
    Neural-Solver-Library, another network of two and two layers with larger U-Nets; it is meant by
    the other presets. The U-Nets there have further linear maps without effect, which are counted
    in the published number and are absent here.

    With U-Nets that return 0 this is `FNO` with `depth + u_depth` layers. The convolutions of the
    U-Nets are those of points, not of a length: values do not converge as the grid is refined.

    Any grid is taken: zeros fill up what the U-Nets halve, after each axis, and are cut off. The
    released code appends 8 points to each axis, which must then be divided by 8: on the second axis
    and in time the last values of the input again, on the first axis zeros, all before the first
    linear map; here zeros follow that map, as in the library, which appends up to 15 points, to
    multiples of 16. In the presets they are their part of the published grid.

    Args:
        depth, u_depth: Fourier layers, and layers with a U-Net after them.
        modes: Modes m kept along each axis; the padded grid needs n >= 2m points along it.
        u_net: "strided", the released one, or "pooled", that of the library.
        levels: How often a U-Net halves the grid: 3 published for "strided", 4 for "pooled".
        normalization: Of the U-Nets, over "batch" and grid, or over the grid of each sample,
            "instance", as in the library for problems in time.
        activation: "relu" (released) or "gelu" (library), or "silu".
        last_activation: Put one after the last layer too, as released.
        lift: "linear" (released) or "mlp" with 2 width hidden features (library).
        head_width: Hidden features of the network at the end: 128, or the width in the library.

    Points y of the output are met by linear interpolation on boxes. The library's model of point
    clouds (elasticity) maps them to a grid first and is not this one.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        # 33,097,829 are published, which count a complex weight as one
        "gas-saturation": Preset(
            {"padding": [8 / 200, 8 / 96], "frame_channels": 1, "frame_padding": 8},
            64_201_829,
            "Wen et al. (2022), gegewen/ufno",
            (9, 24),
            dim=2,
        ),
        "darcy": Preset(
            _LIBRARY | {"coordinates": "lattice", "padding": 11 / 85},
            11_026_465,
            f"{_CODE} Darcy: 11.0M",
            dim=2,
        ),
        "navier-stokes": Preset(
            _LIBRARY | {"width": 64, "head_width": 64, "normalization": "instance"},
            44_072_385,
            f"{_CODE} Navier-Stokes: 44.1M",
            (10, 1),
            dim=2,
        ),
        # of meshes: the positions are a, and stand once among the features
        "airfoil": Preset(
            _LIBRARY | {"coordinates": "none", "padding": [3 / 221, 13 / 51]},
            11_022_433,
            f"{_CODE} airfoils: 11.0M",
            (2, 1),
            dim=2,
        ),
        "pipe": Preset(
            _WIDE | {"coordinates": "none", "padding": 15 / 129},
            176_247_169,
            f"{_CODE} pipes: 176M",
            (2, 1),
            dim=2,
        ),
        # the time is a channel of a; the published model embeds it, by 33,024 parameters more, and
        # has four outputs, 258 more, and one input fewer, 256 less
        "plasticity": Preset(
            _WIDE | {"normalization": "instance", "padding": [11 / 101, 1 / 31]},
            176_247_810,
            f"{_CODE} plasticity: 176M",
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
        width: int = 36,
        depth: int = 3,
        u_depth: int = 3,
        modes: int = 10,
        u_net: Literal["strided", "pooled"] = "strided",
        levels: int = 3,
        normalization: Norm = "batch",
        activation: Literal["relu", "gelu", "silu"] = "relu",
        last_activation: bool = True,
        lift: Literal["linear", "mlp"] = "linear",
        head_width: int = 128,
        coordinates: Literal["lattice"] | Coordinates = "raw",
        padding: float | list[float] = 0.0,
        frame_channels: int = 0,
        frame_padding: int = 0,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            dim,
            coordinates,
            padding,
            frame_channels=frame_channels,
            frame_padding=frame_padding,
        )
        at_least(1, width=width, depth=depth, u_depth=u_depth, modes=modes, levels=levels)
        at_least(1, head_width=head_width)
        sigma = ACTIVATIONS[activation]
        linear = lift == "linear"
        self.lift = (
            nn.Linear(self.features, width) if linear else mlp(self.features, 2 * width, width)
        )
        layers: list[nn.Module] = []
        for number in range(depth + u_depth):
            layer = FourierLayer(self.axes, width, modes, "none", nn.Identity(), "uniform", 0.0)
            if number >= depth:
                u = U_NETS[u_net](self.axes, width, levels, normalization)
                layers += [UFourierLayer(layer, u), sigma()]
            else:
                layers += [layer, sigma()]
        self.layers = nn.Sequential(*layers if last_activation else layers[:-1])
        self.head = mlp(width, head_width, frame_channels or out_channels, activation=sigma)
