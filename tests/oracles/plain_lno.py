"""LNO as its released code has it, step by step; L-I-M-I-T/LatentNeuralOperator, 771a874.

Each sample has points and scores of its own, and attention is a matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operators.models.lno import LNO
from tests.oracles.plain import affine, attended, chain, residual


def plain_lno(model: LNO, a: Tensor, x: Tensor, y: Tensor | None = None) -> Tensor:
    """u at y or x, (batch, n, dim) or shared; x are features where the model says so."""
    x = x.expand(*a.shape[:-1], x.shape[-1])
    features = torch.cat([x, a], dim=-1) if model.positions.count else a
    scores = [
        residual(model.to_scores, residual(model.trunk, points))
        for points in (x, x if y is None else y.expand(len(a), *y.shape[-2:]))
    ]
    encode, decode = torch.softmax(scores[0], dim=1), torch.softmax(scores[1], dim=-1)
    z = torch.einsum("bij,bic->bjc", encode, residual(model.branch, features))
    for block in model.blocks:
        part, tokens = block.attention, block.norm1(z)
        q, k, v = (affine(p, tokens) for p in (part.query, part.key, part.value))
        z = z + affine(part.out, attended(q, k, v, part.heads))
        z = z + chain(block.mlp, block.norm2(z))
    return residual(model.decoder, torch.einsum("bij,bjc->bic", decode, z))
