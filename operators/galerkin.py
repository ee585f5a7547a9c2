r"""The Fourier/Galerkin Transformer: attention layers over grid points, a spectral decoder.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Operator, check_input
from operators.nn.attention import GALERKIN, AttentionKind, HeadNorm, PublishedDropout
from operators.nn.spectral import SpectralConv1d

Values = Float[Tensor, "batch n width"]
Points = Float[Tensor, "n p"]


class Projections(nn.Module):
    """The linear maps to queries, keys and values, with the initialisation that training needs.

    W = Xavier-uniform(gain η) + δ I for each of the three maps, biases 0 (Cao 2021, section 4).
    """

    def __init__(self, width: int, gain: float, diagonal: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, width, width))
        self.bias = nn.Parameter(torch.zeros(3, width))
        for w in self.weight.data:
            nn.init.xavier_uniform_(w, gain=gain)
            w.add_(torch.eye(width), alpha=diagonal)


class Attention(nn.Module):
    """Multi-head attention with the coordinates x as extra features of Q, K and V in every head.

    Args:
        width: Features d.
        heads: Heads h; each has d/h features of its own and the p coordinates.
        positions: Number p of coordinates.
        kind: The attention map.
        normalization: True normalises two of Q, K, V per head (`HeadNorm`).
        drop: Module applied to the attention matrix.
        eps, gain, diagonal: See `GalerkinTransformer`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        positions: int,
        kind: AttentionKind,
        normalization: bool,
        drop: nn.Module,
        eps: float,
        gain: float,
        diagonal: float,
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.drop = heads, kind, drop
        self.as_one_map = kind is GALERKIN
        self.project = Projections(width, gain, diagonal)
        features = width // heads
        if normalization:
            self.norm_key = HeadNorm(heads, features, eps)
            self.norm_other = HeadNorm(heads, features, eps)  # of the query or of the value
        else:
            self.norm_key = self.norm_other = nn.Identity()
        self.out = nn.Linear(width + heads * positions, width)

    def _head(self, u: Values, which: int) -> Tensor:
        """Project to heads: 0 queries, 1 keys, 2 values, each (batch, n, h, d/h)."""
        y = nn.functional.linear(u, self.project.weight[which], self.project.bias[which])
        return y.unflatten(-1, (self.heads, -1))

    def forward(self, u: Values, x: Points) -> Values:
        if self.as_one_map:
            return self._as_one_map(u, x)
        q, k, v = (self._head(u, which) for which in range(3))
        k = self.norm_key(k)
        if self.kind.normalizes_query:
            q = self.norm_other(q)
        else:
            v = self.norm_other(v)
        x = x[:, None].expand(*k.shape[:3], x.shape[-1])  # (batch, n, h, p)
        q, k, v = (torch.cat([x, y], dim=-1).transpose(1, 2) for y in (q, k, v))
        y = self.kind.apply(q, k, v, self.drop)  # (batch, h, n, p + d/h)
        return self.out(y.transpose(1, 2).flatten(2))

    def _as_one_map(self, u: Values, x: Points) -> Values:
        """Galerkin attention, evaluated as the one affine map of (x, u) that it is.

        With M = [x K]ᵀ[x V]/n and Q = u W_q + b_q, the output Σ_h [x Q_h] M_h W_h + b is
        x A + (u W_q + b_q) B + b with A, B = M_h W_h split by rows. Neither Q nor any n x (p + d)
        concatenation is formed: only d x d products remain beside K, V, KᵀV and u (W_q B).
        """
        n, p = x.shape
        k = self.norm_key(self._head(u, 1)).transpose(1, 2)  # (batch, h, n, d/h)
        v = self.norm_other(self._head(u, 2)).transpose(1, 2)
        if p:
            xs = x.expand(k.shape[0], k.shape[1], n, p)
            top = torch.cat([xs.mT @ xs, xs.mT @ v], -1)
            bottom = torch.cat([k.mT @ xs, k.mT @ v], -1)
            matrix = torch.cat([top, bottom], -2) / n  # (batch, h, p + d/h, p + d/h)
        else:
            matrix = (k.mT @ v) / n
        w_out = self.out.weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (h, p+d/h, d)
        product = self.drop(matrix) @ w_out  # (batch, h, p + d/h, d)
        a, b = product[:, :, :p].sum(1), product[:, :, p:].flatten(1, 2)  # (batch, p|d, d)
        offset = (self.project.bias[0] @ b + self.out.bias)[:, None]  # (batch, 1, d)
        base = torch.baddbmm(offset, x.expand(len(u), n, p), a)
        return base.baddbmm_(u, self.project.weight[0].T @ b)


