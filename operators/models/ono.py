r"""The Orthogonal Neural Operator: kernel integrals with learned orthonormal eigenfunctions.

    f <- f + Σᵢ μᵢ ψᵢ ⟨ψᵢ, f⟩,    ⟨ψᵢ, ψⱼ⟩ = δᵢⱼ on average over the samples.

The functions ψ = ψ(a)(x) are computed at each point x from features g(x), which are updated by
attention over all points. Each layer updates both f and g.

References: Z. Xiao et al., Improved Operator Learning by Orthogonal Attention, ICML 2024;
released code zhijie-group/Orthogonal-Neural-operator.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from operators.base import Preset, at_least
from operators.nn.attention import NystromAttention, efficient, galerkin, keep, kernelized, softmax
from operators.nn.encoder import efficient_attention_added, normed_mlp, on_processor
from operators.nn.pointwise import BatchNorm, mlp, start_truncated
from operators.nn.tokens import (
    Coordinates,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    check_heads,
    merged,
)

# Eigenfunctions ψ̂ of kernels Σᵢ μᵢ ψ̂ᵢ(y) ψ̂ᵢ(x), computed from features of points.


Values = Float[Tensor, "batch n width"]


class Orthonormal(nn.Module):
    r"""ψ̂ = ψ L⁻ᵀ with ψ = W g + b and L Lᵀ = C, so that the mean of ψ̂ᵢ ψ̂ⱼ is δᵢⱼ (eq. 7-9).

    In training C is the mean of ψᵀψ over samples and points of the batch, and gradients pass
    through C. As in batch normalisation, evaluation uses a moving average of C, and the result for
    a sample does not depend on its batch. Before training, this average is the identity.

    The matrix that is factorised is C + λ(tr C/k) I, in training and in evaluation. The added term
    prevents directions in which ψ hardly varies from being scaled up to size 1. It also allows
    batches with fewer than k points. The released code adds 1e-6 I only if the factorisation fails,
    then 1e-5 I, and so on.

    Args:
        width: Number of features in g.
        k: Number of eigenfunctions.
        momentum: Weight m of the old average in C̄ <- m C̄ + (1 - m) C. In the first step C̄ <- C.
        jitter: The factor λ.
    """

    covariance: Tensor
    steps: Tensor

    def __init__(self, width: int, k: int, momentum: float, jitter: float) -> None:
        super().__init__()
        self.project = nn.Linear(width, k)
        self.momentum, self.jitter = momentum, jitter
        self.register_buffer("covariance", torch.eye(k, dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, g: Values, mask: Real | None = None) -> Float[Tensor, "batch n k"]:
        """ψ̂ at the points; the values are 0 at padding, where `mask` is False."""
        # in float64, which autocast leaves alone: the condition number of C is that of ψ squared
        psi = self.project(g).double()
        psi = psi if mask is None else psi * mask[..., None]
        if self.training:
            rows = psi.flatten(0, 1)
            c = rows.mT @ rows / (len(rows) if mask is None else mask.sum())
            self._average(c.detach())
        else:
            c = self.covariance.double()
        identity = torch.eye(len(c), dtype=c.dtype, device=c.device)
        # an exception would wait for the GPU; a failed factorisation makes the loss NaN instead
        factor, failed = torch.linalg.cholesky_ex(c + self.jitter * c.diagonal().mean() * identity)
        factor = factor.masked_fill(failed != 0, torch.nan)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return (psi.flatten(0, 1) @ inverse.mT).view(psi.shape).to(g.dtype)

    @torch.no_grad()
    def _average(self, c: Float[Tensor, "k k"]) -> None:
        weight = 1 - self.momentum * (self.steps > 0).to(self.covariance)
        self.covariance.lerp_(c.to(self.covariance), weight)
        self.steps.add_(1)


class Normalized(nn.Module):
    """ψ̂ = N(W g + b) with a batch or layer norm N: ψ̂ᵢ are normalised, not orthogonal.

    Args:
        kind: "batch" normalises each ψᵢ over the points of all samples; "layer" normalises the k
            values at each point.
        momentum: Weight of the old average in the moving averages of the batch norm.
    """

    def __init__(
        self, width: int, k: int, kind: Literal["batch", "layer"], momentum: float
    ) -> None:
        super().__init__()
        self.project = nn.Linear(width, k)
        self.norm = BatchNorm(k, momentum=1 - momentum) if kind == "batch" else nn.LayerNorm(k)

    def forward(self, g: Values, mask: Real | None = None) -> Float[Tensor, "batch n k"]:
        """ψ̂ at the points; the values are 0 at padding, where `mask` is False."""
        psi = self.project(g)
        psi = self.norm(psi, mask) if isinstance(self.norm, BatchNorm) else self.norm(psi)
        return psi if mask is None else psi * mask[..., None]


_PAPER, _CODE = "Xiao et al. 2024", "README of the released code"
_TABLE = f"{_PAPER}, table 1; {_CODE}"
_UNCOUNTED = f"{_TABLE}; the count is not published"
_SUM = {"inner_product": "sum"}
_SMALL = _SUM | {"depth": 8, "eigenfunctions": 8, "expansion": 1}
_LINEAR = _SMALL | {"attention": "linear", "eigenfunctions": 16}
_DEEP = {"depth": 30, "expansion": 4}
_THIRTY = f"{_PAPER}, table 6, 10 million; hidden features of the MLPs are not published"
_PIPE = _SMALL | {"coordinates": "none"}

Kind = Literal["linear", "elu", "softmax", "galerkin"]
_MAPS = {"linear": efficient, "elu": kernelized, "softmax": softmax, "galerkin": galerkin}
OfSources = Bool[Tensor, "batch m"]  # False at padding
Sources = Float[Tensor, "batch m width"]


class StreamAttention(nn.Module):
    """Multi-head attention from u to `source`.

    Args:
        width, heads: Features, and number of heads.
        kind: One of four maps. "linear": softmax(Q) (softmax(K)ᵀ V) / √d, with the softmax of Q
            over features and that of K over points (Shen et al. 2021). "elu":
            φ(Q) (φ(K)ᵀV) / (φ(Q) Σφ(K)) with φ(x) = elu(x) + 1 (Katharopoulos et al. 2020).
            "softmax": softmax(QKᵀ/√d) V, with a cost quadratic in the number of points.
            "galerkin": Q (KᵀV) / n, where K and V have layer norms whose weights the heads share.
    """

    def __init__(self, width: int, heads: int, kind: Kind) -> None:
        super().__init__()
        self.heads, self.apply_to = heads, _MAPS[kind]
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.norm_key, self.norm_value = (
            nn.LayerNorm(width // heads) if kind == "galerkin" else nn.Identity() for _ in range(2)
        )
        self.out = nn.Linear(width, width)

    def forward(
        self, u: Values, source: Sources | None = None, mask: OfSources | None = None
    ) -> Values:
        """Attention from u to `source`, by default u; `mask` is False where `source` is padding."""
        s = u if source is None else source
        maps = ((self.query, u), (self.key, s), (self.value, s))
        q, k, v = (project(w).unflatten(-1, (self.heads, -1)) for project, w in maps)
        q, k, v = (w.transpose(1, 2) for w in (q, self.norm_key(k), self.norm_value(v)))
        real = None if mask is None else mask[:, None, :, None]
        return self.out(merged(self.apply_to(q, k, v, keep, real)))

    def added(self, u: Values, norm: nn.LayerNorm) -> Values:
        """A residual step: u plus the attention of its layer norm."""
        if self.apply_to is not efficient or not on_processor(u):
            return u + self(norm(u))
        query, key, value = (layer.weight for layer in (self.query, self.key, self.value))
        return efficient_attention_added(u, norm, query, key, value, self.out, self.heads)


class Layer(nn.Module):
    """Base class of layers: updates g, and computes functions ψ̂ of g and the integral of f.

    μ is the softplus of a parameter with initial value 0.

    Args:
        width, hidden: Number of features of g and of f, and of the hidden layer of each MLP.
        k: Number of functions ψ̂.
        attention: The attention that updates g.
        mean: Whether the sum over n points in ⟨ψ̂ᵢ, f⟩ is divided by n; see `ONO`.
        values: Whether the matrix W_V multiplies f in the integral (eq. 5); see `ONO`.
        functions: Constructor of the map from g to ψ̂.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        k: int,
        attention: nn.Module,
        mean: bool,
        values: bool,
        functions: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.attention, self.mean = attention, mean
        self.value = nn.Linear(width, width, bias=False) if values else nn.Identity()
        self.mlp = mlp(width, hidden, width)
        self.eigenfunctions = functions()
        self.eigenvalues = nn.Parameter(torch.zeros(k))
        self.update: nn.Sequential | nn.Linear = mlp(width, hidden, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))

    def features(self, g: Values, mask: Real | None) -> Values:
        """The updated g: g <- g + attention(N g), g <- g + MLP(N g), with layer norms N (eq. 3)."""
        if isinstance(self.attention, StreamAttention) and mask is None:
            g = self.attention.added(g, self.norm1)
        else:
            g = g + self.attention(self.norm1(g), mask=mask)
        return normed_mlp(g, self.norm2, self.mlp, added=True)

    def updated(self, f: Values) -> Float[Tensor, "batch n _"]:
        """The updated f: an MLP of its layer norm; in the last layer a linear map of it."""
        if isinstance(self.update, nn.Linear):
            return self.update(self.norm3(f))
        return normed_mlp(f, self.norm3, self.update, added=False)

    def integral(
        self,
        target: Float[Tensor, "batch n k"],
        source: Float[Tensor, "batch m k"],
        f: Sources,
        mask: OfSources | None,
    ) -> Values:
        """The integral of f against the kernel Σᵢ μᵢ ψ̂ᵢ(y) ψ̂ᵢ(x), with learned μᵢ > 0 (eq. 15).

        If the layer has a value projection W_V, f is multiplied by it first (eq. 5).

        Args:
            target, source: Values of ψ̂ at the points of the output, and at those of f.
            f: The function f.
            mask: False where a point of f is padding.
        """
        coefficients = source.mT @ f  # (batch, k, width)
        if self.mean:
            n = f.shape[1] if mask is None else mask.sum(1)[:, None, None]
            coefficients = coefficients / n
        # ⟨ψ̂, f⟩ W_V = ⟨ψ̂, f W_V⟩: the product on the left does not grow with the points
        coefficients = self.value(coefficients)
        return target * nn.functional.softplus(self.eigenvalues) @ coefficients


