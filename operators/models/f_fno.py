r"""The factorized Fourier neural operator, whose layers contain a sum of 1-D convolutions.

References: A. Tran, A. Mathews, L. Xie, C. S. Ong, Factorized Fourier Neural Operators, ICLR 2023,
equations (4) and (7); released code alasdairtran/fourierflow at 82d1689e.
"""

import math
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Preset, at_least
from operators.nn.resample import GridOperator, for_each_axis
from operators.nn.spectral import complex_products, transformed
from operators.nn.tokens import Coordinates

_SEPARATE = {"shared": False, "gain": 1.0}
_MESH = _SEPARATE | {"indices": True}
_CODE = "fourierflow, configuration of"


class WeightNormalized(nn.Linear):
    """W u + b with rows W_i = g_i v_i/|v_i|: lengths g and directions v are learned separately.

    Initial weights are those of `nn.Linear`.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.length = nn.Parameter(self.weight.detach().norm(dim=1, keepdim=True))

    def forward(self, input: Tensor) -> Tensor:
        weight = self.length * nn.functional.normalize(self.weight, dim=1)
        return nn.functional.linear(input, weight, self.bias)


class FactorizedConvolution(nn.Module):
    """K u = Σ_i irfft_i(R_i rfft_i(u)), where rfft_i and irfft_i act along axis i only.

    Args:
        width: Channels of u and K u.
        modes: Number of modes kept along each axis; axis i needs n >= 2 modes[i] points.
        gain: Factor of the initial weights, which are Xavier-normal for the shape (width, width,
            modes, 2).
    """

    def __init__(self, width: int, modes: list[int], gain: float) -> None:
        super().__init__()
        # complex weights of shape (modes, in, out), stored as real pairs
        self.weights = nn.ParameterList(
            gain / math.sqrt(2 * m * width) * torch.randn(m, width, width, 2) for m in modes
        )

    def forward(self, u: Function) -> Function:
        along = (_along(u, axis, weight) for axis, weight in enumerate(self.weights, 1))
        return reduce(torch.add, along)


def _along(u: Function, axis: int, weight: Float[Tensor, "modes c c 2"]) -> Function:
    """The convolution along one axis, computed as one matrix product for each mode."""
    m, n, c = len(weight), u.shape[axis], u.shape[-1]
    if n < 2 * m:
        raise ValueError(f"{m} modes need an axis of at least {2 * m} points, got {n}")
    before, after = math.prod(u.shape[:axis]), math.prod(u.shape[axis + 1 : -1])
    u_hat = transformed(u.reshape(before, n, after * c), "spectrum", n, m)
    u_hat = u_hat.view(before, 2, m, after, c).permute(2, 1, 0, 3, 4)
    v_hat = complex_products(u_hat.flatten(2, 3), weight).unflatten(2, (before, after))
    v_hat = v_hat.permute(2, 0, 1, 3, 4).reshape(before, 2 * m, after * c)
    return transformed(v_hat, "values", n, m).view(u.shape)


class FactorizedLayers(nn.Module):
    """Layers b = MLP(K u), u <- u + b. The result is the b of the last layer, not the sum u.

    Args:
        width, depth: Channels of u, and number of layers.
        modes, gain: Numbers of modes and initial factor of K, see `FactorizedConvolution`.
        feedforward: Hidden features of the MLPs.
        shared: Whether all layers share one K.
    """

    def __init__(
        self, width: int, depth: int, modes: list[int], feedforward: int, shared: bool, gain: float
    ) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            FactorizedConvolution(width, modes, gain) for _ in range(1 if shared else depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(
                WeightNormalized(width, feedforward),
                nn.ReLU(),
                WeightNormalized(feedforward, width),
            )
            for _ in range(depth)
        )

    def forward(self, u: Function) -> Function:
        b = torch.zeros_like(u)
        for i, mlp in enumerate(self.mlps):
            u = u + b
            b = mlp(self.convolutions[i % len(self.convolutions)](u))
        return b


class FFNO(GridOperator):
    """A pointwise linear map, layers u + MLP(K u), and two linear maps; all weight-normalised.

    The defaults are the published settings of Navier-Stokes at viscosity 1e-5 (1,072,834
    parameters). The published model maps one frame to the next; the time derivative is not an
    input. In training, noise of standard deviation 0.01 was added to the normalised inputs.

    Without padding and with coordinates "none" the operator commutes with shifts of the grid along
    each axis. K transforms each axis separately; only the MLPs couple frequencies of different
    axes.

    Let b = MLP(K u) in the last layer. As in the released code, the two linear maps of the head act
    on b instead of u + b. There is no activation between them, so together they are one linear map.

    Args:
        modes: Number m of modes kept along each axis, as one number for all axes or a list. In a
            list the number for the axis of the frames comes last. Each axis, including its padding,
            needs at least 2m points.
        factor: Number of hidden features of the MLPs, as a multiple of the width.
        shared: Whether all layers share the weights of K, as published for Navier-Stokes. False, as
            in the published models of meshes: each layer has its own weights.
        gain: Factor of the initial weights of K. Published: 0.1 for shared weights, 1 for separate
            ones.
        head_width: Features between the two linear maps of the head.

    On boxes u is interpolated linearly to other points y. The published model for point clouds
    (elasticity), which maps the points to a grid first, is not implemented here. Settings for Darcy
    are not published. The model "F_FNO" of Neural-Solver-Library has no MLPs, which makes its
    layers linear.
    """

    dims = (1, 2, 3)
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
    presets: ClassVar[Mapping[str, Preset]] = {
        "navier-stokes": Preset({}, 1_072_834, f"{_CODE} torus_li/markov, 24 layers", dim=2),
        "navier-stokes-own": Preset(
            _SEPARATE, 7_102_146, f"{_CODE} torus_li/ablation/no_sharing, 24 layers", dim=2
        ),
        # on meshes a holds the positions
        "airfoil": Preset(
            _MESH | {"modes": [32, 16], "padding": [8 / 221, 8 / 51]},
            10_247_938,
            f"{_CODE} airfoil/ffno, 24 layers",
            (2, 1),
            dim=2,
        ),
        "pipe": Preset(
            _MESH | {"padding": 8 / 129}, 7_102_210, f"{_CODE} pipe/ffno, 24 layers", (2, 1), dim=2
        ),
        "plasticity": Preset(
            _MESH
            | {
                "modes": [32, 12, 8],
                "padding": [8 / 101, 8 / 31],
                "frame_channels": 4,
                "frame_padding": 8,
            },
            11_034_760,
            f"{_CODE} plasticity/ffno, 24 layers",
            (1, 80),
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
        depth: int = 24,
        modes: int | list[int] = 16,
        factor: int = 4,
        shared: bool = True,
        gain: float = 0.1,
        head_width: int = 128,
        coordinates: Coordinates = "raw",
        indices: bool = False,
        padding: float | list[float] = 0.0,
        frame_channels: int = 0,
        frame_padding: int = 0,
    ) -> None:
        super().__init__(
            in_channels, out_channels, dim, coordinates, padding,
            frame_channels=frame_channels, frame_padding=frame_padding, indices=indices,
        )  # fmt: skip
        at_least(1, width=width, depth=depth, factor=factor, head_width=head_width)
        axis_modes = for_each_axis("modes", modes, self.axes)
        at_least(1, modes=min(axis_modes))
        if gain <= 0:
            raise ValueError(f"gain must be positive, got {gain}")
        self.lift = WeightNormalized(self.features, width)
        self.layers = FactorizedLayers(width, depth, axis_modes, factor * width, shared, gain)
        self.head = nn.Sequential(
            WeightNormalized(width, head_width),
            WeightNormalized(head_width, frame_channels or out_channels),
        )
