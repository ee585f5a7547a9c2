"""The classical inversion methods of two-phase Darcy flow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.phase_flow import PhaseFlow
from pdegen.equations.darcy.total_variation import Tikhonov, TotalVariation
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
    averages,
    half_decades,
    interpolation,
)
from pdegen.inverse.gaussian import ModelError, Prior
from pdegen.inverse.phases import GridModel, LevelSet, PhaseEstimate, PhaseInversion
from pdegen.sampling.gaussian import SquareGaussianField

# Widths of the steps, chosen by trials on 43 x 43 and 85 x 85 points; coarse cells cost little
_FIRST, _SECOND, _THIRD = (1.0, 0.7, 0.5, 0.35, 0.25), (0.25, 0.2), (0.15, 0.1, 0.07)
_LAST = (0.12, 0.08, 0.05, 0.04)
_EXTRA_STEPS = 200  # largest number of further steps on the finest cells
_FEWEST, _MANY = 15, 40  # cells along an axis: of the coarsest grid, and of one with narrow steps
_FLOOR = 1e-3  # smallest deviation of the noise in total variation, relative to that of u
_DIFFERENCE = np.array([1.0, -2.0, 1.0])
_MEDIAN = 0.6744897501960817  # median of |ξ|, ξ ~ N(0, 1)
_ERROR_SAMPLES = 160  # training samples that give the error of each model


def inversions(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> dict[str, ClassicalMethod]:
    """A dictionary from names to the inversion methods of two-phase Darcy flow.

    Arguments are those of `grid_models`.
    """
    problem = _TwoPhases(setting, field, phases, source)
    methods = {
        "total variation": ClassicalMethod(
            "the usual baseline, which knows the two values of the coefficient but no distribution",
            half_decades(-3, 1),
            partial(problem.penalised, TotalVariation),
            model_error=problem.model_error,
        ),
        "Tikhonov": ClassicalMethod(
            "the plainest baseline, and the usual one for coefficients without jumps",
            half_decades(-4, 0),
            partial(problem.penalised, Tikhonov),
            model_error=problem.model_error,
        ),
        "level set": ClassicalMethod(
            "the best one if the distribution of the coefficient is unknown",
            half_decades(-2, 0),
            problem.moved,
            model_error=problem.model_error,
        ),
        "maximum a posteriori": ClassicalMethod(
            KNOWN_PRIOR,
            half_decades(-2, 1),
            problem.largest_density,
            problem.corrected,
            problem.model_error,
        ),
        "maximum a posteriori, level estimated": ClassicalMethod(
            "the same if the noise level is not known, which the data then tell",
            half_decades(-2, 1),
            problem.level_estimated,
            model_error=problem.model_error,
            takes_level=False,
        ),
    }
    if setting.sensors is not None:  # the estimate of the level needs neighbouring points
        del methods["maximum a posteriori, level estimated"]
    return methods


@dataclass(frozen=True)
class _TwoPhases:
    """The inversion methods for one inverse problem. Arguments are those of `grid_models`."""

    setting: InverseProblem
    field: SquareGaussianField
    phases: tuple[float, float]
    source: float

    @cached_property
    def models(self) -> tuple[GridModel, ...]:
        return grid_models(self.setting, self.field, self.phases, self.source)

    def penalised(self, by: type[TotalVariation], weight: float) -> Inversion:
        setting = self.setting
        method = by(
            CellGrid(setting.cells),
            setting.x,
            self.phases,
            weight,
            source=self.source,
            sensors=setting.sensors,
        )
        # the deviation is 0 for clean data, and small near walls
        floor = _FLOOR * float(np.linalg.norm(np.std(setting.u, axis=0))) / len(setting.x)
        return lambda data, std: method.estimate(data, std + floor)

    def moved(self, smoothing: float) -> Inversion:
        method = LevelSet(self.models, smoothing)

        def inversion(data: np.ndarray, std: np.ndarray) -> Estimate:
            shape = method(data, std)
            status = shape.solves, shape.steps, shape.converged
            return Estimate(self.coefficient(shape.fraction), *status)

        return inversion

    def largest_density(self, weight: float) -> Inversion:
        method = PhaseInversion(self.models, weight)
        return lambda data, std: self.stated(method(data, std))

    def level_estimated(self, weight: float) -> Inversion:
        spread, method = self.setting.u.std(axis=0), self.largest_density(weight)
        return lambda data, _: method(data, noise_level(data, spread) * spread)

    def corrected(self, data: np.ndarray, std: np.ndarray, a: np.ndarray) -> Estimate:
        method, (low, high) = PhaseInversion(self.models), self.phases
        return self.stated(method(data, std, method.start((a - low) / (high - low))))

    def model_error(self) -> float:
        """Root mean square of the finest model's error, relative to the deviation of the data."""
        error = self.models[-1].error
        variance: np.ndarray = np.sum(error.directions**2, axis=0)
        squares = error.mean**2 + variance + error.remainder**2
        std: np.ndarray = self.setting.u.std(axis=0)
        return (float(np.mean(squares)) / float(np.mean(std**2))) ** 0.5

    def coefficient(self, p: np.ndarray) -> np.ndarray:
        low, high = self.phases
        return low + (high - low) * p

    def stated(self, estimate: PhaseEstimate) -> Estimate:
        """The estimate of the coefficient, with its deviation, from an estimate of the phase."""
        p, work, (low, high) = estimate.probability, estimate.work, self.phases
        solves, std = work.linearised + work.derivatives, (high - low) * np.sqrt(p * (1 - p))
        return Estimate(self.coefficient(p), solves, work.steps, estimate.converged, std)


