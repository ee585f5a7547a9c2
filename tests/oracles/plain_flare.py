"""FLARE as its released code has it, step by step; vpuri3/FLARE.py, 4e05378.

The scores are matrices, heads a loop; the approximate GELU is its formula.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from operators.models.flare import FLARE, LatentRouting
from tests.oracles.plain import affine, residual


def gelu(u: Tensor) -> Tensor:
    """u/2 (1 + tanh(√(2/π) (u + 0.044715 u³)))."""
    return 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


def routed(module: LatentRouting, u: Tensor) -> Tensor:
    """Values routed from the points to the latent tokens and back by the same scores."""
    keys, values = (
        residual(mlp, u, gelu, True, True).chunk(len(module.latents), dim=-1)
        for mlp in (module.key, module.value)
    )
    heads = []
    for latents, k, v in zip(module.latents, keys, values, strict=True):
        scores = torch.einsum("md,bnd->bmn", latents, k)
        z = torch.einsum("bmn,bnd->bmd", torch.softmax(scores, dim=2), v)
        heads.append(torch.einsum("bmn,bmd->bnd", torch.softmax(scores, dim=1), z))
    return affine(module.out, torch.cat(heads, dim=-1))


def plain_flare(model: FLARE, a: Tensor, x: Tensor) -> Tensor:
    """u at the points x, shape (batch, n, dim), which are features beside a."""
    u = residual(model.embed, torch.cat([x, a], dim=-1), gelu, last=True)
    for block in model.blocks:
        u = routed(block.routing, block.norm1(u)) + u
        u = residual(block.mlp, block.norm2(u), gelu, True, True) + u
    norm, last = model.decoder
    return residual(last, norm(u), gelu, first=True)
