r"""Softmax attention through m landmarks, by the Nyström method.

    softmax(QKᵀ/√d) V ≈ softmax(QK̃ᵀ/√d) A⁺ softmax(Q̃Kᵀ/√d) V,   A = softmax(Q̃K̃ᵀ/√d),

where Q̃ and K̃ are the means of Q and K over m segments of consecutive points. The first factor has
n queries and m keys, the last one m queries and n keys. The cost is therefore linear in n.

References: Y. Xiong et al., Nyströmformer, AAAI 2021, equations (10)-(14).
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import at_least
from operators.nn.attention import (
    AttentionKind,
    Drop,
    Heads,
    Real,
    formula,
    keep,
    softmax,
    softmax_attention,
)
from operators.nn.pointwise import Dropout
from operators.nn.tokens import check_heads, merged

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