def grid_models(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> tuple[GridModel, ...]:
    """The models of `PhaseInversion` and `LevelSet`: finite volumes on cells from coarse to fine.

    Args:
        setting: The inverse problem. Its cells are those of the finest model. The error of each
            model is estimated from its samples.
        field: Distribution of the Gaussian field whose sign is the phase.
        phases: The values α < β of the coefficient.
        source: The source f.
    """
    n = setting.cells
    upper = (setting.a - phases[0]) / (phases[1] - phases[0])
    fractions, u = upper[:_ERROR_SAMPLES], setting.u[:_ERROR_SAMPLES]
    models = list[GridModel]()
    sizes = _sizes(n)
    for cells in sizes:
        coarse = _FIRST if cells == sizes[0] else _SECOND if cells < _MANY else _THIRD
        widths = (*(_SECOND if len(sizes) < 3 else ()), *_LAST) if cells == n else coarse
        flow = PhaseFlow(CellGrid(cells), phases, source)
        mean = averages(n, cells)
        coarse_fractions = mean @ fractions @ mean.T
        observed, matrix = u, interpolation(flow.grid, setting.x)
        observation: Observation = Separable(matrix, matrix)
        if setting.sensors is not None:
            observation = Composition(observation, Sensors(setting.sensors))
            observed = observed[:, setting.sensors]
        modelled = np.stack([observation(flow(p)) for p in coarse_fractions])
        error = ModelError.from_samples(observed - modelled)
        extra_steps = _EXTRA_STEPS if cells == n else 0
        models.append(
            GridModel(Prior(field, flow.grid), flow, observation, error, widths, extra_steps)
        )
    return tuple(models)


def _sizes(n: int) -> list[int]:
    """Numbers of cells along an axis, from the coarsest model to the finest.

    The finest model has n cells; coarser models halve this number repeatedly, but not below
    `_FEWEST`.
    """
    sizes = [n]
    while sizes[0] > 4 * _FEWEST // 3:
        sizes.insert(0, max(_FEWEST, -(-sizes[0] // 2)))
    return sizes


def noise_level(
    data: Float[np.ndarray, "m m"], std: Float[np.ndarray, "m m"]
) -> float:  # fmt: skip
    """Estimates ε from data u(x) + ε σ(x) ξ(x) with independent ξ(x) ~ N(0, 1) at the points.

    The second difference along both axes reduces a smooth u to about h⁴ uₓₓᵧᵧ. The second
    difference of the noise has the variance ε² Σ w² σ², where w are the products of the weights 1,
    -2, 1. The difference of u is larger at interfaces, where u has kinks. The estimate uses the
    median over all points, which few such points do not change.

    Args:
        data: Data on a product grid with equal spacings, at least 3 points along each axis.
        std: σ(x).

    References: D. Donoho and I. Johnstone, Ideal spatial adaptation by wavelet shrinkage,
    Biometrika 81 (1994), section 4.2.

    >>> x = np.linspace(0, 1, 60)
    >>> u, xi = np.outer(np.sin(x), np.cos(x)), np.random.default_rng(0).standard_normal((60, 60))
    >>> round(noise_level(u + 0.1 * xi, np.ones((60, 60))), 2)
    0.1
    """
    differences = _along_both(data, _DIFFERENCE)
    expected = np.sqrt(_along_both(std**2, _DIFFERENCE**2))
    noisy = expected > 0
    return float(np.median(np.abs(differences[noisy]) / expected[noisy]) / _MEDIAN)


def _along_both(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(values, len(weights), axis=axis)
        values = windows @ weights
    return values
