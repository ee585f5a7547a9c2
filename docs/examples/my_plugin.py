"""An operator, an optimiser, a schedule and a loss of your own.

pdegen train --plugin my_plugin.py --data STORE --model integral \\
    --set training.optimizer.name=lion --set training.schedule.name=linear \\
    --set training.loss.name=l4
"""

import torch
from torch import Tensor, nn

from operators.base import EVERYWHERE, Operator, check_input
from operators.registry import register, register_loss, register_optimizer, register_schedule


class Integral(Operator):
    """u(x) = f(a(x), x, ∫ g(a(y), y) dy), with two networks f and g.

    Args:
        width: Hidden features of f, and the number of integrals.
    """

    domains = EVERYWHERE
    points_by_sample = True

    def __init__(
        self, *, in_channels: int = 1, out_channels: int = 1, dim: int = 1, width: int = 64
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.g = nn.Sequential(nn.Linear(in_channels + dim, width), nn.GELU())
        self.f = nn.Sequential(
            nn.Linear(in_channels + dim + width, width), nn.GELU(), nn.Linear(width, out_channels)
        )

    def forward(
        self, a: Tensor, x: Tensor, y: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        check_input(self, a, x, y, mask)
        here = torch.cat([a, x.expand(*a.shape[:-1], -1)], dim=-1)
        grid = tuple(range(1, a.ndim - 1))
        mean = self.g(here).mean(dim=grid, keepdim=True)
        return self.f(torch.cat([here, mean.expand(*here.shape[:-1], -1)], dim=-1))


class Lion(torch.optim.Optimizer):
    """W <- W - lr sign(β₁ m + (1 - β₁) G), then m <- β₂ m + (1 - β₂) G, for the gradient G.

    Args:
        beta1: Weight of the mean m in a step. [1]
        beta2: Decay of the mean m. [1]
    """

    def __init__(self, params, lr: float = 1e-4, beta1: float = 0.9, beta2: float = 0.99) -> None:
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise ValueError(f"beta1 and beta2 must be in [0, 1), got {beta1} and {beta2}")
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                direction = mean.lerp(weight.grad, 1 - group["beta1"]).sign_()
                weight.sub_(direction * group["lr"])
                mean.lerp_(weight.grad, 1 - group["beta2"])


class Linear:
    """The rate rises linearly to lr in the first steps, then falls linearly to 0.

    Args:
        warmup: Fraction of the steps in which the rate rises. [1]
    """

    def __init__(self, warmup: float = 0.1) -> None:
        if not 0 < warmup < 1:
            raise ValueError(f"warmup must be between 0 and 1, got {warmup}")
        self.warmup = warmup

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        time = (step + 1) / (steps + 1)
        return lr * min(time / self.warmup, (1 - time) / (1 - self.warmup))


class RelativeL4:
    """Mean over the batch of ‖p - u‖ / ‖u‖ in L⁴, which weighs large errors more than L²."""

    def __call__(
        self, prediction: Tensor, target: Tensor, a: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        def norm(v: Tensor) -> Tensor:
            powers = v**4 if weight is None else v**4 * weight[..., None]
            return powers.flatten(1).sum(dim=1) ** 0.25

        return (norm(prediction - target) / norm(target)).mean()


register("integral", Integral)
register_optimizer("lion", Lion)
register_schedule("linear", Linear)
register_loss("l4", RelativeL4)
