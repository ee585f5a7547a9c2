"""Inversion of Poisson's equation: the source from noisy values of the solution at sensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from pdegen.equations.poisson.solver import Fields, SineSolver
from pdegen.inverse.classical import (
    ClassicalMethod,
    Estimate,
    InverseProblem,
    Inversion,
    half_decades,
)
from pdegen.inverse.gaussian import LinearPosterior
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField
from pdegen.sampling.noise import hashed
from pdegen.sampling.noise_law import NoiseLaw
from pdegen.schema import SchemaError

MEMBERS = 39  # draws that the exact posterior states: a function of the data
_MOST = 2000  # data: their covariance is a dense matrix
_FLOOR = 1e-6  # deviation of the noise of exact data, over the root mean square of all data
_WEIGHTS = half_decades(-4, 1)  # of Tikhonov's method


@dataclass(frozen=True)
class SourcePrior:
    """The distribution of f = Φ(s ∘ ξ)Φᵀ at n x n nodes, with independent ξ_pq ~ N(0, 1).

    Raises ValueError if the numbers of modes differ.
    """

    basis: Float[np.ndarray, "n M"]  # Φ: values of the modes at the nodes of an axis
    stds: Float[np.ndarray, "M M"]  # s
    zero_edges: bool = False  # whether f is set to 0 at the nodes on the walls

    def __post_init__(self) -> None:
        if self.stds.shape != (self.basis.shape[1],) * 2:
            raise ValueError(f"{self.basis.shape[1]} modes, got deviations {self.stds.shape}")

    def field_of(self, xi: Float[np.ndarray, "*batch M M"]) -> Fields:
        """The source for coefficients ξ."""
        return self._masked(self.basis @ (self.stds * xi) @ self.basis.T)

    def draws(self, seed: int, samples: Sequence[int]) -> Fields:
        """Sources whose coefficients are the random stream of (seed, sample)."""
        modes = len(self.stds)
        xi = NormalStream(seed).normals_of(samples, modes**2).reshape(-1, modes, modes)
        return self.field_of(xi)

    def times(self, v: Fields) -> Fields:
        """C v for the covariance C of f."""
        hat = self.basis.T @ self._masked(v) @ self.basis
        return self._masked(self.basis @ (self.stds**2 * hat) @ self.basis.T)

    @cached_property
    def variance(self) -> Float[np.ndarray, "n n"]:
        """The variance of f at each node."""
        squares = self.basis**2
        return self._masked(squares @ self.stds**2 @ squares.T)

    def covariance(self, at: np.ndarray) -> Float[np.ndarray, "m m m m"]:
        """The covariance of f at the nodes (at[i], at[j]) and (at[k], at[l]), indexed [i, j, k, l].

        The nodes on the walls are those of the field, also if f is set to 0 there.
        """
        m, basis = len(at), self.basis[at]
        pairs = (basis[:, None] * basis).reshape(m * m, -1)
        along = (pairs @ self.stds**2 @ pairs.T).reshape(m, m, m, m)  # [i, k, j, l]
        return along.transpose(0, 2, 1, 3)

    def _masked(self, f: Fields) -> Fields:
        if not self.zero_edges:
            return f
        inside = np.zeros(f.shape)
        inside[..., 1:-1, 1:-1] = f[..., 1:-1, 1:-1]
        return inside


@dataclass(frozen=True)
class SourceInversion:
    """The source given data of u at sensors, with a Gaussian prior.

    All samples with the same noise share one factorisation.
    """

    prior: SourcePrior
    solver: SineSolver  # the map A from the source to u
    sensors: Bool[np.ndarray, "n n"]  # True at the nodes with data
    every: slice  # nodes along each axis at which the source is estimated

    @cached_property
    def cross(self) -> Float[np.ndarray, "m n n"]:
        """The covariance of the data without noise and the source."""
        unit = np.zeros((int(self.sensors.sum()), *self.sensors.shape))
        unit[np.arange(len(unit)), *np.nonzero(self.sensors)] = 1
        return self.prior.times(self.solver.transposed(unit))

    @cached_property
    def covariance(self) -> Float[np.ndarray, "m m"]:
        """The covariance of the data without noise."""
        covariance = self.solver(self.cross)[:, self.sensors]
        return (covariance + covariance.T) / 2

    @cached_property
    def _posteriors(self) -> dict[bytes, LinearPosterior]:
        return {}

    def posterior(self, std: np.ndarray, weight: float = 1.0) -> LinearPosterior:
        """The posterior for noise of deviation σ and the covariance C/weight of the source.

        Data without noise have 1e-12 of their mean variance under the prior as the variance of
        noise.
        """
        key = std.tobytes() + np.float64(weight).tobytes()
        if key not in self._posteriors:
            self._posteriors.clear()
            floor = _FLOOR**2 * float(np.trace(self.covariance)) / len(self.covariance)
            self._posteriors[key] = LinearPosterior(
                self.cross[:, self.every, self.every] / weight,
                self.covariance / weight,
                self.prior.variance[self.every, self.every] / weight,
                np.sqrt(std.ravel() ** 2 + floor),
            )
        return self._posteriors[key]

    def draws(
        self, data: Float[np.ndarray, " m"], std: Float[np.ndarray, " m"], seed: int, members: int
    ) -> Float[np.ndarray, " members *cells"]:
        """Draws of the posterior for data d; member k is a function of (seed, k)."""
        posterior, numbers = self.posterior(std), range(members)
        f = self.prior.draws(hashed(seed, "source", 0), numbers)
        e = NormalStream(hashed(seed, "noise of data", 0)).normals_of(numbers, data.size)
        noisy = self.solver(f)[:, self.sensors] + posterior.std * e
        return posterior.draws(data.ravel(), f[:, self.every, self.every], noisy)


def strided(n: int, points: int) -> slice:
    """The slice that takes this number of equally spaced nodes of n, both ends included.

    >>> strided(33, 17)
    slice(None, None, 2)
    """
    if points < 2 or (n - 1) % (points - 1):
        raise SchemaError(
            f"poisson inverts data at nodes of {n}, both walls included, got {points}"
        )
    return slice(None, None, (n - 1) // (points - 1))


def inversions(
    setting: InverseProblem, prior: SourcePrior, solver: SineSolver
) -> dict[str, ClassicalMethod]:
    """A dictionary from names to the methods that estimate the source.

    Args:
        setting: The inverse problem.
        prior: Distribution of the source.
        solver: The map from the source to the solution.
    """
    n = solver.n
    every, points = strided(n, setting.cells), strided(n, len(setting.x))
    sensors = np.zeros((n, n), bool)
    sensors[points, points] = True if setting.sensors is None else setting.sensors
    if len(setting.a) and (count := int(sensors.sum())) > _MOST:
        raise SchemaError(
            f"poisson inverts data of at most {_MOST:,} sensors, got {count:,} points: "
            'use the noise kind "sensors"'
        )

    def with_prior(prior: SourcePrior, known: bool) -> Callable[[float], Inversion]:
        inversion = SourceInversion(prior, solver, sensors, every)

        def with_weight(weight: float) -> Inversion:
            def estimate(data: np.ndarray, noise: NoiseLaw | np.ndarray) -> Estimate:
                law = NoiseLaw.of(noise)
                if law.observation or law.directions is not None or not law.is_fixed:
                    raise SchemaError(
                        "poisson inverts data with independent Gaussian noise: use the noise kind "
                        '"ensemble" or "sensors", or --method none'
                    )
                posterior = inversion.posterior(law.std, weight)
                a = posterior.mean(data.ravel())
                if not known:
                    return Estimate(a, 1, 0, True)
                digest = hashlib.sha256(np.asarray(data, float).tobytes()).digest()
                seed = int.from_bytes(digest[:8], "little")
                draws = inversion.draws(data, law.std, seed, MEMBERS)
                return Estimate(a, 1 + MEMBERS, 0, True, posterior.deviation, draws)

            return estimate

        return with_weight

    return {
        "exact posterior": ClassicalMethod(
            "the exact answer to independent Gaussian noise: no method has a smaller mean square "
            "error; states its uncertainty",
            (1.0,),
            with_prior(prior, known=True),
            knows_law=True,
        ),
        "Tikhonov": ClassicalMethod(
            "for sources of unknown distribution",
            _WEIGHTS,
            with_prior(_smooth(n, setting.a), known=False),
        ),
    }


def _smooth(n: int, a: Float[np.ndarray, "samples m m"]) -> SourcePrior:
    """The prior of Tikhonov's method, ½ ∫ ((1 - Δ)f)² up to a factor, with the size of known a."""
    field = SquareGaussianField("neumann", 1.0, 1.0, 2.0, modes=n)
    stds = field.mode_stds.copy()
    stds[0, 0] = 1.0  # the mean
    prior = SourcePrior(field.modes_at(np.linspace(0, 1, n)), stds)
    size = np.sqrt(np.mean(a**2) / prior.variance.mean()) if a.size else 1.0
    return replace(prior, stds=size * stds)
