"""XD as released in mkhodak/relax (f6b5a31), its matrices written out in full.

The network is that of examples/pde/fourier_2d.py with `arch="conv"` and XD operations of depth 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, relu

from operators.models.xd import XD, Butterfly, XDConv, XDLayer


def levels(butterfly: Butterfly) -> list[Tensor]:
    """The sparse matrices, the first to act first."""
    n, found = butterfly.n, []
    for s, level in zip(butterfly.steps, torch.view_as_complex(butterfly.blocks), strict=True):
        entries = [[torch.zeros((), dtype=level.dtype)] * n for _ in range(n)]
        for pair in range(n // 2):
            first = pair // s * 2 * s + pair % s
            for i, row in enumerate((first, first + s)):
                for j, column in enumerate((first, first + s)):
                    entries[row][column] = level[pair, i, j]
        found.append(torch.stack([torch.stack(row) for row in entries]))
    return found


def matrix(butterfly: Butterfly) -> Tensor:
    whole = torch.eye(butterfly.n, dtype=torch.complex128)
    for level in levels(butterfly):
        whole = level @ whole
    return whole


def bit_reversed(n: int) -> list[int]:
    bits = int(math.log2(n))
    return [int(format(i, f"0{bits}b")[::-1], 2) if bits else 0 for i in range(n)]


def along(matrices: list[Tensor], u: Tensor) -> Tensor:
    """One matrix for each of the last axes."""
    if len(matrices) == 1:
        return torch.einsum("pq,abq->abp", matrices[0], u)
    return torch.einsum("pq,rs,abqs->abpr", *matrices, u)


def plain_operation(op: XDConv, u: Tensor) -> Tensor:
    """(batch, c, *grid)."""
    grid, n, k = u.shape[2:], op.size, op.kernel
    inside = (..., *[slice(m) for m in grid])
    padded = torch.zeros(*u.shape[:2], *[n] * len(grid), dtype=torch.complex128)
    padded[inside] = u.to(torch.complex128)
    kernel = torch.zeros(*op.weight.shape[:2], *[n] * len(grid), dtype=torch.complex128)
    for at in torch.cartesian_prod(*[torch.arange(k)] * len(grid)).view(-1, len(grid)).tolist():
        place = tuple((k // 2 - i) % n for i in at)
        kernel[(..., *place)] = op.weight[(..., *at)].to(torch.complex128)
    parts = [[matrix(axis) for axis in t.axes] for t in (op.k, op.l, op.m)]
    diagonal, hat = along(parts[1], kernel), along(parts[2], padded)
    products = (diagonal[None] * hat[:, None]).sum(2)
    return along(parts[0], products).real[inside]


def plain_xd(model: XD, a: Tensor, x: Tensor) -> Tensor:
    """Output of the released network with the weights of a model of the project."""
    u = model.embed(torch.cat([a, x.expand(len(a), *x.shape)], dim=-1)).movedim(-1, 1)
    layers = [layer for layer in model.layers if isinstance(layer, XDLayer)]
    for layer in layers:
        w = layer.pointwise
        local = torch.einsum("oi,bi...->bo...", w.weight, u)
        local = local + w.bias.reshape(1, -1, *[1] * (u.ndim - 2))
        norm = layer.norm
        u = batch_norm(
            plain_operation(layer.operation, u) + local, norm.running_mean, norm.running_var,
            norm.weight, norm.bias, training=model.training, momentum=0.0,
        )  # fmt: skip
        u = u if layer is layers[-1] else relu(u)
    first, _, last = model.decoder
    return last(relu(first(u.movedim(1, -1))))
