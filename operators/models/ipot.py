r"""IPOT: latent tokens attend to the points of the input, and output points attend to the tokens.

References: S. Lee and T. Oh, Inducing Point Operator Transformer: A Flexible and Scalable
Architecture for Solving PDEs, AAAI 2024; S. Lee, Mesh-Independent Operator Learning for Partial
Differential Equations (MINO), ICML 2022 workshop on AI for science; released code 7tl7qns7ch/IPOT
at commit 18c1778.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.pointwise import GEGLU
from operators.nn.tokens import (
    CrossAttention,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
)

# published factor of the output; Adam then acts as with a smaller learning rate of the last maps
_SCALE = 0.1


@dataclass(frozen=True)
class Bands(Positions):
    """x, sin πfx and cos πfx of each coordinate x, with frequencies f from 1 to resolution/2.

    Args:
        bands: Number of evenly spaced frequencies.
        resolution: Twice the highest frequency; this many points in [0, 1] resolve it.

    >>> Bands("raw", 1, last=True, bands=2, resolution=4)(torch.tensor([[0.5]]))
    tensor([[ 5.0000e-01,  1.0000e+00, -8.7423e-08, -4.3711e-08, -1.0000e+00]])
    """

    bands: int = 64
    resolution: int = 64

    @property
    def count(self) -> int:
        """Number of features of a point."""
        return self.dim * (1 + 2 * self.bands)

    def __call__(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points p"]:
        f = torch.linspace(1, self.resolution / 2, self.bands, dtype=x.dtype, device=x.device)
        angle = math.pi * (x[..., None] * f).flatten(-2)
        return torch.cat([x, torch.sin(angle), torch.cos(angle)], dim=-1)


class IPOT(TokenOperator):
    """Cross-attention from tokens to a, a repeated block, and cross-attention from y to tokens.

        z = z₀ + attention(LN z₀, LN [a, p(x)]),  z₀ learned.
        z <- z + attention(LN z, z), z <- z + MLP(LN z), depth times with the same weights.
        u(y) = 0.1 (v + MLP(LN v)),  v = attention(LN p(y), LN z).

    p(x) are the coordinates x and their sines and cosines (see `Bands`). The queries of the output
    depend on positions only, so u can be evaluated at any points y. The cost is linear in the
    number of points. Points interact only through means over points, so values converge under
    refinement, and the order of the points has no influence.

    The defaults are those of the released code, for Burgers' equation. Settings for other datasets
    are not published. As in the released code, attention among the latent tokens normalises the
    queries only. The encoder of that code has another MLP of 49,856 parameters that is never used;
    it is left out here.

    The last LN acts over the output channels. For two channels its result contains little more than
    the sign of their difference, and for one channel it is constant. With one channel the last MLP
    would thus add a constant, as the bias of the attention already does. The last MLP is therefore
    left out if there is one channel.

    Args:
        width: Number of features of a latent token and inside the attentions.
        depth: Number of times that the block is applied.
        heads: Number of heads of the attention among latent tokens; must divide the width.
        cross_heads: Number of heads of the two cross-attentions; must divide the width.
        latents: Number of latent tokens.
        expansion: Number of hidden features of the MLPs, as a multiple of their input features.
        bands: Number of frequencies for each coordinate.
        resolution: Twice the highest frequency; this many points in [0, 1] resolve it.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset(
            # released: 141,844, including 49,856 idle ones and 13 of the last MLP
            {},
            91_975,
            "Lee and Oh 2024, defaults of the released code",
        )
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
        cross_heads: int = 1,
        latents: int = 128,
        expansion: int = 2,
        bands: int = 64,
        resolution: int = 64,
    ) -> None:
        positions = Bands("raw", dim, last=True, bands=bands, resolution=resolution)
        super().__init__(in_channels, out_channels, dim, positions)
        check_heads(width, heads)
        check_heads(width, cross_heads)
        at_least(1, depth=depth, latents=latents, expansion=expansion, bands=bands)
        at_least(2, resolution=resolution)
        features, p = self.features, positions.count
        self.latents = nn.Parameter(0.02 * torch.randn(latents, width))
        self.norm_latents, self.norm_input = nn.LayerNorm(width), nn.LayerNorm(features)
        self.encode = CrossAttention(width, cross_heads, sources=features)
        self.norm_within = nn.LayerNorm(width)
        self.within = CrossAttention(width, heads)
        self.norm_mlp, self.mlp = nn.LayerNorm(width), GEGLU(width, expansion * width, width)
        self.depth = depth
        self.norm_query, self.norm_tokens = nn.LayerNorm(p), nn.LayerNorm(width)
        self.decode = CrossAttention(width, cross_heads, queries=p, out=out_channels)
        self.last = None
        if out_channels > 1:
            gated = GEGLU(out_channels, expansion * out_channels, out_channels)
            self.last = nn.Sequential(nn.LayerNorm(out_channels), gated)

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        z = self.latents[None]
        z = z + self.encode(self.norm_latents(z), self.norm_input(v), mask)
        for _ in range(self.depth):
            z = z + self.within(self.norm_within(z), z)
            z = z + self.mlp(self.norm_mlp(z))
        p = self.positions(y)
        q = self.norm_query(p if p.ndim == 3 else p[None])
        u = self.decode(q, self.norm_tokens(z))
        return _SCALE * (u if self.last is None else u + self.last(u))
