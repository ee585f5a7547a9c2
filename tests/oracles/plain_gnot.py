"""GNOT as its released code computes it, HaoZhongkai/GNOT at commit 5ee2e69, step by step.

One sample, one head, one expert and one input function at a time; the matrix of an attention is
formed. The weights are those of a model of the project: the gradients compare one by one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from operators.models.gnot import GNOT

Weights = dict[str, Tensor]


def linear(w: Weights, name: str, u: Tensor) -> Tensor:
    return u @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(w: Weights, name: str, u: Tensor) -> Tensor:
    return layer_norm(u, u.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def mlp(w: Weights, name: str, depth: int, u: Tensor) -> Tensor:
    u = gelu(linear(w, f"{name}.first", u))
    for i in range(depth):
        u = gelu(linear(w, f"{name}.hidden.{i}", u)) + u
    return linear(w, f"{name}.last", u)


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


def plain_gnot(model: GNOT, a: Tensor, x: Tensor, heads: int) -> Tensor:
    """u at the points x, shape (n, dim), of functions a, shape (batch, n, channels).

    With raw coordinates, and more experts than one.
    """
    w = dict(model.named_parameters())
    depth = len(model.trunk.hidden)
    found = []
    for one in a:
        parts = one.split(model.sizes, dim=-1)
        functions = [
            mlp(w, f"branches.{i}", depth, torch.cat([x, part], dim=-1))
            for i, part in enumerate(parts)
        ]
        u = mlp(w, "trunk", depth, x)
        for b in range(len(model.blocks)):
            name = f"blocks.{b}"
            g = gelu(linear(w, f"{name}.gate.0", x))
            g = gelu(linear(w, f"{name}.gate.2", g))
            g = torch.softmax(linear(w, f"{name}.gate.4", g), dim=-1)
            normed = [norm(w, f"{name}.norms.{i}", z) for i, z in enumerate(functions)]
            u = u + attention(w, f"{name}.cross", heads, norm(w, f"{name}.norm_cross", u), normed)
            u = u + norm(w, f"{name}.norm1", experts(w, f"{name}.experts1", g, u))
            v = norm(w, f"{name}.norm_within", u)
            u = u + attention(w, f"{name}.within", heads, v, [v])
            u = u + norm(w, f"{name}.norm2", experts(w, f"{name}.experts2", g, u))
        found.append(mlp(w, "head", depth, u))
    return torch.stack(found)
