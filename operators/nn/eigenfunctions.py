r"""Functions ψ̂ for kernels Σᵢ μᵢ ψ̂ᵢ(y) ψ̂ᵢ(x), of features of points: orthonormal, or normalised.

References: Z. Xiao et al., Improved Operator Learning by Orthogonal Attention, ICML 2024, sections
3.3 and 4.3; released code zhijie-group/Orthogonal-Neural-operator (c9bc85d).
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.nn.pointwise import BatchNorm
from operators.nn.tokens import Real

Values = Float[Tensor, "batch n width"]


class Orthonormal(nn.Module):
    r"""ψ̂ = ψ L⁻ᵀ with ψ = W g + b and L Lᵀ = C, so that the mean of ψ̂ᵢ ψ̂ⱼ is δᵢⱼ (eq. 7-9).

    In training C is the mean of ψᵀψ over the samples and points of the batch, and passes the
    gradient. Evaluation takes its moving average, identity before the first step of training, so
    that a sample does not depend on its batch, as in batch normalisation.

    Directions in which ψ hardly varies are not blown up to size 1: C + λ(tr C/k) I is what is
    factorised, in training and evaluation. The released code adds 1e-6 I, then ten times as much
    and so on, where the factorisation fails; this adds always, in proportion to C, and has no
    branch. A batch of fewer than k points in all is thereby possible.

    Args:
        momentum: Share m of the old average, C̄ <- m C̄ + (1 - m) C; the first C is taken whole.
        jitter: λ.
    """

    covariance: Tensor
    steps: Tensor

    def __init__(self, width: int, k: int, momentum: float, jitter: float) -> None:
        super().__init__()
        self.project = nn.Linear(width, k)
        self.momentum, self.jitter = momentum, jitter
        self.register_buffer("covariance", torch.eye(k, dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, g: Values, mask: Real | None = None) -> Float[Tensor, "batch n k"]:
        """ψ̂, which is 0 where `mask` is False: at padding."""
        # C has the square of the condition of ψ: float64, which autocast leaves alone
        psi = self.project(g).double()
        psi = psi if mask is None else psi * mask[..., None]
        if self.training:
            rows = psi.flatten(0, 1)
            c = rows.mT @ rows / (len(rows) if mask is None else mask.sum())
            self._average(c.detach())
        else:
            c = self.covariance.double()
        one = torch.eye(len(c), dtype=c.dtype, device=c.device)
        # no exception, which would wait for the GPU: a factor that is none makes the loss NaN
        factor, failed = torch.linalg.cholesky_ex(c + self.jitter * c.diagonal().mean() * one)
        factor = factor.masked_fill(failed != 0, torch.nan)
        inverse = torch.linalg.solve_triangular(factor, one, upper=False)
        return (psi.flatten(0, 1) @ inverse.mT).view(psi.shape).to(g.dtype)

    @torch.no_grad()
    def _average(self, c: Float[Tensor, "k k"]) -> None:
        share = 1 - self.momentum * (self.steps > 0).to(self.covariance)
        self.covariance.lerp_(c.to(self.covariance), share)
        self.steps.add_(1)


class Normalized(nn.Module):
    """ψ̂ = N(W g + b) with a batch norm or layer norm N: ψ̂ᵢ have a size, and need not be orthogonal.

    Args:
        kind: "batch", each ψᵢ over the points of all samples; "layer", the k values at each point.
        momentum: Share of the old average in those of the batch norm, which evaluation takes.
    """

    def __init__(
        self, width: int, k: int, kind: Literal["batch", "layer"], momentum: float
    ) -> None:
        super().__init__()
        self.project = nn.Linear(width, k)
        self.norm = BatchNorm(k, momentum=1 - momentum) if kind == "batch" else nn.LayerNorm(k)

    def forward(self, g: Values, mask: Real | None = None) -> Float[Tensor, "batch n k"]:
        """ψ̂, which is 0 where `mask` is False: at padding."""
        psi = self.project(g)
        psi = self.norm(psi, mask) if isinstance(self.norm, BatchNorm) else self.norm(psi)
        return psi if mask is None else psi * mask[..., None]
