r"""Eigenfunctions ψ̂ of kernels Σᵢ μᵢ ψ̂ᵢ(y) ψ̂ᵢ(x), computed from features of points.

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

    In training C is the mean of ψᵀψ over samples and points of the batch, and gradients pass
    through C. As in batch normalisation, evaluation uses a moving average of C, and the result for
    a sample does not depend on its batch. Before training, this average is the identity.

    The matrix that is factorised is C + λ(tr C/k) I, in training and in evaluation. The added term
    prevents directions in which ψ hardly varies from being scaled up to size 1. It also allows
    batches with fewer than k points. The released code adds 1e-6 I only if the factorisation fails,
    then 1e-5 I, and so on.

    Args:
        width: Number of features in g.
        k: Number of eigenfunctions.
        momentum: Weight m of the old average in C̄ <- m C̄ + (1 - m) C. In the first step C̄ <- C.
        jitter: The factor λ.
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
        """ψ̂ at the points; the values are 0 at padding, where `mask` is False."""
        # in float64, which autocast leaves alone: the condition number of C is that of ψ squared
        psi = self.project(g).double()
        psi = psi if mask is None else psi * mask[..., None]
        if self.training:
            rows = psi.flatten(0, 1)
            c = rows.mT @ rows / (len(rows) if mask is None else mask.sum())
            self._average(c.detach())
        else:
            c = self.covariance.double()
        identity = torch.eye(len(c), dtype=c.dtype, device=c.device)
        # an exception would wait for the GPU; a failed factorisation makes the loss NaN instead
        factor, failed = torch.linalg.cholesky_ex(c + self.jitter * c.diagonal().mean() * identity)
        factor = factor.masked_fill(failed != 0, torch.nan)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return (psi.flatten(0, 1) @ inverse.mT).view(psi.shape).to(g.dtype)

    @torch.no_grad()
    def _average(self, c: Float[Tensor, "k k"]) -> None:
        weight = 1 - self.momentum * (self.steps > 0).to(self.covariance)
        self.covariance.lerp_(c.to(self.covariance), weight)
        self.steps.add_(1)


class Normalized(nn.Module):
    """ψ̂ = N(W g + b) with a batch or layer norm N: ψ̂ᵢ are normalised, not orthogonal.

    Args:
        kind: "batch" normalises each ψᵢ over the points of all samples; "layer" normalises the k
            values at each point.
        momentum: Weight of the old average in the moving averages of the batch norm.
    """

    def __init__(
        self, width: int, k: int, kind: Literal["batch", "layer"], momentum: float
    ) -> None:
        super().__init__()
        self.project = nn.Linear(width, k)
        self.norm = BatchNorm(k, momentum=1 - momentum) if kind == "batch" else nn.LayerNorm(k)

    def forward(self, g: Values, mask: Real | None = None) -> Float[Tensor, "batch n k"]:
        """ψ̂ at the points; the values are 0 at padding, where `mask` is False."""
        psi = self.project(g)
        psi = self.norm(psi, mask) if isinstance(self.norm, BatchNorm) else self.norm(psi)
        return psi if mask is None else psi * mask[..., None]
