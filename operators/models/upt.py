r"""The Universal Physics Transformer: supernodes, latent tokens, and output at any points.

References: B. Alkin, A. Fürst, S. Schmid, L. Gruber, M. Holzleitner, J. Brandstetter, Universal
Physics Transformers: A Framework For Efficiently Scaling Neural Operators, NeurIPS 2024,
arXiv:2402.12365; code in github.com/ml-jku/UPT.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.neighbours import gather, within_box
from operators.nn.pointwise import mlp
from operators.nn.tokens import (
    ENTRIES,
    CrossAttention,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
    sinusoids,
)

_FLOWS = "Alkin et al. 2024, UPT-{} of transient flows, released; with its conditions {} parameters"
_RELEASED = {"supernodes": 2048, "radius": 0.025, "latents": 512}


def _sizes(narrow: int, narrow_heads: int, width: int, heads: int) -> dict[str, object]:
    ends = {"encoder_width": narrow, "encoder_heads": narrow_heads}
    return {**_RELEASED, **ends, "width": width, "heads": heads, "decoder_width": narrow,
            "decoder_heads": narrow_heads}  # fmt: skip


BITS = 20  # bits of a coordinate on the Z-curve
_EDGE = 1 / 8  # offset in cells: points on an edge fall on one side, in float32 too
_ROUNDING = 8 * torch.finfo(torch.float32).eps  # bound of the rounding of distances in a unit box


class Supernodes(NamedTuple):
    """Indices of m supernodes in each of e samples; e = 1 if all samples have the same supernodes.

    Args:
        index: Indices of the supernodes among the points.
        real: False at entries that fill up samples with fewer than m points. None: there are no
            such entries.
    """

    index: Int[Tensor, "e m"]
    real: Bool[Tensor, "e m"] | None


def places_on_curve(p: Float[Tensor, "e n dim"]) -> Int[Tensor, "e n"]:
    """Position along the Z-curve, through cells of side 2^-20, of each point p in [0, 1]^dim.

    A position is a number that interleaves the bits of the coordinates, the highest bits first.
    Sorting by position sorts points by the half of the box in which they lie, then by the half of
    that half, and so on. In one dimension this is the order of the coordinates.

    References: G. M. Morton, A computer oriented geodetic data base, IBM 1966.

    >>> corners = torch.tensor([[[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    >>> places_on_curve(corners).argsort()
    tensor([[3, 2, 1, 0]])
    """
    cells = (p.double() * 2**BITS + _EDGE).floor().long().clamp(0, 2**BITS - 1)
    bits = torch.arange(BITS, device=p.device)
    axes = torch.arange(p.shape[-1], device=p.device)
    digits = (cells[..., None] >> bits) & 1  # (e, n, dim, bits)
    return (digits << (bits * p.shape[-1] + axes[:, None])).flatten(2).sum(dim=-1)


def supernodes(
    x: Float[Tensor, "e n dim"], count: int, random: bool, mask: Real | None = None
) -> Supernodes:
    """Choose `count` of the points as supernodes, or all points if there are fewer.

    The points are put in order, either along the Z-curve or at random. The order is cut into
    `count` equal intervals, and the middle point of each is chosen. The density of supernodes is
    thus proportional to that of the points. With a random order all points are equally likely. With
    the curve the choice depends only on the set of points, except that points in the same cell of
    side 2^-20 keep their given order.

    Args:
        x: The points.
        count: Number of supernodes.
        random: Whether the order is random.
        mask: False at padding.

    >>> supernodes(torch.tensor([[[0.3], [0.1], [0.9], [0.2], [0.4], [0.8]]]), 2, False).index
    tensor([[3, 5]])
    """
    x = x if mask is None else x.expand(len(mask), -1, -1)
    n = x.shape[1]
    if random:
        keys = torch.rand(x.shape[:2], device=x.device)
        keys = keys if mask is None else keys.masked_fill(~mask, 2.0)
    else:
        keys = places_on_curve(within_box(x, x, mask))
        keys = keys if mask is None else keys.masked_fill(~mask, 2**62)
    order = keys.argsort(dim=-1, stable=True)
    j = torch.arange(min(count, n), device=x.device)
    if mask is None:
        return Supernodes(order[:, (2 * j + 1) * n // (2 * len(j))], None)
    points = mask.sum(dim=-1, keepdim=True)
    counts = points.clamp(min=1, max=count)  # supernodes of each sample
    ranks = ((2 * j + 1) * points // (2 * counts)).clamp(max=n - 1)
    return Supernodes(order.gather(1, ranks), j < counts)


@torch.no_grad()
def points_near(
    centres: Float[Tensor, "e m dim"],
    x: Float[Tensor, "e n dim"],
    radius: float,
    most: int,
    mask: Real | None = None,
) -> tuple[Int[Tensor, "e m k"], Bool[Tensor, "e m k"]]:
    """Indices of the points nearest to each centre, and whether each is a neighbour of the centre.

    Neighbours are the points within the radius. If more than `most` points lie within the radius,
    only those nearer than the (`most` + 1)-th nearest point are neighbours. Of several points at
    the same distance thus all or none are neighbours, and the order of the points has no influence.

    Args:
        centres: The centres.
        x: The points.
        radius: Largest distance of a neighbour.
        most: Largest number of neighbours.
        mask: False at padding among the points.

    >>> x = torch.tensor([[[0.0], [0.1], [0.2], [0.9]]])
    >>> index, near = points_near(x[:, 1:2], x, 0.5, 2)
    >>> index[near].tolist()  # two further points are 0.1 away, and only one more is allowed
    [1]
    """
    if mask is not None:
        x = x.expand(len(mask), -1, -1)
    rows = max(1, ENTRIES // x[..., 0].numel())
    nearest = [_nearest(part, x, most, mask) for part in centres.split(rows, dim=1)]
    squared, index = (torch.cat(parts, dim=1) for parts in zip(*nearest, strict=True))
    near = squared <= radius**2 + _ROUNDING * radius
    if x.shape[1] <= most:
        return index, near
    beyond = squared[..., -1:]
    limit = (beyond - _ROUNDING * beyond.sqrt()).nan_to_num(math.inf)  # nan at padding: inf - inf
    return index[..., :-1], (near & (squared < limit.clamp(min=1e-30)))[..., :-1]


def _nearest(
    centres: Float[Tensor, "e m dim"], x: Float[Tensor, "e n dim"], most: int, mask: Real | None
) -> tuple[Float[Tensor, "_ m k"], Int[Tensor, "_ m k"]]:
    """Squared distances to the `most + 1` nearest points, and the indices of these points."""
    squared = torch.zeros_like(centres[:, :, :1])
    for c, p in zip(centres.unbind(-1), x.unbind(-1), strict=True):
        squared = squared + (c[:, :, None] - p[:, None]).square()
    if mask is not None:
        squared = squared.masked_fill(~mask[:, None], math.inf)
    nearest = squared.topk(min(most + 1, x.shape[1]), largest=False)
    return nearest.values, nearest.indices


class Messages(nn.Module):
    """v(s) = mean of W₃ GELU(W₂ GELU(W₁ [f(p), f(s)])) over the points p near a supernode s.

    f is MLP(a) plus sines and cosines of the position. For speed W₃ is applied after the mean, and
    the two halves of W₁ are applied to points and supernodes before these are paired. This does not
    change the result.

    Args:
        in_channels, width: Features of a and of v.
        radius, neighbours: Radius of a neighbourhood and largest number of neighbours, see `UPT`.
        extent: Factor of the positions in the sines and cosines, see `UPT`.
    """

    def __init__(
        self, in_channels: int, width: int, radius: float, neighbours: int, extent: float
    ) -> None:
        super().__init__()
        self.radius, self.neighbours, self.extent = radius, neighbours, extent
        self.embed = mlp(in_channels, width, width, width)
        self.pair = nn.Linear(2 * width, 2 * width)
        self.hidden = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self, a: Tokens, p: Float[Tensor, "e n dim"], chosen: Supernodes, mask: Real | None
    ) -> Float[Tensor, "batch m width"]:
        f = self.embed(a)
        f = f + sinusoids(self.extent * p, f.shape[-1])
        of_supernodes = chosen.index[..., None]
        centres = p.expand(len(of_supernodes), -1, -1).gather(
            1, of_supernodes.expand(-1, -1, p.shape[-1])
        )
        index, near = points_near(centres, p, self.radius, self.neighbours, mask)
        weight_p, weight_s = self.pair.weight.chunk(2, dim=1)
        source = nn.functional.linear(f, weight_p, self.pair.bias)
        target = nn.functional.linear(gather(f, of_supernodes), weight_s)
        pairs = gather(source, index) + target  # (batch, m, k, _)
        v = nn.functional.gelu(self.hidden(nn.functional.gelu(pairs))) * near[..., None]
        return self.out(v.sum(dim=2) / near.sum(dim=2).clamp(min=1)[..., None])


class Block(nn.Module):
    """z <- z + attention(LN z), z <- z + MLP(LN z), with 4 x `width` hidden features."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention = CrossAttention(width, heads, bias=True)
        self.mlp = mlp(width, 4 * width, width)

    def forward(self, z: Tokens, mask: Real | None = None) -> Tokens:
        tokens = self.norm1(z)
        z = z + self.attention(tokens, tokens, mask)
        return z + self.mlp(self.norm2(z))


class CrossBlock(nn.Module):
    """q <- q + attention(LN q, LN z), q <- q + MLP(LN q): the block of a Perceiver."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_query, self.norm_source, self.norm_mlp = (
            nn.LayerNorm(width, eps=1e-6) for _ in range(3)
        )
        self.attention = CrossAttention(width, heads, bias=True)
        self.mlp = mlp(width, 4 * width, width)

    def forward(
        self, q: Float[Tensor, "_ m width"], z: Tokens, mask: Real | None = None
    ) -> Float[Tensor, "batch m width"]:
        q = q + self.attention(self.norm_query(q), self.norm_source(z), mask)
        return q + self.mlp(self.norm_mlp(q))


class UPT(TokenOperator):
    """Messages to supernodes, Transformers on supernodes and latent tokens, and queries at points.

        v(s) = mean of MLP([f(p), f(s)]) over points p near s,  f = MLP(a) + sincos(200 x).
        v <- Transformer(v).
        z = z₀ + attention(LN z₀, LN v), z <- z + MLP(LN z),  with learned tokens z₀.
        z <- Transformer(z) in the approximator, z <- Transformer(z) in the decoder.
        u(y) = W LN q,  q = MLP(sincos(200 y)), q <- q + attention(LN q, LN z), q <- q + MLP(LN q).

    A query depends on its position only, so u can be evaluated at any points y. Attention acts
    among supernodes and latent tokens only, so the cost is linear in the number of points for a
    fixed number of supernodes. Points interact only through means over neighbourhoods and through
    the tokens. Values converge under refinement once the spacing is below the shortest wavelength,
    as long as `neighbours` exceeds the number of points within the radius.

    Supernodes are a subset of the points. In evaluation the points are ordered along a Z-curve
    through the box, and supernodes are evenly spaced in this order. They then depend only on the
    set of points, and their density is proportional to that of the points. In training supernodes
    are drawn at random at every step; samples that share points also share supernodes.

    The approximator is applied once: u is one time step after a, or a steady solution, and a
    rollout encodes and decodes every frame. The rollout in the latent space of the released code,
    trained with reconstructions of both frames, is omitted. The default networks have the sizes of
    UPT-8M, but fewer supernodes and latent tokens, because data here have fewer points.

    Args:
        supernodes: Number of supernodes. If there are fewer points, all points are supernodes.
        radius: Radius of the neighbourhood of a supernode, after the box is scaled to size 1.
        neighbours: Largest number of points in a neighbourhood. If there are more, only the nearest
            are used.
        latents: Number of latent tokens.
        encoder_width, width, decoder_width: Features of supernodes, latent tokens and queries.
        encoder_heads, heads, decoder_heads: Attention heads of the encoder, the approximator and
            the decoder; each number must divide the width of the same network.
        encoder_depth, depth, decoder_depth: Number of blocks on supernodes, in the approximator,
            and on latent tokens in the decoder.
        scaling: Which box is scaled to size 1. "unit": [0, 1] along each axis. "sample": the
            bounding box of the points x of each sample.
        extent: Factor of the positions in the sines and cosines. With the published 200 the
            shortest wavelength, 2π/200, is 1/32 of the box.
        random: Whether supernodes are drawn at random in training; otherwise they are chosen as in
            evaluation.

    Differences from the released code (commit 34e8549, with blocks of kappamodules 0.1.112). That
    code draws supernodes at random in evaluation too. In a neighbourhood with too many points it
    uses those that its search finds first. In that code time and inflow scale and shift the
    features in the blocks; without such conditions the blocks equal those here. The networks here
    are those for transient flows; the released network for ShapeNet-Car has no messages. In both
    codes messages depend on absolute positions, not on differences of positions. Drop path is
    omitted here, and so is the logarithm that the released code applies to the output to invert a
    transform of the published data.

    Weights start as in that code, by the rule of Glorot, except that those of MLP(a) are twice as
    large. Without this factor the position features in f would be ten times as large as MLP(a).
    Training would then take longer before predictions improve on the mean of the targets.
    """

    dims = (1, 2, 3)
    presets: ClassVar[Mapping[str, Preset]] = {
        "transient-8m": Preset(_RELEASED, 2_290_947, _FLOWS.format("8M", "7,669,891"), (6, 3), 2),
        "transient-17m": Preset(
            _sizes(96, 2, 192, 3), 5_089_155, _FLOWS.format("17M", "17,188,035"), (6, 3), 2
        ),
        "transient-68m": Preset(
            _sizes(192, 3, 384, 6), 20_094_723, _FLOWS.format("68M", "68,475,267"), (6, 3), 2
        ),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        supernodes: int = 512,
        radius: float = 0.05,
        neighbours: int = 32,
        latents: int = 128,
        encoder_width: int = 64,
        width: int = 128,
        decoder_width: int = 64,
        encoder_heads: int = 2,
        heads: int = 2,
        decoder_heads: int = 2,
        encoder_depth: int = 4,
        depth: int = 4,
        decoder_depth: int = 4,
        scaling: Literal["unit", "sample"] = "unit",
        extent: float = 200.0,
        random: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions("none", dim))
        check_heads(encoder_width, encoder_heads)
        check_heads(width, heads)
        check_heads(decoder_width, decoder_heads)
        at_least(1, supernodes=supernodes, neighbours=neighbours, latents=latents)
        at_least(0, encoder_depth=encoder_depth, depth=depth, decoder_depth=decoder_depth)
        at_least(2 * dim, encoder_width=encoder_width, decoder_width=decoder_width)
        if radius <= 0 or extent <= 0:
            raise ValueError(f"radius and extent must be positive, got {radius} and {extent}")
        self.supernodes, self.scaling, self.random = supernodes, scaling, random
        self.extent = extent
        self.messages = Messages(in_channels, encoder_width, radius, neighbours, extent)
        self.encoder = nn.ModuleList(
            [nn.Linear(encoder_width, encoder_width)]
            + [Block(encoder_width, encoder_heads) for _ in range(encoder_depth)]
        )
        self.widen = nn.Linear(encoder_width, width)
        self.latents = nn.Parameter(nn.init.trunc_normal_(torch.empty(latents, width)))
        self.pool = CrossBlock(width, heads)
        stages = [[nn.Linear(width, width)] + [Block(width, heads) for _ in range(n)]
                  for n in (depth, decoder_depth)]  # fmt: skip
        self.approximator, self.decoder = (nn.Sequential(*stage) for stage in stages)
        self.query = mlp(decoder_width, 4 * decoder_width, 4 * decoder_width, decoder_width)
        self.narrow = nn.Linear(width, decoder_width)
        self.ask = CrossBlock(decoder_width, decoder_heads)
        self.head = nn.Sequential(
            nn.LayerNorm(decoder_width, eps=1e-6), nn.Linear(decoder_width, out_channels)
        )
        start_glorot(self)
        start_glorot(self.messages.embed, gain=2.0)

    def scaled(
        self, p: Float[Tensor, "e _ dim"], x: Float[Tensor, "e n dim"], mask: Real | None
    ) -> Float[Tensor, "_ _ dim"]:
        """Positions p, scaled such that the box has size 1."""
        return p if self.scaling == "unit" else within_box(p, x, mask)

    def encoded(
        self, a: Tokens, p: Float[Tensor, "e n dim"], mask: Real | None
    ) -> Float[Tensor, "batch latents width"]:
        """The latent tokens of values a at scaled points p."""
        chosen = supernodes(p, self.supernodes, self.random and self.training, mask)
        v = self.messages(a, p, chosen, mask)
        v = self.encoder[0](v)
        for block in self.encoder[1:]:
            v = block(v, chosen.real)
        return self.pool(self.latents[None], self.widen(v), chosen.real)

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        x, y = (p if p.ndim == 3 else p[None] for p in (x, y))
        x, y = self.scaled(x, x, mask), self.scaled(y, x, mask)
        z = self.decoder(self.approximator(self.encoded(v, x, mask)))
        q = self.query(sinusoids(self.extent * y, self.narrow.out_features))
        return self.head(self.ask(q, self.narrow(z)))


def start_glorot(model: nn.Module, gain: float = 1.0) -> None:
    """Initialise linear maps: weights as in Glorot and Bengio (2010) times a gain, biases 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain)
            if module.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                nn.init.zeros_(module.bias)
