r"""FLARE: low-rank attention from points to latent tokens and back, with the same scores.

References: V. Puri et al., FLARE: Fast Low-rank Attention Routing Engine, 2025 (arXiv 2508.12594);
released code vpuri3/FLARE.py at commit 4e05378.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from operators.base import Function, Preset, at_least
from operators.nn.pointwise import ResidualMLP
from operators.nn.tokens import (
    Coordinates,
    FieldOperator,
    Positions,
    Real,
    as_keys,
    check_heads,
    merged,
    split,
)

_SCRIPT = "Puri et al. 2025, released script run_comp.sh"
_OURS = "defaults of the released code, which names no sizes for this dataset"
_POSITIONS = {"coordinates": "none"}


def residual(width: int, out: int, depth: int, features: int | None = None) -> nn.Module:
    """An MLP with residual connections around layers of equal input and output size.

    The activation is GELU in the tanh approximation.

    Args:
        width, out: Hidden and output features.
        depth: Number of hidden layers.
        features: Number of input features. None: the width.
    """
    activation = nn.GELU(approximate="tanh")
    first, last = features is None, width == out
    return ResidualMLP(features or width, width, out, depth, activation, first, last)


class LatentRouting(nn.Module):
    """softmax_m(K Lᵀ) softmax_n(L Kᵀ) V in each head, with two MLPs K and V of u.

    L are m learned latent tokens. softmax_m is taken over the tokens, softmax_n over the n points.
    The attention matrix between the points thus has rank m at most. Both softmaxes act on the same
    scores, without the factor 1/√d. The cost is linear in n, and no n x m matrix is stored.

    Args:
        width, heads: Features, and number of heads.
        latents: Latent tokens of each head.
        mlp_depth: Hidden layers of the two MLPs.
    """

    def __init__(self, width: int, heads: int, latents: int, mlp_depth: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(0.1 * torch.randn(heads, latents, width // heads))
        self.key, self.value = (residual(width, width, mlp_depth) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        projections = (p(u).flatten(1, -2) for p in (self.key, self.value))
        k, v = (split(f, len(self.latents)) for f in projections)
        q = self.latents.expand(len(u), -1, -1, -1).to(k.dtype)
        z = scaled_dot_product_attention(q, k, v, as_keys(mask), scale=1.0)
        v = merged(scaled_dot_product_attention(k, q, z, scale=1.0))
        return self.out(v.reshape(u.shape))


class Block(nn.Module):
    """u <- u + routing(LN(u)), u <- u + MLP(LN(u)), with a `LatentRouting`."""

    def __init__(self, width: int, heads: int, latents: int, mlp_depth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.routing = LatentRouting(width, heads, latents, mlp_depth)
        self.mlp = residual(width, width, mlp_depth)

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        u = u + self.routing(self.norm1(u), mask)
        return u + self.mlp(self.norm2(u))


class FLARE(FieldOperator):
    """An MLP of a and the positions, blocks of attention through latent tokens, LN and an MLP.

    The cost is linear in the number of points. Defaults and structure are those of the released
    code. All MLPs, including those of keys and values, have residual connections around the layers
    that keep the width. Initial weights of linear maps are normal with standard deviation 0.02, and
    their biases are 0. Initial latent tokens are normal with standard deviation 0.1. Points
    interact only through means over points, so values converge under refinement. With coordinates
    "none" the operator commutes with permutations of the points.

    The features of a point include the value of a there, so u is available at the points of a only.

    Args:
        latents: Latent tokens of each head.
        mlp_depth: Number of hidden layers of the MLPs in the blocks. The first and the last MLP
            have 2.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({"latents": 256, "heads": 16}, 691_009, _SCRIPT, dim=2),
        # on meshes a holds the positions, which are not appended again
        "airfoil": Preset(_POSITIONS | {"latents": 256}, 690_945, _SCRIPT, (2, 1), 2),
        "pipe": Preset(_POSITIONS | {"latents": 128}, 625_409, _SCRIPT, (2, 1), 2),
        "elasticity": Preset(_POSITIONS, 592_641, _SCRIPT, (2, 1), 2),
        "navier-stokes": Preset({}, 593_281, _OURS, (10, 1), 2),
        "plasticity": Preset({}, 592_834, _OURS, (2, 2), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 64,
        depth: int = 8,
        heads: int = 8,
        latents: int = 64,
        mlp_depth: int = 3,
        coordinates: Coordinates = "raw",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_least(1, depth=depth)
        at_least(2, latents=latents)
        at_least(0, mlp_depth=mlp_depth)
        self.embed = residual(width, width, 2, self.features)
        self.blocks = nn.ModuleList(Block(width, heads, latents, mlp_depth) for _ in range(depth))
        last = ResidualMLP(width, width, out_channels, 2, nn.GELU(approximate="tanh"), first=True)
        self.decoder = nn.Sequential(nn.LayerNorm(width), last)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
