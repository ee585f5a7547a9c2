"""Values of quadratic finite elements on curved triangles at the cell centres of a square."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from pdegen.domains import CellGrid

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
