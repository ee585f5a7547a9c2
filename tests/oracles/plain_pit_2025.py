"""PiT of 2025 as the released code computes it, in our own words.

junfeng-chen/position_induced_transformer, 05d1c2d: pit.py, and the networks of train_darcy.py,
train_burgers.py, train_vorticity.py, train_elasticity.py and train_naca.py. The matrix of a head
is written out, its neighbours are those within a quantile of the scaled distances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from operators.models.pit import PiT2025


def matrix(y: Tensor, x: Tensor, r: Tensor, locality: float, period: float | None) -> Tensor:
    """(m, n) for one head; `locality` is a fraction."""
    difference = (y[:, None] - x[None, :]).abs()
    if period is not None:
        difference = torch.minimum(difference, period - difference)
    scaled = (difference**2).sum(-1) * torch.tan(0.25 * math.pi * (1 - 1e-7) * (1.0 + torch.sin(r)))
    radius = torch.quantile(scaled, locality, dim=-1, keepdim=True)
    largest = torch.full_like(scaled, torch.finfo(torch.float32).max)
    return torch.softmax(-torch.where(scaled <= radius, scaled, largest), dim=-1)


def averages(u: Tensor, y: Tensor, x: Tensor, rs: Tensor, *how: float | None) -> Tensor:
    """Averages of one sample (n, c) by all heads: (m, h c)."""
    return torch.cat([matrix(y, x, r, *how) @ u for r in rs], dim=-1)  # pyright: ignore[reportArgumentType]


def two_layers(u: Tensor, layers: torch.nn.Sequential) -> Tensor:
    first, _, last = layers
    return linear(gelu(linear(u, first.weight, first.bias)), last.weight, last.bias)  # pyright: ignore[reportArgumentType]


def instance(u: Tensor) -> Tensor:
    return torch.nn.functional.instance_norm(u.T[None])[0].T


def of_sample(
    model: PiT2025, v: Tensor, x: Tensor, latent: Tensor, y: Tensor, period: float | None
) -> Tensor:
    """The output (m, c_out) at y of one sample; v are coordinates and values at x."""
    encoder, decoder = model.down.locality / 100, model.up.locality / 100
    u = averages(v, latent, x, model.down.r, encoder, period)
    u = gelu(two_layers(u, model.lift))
    u = u if model.norm is None else instance(u)
    for average, mix in zip(model.averages, model.mixers, strict=True):
        beside = averages(u, latent, latent, average.r, 1.0, period)  # pyright: ignore[reportArgumentType]
        u = gelu(two_layers(torch.cat([u, beside], dim=-1), mix))  # pyright: ignore[reportArgumentType]
    u = u if model.norm is None else instance(u)
    return two_layers(averages(u, y, latent, model.up.r, decoder, period), model.head)


def plain_pit_2025(
    model: PiT2025, a: Tensor, x: Tensor, y: Tensor | None = None, *, period: float | None,
    latent: Tensor | None = None, stride: int = 1,
) -> Tensor:  # fmt: skip
    """u at y, or at x; latent points are given, or every `stride`-th of those of the output."""
    found = []
    for i, one in enumerate(a):
        p = x[i] if x.ndim == a.ndim else x
        q = p if y is None else y[i]
        nodes = latent
        if nodes is None:
            nodes = q[(slice(None, None, stride),) * (q.ndim - 1)]
        v = torch.cat([p, one], -1) if model.positions.count else one
        flat = (w.flatten(0, -2) for w in (v, p, nodes, q))
        found.append(of_sample(model, *flat, period).view(*q.shape[:-1], -1))
    return torch.stack(found)
