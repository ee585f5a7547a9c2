"""Maps with written-out gradients for the CPU, and products in at least float32.

On the CPU, the sums, copies and masks between the matrix products of a small model take almost as
long as the products. The functions below let the products add to their outputs instead. On other
devices, only the gradient of the residual MLP is written out. In reduced precision and under
torch.compile, PyTorch computes all gradients.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Values = Float[Tensor, "batch n width"]


def on_processor(u: Tensor) -> bool:
    """Whether u is on the CPU, and neither autocast nor torch.compile is active."""
    return not (
        u.device.type != "cpu" or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    )


def as_written(u: Tensor) -> bool:
    """Whether u is not on the CPU, and neither autocast nor torch.compile is active."""
    return u.device.type != "cpu" and not (
        torch.is_autocast_enabled() or torch.compiler.is_compiling()
    )


_biased_relu = torch.ops.aten._addmm_activation
_MIN_POINTS = 256  # least number of points of a part of a sum
_MAX_PARTS = 32


def parts_of(n: int, u: Tensor) -> int:
    """Number of equal parts into which a sum over n points is split on the device of u.

    On a GPU, a matrix product with few rows and columns is a single unit of work for each sample,
    however long the sum over points is. Without parts, most of the GPU would be idle. On the CPU
    there is one part.
    """
    if u.device.type == "cpu":
        return 1
    return next((p for p in range(_MAX_PARTS, 1, -1) if n % p == 0 and n // p >= _MIN_POINTS), 1)


def inner(
    f: Float[Tensor, "batch n p"], g: Float[Tensor, "batch n q"]
) -> Float[Tensor, "batch p q"]:
    """The products fᵀg of the features of f and g, summed over the points of each sample."""
    parts = parts_of(f.shape[1], f)
    if parts == 1:
        return torch.bmm(f.mT, g)
    f, g = (v.unflatten(1, (parts, -1)).flatten(0, 1) for v in (f, g))
    return torch.bmm(f.mT, g).unflatten(0, (-1, parts)).sum(1)


def residual_mlp(u: Values, mlp: nn.Sequential) -> Values:
    """u + W₂ relu(W₁ u + b₁) + b₂, where the two linear maps are the first and last of `mlp`.

    A dropout between the two maps is not applied.
    """
    first, last = mlp[0], mlp[-1]
    if on_processor(u) or as_written(u):
        flat = u.reshape(-1, u.shape[-1])
        out = _ResidualMLP.apply(flat, first.weight, first.bias, last.weight, last.bias)
        return out.view(u.shape)  # pyright: ignore[reportOptionalMemberAccess]
    return u + last(nn.functional.relu(first(u)))


class _ResidualMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        # on a GPU product, bias and ReLU are one kernel
        on_cpu = u.device.type == "cpu"
        h = (u @ w1.T).add_(b1).relu_() if on_cpu else _biased_relu(b1, u, w1.T)
        ctx.save_for_backward(u, h, w1, w2)
        return (u + b2).addmm_(h, w2.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        u, h, w1, w2 = ctx.saved_tensors
        g = grads[0].contiguous()
        g_h = g @ w2
        torch.ops.aten.threshold_backward.grad_input(g_h, h, 0, grad_input=g_h)
        return torch.addmm(g, g_h, w1), g_h.T @ u, g_h.sum(0), g.T @ h, g.sum(0)


def moments(
    u: Values,
    weight: Float[Tensor, "_ width"],
    bias: Float[Tensor, " _"],
    z: Float[Tensor, "n q"],
    features: int,
    eps: float | None,
) -> tuple[Float[Tensor, "batch q _"], Float[Tensor, "batch d d"]]:
    """zᵀ[K V] and KᵀV, where [K V] = u Wᵀ + b is normalised if `eps` is given.

    Args:
        z: Values of q fixed functions at the points.
        features: Number of features in each group that is normalised to mean 0 and variance 1.
        eps: Added to the variance. If None, K and V are not normalised.
    """
    if on_processor(u) and not z.requires_grad:  # the written-out gradient has none for z
        return _Moments.apply(u, weight, bias, z, features, eps)  # pyright: ignore[reportReturnType]
    kv = nn.functional.linear(u, weight, bias)
    if eps is not None:
        kv = nn.functional.layer_norm(kv.unflatten(2, (-1, features)), (features,), eps=eps)
        kv = kv.flatten(2)
    k, v = kv.chunk(2, dim=-1)
    return inner(z.expand(len(u), -1, -1), kv), inner(k, v)


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, bias: Tensor, z: Tensor, features: int,
        eps: float | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        flat = u.reshape(-1, u.shape[-1])
        raw = (flat @ weight.T).add_(bias).view(-1, features)
        kv, *statistics = (
            (raw,) if eps is None else torch.native_layer_norm(raw, [features], None, None, eps)
        )
        kv = kv.view(*u.shape[:2], -1)
        ctx.features = features
        ctx.save_for_backward(flat, weight, z, kv, *((raw, *statistics) if statistics else ()))
        k, v = kv.chunk(2, dim=-1)
        return torch.bmm(z.T.expand(len(u), -1, -1), kv), torch.bmm(k.mT, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, z, kv, *normalized = ctx.saved_tensors
        g_z, g_kv = grads
        k, v = kv.chunk(2, dim=-1)
        # a product with few columns, as sums
        g = z[:, :1] * g_z[:, :1] if z.shape[1] else torch.zeros_like(kv)
        for column in range(1, z.shape[1]):
            g.addcmul_(z[:, column, None], g_z[:, column, None])
        g_k, g_v = g.chunk(2, dim=-1)
        g_k.baddbmm_(v, g_kv.mT)
        g_v.baddbmm_(k, g_kv)
        if normalized:
            raw, mean, rstd = normalized
            g, _, _ = torch.ops.aten.native_layer_norm_backward(
                g.view(-1, ctx.features), raw, [ctx.features], mean, rstd, None, None,
                [True, False, False],
            )  # fmt: skip
        g = g.view(len(flat), -1)
        return (g @ weight).view(*kv.shape[:2], -1), g.T @ flat, g.sum(0), None, None, None


def slice_sums(
    x: Float[Tensor, "b n d"],
    weight: Float[Tensor, "b d g"],
    bias: Float[Tensor, "b 1 g"],
    f: Float[Tensor, "b n q"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> tuple[Float[Tensor, "b n g"], Float[Tensor, "b g q"], Float[Tensor, "b 1 g"]]:
    """Weights w = softmax(x W + b) of n points in g slices, and the sums wᵀf and wᵀ1 over points.

    The weights are 0 where `mask` is False.

    The array w is much larger than x and f. On the CPU, w is computed sample by sample to stay in
    the cache. The softmax and wᵀ1 are computed in at least float32.
    """
    if mask is None and on_processor(x) and x.dtype in (torch.float32, torch.float64):
        return _SliceSums.apply(x, weight, bias, f)  # pyright: ignore[reportReturnType]
    logits = torch.baddbmm(bias, x, weight)
    w = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    w = w if mask is None else w * mask[..., None]
    return w, inner(w.to(f.dtype), f), w.sum(1, keepdim=True)


class _SliceSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, f: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        slices = weight.shape[2]
        w = x.new_empty(*x.shape[:2], slices)
        sums, totals = x.new_empty(len(x), slices, f.shape[2]), x.new_empty(len(x), 1, slices)
        for i, share in enumerate(w):
            torch.addmm(bias[i], x[i], weight[i], out=share)
            torch.softmax(share, -1, out=share)
            torch.mm(share.T, f[i], out=sums[i])
            torch.sum(share, 0, keepdim=True, out=totals[i])
        ctx.save_for_backward(x, weight, f, w)
        return w, sums, totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, weight, f, w = ctx.saved_tensors
        g_w, g_sums, g_totals = grads
        g_x, g_weight, g_f = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(f)
        g_bias = torch.empty_like(g_totals)
        for i, share in enumerate(w):
            torch.mm(share, g_sums[i], out=g_f[i])
            g = (g_w[i] + g_totals[i]).addmm_(f[i], g_sums[i].T)
            torch.ops.aten._softmax_backward_data.out(g, share, -1, share.dtype, grad_input=g)
            torch.mm(g, weight[i].T, out=g_x[i])
            torch.mm(x[i].T, g, out=g_weight[i])
            torch.sum(g, 0, keepdim=True, out=g_bias[i])
        return g_x, g_weight, g_bias, g_f


@contextmanager
def exactly(u: Tensor) -> Iterator[None]:
    """Context in which float32 products have full precision and autocast is off."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(u.device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def widened(u: Tensor) -> Tensor:
    """u, converted to float32 if it is in half precision."""
    return u.float() if u.dtype in (torch.bfloat16, torch.float16) else u


# a custom operation, which compilers and autocast leave unchanged
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
    """Batched real or complex products f g in at least float32; f may be one matrix for all g."""
    f = f.expand(len(g), -1, -1)
    return torch.bmm(f, g) if on_processor(g) else _exact_bmm(f, g)
