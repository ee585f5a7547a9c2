"""Matrix products in float32 at least, where others may be in less."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Inexact
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


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    (f, g), (of_f, of_g) = ctx.saved_tensors, ctx.needs_input_grad
    return (
        _exact_bmm(gradient, g.mH).to(f.dtype) if of_f else None,
        _exact_bmm(f.mH, gradient).to(g.dtype) if of_g else None,
    )


_exact_bmm.register_autograd(_gradients, setup_context=_keep)


def product(
    f: Inexact[Tensor, "p q"] | Inexact[Tensor, "batch p q"], g: Inexact[Tensor, "batch q c"]
) -> Inexact[Tensor, "batch p c"]:
    """The products fg of a batch in float32 at least, real or complex; f may be shared."""
    f = f.expand(len(g), -1, -1)
    return torch.bmm(f, g) if on_processor(g) else _exact_bmm(f, g)
