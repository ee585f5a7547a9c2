"""SOAP: Adam in the eigenbasis of Shampoo's preconditioners.

References: N. Vyas et al., SOAP: Improving and stabilizing Shampoo using Adam, ICLR 2025,
algorithm 3; V. Gupta, T. Koren, Y. Singer, Shampoo, ICML 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Basis = Float[Tensor, "count k k"]


def _as_matrices(t: Tensor) -> Tensor:
    """A weight as a stack of matrices: (m, n) -> (1, m, n); (count, m, n) as it is; a complex one
    (*modes, in, out, 2) -> (modes, in, 2 out); a convolution (out, in, k, k) -> (1, out, in k²)."""
    if t.ndim == 2:
        return t[None]
    if t.ndim == 3:
        return t
    if t.shape[-1] == 2:
        return t.flatten(-2).flatten(0, -3)
    return t.flatten(1)[None]


class SOAP(torch.optim.Optimizer):
    """W <- W - lr Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ, Q_L and Q_R eigenvectors of mean G Gᵀ and Gᵀ G.

    For every matrix G of a gradient, running means of G Gᵀ and Gᵀ G are kept. Adam's second
    moment lives in their eigenbases, which one orthogonal iteration every few steps follows.
    Weights of one dimension, and matrices with a single row or column, get plain Adam. The first
    step only sets up the bases.

    Args:
        params: Parameters of one or more dimensions; `_as_matrices` says which matrices are in
            them.
        lr: Learning rate.
        betas: Decay of the first and of the second moment.
        basis_decay: Decay of the means of G Gᵀ and Gᵀ G.
        every: Steps between updates of the bases.
        eps: Added to the root of the second moment.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        basis_decay: float = 0.95,
        every: int = 10,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "basis_decay": basis_decay, "every": every, "eps": eps},
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step with the gradients at hand; `closure` is not used."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.ndim < 2 or min(p.shape) == 1:
                    self._adam(p, group)
                else:
                    self._rotated_adam(p, group)

    def _adam(self, p: Tensor, group: dict[str, Any]) -> None:
        state, g = self.state[p], p.grad
        assert g is not None
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(g), "square": torch.zeros_like(g)}
        state["step"] += 1
        state["mean"].lerp_(g, 1 - group["betas"][0])
        p.sub_(_direction(state, g, state["mean"], group), alpha=group["lr"])

    def _rotated_adam(self, p: Tensor, group: dict[str, Any]) -> None:
        assert p.grad is not None
        state, g = self.state[p], _as_matrices(p.grad)
        if not state:
            left, right = g @ g.mT, g.mT @ g
            state |= {
                "step": 0, "mean": torch.zeros_like(g), "square": torch.zeros_like(g),
                "left": left, "right": right,
                "q_left": _eigenvectors(left), "q_right": _eigenvectors(right),
            }  # fmt: skip
            return
        state["step"] += 1
        state["mean"].lerp_(g, 1 - group["betas"][0])
        q_left, q_right = state["q_left"], state["q_right"]
        rotated_g = q_left.mT @ g @ q_right
        rotated_mean = q_left.mT @ state["mean"] @ q_right
        direction = q_left @ _direction(state, rotated_g, rotated_mean, group) @ q_right.mT
        p.sub_(direction.reshape(p.shape), alpha=group["lr"])
        state["left"].lerp_(g @ g.mT, 1 - group["basis_decay"])
        state["right"].lerp_(g.mT @ g, 1 - group["basis_decay"])
        if state["step"] == 1 or state["step"] % group["every"] == 0:
            state["q_left"], order = _followed(state["left"], q_left)
            square = state["square"].gather(1, order[:, :, None].expand_as(g))
            state["q_right"], order = _followed(state["right"], q_right)
            state["square"] = square.gather(2, order[:, None, :].expand_as(g))


def _direction(state: dict[str, Any], g: Tensor, mean: Tensor, group: dict[str, Any]) -> Tensor:
    """Adam's direction m̂/(√v̂ + ε), after v took in g²."""
    beta1, beta2 = group["betas"]
    state["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
    root = (state["square"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
    return mean / (1 - beta1 ** state["step"]) / root


def _eigenvectors(a: Basis) -> Basis:
    """Of symmetric matrices, by falling eigenvalue; in float64, for they may be near singular."""
    return torch.linalg.eigh(a.double()).eigenvectors.flip(-1).to(a.dtype)


def _followed(a: Basis, q: Basis) -> tuple[Basis, Tensor]:
    """One orthogonal iteration towards the eigenvectors of `a`, and the order it put them in.

    Columns are sorted by Rayleigh quotient first, so that the iteration keeps its order.
    """
    aq = a @ q
    order = (q * aq).sum(-2).argsort(-1, descending=True)
    return torch.linalg.qr(aq.gather(2, order[:, None, :].expand_as(aq))).Q, order
