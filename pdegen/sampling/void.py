"""Random voids and inclusions: a radius that depends on the angle, between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream


@dataclass(frozen=True)
class RandomVoid:
    """Voids of radius r(φ) = least + span/(1 + exp g(φ)), with a Gaussian field g on the circle.

    g(φ) = π^(-½) Σ_{l=1}^{K} (l² + τ²)^(-1) (θ_{2l-1} cos lφ + θ_{2l} sin lφ), θ ~ N(0, σ²). Its
    covariance is σ² (-d²/dφ² + τ²)^(-2), without the constant mode. K is `modes`.

    >>> void = RandomVoid(least=0.2, span=0.2, sigma=16.0, tau=3.0, modes=5)
    >>> theta = np.array([[10.0, -20, 15, 5, -10, 20, -5, 10, 15, -15]])
    >>> void.radius(theta, np.arange(4) * np.pi / 2).round(8)
    array([[0.25231463, 0.38818427, 0.29807564, 0.24487544]])
    """

    # least, span: the radius lies between least and least + span
    least: float
    span: float
    # sigma, tau, modes: scale σ, inverse correlation angle τ and number of modes K
    sigma: float
    tau: float
    modes: int

    def theta(self, seed: int, samples: Sequence[int]) -> Float[np.ndarray, "batch 2K"]:
        """The numbers θ of these samples.

        More modes append further numbers and leave the first ones unchanged.
        """
        return self.sigma * NormalStream(seed).normals_of(samples, 2 * self.modes)

    def radius(
        self, theta: Float[np.ndarray, "batch 2K"], angles: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "batch n"]:
        """The radius r(φ) at these angles."""
        waves = np.outer(self._wave_numbers, angles)
        basis = np.stack([np.cos(waves), np.sin(waves)], axis=1)
        basis /= np.sqrt(np.pi) * (self._wave_numbers**2 + self.tau**2)[:, None, None]
        g = (theta[:, None] @ basis.reshape(2 * self.modes, -1))[:, 0]  # the same bits in any batch
        # 1/(1 + exp g) without an overflow
        return self.least + self.span * (1 - np.tanh(g / 2)) / 2

    def depth(
        self,
        theta: Float[np.ndarray, "batch 2K"],
        points: Float[np.ndarray, "batch points 2"],
    ) -> Float[np.ndarray, "batch points"]:
        """How far points lie inside the void, along the ray from its center; negative outside.

        The points are relative to the center.
        """
        x, y = points[..., 0], points[..., 1]
        angles = np.arctan2(y, x)
        radius = [self.radius(row[None], phi)[0] for row, phi in zip(theta, angles, strict=True)]
        return np.stack(radius) - np.hypot(x, y)

    @cached_property
    def _wave_numbers(self) -> Float[np.ndarray, " K"]:
        """The wave numbers 1, ..., K."""
        return np.arange(1.0, self.modes + 1)
