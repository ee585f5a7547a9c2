"""F-FNO as alasdairtran/fourierflow at 82d1689e computes it, step by step, with torch.fft.

`fourierflow.modules.FNOFactorized2DBlock` on periodic grids, `FNOFactorizedMesh2D` and `-3D` on
meshes: channels first in the layers, spectra filled with zeros, lines of one axis after another.
The weights are those of the project's model, so that gradients can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operators.models.f_fno import FFNO, WeightNormalized


def affine(u: Tensor, layer: WeightNormalized) -> Tensor:
    """Weight normalisation: rows of the direction over their norms, times the lengths."""
    pairs = zip(layer.length, layer.weight, strict=True)
    rows = [g * v / v.square().sum().sqrt() for g, v in pairs]
    return u @ torch.stack(rows).T + layer.bias


def convolved(u: Tensor, weights: list[Tensor]) -> Tensor:
    """Sums over the axes of what each does on its own; channels last outside."""
    u = u.movedim(-1, 1)
    total = 0
    for axis in reversed(range(len(weights))):
        w = torch.view_as_complex(weights[axis].contiguous())  # (modes, in, out)
        modes, n = len(w), u.shape[axis + 2]
        lines = u.movedim(axis + 2, -1)
        u_hat = torch.fft.rfft(lines, norm="ortho")
        v_hat = torch.zeros_like(u_hat)
        v_hat[..., :modes] = torch.einsum("bi...m,mio->bo...m", u_hat[..., :modes], w)
        total = total + torch.fft.irfft(v_hat, n=n, norm="ortho").movedim(-1, axis + 2)
    return total.movedim(1, -1)


def plain_f_fno(model: FFNO, features: Tensor, padding: int = 0) -> Tensor:
    """The output at each point of a grid, from a and coordinates side by side; zeros are appended
    to each axis after the first linear map."""
    grid = features.shape[1:-1]
    inside = tuple(slice(n) for n in grid)
    u = affine(features, model.lift)
    padded = u.new_zeros(len(u), *[n + padding for n in grid], u.shape[-1])
    padded[:, *inside] = u
    u = padded
    for layer, (first, _, second) in enumerate(model.layers.mlps):
        convolutions = model.layers.convolutions
        own = convolutions[0] if len(convolutions) == 1 else convolutions[layer]
        b = affine(torch.relu(affine(convolved(u, list(own.weights)), first)), second)
        u = u + b
    first, second = model.head
    return affine(affine(b[:, *inside], first), second)
