r"""OFormer: an encoder with softmax-free attention, and cross-attention from the output points.

References: Z. Li, K. Meidani and A. Barati Farimani, Transformer for Partial Differential
Equations' Operator Learning, TMLR 2023 (arXiv 2205.13671); released code BaratiLab/OFormer at
commit f1111b3, folder uniform_grids.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.attention import galerkin
from operators.nn.pointwise import GEGLU, Dropout, mlp
from operators.nn.tokens import (
    Coordinates,
    Positions,
    RandomWaves,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    merged,
    rotated,
    split,
)

_CODE = "released training script, counted from the released classes"
_DARCY = {"scales": [141.0, 35.0, 1.0, 1.0, 1.0, 1.0], "resolution": 141.0}
_BURGERS = {
    "latent": 96, "heads": 1, "kind": "fourier", "scales": [8.0, 4.0, 4.0, 1.0],
    "resolution": 2048.0, "layer_norm": False, "beside": True, "decoder": "residual",
    "decoder_depth": 3, "decoder_heads": 8, "decoder_scale": 1.0, "wave_scale": 2.0,
    "embed_dropout": 0.0, "dropout": 0.0,
}  # fmt: skip
_NAVIER_STOKES = {
    "latent": 192, "heads": 1, "scales": [32.0, 16.0, 8.0, 8.0, 1.0], "resolution": 64.0,
    "decoder": "marching", "wave_scale": 8.0, "embed_dropout": 0.0, "dropout": 0.0,
}  # fmt: skip
_OURS = "not published: the settings of Darcy flow"

Queries = Float[Tensor, "batch n width"]
Sources = Float[Tensor, "batch m width"]
OfQueries = Float[Tensor, "n dim"] | Float[Tensor, "batch n dim"]
OfSources = Float[Tensor, "m dim"] | Float[Tensor, "batch m dim"]


class RotaryAttention(nn.Module):
    """Multi-head attention Q(KᵀV)/m W + b, with Q and K rotated by the coordinates of their points.

    Every head has as many features as the input. Two of Q, K, V are normalised to mean 0 and
    variance 1 over the features of each point, before the rotation. The released code uses
    `InstanceNorm1d` with points as its channels, which is a layer norm without parameters.

    Args:
        width: Features of the input and of each head.
        heads: Number of heads.
        kind: "galerkin" normalises K and V, "fourier" normalises Q and K.
        rate: Angle of the fastest rotation per unit length, see `rotated`.
        near_identity: Letters "q", "k", "v" of those maps that start as (orthogonal + I)/width.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kind: Literal["galerkin", "fourier"],
        rate: float,
        near_identity: str,
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.rate = heads, kind, rate
        self.query, self.key, self.value = (
            nn.Linear(width, heads * width, bias=False) for _ in range(3)
        )
        # one head of the full width has no map after it
        self.out = nn.Identity() if heads == 1 else nn.Linear(heads * width, width)
        for name in near_identity:
            linear = {"q": self.query, "k": self.key, "v": self.value}[name]
            for part in linear.weight.data.chunk(heads):
                start_near_identity(part)

    def forward(
        self,
        u: Queries,
        z: Sources,
        y: OfQueries,
        x: OfSources,
        mask: Bool[Tensor, "batch m"] | None = None,
    ) -> Queries:
        """Cross-attention from the points of u to those of z.

        Args:
            u, z: Features of the queries, and of the keys and values.
            y, x: Points of u and of z.
            mask: False where a point of z is padding.
        """
        q, k, v = (
            split(w, self.heads) for w in (self.query(u), self.key(z), self.value(z))
        )  # (batch, heads, n|m, width)
        k = normed(k)
        q, v = (q, normed(v)) if self.kind == "galerkin" else (normed(q), v)
        real = None if mask is None else mask[:, None, :, None]
        v = galerkin(rotated(q, y, self.rate), rotated(k, x, self.rate), v, mask=real)
        return self.out(merged(v))


def normed(u: Float[Tensor, "batch heads n d"]) -> Float[Tensor, "batch heads n d"]:
    """Normalise u to mean 0 and variance 1 over the features."""
    return nn.functional.layer_norm(u, u.shape[-1:])


def start_near_identity(weight: Float[Tensor, "d d"]) -> None:
    """Set a d x d matrix to (R + I)/d with a random orthogonal matrix R."""
    d = len(weight)
    nn.init.orthogonal_(weight, gain=1 / d)
    weight.add_(torch.eye(d, dtype=weight.dtype, device=weight.device), alpha=1 / d)


class Block(nn.Module):
    """u <- N(u), u <- u + attention(u), u <- N(u), u <- u + MLP(u); N is layer norm or identity.

    As in the released code, the residual sums contain the normalised u.
    """

    def __init__(
        self, width: int, attention: RotaryAttention, layer_norm: bool, dropout: float
    ) -> None:
        super().__init__()
        self.attention, self.mlp = attention, GEGLU(width, width, width)
        self.norm1, self.norm2 = (
            nn.LayerNorm(width) if layer_norm else nn.Identity() for _ in range(2)
        )
        self.drop = Dropout(dropout)

    def forward(self, u: Tokens, x: TokenPoints, mask: Real | None) -> Tokens:
        u = self.norm1(u)
        u = u + self.drop(self.attention(u, u, x, x, mask))
        u = self.norm2(u)
        return u + self.drop(self.mlp(u))


