"""Latent functions of attention layers, and singular values of their heads.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, Figure 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.nn.encoder import EncoderLayer, Heads, Points, Real, Values

Spectrum = Float[Tensor, "*batch r"]


@dataclass(frozen=True)
class Latent:
    """Features of one layer for one input. Columns of `after` are functions at the n points.

    Args:
        before, after: Features before and after the layer, shape (batch, n, width).
        added: Features that attention adds to `before`.
        heads: Output of each head, Q (KᵀV)/n for Galerkin attention, shape (batch, heads, n, d).
    """

    before: Values
    after: Values
    added: Values
    heads: Heads

    @property
    def spectra(self) -> Float[Tensor, "batch h r"]:
        """Singular values of the output of each head; see `spectrum`."""
        return spectrum(self.heads)


def spectrum(z: Float[Tensor, "*batch n d"]) -> Spectrum:
    """Singular values of the columns of z as functions, with the inner product ⟨f, g⟩ = Σ f g / n.

    >>> x = torch.arange(64) / 64 * 2 * torch.pi
    >>> spectrum(torch.stack([3 * torch.sin(x), torch.cos(x)], -1)) * 2**0.5
    tensor([3.0000, 1.0000])
    """
    return torch.linalg.svdvals(z) / math.sqrt(z.shape[-2])


def effective_rank(s: Spectrum) -> Float[Tensor, " *batch"]:
    """exp(-Σ p log p) with the shares p = s²/Σs²: r for r equal singular values.

    >>> effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0]))
    tensor(3.)
    """
    p = s.square() / s.square().sum(-1, keepdim=True)
    return torch.special.entr(p).sum(-1).exp()


def latents(model: nn.Module, call: Callable[[], object]) -> list[Latent]:
    """The attention layers of a model, in order, at their first evaluation during a call.

    Args:
        model: A model with layers of `operators.nn.encoder`; other layers are ignored.
        call: Function that evaluates the model.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, EncoderLayer)]
    layers = [layer for layer in layers if layer.attention is not None]
    evaluated: dict[nn.Module, tuple[Values, Points, Real, Values]] = {}

    def see(layer: nn.Module, inputs: tuple[Values, Points] | tuple[Values, Points, Real],
            after: Values) -> None:  # fmt: skip
        u, x, mask = inputs if len(inputs) == 3 else (*inputs, None)
        evaluated.setdefault(layer, (u, x, mask, after))

    handles = [layer.register_forward_hook(see) for layer in layers]
    try:
        with torch.no_grad():
            call()
            return [_latent(layer, *evaluated[layer]) for layer in layers if layer in evaluated]
    finally:
        for handle in handles:
            handle.remove()


def _latent(layer: EncoderLayer, u: Values, x: Points, mask: Real, after: Values) -> Latent:
    assert layer.attention is not None
    heads = layer.attention.mapped(*layer.attention.of_heads(u, x, mask), mask)
    return Latent(u, after, layer.attention(u, x, mask), heads)
