r"""The Fourier/Galerkin Transformer on a square: convolutions around attention on a coarse grid.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, sections 5.2 and 5.3.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask, Operator, Preset, at_least, check_input
from operators.nn.attention import GALERKIN, AttentionKind
from operators.nn.encoder import attention_layers
from operators.nn.pointwise import Dropout, mlp
from operators.nn.resample import check_products, interpolated, resized, resized_grid
from operators.nn.spectral import SpectralConv2d, SpectralLayer

Grid = Float[Tensor, "n1 n2 2"]
TargetGrid = Float[Tensor, "m1 m2 2"]
Size = tuple[int, int]


def size(x: Tensor) -> Size:
    """Numbers of points along the two axes of a grid."""
    return x.shape[0], x.shape[1]


def geometric(fine: int, coarse: int) -> tuple[int, int]:
    """Sizes of the intermediate grids on the way down and on the way up, both √(fine · coarse).

    The two steps, from the fine to the intermediate and from there to the coarse grid, then have
    the same ratio.

    >>> geometric(141, 43)
    (78, 78)
    """
    intermediate = round(math.sqrt(fine * coarse))
    return intermediate, intermediate


def published(fine: int, coarse: int) -> tuple[int, int]:
    """Sizes of the intermediate grids on the way down and up, as in the released code.

    With n = fine and a ratio s they are ⌊n s⌋ on the way down and [n s] - 1 on the way up; the
    brackets [ ] round to the nearest integer. Let r be √(coarse/fine) to four decimals. To find s,
    r is rounded to three decimals, 0.005 is added if the last nonzero decimal of r is below 5, and
    the result is rounded to a multiple of 0.005. The floating-point operations are those of the
    released code, because n s may round to either side of a whole number. That code has ⌊⌊n s⌋ s⌋
    coarse points and fails if this differs from `coarse`.

    >>> published(141, 43)
    (78, 77)
    """
    decimals = round(math.sqrt(coarse / fine) * 1e4)
    last = 0 if decimals % 10_000 == 0 else int(str(decimals).rstrip("0")[-1])
    ratio = round(decimals / 1e4 * 1e3) / 1e3
    s = int((ratio + 5e-3 * (last < 5)) / 5e-3 + 0.5) * 5e-3
    return math.floor(fine * s), round(fine * s) - 1


INTERMEDIATE = {"geometric": geometric, "published": published}


class Convolution(nn.Module):
    """A 3 x 3 convolution with zero padding and without bias, followed by dropout."""

    def __init__(self, in_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.drop = Dropout(dropout)

    def forward(self, u: Function) -> Float[Tensor, "batch n1 n2 c_out"]:
        # channels stay last in memory: the permutations copy nothing
        return self.drop(self.convolution(u.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class Downscaler(nn.Module):
    """Convolutions on a fine grid and on an intermediate grid, each followed by interpolation.

    The results of the three convolutions on the intermediate grid are concatenated and interpolated
    to a coarse grid. An activation acts before and after each interpolation, as published. For ReLU
    the activation after an interpolation is left out, because interpolated values are nonnegative
    already.

    Args:
        in_channels, width: Numbers of channels of the input and of the output.
        activation: "relu" or "silu".
        dropout: Dropout rate after each convolution.
    """

    def __init__(
        self, in_channels: int, width: int, activation: Literal["relu", "silu"], dropout: float
    ) -> None:
        super().__init__()
        third = width // 3
        channels = (width, third, third, width - 2 * third)
        self.lift = Convolution(in_channels, width, dropout)
        self.convolutions = nn.ModuleList(
            Convolution(c_in, c_out, dropout) for c_in, c_out in pairwise(channels)
        )
        self.activation = nn.ReLU() if activation == "relu" else nn.SiLU()
        self.second_activation = nn.Identity() if activation == "relu" else nn.SiLU()

    def forward(
        self, a: Function, x: Grid, middle: Size, coarse: Size, y: TargetGrid | None
    ) -> Float[Tensor, "batch _ _ width"]:
        """Features at the points y, or, if y is None, at `coarse` points spread evenly over x."""
        u = self.second_activation(resized(self.activation(self.lift(a)), *middle))
        parts: list[Tensor] = []
        for convolution in self.convolutions:
            u = self.activation(convolution(u))
            parts.append(u)
        u = torch.cat(parts, dim=-1)
        u = resized(u, *coarse) if y is None else interpolated(u, resized_grid(x, *middle), y)
        return self.second_activation(u)


class Upscaler(nn.Module):
    """Interpolation to an intermediate grid, a convolution, SiLU, dropout, and SiLU again."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = Convolution(width, width, dropout)
        self.drop = Dropout(dropout)

    def forward(self, u: Function, middle: Size) -> Float[Tensor, "batch _ _ c"]:
        u = self.convolution(resized(u, *middle))
        return nn.functional.silu(self.drop(nn.functional.silu(u)))


