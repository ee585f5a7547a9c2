r"""Quadratic elements for -div(a grad u) = f around an inclusion, on a mesh that fits it.

Exact solutions for the disc |x - c| < R with a = α inside and β outside, r = |x - c|:

- f = 1: u = D - r²/(4β) outside, and u = D - r²/(4α) + R² (1/α - 1/β)/4 inside. Both u and the
  flux a ∂u/∂r = -r/2 are continuous at r = R.
- f = 0, for k = 1, 2, ...: u = (r^k + q R^{2k} r^{-k}) cos kφ outside with q = (β - α)/(α + β), and
  u = (1 + q) r^k cos kφ inside. The fluxes at r = R are k R^{k-1} cos kφ times β (1 - q) and
  α (1 + q), both equal to 2αβ/(α + β).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from pdegen.domains import CellGrid
from pdegen.numerics.errors import SolveError
from pdegen.numerics.fenicsx import client

# Values of quadratic finite elements on curved triangles at the cell centres of a square.


_NEWTON = 30  # most steps to invert the map of a triangle
_OUTSIDE = 1e-8  # a point may lie outside its triangle by this barycentric coordinate


def shapes(
    s: Float[np.ndarray, "k 2"],
) -> tuple[Float[np.ndarray, "k 6"], Float[np.ndarray, "k 2 6"]]:
    """The six quadratic shape functions at points (s, t) of the reference triangle, and gradients.

    With λ = (1 - s - t, s, t) they are λ_k (2 λ_k - 1) at the corners, and 4 λ_i λ_j in the middle
    of the edge opposite to the corner k.

    >>> values, gradients = shapes(np.array([[0.5, 0.5]]))
    >>> np.abs(values).tolist(), np.abs(gradients.sum(axis=2)).round(12).tolist()
    ([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0]])
    """
    barycentric = np.column_stack([1 - s.sum(axis=1), s])  # (k, 3)
    slopes = np.array([[-1.0, 1, 0], [-1, 0, 1]])  # of λ along s and t
    corners = barycentric * (2 * barycentric - 1)
    i, j = [1, 0, 0], [2, 2, 1]
    middles = 4 * barycentric[:, i] * barycentric[:, j]
    of_corners = slopes * (4 * barycentric - 1)[:, None]
    of_middles = 4 * (
        barycentric[:, None, i] * slopes[:, j] + barycentric[:, None, j] * slopes[:, i]
    )
    return np.hstack([corners, middles]), np.concatenate([of_corners, of_middles], axis=2)


@dataclass(frozen=True)
class CurvedTriangles:
    """Triangles x(s) = Σ_k x_k φ_k(s) with quadratic shape functions φ_k of `shapes`.

    Args:
        x: Nodes.
        cells: The nodes of each triangle: corners, then the middles of the edges opposite to them.
    """

    x: Float[np.ndarray, "nodes 2"]
    cells: Int[np.ndarray, "cells 6"]

    def values(self, u: Float[np.ndarray, " nodes"], grid: CellGrid) -> Float[np.ndarray, "n n"]:
        """u at the centres of the n x n cells of the unit square, indexed [x, y].

        Raises ArithmeticError if the triangles do not cover a centre.
        """
        n = grid.n
        triangle, point = self._candidates(n)
        target = np.stack([point // n, point % n], axis=1) / n + 0.5 / n
        s = self._inverse(triangle, target)
        depth = np.minimum(s.min(axis=1), 1 - s.sum(axis=1))
        order = np.lexsort((triangle, -depth, point))  # the deepest triangle of each point first
        points, first = np.unique(point[order], return_index=True)
        chosen = order[first]
        if len(points) < n * n or depth[chosen].min() < -_OUTSIDE:
            raise ArithmeticError("the mesh does not cover the square")
        weights, _ = shapes(s[chosen])
        return (weights * u[self.cells[triangle[chosen]]]).sum(axis=1).reshape(n, n)

    def _candidates(self, n: int) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
        """Triangles, and centres i n + j within the box around the nodes of each."""
        nodes = self.x[self.cells]
        low, high = nodes.min(axis=1), nodes.max(axis=1)
        margin = 0.1 * (high - low)  # an edge leaves the box of its three points by less
        first = np.clip(np.ceil((low - margin) * n - 0.5), 0, n).astype(int)
        after = np.clip(np.floor((high + margin) * n - 0.5) + 1, 0, n).astype(int)
        rows, columns = np.maximum(after - first, 0).T
        triangle = np.repeat(np.arange(len(nodes)), rows * columns)
        place = np.arange(len(triangle)) - np.repeat(np.cumsum(rows * columns), rows * columns)
        place += (rows * columns)[triangle]
        i, j = np.divmod(place, np.maximum(columns, 1)[triangle])
        return triangle, (first[triangle, 0] + i) * n + first[triangle, 1] + j

    def _inverse(
        self, triangle: Int[np.ndarray, " k"], target: Float[np.ndarray, "k 2"]
    ) -> Float[np.ndarray, "k 2"]:
        """Reference coordinates s with x(s) = target, by Newton's method; -1 where it diverges."""
        nodes = self.x[self.cells[triangle]]
        s = np.full((len(triangle), 2), 1 / 3)
        active = np.arange(len(triangle))
        for _ in range(_NEWTON):
            values, gradients = shapes(s[active])
            corners = nodes[active]
            miss = target[active] - np.einsum("kn,knx->kx", values, corners)
            jacobian = np.einsum("ksn,knx->kxs", gradients, corners)
            (a, b), (c, d) = jacobian[:, 0].T, jacobian[:, 1].T
            determinant = a * d - b * c
            with np.errstate(all="ignore"):
                step = (
                    np.stack(
                        [d * miss[:, 0] - b * miss[:, 1], a * miss[:, 1] - c * miss[:, 0]], axis=1
                    )
                    / determinant[:, None]
                )
            usable = np.isfinite(step).all(axis=1) & (abs(s[active] + step).max(axis=1) < 5)
            s[active[~usable]] = -1.0
            active, step = active[usable], step[usable]
            s[active] += step
            active = active[abs(step).max(axis=1) > 1e-12]
            if not len(active):
                break
        s[active] = -1.0
        return s


