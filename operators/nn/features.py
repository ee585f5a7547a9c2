r"""Attention by random features φ, whose products φ(q)·φ(k) estimate a kernel κ(q, k).

Let ω ~ N(0, I_d) be random frequencies. Scale q and k by d^(-1/4), as softmax(QKᵀ/√d) does. Then

    Gaussian:  exp(-|q - k|²/2) = E cos ω·(q - k)                                  (RFA)
    softmax:   exp(q·k) = E cosh ω·(q + k) exp(-(|q|² + |k|²)/2)                   (FAVOR+)

With estimates φ(q)·φ(k), the cost of Σ_j κ(q, k_j) v_j / Σ_j κ(q, k_j) is linear in the number of
points.

References: H. Peng et al., Random Feature Attention, ICLR 2021, section 3.1. K. Choromanski et al.,
Rethinking Attention with Performers, ICLR 2021, equation (7) and section 2.4.
"""

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.nn.attention import AttentionKind, Drop, Heads, Real, Sources, keep, real

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
