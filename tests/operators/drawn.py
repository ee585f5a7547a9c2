"""Random weights that all matter, their gradients, and points with values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def shaken(module: Module, std: float = 0.2) -> Module:
    """The model in float64, with weights and statistics of order one, so that every term counts."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(std * torch.randn_like(parameter))
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


Inputs = tuple[Tensor, ...]


def grid(*sizes: int, kind: str = "periodic", channels: int = 1, batch: int = 2) -> Inputs:
    """Values a at points x of a grid."""
    torch.manual_seed(2)
    return torch.randn(batch, *sizes, channels, dtype=torch.float64), points(*sizes, kind=kind)


nodes = partial(grid, kind="nodal")


def mesh(*sizes: int, channels: int = 0) -> Inputs:
    """Points of each sample, which are the values where no channels are asked for."""
    torch.manual_seed(2)
    x = torch.rand(3, *sizes, 2, dtype=torch.float64)
    return (torch.randn(3, *sizes, channels).double() if channels else x), x


def scattered(n: int, dim: int, channels: int) -> Callable[[], Inputs]:
    """Points anywhere, which the samples share."""

    def inputs() -> Inputs:
        torch.manual_seed(3)
        return torch.randn(2, n, channels).double(), torch.rand(n, dim, dtype=torch.float64)

    return inputs


def near_grid(n: int, dim: int) -> Callable[[], Inputs]:
    """No two distances alike: rounding would decide which are neighbours in the released code."""

    def inputs() -> Inputs:
        a, x = grid(*[n] * dim, batch=3)
        return a, x + 0.01 * torch.rand_like(x)

    return inputs


def beside(a: Tensor, x: Tensor) -> Tensor:
    return torch.cat([a, x.expand(*a.shape[:-1], x.shape[-1])], dim=-1)


def at(inputs: Callable[[], Inputs], *y: int) -> Callable[[], Inputs]:
    """The inputs, and points of the output."""
    return lambda: (*inputs(), torch.rand(*y, dtype=torch.float64))


def of_features(oracle: Any, **how: Any) -> Any:
    """An oracle of a and the positions side by side."""
    return lambda model, a, x: oracle(model, beside(a, model.positions(x)), **how)


def of_indices(oracle: Any, **how: Any) -> Any:
    """An oracle of a and the positions j/(n - 1) of the grid."""

    def values(model: Any, a: Tensor, x: Tensor) -> Tensor:
        return oracle(model, beside(a, points(*a.shape[1:-1], kind="nodal")), **how)

    return values


def in_time(oracle: Any, frames: int, **how: Any) -> Any:
    """An oracle of a at each frame and the positions j/(n - 1) in space and time, by frame."""

    def values(model: Any, a: Tensor, x: Tensor) -> Tensor:
        whole = (*a.shape[:-1], frames)
        features = beside(a[..., None, :].expand(*whole, -1), points(*whole[1:], kind="nodal"))
        return oracle(model, features, **how).flatten(3)

    return values
