"""Classical inversion methods of Darcy flow whose log coefficient is a Gaussian field."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.inversion import PhaseFlow, PhaseFlowAt
from pdegen.inverse.classical import (
    KNOWN_PRIOR,
    ClassicalMethod,
    Composition,
    Estimate,
    InverseProblem,
    Inversion,
    Observation,
    Sensors,
    Separable,
    half_decades,
    interpolation,
)
from pdegen.inverse.gaussian import GaussianInversion, Prior
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.sampling.noise_law import NoiseLaw

_MODES = 20  # modes along each axis; data of u hold next to no information about higher ones
_ERROR_SAMPLES = 80  # training samples that give the error of the model
_FLOOR = 1e-6  # deviation of the rounding to float32, over the root mean square of the data
_LARGEST = 50.0  # of |log a|, beyond which the equations cannot be solved in float64
_WEIGHTS = half_decades(-1, 3)  # of Tikhonov's penalty

Field = Float[np.ndarray, "n n"]
Unknowns = Float[np.ndarray, " p"]


@dataclass(frozen=True)
class SquareModes:
    """g = Φ(s ∘ ξ)Φᵀ on n x n cells, with the modes Φ along an axis and deviations s.

    The vector of unknowns is ξ in C order.
    """

    basis: Float[np.ndarray, "n m"]  # Φ
    stds: Float[np.ndarray, "m m"]  # s

    @classmethod
    def of_distribution(cls, field: SquareGaussianField, grid: CellGrid) -> SquareModes:
        """The first modes of a Gaussian field. For independent ξ ~ N(0, 1), g has the distribution
        of the field without its higher modes."""
        prior = Prior(replace(field, modes=max(2, min(field.modes, _MODES))), grid)
        return cls(prior.basis, prior.stds)

    @classmethod
    def of_penalty(cls, weight: float, grid: CellGrid) -> SquareModes:
        """Cosines with ½ |ξ|² = ½ weight ∫ (|∇g|² + g²), the constant among them."""
        k = np.pi * np.arange(min(_MODES, grid.n))
        basis = np.sqrt(2) * np.cos(np.outer(grid.x, k))
        basis[:, 0] = 1
        return cls(basis, 1 / np.sqrt(weight * (1 + k[:, None] ** 2 + k**2)))

    def field_of(self, xi: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k n n"]:
        """The field g with the coefficients ξ."""
        square = xi.reshape(*xi.shape[:-1], *self.stds.shape)
        return self.basis @ (self.stds * square) @ self.basis.T

    def transposed(self, v: Field) -> Unknowns:
        """If v is the gradient with respect to g, the gradient with respect to ξ."""
        return (self.stds * (self.basis.T @ v @ self.basis)).ravel()

    def projected(self, g: Float[np.ndarray, "*k n n"]) -> Float[np.ndarray, "*k n n"]:
        """The part of g in the span of the modes, which are orthogonal on the cells.

        Modes of deviation 0 are no part of the span.
        """
        n = len(self.basis)
        coefficients = self.basis.T @ g @ self.basis / n**2
        return self.basis @ np.where(self.stds > 0, coefficients, 0) @ self.basis.T

    @cached_property
    def matrix(self) -> Float[np.ndarray, "n² p"]:
        """The matrix from ξ to the values of g."""
        columns = np.einsum("ip,jq,pq->ijpq", self.basis, self.basis, self.stds)
        return columns.reshape(len(self.basis) ** 2, -1)


@dataclass(frozen=True)
class LogFlow:
    """The map ξ -> H u(m exp(g(ξ))) for -div(a grad u) = f, u = 0 on the walls.

    u is solved by the finite volumes of `PhaseFlow`, whose phases 0 and 1 make its fraction the
    coefficient. H interpolates u linearly to the data.
    """

    modes: SquareModes  # from ξ to g
    median: float  # m > 0
    source: float  # f
    observation: Observation  # H

    @property
    def grid(self) -> CellGrid:
        return CellGrid(len(self.modes.basis))

    def linearise(self, xi: Unknowns) -> LogFlowAt:
        """The data and their derivative. Raises SolveError if the coefficient is too extreme."""
        return LogFlowAt(self, self.modes.field_of(xi))

    def data_of(self, g: Field) -> np.ndarray:
        """The data for a field g."""
        return LogFlowAt(self, g).values


class LogFlowAt:
    """H u at a field g, with its derivative with respect to ξ. Each product takes a solve.

    With a = m exp(g), a change δg changes a by a δg.
    """

    def __init__(self, flow: LogFlow, g: Field) -> None:
        if not np.abs(g).max() < _LARGEST:
            raise SolveError(0, f"|log a| reaches {np.abs(g).max():.3g}")
        self._flow, self.a = flow, flow.median * np.exp(g)
        try:
            self._at = PhaseFlowAt(PhaseFlow(flow.grid, (0.0, 1.0), flow.source), self.a)
        except ArithmeticError as error:
            raise SolveError(0, str(error)) from error
        self.values: np.ndarray = flow.observation(self._at.u).ravel()
        self._shape = flow.observation(self._at.u).shape

    def jvp(self, change: Float[np.ndarray, "*k p"]) -> Float[np.ndarray, "*k m"]:
        """The directional derivative J δξ."""
        if change.ndim > 1:
            return np.stack([self.jvp(row) for row in change])
        of_u = self._at.jvp(self.a * self._flow.modes.field_of(change))
        return self._flow.observation(of_u).ravel()

    def vjp(self, v: Float[np.ndarray, " m"]) -> Unknowns:
        """The product Jᵀ v."""
        of_u = self._flow.observation.transposed(v.reshape(self._shape))
        return self._flow.modes.transposed(self.a * self._at.vjp(of_u))


@dataclass(frozen=True)
class LogInversion:
    """Estimate a = m exp(g(ξ)) from data d = H u(a) + e by minimising

        ½ Σ ((d - μ - G(ξ))/σ)² + ½ |ξ|²,   G(ξ) = H u(m exp(g(ξ))).

    For independent ξ ~ N(0, 1), and modes with the deviations of the distribution of log a, the
    minimiser is the maximum of the posterior density of g. σ² is the sum of the variances of the
    noise, of the model's error and of the rounding, taken as independent at all points. The mean μ
    and the variance of the model's error come from training samples. The steps are those of
    `GaussianInversion`, whose derivatives are one tangent or one adjoint solve each.

    The deviation of a is a √v, to first order, where v is the variance of g at a point under the
    linearised posterior (Laplace's approximation). Modes that the model leaves out have the
    variance of the prior.

    References: A. Stuart, Inverse problems: a Bayesian perspective, Acta Numerica 19 (2010),
    sections 2.4 and 3.2; T. Bui-Thanh et al., SIAM J. Sci. Comput. 35 (2013), section 5.
    """

    flow: LogFlow  # G
    mean: np.ndarray  # μ, shape of the data
    variance: float  # of the model's error
    # variance of g from modes that are left out; None if no deviation is stated
    omitted: Field | None = None

    @classmethod
    def of_samples(
        cls, flow: LogFlow, a: np.ndarray, observed: np.ndarray, omitted: Field | None = None
    ) -> LogInversion:
        """The inversion whose model's error is estimated from samples with known data."""
        if not len(a):
            return cls(flow, np.zeros(observed.shape[1:]), 0.0, omitted)
        g = flow.modes.projected(np.log(a[:_ERROR_SAMPLES] / flow.median))
        modelled = np.stack([flow.data_of(field) for field in g])
        errors = observed[:_ERROR_SAMPLES].reshape(len(modelled), -1) - modelled
        mean = errors.mean(axis=0)
        variance = float(np.square(errors - mean).mean())
        return cls(flow, mean, variance, omitted)

    def __call__(self, data: np.ndarray, noise: NoiseLaw | np.ndarray) -> Estimate:
        """The estimate for one sample, from data and the law of their noise, or the deviation of
        independent Gaussian noise."""
        law, mean = NoiseLaw.of(noise).raveled(), self.mean.ravel()
        d = data.ravel() - (mean if law.observation is None else law.observation(mean))
        law = law.plus(self.variance, _FLOOR**2 * float(np.mean(d**2)))
        inversion = GaussianInversion(self.flow, limit=60, rtol=1e-2)
        estimate = inversion(d, law, np.zeros(self.flow.modes.stds.size))
        a = self.flow.median * np.exp(self.flow.modes.field_of(estimate.coefficients))
        if self.omitted is None:
            return Estimate(a, estimate.solves, estimate.iterations, estimate.converged)
        matrix = self.flow.modes.matrix
        variance = np.sum((matrix @ estimate.covariance) * matrix, axis=1).reshape(a.shape)
        solves = estimate.solves + estimate.coefficients.size  # tangents of the covariance
        std = a * np.sqrt(variance + self.omitted)
        return Estimate(a, solves, estimate.iterations, estimate.converged, std)


def log_inversions(
    setting: InverseProblem, field: SquareGaussianField, median: float, source: float
) -> dict[str, ClassicalMethod]:
    """A dictionary from names to the inversion methods of log-normal Darcy flow, a = median exp(g).

    Args:
        setting: The inverse problem.
        field: Distribution of g.
        median: The median of a.
        source: The source f.
    """
    grid = CellGrid(setting.cells)
    matrix = interpolation(grid, setting.x)
    observation: Observation = Separable(matrix, matrix)
    observed = setting.u
    if setting.sensors is not None:
        observation = Composition(observation, Sensors(setting.sensors))
        observed = observed[:, setting.sensors]

    def largest_density(_: float) -> Inversion:
        modes = SquareModes.of_distribution(field, grid)
        flow = LogFlow(modes, median, source, observation)
        variance = (modes.basis**2) @ modes.stds**2 @ (modes.basis**2).T
        omitted = np.maximum(Prior(field, grid).std ** 2 - variance, 0)
        return LogInversion.of_samples(flow, setting.a, observed, omitted)

    def tikhonov(weight: float) -> Inversion:
        modes = SquareModes.of_penalty(weight, grid)
        middle = float(np.exp(np.log(setting.a).mean())) if len(setting.a) else 1.0
        flow = LogFlow(modes, middle, source, observation)
        return LogInversion.of_samples(flow, setting.a, observed)

    return {
        "maximum a posteriori": ClassicalMethod(
            KNOWN_PRIOR,
            (1.0,),
            largest_density,
            knows_law=True,
        ),
        "Tikhonov": ClassicalMethod(
            "for coefficients of unknown distribution: it penalises log a and its gradient",
            _WEIGHTS,
            tikhonov,
        ),
    }
