"""Points as tokens: positional features, attention heads, and base classes of operators."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

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
        axis = torch.linspace(0, 1, self.lattice, dtype=x.dtype, device=x.device)
        reference = torch.stack(torch.meshgrid(*[axis] * self.dim, indexing="ij"), dim=-1)
        return torch.linalg.vector_norm(x[..., None, :] - reference.flatten(0, -2), dim=-1)

    def beside(self, a: Function, x: Points) -> Float[Tensor, "batch *grid f"]:
        """Concatenate the positional features of the points x to the values of a."""
        p = self(x).expand(*a.shape[:-1], -1)
        return torch.cat([a, p] if self.last else [p, a], dim=-1)


class PointOperator(Operator):
    """An operator whose input is the values of a function at arbitrary points."""

    domains = EVERYWHERE
    points_by_sample = True
    masks = True

    def __init__(self, in_channels: int, out_channels: int, dim: int, positions: Positions) -> None:
        super().__init__(in_channels, out_channels, dim)
        self.positions = positions


class FieldOperator(PointOperator):
    """u = D L E (a, x). Embedding E and decoder D act at each point; the layers L couple points."""

    embed: nn.Module
    decoder: nn.Module

    @abstractmethod
    def encoded(self, u: Function, mask: Real | None) -> Function:
        """Apply the layers L. The grid axes of `mask` are flattened."""

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
            sizes = list(a.shape[1:-1])
            x = mesh(sizes, x).reshape(*sizes, -1)
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


def mesh(points: int | list[int], x: Float[Tensor, "*points dim"]) -> Float[Tensor, "latent dim"]:
    """Product grid on [0, 1)^dim of the points j/n along an axis of n points, in the dtype of x.

    >>> mesh(2, torch.zeros(5, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.5], [0.5, 0.0], [0.5, 0.5]]
    """
    sizes = points if isinstance(points, list) else [points] * x.shape[-1]
    axes = [torch.arange(n, dtype=x.dtype, device=x.device) / n for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


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
