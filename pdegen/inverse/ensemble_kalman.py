"""Ensemble Kalman inversion: derivatives of the solver are not needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pdegen.inverse.covariance import Covariance
from pdegen.sampling.gaussian import NormalStream

_LONGEST = 30  # steps


class Ensemble(NamedTuple):
    """What is left of an ensemble at the end.

    members: ξ of each, shape (members, *shape).
    solves: Solutions that it took.
    """

    members: Float[np.ndarray, " members *shape"]
    solves: int


@dataclass(frozen=True)
class EnsembleKalman:
    """Moves an ensemble from the prior N(0, 1) to the posterior of d = G(ξ) + e, e ~ N(0, R).

    In a step each member goes to

        ξ + C_ξG (C_GG + α R)⁻¹ (d + √α η - G(ξ)),   η ~ N(0, R),

    with the covariances C of the ensemble. The steps 1/α add up to 1; each is as long as the data
    allow: α⁻¹ = m/(2 Φ), Φ the mean of ½ rᵀ R⁻¹ r over the ensemble and m the number of data. For a
    linear G and a large ensemble the result samples the posterior; else it is an approximation.

    Args:
        forward: G, one member at a time.
        members: Size of the ensemble, at least 3.
        seed: Of the first ensemble and of η.

    Raises:
        ValueError: Of fewer members.

    References: M. Iglesias, K. Law and A. Stuart, Ensemble Kalman methods for inverse problems,
    Inverse Problems 29 (2013); M. Iglesias and Y. Yang, Adaptive regularisation for ensemble Kalman
    inversion, Inverse Problems 37 (2021), equation (23).
    """

    forward: Callable[[np.ndarray], np.ndarray]
    members: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.members < 3:
            raise ValueError(f"an ensemble needs at least 3 members, got {self.members}")

    def __call__(
        self, data: Float[np.ndarray, " *data"], covariance: Covariance, shape: tuple[int, ...]
    ) -> Ensemble:
        """The ensemble at the end.

        Args:
            data: d.
            covariance: R.
            shape: Of ξ.
        """
        stream, count = NormalStream(self.seed), int(np.prod(shape))
        xi = stream.normals_of(range(self.members), count)
        reached, solves = 0.0, 0
        for step in range(_LONGEST):
            g = np.stack([self.forward(one.reshape(shape)) for one in xi])
            solves += self.members
            residuals = data - g
            weighted = np.stack([covariance.inverse(r) for r in residuals])
            mean = 0.5 * float(np.sum(residuals * weighted)) / self.members
            last = step == _LONGEST - 1
            inverse = 1 - reached if last else min(data.size / (2 * mean), 1 - reached)
            numbers = [self.members * (step + 1) + one for one in range(self.members)]
            xi = xi + self._change(xi, g, residuals, covariance, 1 / inverse, stream, numbers)
            reached += inverse
            if reached >= 1:
                break
        return Ensemble(xi.reshape(-1, *shape), solves)

    def _change(
        self, xi: np.ndarray, g: np.ndarray, residuals: np.ndarray, covariance: Covariance,
        alpha: float, stream: NormalStream, numbers: list[int],
    ) -> np.ndarray:  # fmt: skip
        """By the identity of Woodbury, for the covariances have the rank of the ensemble."""
        scale = float(np.sqrt(self.members - 1))
        spread, moved = (g - g.mean(axis=0)) / scale, (xi - xi.mean(axis=0)) / scale
        noise = np.stack([covariance.sampled(stream, number) for number in numbers])
        wanted: np.ndarray = np.reshape(residuals + np.sqrt(alpha) * noise, (self.members, -1))
        weighted: np.ndarray = np.stack([covariance.inverse(y) for y in spread]).reshape(
            wanted.shape
        )
        inner: np.ndarray = weighted @ spread.reshape(wanted.shape).T
        inner[np.diag_indices_from(inner)] += alpha
        inverse: np.ndarray = np.linalg.inv(inner)
        return wanted @ weighted.T @ inverse @ moved
