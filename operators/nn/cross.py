"""Scaled dot-product attention from one set of tokens to another, in heads."""

from jaxtyping import Float
from torch import Tensor, nn

from operators.nn.tokens import Real, as_keys, merged, split


class CrossAttention(nn.Module):
    """softmax(QKᵀ/√d) V W + b in each head, Q = q W_q and K, V = z W_k, z W_v.

    Args:
        queries, sources, out: Features of q, of z and of the result; None, the width.
        project: False, where the queries are parameters themselves: Q = q.
        normalize: Q and K have root mean square 1, up to a learned scale, in each head.
        bias: Whether the maps to Q, K and V have one.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        queries: int | None = None,
        sources: int | None = None,
        out: int | None = None,
        project: bool = True,
        normalize: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.query = nn.Linear(queries or width, width, bias=bias) if project else nn.Identity()
        self.key, self.value = (nn.Linear(sources or width, width, bias=bias) for _ in range(2))
        self.norm_query, self.norm_key = (
            nn.RMSNorm(d, eps=1e-6) if normalize else nn.Identity() for _ in range(2)
        )
        self.out = nn.Linear(width, out or width)

    def forward(
        self,
        q: Float[Tensor, "_ m _"],
        z: Float[Tensor, "batch n _"],
        mask: Real | None = None,
    ) -> Float[Tensor, "batch m _"]:
        """The values at q, which may be one for all samples; `mask` is False where z is padding."""
        q, k, v = (split(u, self.heads) for u in (self.query(q), self.key(z), self.value(z)))
        q, k = self.norm_query(q), self.norm_key(k)  # (batch, heads, m|n, d)
        q = q.expand(len(k), -1, -1, -1)
        v = nn.functional.scaled_dot_product_attention(q, k, v, as_keys(mask))
        return self.out(merged(v))
