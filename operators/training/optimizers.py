"""Optimisers of experiments. Each is a class of settings; its objects make a PyTorch optimiser."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from operators.bounds import Count, Decay, NonNegative, require
from operators.registry import register_optimizer
from operators.training.soap import SOAP

MakeOptimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]


@dataclass(frozen=True)
class Adam:
    """Adam with the momentum cycle of 1cycle, in one fused kernel for all parameters.

    The L² penalty adds weight_decay · W to the gradient of a weight W, before the moments.

    Args:
        weight_decay: Weight of the L² penalty. [1]

    References: D. Kingma and J. Ba, Adam, ICLR 2015.
    """

    cycles_momentum: ClassVar[bool] = True
    added: ClassVar[tuple[str, ...]] = ("weight_decay",)

    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, W <- W - lr weight_decay W before each step of Adam.

    The momentum is cycled with 1cycle, as in Adam.

    Args:
        weight_decay: Weight of the decay. [1]

    References: I. Loshchilov and F. Hutter, Decoupled weight decay regularization, ICLR 2019,
    algorithm 2.
    """

    cycles_momentum: ClassVar[bool] = True

    weight_decay: NonNegative = 0.01

    def __post_init__(self) -> None:
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: v <- μ v + G + λ W, then W <- W - lr v.

    With Nesterov's momentum, the step is W <- W - lr (G + λ W + μ v).

    Args:
        momentum: The momentum μ; no schedule changes it. [1]
        nesterov: Whether the momentum is Nesterov's.
        weight_decay: Weight λ of the L² penalty. [1]
    """

    momentum: Decay = 0.9
    nesterov: bool = False
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, "need 0 <= momentum < 1", self.momentum)
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0, got 0")

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=lr, momentum=self.momentum, nesterov=self.nesterov,
            weight_decay=self.weight_decay, fused=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Muon:
    """Muon for real matrices: the step is the momentum with its singular values moved towards 1.

    Other parameters get AdamW with its default constants: vectors, and weights with three or more
    axes, such as those of convolutions and the complex weights of Fourier layers. The step of an
    m x n matrix is scaled by 0.2 max(m, n)^½, so that one learning rate serves both parts.
    No schedule changes the momentum.

    Args:
        momentum: Nesterov's momentum of the matrices. [1]
        weight_decay: Decoupled weight decay of all parameters. [1]

    References: K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024;
    J. Liu et al., Muon is scalable for LLM training, 2025, eq. 4, for the scale.
    """

    momentum: Decay = 0.95
    weight_decay: NonNegative = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, "need 0 <= momentum < 1", self.momentum)
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return MuonAndAdamW(parameters, lr, self.momentum, self.weight_decay)


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for matrices and AdamW for all other parameters, as one optimiser with two groups.

    Args:
        params: The parameters.
        lr: Learning rate of both parts.
        momentum: Momentum of Muon.
        weight_decay: Weight decay of both parts.

    Raises:
        ValueError: If no parameter is a real matrix.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        given = list(params)
        matrices = [p for p in given if p.ndim == 2 and not p.is_complex()]
        if not matrices:
            raise ValueError(
                "muon needs parameters that are real matrices, the model has none: use adamw"
            )
        matrix_ids = set(map(id, matrices))
        others = [p for p in given if id(p) not in matrix_ids]
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=lr, momentum=momentum, weight_decay=weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        ]  # fmt: skip
        if others:
            adamw = torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay, fused=True)
            self._parts.append(adamw)
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Let both parts act on the groups and the state of this optimiser."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step with the present gradients. `closure` is ignored."""
        for part in self._parts:
            part.step()


@dataclass(frozen=True)
class Soap:
    """SOAP with constant momentum (`operators.training.soap.SOAP`).

    Args:
        beta1: Decay of the first moment. [1]
        beta2: Decay of the second moment. [1]
        every: Number of steps between updates of the eigenbases.
    """

    beta1: Decay = 0.95
    beta2: Decay = 0.95
    every: Count = 10

    def __post_init__(self) -> None:
        decays = self.beta1, self.beta2
        require(all(0 <= beta < 1 for beta in decays), "need 0 <= beta1, beta2 < 1", *decays)
        require(self.every >= 1, "every must be >= 1", self.every)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return SOAP(parameters, lr=lr, betas=(self.beta1, self.beta2), every=self.every)


register_optimizer("adam", Adam)
register_optimizer("adamw", AdamW)
register_optimizer("sgd", SGD)
register_optimizer("muon", Muon)
register_optimizer("soap", Soap)
