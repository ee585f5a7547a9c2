"""The Galerkin Transformer of the Darcy examples, written down as its publication describes it.

Channels first where the convolutions are, torch.fft for the spectral layers, every activation and
interpolation where the published code has it; nothing is fused or rearranged. The oracle of the
tests, and the baseline of the benchmarks.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu

from operators.models.galerkin2d import GalerkinTransformer2d
from tests.oracles.plain_galerkin import PlainLayer


def resize(u: Tensor, n: int) -> Tensor:
    return interpolate(u, size=(n, n), mode="bilinear", align_corners=True)


def convolution(c_in: int, c_out: int) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel_size=3, stride=1, padding=1, bias=False)


def released_ratio(n_f: int, n_c: int) -> Decimal:
    """Ratio of one of the two steps between n_f and n_c points, in the released code.

    √(n_c/n_f) is written with four decimals, trailing zeros dropped. Where the last digit is below
    5, its three decimals grow by 0.005. Then it goes to the nearest multiple of 0.005.
    """
    ratio = Decimal(n_c / n_f).sqrt().quantize(Decimal("0.0001"), ROUND_HALF_EVEN)
    digits = format(ratio, "f").rstrip("0")  # of a whole number the point is last, its digit a 0
    last = 0 if digits[-1] == "." else int(digits[-1])
    ratio = ratio.quantize(Decimal("0.001"), ROUND_HALF_EVEN)
    if last < 5:
        ratio += Decimal("0.005")
    step = Decimal("0.005")
    return (ratio / step).quantize(Decimal(1), ROUND_HALF_UP) * step


def released_sizes(n_f: int, n_c: int) -> tuple[int, int]:
    """Intermediate sizes, down and up, by the rule of the released code in exact decimals.

    Down, the size is the whole part of ratio times n_f; up, the nearest whole number less one. The
    released code has binary fractions, which go either way where the product is a multiple of ½.
    """
    product = released_ratio(n_f, n_c) * n_f
    return int(product), int(product.quantize(Decimal(1), ROUND_HALF_EVEN)) - 1


class PlainDownscaler(nn.Module):
    def __init__(self, width: int, activation: str, dropout: float) -> None:
        super().__init__()
        third = width // 3
        self.conv0, self.conv1 = convolution(1, width), convolution(width, third)
        self.conv2, self.conv3 = convolution(third, third), convolution(third, width - 2 * third)
        self.drop = nn.Dropout(dropout)
        self.activation = {"relu": torch.relu, "silu": silu}[activation]

    def forward(self, a: Tensor, n_m: int, n_c: int) -> Tensor:
        act = self.activation
        u = act(self.drop(self.conv0(a)))
        u = act(resize(u, n_m))
        x1 = act(self.drop(self.conv1(u)))
        x2 = act(self.drop(self.conv2(x1)))
        x3 = act(self.drop(self.conv3(x2)))
        return act(resize(torch.cat([x1, x2, x3], dim=1), n_c))


class PlainSpectralLayer2d(nn.Module):
    def __init__(self, c_in: int, c_out: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.pointwise = nn.Linear(c_in, c_out)
        self.weight1, self.weight2 = (
            nn.Parameter(torch.zeros(c_in, c_out, modes, modes, 2)) for _ in range(2)
        )

    def forward(self, u: Tensor) -> Tensor:
        n1, n2, m = u.shape[1], u.shape[2], self.modes
        spectrum = torch.fft.rfft2(u.permute(0, 3, 1, 2), norm="ortho")
        full = torch.zeros(
            len(u), self.weight1.shape[1], n1, n2 // 2 + 1, dtype=spectrum.dtype, device=u.device
        )
        for rows, weight in ((slice(0, m), self.weight1), (slice(-m, None), self.weight2)):
            low = spectrum[:, :, rows, :m]
            full[:, :, rows, :m] = torch.einsum(
                "bixy,ioxy->boxy", low, torch.view_as_complex(weight)
            )
        convolution = torch.fft.irfft2(full, s=(n1, n2), norm="ortho").permute(0, 2, 3, 1)
        return silu(self.pointwise(u) + convolution)


class PlainGalerkinTransformer2d(nn.Module):
    """`inverse` takes the pointwise decoder on the coarse grid; otherwise the spectral one."""

    def __init__(
        self, width: int = 128, depth: int = 6, heads: int = 4, feedforward: int = 256,
        n_c: int = 43, inverse: bool = False, modes: int = 12, decoder_width: int = 32,
        head_width: int = 128, activation: str = "relu", dropout: float = 0.0,
        encoder_dropout: float = 0.0, feedforward_dropout: float = 0.0, eps: float = 1e-7,
        released: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.inverse, self.n_c, self.released = inverse, n_c, released
        self.down = PlainDownscaler(width, activation, dropout)
        self.layers = nn.ModuleList(
            PlainLayer(width, heads, feedforward, 2, eps, encoder_dropout, feedforward_dropout)
            for _ in range(depth)
        )
        self.up = convolution(width, width)
        if inverse:
            self.embed = nn.Linear(width + 2, width)
            self.head1, self.head2 = nn.Linear(width, width), nn.Linear(width, 1)
        else:
            self.embed = nn.Linear(width + 2, decoder_width)
            self.spectral1, self.spectral2 = (
                PlainSpectralLayer2d(decoder_width, decoder_width, modes) for _ in range(2)
            )
            self.head1, self.head2 = nn.Linear(decoder_width, head_width), nn.Linear(head_width, 1)

    def forward(self, a: Tensor, x: Tensor, y: Tensor | None = None) -> Tensor:
        batch, n_f = a.shape[:2]
        n_c = self.n_c
        coarse = resize(x.permute(2, 0, 1)[None], n_c)[0].permute(1, 2, 0) if y is None else y
        n_down = released_sizes(n_f, n_c)[0] if self.released else round((n_f * n_c) ** 0.5)
        u = self.down(a.permute(0, 3, 1, 2), n_down, n_c)
        u = u.flatten(2).transpose(1, 2)
        for layer in self.layers:
            u = layer(u, coarse.reshape(n_c * n_c, 2))
        u = u.transpose(1, 2).reshape(batch, -1, n_c, n_c)
        n_out = n_c if self.inverse else n_f
        n_up = round((n_out * n_c) ** 0.5)
        if self.released and not self.inverse:
            n_up = released_sizes(n_f, n_c)[1]
        u = resize(u, n_up)
        u = silu(silu(self.up(u)))
        u = resize(u, n_out).permute(0, 2, 3, 1)
        fine = coarse if self.inverse else x
        u = self.embed(torch.cat([u, fine.expand(batch, *fine.shape)], dim=-1))
        if not self.inverse:
            u = self.spectral2(self.spectral1(u))
        return self.head2(silu(self.head1(u)))

    @torch.no_grad()
    def copy_from(self, model: GalerkinTransformer2d) -> None:
        """Take over the weights of the project's model."""
        self.down.conv0.load_state_dict(model.downscaler.lift.convolution.state_dict())
        for name, ours in zip(
            ("conv1", "conv2", "conv3"), model.downscaler.convolutions, strict=True
        ):
            getattr(self.down, name).load_state_dict(ours.convolution.state_dict())
        for plain, layer in zip(self.layers, model.encoder, strict=True):
            plain.copy_from(layer)
        self.up.load_state_dict(model.upscaler.convolution.convolution.state_dict())
        self.embed.load_state_dict(model.embed.state_dict())
        if not self.inverse:
            for plain, layer in zip(
                (self.spectral1, self.spectral2), model.decoder[:2], strict=True
            ):
                plain.pointwise.load_state_dict(layer.pointwise.state_dict())
                # (2, k₁, k₂, in, out, 2); the published second block runs k₁ = -m ... -1
                w1, w2 = layer.convolution.weight.permute(0, 3, 4, 1, 2, 5)
                plain.weight1.copy_(w1)
                plain.weight2.copy_(w2.flip(2))
        head = [layer for layer in model.decoder if isinstance(layer, nn.Linear)]
        self.head1.load_state_dict(head[0].state_dict())
        self.head2.load_state_dict(head[1].state_dict())
