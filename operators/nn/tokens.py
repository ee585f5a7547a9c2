"""Points as tokens: positional features, attention heads, and base classes of operators."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import (
    EVERYWHERE,
    MESHES,
    Function,
    Mask,
    Operator,
    Points,
    Targets,
    check_input,
)
from operators.nn.pointwise import mlp

# A cache of tensors that depend on sizes only.


def cached(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function `make`, which computes each result once and keeps it for the whole process.

    The tensors are made outside of `torch.inference_mode`, even if the first call is inside.
    Otherwise no later training could use them.

    >>> ones = cached(torch.ones)
    >>> with torch.inference_mode():
    ...     u = ones(3)
    >>> u.is_inference(), ones(3) is u
    (False, True)
    """

    @cache
    @wraps(make)
    def made(*arguments: Any) -> Tensor:
        with torch.inference_mode(False):
            return make(*arguments)

    return made


Coordinates = Literal["raw", "periodic", "none"]
Tokens = Float[Tensor, "batch n c"]
TokenPoints = Float[Tensor, "_ dim"] | Float[Tensor, "batch _ dim"]
Real = Bool[Tensor, "batch n"]  # False at padding


@dataclass(frozen=True)
class Positions:
    """Positional features of points x, which are concatenated to the values of a function.

    Args:
        kind: "raw": x. "periodic": cos 2πx and sin 2πx, which have no jump at the ends of [0, 1].
            "none": no features. "lattice": the distances from x to reference points in [0, 1]^dim.
        lattice: Number of reference points along each axis, including the ends.
        last: Whether the features come after the values of the function; otherwise before them.

    >>> Positions("periodic", 1)(torch.tensor([[0.0]]))
    tensor([[1., 0.]])
    """

    kind: Coordinates | Literal["lattice"]
    dim: int
    lattice: int = 8
    last: bool = False

    @property
    def count(self) -> int:
        """Number of positional features of a point."""
        dim = self.dim
        return {"raw": dim, "periodic": 2 * dim, "none": 0, "lattice": self.lattice**dim}[self.kind]

    def __call__(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points p"]:
        if self.kind == "raw":
            return x
        if self.kind == "none":
            return x[..., :0]
        if self.kind == "periodic":
            return torch.cat([torch.cos(2 * torch.pi * x), torch.sin(2 * torch.pi * x)], dim=-1)
        reference = nodal([self.lattice] * self.dim, x).flatten(0, -2)
        return torch.linalg.vector_norm(x[..., None, :] - reference, dim=-1)

    def beside(self, a: Function, x: Points) -> Float[Tensor, "batch *grid f"]:
        """Concatenate the positional features of the points x to the values of a."""
        p = self(x).expand(*a.shape[:-1], -1)
        return torch.cat([a, p] if self.last else [p, a], dim=-1)


class PointOperator(Operator):
    """An operator whose input is the values of a function at arbitrary points.

    Attributes:
        positions: Positional features, which are concatenated to the values of a.
        features: Number of values and positional features of a point.
    """

    domains = EVERYWHERE
    points_by_sample = True
    masks = True

    def __init__(self, in_channels: int, out_channels: int, dim: int, positions: Positions) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.positions, self.features = positions, in_channels + positions.count


class FieldOperator(PointOperator):
    """u = D L E (a, x). Embedding E and decoder D act at each point; the layers L couple points."""

    embed: nn.Module
    blocks: nn.ModuleList
    decoder: nn.Module

    def encoded(self, u: Function, mask: Real | None) -> Function:
        """Apply the layers L, by default the blocks. The grid axes of `mask` are flattened."""
        for block in self.blocks:
            u = block(u, mask)
        return u

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch *grid c_out"]:
        check_input(self, a, x, y, mask)
        u = self.embed(self.positions.beside(a, x))
        return self.decoder(self.encoded(u, None if mask is None else mask.flatten(1)))


class TokenOperator(PointOperator):
    """u(y) = F(y; (a, x)) with points as tokens. If `indices` is True, j/n replaces x."""

    other_points = True
    indices = False

    def see_indices(self) -> None:
        """Use grid indices as positions; the coordinates must then be channels of a."""
        self.indices, self.domains, self.masks, self.other_points = True, MESHES, False, False

    @abstractmethod
    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        """Values at the points y.

        Args:
            v: Values and positional features at the points x.
            x, y: Points that all samples share, or points of each sample. If the output is at x,
                then y is the same tensor as x.
            mask: False at padding among the points x.
            of_y: False at padding among the points y.
        """

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        if self.indices:
            x = mesh(a.shape[1:-1], x)
        target, by_sample = x if y is None else y, x.ndim == a.ndim
        points = flattened(x, by_sample)
        outputs = points if y is None else flattened(y, by_sample)
        v = self.positions.beside(a, x).flatten(1, -2)
        real = None if mask is None else mask.flatten(1)
        u = self.decoded(v, points, outputs, real, real if y is None else None)
        return u.reshape(len(u), *target.shape[int(by_sample) : -1], -1)


def check_heads(width: int, heads: int) -> None:
    """Raise ValueError unless the number of heads divides the width."""
    if heads < 1 or width < 1 or width % heads:
        raise ValueError(f"heads must divide width, got heads={heads}, width={width}")


def flattened(
    x: Float[Tensor, "*points p"], by_sample: bool
) -> Float[Tensor, "n p"] | Float[Tensor, "batch n p"]:
    """Flatten the grid axes of x. If `by_sample`, the first axis is that of the samples."""
    return x.flatten(int(by_sample), -2)


def mesh(sizes: Sequence[int], like: Tensor) -> Float[Tensor, "*grid dim"]:
    """Product grid on [0, 1)^dim of the points j/n along an axis of n points.

    >>> mesh([2], torch.zeros(1)).flatten()
    tensor([0.0000, 0.5000])
    """
    axes = [torch.arange(n, dtype=like.dtype, device=like.device) / n for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def nodal(sizes: Sequence[int], like: Tensor) -> Float[Tensor, "*grid dim"]:
    """Product grid on [0, 1]^dim of the points j/(n - 1) along an axis of n points.

    >>> nodal([3], torch.zeros(1)).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    axes = [torch.linspace(0, 1, n, dtype=like.dtype, device=like.device) for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def sinusoids(x: Float[Tensor, "*points dim"], features: int) -> Float[Tensor, "*points f"]:
    """sin ωx and cos ωx of each coordinate x at w frequencies ω.

    The frequencies are ω = 10000^(-j/w) for j = 0 ... w - 1, where w = ⌊features/(2 dim)⌋. If
    `features` is not a multiple of 2 dim, the remaining features are 0.

    >>> sinusoids(torch.tensor([[0.0]]), 3)
    tensor([[0., 1., 0.]])
    """
    waves = features // (2 * x.shape[-1])
    rates = 10000 ** -(torch.arange(waves, device=x.device).to(x) / waves)
    phase = x[..., None] * rates
    values = torch.cat([phase.sin(), phase.cos()], dim=-1).flatten(-2)
    return nn.functional.pad(values, (0, features - values.shape[-1]))


def split(u: Tokens, heads: int) -> Float[Tensor, "batch heads n d"]:
    """Split features into heads.

    >>> split(torch.zeros(2, 5, 6), 3).shape
    torch.Size([2, 3, 5, 2])
    """
    return u.reshape(*u.shape[:-1], heads, -1).transpose(1, 2)


def merged(v: Float[Tensor, "batch heads n d"]) -> Tokens:
    """Merge heads into features."""
    return v.transpose(1, 2).flatten(2)


def as_keys(mask: Real | None) -> Bool[Tensor, "batch 1 1 n"] | None:
    """Convert a mask to the mask argument of `scaled_dot_product_attention`."""
    return None if mask is None else mask[:, None, None]


class CrossAttention(nn.Module):
    """Multi-head attention softmax(QKᵀ/√d) V W + b of queries q to sources z.

    Q = q W_q, K = z W_k and V = z W_v; d is the number of features of a head.

    Args:
        queries, sources, out: Numbers of features of q, of z and of the result; None means `width`.
        project: Whether Q = q W_q. Otherwise Q = q, which suffices if q is a learned parameter.
        normalize: Whether Q and K have an RMS norm with learned factors in each head.
        bias: Whether the maps to Q, K and V have a bias.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        queries: int | None = None,
        sources: int | None = None,
        out: int | None = None,
        project: bool = True,
        normalize: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.query = nn.Linear(queries or width, width, bias=bias) if project else nn.Identity()
        self.key, self.value = (nn.Linear(sources or width, width, bias=bias) for _ in range(2))
        self.norm_query, self.norm_key = (
            nn.RMSNorm(d, eps=1e-6) if normalize else nn.Identity() for _ in range(2)
        )
        self.out = nn.Linear(width, out or width)

    def forward(
        self, q: Float[Tensor, "_ m _"], z: Float[Tensor, "batch n _"], mask: Real | None = None
    ) -> Float[Tensor, "batch m _"]:
        """Attention from q to z. Samples may share q; `mask` is False at padding of z."""
        q, k, v = (split(u, self.heads) for u in (self.query(q), self.key(z), self.value(z)))
        q, k = self.norm_query(q), self.norm_key(k)  # (batch, heads, m|n, d)
        q = q.expand(len(k), -1, -1, -1)
        v = nn.functional.scaled_dot_product_attention(q, k, v, as_keys(mask))
        return self.out(merged(v))


def rotated(
    u: Float[Tensor, "batch heads n d"],
    x: Float[Tensor, "n dim"] | Float[Tensor, "batch n dim"],
    rate: float,
) -> Float[Tensor, "batch heads n d"]:
    """Rotate pairs of features by angles proportional to the coordinates of the points.

    Features are split into dim groups, one for each coordinate x. Each group has p = d/(2 dim)
    pairs. Pair j consists of the features j and j + p of the group, and is rotated by the angle
    `rate` · x · 10000^(-j/p). Products of rotated queries and keys depend on positions only
    through differences of points.

    Args:
        rate: Angle of the fastest pair per unit length.

    >>> rotated(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[1.0]]), math.pi / 2).round()
    tensor([[[[-0., 1.]]]])

    References: J. Su et al., RoFormer, 2021 (arXiv 2104.09864).
    """
    pairs = u.shape[-1] // (2 * x.shape[-1])
    powers = torch.arange(pairs, dtype=x.dtype, device=x.device) / pairs
    angle = x[..., None] * (rate * 10000**-powers)  # ([batch,] n, dim, pairs)
    angle = angle if x.ndim == 2 else angle[:, None]
    cos, sin = angle.cos(), angle.sin()
    first, second = u.unflatten(-1, (x.shape[-1], 2, pairs)).unbind(-2)
    rotated_pairs = [first * cos - second * sin, second * cos + first * sin]
    return torch.stack(rotated_pairs, dim=-2).flatten(-3)


class RandomWaves(nn.Module):
    """sin(2π x B) and cos(2π x B) with a fixed random matrix B (M. Tancik et al., Fourier Features
    Let Networks Learn High Frequency Functions, NeurIPS 2020)."""

    waves: Tensor

    def __init__(self, dim: int, count: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(dim, count // 2) * scale)

    def forward(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points _"]:
        phase = 2 * math.pi * (x @ self.waves)
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


# Attention whose weights depend on distances between points instead of values.


Values = Float[Tensor, "batch n c"]
Points = Float[Tensor, "n dim"] | Float[Tensor, "batch n dim"]
Targets = Float[Tensor, "m dim"] | Float[Tensor, "batch m dim"]

# entries of an attention matrix that are computed at a time: 256 MB in float32
ENTRIES = 2**26


@dataclass(frozen=True)
class SquaredDistance:
    """D_ij = |y_i - x_j|² / s, where the distance is Euclidean or that on the unit torus.

    The published periodic distance in two dimensions wraps around only one axis at a time, and
    opposite corners of the square are far apart. The distance here is invariant under translations.

    Args:
        periodic: Whether distances are those on the unit torus.
        scale: The scale s.

    >>> SquaredDistance(True, 0.25)(torch.tensor([[0.0]]), torch.tensor([[0.5], [0.75]]))
    tensor([[1.0000, 0.2500]])
    """

    periodic: bool
    scale: float

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def __call__(self, y: Targets, x: Points) -> Float[Tensor, "*batch m n"]:
        d = y.new_zeros(y.shape[-2], x.shape[-2])
        # axis by axis, without an (m, n, dim) tensor or the cancellation of |y|² - 2xy + |x|²
        for yi, xi in zip(y.unbind(-1), x.unbind(-1), strict=True):
            difference = yi[..., None] - xi[..., None, :]
            if self.periodic:
                difference = difference - difference.round()
            d = d + difference.square()
        return d / self.scale


def check_localities(**localities: float) -> None:
    """Raise ValueError unless all localities, percentages of points, lie in (0, 100]."""
    for name, locality in localities.items():
        if not 0 < locality <= 100:
            raise ValueError(f"{name} must lie in (0, 100], got {locality}")


def neighbours(
    d: Float[Tensor, "*batch m n"], locality: float, mask: Real | None = None
) -> Bool[Tensor, "*batch m n"]:
    """Whether each distance in d is at most the percentile `locality` of its row.

    The result is always True at the minimum of a row. The percentile is rounded down to entry
    ⌊locality (n - 1) / 100⌋ of the sorted row. Distances that differ only by rounding of the
    coordinates are treated alike. Padding is never a neighbour, and n does not count padding.

    >>> neighbours(torch.tensor([[4.0, 1.0, 9.0, 0.0, 1.0]]), 25.0)
    tensor([[False,  True, False,  True,  True]])
    """
    if mask is None:
        count = int(locality * (d.shape[-1] - 1) / 100) + 1
        # not kthvalue, which has no deterministic form on a GPU
        nearest = d.detach().topk(count, largest=False, sorted=False).values
        radius = nearest.amax(-1, keepdim=True)
    else:
        d = d.masked_fill(~mask[:, None], math.inf)
        last = (locality * (mask.sum(-1).double() - 1) / 100).long()
        last = last[:, None, None].expand(*d.shape[:-1], 1)
        radius = d.detach().sort(dim=-1).values.gather(-1, last)
    # a tolerance of float32, so that both precisions find the same neighbours
    return d <= radius + 4 * torch.finfo(torch.float32).eps * radius.sqrt()


def projection(in_channels: int, width: int, heads: int) -> nn.Linear:
    """One linear map that consists of the matrices W of h heads, without bias.

    The initial weights are normal with variance 2/(h c_in), as in the published code. There, the
    He initialisation of a tensor of shape (h, c_in, d/h) counts the first axis among the inputs.
    """
    linear = nn.Linear(in_channels, width, bias=False)
    nn.init.normal_(linear.weight, std=math.sqrt(2 / (heads * in_channels)))
    return linear


class PositionWeights(nn.Module):
    """Attention matrices softmax(-λ D(y, x)), with one λ > 0 for each head (eqs. 9, 10).

    Samples that share the points share the matrices. Groups of rows, which belong to points y, are
    computed one after another. In evaluation, memory contains about `ENTRIES` entries of the
    matrices at a time; training stores all entries.

    λ = tan(π/4 (1 - 10⁻⁷)(1 + sin r)) with a free parameter r. The published code has several
    forms, of which this is the most accurate.

    Args:
        heads: Number of heads.
        locality: Percentage of the points x to which a point y attends: the nearest points.
        distance: The squared distance D.
    """

    r: nn.Parameter  # one for each head

    def __init__(self, heads: int, locality: float, distance: SquaredDistance) -> None:
        super().__init__()
        self.heads, self.locality, self.distance = heads, locality, distance

    @property
    def rate(self) -> Float[Tensor, " heads"]:
        """The decay λ of the weights exp(-λ D) of each head, which reach about λ^(-1/2) far."""
        return torch.tan(math.pi / 4 * (1 - 1e-7) * (1 + torch.sin(self.r)))

    def scores(
        self, x: Points, y: Targets, mask: Real | None = None
    ) -> Float[Tensor, "*batch heads m n"]:
        """-λD for neighbours and -∞ for other points; no batch axis if samples share x and y."""
        d = self.distance(y, x)
        d = d if mask is None else d.expand(len(mask), -1, -1)
        scores = -self.rate[:, None, None] * d[..., None, :, :]
        if self.locality < 100:
            near = neighbours(d, self.locality, mask)
        elif mask is not None:
            near = mask[:, None]
        else:
            return scores
        return scores.masked_fill(~near[..., None, :, :], -math.inf)

    def averages(
        self,
        v: Float[Tensor, "batch n heads d"],
        x: Points,
        y: Targets,
        mask: Real | None = None,
    ) -> Float[Tensor, "batch m width"]:
        """Multiply the matrix of each head by the values v of the head; concatenate the heads."""
        if x.ndim == 3 or y.ndim == 3 or mask is not None:
            v = v.transpose(1, 2)
            rows = self._rows(len(v), x)
            parts = [self.scores(x, part, mask).softmax(-1) @ v for part in y.split(rows, dim=-2)]
            return merged(torch.cat(parts, dim=2))
        batch, v = len(v), v.permute(2, 1, 0, 3).flatten(2)  # (heads, n, batch d): one product
        parts = [
            torch.bmm(self.scores(x, part).softmax(-1), v) for part in y.split(self._rows(1, x))
        ]
        v = torch.cat(parts, dim=1).unflatten(2, (batch, -1))  # (heads, m, batch, d)
        return v.permute(2, 1, 0, 3).flatten(2)

    def _rows(self, batch: int, x: Points) -> int:
        """Number of points y whose rows of the matrices are computed at a time."""
        return max(1, ENTRIES // (batch * self.heads * x.shape[-2]))


class PositionAttention(PositionWeights):
    """v(y) = GELU(softmax(-λ D(y, x)) u(x) W), with λ > 0 and W of each head (eqs. 5, 9, 10)."""

    def __init__(
        self, in_channels: int, width: int, heads: int, locality: float, distance: SquaredDistance
    ) -> None:
        super().__init__(heads, locality, distance)
        self.value = projection(in_channels, width, heads)
        limit = math.sqrt(3 / heads)
        self.r = nn.Parameter(torch.empty(heads).uniform_(-limit, limit))

    def forward(
        self, u: Values, x: Points, y: Targets, mask: Real | None = None
    ) -> Float[Tensor, "batch m width"]:
        v = self.value(u).unflatten(-1, (self.heads, -1))  # (batch, n, heads, d)
        return nn.functional.gelu(self.averages(v, x, y, mask))


class PositionAverage(PositionWeights):
    """softmax(-λ D(y, x)) u(x) for each head; the results of all heads are concatenated."""

    def __init__(self, heads: int, locality: float, distance: SquaredDistance) -> None:
        super().__init__(heads, locality, distance)
        self.r = nn.Parameter(torch.rand(heads))

    def forward(
        self, u: Values, x: Points, y: Targets, mask: Real | None = None
    ) -> Float[Tensor, "batch m hc"]:
        return self.averages(u[:, :, None].expand(-1, -1, self.heads, -1), x, y, mask)


class SelfPositionAttention(PositionAttention):
    """v = GELU(softmax(QKᵀ/√d - λD) V) at the points x of u (eq. 12).

    The matrix depends on values and distances, and differs between samples. As in the published
    code the points y must be x, because a query is computed from the value at the same point. The
    published code has λ = tan r and makes r positive after each training step. Here λ is that of
    `PositionAttention`, which needs no constraint.
    """

    def __init__(
        self, in_channels: int, width: int, heads: int, locality: float, distance: SquaredDistance
    ) -> None:
        super().__init__(in_channels, width, heads, locality, distance)
        self.query = projection(in_channels, width, heads)
        self.key = projection(in_channels, width, heads)

    def forward(
        self, u: Values, x: Points, y: Targets, mask: Real | None = None
    ) -> Float[Tensor, "batch m width"]:
        q, k, v = (split(p(u), self.heads) for p in (self.query, self.key, self.value))
        rows = self._rows(len(u), x)
        parts = [
            nn.functional.scaled_dot_product_attention(queries, k, v, self.scores(x, points, mask))
            for queries, points in zip(q.split(rows, dim=2), y.split(rows, dim=-2), strict=True)
        ]
        return nn.functional.gelu(merged(torch.cat(parts, dim=2)))


class SelfAttention(nn.Module):
    """v = GELU(softmax(QKᵀ/√d) V) at the points x of u (eq. 3); positions are not used."""

    def __init__(self, in_channels: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = projection(in_channels, width, heads)
        self.key = projection(in_channels, width, heads)
        self.value = projection(in_channels, width, heads)

    def forward(
        self, u: Values, x: Points, y: Targets, mask: Real | None = None
    ) -> Float[Tensor, "batch m width"]:
        q, k, v = (split(p(u), self.heads) for p in (self.query, self.key, self.value))
        v = nn.functional.scaled_dot_product_attention(q, k, v, as_keys(mask))
        return nn.functional.gelu(merged(v))


class Block(nn.Module):
    """u <- u + attention(LN(u)), then u <- u + MLP(LN(u)). The attention gets the mask."""

    def __init__(self, width: int, attention: nn.Module, feedforward: int) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = mlp(width, feedforward, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, u: Function, *mask: Real | None) -> Function:
        u = u + self.attention(self.norm1(u), *mask)
        return u + self.mlp(self.norm2(u))
