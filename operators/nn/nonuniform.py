r"""Fourier transforms of functions on scattered points, and maps from these points to a torus.

References: Z. Li, D. Z. Huang, B. Liu and A. Anandkumar, Fourier Neural Operator with Learned
Deformations for PDEs on General Geometries, JMLR 24 (2023), section 3.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.nn.fused import product
from operators.nn.spectral import SpectralConv1d, SpectralConv2d, complex_products, spectrum, values
from operators.nn.tokens import Real, TokenPoints, Tokens

CONVOLUTIONS = {1: SpectralConv1d, 2: SpectralConv2d}

Waves = Float[Tensor, "n two_modes"] | Float[Tensor, "batch n two_modes"]
Transform = Literal["mean", "sum"]


def frequencies(dim: int, m: int) -> Float[Tensor, "dim modes"]:
    """Frequencies k in the order of the weights of `SpectralConv1d` or `SpectralConv2d`.

    >>> frequencies(2, 2).long().tolist()
    [[0, 0, 1, 1, -1, -1, -2, -2], [0, 1, 0, 1, 0, 1, 0, 1]]
    """
    k = torch.arange(m)
    if dim == 1:
        return k[None].float()
    first = torch.cat([k, -1 - k])
    return torch.stack([first.repeat_interleave(m), k.repeat(2 * m)]).float()


def waves(xi: TokenPoints, k: Float[Tensor, "dim modes"]) -> Waves:
    """The waves cos 2πk·ξ and -sin 2πk·ξ of each frequency k at each point ξ.

    They are the factors of Re v̂_k and Im v̂_k in v = Σ_k Re(v̂_k exp(2πik·ξ)). Phases are not
    computed by a matrix product, because they would be wrong in reduced precision.
    """
    turns = xi[..., :1] * k[0]
    for axis in range(1, len(k)):
        turns = turns + xi[..., axis, None] * k[axis]
    phase = 2 * math.pi * turns
    return torch.cat([phase.cos(), -phase.sin()], dim=-1)


class NonuniformConv(nn.Module):
    """The convolution of `SpectralConv1d` or `SpectralConv2d` from or to scattered points ξ_j.

    With "mean", the paper's choice, the coefficients of u on n points and the result v are

        û_k = 1/n Σ_j u_j exp(-2πik·ξ_j),  and  v(ξ) = Σ_k v̂_k exp(2πik·ξ),

    where the terms of k and -k are combined, and v is real. On a regular grid with at least 2m
    points along each axis, where m is the number of modes, û and v equal the results of the FFT.
    With "sum", as in the released code, û is divided by the number of points of the latent grid
    instead of n, and v is multiplied by this number. Then û has no limit as n grows. The points
    have equal weights, and the result depends on their density.
    """

    k: Tensor
    counted: Tensor

    def __init__(
        self, dim: int, in_channels: int, out_channels: int, modes: int, transform: Transform
    ) -> None:
        super().__init__()
        self.modes, self.transform = modes, transform
        weight = CONVOLUTIONS[dim](in_channels, out_channels, modes).weight
        self.weight = nn.Parameter(
            nn.init.uniform_(weight.detach(), 0, 1 / (in_channels * out_channels))
        )
        k = frequencies(dim, modes)
        self.register_buffer("k", k, persistent=False)
        # a coefficient of k also stands for -k, except on the axis where both are stored
        counted = torch.where(k[-1] == 0, 1.0, 2.0)
        self.register_buffer("counted", counted[:, None, None], persistent=False)

    def waves(self, xi: TokenPoints) -> Waves:
        """Values of the waves at the points ξ, for `from_points` and `to_points`."""
        return waves(xi, self.k)

    def from_points(
        self, u: Tokens, at: Waves, mask: Real | None, grid: Sequence[int]
    ) -> Float[Tensor, "batch *grid c"]:
        """Convolution from values at scattered points to values on the latent grid j/s.

        Args:
            u: Values at the points.
            at: Result of `waves` for the points.
            mask: False at padding; None without padding.
            grid: Sizes s of the latent grid.
        """
        total = math.prod(grid)
        u = u if mask is None else u.masked_fill(~mask[..., None], 0.0)
        u_hat = product(at.mT, u).unflatten(1, (2, -1)).permute(2, 1, 0, 3)
        if self.transform == "sum":
            u_hat = u_hat / total
        elif mask is None:
            u_hat = u_hat / u.shape[1]
        else:
            u_hat = u_hat / mask.sum(1)[:, None]
        return values(self._weighted(u_hat), grid, self.modes) * math.sqrt(total)

    def to_points(self, u: Float[Tensor, "batch *grid c"], at: Waves) -> Tokens:
        """Convolution from values on the latent grid to scattered points; `at` is from `waves`."""
        total = math.prod(u.shape[1:-1])
        scale = math.sqrt(total) if self.transform == "sum" else 1 / math.sqrt(total)
        v_hat = self.counted * self._weighted(spectrum(u, self.modes) * scale)
        return product(at, v_hat.permute(2, 0, 1, 3).flatten(1, 2))

    def _weighted(self, u_hat: Float[Tensor, "modes 2 batch c"]) -> Tensor:
        weight = self.weight.flatten(0, -4)
        return complex_products(u_hat.to(torch.promote_types(u_hat.dtype, weight.dtype)), weight)


class Deformation(nn.Module):
    """ξ(x) = x + x ⊙ MLP(f(x)), a map from [0, 1]^d to the torus of period 1.

    Let z be a linear map of x, of the distance of x to the centre and, in two dimensions, of the
    angle of x about the centre. The features f are z and the sines and cosines of 2^j π z for j <
    width/4. As in the released code there is no activation after the first map of the MLP, the
    angle jumps at ±π, and the origin is a fixed point.
    """

    powers: Tensor

    def __init__(
        self,
        dim: int,
        width: int,
        depth: int = 2,
        activation: type[nn.Module] = nn.GELU,
        center: float = 0.5,
    ) -> None:
        super().__init__()
        self.center = center
        self.register_buffer("powers", 2.0 ** torch.arange(width // 4), persistent=False)
        self.embed = nn.Linear(2 * dim, width)
        hidden = 4 * width
        layers: list[nn.Module] = [nn.Linear(width + 4 * dim * (width // 4), hidden)]
        for _ in range(depth):
            layers += [nn.Linear(hidden, hidden), activation()]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden, dim))

    def forward(self, x: TokenPoints) -> TokenPoints:
        from_center = x - self.center
        features = [x, torch.linalg.vector_norm(from_center, dim=-1, keepdim=True)]
        if x.shape[-1] == 2:
            features.insert(1, torch.atan2(from_center[..., 1:], from_center[..., :1]))
        f = torch.cat(features, dim=-1)  # (x, angle, distance)
        phase = (math.pi * f[..., None] * self.powers).flatten(-2)
        return x + x * self.mlp(torch.cat([self.embed(f), phase.sin(), phase.cos()], dim=-1))
