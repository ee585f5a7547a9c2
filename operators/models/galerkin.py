r"""The Fourier/Galerkin Transformer: attention layers over all points, then a spectral decoder.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from operators.base import MESHES, Function, Mask, Points, Preset, Targets, Weight, check_input
from operators.nn.attention import GALERKIN, AttentionKind
from operators.nn.encoder import attention_layers
from operators.nn.pointwise import mlp
from operators.nn.spectral import SPECTRAL_CONVOLUTIONS, SpectralLayer
from operators.nn.tokens import Coordinates, PointOperator, Positions, flattened
from pdegen.domains import Cloud, Domain

_REGULAR = {"normalization": "layer", "dropout": 0.1, "feedforward_dropout": 0.1}
_FOURIER = {"attention": "fourier", "gain": 1e-3, "feedforward_dropout": 0.05}
# the published code sets the residual dropout to 0.1 for attention with a softmax
_SOFTMAX = _FOURIER | {"attention": "softmax", "dropout": 0.1}
_BURGERS: Mapping[str, Mapping[str, object]] = {
    "burgers-gt": {},
    "burgers-ft": _FOURIER,
    "burgers-st": _SOFTMAX,
    "burgers-lt": {"attention": "linear", "dropout": 0.1},
    "burgers-gt-ln": _REGULAR,
    "burgers-ft-ln": _FOURIER | {"normalization": "layer"},
    "burgers-st-ln": _SOFTMAX | {"normalization": "layer"},
    "burgers-lt-ln": _REGULAR | {"attention": "linear"},
    "burgers-et": {"normalization": "layer", "gain": 1.0, "diagonal": 0.0},
}
# on meshes a holds the positions
_MESH = {
    "decoder": "pointwise", "coordinates": "none", "width": 128, "depth": 8, "heads": 8,
    "feedforward": 256,
}  # fmt: skip
_RAW = {"coordinates": "raw", "input_coordinates": True}
_LIBRARY = "sizes of Neural-Solver-Library, whose embedding, norms and decoder differ: {} there"


class GalerkinTransformer(PointOperator):
    """An encoder of attention layers over the points and a decoder of spectral convolutions.

    The defaults are the published settings of the Burgers example: 530,305 parameters.

    The presets "burgers-..." are the published settings of each kind of attention. GT, FT, ST and
    LT stand for the attentions GALERKIN, FOURIER, SOFTMAX and LINEAR, and "-ln" stands for the
    regular layer norm. RFA and FAVOR have presets too. ET is the "efficient Transformer" of Table
    8: GT with the regular layer norm and the usual initial weights, η = 1 and δ = 0.

    Table 7 lists dropout rates of attention. As in the released code, they are applied on the
    residual branches here. No preset has dropout on the attention matrix; with attention_dropout
    "published" the dropout of the released code is applied. The preset "navier-stokes" is the
    "lite" model of example 4. It maps ten frames to the next one, with attention among all points
    of the square.

    Args:
        width: Number of features in the encoder.
        depth: Number of attention layers.
        heads: Number of heads; must divide the width.
        attention: The attention map: GALERKIN, FOURIER, SOFTMAX, LINEAR or EFFICIENT of
            `operators.nn.attention`, RFA or FAVOR of `operators.nn.attention`, NYSTROM of
            `operators.nn.attention`. None: the layers have MLPs only, to measure what attention
            contributes.
        normalization: "head", as in the paper: two of Q, K and V are normalised in each head, over
            the features at each point. "instance": the same two are normalised over the points,
            each feature by itself (section C.2). If these two are Q and K, the released code
            normalises V instead of Q by mistake; this is corrected here. "layer": LayerNorm after
            each residual sum.
        feedforward: Hidden features of the MLP in each layer.
        decoder: "spectral", as published for solutions: two spectral convolutions and an MLP.
            "pointwise", as published for coefficients: an MLP with `width` hidden features at each
            point, which takes point clouds too.
        modes: Number of modes of the spectral convolutions in the decoder.
        decoder_width: Channels of the spectral decoder.
        coordinates: Coordinates appended to the features in every head. "raw", as published: x in
            [0, 1). "periodic": cos 2πx and sin 2πx, which have no jump at the ends. "none":
            nothing; the operator then commutes with shifts of the grid (except with NYSTROM, whose
            landmarks depend on the order of the points).
        input_coordinates: Whether coordinates are appended to the input too, as in the paper. The
            released code does so for RFA and FAVOR only.
        dropout, feedforward_dropout, decoder_dropout: Dropout rates on the residual branches,
            inside the MLP, and before the transforms of the decoder.
        attention_dropout: Dropout rate on the attention matrix, in training only. "published", as
            in the released code: rate 0.5 in training and in evaluation (`PublishedDropout`).
        gain, diagonal: Factors η and δ of the initial weights of the projections, Xavier(η) + δI.
            The usual weights, as in the baseline in Table 8, have η = 1 and δ = 0.
        eps: Number added to the variance in layer norms.
        quadrature: Whether sums over points use the quadrature weights of the data. Attention then
            approximates its integral for points of any density: (1/n) KᵀV becomes KᵀWV with the
            diagonal mass matrix W of trace 1. Instance norms use the same weights. For attention
            GALERKIN and FOURIER only. On a box all points have equal weights.

    >>> import torch
    >>> model = GalerkinTransformer()
    >>> model.parameter_count
    530305
    >>> model(torch.randn(2, 64, 1), torch.arange(64)[:, None] / 64).shape
    torch.Size([2, 64, 1])
    """

    dims = (1, 2, 3)
    points_per: ClassVar[Mapping[str, int]] = {"modes": 2}
    presets: ClassVar[Mapping[str, Preset]] = (
        {
            name: Preset(settings, 530_305, "Cao 2021, Tables 2a, 7 and 8, and its code")
            for name, settings in _BURGERS.items()
        }
        | {
            f"burgers-{kind}": Preset(
                _REGULAR | {"attention": kind, "input_coordinates": True, "diagonal": 0.0},
                530_401,
                "scaomath/galerkin-transformer (f9e7d6a), example 1 with random features",
            )
            for kind in ("rfa", "favor")
        }
        | {
            "navier-stokes": Preset(
                {
                    "width": 48,
                    "feedforward": 96,
                    "modes": 12,
                    "decoder_width": 20,
                    "normalization": "layer",
                    "feedforward_dropout": 0.05,
                    "input_coordinates": True,
                },
                862_049,
                "scaomath/galerkin-transformer (f9e7d6a), example 4",
                (10, 1),
                dim=2,
            ),
            "airfoil": Preset(
                _MESH | {"feedforward": 128}, 813_697, _LIBRARY.format("0.833M"), (2, 1), 2
            ),
            "pipe": Preset(_MESH, 1_076_865, _LIBRARY.format("1.10M"), (2, 1), dim=2),
            "elasticity": Preset(_MESH, 1_076_865, _LIBRARY.format("1.10M"), (2, 1), dim=2),
            "plasticity": Preset(
                _MESH | _RAW, 1_093_634, "not published: the sizes of pipe", (2, 2), dim=2
            ),
        }
    )

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        if isinstance(domain, Cloud):  # points that are no grid have no modes
            return {"decoder": "pointwise"} if settings["decoder"] == "spectral" else {}
        return super().suited(settings, domain)

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        width: int = 96,
        depth: int = 4,
        heads: int = 1,
        attention: AttentionKind | None = GALERKIN,
        normalization: Literal["head", "layer", "instance"] = "head",
        feedforward: int = 192,
        decoder: Literal["spectral", "pointwise"] = "spectral",
        modes: int = 16,
        decoder_width: int = 48,
        coordinates: Coordinates = "raw",
        input_coordinates: bool = False,
        dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
        decoder_dropout: float = 0.0,
        attention_dropout: float | Literal["published"] = 0.0,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
        eps: float = 1e-5,
        quadrature: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        self.input_coordinates = input_coordinates
        if quadrature and not (attention and attention.weights):
            raise ValueError("quadrature needs attention galerkin or fourier")
        self.weights = quadrature
        positions = self.positions.count
        self.masks = decoder == "pointwise" and (attention is None or attention.masks)
        if decoder == "spectral":
            self.domains = MESHES
        self.embed = nn.Linear(in_channels + positions * input_coordinates, width)
        self.encoder = attention_layers(
            depth, width, heads, positions, attention, normalization, feedforward, dropout,
            feedforward_dropout, attention_dropout, eps, gain, diagonal,
        )  # fmt: skip
        if decoder == "pointwise":
            self.decoder = mlp(width, width, out_channels, activation=nn.SiLU)
            return
        kind = SPECTRAL_CONVOLUTIONS[dim]
        self.decoder = nn.Sequential(
            SpectralLayer(kind, width, decoder_width, modes, decoder_dropout),
            SpectralLayer(kind, decoder_width, decoder_width, modes, decoder_dropout),
            *mlp(decoder_width, decoder_width, out_channels, activation=nn.SiLU),
        )

    def forward(
        self,
        a: Function,
        x: Points,
        y: Targets | None = None,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        p = flattened(self.positions(x), x.ndim == a.ndim)
        u = self.embed(self.positions.beside(a, x) if self.input_coordinates else a).flatten(1, -2)
        real = None if mask is None else mask.flatten(1)
        if weight is not None:
            weight = self._checked(weight, a).to(u.dtype)
            real = weight if real is None else weight * real
        for layer in self.encoder:
            u = layer(u, p, real)
        return self.decoder(u.unflatten(1, a.shape[1:-1]))

    def _checked(self, weight: Tensor, a: Tensor) -> Float[Tensor, "_ n"]:
        """The quadrature weights as a (samples, points) matrix; one row if samples share them."""
        if not self.weights:
            raise ValueError("quadrature weights need quadrature=true")
        shapes = a.shape[1:-1], a.shape[:-1]
        if weight.shape not in shapes:
            expected = " or ".join(str(tuple(shape)) for shape in shapes)
            raise ValueError(f"expected weights of shape {expected}, got {tuple(weight.shape)}")
        return weight.reshape(-1, a[0, ..., 0].numel())
