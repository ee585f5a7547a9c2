"""FactFormer as its released code computes it, BaratiLab/FactFormer at commit cd3e263.

In two dimensions, one sample and one head at a time: the kernel of all pairs of points is written
out as one matrix, rotations are complex factors, norms are written out, groups of channels are
loops. The weights are those of a model of the project: the gradients compare one by one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, interpolate

from operators.models.factformer import ConvolutionDecoder, FactFormer
from tests.oracles.plain import Weights, chain, gated, linear, norm


def standardized(u: Tensor) -> Tensor:
    """Over all that is given."""
    return (u - u.mean()) / torch.sqrt(((u - u.mean()) ** 2).mean() + 1e-5)


def turned(u: Tensor, t: Tensor) -> Tensor:
    d = u.shape[1]
    frequency = 1 / 10000 ** (torch.arange(0, d, 2, dtype=t.dtype) / d)
    factor = torch.exp(1j * t[:, None] * 64 * frequency)
    z = torch.complex(u[:, : d // 2], u[:, d // 2 :]) * factor
    return torch.cat([z.real, z.imag], dim=1)


def block(w: Weights, name: str, model: FactFormer, heads: int, u: Tensor, axes: list) -> Tensor:
    n1, n2, _ = u.shape
    u = norm(w, f"{name}.norm", u)
    v = linear(w, f"{name}.value", u).chunk(heads, dim=-1)
    u = linear(w, f"{name}.means", u)
    matrices = []
    for axis, t in enumerate(axes):
        kernel = f"{name}.kernels.{axis}"
        f = linear(w, f"{kernel}.pooled", u).mean(1 - axis)
        f = gated(model.get_submodule(f"{kernel}.mlp"), norm(w, f"{kernel}.norm", f))
        q, k = (linear(w, f"{kernel}.{part}", f).chunk(heads, dim=1) for part in ("query", "key"))
        features = q[0].shape[1]
        scale = 1 / math.sqrt(features) if features > 4 * v[0].shape[-1] else 1.0
        matrices.append([turned(a, t) @ turned(b, t).T * scale for a, b in zip(q, k, strict=True)])
    found = []
    for h in range(heads):
        full = torch.einsum("ij,kl->ikjl", matrices[0][h], matrices[1][h])
        product = full.reshape(n1 * n2, n1 * n2) @ v[h].reshape(n1 * n2, -1)
        product = product.reshape(n1, n2, -1)
        found.append(standardized(product) if model.blocks[0].normalization == "heads" else product)
    u = torch.cat(found, dim=-1)
    if model.blocks[0].normalization == "rows":
        u = torch.stack([standardized(row) for row in u])
    return chain(model.get_submodule(f"{name}.out"), u)


def grouped(w: Weights, name: str, groups: int, u: Tensor) -> Tensor:
    u = torch.cat([standardized(part) for part in u.chunk(groups, dim=-1)], dim=-1)
    return u * w[f"{name}.weight"] + w[f"{name}.bias"]


def convolved(w: Weights, name: str, u: Tensor, stride: int = 1) -> Tensor:
    return conv2d(u[None], w[f"{name}.weight"], w[f"{name}.bias"], stride=stride, padding=1)[0]


def plain_factformer(model: FactFormer, a: Tensor, x: Tensor, heads: int) -> Tensor:
    """u of a, shape (batch, n1, n2, channels), at the points x of a grid."""
    x1, x2 = x[:, 0, 0], x[0, :, 1]
    w: Weights = dict(model.named_parameters())
    found = []
    for one in a:
        u = linear(w, "embed", one)
        for i, waves in enumerate(model.waves):
            phase = 2 * math.pi * (x @ waves[0].waves)
            phase = torch.cat([torch.sin(phase), torch.cos(phase)], dim=-1)
            u = u + linear(w, f"waves.{i}.1", phase)
            u = block(w, f"blocks.{i}", model, heads, u, [x1, x2]) + u
        if isinstance(model.end, ConvolutionDecoder):
            v = torch.stack([standardized(channel) for channel in u.permute(2, 0, 1)])
            v = convolved(w, "end.down.2", gelu(convolved(w, "end.down.0", v, 2)))
            v = interpolate(v[None], (len(x1), len(x2)), mode="nearest")[0]
            v = convolved(w, "end.up.2", gelu(convolved(w, "end.up.0", v)))
            u = grouped(w, "end.head.norm", 8, torch.cat([v.permute(1, 2, 0), u], dim=-1))
            found.append(chain(model.end.head.rest, u))
            continue
        u, frames = linear(w, "end.expand", u), []
        for time in w["end.times"]:
            u = u + time
            u = chain(model.end.step, norm(w, "end.norm", u)) + u
            v = grouped(w, "end.head.norm", 16, u).chunk(8, dim=-1)
            v = [p @ m for p, m in zip(v, w["end.head.rest.0.weight"], strict=True)]
            v = gelu(linear(w, "end.head.rest.2", gelu(torch.cat(v, dim=-1))))
            frames.append(linear(w, "end.head.rest.4", v))
        found.append(torch.cat(frames, dim=-1))
    return torch.stack(found)