def queries(decoder: str, latent: int, dim: int, scale: float) -> nn.Sequential:
    """Network from points y to the queries of a decoder: random Fourier features and an MLP."""
    twice = 2 * latent
    if decoder == "points":
        return nn.Sequential(
            RandomWaves(dim, latent, scale), mlp(latent, latent, latent, bias=False)
        )
    waves = RandomWaves(dim, twice, scale)
    if decoder == "residual":
        return nn.Sequential(waves, nn.GELU(), mlp(twice, latent, bias=False))
    return nn.Sequential(waves, mlp(twice, twice, latent, bias=False))


class PointDecoder(nn.Module):
    """Decoder MLP(u, y), applied at each point y."""

    def __init__(self, latent: int, dim: int, outputs: int) -> None:
        super().__init__()
        half = latent // 2
        self.head = nn.Sequential(
            mlp(latent + dim, latent, half, bias=False), nn.GELU(), nn.Linear(half, outputs)
        )

    def forward(self, u: Tokens, y: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n _"]:
        return self.head(torch.cat([u, y], dim=-1))


class ResidualDecoder(nn.Module):
    """Decoder u <- u + MLP(u), repeated `depth` times, then an MLP to the output."""

    def __init__(self, latent: int, depth: int, outputs: int) -> None:
        super().__init__()
        half = latent // 2
        self.steps = nn.ModuleList(
            mlp(latent, latent, latent, latent, bias=False) for _ in range(depth)
        )
        for module in self.steps.modules():
            if isinstance(module, nn.Linear):
                start_near_identity(module.weight.data)
        self.head = nn.Sequential(
            mlp(latent, half, bias=False), nn.GELU(), nn.Linear(half, outputs)
        )

    def forward(self, u: Tokens, y: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n _"]:
        for step in self.steps:
            u = u + step(u)
        return self.head(u)


class MarchingDecoder(nn.Module):
    """Decoder that computes one frame after another.

    The decoder starts with u <- W u. For each frame it repeats u <- u + MLP(LN(u), y) `depth`
    times. The frame is then the result of another MLP of LN(u).

    Args:
        latent: Features of u before W, which doubles their number.
        dim: Number of coordinates of y.
        depth: Residual MLPs for each frame.
        outputs: Output channels of all frames.
        frame_channels: Channels of a frame. If 0, all outputs are one frame.
    """

    def __init__(
        self, latent: int, dim: int, depth: int, outputs: int, frame_channels: int
    ) -> None:
        super().__init__()
        twice = 2 * latent
        self.outputs, self.frame_channels = outputs, frame_channels or outputs
        self.expand = nn.Linear(latent, twice)
        self.norms = nn.ModuleList(nn.LayerNorm(twice) for _ in range(depth))
        self.steps = nn.ModuleList(
            mlp(twice + dim, twice, twice, twice, bias=False) for _ in range(depth)
        )
        self.head = nn.Sequential(
            nn.LayerNorm(twice),
            mlp(twice, latent, latent, bias=False),
            nn.GELU(),
            nn.Linear(latent, self.frame_channels),
        )

    def forward(self, u: Tokens, y: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n _"]:
        if self.outputs % self.frame_channels:
            raise ValueError(
                f"expected frames of {self.frame_channels} channels, got {self.outputs} channels "
                "in all"
            )
        u, frames = self.expand(u), []
        for _ in range(self.outputs // self.frame_channels):
            for norm, step in zip(self.norms, self.steps, strict=True):
                u = u + step(torch.cat([norm(u), y], dim=-1))
            frames.append(self.head(u))
        return torch.cat(frames, dim=-1)


class OFormer(TokenOperator):
    """z = encoder(a, x), u(y) = decoder(query(y), z); the decoder is cross-attention to z and MLPs.

    The cost is linear in the number of points. The value u(y) at any point y does not depend on the
    other output points. Values converge under refinement only if the points x are spread evenly.

    Through the rotations attention depends on differences of coordinates. The coordinates appended
    to a and those in the queries are absolute. The rates of rotation per unit length are `scales`
    times `resolution`, which in the released code is the resolution of the training grid.

    The three decoders are those of the released training scripts; the defaults are the settings for
    Darcy flow. With the same weights and without dropout, the released code at commit f1111b3 gives
    the same numbers. The released code also has dropout of the hidden features of the MLPs, which
    is omitted here, and trains encoder and decoder with separate optimisers.

    Latent marching: with decoder "marching" and `frame_channels` the channels of u are consecutive
    frames (the task `block`). The latent state advances from frame to frame, and each frame is
    decoded from the latent state. In a task `rollout` the operator instead predicts one frame at a
    time and encodes each prediction again.

    Args:
        width: Features in the encoder and in each of its heads, a multiple of 2 dim.
        latent: Features of z and of each head of the decoder, a multiple of 2 dim.
        heads: Heads in the encoder.
        kind: "galerkin" normalises K and V, "fourier" normalises Q and K.
        scales: Rates of the rotations in units of the resolution, one for each layer.
        resolution: Grid points per unit length, the unit of the scales.
        layer_norm: Whether layer norms precede attention and MLP; the residual sums contain the
            normalised values.
        beside: Whether the coordinates are appended to the embedded features too. The appended
            coordinates count in `width`.
        decoder: "points": an MLP of the features and y. "residual": residual MLPs without norm,
            then an MLP. "marching": residual MLPs, applied once for each frame. They act on y and
            on 2 `latent` features.
        decoder_depth: Residual MLPs of the decoder; "points" has none.
        decoder_heads: Heads in the decoder, of the same kind as in the encoder.
        decoder_scale: Rate of the rotations in the decoder, in units of the resolution.
        wave_scale: Standard deviation of the frequencies of the random waves in the queries.
        frame_channels: Channels of a frame, for decoder "marching". If 0, u is one frame.
        embed_dropout, dropout: Dropout rates after the embedding, and after attentions and MLPs of
            the encoder.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset(_DARCY, 2_556_321, _CODE, dim=2),
        "burgers": Preset(_BURGERS, 660_719, _CODE),
        "navier-stokes": Preset(_NAVIER_STOKES, 1_851_361, _CODE, (10, 1), dim=2),
        "elasticity": Preset(_DARCY, 2_556_417, _OURS, (2, 1), dim=2),
        "airfoil": Preset(_DARCY, 2_556_417, _OURS, (2, 1), dim=2),
        "pipe": Preset(_DARCY, 2_556_417, _OURS, (2, 1), dim=2),
        "plasticity": Preset(_DARCY, 2_556_546, _OURS, (2, 2), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 96,
        latent: int = 256,
        heads: int = 4,
        kind: Literal["galerkin", "fourier"] = "galerkin",
        scales: list[float] = [141.0, 35.0, 1.0, 1.0, 1.0, 1.0],  # noqa: B006
        resolution: float = 141.0,
        layer_norm: bool = True,
        beside: bool = False,
        decoder: Literal["points", "residual", "marching"] = "points",
        decoder_depth: int = 1,
        decoder_heads: int = 4,
        decoder_scale: float = 16.0,
        wave_scale: float = 0.5,
        frame_channels: int = 0,
        coordinates: Coordinates = "raw",
        embed_dropout: float = 0.05,
        dropout: float = 0.03,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        at_least(1, heads=heads, decoder_heads=decoder_heads, scales=len(scales))
        at_least(0, decoder_depth=decoder_depth, frame_channels=frame_channels)
        for name, features in (("width", width), ("latent", latent)):
            if features < 1 or features % (2 * dim):
                raise ValueError(f"{name} must be a positive multiple of {2 * dim}, got {features}")
        if frame_channels and decoder != "marching":
            raise ValueError(f"frame_channels needs decoder 'marching', got {decoder!r}")
        self.beside = beside
        appended = self.positions.count if beside else 0
        self.embed = nn.Linear(self.features, width - appended, bias=False)
        self.drop = Dropout(embed_dropout)
        near_identity = "q" if kind == "galerkin" else "v"
        rates = [scale * resolution for scale in scales]
        attentions = [RotaryAttention(width, heads, kind, rate, near_identity) for rate in rates]
        self.blocks = nn.ModuleList(
            Block(width, attention, layer_norm, dropout) for attention in attentions
        )
        self.project = nn.Linear(width, latent, bias=False)
        self.query = queries(decoder, latent, dim, wave_scale)
        self.cross = RotaryAttention(latent, decoder_heads, kind, decoder_scale * resolution, "qkv")
        self.mlp = GEGLU(latent, latent, latent)
        if decoder == "points":
            self.end = PointDecoder(latent, dim, out_channels)
        elif decoder == "residual":
            self.end = ResidualDecoder(latent, decoder_depth, out_channels)
        else:
            self.end = MarchingDecoder(latent, dim, decoder_depth, out_channels, frame_channels)

    def encoded(
        self, v: Tokens, x: TokenPoints, mask: Real | None = None
    ) -> Float[Tensor, "batch n latent"]:
        u = self.drop(self.embed(v))
        if self.beside:
            u = torch.cat([u, v[..., self.in_channels :]], dim=-1)
        for block in self.blocks:
            u = block(u, x, mask)
        return self.project(u)

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        q = self.query(y).expand(len(v), -1, -1)
        u = q + self.cross(q, self.encoded(v, x, mask), y, x, mask)
        u = u + self.mlp(u)
        return self.end(u, y.expand(len(v), -1, -1))
