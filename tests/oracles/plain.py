"""Common parts of oracles: linear maps, norms, MLPs, heads, products of spectra."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import gelu, layer_norm

Weights = dict[str, Tensor]


def affine(layer: nn.Module, u: Tensor) -> Tensor:
    """W u + b over the last axis."""
    return u @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def linear(w: Weights, name: str, u: Tensor) -> Tensor:
    """The same by the names of the weights."""
    u = u @ w[f"{name}.weight"].T
    return u + w[f"{name}.bias"] if f"{name}.bias" in w else u


def norm(w: Weights, name: str, u: Tensor) -> Tensor:
    """A layer norm by the names of its weights."""
    return layer_norm(u, u.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def pointwise(layer: nn.Module, u: Tensor) -> Tensor:
    """W u + b over the first axis after the batch, as a convolution of one point."""
    v = torch.einsum("oi,bi...->bo...", layer.weight.flatten(1), u)
    return v + layer.bias.view(-1, *[1] * (u.ndim - 2))


def around(layer: nn.Module, u: Tensor) -> Tensor:
    """A linear map of each point, or a convolution with the points around it; channels last."""
    if not hasattr(layer, "convolution"):
        return affine(layer, u)
    one, dim = layer.convolution, u.ndim - 2
    mode = "circular" if one.padding_mode == "circular" else "constant"
    filled = F.pad(u.movedim(-1, 1), [1] * (2 * dim), mode=mode)
    return getattr(F, f"conv{dim}d")(filled, one.weight, one.bias).movedim(1, -1)


def chain(layers, u: Tensor, act=gelu) -> Tensor:
    """Linear maps with an activation between."""
    maps = [layer for layer in layers if hasattr(layer, "weight")]
    for layer in maps[:-1]:
        u = act(affine(layer, u))
    return affine(maps[-1], u)


def residual(mlp: nn.Module, u: Tensor, act=gelu, first=False, last=False) -> Tensor:
    """Hidden layers with sums around each; around the first and the last map where asked for."""
    v = act(affine(mlp.first, u)) + (u if first else 0)
    for layer in mlp.hidden:
        v = act(affine(layer, v)) + v
    return affine(mlp.last, v) + (v if last else 0)


def gated(mlp: nn.Module, u: Tensor) -> Tensor:
    """A linear map times the GELU of another, and a third."""
    gates, values = affine(mlp.first, u).chunk(2, dim=-1)
    return affine(mlp.last, gelu(gates) * values)


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Softmax attention, one head after another."""
    found = []
    for qh, kh, vh in zip(*(u.chunk(heads, dim=-1) for u in (q, k, v)), strict=True):
        scores = qh @ kh.transpose(-1, -2) / qh.shape[-1] ** 0.5
        weights = scores.exp()
        found.append(weights / weights.sum(-1, keepdim=True) @ vh)
    return torch.cat(found, dim=-1)


def spectral(u: Tensor, weight: Tensor, modes) -> Tensor:
    """The corners of the spectrum of a real field, times their weights, and nothing else.

    Channels are first; `modes` is a number, or one for each axis.
    """
    dim, w = u.ndim - 2, torch.view_as_complex(weight)
    *before, last = [modes] * dim if isinstance(modes, int) else modes
    space = tuple(range(-dim, 0))
    u_hat = torch.fft.rfftn(u, dim=space)
    v_hat = u_hat.new_zeros(len(u), w.shape[-1], *u_hat.shape[2:])
    for signs in product((False, True), repeat=dim - 1):
        rows = [
            slice(-m, None) if minus else slice(m) for minus, m in zip(signs, before, strict=True)
        ]
        # those of negative frequencies are kept from -1 on
        block = w[tuple(map(int, signs))].flip([axis for axis, minus in enumerate(signs) if minus])
        at = (..., *rows, slice(last))
        v_hat[at] = torch.einsum("bi...,...io->bo...", u_hat[at], block)
    return torch.fft.irfftn(v_hat, s=u.shape[2:], dim=space)


def padded(u: Tensor, points: list[int]) -> Tensor:
    """So many zeros after the last point of each axis."""
    v = u.new_zeros(*u.shape[:2], *[n + p for n, p in zip(u.shape[2:], points, strict=True)])
    v[(..., *[slice(n) for n in u.shape[2:]])] = u
    return v
