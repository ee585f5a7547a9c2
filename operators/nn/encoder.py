r"""Layers of attention over the points of a grid, each followed by a pointwise MLP.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, section 3.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from operators.nn.attention import (
    GALERKIN,
    AttentionKind,
    HeadNorm,
    InstanceHeadNorm,
    PublishedDropout,
    keep,
)
from operators.nn.pointwise import Dropout
from operators.nn.tokens import check_heads

# Maps with written-out gradients for the CPU, and products in at least float32.


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


# Galerkin attention, computed as an affine map of the values and coordinates of each point.


Rows = Float[Tensor, "batch n d"]
Head = Float[Tensor, "h _"]
Norms = tuple[Head, Head, Head, Head]


def galerkin_attention(
    u: Rows,
    x: Float[Tensor, "n p"],
    weight: Float[Tensor, "3 d d"],
    bias: Float[Tensor, "3 d"],
    out_weight: Float[Tensor, "d _"],
    out_bias: Float[Tensor, " d"],
    heads: int,
    norms: Norms | None,
    eps: float,
    drop: Callable[[Tensor], Tensor] | None,
    added: bool,
) -> Rows:
    """Σ_h [x Q_h] [x K_h]ᵀ[x V_h] W_h/n + b, plus u if `added`, computed in the fastest way.

    Args:
        u: Values at the points.
        x: Coordinates of the points.
        weight, bias: Weights and biases of the linear maps from u to Q, K and V.
        out_weight: The transposed matrices W_h, side by side; each has p + d/heads columns.
        out_bias: The bias b.
        norms: Scale and shift of the layer norm of K, then those of V; None without layer norms.
        eps: Added to the variance in the layer norms.
        drop: Dropout of the matrices [x K_h]ᵀ[x V_h]/n; None without dropout.
    """
    arguments = u, x, weight, bias, out_weight, out_bias, heads, norms, eps
    if on_processor(u):
        return by_products(*arguments, drop, added)
    if as_written(u) and drop is None and not x.requires_grad:
        return written_out(*arguments, added)
    values = by_products(*arguments, drop)
    return u + values if added else values


def by_products(
    u: Rows,
    x: Float[Tensor, "n p"],
    weight: Float[Tensor, "3 d d"],
    bias: Float[Tensor, "3 d"],
    out_weight: Float[Tensor, "d _"],
    out_bias: Float[Tensor, " d"],
    heads: int,
    norms: Norms | None,
    eps: float,
    drop: Callable[[Tensor], Tensor] | None = None,
    added: bool = False,
) -> Rows:
    """Galerkin attention as a sequence of PyTorch operations, which autograd differentiates."""
    (n, p), batch, features = x.shape, len(u), u.shape[2] // heads
    z = x if norms is None else torch.cat([x.new_ones(n, 1), x], 1)
    # one product for all heads, whose diagonal blocks are used: no data is rearranged
    z_kv, blocks = moments(
        u, weight[1:].flatten(0, 1), bias[1:].flatten(), z, features, None if norms is None else eps
    )
    blocks = blocks.unflatten(2, (heads, -1)).unflatten(1, (heads, -1))
    kv = blocks.diagonal(dim1=1, dim2=3).permute(3, 0, 1, 2)  # (h, batch, d/h, d/h)
    zk, zv = z_kv.unflatten(2, (2, heads, -1)).permute(2, 3, 0, 1, 4)
    zz = (z.T @ z).expand(heads, batch, -1, -1)  # zk, zv: (h, batch, [1 +] p, d/h)
    w = out_weight.unflatten(1, (heads, -1)).permute(1, 2, 0) / n  # (h, p + d/h, d)
    if drop is not None:
        matrix = torch.cat([torch.cat([zz, zv], -1), torch.cat([zk.mT, kv], -1)], -2)
        if norms is not None:
            matrix = _of_rows(_of_rows(matrix, *norms[:2]).mT, *norms[2:]).mT
        product = _times(drop(matrix.transpose(0, 1)).transpose(0, 1), w)
        of_x, of_k = product.split([p, features], 2)
    else:  # the norm of V is applied to w, that of K to the product
        if norms is not None:
            w = _before(w, *norms[2:])
        q = z.shape[1]
        of_x, of_k = _times(zz, w[:, :q]) + _times(zv, w[:, q:]), _times(zk.mT, w[:, :q])
        of_k = of_k + _times(kv, w[:, q:])
        if norms is not None:
            of_k = _after(of_k, of_x[:, :, :1], *norms[:2])
            of_x = of_x[:, :, 1:]
    a, b = of_x.sum(0), of_k.transpose(0, 1).flatten(1, 2)  # (batch, p|d, d)
    offset = (bias[0] @ b + out_bias)[:, None]  # (batch, 1, d)
    identity = float(added) * torch.eye(u.shape[2], device=u.device, dtype=u.dtype)
    through = torch.baddbmm(identity, weight[0].T.expand(batch, -1, -1), b)
    base = torch.baddbmm(offset, x.expand(batch, n, p), a)
    # the product in place casts nothing to a lower precision
    return base.baddbmm_(u, through) if on_processor(u) else torch.baddbmm(base, u, through)


def _times(
    m: Float[Tensor, "h batch r k"], w: Float[Tensor, "h k d"]
) -> Float[Tensor, "h batch r d"]:
    """Product m w for each head. All samples of a head are multiplied at once."""
    return torch.bmm(m.flatten(1, 2), w).unflatten(1, m.shape[1:3])


# In the next three functions rows belong to 1, to the p functions x, and to K̂; K = K̂ w + b.


def _of_rows(m: Float[Tensor, "h batch _ q"], w: Head, b: Head) -> Float[Tensor, "h batch _ q"]:
    """[x K]ᵀV, computed from [1 x K̂]ᵀV."""
    ones, x, k = m.split([1, m.shape[2] - 1 - w.shape[1], w.shape[1]], dim=2)
    return torch.cat([x, _after(k, ones, w, b)], dim=2)


def _after(
    k: Float[Tensor, "h batch d q"], ones: Float[Tensor, "h batch 1 q"], w: Head, b: Head
) -> Float[Tensor, "h batch d q"]:
    """KᵀV, computed from K̂ᵀV and 1ᵀV."""
    return torch.addcmul(k * w[:, None, :, None], b[:, None, :, None], ones)


def _before(m: Float[Tensor, "h _ q"], w: Head, b: Head) -> Float[Tensor, "h _ q"]:
    """Matrix m' with [1 x K̂] m' = [x K] m."""
    x, k = m.split([m.shape[1] - w.shape[1], w.shape[1]], dim=1)
    return torch.cat([b[:, None] @ k, x, w[..., None] * k], dim=1)


def written_out(
    u: Rows,
    x: Float[Tensor, "n p"],
    weight: Float[Tensor, "3 d d"],
    bias: Float[Tensor, "3 d"],
    out_weight: Float[Tensor, "d _"],
    out_bias: Float[Tensor, " d"],
    heads: int,
    norms: Norms | None,
    eps: float,
    added: bool,
) -> Rows:
    """Galerkin attention without dropout, with a hand-written gradient; x gets no gradient."""
    parameters = (weight, bias, out_weight, out_bias, *(norms or ()))
    return _GalerkinMap.apply(u.contiguous(), x, heads, eps, added, *parameters)  # pyright: ignore[reportReturnType]


class _GalerkinMap(torch.autograd.Function):
    """Galerkin attention with [x K] = Z S and Z = [1 x K̂], where K̂ is K before scale and shift.

    The first row of S contains the shift. Its other blocks are the identity for x and the diagonal
    matrix of the scale for K̂. Without layer norms, Z = [x K] and there is no S.
    """

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, x: Tensor, heads: int, eps: float, added: bool, weight: Tensor,
        bias: Tensor, out_weight: Tensor, out_bias: Tensor, *norms: Tensor,
    ) -> Tensor:  # fmt: skip
        (batch, n, d), p, features = u.shape, x.shape[1], u.shape[2] // heads
        raw = torch.nn.functional.linear(u, weight[1:].flatten(0, 1), bias[1:].flatten())
        kv, statistics = raw, ()
        if norms:
            kv, *statistics = torch.native_layer_norm(
                raw.view(batch, n, -1, features), [features], None, None, eps
            )
            kv = kv.view(batch, n, -1)
        ones_x = x.new_ones(batch, n, p + 1)
        ones_x[..., 1:] = x
        first = 0 if norms else 1  # first column of [1 x] in Z
        z, q = ones_x[0, :, first:], p + 1 - first
        size, parts = q + features, parts_of(n, u)
        rows = ones_x.view(batch * parts, -1, p + 1)
        kv_parts = kv.view(batch * parts, n // parts, -1)
        k, v = kv_parts.chunk(2, -1)
        # sums over the points, written into their blocks of ZᵀZ
        sums = u.new_empty(heads, size, batch, size)
        sums[:, :q, :, :q] = (z.T @ z)[:, None]
        by_z = torch.bmm(rows[..., first:].mT, kv_parts)
        by_z = by_z.view(batch, parts, q, 2, heads, features)
        torch.sum(by_z[..., 0, :, :].permute(3, 4, 0, 2, 1), -1, out=sums[:, q:, :, :q])
        torch.sum(by_z[..., 1, :, :].permute(3, 2, 0, 4, 1), -1, out=sums[:, :q, :, q:])
        blocks = torch.bmm(k.mT, v).view(batch, parts, heads, features, heads, features)
        blocks = blocks.diagonal(dim1=2, dim2=4).permute(4, 2, 0, 3, 1)
        torch.sum(blocks, -1, out=sums[:, q:, :, q:])
        w = out_weight.view(d, heads, -1).permute(1, 2, 0)  # (h, p + d/h, d)
        if not norms:
            scales, left, right = None, sums, w / n
        else:
            scales = u.new_zeros(2, heads, size, p + features)
            scales[:, :, 1:q, :p].diagonal(dim1=2, dim2=3).fill_(1)
            for s, scale, shift in zip(scales, norms[::2], norms[1::2], strict=True):
                s[:, 0, p:] = shift
                s[:, q:, p:].diagonal(dim1=1, dim2=2).copy_(scale)
            right = u.new_empty(heads, size, d).baddbmm_(scales[1], w, beta=0, alpha=1 / n)
            left = torch.bmm(scales[0].mT, sums.flatten(2))
        c = torch.bmm(left.view(heads, -1, size), right).view(heads, -1, batch, d)
        b = c[:, p:].reshape(d, batch * d)
        of_ones_x = u.new_empty(batch, p + 1, d)
        torch.sum(c[:, :p], 0, out=of_ones_x[:, 1:].transpose(0, 1))
        torch.add(torch.mm(bias[:1], b).view(batch, d), out_bias, out=of_ones_x[:, 0])
        through = torch.mm(weight[0].T, b).view(d, batch, d)
        # u is added in full precision, whatever the precision of products
        out = torch.baddbmm(u, ones_x, of_ones_x) if added else torch.bmm(ones_x, of_ones_x)
        out.baddbmm_(u, through.transpose(0, 1))
        ctx.sizes, ctx.added = (heads, parts, p), added
        ctx.save_for_backward(
            u, z, rows, raw, kv, sums, scales, left, right, b, through, weight, bias, out_weight,
            *statistics,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, z, rows, raw, kv, sums, scales, left, right, b, through, *saved = ctx.saved_tensors
        weight, bias, out_weight, *statistics = saved
        (heads, parts, p), (batch, n, d) = ctx.sizes, u.shape
        q, size, features = z.shape[1], sums.shape[1], d // heads
        g = grads[0].contiguous()
        g_weight, g_bias = torch.empty_like(weight), torch.empty_like(bias)
        g_parts = g.view(batch * parts, -1, d)
        g_ones_x = torch.bmm(rows.mT, g_parts).view(batch, parts, p + 1, d).sum(1)
        g_through = u.new_empty(d, batch, d)
        sums_ug = torch.bmm(u.view(batch * parts, -1, d).mT, g_parts).view(batch, parts, d, d)
        torch.sum(sums_ug, 1, out=g_through.transpose(0, 1))
        back = through.permute(1, 2, 0)
        g_u = torch.baddbmm(g, g, back) if ctx.added else torch.bmm(g, back)
        # gradients of the d x d matrices
        offset = g_ones_x[:, 0].reshape(-1)
        torch.mm(b, g_through.view(d, -1).T, out=g_weight[0])
        torch.mv(b, offset, out=g_bias[0])
        g_c = u.new_empty(heads, p + features, batch, d)
        g_c[:, :p] = g_ones_x[:, 1:].transpose(0, 1)
        g_b = g_c[0, p:] if heads == 1 else u.new_empty(d, batch, d)
        torch.mm(weight[0], g_through.view(d, -1), out=g_b.view(d, -1))
        g_b.view(d, -1).addmm_(bias[0, :, None], offset[None])
        if heads > 1:
            g_c[:, p:] = g_b.view(heads, features, batch, d)
        g_c = g_c.view(heads, -1, d)
        g_left = torch.bmm(g_c, right.mT)
        g_right = torch.bmm(left.view(heads, -1, size).mT, g_c)
        g_out_weight = torch.empty_like(out_weight)
        w, g_w = (v.view(d, heads, -1).permute(1, 2, 0) for v in (out_weight, g_out_weight))
        g_norms: tuple[Tensor, ...] = ()
        if scales is None:
            g_sums = g_left
            torch.mul(g_right, 1 / n, out=g_w)
        else:
            g_left = g_left.view(heads, p + features, -1)
            g_scales = torch.empty_like(scales)
            torch.bmm(sums.flatten(2), g_left.mT, out=g_scales[0])
            g_scales[1].baddbmm_(g_right, w.mT, beta=0, alpha=1 / n)
            g_w.baddbmm_(scales[1].mT, g_right, beta=0, alpha=1 / n)
            g_sums = torch.bmm(scales[0], g_left)
            g_norms = tuple(
                v for g_s in g_scales
                for v in (g_s[:, q:, p:].diagonal(dim1=1, dim2=2), g_s[:, 0, p:])
            )  # fmt: skip
        g_sums = g_sums.view(heads, size, batch, size)
        g_kv = _of_sums(g_sums, z, kv)
        if statistics:
            g_kv, _, _ = torch.ops.aten.native_layer_norm_backward(
                g_kv.view(batch, n, -1, features), raw.view(batch, n, -1, features), [features],
                *statistics, None, None, [True, False, False],
            )  # fmt: skip
        flat = g_kv.view(batch * n, -1)
        g_u.view(-1, d).addmm_(flat, weight[1:].flatten(0, 1))
        torch.mm(flat.T, u.view(-1, d), out=g_weight[1:].view(-1, d))
        torch.sum(flat, 0, out=g_bias[1:].view(-1))
        g_out_bias = g_ones_x[:, 0].sum(0)
        return g_u, None, None, None, None, g_weight, g_bias, g_out_weight, g_out_bias, *g_norms


def _of_sums(g_sums: Tensor, z: Tensor, kv: Tensor) -> Tensor:
    """Gradient with respect to [K V], given the gradient of the sums [z K]ᵀ[z V] of each head."""
    q, (heads, size, batch, _) = z.shape[1], g_sums.shape
    features = size - q
    g_z = kv.new_empty(batch, q, 2, heads, features)
    g_z[:, :, 0] = g_sums[:, q:, :, :q].permute(2, 3, 0, 1)
    g_z[:, :, 1] = g_sums[:, :q, :, q:].permute(2, 1, 0, 3)
    g_kv = torch.bmm(z.expand(batch, -1, -1), g_z.flatten(2))
    blocks = g_sums[:, q:, :, q:].permute(2, 0, 1, 3)  # (batch, h, d/h, d/h)
    if heads > 1:
        diagonal = kv.new_zeros(batch, heads, features, heads, features)
        diagonal.diagonal(dim1=1, dim2=3).copy_(blocks.permute(0, 2, 3, 1))
        blocks = diagonal.view(batch, heads * features, heads * features)
    else:
        blocks = blocks[:, 0]
    k, v = kv.chunk(2, -1)
    g_k, g_v = g_kv.chunk(2, -1)
    g_k.baddbmm_(v, blocks.mT)
    g_v.baddbmm_(k, blocks)
    return g_kv


# Residual layers whose map begins with a layer norm N, with gradients written out for the CPU.


_aten = torch.ops.aten


def _normalized(
    u: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm over the last axis, and the means and inverse deviations."""
    return torch.native_layer_norm(u, [u.shape[-1]], weight, bias, eps)


