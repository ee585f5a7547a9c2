"""What tests of operators draw: weights that all count, their gradients, points with values."""

from __future__ import annotations

import copy
from collections.abc import Sequence
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


def points(*sizes: int, kind: str = "periodic", dtype: torch.dtype = torch.float64) -> Tensor:
    """A grid of the unit box, shape (*sizes, dim)."""

    def axis(n: int) -> Tensor:
        j = torch.arange(n, dtype=dtype)
        return {"periodic": j / n, "cell": (j + 0.5) / n, "nodal": j / max(n - 1, 1)}[kind]

    return torch.stack(torch.meshgrid(*map(axis, sizes), indexing="ij"), dim=-1)


def same(
    found: Tensor,
    expected: Tensor,
    leaves: nn.Module | Sequence[Tensor],
    rtol: float = 1e-10,
    atol: float = 1e-10,
) -> None:
    """Assert equal values, and equal gradients by all leaves, to which the tolerances belong."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    given = list(leaves.parameters()) if isinstance(leaves, nn.Module) else list(leaves)
    torch.manual_seed(4)
    slope = torch.randn_like(found)
    gradients = [
        torch.autograd.grad((u * slope).sum(), given, retain_graph=True, allow_unused=True)
        for u in (found, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=rtol, atol=atol)


def same_as_copy(u: Tensor, expected: Tensor, model: nn.Module, plain: nn.Module) -> None:
    """Assert equal values, and equal gradients by the weights that `plain` copied from `model`."""
    torch.testing.assert_close(u, expected, rtol=1e-10, atol=1e-10)
    for v in (u, expected):
        v.square().sum().backward()
    again = copy.deepcopy(plain)  # with the gradients of the model in place of its weights
    again.copy_from(graded(model))
    for mine, theirs in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.grad, rtol=1e-10, atol=1e-10)


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
