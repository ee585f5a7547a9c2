"""Attention of points through slices, step by step, in the frame of Transolver.

Transolver as its publication describes it; Transolver++ as its released code has it on one process
(thuml/Transolver_plus, d5a23bc), with noise in training alone; LinearNO as its paper describes it:
no released code was found. Shares and products are written out, heads are split by copies.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from operators.models.transolver import (
    EideticAttention,
    LinearPhysicsAttention,
    PhysicsAttention,
    SliceOperator,
)
from tests.oracles.plain import affine, around, attended, chain


def split(u: Tensor, heads: int) -> Tensor:
    """(batch, heads, points, features)."""
    return torch.stack(u.flatten(1, -2).chunk(heads, dim=-1), dim=1)


def merged(part: nn.Module, y: Tensor, u: Tensor) -> Tensor:
    return affine(part.out, torch.cat(y.unbind(1), dim=-1)).view(u.shape)


def eidetic(part: EideticAttention, u: Tensor) -> Tensor:
    x = split(affine(part.project, u), part.heads)
    tau = gelu(chain(part.temperature, x)) + part.offset
    logits = affine(part.slices, x)
    if part.training:
        logits = logits - torch.log(-torch.log(torch.rand_like(logits) + 1e-8) + 1e-8)
    w = torch.softmax(logits / torch.clamp(tau, min=0.01), dim=-1)
    tokens = torch.einsum("bhnc,bhng->bhgc", x, w) / (w.sum(2) + 1e-5)[..., None]
    q, k, v = (affine(p, tokens) for p in (part.query, part.key, part.value))
    return merged(part, torch.einsum("bhgc,bhng->bhnc", attended(q, k, v, 1), w), u)


def physics(part: PhysicsAttention, u: Tensor) -> Tensor:
    x, f = (split(around(p, u), part.heads) for p in (part.to_slices, part.to_values))
    w = torch.softmax(affine(part.slices, x) / torch.clamp(part.temperature, 0.1, 5), dim=-1)
    tokens = torch.einsum("bhnc,bhng->bhgc", f, w) / (w.sum(2) + 1e-5)[..., None]
    q, k, v = (affine(p, tokens) for p in (part.query, part.key, part.value))
    return merged(part, torch.einsum("bhgc,bhng->bhnc", attended(q, k, v, 1), w), u)


def of_points(part: LinearPhysicsAttention, u: Tensor) -> Tensor:
    x = split(around(part.project, u), part.heads)
    query, key = affine(part.query, x).exp(), affine(part.key, x).exp()
    query = query / query.sum(dim=3, keepdim=True)
    if part.shares == "points":
        key = key / key.sum(dim=2, keepdim=True)
    else:
        key = key / key.sum(dim=3, keepdim=True)
        key = key / (key.sum(dim=2, keepdim=True) + 1e-5)
    states = torch.einsum("bhng,bhnd->bhgd", key, affine(part.value, x))
    return merged(part, torch.einsum("bhng,bhgd->bhnd", query, states), u)


ATTENTIONS = {
    PhysicsAttention: physics, EideticAttention: eidetic, LinearPhysicsAttention: of_points,
}  # fmt: skip


def plain_slices(model: SliceOperator, a: Tensor, x: Tensor) -> Tensor:
    """u at the points x: positions, or distances to a lattice, beside a."""
    u = torch.cat([model.positions(x).expand(*a.shape[:-1], -1), a], dim=-1)
    u = chain(model.embed, u) + model.placeholder
    for block in model.blocks:
        attention = ATTENTIONS[type(block.attention)]
        u = attention(block.attention, block.norm1(u)) + u
        u = chain(block.mlp, block.norm2(u)) + u
    norm, last = model.decoder
    return affine(last, norm(u))