Settings = dict[str, object]
# Table 7 lists GT and FT only; as in the released code, ST is set as FT, and LT as GT
_PRESSURE: dict[str, Settings] = {
    "gt": {},
    "ft": {"attention": "fourier", "gain": 1e-3, "feedforward_dropout": 0.1},
    "st": {"attention": "softmax", "gain": 1e-3, "feedforward_dropout": 0.1},
    "lt": {"attention": "linear"},
}
# Table 7 for GT and FT; the code sets the residual dropout to 0.1 for attention with a softmax
_COEFFICIENT: dict[str, Settings] = {
    "gt": {},
    "ft": {"attention": "fourier"},
    "st": {"attention": "softmax", "dropout": 0.1},
    "lt": {"attention": "linear", "dropout": 0.1},
}
_INVERSE: Settings = {
    "width": 192, "feedforward": 384, "latent": "output", "decoder": "pointwise",
    "activation": "silu", "upscaler_dropout": 0.05, "dropout": 0.05, "feedforward_dropout": 0.05,
    "head_dropout": 0.05, "latent_dropout": 0.05, "intermediate": "published",
}  # fmt: skip
_FORWARD: Settings = {"intermediate": "published"}
_FORWARD_211 = _FORWARD | {"latent": 61, "eps": 1e-5}


