r"""The Fourier neural operator, with layers σ(K u + W u + b) and learned convolutions K.

References: Z. Li et al., Fourier Neural Operator for Parametric Partial Differential Equations,
ICLR 2021, equations (2)-(5), and its released code of 2020, 2021 and 2022; S. Cao, Choose a
Transformer: Fourier or Galerkin, NeurIPS 2021, and its released code.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import nn

from operators.base import Function, Preset, at_least
from operators.nn.pointwise import Norm, PooledUNet, StridedUNet, UNet, alternating, mlp
from operators.nn.resample import GridOperator, for_each_axis
from operators.nn.spectral import ACTIVATIONS, FourierLayer
from operators.nn.tokens import Coordinates

# U-FNO: Fourier layers; the last of them also contain a U-Net.


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

    dims = (1, 2, 3)
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
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
            in_channels, out_channels, dim, coordinates, padding,
            frame_channels=frame_channels, frame_padding=frame_padding,
        )  # fmt: skip
        at_least(1, width=width, depth=depth, u_depth=u_depth, modes=modes, levels=levels)
        at_least(1, head_width=head_width)
        sigma = ACTIVATIONS[activation]
        linear = lift == "linear"
        self.lift = (
            nn.Linear(self.features, width) if linear else mlp(self.features, 2 * width, width)
        )

        def layer(number: int) -> nn.Module:
            fourier = FourierLayer(self.axes, width, modes, "none", nn.Identity(), "uniform", 0.0)
            if number < depth:
                return fourier
            return UFourierLayer(fourier, U_NETS[u_net](self.axes, width, levels, normalization))

        self.layers = alternating(sigma, map(layer, range(depth + u_depth)), last_activation)
        self.head = mlp(width, head_width, frame_channels or out_channels, activation=sigma)


SQUARE = {"modes": 12, "width": 32}
VORTICITY = {"modes": 12, "width": 20}
PADDED = {"padding": 9 / 85}
AIRFOIL = SQUARE | {"modes": [24, 12], "indices": True, "padding": [8 / 221, 8 / 51]}
PIPE = SQUARE | {"indices": True, "padding": 8 / 129}
RELU = {"activation": "relu"}
FIRST = {**RELU, "normalization": "batch"}
PLUS = {"channel_mlp": True}
BLOCK = {"modes": 8, "width": 20, "frame_channels": 1, "frame_padding": 6}
BLOCK_2020 = BLOCK | FIRST | {"frame_padding": 0}
VORTICITY_PLUS = VORTICITY | PLUS | {"normalization": "instance", "head_width": 80}
CAO = {"activation": "silu", "last_activation": True, "initialization": "near-zero"}

TABLE = "Li et al. (2021), table 1; released code of 2020"
CODE_2020 = "Li et al. (2021), released code of 1 November 2020 (90bbd4c9)"
CODE_RELU = "Li et al. (2021), released code of January 2021 (6f1d6fe8)"
CODE_2021 = "Li et al. (2021), released code of August 2021 (d2152fdf)"
CODE_PLUS = "Li et al. (2021), released code of 2022"
CODE_GEO = "Li et al. (2023), Geo-FNO, released code (d499bde7)"
CODE_CAO = "Cao (2021), released code, four spectral layers"


class FNO(GridOperator):
    """A pointwise linear map, Fourier layers, and a pointwise network with one hidden layer.

    The defaults are those of the Burgers example in the released code of August 2021 (549,569
    parameters). Compared with the version of 2020 it has GELU instead of ReLU and no batch
    normalisation. Presets of other versions have names that end in "-2020", "-relu", "-plus"
    (FNO++) or "-cao", the re-implementation released with Cao (2021). The baseline in Table 5 of
    Cao (2021) has ReLU, as in the presets "-relu".

    The code of 2020 scaled coordinates in 1-D to [0, 2π], and times in 3-D began with 1/T. Here
    coordinates are scaled to [0, 1], and times begin with 0. The presets "-2020" refer to commit
    90bbd4c9. In the commits before and after it, 3ccb2d21 and b37d24eb, the fourth layer in 1-D
    overwrites its input by mistake.

    K is a circular convolution; its period is the whole grid including the padding. Without padding
    this is exact for periodic functions on grids j/n, which do not repeat the first point at the
    end. On other grids K wraps values around too, but this is not exact.

    Args:
        modes: Number m of modes kept along each axis: one number, or one for each axis. Each axis
            of the padded grid needs at least 2m points.
        activation: "gelu", "relu" (released code until January 2021), or "silu" (Cao 2021).
        last_activation: Whether an activation follows the last Fourier layer too (Cao 2021).
        normalization: "batch": batch normalisation of K u + W u + b, as in 2020. It subtracts the
            mean, so b has no effect in training. "instance": instance normalisation before and
            after K, without parameters (FNO++ for time-dependent flows). "none": no normalisation.
        channel_mlp: Whether an MLP with `width` hidden features follows K at each point (FNO++).
        initialization: Distribution of the initial complex weights of K. "uniform", as published:
            real and imaginary parts in [0, 1/width²). "near-zero" (Cao 2021): normal and smaller,
            see `SpectralConv1d` and `SpectralConv2d`.
        dropout: Dropout rate before the Fourier transforms (Cao 2021).

    Weights carry over to other grids only if the period is the same there. The padding of the
    presets is the same share of the points of each grid. On grids that contain both ends this makes
    periods that differ by some per cent, which is a large phase in the highest modes; `period`
    fixes the length itself.

    On boxes u is interpolated linearly along each axis to other points y. Beyond the outermost
    points x it is constant, on periodic grids too. On curvilinear meshes K acts along the indices,
    and u is available at the points of a only.

    >>> import torch
    >>> model = FNO()
    >>> model.parameter_count
    549569
    >>> model(torch.randn(2, 64, 1), torch.arange(64)[:, None] / 64).shape
    torch.Size([2, 64, 1])
    """

    dims = (1, 2, 3)
    added = ("period",)
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset({}, 549_569, CODE_2021),
        "burgers-2020": Preset(FIRST, 550_081, CODE_2020),
        "burgers-relu": Preset(RELU, 549_569, CODE_RELU),
        "burgers-plus": Preset(PLUS, 582_849, CODE_PLUS),
        "burgers-cao": Preset(CAO, 549_569, CODE_CAO),
        "darcy": Preset(SQUARE | PADDED, 2_368_001, CODE_2021, dim=2),
        "darcy-2020": Preset(SQUARE | FIRST, 2_368_257, CODE_2020, dim=2),
        "darcy-relu": Preset(SQUARE | RELU, 2_368_001, CODE_RELU, dim=2),
        "darcy-plus": Preset(SQUARE | PADDED | PLUS, 2_376_449, CODE_PLUS, dim=2),
        "darcy-cao": Preset(SQUARE | CAO, 2_368_001, CODE_CAO, dim=2),
        "navier-stokes": Preset(VORTICITY, 926_357, CODE_2021, (10, 1), dim=2),
        "navier-stokes-2020": Preset(VORTICITY | FIRST, 926_517, CODE_2020, (10, 1), dim=2),
        "navier-stokes-plus": Preset(VORTICITY_PLUS, 928_661, CODE_PLUS, (10, 1), dim=2),
        # on meshes a holds the positions; the coordinates appended to it are those of the indices
        "airfoil": Preset(AIRFOIL, 4_727_329, CODE_GEO, (2, 1), dim=2),
        "pipe": Preset(PIPE, 2_368_033, CODE_GEO, (2, 1), dim=2),
        "navier-stokes-3d": Preset(BLOCK, 6_558_377, CODE_2021, (10, 10), dim=2),
        "navier-stokes-3d-2020": Preset(BLOCK_2020, 6_558_537, TABLE, (10, 40), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 64,
        depth: int = 4,
        modes: int | list[int] = 16,
        activation: Literal["gelu", "relu", "silu"] = "gelu",
        last_activation: bool = False,
        normalization: Literal["none", "batch", "instance"] = "none",
        channel_mlp: bool = False,
        head_width: int = 128,
        coordinates: Coordinates = "raw",
        padding: float | list[float] = 0.0,
        padding_points: int = 0,
        initialization: Literal["uniform", "near-zero"] = "uniform",
        dropout: float = 0.0,
        frame_channels: int = 0,
        frame_padding: int = 0,
        indices: bool = False,
        period: float = 0.0,
    ) -> None:
        super().__init__(
            in_channels, out_channels, dim, coordinates, padding, padding_points,
            frame_channels, frame_padding, indices, period,
        )  # fmt: skip
        axis_modes = for_each_axis("modes", modes, self.axes)
        at_least(1, width=width, depth=depth, modes=min(axis_modes), head_width=head_width)
        if len(set(axis_modes)) == 1:
            modes = axis_modes[0]
        elif self.axes == 3:
            raise ValueError(f"on three axes modes must be one number, got {modes}")
        sigma = ACTIVATIONS[activation]

        self.lift = nn.Linear(self.features, width)

        def layer() -> nn.Module:
            after_k = mlp(width, width, width, activation=sigma) if channel_mlp else nn.Identity()
            settings = width, modes, normalization, after_k, initialization, dropout
            return FourierLayer(self.axes, *settings)

        self.layers = alternating(sigma, (layer() for _ in range(depth)), last_activation)
        self.head = mlp(width, head_width, frame_channels or out_channels, activation=sigma)