class EncoderLayer(nn.Module):
    """u <- u + attention(u), u <- u + MLP(u); the former only where there is an attention.

    With `normalization` "head" the only norms are inside the attention; with "layer" a LayerNorm
    follows each of the two sums, and none is inside.
    """

    def __init__(
        self,
        attention: Attention | None,
        width: int,
        feedforward: int,
        post_norm: bool,
        eps: float,
        dropout: float,
        feedforward_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = nn.Sequential(
            nn.Linear(width, feedforward),
            nn.ReLU(),
            nn.Dropout(feedforward_dropout),
            nn.Linear(feedforward, width),
        )
        self.norm1 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps) if post_norm else nn.Identity()
        self.drop = nn.Dropout(dropout)

    def forward(self, u: Values, x: Points) -> Values:
        if self.attention is not None:
            u = self.norm1(u + self.drop(self.attention(u, x)))
        return self.norm2(u + self.drop(self.mlp(u)))


class SpectralLayer(nn.Module):
    """v = SiLU(W u + b + spectral convolution of u)."""

    def __init__(self, in_channels: int, out_channels: int, modes: int, dropout: float) -> None:
        super().__init__()
        self.pointwise = nn.Linear(in_channels, out_channels)
        self.convolution = SpectralConv1d(in_channels, out_channels, modes)
        self.drop = nn.Dropout(dropout)

    def forward(self, u: Float[Tensor, "batch n c_in"]) -> Float[Tensor, "batch n c_out"]:
        return nn.functional.silu(self.pointwise(u) + self.convolution(self.drop(u)))


class GalerkinTransformer(Operator):
    """Encoder of attention layers over the grid points, decoder of spectral convolutions (1-D).

    The defaults are the published settings of the Burgers example: 530,305 parameters.

    Args:
        in_channels, out_channels: Channels of a and of u.
        width: Features d of the encoder.
        depth: Number of attention layers.
        heads: Heads h; must divide the width.
        attention: The attention map; GALERKIN, FOURIER, SOFTMAX or LINEAR. None leaves the layers
            their MLPs alone, to measure what attention contributes.
        normalization: "head" (the paper's scheme: two of Q, K, V normalised per head), or
            "layer" (LayerNorm after each residual sum).
        feedforward: Hidden features of the MLP in each layer.
        modes: Modes kept by the decoder's spectral convolutions.
        decoder_width: Channels of the decoder.
        coordinates: "raw" appends x in [0, 1) to every head, as published; "periodic" appends
            cos 2πx and sin 2πx, which have no jump at the ends; "none" appends nothing: the
            operator then commutes with shifts of the grid.
        dropout, feedforward_dropout, decoder_dropout: Rates on the residual branches, inside
            the MLP, and before the decoder's transforms.
        attention_dropout: Rate on the attention matrix, in training only; "published" is p = 0.5
            in training and evaluation (`PublishedDropout`).
        gain, diagonal: η and δ of the initial projections, Xavier(η) + δI.
        eps: Added to the variance in layer norms.

    Raises:
        ValueError: On impossible sizes, and on input of another shape than declared.

    >>> model = GalerkinTransformer()
    >>> model.parameter_count
    530305
    >>> model(torch.randn(2, 64, 1), torch.arange(64)[:, None] / 64).shape
    torch.Size([2, 64, 1])
    """

    dim = 1

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 96,
        depth: int = 4,
        heads: int = 1,
        attention: AttentionKind | None = GALERKIN,
        normalization: Literal["head", "layer"] = "head",
        feedforward: int = 192,
        modes: int = 16,
        decoder_width: int = 48,
        coordinates: Literal["raw", "periodic", "none"] = "raw",
        dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
        decoder_dropout: float = 0.0,
        attention_dropout: float | Literal["published"] = 0.0,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide width, got heads={heads}, width={width}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.coordinates = coordinates
        positions = {"raw": 1, "periodic": 2, "none": 0}[coordinates]
        head_norm = normalization == "head"

        def drop() -> nn.Module:
            if attention_dropout == "published":
                return PublishedDropout()
            return nn.Dropout(attention_dropout)

        def layer() -> EncoderLayer:
            heads_map = attention and Attention(
                width, heads, positions, attention, head_norm, drop(), eps, gain, diagonal
            )
            return EncoderLayer(
                heads_map, width, feedforward, not head_norm, eps, dropout, feedforward_dropout
            )

        self.embed = nn.Linear(in_channels, width)
        self.encoder = nn.ModuleList(layer() for _ in range(depth))
        self.decoder = nn.Sequential(
            SpectralLayer(width, decoder_width, modes, decoder_dropout),
            SpectralLayer(decoder_width, decoder_width, modes, decoder_dropout),
            nn.Linear(decoder_width, decoder_width),
            nn.SiLU(),
            nn.Linear(decoder_width, out_channels),
        )

    def positions(self, x: Float[Tensor, "n 1"]) -> Points:
        """The coordinate features of the heads, shape (n, p)."""
        if self.coordinates == "raw":
            return x
        if self.coordinates == "none":
            return x[:, :0]
        return torch.cat([torch.cos(2 * torch.pi * x), torch.sin(2 * torch.pi * x)], dim=-1)

    def forward(
        self, a: Float[Tensor, "batch n c_in"], x: Float[Tensor, "n 1"]
    ) -> Float[Tensor, "batch n c_out"]:
        check_input(self, a, x)
        p = self.positions(x)
        u = self.embed(a)
        for layer in self.encoder:
            u = layer(u, p)
        return self.decoder(u)
