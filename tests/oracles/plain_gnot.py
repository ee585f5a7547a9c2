"""GNOT as its released code computes it, HaoZhongkai/GNOT at commit 5ee2e69, step by step.

One sample, one head, one expert and one input function at a time; the matrix of an attention is
formed. The weights are those of a model of the project: the gradients compare one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu

from operators.models.gnot import GNOT
from tests.oracles.plain import Weights, chain, linear, norm, residual


def attention(w: Weights, name: str, heads: int, u: Tensor, functions: list[Tensor]) -> Tensor:
    found = []
    for part in torch.arange(u.shape[-1]).chunk(heads):
        q = torch.softmax(linear(w, f"{name}.query", u)[:, part], dim=-1)
        total = q
        for i, z in enumerate(functions):
            k = torch.softmax(linear(w, f"{name}.keys.{i}", z)[:, part], dim=-1)
            v = linear(w, f"{name}.values.{i}", z)[:, part]
            matrix = q @ k.T
            total = total + (matrix / matrix.sum(1, keepdim=True)) @ v
        found.append(total)
    return linear(w, f"{name}.out", torch.cat(found, dim=-1))


def experts(w: Weights, name: str, gates: Tensor, u: Tensor) -> Tensor:
    count = gates.shape[-1]
    total = torch.zeros_like(u)
    for e in range(count):
        first, bias = (w[f"{name}.first.{kind}"].chunk(count)[e] for kind in ("weight", "bias"))
        last = w[f"{name}.weight"].chunk(count, dim=1)[e]
        one = gelu(u @ first.T + bias) @ last.T + w[f"{name}.bias"][e]
        total = total + gates[:, e, None] * one
    return total


def plain_gnot(model: GNOT, a: Tensor, x: Tensor) -> Tensor:
    """u at the points x, shape (n, dim), of functions a, shape (batch, n, channels).

    With raw coordinates, and more experts than one.
    """
    w = dict(model.named_parameters())
    heads, found = model.blocks[0].within.heads, []
    for one in a:
        parts = one.split(model.sizes, dim=-1)
        functions = [
            residual(branch, torch.cat([x, part], dim=-1))
            for branch, part in zip(model.branches, parts, strict=True)
        ]
        u = residual(model.trunk, x)
        for b, block in enumerate(model.blocks):
            name = f"blocks.{b}"
            g = torch.softmax(chain(block.gate, x), dim=-1)
            normed = [norm(w, f"{name}.norms.{i}", z) for i, z in enumerate(functions)]
            u = u + attention(w, f"{name}.cross", heads, norm(w, f"{name}.norm_cross", u), normed)
            u = u + norm(w, f"{name}.norm1", experts(w, f"{name}.experts1", g, u))
            v = norm(w, f"{name}.norm_within", u)
            u = u + attention(w, f"{name}.within", heads, v, [v])
            u = u + norm(w, f"{name}.norm2", experts(w, f"{name}.experts2", g, u))
        found.append(residual(model.head, u))
    return torch.stack(found)
