r"""Low-rank spatial attention: points meet through a few latent tokens, all by plain attention.

References: Z. Yang et al., Simple yet Effective: Low-Rank Spatial Attention for Neural Operators,
ICML 2026 (arXiv 2604.03582); released code Adversarr/LRSA-Operator.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import nn

from operators.base import MESHES, Function, Preset, at_least
from operators.nn.pointwise import Convolution, mlp, start_truncated
from operators.nn.tokens import (
    Coordinates,
    CrossAttention,
    FieldOperator,
    Positions,
    Real,
    check_heads,
)

# of meshes: the positions are a, and stand once among the features
_POSITIONS = {"coordinates": "none"}
_MESH = _POSITIONS | {"heads": 4}
_OURS = "a reading of sizes that are not published"


class Block(nn.Module):
    """From the points u to the latent tokens z, among them, and back; N are norms.

        z = attention(q, N(u)),  q learned
        z <- z + MLP(N(z)),  z <- z + attention(N(z), N(z)),  z <- z + MLP(N(z))
        u <- u + attention(N(u), N(z)),  u <- u + F(N(u))

    Args:
        width, heads, latents: Features, heads, and latent tokens.
        feedforward: Hidden features of the MLPs.
        normalize: As in `CrossAttention`.
        pointwise: The map F.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        latents: int,
        feedforward: int,
        normalize: bool,
        pointwise: nn.Module,
    ) -> None:
        super().__init__()
        self.queries = nn.Parameter(nn.init.orthogonal_(torch.empty(latents, width)))
        self.down = CrossAttention(width, heads, project=False, normalize=normalize)
        self.within = CrossAttention(width, heads, normalize=normalize)
        self.up = CrossAttention(width, heads, normalize=normalize)
        self.mlp1, self.mlp2 = (mlp(width, feedforward, width) for _ in range(2))
        self.pointwise = pointwise
        self.norm_down, self.norm1, self.norm_within, self.norm2, self.norm_up, self.norm3 = (
            nn.RMSNorm(width, eps=1e-6) for _ in range(6)
        )

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        points = self.norm_down(u).flatten(1, -2)  # (batch, n, width)
        z = self.down(self.queries[None], points, mask)
        z = z + self.mlp1(self.norm1(z))
        tokens = self.norm_within(z)
        z = z + self.within(tokens, tokens)
        z = z + self.mlp2(self.norm2(z))
        u = u + self.up(points, self.norm_up(z)).reshape(u.shape)
        return u + self.pointwise(self.norm3(u))


class LRSA(FieldOperator):
    """MLP of a and the positions, blocks that couple points by way of latent tokens, an MLP.

    Linear in the number of points. The order of the block, the norms (RMS), the learned queries
    without a map or residual sum, and the place of the convolution are those of the released code.
    Sizes of a published table are not known to us: width, depth, heads and number of latent
    tokens are those of the Transolver that it is compared with, and give 3,542,145 parameters;
    the four heads of the presets of airfoils and pipes are what another repository lists.
    Linear maps start truncated normal with variance 1/(features that enter), queries orthogonal.

    With the convolutions, of 3 points of the grid along each axis and not of a length, the
    operator acts on every resolution, but the limit of fine grids is not that of one function.
    Without them means over points are the only coupling, and values converge.

    The features of a point come from the value of a there, so that there are none at other points.

    Args:
        latents: Latent tokens of each block.
        convolution: The map of the points at the end of each block begins with a convolution, as
            published for grids. Without, as published for point clouds, the operator takes clouds,
            and with coordinates "none" it commutes with permutations of the points.
        padding: Convolutions continue the values by "zeros" or "circular", for periodic
            functions: with coordinates "none" the operator then commutes with shifts.
        normalize: Queries and keys are normalised in each head (RMS), as in the released settings;
            this bounds the logits, for half precision. False: plain attention.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "airfoil": Preset(_MESH, 3_542_657, _OURS, (2, 1), dim=2),
        "pipe": Preset(_MESH, 3_542_657, _OURS, (2, 1), dim=2),
        "plasticity": Preset({}, 3_542_530, _OURS, (2, 2), dim=2),
        "elasticity": Preset(_POSITIONS | {"convolution": False}, 2_360_193, _OURS, (2, 1), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        latents: int = 64,
        feedforward: int = 128,
        convolution: bool = True,
        padding: Literal["zeros", "circular"] = "zeros",
        coordinates: Coordinates = "raw",
        normalize: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_least(1, depth=depth)
        at_least(2, latents=latents)
        if convolution:
            self.domains, self.masks = MESHES, False
        self.embed = mlp(in_channels + self.positions.count, 2 * width, width)

        def pointwise() -> nn.Module:
            if not convolution:
                return mlp(width, feedforward, width)
            return nn.Sequential(
                Convolution(dim, width, padding),
                nn.LayerNorm(width),
                nn.Linear(width, feedforward, bias=False),  # the norm has a shift
                nn.GELU(),
                nn.Linear(feedforward, width),
            )

        self.blocks = nn.ModuleList(
            Block(width, heads, latents, feedforward, normalize, pointwise()) for _ in range(depth)
        )
        self.decoder = mlp(width, width, out_channels)
        start_truncated(self, None)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        for block in self.blocks:
            u = block(u, mask)
        return u
