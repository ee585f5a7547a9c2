"""OFormer as its released code computes it, BaratiLab/OFormer at commit f1111b3, step by step.

One sample and one head at a time; the matrix of an attention is formed, rotations are complex
factors, and the norm over the features of a point is written out. The weights are those of a model
of the project: the gradients compare one by one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu

from operators.models.oformer import OFormer, RotaryAttention
from tests.oracles.plain import Weights, affine, chain, gated, linear, norm


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
            u = gated(block.mlp, u) + u
        z = u @ w["project.weight"].T
        if kind == "ResidualDecoder":
            q = gelu(waves) @ w["query.2.0.weight"].T
        else:
            q = chain(model.query[1], waves)
        u = attention(w, "cross", model.cross, q, z, y, x) + q
        u = gated(model.mlp, u) + u
        if kind != "MarchingDecoder":
            if kind == "PointDecoder":
                u = torch.cat([u, y], dim=1)
            for step in getattr(model.end, "steps", ()):
                u = u + chain(step, u)
            first, _, last = model.end.head
            found.append(affine(last, gelu(chain(first, u))))
        else:
            u, frames = linear(w, "end.expand", u), []
            for _ in range(model.end.outputs // model.end.frame_channels):
                for i, step in enumerate(model.end.steps):
                    u = chain(step, torch.cat([norm(w, f"end.norms.{i}", u), y], dim=1)) + u
                v = chain(model.end.head[1], norm(w, "end.head.0", u))
                frames.append(linear(w, "end.head.3", gelu(v)))
            found.append(torch.cat(frames, dim=1))
    return torch.stack(found)
