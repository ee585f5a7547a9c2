r"""Coordinates in attention without softmax: rotations of queries and keys, and random waves.

References: J. Su et al., RoFormer, 2021 (arXiv 2104.09864), rotations; M. Tancik et al., Fourier
Features Let Networks Learn High Frequency Functions, NeurIPS 2020, random waves.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def rotated(
    u: Float[Tensor, "batch heads n d"],
    x: Float[Tensor, "n dim"] | Float[Tensor, "batch n dim"],
    rate: float,
) -> Float[Tensor, "batch heads n d"]:
    """Each pair of features turned by an angle that is proportional to a coordinate.

    The features are cut into dim parts, one for each coordinate; pair j of p in a part is turned
    by the angle rate x 10000^(-j/p), and its two features are d/(2 dim) places apart. Products of
    rotated queries and keys see the differences of their points alone.

    Args:
        rate: Angle of the fastest pair on the length 1.

    >>> rotated(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[1.0]]), math.pi / 2).round()
    tensor([[[[-0., 1.]]]])
    """
    pairs = u.shape[-1] // (2 * x.shape[-1])
    powers = torch.arange(pairs, dtype=x.dtype, device=x.device) / pairs
    angle = x[..., None] * (rate * 10000**-powers)  # ([batch,] n, dim, pairs)
    angle = angle if x.ndim == 2 else angle[:, None]
    cos, sin = angle.cos(), angle.sin()
    first, second = u.unflatten(-1, (x.shape[-1], 2, pairs)).unbind(-2)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.stack(turned, dim=-2).flatten(-3)


class RandomWaves(nn.Module):
    """sin(2π x B) and cos(2π x B) with a fixed random matrix B."""

    waves: Tensor

    def __init__(self, dim: int, count: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(dim, count // 2) * scale)

    def forward(self, x: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points _"]:
        phase = 2 * math.pi * (x @ self.waves)
        return torch.cat([phase.sin(), phase.cos()], dim=-1)
