r"""Attention maps from Q, K, V to values, with and without softmax, and normalisations.

All maps act on tensors of shape (batch, heads, n, d), with n grid points as tokens. `drop` is
applied to the attention matrix: the d x d matrix KᵀV if it is computed first, or else the n x n
matrix QKᵀ. Values of K and V at padding have no effect.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, equations (5)-(6)
and section 3.2. Z. Shen et al., Efficient Attention, WACV 2021, equation (5). A. Katharopoulos et
al., Transformers are RNNs, ICML 2020, equations (5)-(7).
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
# False at padding among the sources; or quadrature weights of the sources, 0 at padding
Real = Bool[Tensor, "batch 1 m 1"] | Float[Tensor, "_ 1 m 1"] | None
Drop = Callable[[Tensor], Tensor]
AttentionMap = Callable[[Heads, Sources, Sources, Drop, Real], Heads]


def keep(matrix: Tensor) -> Tensor:
    """Return the matrix unchanged: no dropout."""
    return matrix


def real(
    k: Sources, mask: Real
) -> tuple[Sources, int | Int[Tensor, "batch 1 1 1"] | Float[Tensor, "_ 1 1 1"]]:
    """The values k multiplied by `mask` at each point, and the sum of `mask` over the points.

    If `mask` is Boolean, the product is k with zeros at padding, and the sum is the number of
    points without padding.

    If `mask` contains quadrature weights W, the mean KᵀV / n over points becomes KᵀWV / ΣW. This
    approximates the same integral whatever the density of the points.
    """
    return (k, k.shape[-2]) if mask is None else (k * mask, mask.sum(dim=-2, keepdim=True))


def over_points(
    k: Float[Tensor, "... m d"], mask: Bool[Tensor, "... m 1"] | None
) -> Float[Tensor, "... m d"]:
    """Softmax of k over the points; the result is 0 at padding."""
    return (k if mask is None else k.masked_fill(~mask, -torch.inf)).softmax(dim=-2)


def galerkin(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """Q (KᵀV) / n, a Petrov-Galerkin projection (Cao 2021, eq. 6). The cost is linear in n."""
    k, n = real(k, mask)
    return q @ drop((k.mT @ v) / n)


def fourier(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """(QKᵀ) V / (n √d), a Fredholm integral (Cao 2021, eq. 5).

    The factor 1/√d is that of the published code; the paper's equation has no such factor.
    Dropout needs the matrix QKᵀ, and the cost is then quadratic in n. Without dropout, Q (KᵀV) is
    computed at linear cost.
    """
    d = q.shape[-1]
    k, n = real(k, mask)
    if drop is keep:
        return q @ ((k.mT @ v) / (n * d**0.5))
    return drop((q @ k.mT) / (n * d**0.5)) @ v


def softmax(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """softmax(QKᵀ/√d) V, scaled dot-product attention (Vaswani et al. 2017).

    The work is quadratic in n. The memory is quadratic in n with dropout, and linear without.
    """
    if drop is keep:
        return softmax_attention(q, k, v, mask)
    scores = (q @ k.mT) / q.shape[-1] ** 0.5
    scores = scores if mask is None else scores.masked_fill(~mask.mT, -torch.inf)
    return drop(torch.softmax(scores, dim=-1)) @ v


def softmax_attention(q: Heads, k: Sources, v: Sources, mask: Real = None) -> Heads:
    """softmax(QKᵀ/√d) V for n queries and m keys; the n x m matrix is not stored."""
    d, keys = q.shape[-1], None if mask is None else mask.mT
    if d % 8:  # for other sizes PyTorch on CUDA falls back to a kernel that forms the matrix
        q, k, v = (nn.functional.pad(t, (0, -d % 8)) for t in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, keys, scale=d**-0.5)[..., :d]


def linear(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """`galerkin` of the softmax of Q over features and of K over points (Shen et al. 2021).

    As in the code published with Cao (2021), the result is also divided by n. Softmax weights over
    points already sum to 1, and the result is therefore of size O(1/n). `efficient` does not
    divide by n.
    """
    return galerkin(q.softmax(dim=-1), over_points(k, mask), v, drop, mask)


def efficient(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """softmax(Q) (softmax(K)ᵀ V) / √d (Shen et al. 2021).

    The softmax of Q is over features, and that of K is over points. The factor 1/√d is not in the
    paper, but in code that published operators use (lucidrains/linear-attention-transformer). The
    cost is linear in n.
    """
    matrix = over_points(k, mask).mT @ v
    return (q.softmax(dim=-1) * q.shape[-1] ** -0.5) @ drop(matrix)


def kernelized(q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None) -> Heads:
    """φ(Q) (φ(K)ᵀV) / (φ(Q) Σφ(K)) with φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, eqs. 5-7).

    The sum is over the points. φ is positive, and the result is a weighted mean of V with positive
    weights, as with a softmax. The cost is linear in n.
    """
    q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
    k, n = real(k, mask)
    sums = k.sum(dim=-2, keepdim=True) / n  # (batch, heads, 1, d); n keeps both products O(1)
    return (q @ drop((k.mT @ v) / n)) / (q @ sums.mT)


@dataclass(frozen=True)
class AttentionKind:
    """An attention map, and how the layer that applies it uses norms, coordinates and masks.

    Args:
        make: Function from the number of features of a head to the attention map.
        normalizes_query: Whether Q and K are normalised per head; otherwise K and V are.
        coordinates: "inside": coordinates are appended to Q, K and V of each head. "after": they
            are appended once to the result of all heads.
        masks: Whether the map accepts a mask and ignores padding.
        weights: Whether the map accepts quadrature weights instead of a mask.
    """

    make: Callable[[int], AttentionMap]
    normalizes_query: bool
    coordinates: Literal["inside", "after"] = "inside"
    masks: bool = True
    weights: bool = False


def formula(
    apply: AttentionMap, normalizes_query: bool, masks: bool = True, weights: bool = False
) -> AttentionKind:
    """`AttentionKind` of an attention map that does not depend on the number of features."""
    return AttentionKind(partial(_same, apply), normalizes_query, masks=masks, weights=weights)


def _same(apply: AttentionMap, features: int) -> AttentionMap:
    return apply  # not a lambda, so that models can be pickled


GALERKIN = formula(galerkin, normalizes_query=False, weights=True)
LINEAR = formula(linear, normalizes_query=False)
EFFICIENT = formula(efficient, normalizes_query=False)
FOURIER = formula(fourier, normalizes_query=True, weights=True)
SOFTMAX = formula(softmax, normalizes_query=True)


class HeadNorm(nn.Module):
    """Layer normalisation over the features of each head, with separate weights for each head.

    The result is that of `heads` separate LayerNorm(d) modules.
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
    """Instance normalisation of each feature of each head over the points, ignoring padding.

    Without padding the result is that of `heads` separate affine InstanceNorm1d(d) modules.
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
    """Dropout with p = 0.5 that stays on in evaluation.

    The code published with Cao (2021) applies this dropout to the attention matrix, whatever the
    rate in its configuration. This class does the same, and two evaluations therefore differ.
    """

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, p=0.5, training=True)
