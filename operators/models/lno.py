r"""LNO: a Transformer on latent tokens; the maps from and to points depend on positions only.

References: T. Wang and C. Wang, Latent Neural Operator for Solving Forward and Inverse PDE
Problems, NeurIPS 2024; released code L-I-M-I-T/LatentNeuralOperator at commit 771a874.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.attention import over_points
from operators.nn.pointwise import ResidualMLP, mlp
from operators.nn.tokens import (
    Coordinates,
    CrossAttention,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
)

_RELEASED = "Wang and Wang 2024, released settings: {}"
_NACA = {"depth": 8, "indices": True}

Scores = Float[Tensor, "n latents"] | Float[Tensor, "batch n latents"]


class Block(nn.Module):
    """z <- z + attention(LN(z)), z <- z + MLP(LN(z)); the MLP has 2 · width hidden features."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = CrossAttention(width, heads, bias=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = mlp(width, 2 * width, width)

    def forward(self, z: Tokens) -> Tokens:
        tokens = self.norm1(z)
        z = z + self.attention(tokens, tokens)
        return z + self.mlp(self.norm2(z))


class LNO(TokenOperator):
    """Latent tokens that are weighted means over points, blocks on tokens, and a map to points.

        S(x) = MLP(MLP(x)),   z_m = Σ_j softmax_j(S(x_j))_m MLP(x_j, a(x_j)).
        z <- z + attention(LN z), z <- z + MLP(LN z), depth times.
        u(y) = MLP(Σ_m softmax_m(S(y))_m z_m).

    The scores S depend on positions only and are the same function at x and y, so u can be
    evaluated at any points y. If samples share the points, scores are computed once for all. The
    cost is linear in the number of points; each point has `latents` scores. Points interact only
    through means over points, so values converge under refinement, and the order of the points has
    no influence.

    The defaults are those of the released Darcy example (762,113 parameters). Initial weights are
    those of `nn.Linear`; the released code has another initialisation but never calls it.

    For airfoils and pipes the coordinates in the released code are the indices of points, j/(n - 1)
    along each axis, and a contains the positions. Here, with `indices`, the coordinates are j/n.
    For Plasticity the time is a third coordinate in that code and a channel of a here.

    Args:
        latents: Number of latent tokens, called "modes" by the authors.
        mlp_depth: Number of residual hidden layers in each of the four MLPs that act on points.
        coordinates: Coordinates appended to a at each point. "raw": x itself. "periodic": cos 2πx
            and sin 2πx, from which the scores are computed too. "none": nothing; the scores are
            computed from x.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 762_113, _RELEASED.format("Darcy"), dim=2),
        "navier-stokes": Preset(
            {"width": 256, "depth": 8},
            5_076_481,
            _RELEASED.format("Navier-Stokes"),
            channels=(10, 1),
            dim=2,
        ),
        "airfoil": Preset(_NACA, 1_292_161, _RELEASED.format("Airfoil"), (2, 1), 2),
        "pipe": Preset(_NACA, 1_292_161, _RELEASED.format("Pipe"), (2, 1), 2),
        # a holds the positions, which are not appended again
        "elasticity": Preset(
            {"width": 192, "mlp_depth": 3, "coordinates": "none"},
            1_831_745,
            _RELEASED.format("Elasticity"),
            channels=(2, 1),
            dim=2,
        ),
        # time is a channel of a; as a coordinate it would have 128 parameters more. The four
        # outputs published have 258 more: 762,756
        "plasticity": Preset({}, 762_370, _RELEASED.format("Plasticity"), (2, 2), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 4,
        heads: int = 8,
        latents: int = 256,
        mlp_depth: int = 2,
        coordinates: Coordinates = "raw",
        indices: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_least(1, depth=depth)
        at_least(2, latents=latents)
        at_least(0, mlp_depth=mlp_depth)
        if indices:
            self.see_indices()
        self.trunk_positions = Positions("periodic" if coordinates == "periodic" else "raw", dim)

        def residual(features: int, out: int) -> nn.Module:
            return ResidualMLP(features, width, out, mlp_depth, nn.GELU())

        self.trunk = residual(self.trunk_positions.count, width)
        self.branch = residual(self.features, width)
        self.to_scores = residual(width, latents)
        self.decoder = residual(width, out_channels)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def scores(self, x: TokenPoints) -> Scores:
        """The scores S of the points x, one for each latent token."""
        return self.to_scores(self.trunk(self.trunk_positions(x)))

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        scores = self.scores(x)
        real = None if mask is None else mask[..., None]
        z = mixed(over_points(scores, real).mT, self.branch(v))
        for block in self.blocks:
            z = block(z)
        return self.decoder(mixed((scores if y is x else self.scores(y)).softmax(dim=-1), z))


def mixed(
    w: Float[Tensor, "m n"] | Float[Tensor, "batch m n"], v: Float[Tensor, "batch n c"]
) -> Float[Tensor, "batch m c"]:
    """The matrix product w v for each sample; w may be the same for all samples."""
    return torch.einsum("mn,bnc->bmc", w, v) if w.ndim == 2 else w @ v
