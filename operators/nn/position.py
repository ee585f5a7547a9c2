r"""Attention whose weights depend on distances between points instead of values.

The layers have several heads and map values u(x) at n points x to values at m points y. Points have
shape (n, dim), or (batch, n, dim) if they differ between samples; grids are flattened. A mask is
False at padding among the points x, whose attention weights are 0.

References: J. Chen and K. Wu, Positional Knowledge is All You Need: Position-induced Transformer
(PiT) for Operator Learning, ICML 2024, section 2.2; code in
github.com/junfeng-chen/position_induced_transformer (the TensorFlow version is that of the paper).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.nn.tokens import Real, as_keys, merged, split

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
        self, v: Float[Tensor, "batch n heads d"], x: Points, y: Targets, mask: Real | None = None
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
