r"""GNOT: points attend to input functions and to each other by normalised linear attention.

References: Z. Hao et al., GNOT: A General Neural Operator Transformer for Operator Learning, ICML
2023 (arXiv 2302.14376); released code HaoZhongkai/GNOT at commit 5ee2e69.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.encoder import inner
from operators.nn.pointwise import ResidualMLP, mlp
from operators.nn.tokens import (
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
    merged,
    split,
)

_SETTINGS = "Hao et al. 2023, our interpretation, and released defaults; not published by dataset"

Queries = Float[Tensor, "batch n width"]
Sources = Float[Tensor, "batch m width"]
OfSources = Bool[Tensor, "batch m"]  # False at padding


def normalized(
    q: Float[Tensor, "batch heads n d"],
    k: Float[Tensor, "batch heads m d"],
    v: Float[Tensor, "batch heads m c"],
    mask: OfSources | None = None,
) -> Float[Tensor, "batch heads n c"]:
    """Σ_j (q·k_j) v_j / Σ_j q·k_j (eqs. 7 and 10), a mean of the v_j with positive weights.

    The cost is linear in the numbers of points, because q is multiplied by two sums over the keys,
    Σ_j k_j v_j and Σ_j k_j. Both are divided by the number m of keys, which keeps them within the
    range of half precision.

    Args:
        q, k: Queries and keys, positive.
        v: Values at the points of the keys.
        mask: False for keys that are padding.
    """
    k = k if mask is None else k * mask[:, None, :, None]
    v = nn.functional.pad(v, (0, 1), value=1.0)
    sums = inner((k / k.shape[-2]).flatten(0, 1), v.flatten(0, 1)).unflatten(0, k.shape[:2])
    products = q @ sums
    return products[..., :-1] / products[..., -1:]


class NormalizedAttention(nn.Module):
    """(q + Σ_i m_i) W + b, where m_i is `normalized(q, k_i, v_i)` in each head.

    q = softmax(u W_q + b_q), k_i = softmax(z_i W_ki + b_ki) and v_i = z_i W_vi + b_vi, with
    softmaxes over the features. As in the released code, q itself is added, and the m_i are summed.
    The paper (eq. 10) takes the mean of the m_i instead of their sum.

    Args:
        width, heads: Features, and number of heads.
        inputs: Number of input functions z_i. Each has its own maps to keys and values.
    """

    def __init__(self, width: int, heads: int, inputs: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.keys, self.values = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(inputs)) for _ in range(2)
        )
        self.out = nn.Linear(width, width)

    def forward(
        self, u: Queries, functions: list[Sources], mask: OfSources | None = None
    ) -> Queries:
        q = split(self.query(u), self.heads).softmax(-1)
        total = q
        for z, key, value in zip(functions, self.keys, self.values, strict=True):
            k, v = split(key(z), self.heads).softmax(-1), split(value(z), self.heads)
            total = total + normalized(q, k, v, mask)
        return self.out(merged(total))


class Experts(nn.Module):
    """Σ_e g_e E_e(u) with MLPs E_e and weights g_e at each point, computed as two matrix products.

    Args:
        width, feedforward: Features, and hidden features of each expert.
        experts: Number of experts E_e.
    """

    def __init__(self, width: int, feedforward: int, experts: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, experts * feedforward)
        self.weight = nn.Parameter(torch.empty(width, experts * feedforward))
        self.bias = nn.Parameter(torch.empty(experts, width))
        bound = feedforward**-0.5  # that of nn.Linear for the hidden features of one expert
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, u: Tokens, g: Float[Tensor, "#batch n experts"]) -> Tokens:
        hidden = nn.functional.gelu(self.first(u)).unflatten(-1, (len(self.bias), -1))
        hidden = (hidden * g[..., None]).flatten(-2)
        return nn.functional.linear(hidden, self.weight) + g @ self.bias


class Block(nn.Module):
    """Attention to the input functions z_i and experts, then attention among points and experts.

        u <- u + attention(LN(u), LN_i(z_i)),  u <- u + LN(Σ_e g_e E_e(u)).
        u <- u + attention(LN(u), LN(u)),      u <- u + LN(Σ_e g_e E'_e(u)).

    As released, the norms of the experts act on their outputs. The gates g result from an MLP of
    the coordinates and a softmax over the experts. A single expert has no gate.
    """

    def __init__(
        self, width: int, heads: int, inputs: int, feedforward: int, experts: int, positions: int
    ) -> None:
        super().__init__()
        self.gate = None
        if experts > 1:
            self.gate = mlp(positions, feedforward, feedforward, experts)
        self.cross = NormalizedAttention(width, heads, inputs)
        self.within = NormalizedAttention(width, heads, 1)
        self.experts1, self.experts2 = (Experts(width, feedforward, experts) for _ in range(2))
        self.norm_cross, self.norm1, self.norm_within, self.norm2 = (
            nn.LayerNorm(width) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(inputs))

    def forward(
        self,
        u: Queries,
        functions: list[Sources],
        p: Float[Tensor, "#batch n p"],
        mask: OfSources | None,
        of_u: Real | None,
    ) -> Queries:
        """The updated features of the points of the output.

        Args:
            u, p: Features and coordinates of the points of the output.
            functions: Features of the input functions at their points.
            mask: False where a point of the input functions is padding.
            of_u: False where a point of the output is padding.
        """
        g = p.new_ones(*p.shape[:-1], 1) if self.gate is None else self.gate(p).softmax(-1)
        normed = [norm(z) for norm, z in zip(self.norms, functions, strict=True)]
        u = u + self.cross(self.norm_cross(u), normed, mask)
        u = u + self.norm1(self.experts1(u, g))
        v = self.norm_within(u)
        u = u + self.within(v, [v], of_u)
        return u + self.norm2(self.experts2(u, g))


class GNOT(TokenOperator):
    """u(y) = MLP(blocks(MLP(y); MLP(x, a(x)))): points y attend to the input and to each other.

    The cost is linear in the number of points. u can be evaluated at any points y. Since the points
    y attend to each other, u at one point depends on all other points y. Both x and y must be
    evenly spread for values to converge under refinement.

    The released code at commit 5ee2e69 gives the same values with the same weights. That code also
    takes a vector of parameters at the points y, and input functions at points other than x. Both
    are left out here, because the input is one function a at the points x. With branches "each" the
    channels of a are separate input functions. The model of this name in the library
    thuml/Neural-Solver-Library uses the queries of the first block in all blocks; its parameter
    counts are not comparable.

    Args:
        feedforward: Number of hidden features of the experts and of the gates. Published: 4 times
            the width.
        experts: Number of experts after each attention. Gates that depend on the position weight
            their outputs.
        mlp_depth: Number of residual layers in the first and in the last MLP.
        branches: "one": the channels of a are one input function, with one MLP. "each": every
            channel is an input function with its own MLP, norms, keys and values.
        coordinates: Coordinates in the MLPs and gates: "raw", x itself, as published; "periodic",
            cos 2πx and sin 2πx, which have no jump at the ends.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 3_767_306, _SETTINGS, dim=2),
        "navier-stokes": Preset({}, 3_768_458, _SETTINGS, (10, 1), dim=2),
        "elasticity": Preset({}, 3_767_434, _SETTINGS, (2, 1), dim=2),
        "airfoil": Preset({}, 3_767_434, _SETTINGS, (2, 1), dim=2),
        "pipe": Preset({}, 3_767_434, _SETTINGS, (2, 1), dim=2),
        "plasticity": Preset({}, 3_767_563, _SETTINGS, (2, 2), dim=2),
        "burgers": Preset({}, 3_765_514, _SETTINGS),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 3,
        heads: int = 1,
        feedforward: int = 512,
        experts: int = 3,
        mlp_depth: int = 3,
        branches: Literal["one", "each"] = "one",
        coordinates: Literal["raw", "periodic"] = "raw",
    ) -> None:
        positions = Positions(coordinates, dim)
        super().__init__(in_channels, out_channels, dim, positions)
        check_heads(width, heads)
        at_least(1, depth=depth, feedforward=feedforward, experts=experts, mlp_depth=mlp_depth)
        self.sizes = [1] * in_channels if branches == "each" else [in_channels]
        self.trunk = ResidualMLP(positions.count, width, width, mlp_depth, nn.GELU())
        self.branches = nn.ModuleList(
            ResidualMLP(positions.count + size, width, width, mlp_depth, nn.GELU())
            for size in self.sizes
        )
        self.blocks = nn.ModuleList(
            Block(width, heads, len(self.sizes), feedforward, experts, positions.count)
            for _ in range(depth)
        )
        self.head = ResidualMLP(width, width, out_channels, mlp_depth, nn.GELU())

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        p, a = v.split([self.positions.count, self.in_channels], dim=-1)
        functions = [
            branch(torch.cat([p, part], dim=-1))
            for branch, part in zip(self.branches, a.split(self.sizes, dim=-1), strict=True)
        ]
        q = self.positions(y)
        q = q[None] if q.ndim == 2 else q  # points that samples share have one set of gates
        u = self.trunk(q).expand(len(v), -1, -1)
        for block in self.blocks:
            u = block(u, functions, q, mask, of_y)
        return self.head(u)
