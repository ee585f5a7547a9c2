r"""The multiwavelet operator: learned kernels between the wavelet coefficients of all scales.

References: G. Gupta, X. Xiao and P. Bogdan, Multiwavelet-based Operator Learning for Differential
Equations, NeurIPS 2021; released code gaurav71531/mwt-operator (4b0770c).
"""

import math
from collections.abc import Mapping
from functools import reduce
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial.legendre import leggauss, legvander
from torch import Tensor, nn

from operators.base import MESHES, Function, Preset, at_least
from operators.nn.pointwise import mlp
from operators.nn.resample import joined, stretched, windows
from operators.nn.spectral import complex_products, convolved, line_modes, line_of
from operators.nn.tokens import Coordinates, FieldOperator, Positions, Real

_PLANE = {"channels": 4, "modes": 12, "depth": 4}
_OURS = "ours: the settings of Darcy"

Coefficients = Float[Tensor, "batch *grid channels k"]


def filters(polynomials: int, dim: int) -> Float[Tensor, "{2*polynomials**dim} _"]:
    r"""Matrix F from the coefficients on the halves of an interval to those on the whole.

    In 1-D F = [H0 H1; G0 G1] for k Legendre polynomials φᵢ(x) = √(2i + 1) Pᵢ(2x - 1). The first k
    rows represent the functions φᵢ in the basis √2 φⱼ(2x), √2 φⱼ(2x - 1). The other rows represent
    an orthonormal basis ψᵢ of the complement, computed by Gram-Schmidt from √2 φᵢ(2x). F is
    orthogonal (eqs. 3-5, appendix B), computed in float64.

    In 2-D the first rows are H_a ⊗ H_b and the others G_a ⊗ G_b, with one block of columns for each
    quarter (a, b), as in the released code. Products of a φ and a ψ are omitted, so F has
    orthonormal rows but is not square.
    """
    k = polynomials
    nodes, weights = leggauss(k)
    scale = np.sqrt(2 * np.arange(k) + 1)

    def phi(x: np.ndarray) -> np.ndarray:
        return legvander(2 * x - 1, k - 1) * scale  # (point, i)

    x = (nodes + 1) / 2
    halves = [phi((x + h) / 2).T @ (weights[:, None] / 2 * phi(x)) / math.sqrt(2) for h in (0, 1)]
    start = np.block([halves, [np.eye(k), np.zeros((k, k))]])
    q, r = np.linalg.qr(start.T)
    line = (q * np.sign(np.diag(r))).T.reshape(2, k, 2, k)  # (φ/ψ, i, half, j)
    products = [
        reduce(np.kron, [part[:, h] for h in quarter])
        for part in line
        for quarter in np.ndindex(*[2] * dim)
    ]
    blocks = np.array(products).reshape(2, 2**dim, k**dim, k**dim)  # (φ/ψ, quarter, i, j)
    return torch.from_numpy(blocks.transpose(0, 2, 1, 3).reshape(2 * k**dim, -1).copy())


class FourierKernels(nn.Module):
    """(d, s) -> (A d + B s, C d) in 1-D, with convolutions A, B, C of at most `modes` modes."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.to_details = nn.Parameter(torch.rand(modes, 2 * width, width, 2) / width**2)
        self.to_means = nn.Parameter(torch.rand(modes, width, width, 2) / width**2)

    def forward(self, d: Function, s: Function) -> tuple[Function, Function]:
        n = d.shape[1]
        modes = min(len(self.to_means), n // 2 + 1)
        hat = line_modes(torch.cat([d, s], dim=-1), modes)
        details = complex_products(hat, self.to_details[:modes])
        means = complex_products(hat[..., : d.shape[-1]], self.to_means[:modes])
        u, v = line_of(torch.cat([details, means], dim=-1), n).chunk(2, dim=-1)
        return u, v


class FourierPlane(nn.Module):
    """A d = W ReLU(K d) + b in 2-D, with a convolution K of at most `modes` modes."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        std = 1 / (modes * math.sqrt(2 * width))
        self.weight = nn.Parameter(std * torch.randn(2, modes, modes, width, width, 2))
        self.linear = nn.Linear(width, width)

    def forward(self, d: Function) -> Function:
        return self.linear(nn.functional.relu(convolved(d, self.weight)))


class LocalPlane(nn.Module):
    """W ReLU(K s) + b in 2-D, with a convolution K of 3 x 3 points."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.linear = nn.Linear(width, width)

    def forward(self, s: Function) -> Function:
        v = self.convolution(s.movedim(-1, 1)).movedim(1, -1)
        return self.linear(nn.functional.relu(v))


class MixedKernels(nn.Module):
    """(d, s) -> (A d + B s, C d) in 2-D, with A a `FourierPlane`, and B and C `LocalPlane`."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.a = FourierPlane(width, modes)
        self.b, self.c = LocalPlane(width), LocalPlane(width)

    def forward(self, d: Function, s: Function) -> tuple[Function, Function]:
        return self.a(d) + self.b(s), self.c(d)


