"""A mesh of the unit square around a void: rings of quadrilaterals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from pdegen.numerics.spectral import with_midpoints

# Batches of quadrilaterals with nine nodes: gradients, forces and stiffness matrices.


_LINE = np.array([-np.sqrt(0.6), 0.0, np.sqrt(0.6)])
GAUSS = np.stack(np.meshgrid(_LINE, _LINE, indexing="ij")[::-1], axis=-1).reshape(9, 2)
_WEIGHTS = np.outer([5 / 9, 8 / 9, 5 / 9], [5 / 9, 8 / 9, 5 / 9]).ravel()


def shapes(local: Float[np.ndarray, "*batch 2"]) -> Float[np.ndarray, "*batch 9"]:
    """Values of the nine shape functions at these local coordinates.

    >>> bool(np.allclose(shapes(GAUSS).sum(axis=-1), 1))
    True
    """
    (first, second), _ = _lines(local)
    return (second[..., :, None] * first[..., None, :]).reshape(*local.shape[:-1], 9)


def local_derivatives(local: Float[np.ndarray, "*batch 2"]) -> Float[np.ndarray, "*batch 2 9"]:
    """Derivatives of the nine shape functions by both local coordinates."""
    (first, second), (along, up) = _lines(local)
    both = [second[..., :, None] * along[..., None, :], up[..., :, None] * first[..., None, :]]
    return np.stack(both, axis=-3).reshape(*local.shape[:-1], 2, 9)


def _lines(local: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """The three quadratic Lagrange polynomials of each coordinate, and their derivatives."""
    coordinates = [local[..., k] for k in (0, 1)]
    values = (np.stack([s * (s - 1) / 2, 1 - s * s, s * (s + 1) / 2], axis=-1) for s in coordinates)
    return tuple(values), tuple(np.stack([s - 0.5, -2 * s, s + 0.5], axis=-1) for s in coordinates)


@dataclass(frozen=True)
class Elements:
    """Elements, represented by shape-function derivatives and weights at their Gauss points."""

    # derivatives of the shape functions: Gauss point, by x or y, node
    derivatives: Float[np.ndarray, "*batch 9 2 9"]
    # areas of the Gauss points; negative where the map from local coordinates folds
    weights: Float[np.ndarray, "*batch 9"]

    @classmethod
    def of(cls, nodes: Float[np.ndarray, "*batch 9 2"]) -> Elements:
        """The elements whose nodes have these positions."""
        slope = local_derivatives(GAUSS)
        # (*batch, xy, Gauss point and local coordinate)
        jacobian = np.swapaxes(slope.reshape(18, 9) @ nodes, -1, -2)
        # derivatives of x and y by the first (b) and the second (a) local coordinate
        (xb, yb), (xa, ya) = np.moveaxis(
            jacobian.reshape(*jacobian.shape[:-1], 9, 2), (-1, -3), (0, 1)
        )
        area = xb * ya - yb * xa
        b, a = slope[:, 0], slope[:, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            by_x = (ya / area)[..., None] * b - (yb / area)[..., None] * a
            by_y = (xb / area)[..., None] * a - (xa / area)[..., None] * b
        return cls(np.stack([by_x, by_y], axis=-2), area * _WEIGHTS)

    def gradient(self, u: Float[np.ndarray, "*batch 9 2"]) -> Float[np.ndarray, "*batch 9 4"]:
        """Gradient ∂u_i/∂x_j (xx, xy, yx, yy) at the Gauss points, from values u at the nodes."""
        gradients = self._flat @ u  # (*batch, gauss and j, i)
        shape = (*gradients.shape[:-2], 9, 2, 2)
        return np.swapaxes(gradients.reshape(shape), -1, -2).reshape(*shape[:-2], 4)

    def force(self, stress: Float[np.ndarray, "*batch 9 4"]) -> Float[np.ndarray, "*batch 9 2"]:
        """Forces ∫ P_ij ∂φ/∂x_j on the nodes, from the stresses P at the Gauss points."""
        weighted = self.weights[..., None, None] * stress.reshape(*stress.shape[:-1], 2, 2)
        by_i = np.swapaxes(weighted, -1, -2).reshape(*stress.shape[:-2], 18, 2)
        return np.swapaxes(self._flat, -1, -2) @ by_i

    def stiffness(
        self, tangent: Float[np.ndarray, "*_ 4 4"]
    ) -> Float[np.ndarray, "*batch 9 2 2 9"]:
        """Derivatives of `force` by u, computed from the tangent ∂P/∂H.

        H is the gradient of u. The axes are the node and component of the force, then the component
        and node of u.
        """
        c = (self.weights[..., None, None] * tangent).reshape(*self.weights.shape, 2, 2, 2, 2)
        c = c.swapaxes(-4, -3)[..., None]  # (*batch, gauss, j, i, k, l, 1)
        d = self.derivatives[..., None, None, None, :, :]  # (*batch, gauss, 1, 1, 1, l, node)
        right = c[..., 0, :] * d[..., 0, :] + c[..., 1, :] * d[..., 1, :]
        batch = right.shape[:-5]
        matrix = np.swapaxes(self._flat, -1, -2) @ right.reshape(*batch, 18, 36)
        return matrix.reshape(*batch, 9, 2, 2, 9)

    @property
    def _flat(self) -> Float[np.ndarray, "*batch 18 9"]:
        """The array `derivatives`, with the axes for Gauss points and directions merged."""
        return self.derivatives.reshape(*self.derivatives.shape[:-3], 18, 9)


SIDES = 4  # sides of the square
_EDGE = 1e-9  # distance, over an element, at which a point belongs to both neighbours
_STEPS = 4  # steps of Newton's method for local coordinates, which start within some hundredths

Nodes = Float[np.ndarray, "batch lines places 2"]
Values = Float[np.ndarray, "batch lines places k"]


@dataclass(frozen=True)
class Rings:
    """A mesh of quadrilaterals with nine nodes between a void and the sides of the unit square.

    The nodes lie on 2·`around` straight lines that start at the centre of the square. The ends of
    the lines are equally spaced on the sides. The nodes of a line are equally spaced between the
    void and the side. Lines are numbered counterclockwise from the lower right corner, and the
    nodes of a line from the void outwards.

    Stresses are singular at the two lower corners. If `grading` is g, the last element before each
    of these corners is divided at 1/2, 1/4, ..., 2⁻ᵍ of its width, along both axes.

    >>> Rings(36, 3).angles[[0, 18]] * 180 / np.pi
    array([-45.,  45.])
    """

    # around, across: elements along the void, a multiple of four, and from the void to the square
    around: int
    across: int
    grading: int = 0  # further elements on each side of a lower corner

    @property
    def _side(self) -> int:
        """Number of elements of equal width along a side."""
        return self.around // SIDES - self.grading

    @cached_property
    def breaks(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the elements around and across, in units of the width of an undivided element."""
        n, m = self._side, self.across - self.grading
        parts = 0.5 ** np.arange(1, self.grading + 1)
        corners = [parts, 3 * n - parts, 3 * n + parts, SIDES * n - parts]
        around = np.concatenate([np.arange(SIDES * n + 1), *corners])
        return np.sort(around), np.sort(np.concatenate([np.arange(m + 1), m - parts]))

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the lines, and of the nodes of a line, in units of half an element."""
        around, across = (np.sort(np.r_[2 * e, e[1:] + e[:-1]]) for e in self.breaks)
        return around[:-1], across

    @cached_property
    def angles(self) -> Float[np.ndarray, " lines"]:
        """Polar angle of each line."""
        side, place = np.divmod(self._places[0], 2 * self._side)
        return side * np.pi / 2 + np.arctan(-1 + 2 * place / (2 * self._side))

    @property
    def top(self) -> range:
        """Numbers e of the elements along the upper side."""
        first = self._side + self.grading
        return range(first, first + self._side)

    @property
    def bottom(self) -> Int[np.ndarray, " lines"]:
        """Numbers of the lines that end on the lower side, including its corners."""
        first = 3 * self._side + 2 * self.grading
        return np.arange(2 * first, 2 * self.around + 1) % (2 * self.around)

    def nodes(self, radius: Float[np.ndarray, "batch lines"]) -> Nodes:
        """Positions of the nodes. `radius` is the radius of the void along each line."""
        ray = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=-1)
        end = 0.5 / np.abs(ray).max(axis=-1)
        fraction = self._places[1] / self._places[1][-1]
        distance = radius[..., None] + (end - radius)[..., None] * fraction
        return 0.5 + distance[..., None] * ray[:, None]

    def elements(self, values: Values) -> Float[np.ndarray, "batch around across 9 k"]:
        """Values at the nine nodes of each element, from values at all nodes."""
        line = (2 * np.arange(self.around)[:, None] + np.arange(3)) % (2 * self.around)
        node = 2 * np.arange(self.across)[:, None] + np.arange(3)
        by_element = values[:, line[:, None, :, None], node[None, :, None, :]]
        return by_element.reshape(len(values), self.around, self.across, 9, -1)

    def assembled(self, forces: Float[np.ndarray, "batch around across 9 k"]) -> Values:
        """Sums the values of all elements at each node: the transpose of `elements`."""
        batch, n, m, k = len(forces), self.around, self.across, forces.shape[-1]
        parts = forces.reshape(batch, n, m, 3, 3, k)
        across = np.zeros((batch, n, 3, 2 * m + 1, k))
        for b in range(3):
            across[:, :, :, b : b + 2 * m - 1 : 2] += parts[..., b, :].swapaxes(2, 3)
        total = np.zeros((batch, 2 * n, 2 * m + 1, k))
        total[:, ::2] = across[:, :, 0] + np.roll(across[:, :, 2], 1, axis=1)
        total[:, 1::2] = across[:, :, 1]
        return total

    def halved(self, values: Values) -> Float[np.ndarray, "batch 2*lines 2*places-1 k"]:
        """Interpolates values to the mesh with twice as many elements along each axis."""
        closed = np.concatenate([values, values[:, :1]], axis=1)
        return with_midpoints(with_midpoints(closed, 1)[:, :-1], 2)

    @cached_property
    def cells(self) -> Int[np.ndarray, "cells 4"]:
        """Quadrilaterals whose corners are neighbouring Gauss points, for drawing."""
        n, m = 3 * self.around, 3 * self.across
        number = np.arange(n * m).reshape(self.around, self.across, 3, 3)
        ring = number.transpose(0, 2, 1, 3).reshape(n, m)
        following = np.roll(ring, -1, axis=0)
        corners = [ring[:, :-1], ring[:, 1:], following[:, 1:], following[:, :-1]]
        return np.stack(corners, axis=-1).reshape(-1, 4)


@dataclass(frozen=True)
class PointTransfer:
    """Interpolation from a fine mesh to the Gauss points of a coarse mesh.

    A point occurs once in each element of the fine mesh that contains it. A point on an edge
    between elements therefore has several occurrences.
    """

    coarse: Rings  # the mesh that defines the Gauss points
    times: int  # ratio of the numbers of elements along an axis
    grading: int = 0  # grading of the fine mesh

    @property
    def fine(self) -> Rings:
        """The fine mesh."""
        r, g = self.times, self.grading
        return Rings(self.coarse.around * r + SIDES * g, self.coarse.across * r + g, g)

    @cached_property
    def _occurrences(self) -> tuple[np.ndarray, ...]:
        """All occurrences of points in elements of the fine mesh."""
        n, m, r = self.coarse.around, self.coarse.across, self.times
        around, across = np.arange(n)[:, None, None], np.arange(m)[:, None]
        shape = (n, m, 9)
        exact = [
            np.broadcast_to((start + (1 + local) / 2) * r, shape).ravel()
            for start, local in ((around, GAUSS[:, 1]), (across, GAUSS[:, 0]))
        ]
        breaks = self.fine.breaks
        occurrences = set[tuple[int, int, int]]()
        for shift in ((-_EDGE, -_EDGE), (-_EDGE, _EDGE), (_EDGE, -_EDGE), (_EDGE, _EDGE)):
            e, k = (
                np.searchsorted(ends, s + d, "right") - 1
                for ends, s, d in zip(breaks, exact, shift, strict=True)
            )
            occurrences |= set(zip(range(e.size), e.tolist(), k.tolist(), strict=True))
        point, e, k = np.array(sorted(occurrences)).T
        local = [
            2 * (s[point] - ends[number]) / (ends[number + 1] - ends[number]) - 1
            for s, ends, number in zip(exact[::-1], breaks[::-1], (k, e), strict=True)
        ]
        return point, e, k, np.stack(local, axis=-1)

    def _local(
        self, fine: Nodes, points: Float[np.ndarray, "batch points 2"]
    ) -> Float[np.ndarray, "batch occurrences 2"]:
        """Local coordinates of each occurrence, solved with Newton's method."""
        point, e, k, start = self._occurrences
        x = np.ascontiguousarray(self.fine.elements(fine)[:, e, k])
        local = np.broadcast_to(start, (len(x), *start.shape))
        for _ in range(_STEPS):
            distance = points[:, point] - (shapes(local)[..., None, :] @ x)[..., 0, :]
            jacobian = np.swapaxes(local_derivatives(local) @ x, -1, -2)
            step = np.linalg.solve(jacobian, distance[..., None])[..., 0]
            local = local + step
        return local

    def places(
        self, fine: Nodes, points: Float[np.ndarray, "batch points 2"]
    ) -> Float[np.ndarray, "batch points 2"]:
        """Coordinates of the points around and across, in the units of `Rings.breaks`."""
        _, *elements, _ = self._occurrences
        local = self._local(fine, points)[..., ::-1]  # around first
        parts = [
            ends[number] + (ends[number + 1] - ends[number]) * (1 + local[..., axis]) / 2
            for axis, (ends, number) in enumerate(zip(self.fine.breaks, elements, strict=True))
        ]
        return self.mean(np.stack(parts, axis=-1))

    def values(
        self, fine: Nodes, points: Float[np.ndarray, "batch points 2"], u: Nodes
    ) -> tuple[Float[np.ndarray, "batch occurrences 2"], Float[np.ndarray, "batch occurrences 4"]]:
        """u and its gradient (xx, xy, yx, yy) at each occurrence of the points.

        `fine` are the positions of the nodes of the fine mesh, and `u` the values at these nodes.
        """
        _, e, k, _ = self._occurrences
        # contiguous, as products round differently otherwise when there is one sample
        x, v = (np.ascontiguousarray(self.fine.elements(a)[:, e, k]) for a in (fine, u))
        local = self._local(fine, points)
        by_local = local_derivatives(local)
        gradient = np.swapaxes(np.linalg.solve(by_local @ x, by_local @ v), -1, -2)
        value = (shapes(local)[..., None, :] @ v)[..., 0, :]
        return value, gradient.reshape(*gradient.shape[:-2], 4)

    def mean(self, values: Float[np.ndarray, "batch occurrences *k"]) -> Float[np.ndarray, "..."]:
        """Value of each point: the mean over the elements that contain it."""
        point = self._occurrences[0]
        starts = np.flatnonzero(np.diff(point, prepend=-1))
        count = np.diff(starts, append=len(point))
        total = np.add.reduceat(values, starts, axis=1)
        return total / count.reshape(-1, *[1] * (values.ndim - 2))
