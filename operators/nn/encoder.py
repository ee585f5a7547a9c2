r"""Layers of attention over the points of a grid, each followed by a pointwise MLP.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, section 3.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.nn.affine import galerkin_attention
from operators.nn.attention import (
    GALERKIN,
    AttentionKind,
    HeadNorm,
    InstanceHeadNorm,
    PublishedDropout,
    keep,
)
from operators.nn.fused import residual_mlp
from operators.nn.pointwise import Dropout
from operators.nn.prenorm import linear_added, normed_projections
from operators.nn.tokens import check_heads

Values = Float[Tensor, "batch n width"]
Points = Float[Tensor, "n p"] | Float[Tensor, "batch n p"]
# False at padding; or quadrature weights, 0 at padding
Real = Bool[Tensor, "batch n"] | Float[Tensor, "_ n"] | None
Heads = Float[Tensor, "batch h n _"]  # of [p +] d/h features


class Projections(nn.Module):
    """The linear maps to queries, keys and values, initialised near the identity.

    W = Xavier-uniform(gain η) + δ I for each of the three maps, biases 0 (Cao 2021, section 4). The
    arguments are η (`gain`) and δ (`diagonal`).
    """

    def __init__(self, width: int, gain: float, diagonal: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, width, width))
        self.bias = nn.Parameter(torch.zeros(3, width))
        for w in self.weight.data:
            nn.init.xavier_uniform_(w, gain=gain)
            w.add_(torch.eye(width), alpha=diagonal)


class Attention(nn.Module):
    """Multi-head attention with the coordinates x appended to Q, K and V in every head.

    For kinds with coordinates "after", x is instead appended once to the concatenated heads.

    Args:
        positions: Number of coordinates x.
        normalization: Class of the norms of two of Q, K and V in each head; None for no norms.
        drop: Dropout of the attention matrix, `nn.Dropout` or `PublishedDropout`.
        eps: Added to the variance in the norms.
        gain, diagonal: See `Projections`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        positions: int,
        kind: AttentionKind,
        normalization: type[HeadNorm] | None,
        drop: nn.Module,
        eps: float,
        gain: float,
        diagonal: float,
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.drop = heads, kind, drop
        self.as_one_map = kind is GALERKIN and normalization is not InstanceHeadNorm
        self.inside = kind.coordinates == "inside"
        self.project = Projections(width, gain, diagonal)
        features = width // heads
        if normalization is not None:
            self.norm_key = normalization(heads, features, eps)
            self.norm_other = normalization(heads, features, eps)  # of query or value
        else:
            self.norm_key = self.norm_other = nn.Identity()
        self.map = kind.make(features + positions * self.inside)
        self.out = nn.Linear(width + positions * (heads if self.inside else 1), width)

    def _head(self, u: Values, which: int) -> Tensor:
        """Queries (`which` 0), keys (1) or values (2) of all heads, shape (batch, n, h, d/h)."""
        y = nn.functional.linear(u, self.project.weight[which], self.project.bias[which])
        return y.unflatten(-1, (self.heads, -1))

    def forward(self, u: Values, x: Points, mask: Real = None) -> Values:
        """[z_1 ... z_h] W + b, where z_i is the result of head i (Cao 2021, eq. 6)."""
        if self.as_one_map and x.ndim == 2 and mask is None:
            return self._as_one_map(u, x, added=False)
        z = self.mapped(*self.of_heads(u, x, mask), mask)
        z = z.transpose(1, 2).flatten(2)
        if not self.inside:
            z = torch.cat([x.expand(len(z), -1, -1), z], dim=-1)
        return self.out(z)

    def of_heads(self, u: Values, x: Points, mask: Real = None) -> tuple[Heads, Heads, Heads]:
        """Q, K and V of all heads. Two are normalised, and coordinates "inside" are prepended.

        Galerkin attention normalises K and V (Cao 2021, section 3.2).
        """
        q, k, v = (self._head(u, which) for which in range(3))
        masks = (mask,) if isinstance(self.norm_key, InstanceHeadNorm) else ()
        k = self.norm_key(k, *masks)
        if self.kind.normalizes_query:
            q = self.norm_other(q, *masks)
        else:
            v = self.norm_other(v, *masks)
        if self.inside:
            z = x[..., None, :].expand(*k.shape[:3], -1)  # (batch, n, h, p)
            q, k, v = (torch.cat([z, y], dim=-1) for y in (q, k, v))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def mapped(self, q: Heads, k: Heads, v: Heads, mask: Real = None) -> Heads:
        """Apply the attention map to Q, K and V; for GALERKIN this is Q (KᵀV)/n."""
        drop = keep if idle(self.drop) else self.drop
        return self.map(q, k, v, drop, None if mask is None else mask[:, None, :, None])

    def added(self, u: Values, x: Points, mask: Real = None) -> Values:
        """A residual step: u plus its attention at the points x."""
        if self.as_one_map and x.ndim == 2 and mask is None:
            return self._as_one_map(u, x, added=True)
        return u + self(u, x, mask)

    def added_normed(self, u: Values, norm: nn.LayerNorm, mask: Real = None) -> Values:
        """A residual step: u plus the attention of its layer norm, without coordinates."""
        if self.as_one_map and mask is None:
            return u + self(norm(u), u.new_empty(u.shape[1], 0))
        heads = normed_projections(u, norm, self.project.weight, self.project.bias)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in heads)
        return linear_added(u, self.mapped(q, k, v, mask).transpose(1, 2).flatten(2), self.out)

    def _as_one_map(self, u: Values, x: Float[Tensor, "n p"], added: bool) -> Values:
        """Galerkin attention, plus u if `added`, computed as one affine map of u."""
        k, v = self.norm_key, self.norm_other
        norms, eps = None, 0.0
        if isinstance(k, HeadNorm) and isinstance(v, HeadNorm):
            norms, eps = (k.weight, k.bias, v.weight, v.bias), k.eps
        return galerkin_attention(
            u, x, self.project.weight, self.project.bias, self.out.weight, self.out.bias,
            self.heads, norms, eps, None if idle(self.drop) else self.drop, added,
        )  # fmt: skip


