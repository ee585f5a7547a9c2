"""The solver as a function of PyTorch with derivatives: the only module here that imports it."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from pdegen.equations.darcy.adjoint import Linearised
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.numerics.device import Array


def solve(
    solver: FiniteVolume,
    a: Float[Tensor, "batch n n"],
    f: Float[Tensor, "..."] | float = 1.0,
    walls: Array | float = 0.0,
) -> Float[Tensor, "batch n n"]:
    """u(a, f), with derivatives by a and by f in both modes, each by one more solve.

    Tensors of the CPU are solved as NumPy arrays, which share their memory; others on their device.
    All is computed in float64; u has the type of a, and gradients that of a and f.

    Args:
        solver: Grid, faces and tolerance, which gradients have too.
        a: Positive coefficients.
        f: Source: a number, or a tensor that broadcasts to a.
        walls: Values on the walls, as `FiniteVolume.solve` takes them; they have no derivative.

    Raises:
        RuntimeError: On `backward` with create_graph=True: there is no second derivative.
        ValueError, SolveError: As `FiniteVolume.solve`.

    >>> from pdegen.domains import CellGrid
    >>> a = torch.ones(1, 8, 8, requires_grad=True)
    >>> u = solve(FiniteVolume(CellGrid(8)), a)
    >>> u.sum().backward()  # u(a) = u(1)/a for a number a
    >>> torch.allclose(a.grad.sum(), -u.sum())
    True
    """
    source = f if isinstance(f, Tensor) else torch.tensor(f, dtype=a.dtype, device=a.device)
    return cast("Tensor", _Solve.apply(a, source, solver, walls))  # pyright: ignore[reportUnknownMemberType]: of PyTorch


class _Solve(torch.autograd.Function):
    """u(a, f). What it keeps for derivatives is `Linearised`."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, f: Tensor, solver: FiniteVolume, walls: Array | float
    ) -> Tensor:
        ctx.at = solver.linearise(_inside(a), _inside(f), walls)
        ctx.of_a, ctx.of_f = (a.dtype, a.device, a.shape), (f.dtype, f.device, f.shape)
        return _outside(ctx.at.u, *ctx.of_a)

    @staticmethod
    def backward(
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        # `once_differentiable` would say nothing where v is a constant, as after a sum
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a solution of Darcy has no second derivative: call backward without create_graph"
            )
        at: Linearised = ctx.at
        by_a, by_f = at.gradients(_inside(grad_outputs[0]))
        needs_a, needs_f, *_ = ctx.needs_input_grad
        return (
            _outside(by_a, *ctx.of_a) if needs_a else None,
            _outside(by_f, *ctx.of_f) if needs_f else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None) -> Tensor:
        at: Linearised = ctx.at
        da, df, *_ = grad_inputs
        da_ = at.u * 0 if da is None else _inside(da)
        return _outside(at.jvp(da_, 0.0 if df is None else _inside(df)), *ctx.of_a)


def _inside(values: Tensor) -> Array:
    """float64, of NumPy where the device is the CPU."""
    values = values.detach().to(torch.float64).contiguous()
    return values.numpy() if values.device.type == "cpu" else values


def _outside(values: Array, dtype: torch.dtype, device: torch.device, shape: torch.Size) -> Tensor:
    """A tensor again, summed over the axes along which the shape was broadcast."""
    return torch.as_tensor(values, device=device).sum_to_size(shape).to(dtype)
