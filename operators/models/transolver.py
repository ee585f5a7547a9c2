r"""Transolver: points are assigned to slices by weights, and attention acts among the slices.

References: H. Wu et al., Transolver: A Fast Transformer Solver for PDEs on General Geometries,
ICML 2024; released code thuml/Transolver, and thuml/Neural-Solver-Library for the sizes.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Preset, at_least
from operators.nn.encoder import slice_sums
from operators.nn.tokens import (
    Coordinates,
    Padding,
    Positions,
    Projection,
    Real,
    SliceOperator,
    check_heads,
    means,
    merged,
    projected,
    split,
)

_LIBRARY = "Neural-Solver-Library"
_POSITIONS = {"coordinates": "none"}

Heads = Float[Tensor, "batch heads n d"]


class PhysicsAttention(nn.Module):
    """Multi-head attention among the slices of a field (section 3.2 of the paper).

    A projection x of u determines the weight w_jg of point j in slice g. The token t_g of a slice
    is the weighted mean of another projection f of u. Attention maps the tokens to s, and the
    weights map s to values v at the points:

        w_jg = softmax_g((W x_j + b)_g / τ).
        t_g = Σ_j w_jg f_j / (Σ_j w_jg + 1e-5).
        v_j = Σ_g w_jg s_g,    s = softmax(QKᵀ/√d) V of Q = t W_q, K = t W_k, V = t W_v.

    The heads share W, b, W_q, W_k, W_v; each head has its own τ, clamped to [0.1, 5]. The cost is
    linear in the number n of points: each head stores n · slices weights.

    Args:
        width: Features of u.
        heads, slices: Number of heads, and of slices in each.
        projections: The two maps of u, to x and to f.
    """

    def __init__(
        self, width: int, heads: int, slices: int, projections: tuple[nn.Module, nn.Module]
    ) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.to_slices, self.to_values = projections
        self.slices = nn.Linear(d, slices)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.query, self.key, self.value = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, u: Function) -> Heads:
        return split(u.flatten(1, -2), self.heads)

    def weights(self, u: Function) -> Float[Tensor, "batch heads n slices"]:
        """The positive weights w of points in slices; those of a point sum to 1 over the slices."""
        x = self.split(self.to_slices(u))
        return self._sums(x, x[..., :0], None)[0]

    def tokens(
        self, w: Float[Tensor, "batch heads n slices"], f: Heads
    ) -> Float[Tensor, "batch heads slices d"]:
        """The tokens t, which are the weighted means of f over each slice."""
        return means(w.to(f.dtype).mT @ f, w.sum(dim=-2, keepdim=True))

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        x, f = self.split(self.to_slices(u)), self.split(self.to_values(u))
        w, sums, totals = self._sums(x, f, mask)
        t = means(sums, totals)
        s = nn.functional.scaled_dot_product_attention(self.query(t), self.key(t), self.value(t))
        v = w.to(s.dtype) @ s  # (batch, heads, n, d)
        return self.out(merged(v).reshape(u.shape))

    def _sums(
        self, x: Heads, f: Float[Tensor, "batch heads n q"], mask: Real | None
    ) -> tuple[
        Float[Tensor, "batch heads n slices"],
        Float[Tensor, "batch heads slices q"],
        Float[Tensor, "batch heads 1 slices"],
    ]:
        """The weights w and the sums wᵀf and wᵀ1 over the points."""
        # W and b are divided by the temperature, instead of the logits of all points
        batch, tau = len(x), self.temperature.clamp(0.1, 5.0)
        weight, bias = (
            (v / tau).repeat(batch, 1, 1) for v in (self.slices.weight.mT, self.slices.bias)
        )
        real = None if mask is None else mask.repeat_interleave(self.heads, 0)
        flat = slice_sums(x.flatten(0, 1), weight, bias, f.flatten(0, 1), real)
        w, sums, totals = (v.reshape(batch, self.heads, *v.shape[1:]) for v in flat)
        return w, sums, totals


class Transolver(SliceOperator):
    """An MLP of a and the positions, blocks of attention among slices, and a pointwise linear map.

    The defaults are the settings for Darcy in the released benchmark library: 3,090,113 parameters.
    In the scripts of the paper `feedforward` equals the width, 128.

    With projection "convolution" the kernels cover 3 points along each axis at every resolution,
    not a fixed length. The operator accepts every grid, but its values do not converge as grids are
    refined. With "linear" points interact only through sums over points, and values converge.

    Args:
        lattice: Number of reference points along each axis, including the ends. The released
            library has 8 x 8 reference points in the square and 8 on the interval.

    The released code adds the learned vector `placeholder` to the features only if there is no
    input function a. Here the vector is always added and acts as a second bias. The temperature τ
    starts at 0.5 and is always bounded; the released code bounds it for convolutions only. With a
    smaller τ > 0 each point would belong to a single slice, with τ < 0 the order of the weights
    would be inverted, and with a larger τ all weights would be nearly equal.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({}, 3_090_113, f"{_LIBRARY}, Darcy script: 3.09M", dim=2),
        "navier-stokes": Preset(
            {"width": 256, "slices": 32, "feedforward": 512},
            12_282_945,
            f"{_LIBRARY}, Navier-Stokes script: 12.3M",
            channels=(10, 1),
            dim=2,
        ),
        # on meshes a holds the positions, which are not appended again
        "airfoil": Preset(_POSITIONS, 3_073_985, f"{_LIBRARY}, Airfoil script: 3.07M", (2, 1), 2),
        "pipe": Preset(_POSITIONS, 3_073_985, f"{_LIBRARY}, Pipe script: 3.07M", (2, 1), 2),
        "elasticity": Preset(
            _POSITIONS | {"projection": "linear"},
            976_833,
            f"{_LIBRARY}, Elasticity script: 0.977M",
            (2, 1),
            dim=2,
        ),
        # time is a channel of a; the published model embeds it by 33,024 further parameters, has
        # four outputs (258 more) and one input fewer (256 less)
        "plasticity": Preset(
            {"coordinates": "raw", "feedforward": 128},
            2_811_458,
            "Wu et al. 2024, table of settings; Neural-Solver-Library: 2.84M",
            (2, 2),
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
        depth: int = 8,
        heads: int = 8,
        slices: int = 64,
        feedforward: int = 256,
        projection: Projection = "convolution",
        padding: Padding = "zeros",
        coordinates: Literal["lattice"] | Coordinates = "lattice",
        lattice: int = 8,
        orthogonal: bool = True,
    ) -> None:
        check_heads(width, heads)
        at_least(2, slices=slices)

        def attention() -> nn.Module:
            to_slices, to_values = (projected(projection, dim, width, padding) for _ in range(2))
            return PhysicsAttention(width, heads, slices, (to_slices, to_values))

        super().__init__(
            in_channels,
            out_channels,
            dim,
            Positions(coordinates, dim, lattice),
            width,
            depth,
            feedforward,
            projection,
            attention,
        )
        for module in self.modules():
            if orthogonal and isinstance(module, PhysicsAttention):
                nn.init.orthogonal_(module.slices.weight)
