"""A square with a void: the mesh of quadrilaterals between both, like the rings of an onion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from pdegen.equations.elasticity.element import GAUSS, shapes, slopes
from pdegen.numerics.parabolas import halved

_SIDES = 4
_EDGE = 1e-9  # of an element: a place so near to it belongs to both neighbours
_STEPS = 4  # of Newton's method for local coordinates, which start within some hundredths

Nodes = Float[np.ndarray, "batch lines places 2"]
Values = Float[np.ndarray, "batch lines places k"]


@dataclass(frozen=True)
class Rings:
    """Quadrilaterals of nine nodes between a void and the unit square.

    The nodes lie on 2·around straight lines from the centre, which divide the sides of the square
    equally, and each line is divided equally from the void to the square. Lines begin at the lower
    right corner, counterclockwise; nodes of a line begin at the void.

    >>> Rings(36, 3).angles[[0, 18]] * 180 / np.pi
    array([-45.,  45.])
    """

    around: int  # elements along the void, a multiple of four
    across: int  # elements from the void to the square

    @cached_property
    def angles(self) -> Float[np.ndarray, " lines"]:
        """Of the lines."""
        side = 2 * self.around // _SIDES
        q = -1 + 2 * np.arange(side) / side
        return (np.arange(_SIDES)[:, None] * np.pi / 2 + np.arctan(q)).ravel()

    @property
    def top(self) -> range:
        """Elements along the upper side; their lines are twice these, and one more."""
        return range(self.around // _SIDES, self.around // 2)

    @property
    def bottom(self) -> Int[np.ndarray, " lines"]:
        """Lines that end on the lower side, its corners among them."""
        n = self.around
        return np.arange(3 * n // 2, 2 * n + 1) % (2 * n)

    def nodes(self, radius: Float[np.ndarray, "batch lines"]) -> Nodes:
        """Positions of the nodes, for the void's radius along each line."""
        ray = np.stack([np.cos(self.angles), np.sin(self.angles)], axis=-1)
        end = 0.5 / np.abs(ray).max(axis=-1)
        part = np.arange(2 * self.across + 1) / (2 * self.across)
        distance = radius[..., None] + (end - radius)[..., None] * part
        return 0.5 + distance[..., None] * ray[:, None]

    def elements(self, values: Values) -> Float[np.ndarray, "batch around across 9 k"]:
        """Values at the nodes, element by element."""
        line = (2 * np.arange(self.around)[:, None] + np.arange(3)) % (2 * self.around)
        place = 2 * np.arange(self.across)[:, None] + np.arange(3)
        found = values[:, line[:, None, :, None], place[None, :, None, :]]
        return found.reshape(len(values), self.around, self.across, 9, -1)

    def assembled(self, forces: Float[np.ndarray, "batch around across 9 k"]) -> Values:
        """Sums at the nodes of what elements have there: the transpose of `elements`."""
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
        """The same parabolas at the nodes of the mesh that is twice as fine."""
        closed = np.concatenate([values, values[:, :1]], axis=1)
        return halved(halved(closed, 1)[:, :-1], 2)

    @cached_property
    def cells(self) -> Int[np.ndarray, "cells 4"]:
        """Quadrilaterals between the Gauss points, which are numbered element by element."""
        n, m = 3 * self.around, 3 * self.across
        number = np.arange(n * m).reshape(self.around, self.across, 3, 3)
        ring = number.transpose(0, 2, 1, 3).reshape(n, m)
        following = np.roll(ring, -1, axis=0)
        corners = [ring[:, :-1], ring[:, 1:], following[:, 1:], following[:, :-1]]
        return np.stack(corners, axis=-1).reshape(-1, 4)


@dataclass(frozen=True)
class Places:
    """The Gauss points of a coarse mesh in one that is finer by a whole number; a point between
    elements of the fine mesh is in each of them."""

    coarse: Rings  # the mesh that has the points
    times: int  # how many times finer the other mesh is

    @property
    def fine(self) -> Rings:
        return Rings(self.coarse.around * self.times, self.coarse.across * self.times)

    @cached_property
    def _found(self) -> tuple[np.ndarray, ...]:
        """Of each occurrence: the point, the element around and across, local coordinates."""
        n, m, r = self.coarse.around, self.coarse.across, self.times
        around, across = np.arange(n)[:, None, None], np.arange(m)[:, None]
        shape = (n, m, 9)
        exact = [
            np.broadcast_to((start + (1 + local) / 2) * r, shape).ravel()
            for start, local in ((around, GAUSS[:, 1]), (across, GAUSS[:, 0]))
        ]
        found = set[tuple[int, int, int]]()
        for shift in ((-_EDGE, -_EDGE), (-_EDGE, _EDGE), (_EDGE, -_EDGE), (_EDGE, _EDGE)):
            e, k = (np.floor(s + d).astype(int) for s, d in zip(exact, shift, strict=True))
            found |= set(zip(range(e.size), e.tolist(), k.tolist(), strict=True))
        point, e, k = np.array(sorted(found)).T
        local = [2 * (exact[1][point] - k) - 1, 2 * (exact[0][point] - e) - 1]
        return point, e % (n * r), k, np.stack(local, axis=-1)

    def values(
        self, fine: Nodes, points: Float[np.ndarray, "batch points 2"], u: Nodes
    ) -> tuple[Float[np.ndarray, "batch found 2"], Float[np.ndarray, "batch found 4"]]:
        """u, known at the nodes of the fine mesh, and its gradient (xx, xy, yx, yy) at each
        occurrence of the points."""
        point, e, k, start = self._found
        # contiguous: else products are rounded in another way where there is one sample
        x, v = (np.ascontiguousarray(self.fine.elements(a)[:, e, k]) for a in (fine, u))
        local = np.broadcast_to(start, (len(x), *start.shape))
        for _ in range(_STEPS):
            off = points[:, point] - (shapes(local)[..., None, :] @ x)[..., 0, :]
            slope = np.swapaxes(slopes(local) @ x, -1, -2)
            step = np.linalg.solve(slope, off[..., None])[..., 0]
            local = local + step
        by_local = slopes(local)
        gradient = np.swapaxes(np.linalg.solve(by_local @ x, by_local @ v), -1, -2)
        value = (shapes(local)[..., None, :] @ v)[..., 0, :]
        return value, gradient.reshape(*gradient.shape[:-2], 4)

    def mean(self, found: Float[np.ndarray, "batch found *k"]) -> Float[np.ndarray, "..."]:
        """At each point the mean of its occurrences."""
        point = self._found[0]
        starts = np.flatnonzero(np.diff(point, prepend=-1))
        count = np.diff(starts, append=len(point))
        total = np.add.reduceat(found, starts, axis=1)
        return total / count.reshape(-1, *[1] * (found.ndim - 2))
