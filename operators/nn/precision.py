"""Matrix products in float32 at least, where others may be in less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from operators.nn.fused import on_processor


@contextmanager
def exactly(u: Tensor) -> Iterator[None]:
    """Products in float32 at least, whatever the precision of others on the device of u."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(u.device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def widened(u: Tensor) -> Tensor:
    """u, in float32 where it is in half precision."""
    return u.float() if u.dtype in (torch.bfloat16, torch.float16) else u


# as an operation of its own, which compilers and autocast leave as it is
@torch.library.custom_op(
    "operators::exact_bmm", mutates_args=(), schema="(Tensor f, Tensor g) -> Tensor"
)
def _exact_bmm(f: Tensor, g: Tensor) -> Tensor:
    with exactly(f):
        return torch.bmm(widened(f), widened(g))


@_exact_bmm.register_fake
def _(f: Tensor, g: Tensor) -> Tensor:
    return widened(f).new_empty(f.shape[0], f.shape[1], g.shape[2])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    f, g = ctx.saved_tensors
    return _exact_bmm(gradient, g.mT).to(f.dtype), _exact_bmm(f.mT, gradient).to(g.dtype)


_exact_bmm.register_autograd(_gradients, setup_context=_keep)


def product(
    f: Float[Tensor, "p q"] | Float[Tensor, "batch p q"], g: Float[Tensor, "batch q c"]
) -> Float[Tensor, "batch p c"]:
    """The products fg of a batch in float32 at least; f may be shared."""
    f = f.expand(len(g), -1, -1)
    return torch.bmm(f, g) if on_processor(g) else _exact_bmm(f, g)
