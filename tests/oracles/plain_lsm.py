"""LSM as thuml/Neural-Solver-Library has it (db942b72), on the grid, and with a latent grid.

Channels first, each patch and head by itself, norms by their formula. Weights are those of the
operator here. The oracle of the tests.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from operators.models.lsm import LSM, SpectralBlock
from operators.nn.pointwise import PooledUNet
from tests.oracles.plain import pointwise
from tests.oracles.plain_geofno import completed, multiplied, on_grid, plain_deformation, wave


def mlp(u: Tensor, layers: torch.nn.Sequential) -> Tensor:
    return pointwise(layers[2], F.gelu(pointwise(layers[0], u)))


def block_of_patch(u: Tensor, block: SpectralBlock) -> Tensor:
    """Values of one patch, (batch, c, points)."""
    heads, _, d = block.latent.shape
    c, basis = heads * d, block.weight.shape[-1]
    kv = pointwise(block.key_value, u)
    k, v, q = kv[:, :c], kv[:, c:], pointwise(block.query, u)
    out = torch.zeros_like(u)
    for h in range(heads):
        part = slice(h * d, (h + 1) * d)
        for b in range(len(u)):
            t = (block.latent[h] @ k[b, part]).softmax(-1) @ v[b, part].T + block.latent[h]
            series = torch.zeros_like(t)
            for i in range(basis):
                alpha, beta = block.weight[part, :, i].T
                angle = i / basis * t * math.pi
                series = series + alpha * angle.sin() + beta * angle.cos()
            t = t + series
            out[b, part] = ((q[b, part].T @ t.T).softmax(-1) @ t).T
    return u + out


def blocks(u: Tensor, block: SpectralBlock, count: int) -> Tensor:
    out = torch.zeros_like(u)
    sizes = [n // count for n in u.shape[2:]]
    for corner in product(range(count), repeat=len(sizes)):
        where = tuple(slice(i * s, (i + 1) * s) for i, s in zip(corner, sizes, strict=True))
        part = u[(..., *where)]
        out[(..., *where)] = block_of_patch(part.flatten(2), block).view(part.shape)
    return out


def double(u: Tensor, layers: torch.nn.Sequential) -> Tensor:
    """Two convolutions, each with its norm and ReLU."""
    convolve = F.conv1d if u.ndim == 3 else F.conv2d
    for convolution, norm, _ in layers:
        u = convolve(u, convolution.weight, padding=1)
        axes = tuple(range(2, u.ndim))
        if isinstance(norm, torch.nn.InstanceNorm1d | torch.nn.InstanceNorm2d):
            mean, variance = u.mean(axes, True), u.var(axes, correction=0, keepdim=True)
        else:
            mean, variance = u.mean((0, *axes), True), u.var((0, *axes), correction=0, keepdim=True)
        scale, shift = (v.reshape(1, -1, *[1] * len(axes)) for v in (norm.weight, norm.bias))
        u = ((u - mean) / (variance + 1e-5).sqrt() * scale + shift).clamp(min=0)
    return u


def pyramid(u: Tensor, model: PooledUNet) -> Tensor:
    grid = u.shape[2:]
    filled = [-(-n // model.multiple) * model.multiple for n in grid]
    v = torch.zeros(*u.shape[:2], *filled, dtype=u.dtype)
    inside = (..., *map(slice, grid))
    v[inside] = u
    pool, mode = (F.max_pool1d, "linear") if u.ndim == 3 else (F.max_pool2d, "bilinear")
    levels = [double(v, model.first)]
    for layers in model.down:
        levels.append(double(pool(levels[-1], 2), layers))
    joined = [
        blocks(v, patches.block, model.multiple // 2**i)
        for i, (v, patches) in enumerate(zip(levels, model.beside, strict=True))
    ]
    v = joined.pop()
    for layers in model.up:
        v = F.interpolate(v, scale_factor=2, mode=mode, align_corners=True)
        v = double(torch.cat([joined.pop(), v], 1), layers)
    return pointwise(model.out, v)[inside]


def plain_lsm(model: LSM, a: Tensor, x: Tensor) -> Tensor:
    """In training; with a latent grid of the square at points by sample, without division."""
    v = torch.cat([model.positions(x).expand(*a.shape[:-1], -1), a], -1).movedim(-1, 1)
    u = mlp(v, model.embed)
    s = model.grid[0]
    if not s:
        return mlp(pyramid(u, model.pyramid), model.head).movedim(1, -1)
    m, xi = model.first.modes, plain_deformation(model.deformation, x)
    u_hat = torch.einsum("bcn,bnkl->bckl", u + 0j, wave(xi, m, -1))
    u = pyramid(on_grid(multiplied(u_hat, model.first.weight), s), model.pyramid)
    v_hat = completed(torch.cat(multiplied(torch.fft.rfft2(u), model.last.weight), -2), False)
    u = torch.einsum("bckl,bnkl->bcn", v_hat, wave(xi, m, 1)).real
    return mlp(u, model.head).movedim(1, -1)
