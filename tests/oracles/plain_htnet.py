"""HT-Net as released in xlliu2017/HANO (c3e56c9, models.py), step by step, on squares.

Windows and parities are sliced one by one, transforms are complex. Grids of whole windows, patches
that keep the number of points, one block on each grid: of several the released code keeps the last.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, layer_norm, pad

from operators.models.htnet import HTNet, LocalSpectralLayer
from operators.nn.tokens import Block
from tests.oracles.plain import chain, spectral

RELEASED = ((0, 0), (1, 0), (0, 1), (1, 1))  # order of the points of a coarser grid
OURS = ((0, 0), (0, 1), (1, 0), (1, 1))


def attention(block: Block, u: Tensor) -> Tensor:
    """Attention within one window (batch, w, w, c)."""
    part, w = block.attention, block.attention.window
    q, k, v = (part.qkv(u.flatten(1, 2))).chunk(3, dim=-1)
    heads = []
    for h, (qh, kh, vh) in enumerate(
        zip(*(m.chunk(part.heads, dim=-1) for m in (q, k, v)), strict=True)
    ):
        matrix = qh @ kh.transpose(1, 2) / w**2
        rows = []
        for i in range(w * w):
            row = []
            for j in range(w * w):
                first, second = i // w - j // w + w - 1, i % w - j % w + w - 1
                row.append(part.bias[first * (2 * w - 1) + second, h])
            rows.append(torch.stack(row))
        heads.append((matrix + torch.stack(rows)) @ vh)
    return part.out(torch.cat(heads, dim=-1)).view(u.shape)


def of_block(block: Block, u: Tensor) -> Tensor:
    def norm(v: Tensor, by: torch.nn.LayerNorm) -> Tensor:
        return layer_norm(v, by.normalized_shape, by.weight, by.bias)

    w, v = block.attention.window, norm(u, block.norm1)
    found = torch.zeros_like(u)
    for i in range(0, u.shape[1], w):
        for j in range(0, u.shape[2], w):
            found[:, i : i + w, j : j + w] = attention(block, v[:, i : i + w, j : j + w])
    u = u + found
    first, _, second = block.mlp
    return u + second(gelu(first(norm(u, block.norm2))))


def reordered(weight: Tensor, c: int, axis: int) -> Tensor:
    """Weights of points in the order of the project, in that of the released code."""
    parts = weight.split(c, dim=axis)
    return torch.cat([parts[OURS.index(at)] for at in RELEASED], dim=axis)


def pyramid(model: HTNet, u: Tensor) -> Tensor:
    fields = [of_block(next(iter(model.pyramid.blocks[0])), u)]
    for down, blocks in zip(model.pyramid.down, list(model.pyramid.blocks)[1:], strict=True):
        norm, linear = down
        c = fields[-1].shape[-1]
        side = torch.cat([fields[-1][:, i::2, j::2] for i, j in RELEASED], dim=-1)
        scale, shift = (reordered(p, c, 0) for p in (norm.weight, norm.bias))
        side = layer_norm(side, (4 * c,), scale, shift)
        fields.append(of_block(next(iter(blocks)), side @ reordered(linear.weight, c, 1).T))
    for level in range(len(fields) - 1, 0, -1):
        up, fine = model.pyramid.up[level - 1], fields[level - 1]
        c = fine.shape[-1]
        values = fields[level] @ reordered(up.weight, c, 0).T + reordered(up.bias, c, 0)
        target = torch.zeros_like(fine)
        for (i, j), part in zip(RELEASED, values.split(c, dim=-1), strict=True):
            target[:, i::2, j::2] = part
        fields[level - 1] = fine + target
    return fields[0]


def fourier(layer: LocalSpectralLayer, u: Tensor) -> Tensor:
    """(batch, c, n1, n2)."""
    local = layer.local.convolution
    v = spectral(u, layer.spectral.weight, layer.spectral.modes)
    return v + conv2d(u, local.weight, local.bias, padding=1)


def plain_htnet(model: HTNet, a: Tensor, x: Tensor) -> Tensor:
    """Output of the released network with the weights of a model of the project."""
    n1, n2 = a.shape[1:3]
    e = model.embed
    u = conv2d(a.permute(0, 3, 1, 2), e.weight, e.bias, padding=1).permute(0, 2, 3, 1)
    u = layer_norm(u, u.shape[-1:], model.norm.weight, model.norm.bias)
    u = pyramid(model, u).permute(0, 3, 1, 2)
    u = pad(u, [0, model.padding, 0, model.padding])
    layers = [layer for layer in model.decoder if isinstance(layer, LocalSpectralLayer)]
    for layer in layers:
        u = fourier(layer, u)
        u = u if layer is layers[-1] else gelu(u)
    return chain(model.head, u[:, :, :n1, :n2].permute(0, 2, 3, 1))
