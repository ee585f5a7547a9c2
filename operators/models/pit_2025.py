r"""The PyTorch version of the Position-induced Transformer, with attention based on distances.

References: J. Chen and K. Wu, Positional Knowledge is All You Need: Position-induced Transformer
(PiT) for Operator Learning, ICML 2024; code of May 2025 in
github.com/junfeng-chen/position_induced_transformer (05d1c2d), pit.py and train_*.py. There is no
publication of this network.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask, Points, Preset, Targets, at_least, check_input
from operators.nn.pointwise import InstanceNorm, mlp
from operators.nn.resample import for_each_axis
from operators.nn.tokens import (
    Coordinates,
    PointOperator,
    PositionAverage,
    Positions,
    SquaredDistance,
    check_localities,
    flattened,
    mesh,
)

_CODE = "released code of 2025 (05d1c2d), train_{}.py"
_OURS = "not published: {}"
_SQUARE = {"width": 64, "latent": 16, "ends": True}
_NACA = {"width": 128, "heads": 1, "latent": "output", "stride": 4, "coordinates": "none"}


def start_normal(layers: nn.Sequential) -> nn.Sequential:
    """Draw the weights of linear maps from N(0, 2/c_in); leave the biases unchanged."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return layers


class PiT2025(PointOperator):
    """Local averages to a latent mesh and back, with MLPs of the averages of all heads.

        u <- σ MLP(A a),    u <- σ MLP([u, A u]) for each block,    u <- MLP(A u)

    with A v = [A₁ v, ..., A_h v], A_i = softmax(-λ_i D) over the points, and σ = GELU. Features are
    averaged without a projection. There is no embedding: the first A acts on a with the coordinates
    appended. Otherwise the network is that of `PiT`. The defaults are the released settings for the
    inviscid Burgers equation: 95,375 parameters.

    The released code gives the same function if no two distances are equal. Where distances equal
    the quantile, rounding decides which of these points that code averages over. Here either all of
    them or none are included. In the released code coordinates of shock tubes lie in [-5, 5]:
    `scale` 0.01 gives the same distances here, but the x appended to a lies in [0, 1]. In the
    released code for airfoils a is given at the 120 points of the outline. This is possible here
    too, but in the data here a is given on the mesh. The released network for the wake of a
    cylinder is omitted; it has a residual sum and reads a coarse mesh from a file.

    Args:
        heads: Number h of heads in every average.
        latent: Points of the latent mesh along each axis, one number or a list. "output", as
            published for meshes: the latent mesh is every `stride`-th output point along each axis.
        ends: Whether the n latent points along an axis include both ends and lie at j/(n - 1).
            Otherwise they lie at j/n.
        stride: Distance between latent points in steps of the output grid, for latent "output"
            only.
        encoder_locality: Percentage of the points x that a latent point averages over.
        decoder_locality: Percentage of the latent points that a point of the output averages over.
        periodic: Whether distances are those on the unit torus.
        scale: Squared length by which the squared distances D are divided.
        normalization: "instance", as published for vorticity: features are normalised to mean 0 and
            variance 1 over the latent points before the first block and after the last one. "none":
            no normalisation.
    """

    other_points = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "inviscid-burgers": Preset({}, 95_375, _CODE.format("burgers")),
        "shock-tube": Preset(
            {"width": 32, "heads": 1, "depth": 2, "periodic": False, "scale": 0.01},
            8_647,
            _CODE.format("sod"),
            (3, 3),
        ),
        "darcy": Preset(
            _SQUARE | {"depth": 4, "periodic": False}, 78_989, _CODE.format("darcy"), dim=2
        ),
        "vorticity": Preset(
            {"width": 256, "depth": 4, "latent": 16, "normalization": "instance"},
            1_254_413,
            _CODE.format("vorticity"),
            (10, 1),
            dim=2,
        ),
        "elasticity": Preset(
            {"width": 256, "depth": 4, "latent": "output", "periodic": False},
            1_270_797,
            _CODE.format("elasticity"),
            (42, 1),
            dim=2,
        ),
        "airfoil": Preset(
            _NACA | {"depth": 4, "periodic": False}, 231_562, _CODE.format("naca"), (2, 4), dim=2
        ),
        "pipe": Preset(
            _NACA | {"depth": 4, "periodic": False},
            231_175,
            _OURS.format("as airfoil"),
            (2, 1),
            dim=2,
        ),
        "plasticity": Preset(
            _NACA | {"depth": 4, "periodic": False, "coordinates": "raw"},
            231_560,
            _OURS.format("as airfoil"),
            (2, 2),
            dim=2,
        ),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 64,
        heads: int = 2,
        depth: int = 5,
        latent: int | list[int] | Literal["output"] = 256,
        ends: bool = False,
        stride: int = 1,
        encoder_locality: float = 2.0,
        decoder_locality: float = 2.0,
        periodic: bool = True,
        scale: float = 1.0,
        normalization: Literal["none", "instance"] = "none",
        coordinates: Coordinates = "raw",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        at_least(1, width=width, heads=heads, stride=stride)
        at_least(0, depth=depth)
        points = 1 if isinstance(latent, str) else latent  # "output" needs no mesh
        sizes = for_each_axis("latent", points, dim)
        at_least(1, latent=min(sizes))
        if stride > 1 and latent != "output":
            raise ValueError(f'stride={stride} needs latent "output", got {latent}')
        check_localities(encoder_locality=encoder_locality, decoder_locality=decoder_locality)
        self.latent, self.stride = None if latent == "output" else sizes, stride
        # from the points j/n of `mesh` to j/(n - 1) = (j/n) n/(n - 1)
        self.stretch = [n / (n - 1) if ends and n > 1 else 1.0 for n in sizes]
        distance = SquaredDistance(periodic, scale)
        c = self.positions.count + in_channels
        self.down = PositionAverage(heads, encoder_locality, distance)
        self.lift = start_normal(mlp(heads * c, width, width))
        self.averages = nn.ModuleList(PositionAverage(heads, 100, distance) for _ in range(depth))
        self.mixers = nn.ModuleList(
            start_normal(mlp((1 + heads) * width, width, width)) for _ in range(depth)
        )
        self.up = PositionAverage(heads, decoder_locality, distance)
        self.head = start_normal(mlp(heads * width, width, out_channels))
        self.norm = InstanceNorm() if normalization == "instance" else None

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        target, by_sample = x if y is None else y, x.ndim == a.ndim
        samples = (slice(None),) * by_sample  # the axis of samples, where y has one
        points, outputs = flattened(x, by_sample), flattened(target, by_sample)
        real, within = None if mask is None else mask.flatten(1), None
        if self.latent is None:
            strided = (slice(None, None, self.stride),) * (target.ndim - 1 - by_sample)
            latent = flattened(target[(*samples, *strided)], by_sample)
            if mask is not None and y is None:
                within = mask[(slice(None), *strided)].flatten(1)
        else:
            axes = mesh(self.latent, points).unbind(-1)
            latent = torch.stack([z * s for z, s in zip(axes, self.stretch, strict=True)], dim=-1)
        v = self.positions.beside(a, x).flatten(1, -2)
        u = nn.functional.gelu(self.lift(self.down(v, points, latent, real)))
        u = u if self.norm is None else self.norm(u, within)
        for average, mix in zip(self.averages, self.mixers, strict=True):
            u = torch.cat([u, average(u, latent, latent, within)], dim=-1)
            u = nn.functional.gelu(mix(u))
        u = u if self.norm is None else self.norm(u, within)
        u = self.head(self.up(u, latent, outputs, within))
        return u.reshape(len(u), *target.shape[int(by_sample) : -1], -1)