class OrthogonalLayer(Layer):
    """g is updated as in `Layer`, then f <- MLP(N(f + Σᵢ μᵢ ψ̂ᵢ ⟨ψ̂ᵢ, f⟩)) (eqs. 5 and 6)."""

    def forward(
        self, g: Values, f: Values, mask: Real | None = None
    ) -> tuple[Values, Float[Tensor, "batch n c"]]:
        g = self.features(g, mask)
        psi = self.eigenfunctions(g, mask)
        return g, self.updated(f + self.integral(psi, psi, f, mask))


class QueryLayer(Layer):
    """The first layer of an operator that predicts at points y: f(y) <- MLP(N Σᵢ μᵢ φ̂ᵢ ⟨ψ̂ᵢ, f⟩).

    ψ̂ are functions of the features at x. φ̂ are functions of features at y, computed from y and
    from cross-attention to the features at x. ψ̂ are orthonormal over the points x, and φ̂ over the
    points y. There is no residual sum, because f is at the points x and the result at the points y.

    In 2-D the released code applies a rotary embedding to the features at x before this
    cross-attention. The embedding is omitted here, because the features include the coordinates.

    Args:
        target, source: Number of input features at y, and at x including a(x).
        heads: Heads of the attention from y to x.
        sizes: The arguments of `Layer`.
    """

    def __init__(
        self,
        target: int,
        source: int,
        heads: int,
        sizes: tuple[int, int, int, nn.Module, bool, bool, Callable[[], nn.Module]],
    ) -> None:
        super().__init__(*sizes)
        width, *_, functions = sizes
        self.source_eigenfunctions = functions()
        self.lift_target, self.lift_source = mlp(target, width, width), mlp(source, width, width)
        self.cross = StreamAttention(width, heads, "linear")
        self.norm_target, self.norm_source = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self,
        y: Float[Tensor, "batch n p"],
        x: Float[Tensor, "batch m q"],
        g: Sources,
        f: Sources,
        mask: OfSources | None = None,
        of_target: Real | None = None,
    ) -> tuple[Values, Values]:
        """Hidden features g and f at the output points.

        Args:
            y, x: Input features of the output points, and of the input points.
            g, f: Hidden features at the input points.
            mask, of_target: False where an input point, or an output point, is padding.
        """
        h = self.lift_target(y)
        h = h + self.cross(self.norm_target(h), self.norm_source(self.lift_source(x)), mask)
        h = self.features(h, of_target)
        psi = self.source_eigenfunctions(g, mask)
        f = self.integral(self.eigenfunctions(h, of_target), psi, f, mask)
        return h, self.updated(f)


