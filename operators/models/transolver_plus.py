r"""Transolver++: slices with a temperature at each point, and with random weights in training.

References: H. Luo et al., Transolver++: An Accurate Neural Solver for PDEs on Million-Scale
Geometries, ICML 2025; released code thuml/Transolver_plus at commit d5a23bc.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Preset, at_least
from operators.nn.tokens import (
    Coordinates,
    Positions,
    Real,
    SliceOperator,
    check_heads,
    means,
    merged,
    split,
)

_OURS = "sizes of Transolver; those of this dataset are not released"
_POSITIONS = {"coordinates": "none"}  # on meshes a holds the positions

Heads = Float[Tensor, "batch heads n d"]
Shares = Float[Tensor, "batch heads n slices"]


def gumbel(like: Tensor) -> Tensor:
    """Independent Gumbel noise -log(-log U) of the shape of a tensor, with U uniform in [0, 1).

    For logits l, the largest entry of l + noise has index i with probability softmax(l)_i. As in
    the released code, 1e-8 is added to U and to -log U, so that no value is infinite.
    """
    uniform = torch.rand_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
    return -torch.log(-torch.log(uniform + 1e-8) + 1e-8)


class EideticAttention(nn.Module):
    """Multi-head attention among the slices of a field, with one projection x of u.

        w_jg = softmax_g((W x_j + b + noise)_g / τ_j),   τ_j = max(0.01, MLP(x_j) + β).
        t_g = Σ_j w_jg x_j / (Σ_j w_jg + 1e-5).
        v_j = Σ_g w_jg s_g,    s = softmax(QKᵀ/√d) V of Q = t W_q, K = t W_k, V = t W_v.

    The MLP ends in a GELU. The heads share all maps; each head has its own β, which starts at 0.5.
    The noise is Gumbel noise in training, and 0 in evaluation. The cost is linear in the number n
    of points: each head stores n · slices weights.

    Args:
        width: Features of u.
        heads, slices: Number of heads, and of slices in each.
    """

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.project = nn.Linear(width, width)
        self.slices = nn.Linear(d, slices)
        self.temperature = nn.Sequential(
            nn.Linear(d, slices), nn.GELU(), nn.Linear(slices, 1), nn.GELU()
        )
        self.offset = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.query, self.key, self.value = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def weights(self, x: Heads) -> Shares:
        """The positive weights w of points in slices; those of a point sum to 1 over the slices."""
        logits = self.slices(x)
        tau = (self.temperature(x) + self.offset).clamp(min=0.01)
        logits = (logits + gumbel(logits) if self.training else logits) / tau
        return logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))

    def forward(self, u: Function, mask: Real | None = None) -> Function:
        x = split(self.project(u).flatten(1, -2), self.heads)
        w = self.weights(x)
        w = w if mask is None else w * mask[:, None, :, None]
        t = means(w.to(x.dtype).mT @ x, w.sum(dim=-2, keepdim=True))
        s = nn.functional.scaled_dot_product_attention(self.query(t), self.key(t), self.value(t))
        return self.out(merged(w.to(s.dtype) @ s).reshape(u.shape))


class TransolverPlus(SliceOperator):
    """An MLP of a and the positions, blocks of attention among slices, and a pointwise linear map.

    It differs in three ways from `Transolver` with projection "linear". Each point has its own
    temperature. In training, noise in the weights makes the assignment to slices random. There is
    one projection of the features instead of two.

    The released code draws the noise in evaluation too, so its predictions are random; here they
    are not. The released code distributes the points of one sample over a group of processes, which
    it always needs; here samples form a batch in one process. The released code has no
    convolutions. It contains a single script, for a data set of aircraft (width 256, depth 4, 32
    slices, feedforward 512). The settings for the six benchmarks of the paper are not released; the
    defaults are those of the Transolver scripts. The authors advise varying the number of slices
    and bounding the temperature, because training is unstable. An independent reproduction (April
    2026, in the released repository) found larger errors than those of Transolver on all six
    benchmarks: Plasticity 0.0019, Elasticity 0.011, Darcy 0.015, Airfoil 0.009, Pipe 0.005,
    Navier-Stokes 0.18.

    Points interact only through sums over points, so values converge under refinement. In
    evaluation with coordinates "none" the operator commutes with permutations of the points.

    Args:
        slices: Number of slices of each head, and of hidden features of the MLP that computes the
            temperature.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "darcy": Preset({"coordinates": "lattice"}, 606_921, _OURS, dim=2),
        "navier-stokes": Preset(
            {"coordinates": "lattice", "width": 256, "slices": 32, "feedforward": 256},
            2_326_089,
            _OURS,
            channels=(10, 1),
            dim=2,
        ),
        "airfoil": Preset(_POSITIONS, 590_793, _OURS, (2, 1), 2),
        "pipe": Preset(_POSITIONS, 590_793, _OURS, (2, 1), 2),
        "elasticity": Preset(_POSITIONS, 590_793, _OURS, (2, 1), 2),
        "plasticity": Preset({}, 591_434, _OURS, (2, 2), 2),  # time is a channel of a
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
        feedforward: int = 128,
        coordinates: Literal["lattice"] | Coordinates = "raw",
        lattice: int = 8,
        orthogonal: bool = True,
    ) -> None:
        check_heads(width, heads)
        at_least(2, slices=slices)
        super().__init__(
            in_channels,
            out_channels,
            dim,
            Positions(coordinates, dim, lattice),
            width,
            depth,
            feedforward,
            "linear",
            lambda: EideticAttention(width, heads, slices),
        )
        for module in self.modules():
            if orthogonal and isinstance(module, EideticAttention):
                nn.init.orthogonal_(module.slices.weight)
