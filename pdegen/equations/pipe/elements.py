"""Elements of Taylor and Hood in a bent pipe: functions, places of nodes, sums over elements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array, constant, zeros


class Basis(NamedTuple):
    """At the Gauss points of an element, those along it first."""

    weights: Float[Array, " points"]  # with the area of the element
    place: Float[Array, " points"]  # along the element, 0 to 1
    parabolas: Float[Array, "points 9"]  # the nine functions of its nodes, those along it first
    # along, across: their derivatives along x, at a constant distance to the centre line, and y
    along: Float[Array, "points 9"]
    across: Float[Array, "points 9"]
    lines: Float[Array, "points 4"]  # the four bilinear functions of its corners


@dataclass(frozen=True)
class TaylorHood:
    """Rectangles that are sheared along y: all lines of nodes x = const are vertical, and all
    Jacobians are length/columns/rows. Parabolas for the velocity and for the centre line within
    each element, bilinear pressure.

    Arrays have the axes (batch, column, row, ...).

    References: C. Taylor and P. Hood, Comput. Fluids 1 (1973).
    """

    # columns, rows: elements along the pipe and across
    columns: int
    rows: int
    length: float  # of the pipe, along x
    gauss: int  # points of quadrature along each axis of an element; with 4 all integrals are exact

    @property
    def area(self) -> float:
        return self.length / self.columns / self.rows

    @cached_property
    def _basis(self) -> Basis:
        x, w = np.polynomial.legendre.leggauss(self.gauss)
        t, w = (x + 1) / 2, w / 2
        parabolas = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)], axis=-1)
        slopes = np.stack([4 * t - 3, 4 - 8 * t, 4 * t - 1], axis=-1)
        lines = np.stack([1 - t, t], axis=-1)

        def product(along: np.ndarray, across: np.ndarray) -> np.ndarray:
            return np.einsum("xa,yb->xyab", along, across).reshape(self.gauss**2, -1)

        return Basis(
            self.area * np.multiply.outer(w, w).ravel(),
            np.repeat(t, self.gauss),
            product(parabolas, parabolas),
            product(slopes, parabolas) * self.columns / self.length,
            product(parabolas, slopes) * self.rows,
            product(lines, lines),
        )

    def basis(self, like: Array) -> Basis:
        """Where another array is."""
        return Basis(*(constant(one, like) for one in self._basis))

    def gradients(self, centre: Array) -> Float[Array, "batch columns points 2 9"]:
        """∂φ/∂x and ∂φ/∂y of the nine functions: x-derivatives at constant η, and less the slope
        of the centre line's parabola times the derivative along y."""
        xp = array_namespace(centre)
        _, t, _, along, across, _ = self.basis(centre)
        y0, y1, y2 = centre[:, :-1:2, None], centre[:, 1::2, None], centre[:, 2::2, None]
        slope = ((4 * t - 3) * y0 + (4 - 8 * t) * y1 + (4 * t - 1) * y2) * self.columns
        slope = slope[..., None] / self.length
        return xp.stack(xp.broadcast_arrays(along - slope * across, across), axis=-2)

    def elements(self, values: Array) -> Float[Array, "batch columns rows k 9"]:
        """Values (batch, k, lines, nodes) at the nodes, element by element."""
        xp, n, m = array_namespace(values), self.columns, self.rows
        parts = [
            values[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2]
            for a in range(3)
            for b in range(3)
        ]
        return xp.permute_dims(xp.stack(parts, axis=-1), (0, 2, 3, 1, 4))

    def nodes(self, parts: Array, batch: int) -> Float[Array, "batch k lines nodes"]:
        """Sums at the nodes of what elements have there: the transpose of `elements`."""
        xp, n, m, k = array_namespace(parts), self.columns, self.rows, parts.shape[3]
        parts = xp.permute_dims(parts, (0, 3, 1, 2, 4))
        total = zeros((batch, k, 2 * n + 1, 2 * m + 1), parts)
        for i in range(9):
            a, b = divmod(i, 3)
            total[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2] += parts[..., i]
        return total

    def corners(self, parts: Array, batch: int) -> Float[Array, "batch columns+1 rows+1"]:
        """Sums at the corners of what elements have there, (batch, columns, rows, 4)."""
        n, m = self.columns, self.rows
        total = zeros((batch, n + 1, m + 1), parts)
        for i in range(4):
            a, b = divmod(i, 2)
            total[:, a : a + n, b : b + m] += parts[..., i]
        return total

    def slopes(self, velocity: Array, gradients: Array) -> Float[Array, "b c r 2 points 2"]:
        """∂u_i/∂x_j at the Gauss points."""
        xp, (batch, n, points) = array_namespace(velocity), gradients.shape[:3]
        local = xp.reshape(self.elements(velocity), (batch, n, self.rows * 2, 9))
        by = xp.matrix_transpose(xp.reshape(gradients, (batch, n, points * 2, 9)))
        return xp.reshape(local @ by, (batch, n, self.rows, 2, points, 2))

    def lack(self, slopes: Array) -> Float[Array, "batch columns rows 4"]:
        """-∫ ψ div u over each element."""
        basis = self.basis(slopes)
        lost = slopes[..., 0, :, 0] + slopes[..., 1, :, 1]
        return -lost @ (basis.weights[:, None] * basis.lines)

    # the unknowns of a column are those of its left line (u, v, p), its middle line (u, v), and its
    # right line

    @property
    def sizes(self) -> tuple[int, int]:
        """Unknowns of a line between columns, and within one."""
        inside = 2 * (2 * self.rows - 1)
        return inside + self.rows + 1, inside

    @cached_property
    def places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every second element of a column: where its matrix has entries, and where they go in
        the matrix of the column, both counted in flat arrays; no place is met twice."""
        m, (outer, inner) = self.rows, self.sizes
        size = 2 * outer + inner
        line = np.array([0, outer, outer + inner])
        element = np.arange(m)[:, None, None, None]
        component, a, b = np.meshgrid(np.arange(2), np.arange(3), np.arange(3), indexing="ij")
        node = 2 * element + b - 1
        number = line[a] + component * (2 * m - 1) + node
        number = np.where((node >= 0) & (node < 2 * m - 1), number, -1).reshape(m, 18)
        corner = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        pressure = line[2 * corner[0]] + inner + np.arange(m)[:, None] + corner[1]
        known = np.concatenate([number, pressure], axis=1)  # (rows, 22)
        entry = (known[:, :, None] * size + known[:, None, :]).reshape(m, -1)
        free = ((known >= 0)[:, :, None] & (known >= 0)[:, None, :]).reshape(m, -1)
        found = list[tuple[np.ndarray, np.ndarray]]()
        for parity in (0, 1):
            these = free & (np.arange(m) % 2 == parity)[:, None]
            found.append((np.flatnonzero(these), entry[these]))
        return found
