r"""Attention without softmax, and with: five maps (Q, K, V) -> values, and their normalisation.

All act on tensors of shape (batch, heads, n, d), n grid points as tokens. `drop` is applied to
the attention matrix: d x d where the product KᵀV comes first, n x n where QKᵀ does. What K and V
have at padding counts for nothing.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, equations (5)-(6)
and section 3.2. Z. Shen et al., Efficient Attention, WACV 2021, equation (5).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Heads = Float[Tensor, "batch heads n d"]
Sources = Float[Tensor, "batch heads m d"]
# False at sources that are padding, or the quadrature weights of the sources, 0 there
Real = Bool[Tensor, "batch 1 m 1"] | Float[Tensor, "_ 1 m 1"] | None
Drop = Callable[[Tensor], Tensor]
AttentionMap = Callable[[Heads, Sources, Sources, Drop, Real], Heads]


def keep(matrix: Tensor) -> Tensor:
    """No dropout."""
    return matrix


def real(
    k: Sources, mask: Real
) -> tuple[Sources, int | Int[Tensor, "batch 1 1 1"] | Float[Tensor, "_ 1 1 1"]]:
    """k with zeros at padding, and the number of other points; or k times weights, and their sum.

    The mean KᵀV / n over points becomes KᵀWV / ΣW, which on points of any density
    approximates the same integral.
    """
    return (k, k.shape[-2]) if mask is None else (k * mask, mask.sum(dim=-2, keepdim=True))


def over_points(
    k: Float[Tensor, "... m d"], mask: Bool[Tensor, "... m 1"] | None
) -> Float[Tensor, "... m d"]:
    """The softmax over points, 0 at padding."""
    return (k if mask is None else k.masked_fill(~mask, -torch.inf)).softmax(dim=-2)


def galerkin(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """Q (KᵀV) / n, a Petrov-Galerkin projection (Cao 2021, eq. 6). Linear in n."""
    k, n = real(k, mask)
    return q @ drop((k.mT @ v) / n)


def fourier(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """(QKᵀ) V / (n √d), a Fredholm integral (Cao 2021, eq. 5).

    The paper's equation has no 1/√d; the published code does, and is followed. Quadratic in n
    where QKᵀ meets a dropout; without one the product is Q (KᵀV), linear in n.
    """
    d = q.shape[-1]
    k, n = real(k, mask)
    if drop is keep:
        return q @ ((k.mT @ v) / (n * d**0.5))
    return drop((q @ k.mT) / (n * d**0.5)) @ v


def softmax(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """softmax(QKᵀ/√d) V, scaled dot-product attention (Vaswani et al. 2017).

    Work quadratic in n; memory too where the matrix meets a dropout, else linear in n.
    """
    if drop is keep:
        return softmax_attention(q, k, v, mask)
    scores = (q @ k.mT) / q.shape[-1] ** 0.5
    scores = scores if mask is None else scores.masked_fill(~mask.mT, -torch.inf)
    return drop(torch.softmax(scores, dim=-1)) @ v


def softmax_attention(q: Heads, k: Sources, v: Sources, mask: Real = None) -> Heads:
    """softmax(QKᵀ/√d) V of n queries and m keys, without the n x m matrix in memory."""
    d, keys = q.shape[-1], None if mask is None else mask.mT
    if d % 8:  # other sizes leave PyTorch on CUDA the kernel that forms the matrix
        q, k, v = (nn.functional.pad(t, (0, -d % 8)) for t in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, keys, scale=d**-0.5)[..., :d]


def linear(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """Softmax of Q over features and of K over points, then as `galerkin` (Shen et al. 2021).

    The code published with Cao (2021) divides by n on top of the softmax over points, and is
    followed: the map is of size O(1/n). `efficient` is the one without.
    """
    return galerkin(q.softmax(dim=-1), over_points(k, mask), v, drop, mask)


def efficient(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """softmax(Q) (softmax(K)ᵀ V) / √d, over features and over points (Shen et al. 2021).

    The paper has no 1/√d; the code that operator learners took it from
    (lucidrains/linear-attention-transformer) does, and is followed. Linear in n.
    """
    matrix = over_points(k, mask).mT @ v
    return (q.softmax(dim=-1) * q.shape[-1] ** -0.5) @ drop(matrix)


@dataclass(frozen=True)
class AttentionKind:
    """An attention map, which of its arguments are normalised, and where coordinates enter.

    Args:
        normalizes_query: True: layer normalisation per head of Q and K. False: of K and V.
        coordinates: "inside", as features of Q, K and V; "after", as features of what the map
            gives, once for all heads.
        masks: Whether the map leaves padding out.
        weights: Whether it takes quadrature weights in place of a mask.
    """

    make: Callable[[int], AttentionMap]
    normalizes_query: bool
    coordinates: Literal["inside", "after"] = "inside"
    masks: bool = True
    weights: bool = False


def formula(
    apply: AttentionMap, normalizes_query: bool, masks: bool = True, weights: bool = False
) -> AttentionKind:
    """The kind whose map is one function, for all numbers of features."""
    return AttentionKind(partial(_same, apply), normalizes_query, masks=masks, weights=weights)


def _same(apply: AttentionMap, features: int) -> AttentionMap:
    return apply  # not a lambda, so that a model can be pickled


GALERKIN = formula(galerkin, normalizes_query=False, weights=True)
LINEAR = formula(linear, normalizes_query=False)
EFFICIENT = formula(efficient, normalizes_query=False)
FOURIER = formula(fourier, normalizes_query=True, weights=True)
SOFTMAX = formula(softmax, normalizes_query=True)


class HeadNorm(nn.Module):
    """Layer normalisation over the features of each head, with its own weights for every head.

    One call for all heads; equal to `heads` separate LayerNorm(d) modules.
    """

    def __init__(self, heads: int, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, features))
        self.bias = nn.Parameter(torch.zeros(heads, features))

    def forward(self, x: Float[Tensor, "batch n h d"]) -> Float[Tensor, "batch n h d"]:
        if len(self.weight) == 1:
            return nn.functional.layer_norm(x, x.shape[-1:], self.weight[0], self.bias[0], self.eps)
        standardized = nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        return standardized * self.weight + self.bias


class InstanceHeadNorm(HeadNorm):
    """The same of each feature over the points that are no padding, in each sample and head.

    Equal to `heads` separate affine InstanceNorm1d(d) modules, channels first.
    """

    def forward(
        self,
        x: Float[Tensor, "batch n h d"],
        mask: Bool[Tensor, "batch n"] | Float[Tensor, "_ n"] | None = None,
    ) -> Float[Tensor, "batch n h d"]:
        if mask is None:
            variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
            return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        mask = mask[..., None, None]
        n = mask.sum(1, keepdim=True)
        x = x - (x * mask).sum(1, keepdim=True) / n
        variance = (x.square() * mask).sum(1, keepdim=True) / n
        return x * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class PublishedDropout(nn.Module):
    """Dropout with p = 0.5 that is never switched off, in evaluation either.

    This is what the code published with Cao (2021) does to the attention matrix, whatever rate
    its configuration names. Kept to reproduce it; two evaluations differ.
    """

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, p=0.5, training=True)
