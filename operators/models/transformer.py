r"""The Transformer encoder over the points of a grid, with coordinates appended to the input.

References: A. Vaswani et al., Attention Is All You Need, NeurIPS 2017. R. Xiong et al., On Layer
Normalization in the Transformer Architecture, ICML 2020. Z. Shen et al., Efficient Attention,
WACV 2021.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import nn

from operators.base import MESHES, Function, Preset
from operators.nn.attention import EFFICIENT, GALERKIN, SOFTMAX
from operators.nn.encoder import Attention, normed_mlp
from operators.nn.pointwise import Dropout, alternating, mlp
from operators.nn.spectral import SPECTRAL_CONVOLUTIONS
from operators.nn.tokens import (
    Coordinates,
    FieldOperator,
    Positions,
    Real,
    Tokens,
    check_heads,
    sinusoids,
)

_SLIDES = "S. Cao, slides on the Galerkin Transformer: {}; sizes are our interpretation"
_FIRST = {"depth": 4, "normalization": "post", "activation": "relu"}
_VANILLA = _FIRST | {"width": 768, "feedforward": 2048}
_SMALL = {"width": 96, "heads": 1, "feedforward": 192}
_EFFICIENT = _FIRST | _SMALL | {"attention": "galerkin", "decoder": "spectral"}


class TransformerLayer(nn.Module):
    """Residual sums with f = attention, then with f = pointwise MLP, and a LayerNorm N for each.

    If `normalization` is "pre", u <- u + f(N u). If it is "post", u <- N(u + f(u)).

    Args:
        attention: Attention among the points, without coordinates.
        width, feedforward: Features of u and hidden features of the MLP.
        normalization, activation, dropout: Position of N, activation of the MLP, and dropout rate
            of the results of f; see `Transformer`.
    """

    def __init__(
        self,
        attention: Attention,
        width: int,
        feedforward: int,
        normalization: Literal["pre", "post"],
        activation: Literal["gelu", "relu"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.pre = attention, normalization == "pre"
        self.gelu = activation == "gelu"
        self.mlp = mlp(width, feedforward, width, activation=nn.GELU if self.gelu else nn.ReLU)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = Dropout(dropout)

    def forward(self, u: Tokens, mask: Real | None = None) -> Tokens:
        no_coordinates = u.new_empty(u.shape[1], 0)
        if self.pre and self.gelu and not self.drop.active:
            u = self.attention.added_normed(u, self.norm1, mask)
            return normed_mlp(u, self.norm2, self.mlp, added=True)
        if self.pre:
            u = u + self.drop(self.attention(self.norm1(u), no_coordinates, mask))
            return u + self.drop(self.mlp(self.norm2(u)))
        u = self.norm1(u + self.drop(self.attention(u, no_coordinates, mask)))
        return self.norm2(u + self.drop(self.mlp(u)))


class Transformer(FieldOperator):
    """A linear map of (a, x), layers of attention and pointwise MLPs, and a decoder.

    The defaults are the usual sizes of pointwise benchmarks (8 layers of width 128, 8 heads). The
    presets are the two baselines of the talk on the Galerkin Transformer (Cao 2021). The talk gives
    the numbers of parameters (22 million, 523 thousand) but no sizes: the sizes are our
    interpretation. The "efficient" Transformer of the talk and of Table 8 of Cao (2021) has
    attention without softmax, Q(KᵀV)/n. The name comes from Shen et al.; attention "efficient" here
    has the two softmaxes of Shen et al. The errors listed in the presets are those of the talk. The
    vanilla Transformer of the talk has sinusoidal encodings of the index, as in the preset
    "burgers-vanilla-sinusoidal". In "burgers-vanilla" coordinates are appended instead, because
    they have the same meaning at every resolution.

    Attention treats all points alike. With coordinates "none" and the linear decoder the operator
    commutes with permutations of the points; with the spectral decoder it commutes with shifts of a
    periodic grid.

    Args:
        attention: "softmax", with a cost quadratic in the number of points; or, with linear cost,
            "efficient" (softmax of Q over features and of K over points) or "galerkin" (Q(KᵀV)/n).
        normalization: Position of the LayerNorms. "pre": before each map and before the decoder.
            "post": after each residual sum, as first published.
        activation: Activation of the MLPs, "gelu" or, as first published, "relu".
        encoding: "sinusoidal", as first published: p(j) is added to the features of point j = 0, 1,
            ... before the first layer, with p₂ᵢ(j) = sin(j/10000^(2i/width)) and
            p₂ᵢ₊₁(j) = cos(j/10000^(2i/width)) (Vaswani et al. 2017, section 3.5). All sines come
            before all cosines here. On a plane grid, half of the features encode the index along
            each axis. The index has another meaning on each grid and depends on the order of the
            points of a cloud. "none": nothing is added.
        decoder: "linear": a linear map, which takes point clouds too. "spectral": two spectral
            convolutions and an MLP, for periodic grids only.
        modes, decoder_width: Modes and channels of the spectral decoder.
        dropout: Dropout rate of the results of attention and MLP before each residual sum.
        attention_dropout: Dropout rate of the attention matrix. If not 0, softmax attention on n
            points stores n x n numbers in training.
    """

    dims = (1, 2, 3)
    added = ("encoding",)
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers-vanilla": Preset(_VANILLA, 22_059_009, _SLIDES.format("vanilla, 22 million")),
        "burgers-vanilla-sinusoidal": Preset(
            _VANILLA | {"encoding": "sinusoidal", "coordinates": "none"},
            22_058_241,
            _SLIDES.format("vanilla, 22 million"),
        ),
        "burgers-efficient": Preset(_EFFICIENT, 523_009, _SLIDES.format("efficient, 523 thousand")),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        feedforward: int = 256,
        attention: Literal["softmax", "efficient", "galerkin"] = "softmax",
        normalization: Literal["pre", "post"] = "pre",
        activation: Literal["gelu", "relu"] = "gelu",
        coordinates: Coordinates = "raw",
        decoder: Literal["linear", "spectral"] = "linear",
        modes: int = 16,
        decoder_width: int = 48,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        encoding: Literal["none", "sinusoidal"] = "none",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        check_heads(width, heads)
        if decoder == "spectral":
            self.domains, self.masks = MESHES, False
        self.encodes = encoding == "sinusoidal"
        kind = {"softmax": SOFTMAX, "efficient": EFFICIENT, "galerkin": GALERKIN}[attention]
        self.embed = nn.Linear(self.features, width)
        self.layers = nn.ModuleList(
            TransformerLayer(
                Attention(
                    width, heads, 0, kind, normalization=None, drop=nn.Dropout(attention_dropout),
                    eps=1e-5, gain=1.0, diagonal=0.0,
                ),
                width, feedforward, normalization, activation, dropout,
            )
            for _ in range(depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width) if normalization == "pre" else nn.Identity()
        if decoder == "linear":
            self.decoder = nn.Linear(width, out_channels)
            return
        convolution = SPECTRAL_CONVOLUTIONS[dim]
        layers = (
            convolution(width, decoder_width, modes),
            convolution(decoder_width, decoder_width, modes),
            nn.Linear(decoder_width, decoder_width),
            nn.Linear(decoder_width, out_channels),
        )
        self.decoder = alternating(nn.SiLU, layers)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        grid = u.shape[1:-1]
        if self.encodes:
            # in float32 at least, because bfloat16 cannot count to 512
            dtype = torch.promote_types(u.dtype, torch.float32)
            axes = [torch.arange(n, dtype=dtype, device=u.device) for n in grid]
            index = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
            u = u + sinusoids(index, u.shape[-1]).to(u.dtype)
        u = u.flatten(1, -2)  # points as tokens
        for layer in self.layers:
            u = layer(u, mask)
        return self.norm(u).unflatten(1, grid)
