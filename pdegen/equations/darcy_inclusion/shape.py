"""Random inclusions: star-shaped, with a smooth boundary and a random centre."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.sampling.coefficients import RandomVoid
from pdegen.sampling.gaussian import NormalStream

_FINE = 4096  # angles at which the length of a boundary is measured


@dataclass(frozen=True)
class RandomInclusion:
    """Inclusions |x - c| < r(φ), with the angle φ of x - c.

    The numbers z are independent and standard normal. The centre is c = (½, ½) + shift (2Φ(z) - 1)
    with the first two of them, uniform in a square. The radius is that of `outline` for the other
    numbers, θ = σ z.
    """

    outline: RandomVoid
    shift: float  # largest distance of the centre from (½, ½) along each axis

    @property
    def count(self) -> int:
        """Number of random numbers of a sample."""
        return 2 + 2 * self.outline.modes

    def numbers(self, seed: int, samples: range) -> Float[np.ndarray, "batch count"]:
        """The numbers z of these samples. More modes append numbers."""
        return NormalStream(seed).normals_of(samples, self.count)

    def centre(self, z: Float[np.ndarray, "batch count"]) -> Float[np.ndarray, "batch 2"]:
        """The centres c."""
        return 0.5 + self.shift * (2 * scipy.special.ndtr(z[:, :2]) - 1)

    def radius(
        self, z: Float[np.ndarray, "batch count"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "batch n"]:
        """The radii r(φ) at these angles."""
        return self.outline.radius(self.outline.sigma * z[:, 2:], angles)

    def depth(
        self, z: Float[np.ndarray, "batch count"], grid: CellGrid
    ) -> Float[np.ndarray, "batch n n"]:
        """r(φ) - |x - c| at the cell centres, positive inside, indexed [x, y]."""
        x = np.stack(np.meshgrid(grid.x, grid.x, indexing="ij"), axis=-1).reshape(-1, 2)
        depths = []
        for row, centre in zip(z, self.centre(z), strict=True):
            dx, dy = (x - centre).T
            r = self.radius(row[None], np.arctan2(dy, dx))[0]
            depths.append((r - np.hypot(dx, dy)).reshape(grid.n, grid.n))
        return np.stack(depths)

    def curve(self, z: Float[np.ndarray, " count"], n: int) -> Float[np.ndarray, "points 2"]:
        """Points on the boundary of one inclusion for elements of size about 1/n.

        There are an even number of points at equal distances along the curve, twice as many as
        edges of elements. Twice n doubles the number.
        """
        angles = np.arange(_FINE + 1) * (2 * np.pi / _FINE)
        fine = self._points(z, angles)
        length = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(fine, axis=0), axis=1)))
        edges = max(12, int(np.ceil(8 * length[-1]))) * n // 8
        at = np.interp(np.arange(2 * edges) * (length[-1] / (2 * edges)), length, angles)
        return self._points(z, at)

    def _points(
        self, z: Float[np.ndarray, " count"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n 2"]:
        r = self.radius(z[None], angles)[0, :, None]
        return self.centre(z[None])[0] + r * np.stack([np.cos(angles), np.sin(angles)], axis=1)