class MultiwaveletLayer(nn.Module):
    """An operator in the non-standard wavelet form, with the same kernels at all scales.

        (s, d)  <- F (s on the halves of intervals)    from the finest to the coarsest scale.
        u, v     = A d + B s, C d                      at each scale.
        s       <- T s                                 at the coarsest scale.
        s       <- Fᵀ (s + v, u)                       back to the finest scale.

    F are the fixed `filters`. The kernels A, B, C and the linear map T are learned (section 3.2).

    Args:
        dim: Number of axes.
        channels: Number of functions.
        polynomials: Legendre polynomials k along each axis.
        modes: Modes of the Fourier kernels along each axis.
        coarsest: The coarsest scale has 2^coarsest intervals along the shortest axis.
    """

    filters: Tensor

    def __init__(
        self, dim: int, channels: int, polynomials: int, modes: int, coarsest: int
    ) -> None:
        super().__init__()
        self.dim, self.coarsest = dim, coarsest
        k = polynomials**dim
        width = channels * k
        self.kernels = (FourierKernels if dim == 1 else MixedKernels)(width, modes)
        # T acts on the polynomials only in 1-D, as released
        self.coarse = nn.Linear(*[k if dim == 1 else width] * 2)
        if dim == 2:
            nn.init.xavier_normal_(self.coarse.weight)
        self.register_buffer("filters", filters(polynomials, dim), persistent=False)

    def forward(self, s: Coefficients) -> Coefficients:
        f, (channels, k) = self.filters.to(s.dtype), s.shape[-2:]
        outputs: list[list[Tensor]] = []  # u, v at each scale
        levels = min(s.shape[1:-2]).bit_length() - 1 - self.coarsest
        if levels < 1:
            raise ValueError(
                f"coarsest={self.coarsest} needs more than {2**self.coarsest} points along each "
                f"axis, got {min(s.shape[1:-2])}"
            )
        for _ in range(levels):
            # join the coefficients on the halves of each interval, or the quarters of each square
            parts = windows(s.flatten(-2), 2).unflatten(-1, (channels, k)).transpose(-3, -2)
            s, d = (parts.flatten(-2) @ f.mT).split(k, dim=-1)
            kernels = self.kernels(d.flatten(-2), s.flatten(-2))
            outputs.append([v.unflatten(-1, (channels, k)) for v in kernels])
        shape = s.shape
        s = self.coarse(s if self.dim == 1 else s.flatten(-2)).view(shape)
        for u, v in reversed(outputs):
            parts = (torch.cat([s + v, u], dim=-1) @ f).unflatten(-1, (-1, k)).transpose(-3, -2)
            s = joined(parts.flatten(-2), 2).unflatten(-1, (channels, k))
        return s


class MWT(FieldOperator):
    """Multiwavelet operator: a pointwise linear map, multiwavelet layers, and a pointwise network.

    A ReLU follows each multiwavelet layer except the last. In d dimensions a point has c kᵈ
    features. They are the coefficients of c functions on the interval, or square, around the point.
    The defaults are those of the released example in 1-D, which appends the coordinate: 500,201
    parameters.

    If the length of an axis is not a power of two, functions are interpolated linearly to the next
    power of two before the layers, and back after them. The released code accepts only powers of
    two, and in 2-D only square grids. It fails on a batch of one sample. On a mesh the layers act
    along the indices. Each refinement of the grid adds a scale, which acts like a further layer.
    The operator therefore does not converge as grids are refined.

    The released code also has Chebyshev polynomials, and a version with time as a third axis.

    Args:
        channels: Number c of functions.
        polynomials: Legendre polynomials k along each axis.
        modes: Modes of the Fourier kernels along each axis; coarse scales have fewer.
        coarsest: The coarsest scale has 2^coarsest intervals along the shortest axis.
    """

    domains = MESHES
    masks = False
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset({}, 500_201, "Gupta et al. 2021; Cao 2021, slides: 501k"),
        "darcy": Preset(_PLANE, 9_807_873, "released code, Darcy.ipynb", dim=2),
        "navier-stokes": Preset(_PLANE, 9_808_449, _OURS, (10, 1), 2),
        "airfoil": Preset(_PLANE | {"coordinates": "none"}, 9_807_809, _OURS, (2, 1), 2),
        "pipe": Preset(_PLANE | {"coordinates": "none"}, 9_807_809, _OURS, (2, 1), 2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        channels: int = 16,
        polynomials: int = 4,
        modes: int = 10,
        depth: int = 2,
        coarsest: int = 0,
        head_width: int = 128,
        coordinates: Coordinates = "raw",
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        at_least(1, channels=channels, polynomials=polynomials, modes=modes)
        at_least(1, depth=depth, head_width=head_width)
        at_least(0, coarsest=coarsest)
        self.shape = channels, polynomials**dim
        width = math.prod(self.shape)
        self.embed = nn.Linear(self.features, width)
        self.layers = nn.ModuleList(
            MultiwaveletLayer(dim, channels, polynomials, modes, coarsest) for _ in range(depth)
        )
        self.decoder = mlp(width, head_width, out_channels, activation=nn.ReLU)
        for layer in self.decoder:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)

    def encoded(self, u: Function, mask: Real | None) -> Function:
        grid = u.shape[1:-1]
        u = stretched(u, [1 << (n - 1).bit_length() for n in grid]).unflatten(-1, self.shape)
        for i, layer in enumerate(self.layers):
            u = layer(nn.functional.relu(u) if i else u)
        return stretched(u.flatten(-2), grid)
