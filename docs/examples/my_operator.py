"""An operator of one's own: python my_operator.py train --data STORE --model integral"""

import torch
from torch import Tensor, nn

from operators.base import EVERYWHERE, Operator, check_input
from operators.registry import register


class Integral(Operator):
    """u(x) = f(a(x), x, ∫ g(a(y), y) dy), with two networks f and g."""

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


register("integral", Integral)

if __name__ == "__main__":
    from pipelines.cli import main

    main()
