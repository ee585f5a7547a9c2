"""How far data may be from what a model says: noise, and the model's own error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream

_DIRECTIONS = 40  # of the errors of a model; what is beyond them counts as independent noise
_FLOOR = 1e-6  # of the mean size of the data: float32, in which they are stored


@dataclass(frozen=True)
class LowRankCovariance:
    """R = diag(σ²) + Σ_k v_k v_kᵀ."""

    deviation: Float[np.ndarray, " *data"]  # σ > 0, shape of the data
    directions: Float[np.ndarray, " k *data"]  # v_k

    @cached_property
    def _whitened(self) -> Float[np.ndarray, "k points"]:
        return (self.directions / self.deviation).reshape(-1, self.deviation.size)

    @cached_property
    def _core(self) -> Float[np.ndarray, "k k"]:
        return np.linalg.inv(np.eye(len(self._whitened)) + self._whitened @ self._whitened.T)

    def inverse(self, r: Float[np.ndarray, " *data"]) -> Float[np.ndarray, " *data"]:
        """R⁻¹ r, by the formula of Woodbury.

        >>> covariance = Covariance(np.ones(3), np.array([[1.0, 1.0, 0.0]]))
        >>> covariance.inverse(np.array([3.0, 3.0, 1.0])).round(12).tolist()
        [1.0, 1.0, 1.0]
        """
        white = (r / self.deviation).ravel()
        white = white - self._whitened.T @ (self._core @ (self._whitened @ white))
        return white.reshape(r.shape) / self.deviation

    def sampled(self, stream: NormalStream, number: int) -> Float[np.ndarray, " *data"]:
        """The sample of N(0, R) with this number."""
        size, count = self.deviation.size, len(self.directions)
        xi = stream.normals_of([number], size + count)[0]
        white = xi[:size].reshape(self.deviation.shape)
        return self.deviation * white + np.tensordot(xi[size:], self.directions, axes=1)


@dataclass(frozen=True)
class ModelError:
    """The law of u - u_model: its mean, main directions and the rest, from samples.

    In place of the error that a coarse model makes at an unknown, its law over the prior is taken,
    as if the error were noise (the approximation error approach).

    References: J. Kaipio and E. Somersalo, Statistical inverse problems: discretization, model
    reduction and inverse crimes, J. Comput. Appl. Math. 198 (2007).
    """

    mean: Float[np.ndarray, " *data"]  # mean
    # principal directions v_k, each as large as its deviation
    directions: Float[np.ndarray, " k *data"]
    rest: float  # deviation at a point of what they leave

    @classmethod
    def from_samples(cls, errors: Float[np.ndarray, " samples *data"]) -> ModelError:
        """From samples of it."""
        mean, count = errors.mean(axis=0), len(errors)
        _, sizes, rows = np.linalg.svd((errors - mean).reshape(count, -1), full_matrices=False)
        kept = min(_DIRECTIONS, count // 2)
        directions = rows[:kept] * sizes[:kept, None] / np.sqrt(count)
        rest = float(np.sqrt((sizes[kept:] ** 2).sum() / count / mean.size))
        return cls(mean, directions.reshape(kept, *mean.shape), rest)

    def with_noise(self, deviation: Float[np.ndarray, " *data"], size: float) -> LowRankCovariance:
        """The covariance of data of this size with independent noise, 0 where there is none."""
        return LowRankCovariance(
            np.sqrt(deviation**2 + self.rest**2 + (_FLOOR * size) ** 2), self.directions
        )
