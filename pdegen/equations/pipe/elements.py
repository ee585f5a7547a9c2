"""Taylor-Hood elements in a bent pipe: shape functions, element values and assembly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float

from pdegen.numerics.device import Array, constant, zeros


class Basis(NamedTuple):
    """Shape functions at the Gauss points of an element.

    Points, nodes and corners are numbered line by line along x, and along y on each line.
    """

    weights: Float[Array, " points"]  # quadrature weights times the area of the element
    position: Float[Array, " points"]  # position along the element, 0 to 1
    parabolas: Float[Array, "points 9"]  # shape functions of the nine nodes
    # along, across: their derivatives by x at constant distance from the centre line, and by y
    along: Float[Array, "points 9"]
    across: Float[Array, "points 9"]
    lines: Float[Array, "points 4"]  # bilinear shape functions of the four corners


@dataclass(frozen=True)
class TaylorHood:
    """Taylor-Hood elements on rectangles that are sheared in the direction of y.

    In each element, the velocity is biquadratic, the pressure bilinear, and the centre line
    quadratic in x. The nodes lie on lines x = const. All elements have the area
    length/columns/rows. Arrays of element values have the axes (batch, column, row, ...).

    References: C. Taylor and P. Hood, Comput. Fluids 1 (1973).
    """

    # columns, rows: elements along the pipe and across
    columns: int
    rows: int
    length: float  # length of the pipe along x
    gauss: int  # quadrature points along each axis of an element; with 4 all integrals are exact

    @property
    def area(self) -> float:
        """Area of an element."""
        return self.length / self.columns / self.rows

    @cached_property
    def _basis(self) -> Basis:
        """The shape functions, as NumPy arrays."""
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
        """The shape functions, copied to the device of the array `like`."""
        return Basis(*(constant(values, like) for values in self._basis))

    def gradients(self, centre: Array) -> Float[Array, "batch columns points 2 9"]:
        """Derivatives ∂φ/∂x and ∂φ/∂y of the nine shape functions φ at the Gauss points.

        Let η be the distance in y from the centre line. Then ∂φ/∂x is the derivative of φ by x at
        constant η, minus the slope of the centre line times ∂φ/∂y. `centre` (batch, lines) has the
        heights of the centre line at the lines of nodes.
        """
        xp = array_namespace(centre)
        _, t, _, along, across, _ = self.basis(centre)
        y0, y1, y2 = centre[:, :-1:2, None], centre[:, 1::2, None], centre[:, 2::2, None]
        slope = ((4 * t - 3) * y0 + (4 - 8 * t) * y1 + (4 * t - 1) * y2) * self.columns
        slope = slope[..., None] / self.length
        return xp.stack(xp.broadcast_arrays(along - slope * across, across), axis=-2)

    def elements(self, values: Array) -> Float[Array, "batch columns rows k 9"]:
        """Values at the nine nodes of each element, from values (batch, k, lines, nodes)."""
        xp, n, m = array_namespace(values), self.columns, self.rows
        parts = [
            values[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2]
            for a in range(3)
            for b in range(3)
        ]
        return xp.permute_dims(xp.stack(parts, axis=-1), (0, 2, 3, 1, 4))

    def nodes(self, parts: Array, batch: int) -> Float[Array, "batch k lines nodes"]:
        """Sums the values of all elements at each node: the transpose of `elements`."""
        xp, n, m, k = array_namespace(parts), self.columns, self.rows, parts.shape[3]
        parts = xp.permute_dims(parts, (0, 3, 1, 2, 4))
        total = zeros((batch, k, 2 * n + 1, 2 * m + 1), parts)
        for i in range(9):
            a, b = divmod(i, 3)
            total[:, :, a : a + 2 * n - 1 : 2, b : b + 2 * m - 1 : 2] += parts[..., i]
        return total

    def corners(self, parts: Array, batch: int) -> Float[Array, "batch columns+1 rows+1"]:
        """Sums the values (batch, columns, rows, 4) of all elements at each corner."""
        n, m = self.columns, self.rows
        total = zeros((batch, n + 1, m + 1), parts)
        for i in range(4):
            a, b = divmod(i, 2)
            total[:, a : a + n, b : b + m] += parts[..., i]
        return total

    def slopes(self, velocity: Array, gradients: Array) -> Float[Array, "b c r 2 points 2"]:
        """Derivatives ∂u_i/∂x_j at the Gauss points. The last axes are i, point and j."""
        xp, (batch, n, points) = array_namespace(velocity), gradients.shape[:3]
        local = xp.reshape(self.elements(velocity), (batch, n, self.rows * 2, 9))
        by = xp.matrix_transpose(xp.reshape(gradients, (batch, n, points * 2, 9)))
        return xp.reshape(local @ by, (batch, n, self.rows, 2, points, 2))

    def mass_defect(self, slopes: Array) -> Float[Array, "batch columns rows 4"]:
        """-∫ ψ div u over each element, for the bilinear shape functions ψ of its corners."""
        basis = self.basis(slopes)
        divergence = slopes[..., 0, :, 0] + slopes[..., 1, :, 1]
        return -divergence @ (basis.weights[:, None] * basis.lines)

    # the unknowns of a column of elements: u, v, p on its left line, u, v on its middle line, and
    # u, v, p on its right line

    @property
    def unknowns(self) -> tuple[int, int]:
        """Numbers of unknowns on a line between two columns, and on the middle line of a column."""
        inside = 2 * (2 * self.rows - 1)
        return inside + self.rows + 1, inside

    @cached_property
    def scatter(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices for the assembly of the matrix of a column from its element matrices.

        There is one pair of index arrays for the even elements and one for the odd elements. The
        first array selects entries of the flattened element matrices. The second array has the
        positions of these entries in the flattened column matrix, each at most once.
        """
        m, (outer, inner) = self.rows, self.unknowns
        size = 2 * outer + inner
        line = np.array([0, outer, outer + inner])
        element = np.arange(m)[:, None, None, None]
        component, a, b = np.meshgrid(np.arange(2), np.arange(3), np.arange(3), indexing="ij")
        node = 2 * element + b - 1
        number = line[a] + component * (2 * m - 1) + node
        number = np.where((node >= 0) & (node < 2 * m - 1), number, -1).reshape(m, 18)
        corner = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        pressure = line[2 * corner[0]] + inner + np.arange(m)[:, None] + corner[1]
        unknown = np.concatenate([number, pressure], axis=1)  # (rows, 22), -1 on walls
        entry = (unknown[:, :, None] * size + unknown[:, None, :]).reshape(m, -1)
        free = ((unknown >= 0)[:, :, None] & (unknown >= 0)[:, None, :]).reshape(m, -1)
        pairs = list[tuple[np.ndarray, np.ndarray]]()
        for parity in (0, 1):
            chosen = free & (np.arange(m) % 2 == parity)[:, None]
            pairs.append((np.flatnonzero(chosen), entry[chosen]))
        return pairs
