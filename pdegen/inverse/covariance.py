"""Covariance of the difference between data and prediction, which is noise plus model error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.sampling.gaussian import NormalStream

_DIRECTIONS = 40  # principal directions of a model's errors; the rest counts as independent noise
_FLOOR = 1e-6  # deviation of the rounding to float32, over the root mean square of the data


@dataclass(frozen=True)
class LowRankCovariance:
    """The covariance R = diag(σ²) + Σ_k v_k v_kᵀ."""

    std: Float[np.ndarray, " *data"]  # σ > 0, shape of the data
    directions: Float[np.ndarray, " k *data"]  # v_k

    @cached_property
    def _whitened(self) -> Float[np.ndarray, "k points"]:
        return (self.directions / self.std).reshape(-1, self.std.size)

    @cached_property
    def _core(self) -> Float[np.ndarray, "k k"]:
        return np.linalg.inv(np.eye(len(self._whitened)) + self._whitened @ self._whitened.T)

    def inverse(self, r: Float[np.ndarray, " *data"]) -> Float[np.ndarray, " *data"]:
        """R⁻¹ r, computed with Woodbury's formula.

        >>> covariance = LowRankCovariance(np.ones(3), np.array([[1.0, 1.0, 0.0]]))
        >>> covariance.inverse(np.array([3.0, 3.0, 1.0])).round(12).tolist()
        [1.0, 1.0, 1.0]
        """
        white = (r / self.std).ravel()
        white = white - self._whitened.T @ (self._core @ (self._whitened @ white))
        return white.reshape(r.shape) / self.std

    def sampled(self, stream: NormalStream, number: int) -> Float[np.ndarray, " *data"]:
        """Draw sample `number` of N(0, R) from a stream."""
        size, count = self.std.size, len(self.directions)
        xi = stream.normals_of([number], size + count)[0]
        white = xi[:size].reshape(self.std.shape)
        return self.std * white + np.tensordot(xi[size:], self.directions, axes=1)


@dataclass(frozen=True)
class ModelError:
    """The Gaussian distribution of the model error u - u_model.

    The error of a coarse model depends on the unknown. The approximation error approach treats the
    model error as additional noise, whose distribution is estimated from samples of the prior.
    The error beyond the principal directions is treated as independent at all points.

    References: J. Kaipio and E. Somersalo, Statistical inverse problems: discretization, model
    reduction and inverse crimes, J. Comput. Appl. Math. 198 (2007).
    """

    mean: Float[np.ndarray, " *data"]  # m
    # principal directions v_k; the norm of each is its standard deviation
    directions: Float[np.ndarray, " k *data"]
    remainder: float  # standard deviation, at a point, of the error beyond these directions

    @classmethod
    def from_samples(cls, errors: Float[np.ndarray, " samples *data"]) -> ModelError:
        """Estimate the distribution from samples of the model error."""
        mean, count = errors.mean(axis=0), len(errors)
        _, sizes, rows = np.linalg.svd((errors - mean).reshape(count, -1), full_matrices=False)
        rank = min(_DIRECTIONS, count // 2)
        directions = rows[:rank] * sizes[:rank, None] / np.sqrt(count)
        remainder = float(np.sqrt((sizes[rank:] ** 2).sum() / count / mean.size))
        return cls(mean, directions.reshape(rank, *mean.shape), remainder)

    def with_noise(self, std: Float[np.ndarray, " *data"], size: float) -> LowRankCovariance:
        """The covariance of the sum of model error, independent noise and the rounding to float32.

        Args:
            std: Standard deviation of the independent noise, 0 without noise.
            size: Root mean square of the data, which determines the size of the rounding errors.
        """
        return LowRankCovariance(
            np.sqrt(std**2 + self.remainder**2 + (_FLOOR * size) ** 2), self.directions
        )