class GalerkinTransformer2d(Operator):
    """Convolutions down to a coarse grid, attention over its points, convolutions up, a decoder.

    The defaults are the published settings of the Darcy example on 141 x 141 points (2,220,829
    parameters), except for the sizes of the intermediate grids. The presets are the settings for
    141 and for 211 points along each side, and for the inverse problem (2,383,873 parameters at
    both resolutions). Each comes with four kinds of attention: GT (GALERKIN), FT (FOURIER), ST
    (SOFTMAX) and LT (LINEAR). In evaluation the presets compute the functions of the released code
    (scaomath/galerkin-transformer, commit f9e7d6a), except for two features that are left out here.
    That code never turns off dropout on the attention matrix, and it sets a ring of zeros around
    the solution.

    Dropout rates are those of Table 7. The rates that it lists for "attention" are applied on the
    residual branches. The command lines of the released code differ from the table by up to 0.05.

    Grids are products of two uniform axes; component i of the coordinates varies along axis i.
    Attention and decoder take the coordinates of their points as features. If `y` is None, all
    grids have the same ends, and values are interpolated by index, which is fastest. Otherwise
    values are interpolated by coordinates, because y may have other ends than x, for example on
    grids of cell centres. In evaluation, points x or y that are no product grid are then refused.
    Beyond the outermost points x values are constant.

    Convolution kernels cover 3 x 3 points at every resolution, not a fixed length. The operator
    accepts every grid, but its values do not converge as grids are refined.

    Args:
        width: Number of features in the encoder.
        depth: Number of attention layers.
        heads: Number of heads; must divide the width.
        attention: The attention map, see `operators.models.galerkin.GalerkinTransformer`.
        normalization: "head", "instance" or "layer", see
            `operators.models.galerkin.GalerkinTransformer`.
        feedforward: Hidden features of the MLP in each layer.
        latent: Number of points along each side of the coarse grid, which extends from end to end
            of x. "output": the coarse grid is the grid of the output, y (or x if y is None).
        intermediate: Sizes of the intermediate grids between n fine and m coarse points.
            "geometric": √(n m) points along each axis. "published": the sizes of the released code,
            which first rounds the ratio of successive sizes, and has one point less on the way up.
            With latent "output" there is no intermediate grid on the way up.
        decoder: "spectral": two spectral convolutions, for smooth functions. "pointwise": an MLP at
            each point, for functions with jumps.
        modes, decoder_width: Numbers of modes and of channels of the spectral convolutions.
        head_width: Hidden features of the last two linear layers of the spectral decoder.
        activation: Activation of the convolutions before the encoder, "relu" or "silu".
        downscaler_dropout, upscaler_dropout: Dropout rates after the convolutions before and after
            the encoder.
        latent_dropout: Dropout rate before the encoder and before the decoder.
        dropout, feedforward_dropout: Dropout rates on the residual branches and inside the MLP.
        decoder_dropout: Dropout rate before the transforms of the decoder.
        head_dropout: Dropout rate inside the pointwise decoder.
        attention_dropout: Dropout rate on the attention matrix, in training only. "published", as
            in the released code: rate 0.5 in training and in evaluation (`PublishedDropout`).
        gain, diagonal: Factors η and δ of the initial weights of the projections, Xavier(η) + δI.
        eps: Number added to the variance in layer norms. Published: 1e-7 for the inverse problem
            and for grids of fewer than 211 points along each side, otherwise 1e-5.
    """

    dims = (2,)
    other_points = True
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
    presets: ClassVar[Mapping[str, Preset]] = {
        f"darcy-{problem}-{kind}": Preset(
            common | settings, parameters, f"Cao 2021, Table {table}, and its code", dim=2
        )
        for problem, common, kinds, parameters, table in (
            ("141", _FORWARD, _PRESSURE, 2_220_829, "2b"),
            ("211", _FORWARD_211, _PRESSURE, 2_220_829, "2b"),
            ("inverse", _INVERSE, _COEFFICIENT, 2_383_873, "3"),
        )
        for kind, settings in kinds.items()
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
        attention: AttentionKind | None = GALERKIN,
        normalization: Literal["head", "layer", "instance"] = "head",
        feedforward: int = 256,
        latent: int | Literal["output"] = 43,
        intermediate: Literal["geometric", "published"] = "geometric",
        decoder: Literal["spectral", "pointwise"] = "spectral",
        modes: int = 12,
        decoder_width: int = 32,
        head_width: int = 128,
        activation: Literal["relu", "silu"] = "relu",
        downscaler_dropout: float = 0.05,
        upscaler_dropout: float = 0.0,
        latent_dropout: float = 0.0,
        dropout: float = 0.1,
        feedforward_dropout: float = 0.05,
        decoder_dropout: float = 0.0,
        head_dropout: float = 0.0,
        attention_dropout: float | Literal["published"] = 0.0,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
        eps: float = 1e-7,
    ) -> None:
        super().__init__(in_channels, out_channels, 2)
        at_least(2, latent=2 if latent == "output" else latent)
        at_least(3, width=width)
        if head_dropout and decoder != "pointwise":
            raise ValueError(f'head_dropout needs decoder "pointwise", got {decoder!r}')
        self.latent: int | Literal["output"] = latent
        self.intermediate = INTERMEDIATE[intermediate]
        self.downscaler = Downscaler(in_channels, width, activation, downscaler_dropout)
        self.encoder = attention_layers(
            depth, width, heads, self.dim, attention, normalization, feedforward, dropout,
            feedforward_dropout, attention_dropout, eps, gain, diagonal,
        )  # fmt: skip
        self.upscaler = Upscaler(width, upscaler_dropout)
        self.drop = Dropout(latent_dropout)
        channels = decoder_width if decoder == "spectral" else width
        self.embed = nn.Linear(width + self.dim, channels)
        if decoder == "spectral":
            self.decoder = nn.Sequential(
                SpectralLayer(SpectralConv2d, channels, channels, modes, decoder_dropout),
                SpectralLayer(SpectralConv2d, channels, channels, modes, decoder_dropout),
                *mlp(channels, head_width, out_channels, activation=nn.SiLU),
            )
        else:
            self.decoder = nn.Sequential(
                nn.Linear(channels, channels),
                nn.SiLU(),
                Dropout(head_dropout),
                nn.Linear(channels, out_channels),
            )

    def intermediate_sizes(self, fine: Size, coarse: Size) -> tuple[Size, Size]:
        """Sizes of the intermediate grids on the way down and on the way up."""
        down, up = zip(*map(self.intermediate, fine, coarse), strict=True)
        return down, up

    def forward(
        self, a: Function, x: Grid, y: TargetGrid | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch _ _ c_out"]:
        check_input(self, a, x, y, mask)
        if y is not None and not (self.training or torch.compiler.is_compiling()):
            check_products(x, y)
        target = x if y is None else y
        if self.latent == "output":
            coarse, points = size(target), target
            u = self.downscaler(a, x, self.intermediate_sizes(size(x), coarse)[0], coarse, y)
            upscaled = coarse
        else:
            coarse = self.latent, self.latent
            points = resized_grid(x, *coarse)
            u = self.downscaler(a, x, self.intermediate_sizes(size(x), coarse)[0], coarse, None)
            upscaled = self.intermediate_sizes(size(target), coarse)[1]
        u, positions = self.drop(u).flatten(1, 2), points.flatten(0, 1)  # points as tokens
        for layer in self.encoder:
            u = layer(u, positions)
        u = self.upscaler(u.unflatten(1, coarse), upscaled)

        w, p = self.embed.weight, self.dim
        if self.drop.active:
            u = nn.functional.linear(self.drop(self.on_target(u, x, y)), w[:, :-p])
        else:
            # a linear map of the features commutes with interpolation; done first, it leaves fewer
            # features to interpolate
            u = self.on_target(nn.functional.linear(u, w[:, :-p]), x, y)
        return self.decoder(u + nn.functional.linear(target, w[:, -p:], self.embed.bias))

    def on_target(
        self, u: Float[Tensor, "batch _ _ c"], x: Grid, y: TargetGrid | None
    ) -> Float[Tensor, "batch _ _ c"]:
        """The features u of the upscaler, interpolated to the points of the output."""
        if y is None or self.latent == "output":
            return resized(u, *size(x if y is None else y))
        return interpolated(u, resized_grid(x, u.shape[1], u.shape[2]), y)