def idle(drop: nn.Module) -> bool:
    """Whether a dropout module is the identity in its current mode."""
    return isinstance(drop, nn.Dropout) and not (drop.training and drop.p)


class EncoderLayer(nn.Module):
    """u <- u + attention(u), u <- u + MLP(u).

    If `attention` is None, there is only the MLP. If `post_norm` is true, a LayerNorm follows each
    of the two sums; `attention_layers` sets it for normalization "layer". Otherwise the only norms
    are inside the attention.
    """

    def __init__(
        self,
        attention: Attention | None,
        width: int,
        feedforward: int,
        post_norm: bool,
        eps: float,
        dropout: float,
        feedforward_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = nn.Sequential(
            nn.Linear(width, feedforward),
            nn.ReLU(),
            Dropout(feedforward_dropout),
            nn.Linear(feedforward, width),
        )
        self.norm1 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.drop = Dropout(dropout)

    def forward(self, u: Values, x: Points, mask: Real = None) -> Values:
        if self.attention is not None:
            if self.drop.active:
                u = u + self.drop(self.attention(u, x, mask))
            else:
                u = self.attention.added(u, x, mask)
            u = self.norm1(u)
        if self.drop.active or self.mlp[2].active:
            return self.norm2(u + self.drop(self.mlp(u)))
        return self.norm2(residual_mlp(u, self.mlp))


def attention_layers(
    depth: int,
    width: int,
    heads: int,
    positions: int,
    attention: AttentionKind | None,
    normalization: Literal["head", "layer", "instance"],
    feedforward: int,
    dropout: float,
    feedforward_dropout: float,
    attention_dropout: float | Literal["published"],
    eps: float,
    gain: float,
    diagonal: float,
) -> nn.ModuleList:
    """The encoder layers of `GalerkinTransformer`, whose docstring explains the arguments."""
    check_heads(width, heads)
    head_norm = {"head": HeadNorm, "instance": InstanceHeadNorm, "layer": None}[normalization]

    def drop() -> nn.Module:
        if attention_dropout == "published":
            return PublishedDropout()
        return nn.Dropout(attention_dropout)

    def layer() -> EncoderLayer:
        heads_map = attention and Attention(
            width, heads, positions, attention, head_norm, drop(), eps, gain, diagonal
        )
        return EncoderLayer(
            heads_map, width, feedforward, head_norm is None, eps, dropout, feedforward_dropout
        )

    return nn.ModuleList(layer() for _ in range(depth))
