"""Finite differences for Δu + k²u = f on the square, solved by sine transforms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array, constant
from pdegen.numerics.elliptic import EllipticSystem

Fields = Float[np.ndarray, "*batch n n"]
Inner = Float[np.ndarray, "*batch n-2 n-2"]


@dataclass(frozen=True)
class SineSolver:
    """Solves Δu + k²u = f on (0,1)² with u = 0 on the walls, on n x n nodes of spacing h.

    Let δ be the second difference along an axis over h², and Δ_h = δ_x + δ_y. The five-point
    stencil is (Δ_h + k²) u = f, of order 2. The compact stencil is
    (Δ_h + h²/6 δ_x δ_y + k² M) u = M f with M = 1 + h²/12 Δ_h, of order 4; it uses f on the walls.
    The products of sines that vanish on the walls are eigenvectors of all these operators.

    References: L. Collatz, The Numerical Treatment of Differential Equations (1960), section V.2.

    >>> x = np.linspace(0, 1, 33)
    >>> wave = np.outer(np.sin(np.pi * x), np.sin(2 * np.pi * x))
    >>> solver = SineSolver(33, wave_number=3.0, compact=True)
    >>> bool(abs(solver((9 - 5 * np.pi**2) * wave) - wave).max() < 1e-4)
    True
    """

    n: int  # nodes along each axis, both walls included
    wave_number: float  # k
    compact: bool  # whether the stencil is the compact one, not that of five points

    @property
    def spacing(self) -> float:
        return 1 / (self.n - 1)

    @cached_property
    def symbol(self) -> Float[np.ndarray, "n-2 n-2"]:
        """Eigenvalue of the map from u to f for each product of sines."""
        h = self.spacing
        along = -((2 / h * np.sin(np.pi * h / 2 * np.arange(1, self.n - 1))) ** 2)
        laplacian = along[:, None] + along
        if not self.compact:
            return laplacian + self.wave_number**2
        mass = 1 + h**2 / 12 * laplacian
        return (laplacian + h**2 / 6 * np.outer(along, along)) / mass + self.wave_number**2

    @cached_property
    def _denominator(self) -> Float[np.ndarray, "n-2 n-2"]:
        """`symbol`, times the eigenvalue of M for the compact stencil."""
        if not self.compact:
            return self.symbol
        h = self.spacing
        along = (2 * np.sin(np.pi * h / 2 * np.arange(1, self.n - 1))) ** 2
        return self.symbol * (1 - (along[:, None] + along) / 12)

    def load(self, f: Fields) -> Inner:
        """The right side at the inner nodes: f, or M f."""
        inner = f[..., 1:-1, 1:-1]
        if not self.compact:
            return inner
        around = f[..., 2:, 1:-1] + f[..., :-2, 1:-1] + f[..., 1:-1, 2:] + f[..., 1:-1, :-2]
        return inner * (2 / 3) + around / 12

    def __call__(self, f: Fields) -> Fields:
        """The solution u at all nodes."""
        return self._within_walls(self._solved(self.load(f)))

    def transposed(self, v: Fields) -> Fields:
        """Aᵀ v for the map A from f to u."""
        w = self._solved(v[..., 1:-1, 1:-1])
        if not self.compact:
            return self._within_walls(w)
        f = self._within_walls(w * (2 / 3))
        f[..., 2:, 1:-1] += w / 12
        f[..., :-2, 1:-1] += w / 12
        f[..., 1:-1, 2:] += w / 12
        f[..., 1:-1, :-2] += w / 12
        return f

    def residual(self, u: Fields, f: Fields) -> Inner:
        """The difference of the two sides of the stencil at the inner nodes."""
        h, inner = self.spacing, u[..., 1:-1, 1:-1]
        rows = u[..., 2:, :] - 2 * u[..., 1:-1, :] + u[..., :-2, :]  # h² δ_x u
        columns = u[..., 2:] - 2 * u[..., 1:-1] + u[..., :-2]  # h² δ_y u
        left = (rows[..., 1:-1] + columns[..., 1:-1, :]) / h**2
        if not self.compact:
            return left + self.wave_number**2 * inner - f[..., 1:-1, 1:-1]
        both = rows[..., 2:] - 2 * rows[..., 1:-1] + rows[..., :-2]  # h⁴ δ_x δ_y u
        return left + both / (6 * h**2) + self.load(self.wave_number**2 * u - f)

    def system(self, f: Float[Array, "batch n n"]) -> EllipticSystem:
        """The stencil for all nodes, with exact inverse, for arrays of any namespace.

        Each sine is multiplied by the sign of its eigenvalue, so that the operator is positive also
        if k² is above the first eigenvalues of -Δ. Values on the walls are not used.
        """
        n = self.n
        matrix = np.sin(np.pi * self.spacing * np.outer(np.arange(n), np.arange(1, n - 1)))
        sines = constant(np.sqrt(2 * self.spacing) * matrix, f)  # orthonormal columns, 0 on walls
        size = constant(abs(self._denominator), f)
        sign = constant(np.sign(self._denominator), f)

        def at_nodes(hat: Array) -> Array:
            return sines @ hat @ sines.T

        def transformed(v: Array) -> Array:
            return sines.T @ v @ sines

        inner = sines[1:-1]
        load = self.load(array_namespace(f).astype(f, sines.dtype))
        return EllipticSystem(
            lambda u: at_nodes(size * transformed(u)),
            lambda r: at_nodes(transformed(r) / size),
            at_nodes(sign * (inner.T @ load @ inner)),
        )

    def _solved(self, load: Inner) -> Inner:
        """The solution at the inner nodes for a right side."""
        transformed = _sines(load)
        transformed /= self._denominator
        return _sines(transformed)

    def _within_walls(self, inner: Inner) -> Fields:
        """The values at the inner nodes, and 0 on the walls."""
        return np.pad(inner, [(0, 0)] * (inner.ndim - 2) + [(1, 1), (1, 1)])


def _sines(v: Inner) -> Inner:
    """The orthonormal sine transform along both axes, which is its own inverse."""
    return scipy.fft.dstn(v, type=1, axes=(-2, -1), norm="ortho", workers=1)
