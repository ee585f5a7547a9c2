"""The Galerkin Transformer of the Burgers example, written down as its publication describes it.

Nothing is fused or rearranged: one layer norm for each head in a loop, coordinates concatenated
into Q, K and V, a map for each of Q, K, V, the complex product of the spectral layers as four real
ones. The oracle of the tests, and the baseline of the benchmarks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from operators.models.galerkin import GalerkinTransformer
from operators.nn.encoder import EncoderLayer


class PlainAttention(nn.Module):
    def __init__(self, width: int, heads: int, positions: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norms_key = nn.ModuleList(nn.LayerNorm(self.size, eps) for _ in range(heads))
        self.norms_value = nn.ModuleList(nn.LayerNorm(self.size, eps) for _ in range(heads))
        self.out = nn.Linear(width + heads * positions, width)

    def forward(self, u: Tensor, x: Tensor) -> Tensor:
        batch, n, _ = u.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, n, self.heads, self.size).transpose(1, 2)

        q, k, v = split(self.query(u)), split(self.key(u)), split(self.value(u))
        k = torch.stack([norm(k[:, h]) for h, norm in enumerate(self.norms_key)], dim=1)
        v = torch.stack([norm(v[:, h]) for h, norm in enumerate(self.norms_value)], dim=1)
        positions = x.expand(batch, self.heads, n, x.shape[-1])
        q, k, v = (torch.cat([positions, y], dim=-1) for y in (q, k, v))
        matrix = torch.matmul(k.transpose(-2, -1), v) / n
        y = torch.matmul(q, matrix).transpose(1, 2).contiguous().view(batch, n, -1)
        return self.out(y)


class PlainLayer(nn.Module):
    def __init__(
        self, width: int, heads: int, feedforward: int, positions: int = 1, eps: float = 1e-5,
        dropout: float = 0.0, feedforward_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.drop, self.drop_hidden = nn.Dropout(dropout), nn.Dropout(feedforward_dropout)
        self.attention = PlainAttention(width, heads, positions, eps)
        self.up, self.down = nn.Linear(width, feedforward), nn.Linear(feedforward, width)

    def forward(self, u: Tensor, x: Tensor) -> Tensor:
        u = u + self.drop(self.attention(u, x))
        return u + self.drop(self.down(self.drop_hidden(torch.relu(self.up(u)))))

    @torch.no_grad()
    def copy_from(self, layer: EncoderLayer) -> None:
        """Take over the weights of a layer of the project's models."""
        attention = layer.attention
        for i, name in enumerate(("query", "key", "value")):
            getattr(self.attention, name).weight.copy_(attention.project.weight[i])
            getattr(self.attention, name).bias.copy_(attention.project.bias[i])
        for name, norm in (("norms_key", "norm_key"), ("norms_value", "norm_other")):
            for h, one in enumerate(getattr(self.attention, name)):
                one.weight.copy_(getattr(attention, norm).weight[h])
                one.bias.copy_(getattr(attention, norm).bias[h])
        self.attention.out.load_state_dict(attention.out.state_dict())
        self.up.load_state_dict(layer.mlp[0].state_dict())
        self.down.load_state_dict(layer.mlp[3].state_dict())


class PlainSpectralLayer(nn.Module):
    def __init__(self, c_in: int, c_out: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.pointwise = nn.Linear(c_in, c_out)
        self.weight = nn.Parameter(torch.zeros(c_in, c_out, modes, 2))

    def forward(self, u: Tensor) -> Tensor:
        n = u.shape[1]
        spectrum = torch.fft.rfft(u.transpose(1, 2), dim=-1, norm="ortho")
        low = torch.view_as_real(spectrum[..., : self.modes])
        re, im = low[..., 0], low[..., 1]
        w_re, w_im = self.weight[..., 0], self.weight[..., 1]

        def product(f: Tensor, w: Tensor) -> Tensor:
            return torch.einsum("bim,iom->bom", f, w)

        result = torch.stack(
            [product(re, w_re) - product(im, w_im), product(im, w_re) + product(re, w_im)], dim=-1
        )
        full = torch.zeros(*result.shape[:2], n // 2 + 1, dtype=spectrum.dtype, device=u.device)
        full[..., : self.modes] = torch.view_as_complex(result)
        convolution = torch.fft.irfft(full, n=n, dim=-1, norm="ortho").transpose(1, 2)
        return torch.nn.functional.silu(self.pointwise(u) + convolution)


class PlainGalerkinTransformer(nn.Module):
    def __init__(
        self, width: int = 96, depth: int = 4, heads: int = 1, feedforward: int = 192,
        modes: int = 16, decoder_width: int = 48,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.layers = nn.ModuleList(PlainLayer(width, heads, feedforward) for _ in range(depth))
        self.spectral1 = PlainSpectralLayer(width, decoder_width, modes)
        self.spectral2 = PlainSpectralLayer(decoder_width, decoder_width, modes)
        self.head1, self.head2 = (
            nn.Linear(decoder_width, decoder_width),
            nn.Linear(decoder_width, 1),
        )

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        u = self.embed(a)
        for layer in self.layers:
            u = layer(u, x)
        u = self.spectral2(self.spectral1(u))
        return self.head2(torch.nn.functional.silu(self.head1(u)))

    @torch.no_grad()
    def copy_from(self, model: GalerkinTransformer) -> None:
        """Take over the weights of the project's model."""
        self.embed.load_state_dict(model.embed.state_dict())
        for plain, layer in zip(self.layers, model.encoder, strict=True):
            plain.copy_from(layer)
        for plain, layer in zip((self.spectral1, self.spectral2), model.decoder[:2], strict=True):
            plain.pointwise.load_state_dict(layer.pointwise.state_dict())
            plain.weight.copy_(layer.convolution.weight.permute(1, 2, 0, 3))
        self.head1.load_state_dict(model.decoder[2].state_dict())
        self.head2.load_state_dict(model.decoder[4].state_dict())
