"""The surface of a die: a natural cubic spline through equally spaced heights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Spline:
    """Natural cubic splines through equally spaced heights on the interval [-length/2, length/2].

    Outside the interval, a spline continues as a straight line.

    >>> line = Spline(length=4.0, points=3)
    >>> float(line.values(line.pieces(np.array([[0.0, 1.0, 2.0]])), np.array([1.5]))[0, 0])
    1.75
    """

    length: float  # length of the interval
    points: int  # number of heights, at least 3

    @property
    def width(self) -> float:
        """Distance between neighbouring knots."""
        return self.length / (self.points - 1)

    @cached_property
    def _curvatures(self) -> Float[np.ndarray, "points points"]:
        """Matrix that maps the heights y to the second derivatives M at the knots.

        M_(k-1) + 4 M_k + M_(k+1) = 6 (y_(k-1) - 2 y_k + y_(k+1))/width², and M = 0 at both ends.
        """
        n = self.points
        system = np.eye(n)
        inner = np.arange(1, n - 1)
        system[inner, inner], system[inner, inner - 1], system[inner, inner + 1] = 4, 1, 1
        second = np.zeros((n, n))
        second[inner, inner], second[inner, inner - 1], second[inner, inner + 1] = -12, 6, 6
        return np.linalg.solve(system, second / self.width**2)

    def pieces(
        self, heights: Float[np.ndarray, "batch points"]
    ) -> Float[np.ndarray, "batch points-1 4"]:
        """Coefficients of the cubic polynomial between each pair of neighbouring knots.

        The constant coefficient is first. The variable is the distance from the left knot.
        """
        w = self.width
        curvature = np.stack([self._curvatures @ row for row in heights])
        left, right = curvature[:, :-1], curvature[:, 1:]
        slope = np.diff(heights, axis=1) / w - w * (2 * left + right) / 6
        return np.stack([heights[:, :-1], slope, left / 2, (right - left) / (6 * w)], axis=-1)

    def values(
        self, pieces: Float[np.ndarray, "batch pieces 4"], x: Float[np.ndarray, " *points"]
    ) -> Float[np.ndarray, "batch ..."]:
        """Heights of the dies at the points x.

        If x has one axis, all dies share the points. If it has more, the first counts the dies.
        """
        x = np.broadcast_to(x, (len(pieces), *x.shape)) if x.ndim == 1 else x
        inside = np.clip(x, -self.length / 2, self.length / 2)
        k = np.floor_divide(np.nan_to_num(inside) + self.length / 2, self.width).astype(int)
        k = np.clip(k, 0, self.points - 2)
        s = inside + self.length / 2 - k * self.width
        row = np.arange(len(pieces)).reshape(-1, *[1] * (x.ndim - 1))
        c0, c1, c2, c3 = np.moveaxis(pieces[row, k], -1, 0)
        slope = c1 + s * (2 * c2 + s * 3 * c3)
        return c0 + s * (c1 + s * (c2 + s * c3)) + slope * (x - inside)

    def minimum(self, pieces: Float[np.ndarray, "batch pieces 4"]) -> Float[np.ndarray, " batch"]:
        """The smallest height of each die in the interval."""
        w = self.width
        c0, c1, c2, c3 = (pieces[..., k] for k in range(4))
        root = np.sqrt(np.maximum(c2 * c2 - 3 * c1 * c3, 0))
        # the root of c1 + 2 c2 s + 3 c3 s² at which the curvature is positive
        numerator = np.where(c2 > 0, -c1, root - c2)
        denominator = np.where(c2 > 0, c2 + root, 3 * c3)
        s = np.clip(numerator / np.where(denominator == 0, 1, denominator), 0, w)
        values = np.stack([c0 + p * (c1 + p * (c2 + p * c3)) for p in (s, 0 * s, w + 0 * s)])
        return values.min(axis=(0, 2))
