r"""The Geometry-Aware Operator Transformer (GAOT), a Transformer on a lattice in the domain.

References: S. Wen, A. Kumbhat, L. Lingsch, S. Mousavi, Y. Zhao, P. Chandrashekar, S. Mishra,
Geometry Aware Operator Transformer as an efficient and accurate neural surrogate for PDEs on
arbitrary domains, NeurIPS 2025, arXiv:2505.18781; code in github.com/camlab-ethz/GAOT.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.neighbours import (
    Edges,
    Lattice,
    ends,
    of_queries,
    of_sources,
    standardized,
    statistics,
    summed,
    within_box,
)
from operators.nn.pointwise import mlp
from operators.nn.resample import joined, windows
from operators.nn.tokens import (
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    check_heads,
    merged,
    sinusoids,
    split,
)

_EXAMPLES = "GAOT, released examples, which have the same settings in all; the count is not printed"
_READING = "not published: the settings of the released examples"


class Neighbourhoods(nn.Module):
    """v(y) = W [Σ α(y, x) K(x, y) f(x), G(statistics of y)] + b, summed over the x near y.

    α is a softmax over the neighbours x of y. The "cosine" scores are the cosines of the angles
    between the vectors from the centre of the domain to x and to y. With learned linear maps Q and
    P, the "dot" scores are Q(y)·P(x - y) / √64. The paper has P(x) instead of P(x - y), which gives
    the same softmax. If y has no neighbours, the sum is 0. G is an MLP of statistics of the
    neighbours.

    Args:
        dim: Number of coordinates.
        channels: Channels of f and of v.
        hidden, depth: Width and number of hidden layers of the MLP K. G has one hidden layer of
            `hidden` features.
        attention: Scores of the softmax α, "cosine" or "dot".
    """

    def __init__(
        self, dim: int, channels: int, hidden: int, depth: int, attention: Literal["cosine", "dot"]
    ) -> None:
        super().__init__()
        self.kernel = mlp(2 * dim, *[hidden] * depth, channels)
        self.query = nn.Linear(dim, 64) if attention == "dot" else None
        self.key = nn.Linear(dim, 64, bias=False) if attention == "dot" else None
        self.geometry = nn.Sequential(
            nn.Linear(3 + 2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, channels), nn.ReLU()
        )
        self.mix = nn.Linear(2 * channels, channels)

    def shares(self, edges: Edges) -> Float[Tensor, "e n k"]:
        """The attention weights of each query's neighbours, which sum to 1 if there are any."""
        source, query = ends(edges)
        if self.query is None or self.key is None:
            scores = nn.functional.cosine_similarity(source, query, dim=-1)
        else:
            scores = (self.query(query) * self.key(source - query)).sum(-1) / 8
        # candidates that are not near may be far away, where a "dot" score overflows: 0 times inf
        w = scores.masked_fill(~edges.near, 0.0).exp() * edges.near
        total = of_queries(summed(w[..., None], edges), edges)[..., 0]
        return w / torch.where(total > 0, total, 1)

    def forward(
        self, f: Tokens, edges: Edges, real: Bool[Tensor, "batch _"] | None = None
    ) -> Float[Tensor, "batch _ c"]:
        kernel = self.kernel(torch.cat(ends(edges), dim=-1)) * self.shares(edges)[..., None]
        v = summed(of_sources(f, edges) * kernel, edges)
        g = self.geometry(standardized(statistics(edges), real))
        return self.mix(torch.cat([v, g.expand(len(v), -1, -1)], dim=-1))


class Block(nn.Module):
    """u <- N₂(u + attention(N₁ u)), u <- u + W₂ (SiLU(W₁ u) ⊙ W₃ u), with RMS norms N.

    As in the released code, the second norm acts on the residual stream itself, not only on the
    input of the MLP.

    Args:
        width, heads: Features, and number of heads.
        skip: Whether the features of an earlier layer are first concatenated to u and mapped back
            to the width.
    """

    def __init__(self, width: int, heads: int, skip: bool) -> None:
        super().__init__()
        self.heads = heads
        self.join = nn.Linear(2 * width, width) if skip else None
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gates = nn.Linear(width, 8 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, u: Tokens, skip: Tokens | None = None) -> Tokens:
        if self.join is not None and skip is not None:
            u = self.join(torch.cat([u, skip], dim=-1))
        q, k, v = (split(part, self.heads) for part in self.qkv(self.norm1(u)).chunk(3, dim=-1))
        mixed = merged(nn.functional.scaled_dot_product_attention(q, k, v))
        u = self.norm2(u + self.out(mixed))
        w1, w3 = self.gates(u).chunk(2, dim=-1)
        return u + self.down(nn.functional.silu(w1) * w3)


