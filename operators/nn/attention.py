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

from operators.base import at_least
from operators.nn.pointwise import Dropout
from operators.nn.tokens import check_heads, merged

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


# Attention by random features φ, whose products φ(q)·φ(k) estimate a kernel κ(q, k).


Phases = Float[Tensor, "batch heads n m"]


def gaussian_frequencies(d: int, m: int, device: torch.device) -> Float[Tensor, "d m"]:
    """Matrix whose m columns are independent frequencies ω ~ N(0, I_d)."""
    return torch.randn(d, m, device=device)


def orthogonal_frequencies(d: int, m: int, device: torch.device) -> Float[Tensor, "d m"]:
    """Matrix of m columns ω ~ N(0, I_d). In each block of d columns, the columns are orthogonal.

    Orthogonal frequencies lower the variance of the estimate.

    Directions come from a QR decomposition, whose signs are not uniform. This does not matter if ω
    and -ω are used together. Lengths are drawn independently from χ(d).
    """
    blocks = torch.linalg.qr(torch.randn(-(-m // d), d, d, device=device)).Q
    directions = blocks.transpose(0, 1).flatten(1)[:, :m]
    return directions * torch.randn(d, m, device=device).norm(dim=0)


def trigonometric_features(phase: Phases) -> Float[Tensor, "batch heads n two_m"]:
    """φ(x) = m^(-1/2) (cos ωx, sin ωx), given the phases ωx."""
    return torch.cat([phase.cos(), phase.sin()], dim=-1) * phase.shape[-1] ** -0.5


def log_positive_features(phase: Phases, x: Heads) -> Float[Tensor, "batch heads n two_m"]:
    """log φ(x) for φ(x) = (2m)^(-1/2) exp(±ωx - |x|²/2), without the constant factor."""
    return torch.cat([phase, -phase], dim=-1) - x.square().sum(-1, keepdim=True) / 2


class RandomFeatureAttention(nn.Module):
    """Σ_j κ(q_i, k_j) v_j / Σ_j κ(q_i, k_j), with κ estimated by random features of Q and K.

    All heads share the frequencies, which are saved in the state dict. Evaluation uses fixed
    frequencies; the code published with Cao (2021) draws new frequencies in evaluation too. The
    softmax kernel is computed from the logarithms of the features, to avoid overflow and division
    by zero. With log φ(K) = K' and log φ(Q) = Q' the map is

        softmax(Q' + log Σ_j exp K'_j over features) softmax(K' over points)ᵀ V.

    The Gaussian kernel has no such form, because its features can be negative. If κ is small and
    there are few features, the denominator may be near 0, and the result far from all v_j.

    Args:
        kernel: "gaussian" (RFA) or "softmax" (FAVOR+).
        d: Number of features of a head.
        features: Number of features of φ, two for each frequency. "head" stands for d, as in the
            published code.
        redraw: Whether frequencies are drawn anew at every forward pass in training.
        eps: Lower bound of the absolute mean of the Gaussian kernel, which prevents division by
            zero.
    """

    frequencies: Tensor

    def __init__(
        self,
        d: int,
        kernel: Literal["gaussian", "softmax"] = "softmax",
        features: int | Literal["head"] = "head",
        redraw: bool = True,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        count = d if features == "head" else features
        if count < 2:
            raise ValueError(f"the number of random features must be at least 2, got {count}")
        self.kernel, self.redraw, self.eps = kernel, redraw, eps
        self.shape = d, count // 2
        self.register_buffer("frequencies", self.draw(torch.get_default_device()))

    def draw(self, device: torch.device) -> Float[Tensor, "d m"]:
        """Draw frequencies: independent for the Gaussian kernel, orthogonal for softmax."""
        draw = gaussian_frequencies if self.kernel == "gaussian" else orthogonal_frequencies
        return draw(*self.shape, device)

    def forward(
        self, q: Heads, k: Sources, v: Sources, drop: Drop = keep, mask: Real = None
    ) -> Heads:
        """The estimated attention; `drop` is applied to the matrix φ(K)ᵀV."""
        w = self.frequencies
        if self.training and self.redraw:
            # the product uses the draw, not the buffer, which the next draw overwrites before the
            # backward pass
            w = self.draw(w.device).to(w)
            self.frequencies.copy_(w)
        q, k = (x * q.shape[-1] ** -0.25 for x in (q, k))
        if self.kernel == "softmax":
            log_q, log_k = log_positive_features(q @ w, q), log_positive_features(k @ w, k)
            log_k = log_k if mask is None else log_k.masked_fill(~mask, -torch.inf)
            weight = (log_q + log_k.logsumexp(dim=-2, keepdim=True)).softmax(dim=-1)
            return weight @ drop(log_k.softmax(dim=-2).mT @ v)
        phi_q, phi_k = trigonometric_features(q @ w), trigonometric_features(k @ w)
        phi_k, n = real(phi_k, mask)
        mean_k = phi_k.mean(dim=-2) if mask is None else phi_k.sum(dim=-2) / mask.sum(dim=-2)
        mean = phi_q @ mean_k[..., None]
        bound = torch.full_like(mean, self.eps).copysign(mean)
        mean = torch.where(mean.abs() < self.eps, bound, mean)
        return phi_q @ drop(phi_k.mT @ v / n) / mean


def random_features(
    kernel: Literal["gaussian", "softmax"],
    features: int | Literal["head"] = "head",
    redraw: bool = True,
) -> AttentionKind:
    """`AttentionKind` of random features, with coordinates "after" as published (Cao 2021)."""
    make = partial(RandomFeatureAttention, kernel=kernel, features=features, redraw=redraw)
    return AttentionKind(make, normalizes_query=True, coordinates="after")


RFA = random_features("gaussian")
FAVOR = random_features("softmax")


# Softmax attention through m landmarks, by the Nyström method.


Landmarks = Float[Tensor, "batch heads m d"]
Matrices = Float[Tensor, "batch heads m m"]


def pseudo_inverse(a: Matrices, iterations: int = 6) -> Matrices:
    """Approximate A⁺ by iterating Z <- Z(13 - AZ(15 - AZ(7 - AZ)))/4 (Xiong et al., eq. 11).

    The initial value is Aᵀ/(‖A‖₁ ‖A‖_∞). After a few iterations small singular values are not yet
    inverted, which regularises the inverse.
    """
    # norms of each matrix: the released code takes maxima over batch and heads, which makes a
    # sample depend on its batch
    bound = a.abs().sum(-1).amax(-1) * a.abs().sum(-2).amax(-1)
    z = a.mT / bound[..., None, None]
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = z @ (13 * identity - az @ (15 * identity - az @ (7 * identity - az))) / 4
    return z


def segment_means(u: Heads, m: int) -> Landmarks:
    """Means over m <= n segments of consecutive points; lengths of segments differ by at most 1.

    The released code instead prepends zeros until the number of points is a multiple of m. Its
    means include these zeros.
    """
    n = u.shape[-2]
    segment = torch.arange(n, device=u.device) * m // n
    member = (segment == torch.arange(m, device=u.device)[:, None]).to(u)
    return (member / member.sum(-1, keepdim=True)) @ u


def through_landmarks(
    q: Heads,
    k: Heads,
    v: Heads,
    q_m: Landmarks,
    k_m: Landmarks,
    iterations: int = 6,
    drop: Drop = keep,
) -> Heads:
    """softmax(QK̃ᵀ/√d) A⁺ softmax(Q̃Kᵀ/√d) V; `drop` is applied to A⁺."""
    middle = torch.softmax(q_m @ k_m.mT * q.shape[-1] ** -0.5, dim=-1)
    inverse = drop(pseudo_inverse(middle, iterations))
    return softmax_attention(q, k_m, inverse @ softmax_attention(q_m, k, v))


def nystrom(
    q: Heads,
    k: Heads,
    v: Heads,
    drop: Drop = keep,
    mask: Real = None,
    landmarks: int = 256,
    iterations: int = 6,
) -> Heads:
    """Softmax attention through landmarks; exact if there are at least as many landmarks as points.

    Segments consist of points that are consecutive in memory. Padding is not supported.
    """
    assert mask is None
    if q.shape[-2] <= landmarks:
        return softmax(q, k, v, drop)
    q_m, k_m = segment_means(q, landmarks), segment_means(k, landmarks)
    return through_landmarks(q, k, v, q_m, k_m, iterations, drop)


def through(landmarks: int = 256, iterations: int = 6) -> AttentionKind:
    """The `AttentionKind` of `nystrom`, with Q and K normalised as for softmax attention."""
    at_least(1, landmarks=landmarks)
    apply = partial(nystrom, landmarks=landmarks, iterations=iterations)
    return formula(apply, normalizes_query=True, masks=False)


NYSTROM = through()


class NystromAttention(nn.Module):
    """Multi-head `nystrom` of projections of u, plus a convolution of the values.

    The class reproduces lucidrains/nystrom-attention 0.0.14 except for the differences stated at
    `pseudo_inverse` and `segment_means`. The convolution runs along the points in their order in
    memory, with one kernel for each head. The kernel covers a fixed number of points at every
    spacing. An operator with this convolution therefore does not converge as grids are refined.

    Args:
        landmarks: Number m of landmarks. On m points or fewer this is exact softmax attention.
        iterations: Number of iterations of the pseudo-inverse.
        kernel: Number of points of the convolution kernel, odd; 0 for no convolution.
        dropout: Dropout rate of the output.
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        landmarks: int = 256,
        iterations: int = 6,
        kernel: int = 33,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(width, heads)
        at_least(1, landmarks=landmarks)
        if kernel and kernel % 2 == 0:
            raise ValueError(f"kernel must be odd or 0, got {kernel}")
        self.heads, self.landmarks, self.iterations = heads, landmarks, iterations
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.convolution = (
            nn.Conv2d(heads, heads, (kernel, 1), padding=(kernel // 2, 0), groups=heads, bias=False)
            if kernel
            else None
        )
        self.out = nn.Linear(width, width)
        self.drop = Dropout(dropout)

    def forward(
        self, u: Float[Tensor, "batch n width"], mask: None = None
    ) -> Float[Tensor, "batch n width"]:
        q, k, v = self.project(u).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = nystrom(q, k, v, landmarks=self.landmarks, iterations=self.iterations)
        if self.convolution is not None:
            y = y + self.convolution(v)  # (batch, h, n, d/h)
        return self.drop(self.out(merged(y)))
