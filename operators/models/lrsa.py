r"""Low-rank spatial attention: points are coupled through a few latent tokens by softmax attention.

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

# on meshes a holds the positions, which are not appended again
_POSITIONS = {"coordinates": "none"}
_MESH = _POSITIONS | {"heads": 4}
_OURS = "our interpretation: sizes are not published"


class Block(nn.Module):
    """Attention from points u to latent tokens z, among the tokens, and back, with RMS norms N.

        z = attention(q, N(u)),  q learned.
        z <- z + MLP(N(z)),  z <- z + attention(N(z), N(z)),  z <- z + MLP(N(z)).
        u <- u + attention(N(u), N(z)),  u <- u + F(N(u)).

    Args:
        width: Features of a point and of a token.
        heads, latents: Numbers of heads and of latent tokens.
        feedforward: Hidden features of the MLPs.
        normalize: Whether queries and keys are normalised, see `LRSA`.
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
    """An MLP of a and the positions, blocks that couple points through latent tokens, and an MLP.

    The cost is linear in the number of points. Blocks have the structure of the released code: the
    order of their layers, RMS norms, the position of the convolution, and learned queries without a
    linear map or a residual connection. The sizes behind the published tables are not known. The
    default width, depth, and numbers of heads and latent tokens are those of Transolver in the
    comparisons of the paper; they give 3,542,145 parameters. The presets for airfoils and pipes
    have four heads, as listed in another repository. Initial weights of linear maps are truncated
    normal with variance 1/(input features); initial queries are orthogonal.

    Convolution kernels cover 3 points along each axis at every resolution, not a fixed length. The
    operator accepts every grid, but its values do not converge as grids are refined. Without
    convolutions points interact only through means over points, and values converge.

    The features of a point include the value of a there, so u is available at the points of a only.

    Args:
        latents: Number of latent tokens in each block.
        convolution: Whether the pointwise map at the end of each block begins with a convolution,
            as published for grids. False, as published for point clouds: the operator takes clouds,
            and with coordinates "none" it commutes with permutations of the points.
        padding: Padding of the convolutions: "zeros", or "circular" for periodic functions. With
            "circular" and coordinates "none" the operator commutes with shifts.
        normalize: Whether queries and keys are divided by their root mean square in each head, as
            in the released settings. This bounds the attention scores, for half precision. False:
            plain attention.
    """

    dims = (1, 2, 3)
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
        self.embed = mlp(self.features, 2 * width, width)

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