def _norm_gradients(
    g: Tensor, u: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a layer norm with respect to u, its weight and its bias."""
    return _aten.native_layer_norm_backward(
        g, u, [u.shape[-1]], mean, rstd, weight, bias, [True, True, True]
    )


def normed_mlp(u: Values, norm: nn.LayerNorm, mlp: nn.Sequential, added: bool) -> Tensor:
    """W₂ gelu(W₁ N(u) + b₁) + b₂, plus u if `added`; `mlp` has two linear maps and a GELU."""
    first, _, last = mlp
    if not on_processor(u):
        return u + mlp(norm(u)) if added else mlp(norm(u))
    out = _NormedMLP.apply(
        u.reshape(-1, u.shape[-1]), norm.weight, norm.bias, first.weight, first.bias,
        last.weight, last.bias, norm.eps, added,
    )  # fmt: skip
    return out.view(*u.shape[:-1], -1)  # pyright: ignore[reportOptionalMemberAccess]


class _NormedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, bias: Tensor, w1: Tensor, b1: Tensor, w2: Tensor,
        b2: Tensor, eps: float, added: bool,
    ) -> Tensor:  # fmt: skip
        h, *moments = _normalized(u, weight, bias, eps)
        z = torch.addmm(b1, h, w1.T)
        v = nn.functional.gelu(z)
        ctx.added = added
        ctx.save_for_backward(u, weight, bias, *moments, h, z, v, w1, w2)
        return (u + b2).addmm_(v, w2.T) if added else torch.addmm(b2, v, w2.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, bias, mean, rstd, h, z, v, w1, w2 = ctx.saved_tensors
        g = grads[0].contiguous()
        g_z = g @ w2
        _aten.gelu_backward.grad_input(g_z, z, grad_input=g_z)
        g_u, g_weight, g_bias = _norm_gradients(g_z @ w1, u, mean, rstd, weight, bias)
        if ctx.added:
            g_u.add_(g)
        return (
            g_u, g_weight, g_bias, g_z.T @ h, g_z.sum(0), g.T @ v, g.sum(0), None, None,
        )  # fmt: skip


def normed_projections(
    u: Values, norm: nn.LayerNorm, weight: Float[Tensor, "3 d d"], bias: Float[Tensor, "3 d"]
) -> tuple[Values, Values, Values]:
    """The three maps W N(u) + b, such as queries, keys and values."""
    if not on_processor(u):
        h = norm(u)
        q, k, v = (nn.functional.linear(h, w, b) for w, b in zip(weight, bias, strict=True))
        return q, k, v
    return _NormedProjections.apply(u.contiguous(), norm.weight, norm.bias, weight, bias, norm.eps)  # pyright: ignore[reportReturnType]


class _NormedProjections(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, norm_weight: Tensor, norm_bias: Tensor, weight: Tensor, bias: Tensor,
        eps: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        h, *moments = _normalized(u, norm_weight, norm_bias, eps)
        ctx.save_for_backward(u, norm_weight, norm_bias, *moments, h, weight)
        flat = h.view(-1, h.shape[-1])
        return tuple(
            torch.addmm(b, flat, w.T).view(*u.shape[:-1], -1)
            for w, b in zip(weight, bias, strict=True)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, norm_weight, norm_bias, mean, rstd, h, weight = ctx.saved_tensors
        flat = [g.reshape(-1, weight.shape[1]) for g in grads]
        rows = h.view(-1, h.shape[-1])
        g_weight, g_bias = torch.empty_like(weight), weight.new_empty(weight.shape[:2])
        g_h = flat[0] @ weight[0]
        for number, g in enumerate(flat):
            if number:
                g_h.addmm_(g, weight[number])
            torch.mm(g.T, rows, out=g_weight[number])
            torch.sum(g, 0, out=g_bias[number])
        g_u, g_norm_weight, g_norm_bias = _norm_gradients(
            g_h.view(u.shape), u, mean, rstd, norm_weight, norm_bias
        )
        return g_u, g_norm_weight, g_norm_bias, g_weight, g_bias, None


def linear_added(u: Values, v: Float[Tensor, "batch n _"], linear: nn.Linear) -> Values:
    """The sum of u and of a linear map of v."""
    if not on_processor(u):
        return u + linear(v)
    out = _LinearAdded.apply(
        u.reshape(-1, u.shape[-1]), v.reshape(-1, v.shape[-1]), linear.weight, linear.bias
    )
    return out.view(u.shape)  # pyright: ignore[reportOptionalMemberAccess]


class _LinearAdded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(v, weight)
        return (u + bias).addmm_(v, weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        v, weight = ctx.saved_tensors
        g = grads[0].contiguous()
        return g, g @ weight, g.T @ v, g.sum(0)


def efficient_attention_added(
    u: Values,
    norm: nn.LayerNorm,
    query: Float[Tensor, "d d"],
    key: Float[Tensor, "d d"],
    value: Float[Tensor, "d d"],
    out: nn.Linear,
    heads: int,
) -> Values:
    """u + Σ_h softmax(Q_h) (softmax(K_h)ᵀ V_h) W_h / √d + b with [Q K V] = N(u) [W_q W_k W_v].

    The softmax of Q is over the d features of a head, that of K over the points. The function is
    that of `operators.nn.attention.efficient`. V is not computed, because
    softmax(K)ᵀ V = (softmax(K)ᵀ N(u)) W_v, nor is the result of a head: the matrices of all heads
    times W_h form one matrix for each sample.
    """
    return _EfficientAttention.apply(
        u.contiguous(), norm.weight, norm.bias, query, key, value, out.weight, out.bias, norm.eps,
        heads,
    )  # fmt: skip  # pyright: ignore[reportReturnType]


class _EfficientAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, norm_weight: Tensor, norm_bias: Tensor, query: Tensor, key: Tensor,
        value: Tensor, out: Tensor, bias: Tensor, eps: float, heads: int,
    ) -> Tensor:  # fmt: skip
        (batch, _, width), features = u.shape, query.shape[0] // heads
        h, *moments = _normalized(u, norm_weight, norm_bias, eps)
        q, k = (torch.mm(h.view(-1, width), w.T) for w in (query, key))
        q = q.view(-1, features)
        torch.softmax(q, -1, out=q)
        q, k = q.view(*u.shape[:2], -1), torch.softmax(k.view(*u.shape[:2], -1), 1)
        sums = torch.bmm(k.mT, h)  # (batch, width, width), rows are the features of K
        # (h, batch d, width) times (h, width, d): softmax(K)ᵀ V of each head
        rows = _of_heads(sums, heads)
        v = value.view(heads, features, width)
        w = out.view(width, heads, features).permute(1, 2, 0) * features**-0.5  # (h, d, width)
        kv = torch.bmm(rows, v.mT)
        through = torch.bmm(kv, w).view(heads, batch, features, width)
        through = through.transpose(0, 1).reshape(batch, -1, width)
        ctx.heads = heads
        ctx.save_for_backward(
            u, norm_weight, norm_bias, *moments, h, q, k, rows, kv, w, through, query, key, value
        )
        return (u + bias).baddbmm_(q, through)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, norm_weight, norm_bias, mean, rstd, h, q, k, rows, kv, w, *saved = ctx.saved_tensors
        through, query, key, value = saved
        heads, (batch, n, width) = ctx.heads, u.shape
        features = query.shape[0] // heads
        g = grads[0].contiguous()
        g_through = _of_heads(torch.bmm(q.mT, g), heads)  # (h, batch d, width)
        g_q = torch.bmm(g, through.mT)
        _softmax_backward(g_q.view(-1, features), q.view(-1, features), -1)
        g_kv = torch.bmm(g_through, w.mT)
        g_w = torch.bmm(kv.mT, g_through)  # (h, d, width)
        g_out = (g_w * features**-0.5).permute(2, 0, 1).reshape(width, -1)
        g_value = torch.bmm(g_kv.mT, rows).view(value.shape)
        g_sums = torch.bmm(g_kv, value.view(heads, features, width))
        g_sums = g_sums.view(heads, batch, features, width).transpose(0, 1)
        g_sums = g_sums.reshape(batch, -1, width)
        g_k = torch.bmm(h, g_sums.mT)
        _softmax_backward(g_k, k, 1)
        g_h = torch.bmm(k, g_sums).view(-1, width)
        flat, g_q, g_k = h.view(-1, width), g_q.view(batch * n, -1), g_k.view(batch * n, -1)
        g_h.addmm_(g_q, query).addmm_(g_k, key)
        g_u, g_norm_weight, g_norm_bias = _norm_gradients(
            g_h.view(u.shape), u, mean, rstd, norm_weight, norm_bias
        )
        return (
            g_u.add_(g), g_norm_weight, g_norm_bias, g_q.T @ flat, g_k.T @ flat, g_value, g_out,
            g.view(-1, width).sum(0), None, None,
        )  # fmt: skip


def _of_heads(sums: Tensor, heads: int) -> Tensor:
    """Rows of a matrix of each sample, sorted by head: (batch, h d, c) to (h, batch d, c)."""
    return sums.unflatten(1, (heads, -1)).transpose(0, 1).flatten(1, 2)


def _softmax_backward(g: Tensor, y: Tensor, dim: int) -> None:
    """Replace the gradient of y = softmax(x) by that of x."""
    _aten._softmax_backward_data.out(g, y, dim, y.dtype, grad_input=g)


Points = Float[Tensor, "n p"] | Float[Tensor, "batch n p"]
# False at padding; or quadrature weights, 0 at padding
Real = Bool[Tensor, "batch n"] | Float[Tensor, "_ n"] | None
Heads = Float[Tensor, "batch h n _"]  # of [p +] d/h features


class Projections(nn.Module):
    """The linear maps to queries, keys and values, initialised near the identity.

    W = Xavier-uniform(gain η) + δ I for each of the three maps, biases 0 (Cao 2021, section 4). The
    arguments are η (`gain`) and δ (`diagonal`).
    """

    def __init__(self, width: int, gain: float, diagonal: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, width, width))
        self.bias = nn.Parameter(torch.zeros(3, width))
        for w in self.weight.data:
            nn.init.xavier_uniform_(w, gain=gain)
            w.add_(torch.eye(width), alpha=diagonal)


class Attention(nn.Module):
    """Multi-head attention with the coordinates x appended to Q, K and V in every head.

    For kinds with coordinates "after", x is instead appended once to the concatenated heads.

    Args:
        positions: Number of coordinates x.
        normalization: Class of the norms of two of Q, K and V in each head; None for no norms.
        drop: Dropout of the attention matrix, `nn.Dropout` or `PublishedDropout`.
        eps: Added to the variance in the norms.
        gain, diagonal: See `Projections`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        positions: int,
        kind: AttentionKind,
        normalization: type[HeadNorm] | None,
        drop: nn.Module,
        eps: float,
        gain: float,
        diagonal: float,
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.drop = heads, kind, drop
        self.as_one_map = kind is GALERKIN and normalization is not InstanceHeadNorm
        self.inside = kind.coordinates == "inside"
        self.project = Projections(width, gain, diagonal)
        features = width // heads
        if normalization is not None:
            self.norm_key = normalization(heads, features, eps)
            self.norm_other = normalization(heads, features, eps)  # of query or value
        else:
            self.norm_key = self.norm_other = nn.Identity()
        self.map = kind.make(features + positions * self.inside)
        self.out = nn.Linear(width + positions * (heads if self.inside else 1), width)

    def _head(self, u: Values, which: int) -> Tensor:
        """Queries (`which` 0), keys (1) or values (2) of all heads, shape (batch, n, h, d/h)."""
        y = nn.functional.linear(u, self.project.weight[which], self.project.bias[which])
        return y.unflatten(-1, (self.heads, -1))

    def forward(self, u: Values, x: Points, mask: Real = None) -> Values:
        """[z_1 ... z_h] W + b, where z_i is the result of head i (Cao 2021, eq. 6)."""
        if self.as_one_map and x.ndim == 2 and mask is None:
            return self._as_one_map(u, x, added=False)
        z = self.mapped(*self.of_heads(u, x, mask), mask)
        z = z.transpose(1, 2).flatten(2)
        if not self.inside:
            z = torch.cat([x.expand(len(z), -1, -1), z], dim=-1)
        return self.out(z)

    def of_heads(self, u: Values, x: Points, mask: Real = None) -> tuple[Heads, Heads, Heads]:
        """Q, K and V of all heads. Two are normalised, and coordinates "inside" are prepended.

        Galerkin attention normalises K and V (Cao 2021, section 3.2).
        """
        q, k, v = (self._head(u, which) for which in range(3))
        masks = (mask,) if isinstance(self.norm_key, InstanceHeadNorm) else ()
        k = self.norm_key(k, *masks)
        if self.kind.normalizes_query:
            q = self.norm_other(q, *masks)
        else:
            v = self.norm_other(v, *masks)
        if self.inside:
            z = x[..., None, :].expand(*k.shape[:3], -1)  # (batch, n, h, p)
            q, k, v = (torch.cat([z, y], dim=-1) for y in (q, k, v))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def mapped(self, q: Heads, k: Heads, v: Heads, mask: Real = None) -> Heads:
        """Apply the attention map to Q, K and V; for GALERKIN this is Q (KᵀV)/n."""
        drop = keep if idle(self.drop) else self.drop
        return self.map(q, k, v, drop, None if mask is None else mask[:, None, :, None])

    def added(self, u: Values, x: Points, mask: Real = None) -> Values:
        """A residual step: u plus its attention at the points x."""
        if self.as_one_map and x.ndim == 2 and mask is None:
            return self._as_one_map(u, x, added=True)
        return u + self(u, x, mask)

    def added_normed(self, u: Values, norm: nn.LayerNorm, mask: Real = None) -> Values:
        """A residual step: u plus the attention of its layer norm, without coordinates."""
        if self.as_one_map and mask is None:
            return u + self(norm(u), u.new_empty(u.shape[1], 0))
        heads = normed_projections(u, norm, self.project.weight, self.project.bias)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in heads)
        return linear_added(u, self.mapped(q, k, v, mask).transpose(1, 2).flatten(2), self.out)

    def _as_one_map(self, u: Values, x: Float[Tensor, "n p"], added: bool) -> Values:
        """Galerkin attention, plus u if `added`, computed as one affine map of u."""
        k, v = self.norm_key, self.norm_other
        norms, eps = None, 0.0
        if isinstance(k, HeadNorm) and isinstance(v, HeadNorm):
            norms, eps = (k.weight, k.bias, v.weight, v.bias), k.eps
        return galerkin_attention(
            u, x, self.project.weight, self.project.bias, self.out.weight, self.out.bias,
            self.heads, norms, eps, None if idle(self.drop) else self.drop, added,
        )  # fmt: skip


