"""Galerkin attention, computed as an affine map of the values and coordinates of each point.

Let u be the values at n points with coordinates x. Let Q = u W_q + b_q, and for each head h let
M_h = [x K_h]ᵀ[x V_h]/n. The output Σ_h [x Q_h] M_h W_h + b is equal to x A + (u W_q + b_q) B + b. A
is the sum over h of the rows of M_h W_h that multiply x, and B stacks the rows that multiply Q_h.
Neither Q nor the concatenations [x Q_h] are computed. The layer norms have a scale s and a shift t,
K = K̂ s + t, which commute with the sums over the points. With dropout they are applied to M_h.
Without dropout, those of V are applied to W_h and those of K to the product M_h W_h.
`attention.galerkin` and `Attention.forward` contain the plain formulas.

On a GPU, kernel launches for the d x d matrices take longer than the arithmetic of a small layer.
There the matrices of all heads are stacked, and the gradient is written out.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from operators.nn.fused import as_written, moments, on_processor, parts_of

Values = Float[Tensor, "batch n d"]
Head = Float[Tensor, "h _"]
Norms = tuple[Head, Head, Head, Head]


def galerkin_attention(
    u: Values,
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
) -> Values:
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
    u: Values,
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
) -> Values:
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
    u: Values,
    x: Float[Tensor, "n p"],
    weight: Float[Tensor, "3 d d"],
    bias: Float[Tensor, "3 d"],
    out_weight: Float[Tensor, "d _"],
    out_bias: Float[Tensor, " d"],
    heads: int,
    norms: Norms | None,
    eps: float,
    added: bool,
) -> Values:
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
    """Gradient with respect to [K V], given the gradient of the sums [z K]ᵀ[z V] of each head.

    Args:
        g_sums: Gradient of the sums, shape (h, rows, batch, columns). The first rows and columns
            belong to z, the other rows to K and the other columns to V.
    """
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
