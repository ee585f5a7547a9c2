"""Geo-FNO as its released code has it (neuraloperator/Geo-FNO, d499bde7, elas_geofno_v2.py).

Complex numbers, channels first, one wave for each pair of a point and a frequency, FFTs on the
latent grid. Weights are those of the operator here. The oracle of the tests.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from operators.models.geofno import GeoFNO
from operators.nn.spectral import Deformation
from tests.oracles.plain import chain, pointwise


def blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of k₁ = 0 ... m - 1 and of k₁ = -m ... -1, shape (c_in, c_out, m, m)."""
    w = torch.view_as_complex(weight)
    return tuple(part.permute(2, 3, 0, 1) for part in (w[0], w[1].flip(0)))


def multiplied(u_hat: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both blocks of coefficients (batch, c, k₁, k₂) times their weights."""
    first, second = blocks(weight)
    m = first.shape[-1]
    return (
        torch.einsum("bikl,iokl->bokl", u_hat[:, :, :m, :m], first),
        torch.einsum("bikl,iokl->bokl", u_hat[:, :, -m:, :m], second),
    )


def on_grid(parts: tuple[Tensor, Tensor], s: int) -> Tensor:
    batch, c, m, _ = parts[0].shape
    v_hat = torch.zeros(batch, c, s, s // 2 + 1, dtype=parts[0].dtype)
    v_hat[:, :, :m, :m], v_hat[:, :, -m:, :m] = parts
    return torch.fft.irfft2(v_hat, s=(s, s))


def wave(xi: Tensor, m: int, sign: int) -> Tensor:
    """exp(±2πik·ξ) for k₁ = 0 ... m - 1, -m ... -1 and k₂ = 0 ... m - 1, 1 - m ... -1."""
    k1 = torch.cat([torch.arange(m), torch.arange(-m, 0)])
    k2 = torch.cat([torch.arange(m), torch.arange(1 - m, 0)])
    k = k1[:, None] * xi[..., 0, None, None] + k2 * xi[..., 1, None, None]
    return torch.exp(sign * 2j * math.pi * k)


def completed(v_hat: Tensor, released: bool) -> Tensor:
    """Coefficients of k₂ < 0 beside the others: those of -k, conjugated.

    -m has no partner among k₁. The released code gives it -m again; where not `released` it is
    left out, and that of k₂ > 0 counted twice, which has the same real part as both.
    """
    m = v_hat.shape[-1]
    opposite = [0, *range(2 * m - 1, 0, -1)]
    negative = v_hat[:, :, opposite, 1:].flip(-1).conj()
    if not released:
        lonely = torch.zeros(2 * m, 1, dtype=torch.bool)
        lonely[m] = True
        negative = torch.where(lonely, 0, negative)
        twice = 1.0 + lonely * (torch.arange(m) > 0)
        v_hat = v_hat * twice
    return torch.cat([v_hat, negative], -1)


def plain_deformation(model: Deformation, x: Tensor) -> Tensor:
    x1, x2 = (x - model.center).unbind(-1)
    f = torch.stack([*x.unbind(-1), torch.atan2(x2, x1), (x1**2 + x2**2).sqrt()], -1)
    b = math.pi * 2.0 ** torch.arange(len(model.powers), dtype=x.dtype)
    phase = (f[..., None] * b).flatten(-2)
    v = torch.cat([linear(f, model.embed.weight, model.embed.bias), phase.sin(), phase.cos()], -1)
    first, *layers, last = (m for m in model.mlp if isinstance(m, torch.nn.Linear))
    activation = type(model.mlp[2])()
    v = linear(v, first.weight, first.bias)
    for layer in layers:
        v = activation(linear(v, layer.weight, layer.bias))
    return x + x * linear(v, last.weight, last.bias)


def plain_geofno(
    model: GeoFNO, a: Tensor, x: Tensor, y: Tensor | None = None, released: bool = False
) -> Tensor:
    """u(y) for points by sample, (batch, n, 2), with the sums that are not divided."""
    y = x if y is None else y
    (s, _), m, n = model.grid, model.first.modes, x.shape[1]

    axis = torch.linspace(0, 1, s, dtype=x.dtype)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"))[None]
    u = pointwise(model.lift, torch.cat([a, model.positions(x)], -1).mT)
    xi, eta = (plain_deformation(model.deformation, points) for points in (x, y))
    u_hat = torch.einsum("bcn,bnkl->bckl", u + 0j, wave(xi, m, -1))
    if model.first.transform == "mean":
        u_hat = u_hat * s**2 / n
    u = gelu(
        on_grid(multiplied(u_hat, model.first.weight), s) + pointwise(model.first_places, grid)
    )
    for layer in model.layers:
        k = on_grid(multiplied(torch.fft.rfft2(u), layer.convolution.weight), s)
        u = gelu(k + pointwise(layer.pointwise, u) + pointwise(layer.places, grid))
    parts = multiplied(torch.fft.rfft2(u), model.last.weight)
    v_hat = completed(torch.cat(parts, -2), released)
    if model.last.transform == "mean":
        v_hat = v_hat / s**2
    u = torch.einsum("bckl,bnkl->bcn", v_hat, wave(eta, m, 1)).real
    u = (u + pointwise(model.last_places, y.mT)).mT
    return chain(model.head, u)
