"""What tests of operators draw: weights that all count, their gradients, points with values."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def shaken(module: Module, deviation: float = 0.2) -> Module:
    """In float64, with weights and statistics of order one, so that every term counts."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(deviation * torch.randn_like(parameter))
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
    return module.double()


def graded(module: Module) -> Module:
    """A copy whose weights are the gradients."""
    found = copy.deepcopy(module)
    with torch.no_grad():
        for mine, theirs in zip(found.parameters(), module.parameters(), strict=True):
            assert theirs.grad is not None
            mine.copy_(theirs.grad)
    return found


def cloud(batch: int = 2, n: int = 9, channels: int = 1) -> tuple[Tensor, Tensor]:
    """Values a at points x of [0, 1]^2, others in each sample."""
    torch.manual_seed(2)
    a = torch.randn(batch, n, channels, dtype=torch.float64)
    return a, torch.rand(batch, n, 2, dtype=torch.float64)
