"""The lite Galerkin Transformer of flows in time, from ten frames to the next, and instance norms.

scaomath/galerkin-transformer, f9e7d6a, example 4: libs/ns_lite.py, layers.py and model.py, in our
own words. Post-norm layers, coordinates in the input and in every head, two spectral layers on the
square with the whole spectrum written out. And its attention with instance norms over the points.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, silu

from operators.models.galerkin import GalerkinTransformer
from operators.nn.encoder import Attention, EncoderLayer
from tests.oracles import plain


def attention(layer: Attention, u: Tensor, x: Tensor, instance: bool = False) -> Tensor:
    """Q (KᵀV) / n in each head, x (n, p) beside Q, K and V; u is (batch, n, d)."""
    n, out = u.shape[1], []
    q, k, v = (
        linear(u, layer.project.weight[i], layer.project.bias[i]).chunk(layer.heads, dim=-1)
        for i in range(3)
    )
    beside = x.expand(len(u), -1, -1)
    for h in range(layer.heads):
        key, value = k[h], v[h]
        if instance:
            key, value = (
                torch.nn.functional.instance_norm(
                    w.transpose(1, 2), weight=norm.weight[h], bias=norm.bias[h], eps=norm.eps
                ).transpose(1, 2)
                for w, norm in ((key, layer.norm_key), (value, layer.norm_other))
            )
        rows = [torch.cat([beside, w], dim=-1) for w in (q[h], key, value)]
        out.append(rows[0] @ (rows[1].transpose(1, 2) @ rows[2] / n))
    return linear(torch.cat(out, dim=-1), layer.out.weight, layer.out.bias)


def encoder(layer: EncoderLayer, u: Tensor, x: Tensor) -> Tensor:
    assert layer.attention is not None
    for part, norm in (
        (lambda w: attention(layer.attention, w, x), layer.norm1),
        (lambda w: layer.mlp[3](torch.relu(layer.mlp[0](w))), layer.norm2),
    ):
        u = u + part(u)
        u = layer_norm(u, u.shape[-1:], norm.weight, norm.bias, norm.eps)
    return u


def spectral(layer: torch.nn.Module, u: Tensor) -> Tensor:
    v = plain.spectral(u.movedim(-1, 1), layer.convolution.weight, layer.convolution.mode_counts[0])
    return silu(v.movedim(1, -1) + layer.pointwise(u))


def plain_galerkin_lite(model: GalerkinTransformer, a: Tensor, x: Tensor) -> Tensor:
    """The next frame on n x n points x from the frames a (batch, n, n, 10)."""
    points = x.flatten(0, 1)
    u = torch.cat([a.flatten(1, 2), points.expand(len(a), -1, -1)], dim=-1)
    u = model.embed(u)
    for layer in model.encoder:
        u = encoder(layer, u, points)
    u = u.unflatten(1, a.shape[1:3])
    first, second, hidden, _, last = model.decoder
    return last(silu(hidden(spectral(second, spectral(first, u)))))
