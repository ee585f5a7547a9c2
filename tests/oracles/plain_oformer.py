"""OFormer as its released code computes it, BaratiLab/OFormer at commit f1111b3, step by step.

One sample and one head at a time; the matrix of an attention is formed, rotations are complex
factors, and the norm over the features of a point is written out. The weights are those of a model
of the project: the gradients compare one by one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from operators.models.oformer import OFormer, RotaryAttention

Weights = dict[str, Tensor]


def linear(w: Weights, name: str, u: Tensor) -> Tensor:
    u = u @ w[f"{name}.weight"].T
    return u + w[f"{name}.bias"] if f"{name}.bias" in w else u


def chain(w: Weights, name: str, count: int, u: Tensor) -> Tensor:
    """Linear maps with GELU between, the places 0, 2, 4, ... of a sequence."""
    for i in range(count):
        u = linear(w, f"{name}.{2 * i}", u if i == 0 else gelu(u))
    return u


def gated(w: Weights, name: str, u: Tensor) -> Tensor:
    v = linear(w, f"{name}.first", u)
    half = v.shape[-1] // 2
    return linear(w, f"{name}.last", gelu(v[:, :half]) * v[:, half:])


def norm(w: Weights, name: str, u: Tensor) -> Tensor:
    return layer_norm(u, u.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def standardized(u: Tensor) -> Tensor:
    mean = u.mean(1, keepdim=True)
    variance = ((u - mean) ** 2).mean(1, keepdim=True)
    return (u - mean) / torch.sqrt(variance + 1e-5)


def turned(u: Tensor, x: Tensor, rate: float) -> Tensor:
    parts = []
    for part, t in zip(u.chunk(x.shape[1], dim=1), x.T, strict=True):
        d = part.shape[1]
        frequency = 1 / 10000 ** (torch.arange(0, d, 2, dtype=x.dtype) / d)
        factor = torch.exp(1j * t[:, None] * rate * frequency)
        z = torch.complex(part[:, : d // 2], part[:, d // 2 :]) * factor
        parts += [z.real, z.imag]
    return torch.cat(parts, dim=1)


def attention(
    w: Weights, name: str, module: RotaryAttention, u: Tensor, z: Tensor, y: Tensor, x: Tensor
) -> Tensor:
    found = []
    for h in range(module.heads):
        q, k, v = (
            s @ w[f"{name}.{kind}.weight"].chunk(module.heads)[h].T
            for s, kind in ((u, "query"), (z, "key"), (z, "value"))
        )
        k = standardized(k)
        if module.kind == "galerkin":
            v = standardized(v)
        else:
            q = standardized(q)
        matrix = turned(q, y, module.rate) @ turned(k, x, module.rate).T
        found.append(matrix @ v / len(x))
    total = torch.cat(found, dim=1)
    return total if module.heads == 1 else linear(w, f"{name}.out", total)


def plain_oformer(model: OFormer, a: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """u at the points y, shape (m, dim), of a at the points x, shape (n, dim); raw coordinates."""
    w: Weights = dict(model.named_parameters())
    kind = type(model.end).__name__
    waves = 2 * math.pi * (y @ model.query[0].waves)
    waves = torch.cat([torch.sin(waves), torch.cos(waves)], dim=1)
    found = []
    for one in a:
        u = torch.cat([one, x], dim=1) @ w["embed.weight"].T
        if model.beside:
            u = torch.cat([u, x], dim=1)
        for i, block in enumerate(model.blocks):
            normalized = f"blocks.{i}.norm1.weight" in w
            u = norm(w, f"blocks.{i}.norm1", u) if normalized else u
            u = attention(w, f"blocks.{i}.attention", block.attention, u, u, x, x) + u
            u = norm(w, f"blocks.{i}.norm2", u) if normalized else u
            u = gated(w, f"blocks.{i}.mlp", u) + u
        z = u @ w["project.weight"].T
        if kind == "ResidualDecoder":
            q = gelu(waves) @ w["query.2.0.weight"].T
        else:
            q = chain(w, "query.1", 2, waves)
        u = attention(w, "cross", model.cross, q, z, y, x) + q
        u = gated(w, "mlp", u) + u
        if kind == "PointDecoder":
            u = chain(w, "end.head.0", 2, torch.cat([u, y], dim=1))
            found.append(linear(w, "end.head.2", gelu(u)))
        elif kind == "ResidualDecoder":
            for i in range(len(model.end.steps)):
                u = u + chain(w, f"end.steps.{i}", 3, u)
            found.append(linear(w, "end.head.2", gelu(chain(w, "end.head.0", 1, u))))
        else:
            u, frames = linear(w, "end.expand", u), []
            for _ in range(model.end.outputs // model.end.own):
                for i in range(len(model.end.steps)):
                    v = torch.cat([norm(w, f"end.norms.{i}", u), y], dim=1)
                    u = chain(w, f"end.steps.{i}", 3, v) + u
                v = chain(w, "end.head.1", 2, norm(w, "end.head.0", u))
                frames.append(linear(w, "end.head.3", gelu(v)))
            found.append(torch.cat(frames, dim=1))
    return torch.stack(found)
