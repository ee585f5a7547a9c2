"""The multiwavelet operator as released in gaurav71531/mwt-operator (4b0770c), step by step.

Legendre polynomials. Parities are sliced one by one, transforms are complex, wavelets are made by
Gram-Schmidt on polynomials. Only grids of powers of two points, the same along both axes.
"""

from __future__ import annotations

import torch
from numpy.polynomial import Polynomial
from numpy.polynomial.legendre import Legendre
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu

from operators.models.mwt import MWT, MultiwaveletLayer

Halves = tuple[Polynomial, Polynomial]  # what a function is left and right of the middle


def inner(f: Halves, g: Halves) -> float:
    parts = [(a * b).integ() for a, b in zip(f, g, strict=True)]
    return parts[0](0.5) - parts[0](0.0) + parts[1](1.0) - parts[1](0.5)


def plain_filters(k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """H0, H1, G0, G1 from integrals of polynomials."""
    x, zero = Polynomial([0, 1]), Polynomial([0])
    phi = [
        (2 * i + 1) ** 0.5 * Legendre.basis(i).convert(kind=Polynomial)(2 * x - 1) for i in range(k)
    ]
    left = [(2**0.5 * p(2 * x), zero) for p in phi]
    right = [(zero, 2**0.5 * p(2 * x - 1)) for p in phi]
    whole = [(p, p) for p in phi]
    waves: list[Halves] = []
    for f in left:
        for g in (*whole, *waves):
            c = inner(f, g)
            f = (f[0] - c * g[0], f[1] - c * g[1])
        size = inner(f, f) ** 0.5
        waves.append((f[0] / size, f[1] / size))
    found = [
        torch.tensor([[inner(f, g) for g in half] for f in functions], dtype=torch.float64)
        for functions in (whole, waves)
        for half in (left, right)
    ]
    return found[0], found[1], found[2], found[3]


def fourier_line(u: Tensor, weight: Tensor) -> Tensor:
    """(batch, n, c); weights (modes, c, c) are complex."""
    n = u.shape[1]
    hat = torch.fft.rfft(u, dim=1)
    out = torch.zeros(len(u), n // 2 + 1, weight.shape[2], dtype=hat.dtype)
    l = min(len(weight), n // 2 + 1)  # noqa: E741
    out[:, :l] = torch.einsum("bki,kio->bko", hat[:, :l], weight[:l])
    return torch.fft.irfft(out, n=n, dim=1)


def fourier_plane(u: Tensor, weight: Tensor) -> Tensor:
    """(batch, n, n, c); weights (2, modes, modes, c, c); the second block is written last."""
    n1, n2 = u.shape[1:3]
    hat = torch.fft.rfft2(u, dim=(1, 2))
    l1, l2 = (min(weight.shape[1], n // 2 + 1) for n in (n1, n2))
    out = torch.zeros(len(u), n1, n2 // 2 + 1, weight.shape[-1], dtype=hat.dtype)
    for block, rows in zip(weight, (slice(l1), slice(n1 - l1, n1)), strict=True):
        out[:, rows, :l2] = torch.einsum("bkli,klio->bklo", hat[:, rows, :l2], block[:l1, :l2])
    return torch.fft.irfft2(out, s=(n1, n2), dim=(1, 2))


def on_line(layer: MultiwaveletLayer, s: Tensor) -> Tensor:
    """(batch, n, c, k)."""
    h0, h1, g0, g1 = plain_filters(s.shape[-1])
    width = s.shape[-2] * s.shape[-1]
    a, b = torch.view_as_complex(layer.kernels.to_details).split(width, dim=1)
    c = torch.view_as_complex(layer.kernels.to_means)
    details, means = [], []
    while s.shape[1] > 2**layer.coarsest:
        halves = torch.cat([s[:, ::2], s[:, 1::2]], dim=-1)
        d = halves @ torch.cat([g0.T, g1.T])
        s = halves @ torch.cat([h0.T, h1.T])
        shape = s.shape
        details.append(fourier_line(d.flatten(2), a) + fourier_line(s.flatten(2), b))
        means.append(fourier_line(d.flatten(2), c).view(shape))
        details[-1] = details[-1].view(shape)
    s = layer.coarse(s)
    for u, v in zip(reversed(details), reversed(means), strict=True):
        s = torch.cat([s + v, u], dim=-1)
        fine = torch.zeros(len(s), 2 * s.shape[1], s.shape[2], s.shape[3] // 2, dtype=s.dtype)
        fine[:, ::2] = s @ torch.cat([h0, g0])
        fine[:, 1::2] = s @ torch.cat([h1, g1])
        s = fine
    return s


def on_square(layer: MultiwaveletLayer, s: Tensor) -> Tensor:
    """(batch, n, n, c, k^2)."""
    h0, h1, g0, g1 = plain_filters(int(s.shape[-1] ** 0.5))
    quarters = [(i, j) for i in (0, 1) for j in (0, 1)]
    wide_h = [torch.kron((h0, h1)[i], (h0, h1)[j]) for i, j in quarters]
    wide_g = [torch.kron((g0, g1)[i], (g0, g1)[j]) for i, j in quarters]

    def local(part: nn.Module, u: Tensor) -> Tensor:
        first = part.convolution
        v = conv2d(u.permute(0, 3, 1, 2), first.weight, first.bias, padding=1)
        return relu(v).permute(0, 2, 3, 1) @ part.linear.weight.T + part.linear.bias

    kernels, details, means = layer.kernels, [], []
    spectral = torch.view_as_complex(kernels.a.weight)
    while s.shape[1] > 2**layer.coarsest:
        parts = torch.cat([s[:, i::2, j::2] for i, j in quarters], dim=-1)
        d, s = (parts @ torch.cat([m.T for m in wide]) for wide in (wide_g, wide_h))
        shape = s.shape
        near = kernels.a.linear(relu(fourier_plane(d.flatten(3), spectral)))
        details.append((near + local(kernels.b, s.flatten(3))).view(shape))
        means.append(local(kernels.c, d.flatten(3)).view(shape))
    s = layer.coarse(s.flatten(3)).view(s.shape)
    for u, v in zip(reversed(details), reversed(means), strict=True):
        s = torch.cat([s + v, u], dim=-1)
        n, (c, k2) = s.shape[1], s.shape[3:]
        fine = torch.zeros(len(s), 2 * n, 2 * n, c, k2 // 2, dtype=s.dtype)
        for q, (i, j) in enumerate(quarters):
            fine[:, i::2, j::2] = s @ torch.cat([wide_h[q], wide_g[q]])
        s = fine
    return s


def plain_mwt(model: MWT, a: Tensor, x: Tensor) -> Tensor:
    """Output of the released network with the weights of a model of the project."""
    u = torch.cat([a, x.expand(len(a), *x.shape)], dim=-1)
    s = model.embed(u).unflatten(-1, model.shape)
    for i, layer in enumerate(model.layers):
        s = (on_line if model.dim == 1 else on_square)(layer, s)
        if i < len(model.layers) - 1:
            s = relu(s)
    first, _, last = model.decoder
    hidden = relu(s.flatten(-2) @ first.weight.T + first.bias)
    return hidden @ last.weight.T + last.bias
