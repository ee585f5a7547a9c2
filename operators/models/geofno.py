r"""Geo-FNO: Fourier layers on a latent torus, to which a learned deformation maps the points.

References: Z. Li, D. Z. Huang, B. Liu and A. Anandkumar, Fourier Neural Operator with Learned
Deformations for PDEs on General Geometries, JMLR 24 (2023), sections 3.1-3.4; released code
neuraloperator/Geo-FNO, elasticity/elas_geofno_v2.py.
"""

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Mask, Points, Preset, Targets, at_least
from operators.nn.pointwise import mlp
from operators.nn.spectral import SPECTRAL_CONVOLUTIONS, Deformation, NonuniformConv, Transform
from operators.nn.tokens import (
    Coordinates,
    Positions,
    Real,
    TokenOperator,
    TokenPoints,
    Tokens,
    nodal,
)


class LatentLayer(nn.Module):
    """v = GELU(K u + W u + B g + b) on a grid with points g, where K is a spectral convolution."""

    def __init__(self, dim: int, width: int, modes: int) -> None:
        super().__init__()
        self.convolution = SPECTRAL_CONVOLUTIONS[dim](width, width, modes)
        nn.init.uniform_(self.convolution.weight, 0, 1 / width**2)
        self.pointwise = nn.Linear(width, width)
        self.places = nn.Linear(dim, width)

    def forward(self, u: Function, g: Float[Tensor, "*grid dim"]) -> Function:
        return nn.functional.gelu(self.convolution(u) + self.pointwise(u) + self.places(g))


class GeoFNO(TokenOperator):
    """A pointwise linear map, Fourier layers on a latent grid, and a pointwise network.

        u <- GELU(K₀ u + B₀ g + b₀)             from the points ξ(x) to the grid g of the torus.
        u <- GELU(K u + W u + B g + b)          on the grid, depth - 2 times.
        u(y) = MLP((K₁ u)(ξ(y)) + B₁ y + b₁)    from the grid to the points ξ(y).

    K₀ and K₁ compute Fourier sums over scattered points (see `NonuniformConv`). ξ is a learned
    deformation (see `Deformation`). If ξ(x) = x and the points are a regular grid, this is FNO; a
    test compares both with the same weights. The defaults are the released settings for elasticity;
    with one input channel they give 3,003,107 parameters. K₀ and K₁ take n · modes^dim · width
    operations for n points and store 4 · modes^dim numbers per point.

    Differences from the released code (d499bde7). In that code the deformation also depends on 42
    parameters of a shape, unless `code=None`. Here the deformation depends on x only, because the
    input of an operator is a function. The coefficients of frequencies k and -k of a real function
    are conjugate. Here the coefficient of -k is always the conjugate of that of k, as in the FFT.
    That code pairs the frequency -modes of the first axis with -modes instead of modes. Versions
    before a04a7904 put all conjugates in wrong places. The published models of airfoils, pipes and
    blocks are FNO along the indices of a mesh; see the presets of `fno`.

    Args:
        depth: Number of Fourier layers, including the first and the last.
        modes: Number m of modes kept along each axis.
        latent: Number of points of the latent grid along each axis, at least 2m.
        transform: Fourier sums over points are a "mean", as in the paper, or a "sum", as in the
            released code. A sum has no limit as points are added.
        deformed: Whether the deformation is learned. False: ξ(x) = x.
        deformation_width: Features of the first map of the deformation.
        start, length: The points lie in the box [start, start + length] along each axis. In the
            equations above x and y are scaled to [0, 1]; in the original coordinates the torus has
            the period `length`.
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        # on clouds a holds the positions, which are not appended again
        "elasticity": Preset(
            {"coordinates": "none", "transform": "sum"},
            3_003_075,  # released: 3,004,451, with 1,376 for the parameters of the shape
            "Li et al. (2023), elas_geofno_v2.py of d499bde7",
            (2, 1),
            dim=2,
        )
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 2,
        width: int = 32,
        depth: int = 5,
        modes: int = 12,
        latent: int = 40,
        head_width: int = 128,
        transform: Transform = "mean",
        deformed: bool = True,
        deformation_width: int = 32,
        coordinates: Coordinates = "raw",
        start: float = 0.0,
        length: float = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels, dim, Positions(coordinates, dim, last=True))
        at_least(1, width=width, modes=modes, head_width=head_width)
        at_least(2, depth=depth)
        at_least(2 * modes, latent=latent)
        at_least(4, deformation_width=deformation_width)
        if length <= 0:
            raise ValueError(f"length must be positive, got {length}")
        self.start, self.length, self.grid = start, length, [latent] * dim
        self.deformation = Deformation(dim, deformation_width) if deformed else nn.Identity()
        self.lift = nn.Linear(self.features, width)
        self.first = NonuniformConv(dim, width, width, modes, transform)
        self.first_places = nn.Linear(dim, width)
        self.layers = nn.ModuleList(LatentLayer(dim, width, modes) for _ in range(depth - 2))
        self.last = NonuniformConv(dim, width, width, modes, transform)
        self.last_places = nn.Linear(dim, width)
        self.head = mlp(width, head_width, out_channels)

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        target = None if y is None else (y - self.start) / self.length
        return super().forward(a, (x - self.start) / self.length, target, mask)

    def decoded(
        self, v: Tokens, x: TokenPoints, y: TokenPoints, mask: Real | None, of_y: Real | None
    ) -> Float[Tensor, "batch _ c_out"]:
        at_x = self.first.waves(self.deformation(x))
        at_y = at_x if y is x else self.last.waves(self.deformation(y))
        g = nodal(self.grid, x)
        u = self.first.from_points(self.lift(v), at_x, mask, self.grid)
        u = nn.functional.gelu(u + self.first_places(g))
        for layer in self.layers:
            u = layer(u, g)
        return self.head(self.last.to_points(u, at_y) + self.last_places(y))