class Processor(nn.Module):
    """A Transformer over patches of the lattice; skip connections link early and late layers.

    Args:
        sizes: Numbers of nodes of the lattice along each axis.
        patch: Nodes of a patch along each axis.
        channels: Features of a node.
        width, depth, heads: Features, layers and heads of the Transformer.
    """

    def __init__(
        self, sizes: list[int], patch: int, channels: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        self.sizes, self.patch = sizes, patch
        features = patch ** len(sizes) * channels
        self.embed = nn.Linear(features, features)
        same = features == width
        self.into = nn.Identity() if same else nn.Linear(features, width)
        self.first = nn.ModuleList(Block(width, heads, False) for _ in range(depth // 2))
        self.middle = nn.ModuleList(Block(width, heads, False) for _ in range(depth % 2))
        self.last = nn.ModuleList(Block(width, heads, True) for _ in range(depth // 2))
        self.outof = nn.Identity() if same else nn.Linear(width, features)

    def positions(self, like: Tensor) -> Float[Tensor, "patches features"]:
        """Sines and cosines of i / 10000^(j/w), j = 0 ... w - 1, for each axis.

        i is the index of the patch along the axis, and w is the number of frequencies.
        """
        counts = [size // self.patch for size in self.sizes]
        axes = [torch.arange(n, device=like.device) for n in counts]
        indices = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)
        return sinusoids(indices.to(like), like.shape[-1])

    def forward(self, u: Tokens) -> Tokens:
        parts = windows(u.unflatten(1, self.sizes), self.patch)  # (batch, *patches, nodes, c)
        u = self.embed(parts.flatten(-2).flatten(1, -2))
        u = self.into(u + self.positions(u))
        skips: list[Tensor] = []
        for block in self.first:
            u = block(u)
            skips.append(u)
        for block in self.middle:
            u = block(u)
        for block in self.last:
            u = block(u, skips.pop())
        return joined(self.outof(u).reshape(parts.shape), self.patch).flatten(1, -2)


class GAOT(TokenOperator):
    """Local attention from points to a lattice, a Transformer on the lattice, and attention back.

    The defaults are the settings of the released examples. The value of a lattice node is a sum
    over the points within the radius, weighted by a softmax over these points and by a kernel of
    both positions. The value at an output point y is such a sum over the lattice nodes. These sums
    are means over a neighbourhood, so values converge as evenly spread points are refined. If no
    points lie within the radius of a node, the sum is 0, and the statistics are those of an empty
    neighbourhood. If no nodes lie within the radius of a point y, u depends on such statistics
    only.

    A disc of the published radius, 0.033 in a square of side 2, contains on average π radius² n/4
    of n points. That is less than one for the 972 points of elasticity. For few points, choose a
    radius of 1 to 2 point spacings, and a lattice whose spacing is at most the radius.

    Args:
        lattice: Number of nodes along each axis, as one number or a list; `patch` must divide it.
        radius: Radius of the neighbourhoods in the domain, which is scaled to [-1, 1] along each
            axis.
        scales: Multiples of the radius. The sums are computed for each of these radii and averaged.
        scale_weights: Whether the average over the scales has learned weights: a softmax of an MLP
            of the position.
        channels: Features of a node.
        hidden, kernel_depth: Width and number of hidden layers of the kernel.
        attention: Scores of the softmax over neighbours: the "cosine" of positions, the published
            default, or a scaled "dot" product.
        patch: Nodes of a patch along each axis.
        width, depth, heads: Features, layers and heads of the Transformer.
        scaling: Region that is scaled to [-1, 1] along each axis. "sample": the bounding box of the
            points x of each sample, as in the graphs of the released code. "unit": the unit
            interval, for coordinates in [0, 1].

    Differences from the released code (commit aec18bb). That code searches for neighbours before
    training and stores lists of them. Here each call searches among the lattice nodes around each
    point; the sums are the same. Here kernels and neighbourhoods use the same scaled coordinates;
    the released code scales the coordinates of kernels by the bounds of the dataset. The keys of
    "dot" have no bias here, because it would not change the softmax. G has `hidden` features here
    and always 64 in that code.

    Options of the released code that its examples do not use are left out: PointNet instead of
    statistics, sines of positions in kernels, random removal of neighbours, rotary positions (of
    the index of the patch), fewer heads for keys than for queries, and norms that depend on time.
    Kernels that depend on the values of f are left out because they do not fit the lifted features
    of that code.

    As published, the statistics of neighbourhoods are standardised over all points of the output. u
    at one point therefore depends on the other points y: weakly if they are many points spread over
    the domain, and strongly if they are few. A single point y has statistics without deviation, all
    of which become 0. Predict all points of an output in one call.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "elasticity": Preset({}, 3_396_097, _EXAMPLES, (2, 1), 2),
        "darcy": Preset({"scaling": "unit"}, 3_396_033, _READING, dim=2),
        "navier-stokes": Preset({"scaling": "unit"}, 3_396_609, _READING, (10, 1), 2),
        "airfoil": Preset({}, 3_396_097, _READING, (2, 1), 2),
        "pipe": Preset({}, 3_396_097, _READING, (2, 1), 2),
        "plasticity": Preset({}, 3_396_162, _READING, (2, 2), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        lattice: int | list[int] = 64,
        radius: float = 0.033,
        scales: list[float] = [1.0],  # noqa: B006 - never changed
        scale_weights: bool = False,
        channels: int = 64,
        hidden: int = 64,
        kernel_depth: int = 3,
        attention: Literal["cosine", "dot"] = "cosine",
        patch: int = 2,
        width: int = 256,
        depth: int = 3,
        heads: int = 8,
        scaling: Literal["sample", "unit"] = "sample",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions("none", dim))
        check_heads(width, heads)
        at_least(1, channels=channels, hidden=hidden, kernel_depth=kernel_depth, patch=patch)
        at_least(0, depth=depth)
        sizes = lattice if isinstance(lattice, list) else [lattice] * dim
        if len(sizes) != dim:
            raise ValueError(f"lattice needs one number for each of {dim} axes, got {lattice}")
        if any(n < 2 or n % patch for n in sizes):
            raise ValueError(
                f"lattice must be at least 2 and a multiple of patch={patch}, got {lattice}"
            )
        if radius <= 0 or not scales or min(scales) <= 0:
            raise ValueError(f"radius and scales must be positive, got {radius} and {scales}")
        if patch**dim * channels % (2 * dim):
            raise ValueError(
                f"a patch needs a multiple of {2 * dim} features, got {patch**dim * channels} with "
                f"patch={patch}, channels={channels}"
            )
        self.lattice, self.scaling = Lattice(sizes), scaling
        self.radii = [radius * scale for scale in scales]
        self.lift = nn.Linear(in_channels, channels)
        self.encoder = Neighbourhoods(dim, channels, hidden, kernel_depth, attention)
        self.processor = Processor(sizes, patch, channels, width, depth, heads)
        self.decoder = Neighbourhoods(dim, channels, hidden, kernel_depth, attention)
        self.head = nn.Linear(channels, out_channels)

        def weights() -> nn.Module | None:
            if not scale_weights:
                return None
            hidden4 = max(1, hidden // 4)
            layers = nn.Linear(dim, hidden4), nn.ReLU(), nn.Linear(hidden4, len(scales))
            return nn.Sequential(*layers, nn.Softmax(dim=-1))

        self.of_scales = nn.ModuleList(m for m in (weights(), weights()) if m is not None)

    def scaled(
        self, p: Float[Tensor, "e _ dim"], x: Float[Tensor, "e n dim"], mask: Real | None
    ) -> Float[Tensor, "_ _ dim"]:
        """Positions p in the domain after scaling to [-1, 1] along each axis."""
        if self.scaling == "unit":
            return 2 * p - 1
        return 2 * within_box(p, x, mask) - 1

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        x, y = (p if p.ndim == 3 else p[None] for p in (x, y))
        x, y = self.scaled(x, x, mask), self.scaled(y, x, mask)
        f = self.lift(v)
        nodes = self.lattice.points(x)[None]
        parts = [self.encoder(f, self.lattice.edges(x, r, True, mask)) for r in self.radii]
        latent = self.processor(self._averaged(parts, nodes, 0))
        pairs = (self.lattice.edges(y, r, False, of_y) for r in self.radii)
        parts = [self.decoder(latent, edges, of_y) for edges in pairs]
        return self.head(self._averaged(parts, y, 1))

    def _averaged(self, parts: list[Tensor], p: Float[Tensor, "e n dim"], end: int) -> Tokens:
        stacked = torch.stack(parts, dim=-1)
        if not len(self.of_scales):
            return stacked.mean(dim=-1)
        return (stacked * self.of_scales[end](p)[..., None, :]).sum(dim=-1)
