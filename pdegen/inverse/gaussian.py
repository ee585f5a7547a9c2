"""Inverse problems with a Gaussian prior: the maximum a posteriori estimate and its covariance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float

from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.inverse.tikhonov import newton_step
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import NormalStream, SquareGaussianField
from pdegen.sampling.noise_law import Filter, NoiseLaw

# Covariance of the difference between data and prediction, which is noise plus model error.


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

    def with_noise(
        self,
        noise: NoiseLaw | Float[np.ndarray, " *data"],
        size: float,
        predicted: Float[np.ndarray, " *data"] | None = None,
        residual: Float[np.ndarray, " *data"] | None = None,
    ) -> LowRankCovariance:
        """The covariance of the sum of model error, noise and the rounding to float32.

        Args:
            noise: Law of the noise, or the deviation of independent noise, 0 without noise.
            size: Root mean square of the data, which determines the size of the rounding errors.
            predicted, residual: Prediction and residual, on which the variance may depend.
        """
        law, directions = NoiseLaw.of(noise), self.directions
        if law.directions is not None:
            directions = np.concatenate([directions, law.directions])
        variance = self.added_to(law, size).variance(predicted, residual)
        return LowRankCovariance(np.sqrt(variance), directions)

    def added_to(self, law: NoiseLaw, size: float) -> NoiseLaw:
        """The law of noise, of the errors beyond the directions and of the rounding."""
        return law.plus(self.remainder**2, (_FLOOR * size) ** 2)

    def observed(self, by: Filter) -> ModelError:
        """The distribution of the error K (u - u_model)."""
        return replace(self, mean=by(self.mean), directions=by(self.directions))


# A Gaussian field as a prior. Its unknown coefficients are independent N(0, 1) variables.


Coefficients = Float[np.ndarray, "m m"]


@dataclass(frozen=True)
class Prior:
    """The Gaussian field g = Φ(s ∘ ξ)Φᵀ on cells, with independent ξ_pq ~ N(0, 1).

    The columns of Φ are the modes of `field` along one axis, s_pq are the standard deviations of
    the products of modes, and ∘ is the elementwise product. Modes that the cells do not resolve
    are left out.

    >>> prior = Prior(SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=8), CellGrid(16))
    >>> prior.field_of(prior.zero).shape, prior.zero.shape
    ((16, 16), (8, 8))
    """

    field: SquareGaussianField  # the distribution; s are the deviations of its modes
    grid: CellGrid  # the cells of g; modes that they do not resolve are left out

    @cached_property
    def basis(self) -> Float[np.ndarray, "n m"]:
        """The matrix Φ, whose columns are the modes along an axis."""
        return np.ascontiguousarray(self.field.basis(self.grid)[:, : self.grid.n])

    @cached_property
    def stds(self) -> Coefficients:
        """The standard deviations s of the modes."""
        modes = self.basis.shape[1]
        return self.field.mode_stds[:modes, :modes]

    @property
    def zero(self) -> Coefficients:
        """The coefficients of the mean field g = 0."""
        return np.zeros_like(self.stds)

    @cached_property
    def std(self) -> Float[np.ndarray, "n n"]:
        """The standard deviation of g in each cell."""
        squares = self.basis**2
        return np.sqrt(squares @ self.stds**2 @ squares.T)

    def field_of(self, xi: Float[np.ndarray, "*batch m m"]) -> Float[np.ndarray, "*batch n n"]:
        """The field g with the coefficients ξ."""
        return self.basis @ (self.stds * xi) @ self.basis.T

    def transposed(self, v: Float[np.ndarray, "n n"]) -> Coefficients:
        """s ∘ Φᵀ v Φ. If v is the gradient with respect to g, this is the one with respect to ξ."""
        return self.stds * (self.basis.T @ v @ self.basis)

    def transferred(self, xi: Float[np.ndarray, "k k"]) -> Coefficients:
        """Transfer coefficients from another grid to this one.

        Common modes keep their coefficients; all other coefficients are 0.
        """
        coefficients, common = self.zero, min(len(xi), len(self.zero))
        coefficients[:common, :common] = xi[:common, :common]
        return coefficients

    def nearest(self, g: Float[np.ndarray, "k k"], std: float) -> Coefficients:
        """The most likely coefficients, given values of g on k x k cells with independent errors.

        The modes are orthogonal on cells, so the coefficients decouple:
        (1 + k² s²/σ²) ξ = s Φᵀ g Φ/σ², where σ is the standard deviation of the errors.
        """
        basis = self.field.basis(CellGrid(len(g)))[:, : len(g)]
        s = self.field.mode_stds[: basis.shape[1], : basis.shape[1]]
        precision = (len(g) / std) ** 2
        return self.transferred(s * (basis.T @ g @ basis) / std**2 / (1 + precision * s**2))


# The exact posterior of a linear map.


@dataclass(frozen=True)
class LinearPosterior:
    """The distribution of f, given data d = A f + e, for f ~ N(0, C) and e ~ N(0, diag σ²).

    With K = A C Aᵀ + diag σ², it is Gaussian with the mean C Aᵀ K⁻¹ d and the covariance
    C - C Aᵀ K⁻¹ A C. If f' ~ N(0, C) and e' ~ N(0, diag σ²) are independent, then
    f' + C Aᵀ K⁻¹ (d - A f' - e') has this distribution (Matheron's rule).

    Raises:
        ValueError: If σ is not positive.
        LinAlgError: If σ is so small that rounding makes K singular.

    References: J. Wilson et al., Pathwise conditioning of Gaussian processes, JMLR 22 (2021),
    section 3.

    >>> half = LinearPosterior(np.eye(2), np.eye(2), np.ones(2), std=np.ones(2))
    >>> half.mean(np.array([2.0, 4.0])).round(12).tolist(), (half.deviation**2).round(12).tolist()
    ([1.0, 2.0], [0.5, 0.5])
    """

    cross: Float[np.ndarray, " m *cells"]  # A C, the covariance of A f and f
    covariance: Float[np.ndarray, "m m"]  # A C Aᵀ
    variance: Float[np.ndarray, " *cells"]  # of f at each point
    std: Float[np.ndarray, " m"]  # σ > 0

    def __post_init__(self) -> None:
        if not np.min(self.std) > 0:
            raise ValueError("the deviation of the noise must be positive")

    @cached_property
    def _factor(self) -> Float[np.ndarray, "m m"]:
        """The lower factor L of K = L Lᵀ."""
        return np.linalg.cholesky(self.covariance + np.diag(self.std**2))

    def mean(self, d: Float[np.ndarray, "*batch m"]) -> Float[np.ndarray, "*batch *cells"]:
        """The posterior mean for data d."""
        weights = scipy.linalg.cho_solve((self._factor, True), d.reshape(-1, d.shape[-1]).T)
        mean = weights.T @ self.cross.reshape(len(self.cross), -1)
        return mean.reshape(*d.shape[:-1], *self.variance.shape)

    @cached_property
    def deviation(self) -> Float[np.ndarray, " *cells"]:
        """The posterior standard deviation of f at each point, the same for all data."""
        rows = self.cross.reshape(len(self.cross), -1)
        explained = scipy.linalg.solve_triangular(self._factor, rows, lower=True)
        variance = self.variance - np.sum(explained**2, axis=0).reshape(self.variance.shape)
        return np.sqrt(np.maximum(variance, 0.0))

    def draws(
        self,
        d: Float[np.ndarray, " m"],
        f: Float[np.ndarray, " members *cells"],
        noisy: Float[np.ndarray, "members m"],
    ) -> Float[np.ndarray, " members *cells"]:
        """Draws of the posterior for data d.

        Args:
            d: The data.
            f: Independent draws f' of N(0, C).
            noisy: Their data A f' + e' with independent noise.
        """
        return f + self.mean(d - noisy)


Unknowns = Float[np.ndarray, " p"]
Data = Float[np.ndarray, " m"]

_CONVERGED = 1e-6  # smallest increase of the log density that a further step is worth
_SHORTEST = 1e-3  # smallest step length of the line search


class LinearisedMap(Protocol):
    """The map G and its derivative J at a point ξ."""

    @property
    def values(self) -> Data:
        """G(ξ)."""
        ...

    def jvp(self, change: Float[np.ndarray, "*k p"], /) -> Float[np.ndarray, "*k m"]:
        """The directional derivative J δξ."""
        ...

    def vjp(self, v: Data, /) -> Unknowns:
        """The product Jᵀ v with the transposed derivative."""
        ...


class SmoothMap(Protocol):
    """The map G from unknowns ξ to data.

    Raises SolveError if the equation cannot be solved for the given ξ.
    """

    def linearise(self, xi: Unknowns, /) -> LinearisedMap: ...


@dataclass(frozen=True)
class GaussianEstimate:
    """Laplace's approximation of a posterior: a Gaussian centred at the posterior's maximum."""

    coefficients: Unknowns  # ξ
    linearised: LinearisedMap  # G at ξ
    data: Data  # d
    std: Data  # σ
    solves: int  # number of solves, those of tangent and adjoint equations included
    iterations: int = 0  # number of steps
    # whether a further step is worth less than the tolerance; if not, the steps ended at their
    # limit, or because no step length increased the density
    converged: bool = False

    @property
    def misfit(self) -> float:
        """|(d - G(ξ))/σ|²/m for m data. The value is near 1 if σ is the deviation of the noise."""
        return float(np.mean(((self.data - self.linearised.values) / self.std) ** 2))

    @property
    def density(self) -> float:
        """The logarithm of the posterior density of ξ, up to a constant."""
        return -0.5 * (self.misfit * self.data.size + float(self.coefficients @ self.coefficients))

    @cached_property
    def precision(self) -> Float[np.ndarray, "p p"]:
        """1 + Jᵀ σ⁻² J, the inverse of the posterior covariance."""
        columns = self.linearised.jvp(np.eye(self.coefficients.size)) / self.std
        return np.eye(self.coefficients.size) + columns @ columns.T

    @cached_property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """The posterior covariance of ξ."""
        return np.linalg.inv(self.precision)


@dataclass(frozen=True)
class ObservedMap:
    """The map K G, whose derivative is K J."""

    forward: SmoothMap  # G
    by: Filter  # K

    def linearise(self, xi: Unknowns) -> LinearisedObservation:
        return LinearisedObservation(self.forward.linearise(xi), self.by)


@dataclass(frozen=True)
class LinearisedObservation:
    """The map K G and its derivative at a point."""

    at: LinearisedMap
    by: Filter

    @property
    def values(self) -> Data:
        return self.by(self.at.values)

    def jvp(self, change: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k m"]:
        return self.by(self.at.jvp(change))

    def vjp(self, v: Data) -> Unknowns:
        return self.at.vjp(self.by.transposed(v))


@dataclass(frozen=True)
class GaussianInversion:
    """Minimise ½ |(d - G(ξ))/σ|² + ½ |ξ|² over ξ by Gauss-Newton steps.

    The minimiser is the maximum a posteriori estimate for the data d = G(ξ) + e, e ~ N(0, diag σ²),
    and the prior ξ ~ N(0, 1). If the law of the noise is not Gaussian, σ is renewed before each
    step; correlation of the noise is ignored. Each step is halved until the objective decreases.
    If G is linear, Laplace's approximation is the exact posterior. If G is nonlinear and the noise
    is small, the minimum lies in a narrow valley. The method therefore begins with a deviation
    larger than σ, and decreases it to σ.

    References: T. Bui-Thanh et al., A computational framework for infinite-dimensional Bayesian
    inverse problems I, SIAM J. Sci. Comput. 35 (2013), section 5.
    """

    forward: SmoothMap  # G
    # deviations that are added to σ, one after another, over the root mean square of the data;
    # those below σ are left out
    added_noise: tuple[float, ...] = (0.1, 1e-2, 1e-3, 1e-4)
    steps: int = 300  # largest number of steps for each of these deviations
    limit: int = 200  # largest number of iterations for the linear system of a step
    rtol: float = 1e-4  # relative tolerance of the linear systems

    def __call__(self, data: Data, noise: NoiseLaw | Data, start: Unknowns) -> GaussianEstimate:
        """Estimate ξ for one sample from data d, starting at `start`. The noise is given by its law
        or, for independent Gaussian noise, by its deviation σ.

        Raises ValueError if a deviation is not positive, and SolveError if G cannot be solved at
        the start.
        """
        law = NoiseLaw.of(noise)
        if law.observation is not None:
            return replace(self, forward=ObservedMap(self.forward, law.observation))(
                data, replace(law, observation=None), start
            )
        law = law.independent
        if not bool(np.all(law.std > 0)):
            raise ValueError("the deviation of the noise must be positive")
        size, mean = float(np.sqrt(np.mean(data**2))), float(np.mean(law.std))
        linearised, solves = self.forward.linearise(start), 1
        estimate = GaussianEstimate(start, linearised, data, law.std, solves)
        for share in (*(s for s in self.added_noise if s * size > mean), 0.0):
            estimate = self._maximised(
                replace(estimate, converged=False), law.plus((share * size) ** 2)
            )
        return estimate

    def _maximised(self, estimate: GaussianEstimate, law: NoiseLaw) -> GaussianEstimate:
        """Maximise the posterior density for a law of the noise, starting at an estimate."""
        for _ in range(self.steps):
            xi, at = estimate.coefficients, estimate.linearised
            sigma = np.sqrt(law.variance(at.values, estimate.data - at.values))
            estimate = replace(estimate, std=sigma)
            used = 0  # solves of this step

            def hessian(v: np.ndarray, at: LinearisedMap = at, s: Data = sigma) -> np.ndarray:
                nonlocal used
                used += 2
                return v + at.vjp(at.jvp(v) / s**2)

            downhill = at.vjp((estimate.data - at.values) / sigma**2) - xi
            step = newton_step(hessian, downhill, self.limit, self.rtol)
            estimate = replace(estimate, solves=estimate.solves + used + 1)
            if float(step @ downhill) < _CONVERGED:
                return replace(estimate, converged=True)
            estimate = self._line_search(estimate, step)
            if estimate.coefficients is xi:
                break
            estimate = replace(estimate, iterations=estimate.iterations + 1)
        return estimate

    def _line_search(self, estimate: GaussianEstimate, step: Unknowns) -> GaussianEstimate:
        """Halve the step until the density increases, and return the new estimate."""
        length, solves = 1.0, estimate.solves
        while length >= _SHORTEST:
            xi, solves = estimate.coefficients + length * step, solves + 1
            try:
                linearised = self.forward.linearise(xi)
            except SolveError:  # the step is too long
                length /= 2
                continue
            moved = replace(estimate, coefficients=xi, linearised=linearised)
            if moved.density > estimate.density:
                return replace(moved, solves=solves)
            length /= 2
        return replace(estimate, solves=solves)


@dataclass(frozen=True)
class CircleModes:
    """u(x) = Σ_k s_k (ξ_k cos 2πkx + ζ_k sin 2πkx), k = 1 ... K, on the circle of length 1.

    If ξ_k, ζ_k ~ N(0, 1), u is a Gaussian field of mean zero. It has the same distribution as a
    `pdegen.sampling.gaussian.PeriodicGaussianField` with the same deviations. The vector of
    coefficients is (ξ₁, ζ₁, ξ₂, ζ₂, ...).

    >>> modes = CircleModes(np.array([1.0, 0.5]), PeriodicGrid(8))
    >>> modes.field_of(np.array([0.0, 1.0, 0.0, 0.0])).round(3).tolist()
    [0.0, 0.707, 1.0, 0.707, 0.0, -0.707, -1.0, -0.707]
    """

    stds: Float[np.ndarray, " K"]  # s_k
    grid: PeriodicGrid  # points; K < n/2

    def __post_init__(self) -> None:
        if 2 * len(self.stds) >= self.grid.n or self.grid.length != 1:
            raise ValueError(
                f"{len(self.stds)} modes need the circle of length 1 and more than "
                f"{2 * len(self.stds)} points, got {self.grid}"
            )

    @cached_property
    def basis(self) -> Float[np.ndarray, "n p"]:
        """The matrix Φ that maps coefficients to values of u at the grid points."""
        angles = 2 * np.pi * np.outer(self.grid.x, np.arange(1, len(self.stds) + 1))
        both = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * self.stds[:, None]
        return both.reshape(self.grid.n, -1)

    def field_of(self, xi: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k n"]:
        """Values of u at the grid points."""
        u: np.ndarray = xi @ self.basis.T
        return u

    def transposed(self, v: Float[np.ndarray, " n"]) -> Unknowns:
        """Φᵀ v. If v is a gradient with respect to u, this is the one with respect to ξ and ζ."""
        return v @ self.basis