def idle(drop: nn.Module) -> bool:
    """Whether a dropout module is the identity in its current mode."""
    return isinstance(drop, nn.Dropout) and not (drop.training and drop.p)


class EncoderLayer(nn.Module):
    """u <- u + attention(u), u <- u + MLP(u).

    If `attention` is None, there is only the MLP. If `post_norm` is true, a LayerNorm follows each
    of the two sums; `attention_layers` sets it for normalization "layer". Otherwise the only norms
    are inside the attention.
    """

    def __init__(
        self,
        attention: Attention | None,
        width: int,
        feedforward: int,
        post_norm: bool,
        eps: float,
        dropout: float,
        feedforward_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = nn.Sequential(
            nn.Linear(width, feedforward),
            nn.ReLU(),
            Dropout(feedforward_dropout),
            nn.Linear(feedforward, width),
        )
        self.norm1 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.drop = Dropout(dropout)

    def forward(self, u: Values, x: Points, mask: Real = None) -> Values:
        if self.attention is not None:
            if self.drop.active:
                u = u + self.drop(self.attention(u, x, mask))
            else:
                u = self.attention.added(u, x, mask)
            u = self.norm1(u)
        if self.drop.active or self.mlp[2].active:
            return self.norm2(u + self.drop(self.mlp(u)))
        return self.norm2(residual_mlp(u, self.mlp))


def attention_layers(
    depth: int,
    width: int,
    heads: int,
    positions: int,
    attention: AttentionKind | None,
    normalization: Literal["head", "layer", "instance"],
    feedforward: int,
    dropout: float,
    feedforward_dropout: float,
    attention_dropout: float | Literal["published"],
    eps: float,
    gain: float,
    diagonal: float,
) -> nn.ModuleList:
    """The encoder layers of `GalerkinTransformer`, whose docstring explains the arguments."""
    check_heads(width, heads)
    head_norm = {"head": HeadNorm, "instance": InstanceHeadNorm, "layer": None}[normalization]

    def drop() -> nn.Module:
        if attention_dropout == "published":
            return PublishedDropout()
        return nn.Dropout(attention_dropout)

    def layer() -> EncoderLayer:
        heads_map = attention and Attention(
            width, heads, positions, attention, head_norm, drop(), eps, gain, diagonal
        )
        return EncoderLayer(
            heads_map, width, feedforward, head_norm is None, eps, dropout, feedforward_dropout
        )

    return nn.ModuleList(layer() for _ in range(depth))
