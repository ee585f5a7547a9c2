"""Residual layers whose map begins with a layer norm N, with gradients written out for the CPU.

The maps are those of Transformers: projections W N(u) + b, MLPs of N(u), and attention without a
matrix of n x n numbers. The written-out forms read and write the features of all points less often:
a product adds to its result, and gradients are overwritten in place. On other devices, in reduced
precision and under torch.compile, PyTorch computes the same functions and all gradients.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from operators.nn.fused import on_processor

Values = Float[Tensor, "batch n width"]
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
