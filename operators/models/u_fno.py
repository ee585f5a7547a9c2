r"""U-FNO: Fourier layers; the last of them also contain a U-Net.

References: G. Wen, Z. Li, K. Azizzadenesheli, A. Anandkumar, S. M. Benson, U-FNO - An enhanced
Fourier neural operator-based deep-learning model for multiphase flow, Advances in Water Resources
163 (2022), section 2; released code gegewen/ufno at 8315fd7b, and for two dimensions
thuml/Neural-Solver-Library at db942b72.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import nn

from operators.base import Function, Preset, at_least
from operators.nn.pointwise import Norm, PooledUNet, StridedUNet, UNet, mlp
from operators.nn.resample import GridOperator
from operators.nn.spectral import ACTIVATIONS, FourierLayer
from operators.nn.tokens import Coordinates

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
    """v = K u + W u + b + U(u) with a U-Net U, without an activation.

    Args:
        fourier: The Fourier layer K u + W u + b.
        u_net: The U-Net U.
    """

    def __init__(self, fourier: FourierLayer, u_net: UNet) -> None:
        super().__init__()
        self.fourier, self.u_net = fourier, u_net

    def forward(self, u: Function) -> Function:
        return self.fourier(u) + self.u_net(u)


class UFNO(GridOperator):
    """A pointwise map, Fourier layers, Fourier layers with U-Nets, and a pointwise network.

    The defaults are those of the released code: three layers of each kind and 36 features. The
    released code has two axes of space and a third axis of time, as in the preset "gas-saturation".
    Published errors for Darcy, Navier-Stokes and the meshes belong to a different network, from
    Neural-Solver-Library, which has two layers of each kind and larger U-Nets. All presets but
    "gas-saturation" are that network. It also contains linear maps without effect; the published
    parameter counts include them, but they are omitted here.

    If the U-Nets return 0, this is `FNO` with `depth + u_depth` layers. The convolutions of the
    U-Nets cover a fixed number of points, not a fixed length, so values do not converge as the grid
    is refined.

    The operator accepts any grid: each axis is padded with zeros to a length that the U-Nets can
    halve `levels` times, and the result is cropped. The released code appends 8 points to each axis
    before the first linear map, and the padded length must be a multiple of 8. It pads by repeating
    the last values of the input along the second axis and in time, and with zeros along the first
    axis. Here zeros are appended after the first linear map, as in the library, which pads to
    multiples of 16. In the presets `padding` is the published number of appended points divided by
    the number of points of the published grid.

    Args:
        depth, u_depth: Number of Fourier layers without U-Net, and of those with a U-Net, which
            follow.
        modes: Number m of modes along each axis; the padded grid needs n >= 2m points along this
            axis.
        u_net: "strided", as released, or "pooled", as in the library.
        levels: Number of times a U-Net halves the grid; as published, 3 for "strided" and 4 for
            "pooled".
        normalization: Norms in the U-Nets. "batch": over batch and grid. "instance": over the grid
            of each sample, as in the library for time-dependent problems.
        activation: "relu" (released), "gelu" (library), or "silu".
        last_activation: Whether an activation follows the last layer too, as in the released code.
        lift: First map: "linear" (released), or "mlp" with 2 · width hidden features (library).
        head_width: Hidden features of the network at the end: 128, or the width in the library.

    On boxes u is interpolated linearly to other points y. The library has another network, which
    first maps point clouds (elasticity) to a grid.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        # 33,097,829 are published, where a complex weight counts once
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
        # on meshes a holds the positions, which are not appended again
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
        # time is a channel of a; the published model embeds it by 33,024 further parameters, has
        # four outputs (258 more) and one input fewer (256 less)
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