class ONO(TokenOperator):
    """An MLP computes features g and f of points; layers expand f in orthonormal functions of g.

    The defaults are the published settings of the Darcy example except `inner_product`: 2,027,985
    parameters. The initial weights of all linear maps are N(0, 0.02²) truncated at ±2, and the
    biases 0.

    In the paper ⟨ψ̂ᵢ, f⟩ is an integral (eq. 12); in the released code it is a sum over the n
    points. Values of ψ̂ have size 1 on every grid, so the sum grows with n. After the next layer
    norm the residual f is about 1/n times as large as the sum: 1/1849 in training on 43 x 43
    points, 1/177241 in evaluation on 421 x 421. The published operator transfers between grids
    because the residual is negligible on all of them. The default here is the mean, which
    approximates the integral over a domain of unit measure. The ratio of residual to integral is
    then the same on all grids, and the mean converges as grids are refined. The presets have the
    published sum.

    With any attention except "nystrom" points are coupled by sums only: the order of the points
    does not matter, and with coordinates "none" the operator commutes with shifts of the grid.
    Attention "nystrom" treats points next to each other in memory (the last axis fastest) as
    neighbours, and has a convolution over 33 points on every grid. The operator then does not
    converge as grids are refined. The published super-resolution uses "linear". With "nystrom" all
    samples must have the same number of points, because padding would change which points are
    neighbours.

    The published configuration for plasticity embeds the time; here the time is a channel of a. No
    published configuration has the time as a coordinate of the output, as with `query_time`: the
    published errors at times outside the training set (table 3) are those of a rollout.

    In training, outputs depend on the batch through the covariance of ψ. In evaluation, outputs
    depend on the moving average of this covariance over the training batches (`Orthonormal`), all
    on the training grid. A model whose weights are averages of those of another model must copy the
    moving average from that model.

    Args:
        attention: Attention that updates g: "nystrom" (`operators.nn.attention.NystromAttention`),
            "linear", "elu", "softmax" or "galerkin" (`StreamAttention`). The text names the linear
            block of Katharopoulos et al., which is "elu"; the released code has "linear".
        landmarks: Landmarks of the Nyström attention.
        eigenfunctions: Number k of functions ψ in each layer.
        expansion: Hidden features of the MLPs in a layer, in multiples of the width.
        inner_product: Whether ⟨ψ̂, f⟩ is the "mean" or the "sum" over the points, see above.
        value_projection: Whether f is multiplied by a matrix W_V in the integral, as printed:
            f + Σᵢ μᵢ ψ̂ᵢ ⟨ψ̂ᵢ, f W_V⟩ (eqs. 5 and 6). The released code has no W_V.
        queries: Whether the output can be at any points y. The first layer is then a `QueryLayer`,
            and the further layers act at the points y.
        query_time: Whether the last channel of a is a time, the same at all points, as in the task
            `time`. The time is then a coordinate of y instead of a feature at x. Needs `queries`.
        normalization: The map from ψ to ψ̂. "orthogonal": ψ̂ are orthonormal, as in the paper.
            "batch" or "layer": a batch norm or layer norm instead (`Normalized`), as compared in
            table 4.
        momentum: Weight of the old value in the moving average of the covariance, or in that of the
            batch norm.
        jitter: Added to the diagonal of the covariance, as a fraction of its mean.
    """

    dims = (1, 2, 3)
    added = ("value_projection",)

    # The counts are those of the released code. thuml/Neural-Solver-Library has two MLPs instead of
    # the first one, and a further vector. It gives 2.03M for Darcy (1,152 more than here), 1.12M
    # for Navier-Stokes (3,456 more), and 1.60M for pipes (896 more).
    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset(_SUM, 2_027_985, _TABLE, dim=2),
        "darcy-super-resolution": Preset(_LINEAR, 1_110_401, f"{_PAPER}, table 2; {_CODE}", dim=2),
        "navier-stokes": Preset(_LINEAR, 1_112_705, _TABLE, (10, 1), dim=2),
        # on meshes a holds the positions, on the grid of the indices
        "airfoil": Preset(_PIPE | {"depth": 6}, 836_369, _UNCOUNTED, (2, 1), dim=2),
        "pipe": Preset(_PIPE, 1_103_937, _UNCOUNTED, (2, 1), dim=2),
        "pipe-library": Preset(
            _PIPE | {"expansion": 2},
            1_597_377,
            "thuml/Neural-Solver-Library, Pipe script: 1.60M",
            (2, 1),
            dim=2,
        ),
        # points in a row with coordinate j/(n - 1); a holds their two coordinates in the plane
        "elasticity": Preset(_SMALL, 1_104_193, _UNCOUNTED, (2, 1)),
        "plasticity": Preset(_LINEAR | {"eigenfunctions": 8}, 1_102_466, _UNCOUNTED, (2, 2), dim=2),
        # table 6 at the same width; with the default MLPs of the released code it has 10M weights
        "elasticity-30": Preset(_SMALL | _DEEP, 9_870_033, _THIRTY, (2, 1)),
        "plasticity-30": Preset(
            _LINEAR | {"eigenfunctions": 8} | _DEEP, 9_862_498, _THIRTY, (2, 2), dim=2
        ),
        "navier-stokes-time": Preset(
            _LINEAR | {"eigenfunctions": 8},
            1_104_385,
            f"{_PAPER}, table 3; {_CODE}",
            (10, 1),
            dim=2,
        ),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 128,
        depth: int = 10,
        heads: int = 8,
        attention: Literal["nystrom", "linear", "elu", "softmax", "galerkin"] = "nystrom",
        landmarks: int = 256,
        eigenfunctions: int = 32,
        expansion: int = 2,
        inner_product: Literal["mean", "sum"] = "mean",
        queries: bool = False,
        query_time: bool = False,
        coordinates: Coordinates = "raw",
        normalization: Literal["orthogonal", "batch", "layer"] = "orthogonal",
        momentum: float = 0.9,
        jitter: float = 1e-6,
        value_projection: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim))
        check_heads(width, heads)
        at_least(1, eigenfunctions=eigenfunctions, expansion=expansion, landmarks=landmarks)
        at_least(1 + queries, depth=depth)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
        if not jitter > 0:
            raise ValueError(f"jitter must be positive, got {jitter}")
        if queries and coordinates == "none":
            raise ValueError('queries=true needs coordinates "raw" or "periodic", got "none"')
        if query_time and not queries:
            raise ValueError("query_time needs queries=true")
        self.query_time = query_time
        self.masks, self.other_points = attention != "nystrom", queries

        def functions() -> nn.Module:
            if normalization == "orthogonal":
                return Orthonormal(width, eigenfunctions, momentum, jitter)
            return Normalized(width, eigenfunctions, normalization, momentum)

        def sizes() -> tuple[int, int, int, nn.Module, bool, bool, Callable[[], nn.Module]]:
            attend = (
                NystromAttention(width, heads, landmarks)
                if attention == "nystrom"
                else StreamAttention(width, heads, attention)
            )
            hidden, mean = expansion * width, inner_product == "mean"
            return width, hidden, eigenfunctions, attend, mean, value_projection, functions

        positions = self.positions.count
        channels = positions + in_channels - query_time
        self.lift = mlp(channels, 2 * width, 2 * width)
        coordinates_of_y = positions + query_time
        self.query = QueryLayer(coordinates_of_y, channels, heads, sizes()) if queries else None
        self.layers = nn.ModuleList(OrthogonalLayer(*sizes()) for _ in range(depth - queries))
        self.layers[-1].update = nn.Linear(width, out_channels)
        start_truncated(self)

    def decoded(
        self, v: Values, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        v, times = v.tensor_split([v.shape[-1] - self.query_time], dim=-1)
        g, f = self.lift(v).chunk(2, dim=-1)  # (batch, n, width)
        if self.query is not None:
            q = self.positions(y).expand(len(v), -1, -1)
            q = torch.cat([q, times[:, :1].expand(-1, q.shape[1], -1)], dim=-1)
            g, f = self.query(q, v, g, f, mask, of_y)
        for layer in self.layers:
            g, f = layer(g, f, of_y)
        return f
