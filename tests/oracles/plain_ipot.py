"""IPOT as its released code has it, step by step; 7tl7qns7ch/IPOT, 18c1778.

Attention is a matrix, every sample has latent tokens and queries of its own. The MLP of the
encoder, which nothing calls there, is left out; so is that of an output of one channel, whose norm
makes it a constant.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from operators.models.ipot import IPOT
from operators.nn.tokens import CrossAttention
from tests.oracles.plain import affine, attended, gated


def attention(part: CrossAttention, q: Tensor, z: Tensor) -> Tensor:
    queries, keys, values = affine(part.query, q), affine(part.key, z), affine(part.value, z)
    return affine(part.out, attended(queries, keys, values, part.heads))


def features(x: Tensor, bands: int, resolution: int) -> Tensor:
    """Coordinates, then all sines, then all cosines."""
    f = torch.linspace(1.0, resolution / 2, bands, dtype=x.dtype)
    angles = math.pi * (x[..., None] * f).reshape(*x.shape[:-1], -1)
    return torch.cat([x, torch.sin(angles), torch.cos(angles)], dim=-1)


def plain_ipot(
    model: IPOT, a: Tensor, x: Tensor, y: Tensor | None = None, *, bands: int, resolution: int
) -> Tensor:
    """u at y of values a at positions x, (batch, n, dim)."""
    p, q = (features(v, bands, resolution) for v in (x, x if y is None else y))
    z = model.latents.repeat(len(a), 1, 1)
    source = model.norm_input(torch.cat([a, p], dim=-1))
    z = attention(model.encode, model.norm_latents(z), source) + z
    for _ in range(model.depth):
        z = attention(model.within, model.norm_within(z), z) + z
        z = gated(model.mlp, model.norm_mlp(z)) + z
    u = attention(model.decode, model.norm_query(q), model.norm_tokens(z))
    if model.last is not None:
        norm, mlp = model.last
        u = gated(mlp, norm(u)) + u
    return 0.1 * u