_TIMEOUT = 300.0  # seconds for a sample in the worker
_RESIDUAL = 1e-10  # largest relative residual of the linear system
BoundaryValue = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class FittedElement:
    """Solves ∫ a ∇u·∇v = ∫ f v in (0,1)² with u = g on the boundary; a jumps across a closed curve.

    Gmsh makes triangles with n edges along each side and edges of that length along the curve.
    Edges on the curve are parabolas through three of its points. On them u is quadratic in the
    coordinates of the element (isoparametric P2), so that the error in L² is of order 3 although u
    has a kink at the curve.

    Raises:
        MissingDolfinxError: If no Python with dolfinx and Gmsh is found.
    """

    n: int  # number of edges along each side of the square
    outside: float  # coefficient outside the curve
    inside: float  # coefficient inside

    def solve(
        self, curve: Float[np.ndarray, "points 2"], grid: CellGrid, f: float = 1.0,
        boundary_value: BoundaryValue | None = None,
    ) -> tuple[Float[np.ndarray, "n n"], float]:  # fmt: skip
        """u at the cell centres of a grid, and the relative residual.

        Args:
            curve: Points of the curve, an even number: ends and middles of edges in turn.
            grid: The cells along each axis.
            f: The source.
            boundary_value: The function g of (x, y); 0 by default.

        Raises:
            SolveError: If the sample cannot be meshed or solved.
            WorkerError: If the worker dies or exceeds the timeout.
        """
        x, y = _perimeter(2 * self.n).T
        g = np.zeros(len(x)) if boundary_value is None else boundary_value(x, y)
        a = np.array([self.outside, self.inside])
        reply = client.solve_fitted({"curve": curve, "n": self.n, "a": a, "f": f, "g": g}, _TIMEOUT)
        residual = float(reply["residual"])
        if not residual <= _RESIDUAL:
            raise SolveError(0, f"the residual of the direct solver is {residual:.1e}")
        try:
            return CurvedTriangles(reply["x"], reply["cells"]).values(reply["u"], grid), residual
        except ArithmeticError as error:
            raise SolveError(0, f"{error}: use more elements") from None


@dataclass(frozen=True)
class Disc:
    """An exact solution for a disc around (½, ½), as a function of (x, y), with f = 1.

    It is the radial solution plus 0.2 times the harmonic one with k = 1 and that with k = 3 (see
    above), with D = 0.3.

    >>> disc = Disc(radius=0.3, inside=12.0, outside=3.0)
    >>> float(disc(np.array(0.5), np.array(0.5)).round(6))
    0.294375
    """

    radius: float  # R, below ½
    inside: float  # coefficient α
    outside: float  # coefficient β

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = np.maximum(np.hypot(x - 0.5, y - 0.5), 1e-12)
        angle, within = np.arctan2(y - 0.5, x - 0.5), r < self.radius
        jump = self.radius**2 * (1 / self.inside - 1 / self.outside) / 4
        inner, outer = jump - r**2 / (4 * self.inside), -(r**2) / (4 * self.outside)
        u = 0.3 + np.where(within, inner, outer)
        q = (self.outside - self.inside) / (self.outside + self.inside)
        for k, weight in ((1, 0.2), (3, 1.0)):
            outer = r**k + q * self.radius ** (2 * k) / r**k
            u = u + weight * np.where(within, (1 + q) * r**k, outer) * np.cos(k * angle)
        return u


def _perimeter(n: int) -> Float[np.ndarray, "points 2"]:
    """4n equally spaced points of the boundary of (0,1)², counter-clockwise from (0, 0)."""
    t, zero, one = np.arange(n) / n, np.zeros(n), np.ones(n)
    sides = ((t, zero), (one, t), (1 - t, one), (zero, 1 - t))
    return np.concatenate([np.stack(side, axis=1) for side in sides])
