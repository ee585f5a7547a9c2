"""The classical inversions of two-phase Darcy that the noise study offers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float

from pdegen.domains import CellGrid
from pdegen.equations.darcy.phase_flow import PhaseFlow
from pdegen.equations.darcy.total_variation import Tikhonov, TotalVariation
from pdegen.inverse.classical import ClassicalMethod, Estimate, InverseProblem, Inversion
from pdegen.inverse.covariance import ModelError
from pdegen.inverse.level_set import LevelSet
from pdegen.inverse.observation import (
    Composition,
    Observation,
    Sensors,
    Separable,
    averages,
    interpolation,
)
from pdegen.inverse.phases import GridModel, PhaseEstimate, PhaseInversion
from pdegen.inverse.prior import Prior
from pdegen.sampling.gaussian import SquareGaussianField

# Widths of the steps, chosen by trials on 43 x 43 and 85 x 85 points; coarse cells cost little
_FIRST, _SECOND, _THIRD = (1.0, 0.7, 0.5, 0.35, 0.25), (0.25, 0.2), (0.15, 0.1, 0.07)
_LAST = (0.12, 0.08, 0.05, 0.04)
_MORE = 6  # steps, at most, until the data fit
_FEWEST, _MANY = 15, 40  # cells of an axis: of the first level, and of one with narrow steps
_FLOOR = 1e-3  # deviation of noise that total variation assumes at least, of that of u
_DIFFERENCE = np.array([1.0, -2.0, 1.0])
_MEDIAN = 0.6744897501960817  # of |ξ|, ξ ~ N(0, 1)
_COMPARED = 160  # training samples for the error of each model


def inversions(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> dict[str, ClassicalMethod]:
    """The inversion methods of two-phase Darcy, by name. Arguments are those of `grid_models`."""
    of = _TwoPhases(setting, field, phases, source)
    offered = {
        "total variation": ClassicalMethod(
            "the usual baseline, which knows the two values of the coefficient, not its law",
            (0.03, 0.3, 3.0),
            partial(of.penalised, TotalVariation),
            model_error=of.model_error,
        ),
        "Tikhonov": ClassicalMethod(
            "the plainest baseline, and the usual one for coefficients without jumps",
            (0.003, 0.03, 0.3),
            partial(of.penalised, Tikhonov),
            model_error=of.model_error,
        ),
        "level set": ClassicalMethod(
            "the best one if the law of the coefficient is not known",
            (0.1, 0.2),
            of.moved,
            model_error=of.model_error,
        ),
        "maximum a posteriori": ClassicalMethod(
            "the best one under noise if level and law are known; states its uncertainty",
            (1.0, 0.3),
            of.largest_density,
            of.corrected,
            of.model_error,
        ),
        "maximum a posteriori, level estimated": ClassicalMethod(
            "the same if the noise level is not known, which the data then tell",
            (1.0, 0.3),
            of.level_estimated,
            model_error=of.model_error,
            takes_level=False,
        ),
    }
    if setting.sensors is not None:  # differences of neighbours estimate the level
        del offered["maximum a posteriori, level estimated"]
    return offered


@dataclass(frozen=True)
class _TwoPhases:
    """Inversions of one setting by a weight. Arguments are those of `grid_models`."""

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
        # of clean data, and next to walls
        floor = _FLOOR * float(np.linalg.norm(np.std(setting.u, axis=0))) / len(setting.x)
        return lambda data, deviation: method.estimate(data, deviation + floor)

    def moved(self, smoothing: float) -> Inversion:
        method = LevelSet(self.models, smoothing)

        def inverted(data: np.ndarray, deviation: np.ndarray) -> Estimate:
            found = method(data, deviation)
            return Estimate(self.coefficient(found.fraction), found.solves)

        return inverted

    def largest_density(self, weight: float) -> Inversion:
        method = PhaseInversion(self.models, weight)
        return lambda data, deviation: self.stated(method(data, deviation))

    def level_estimated(self, weight: float) -> Inversion:
        spread, method = self.setting.u.std(axis=0), self.largest_density(weight)
        return lambda data, _: method(data, noise_level(data, spread) * spread)

    def corrected(self, data: np.ndarray, deviation: np.ndarray, a: np.ndarray) -> Estimate:
        method, (low, high) = PhaseInversion(self.models), self.phases
        return self.stated(method(data, deviation, method.start((a - low) / (high - low))))

    def model_error(self) -> float:
        """Root mean square of the error of the model, over the deviation of the data."""
        error = self.models[-1].error
        variance: np.ndarray = np.sum(error.directions**2, axis=0)
        squares = error.mean**2 + variance + error.remainder**2
        spread: np.ndarray = self.setting.u.std(axis=0)
        return (float(np.mean(squares)) / float(np.mean(spread**2))) ** 0.5

    def coefficient(self, p: np.ndarray) -> np.ndarray:
        low, high = self.phases
        return low + (high - low) * p

    def stated(self, found: PhaseEstimate) -> Estimate:
        """The estimate of a method that states the probability p of the upper phase."""
        p, (low, high) = found.probability, self.phases
        solves = found.work.linearised + found.work.derivatives
        return Estimate(self.coefficient(p), solves, (high - low) * np.sqrt(p * (1 - p)))


def grid_models(
    setting: InverseProblem, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> tuple[GridModel, ...]:
    """For `PhaseInversion`: finite volumes on cells from coarse to the setting's, whose samples
    give the error of each model; the field is the law whose sign is the phase, α < β, and f."""
    n = setting.cells
    upper = (setting.a - phases[0]) / (phases[1] - phases[0])
    known, u = upper[:_COMPARED], setting.u[:_COMPARED]
    models = list[GridModel]()
    sizes = _sizes(n)
    for cells in sizes:
        coarse = _FIRST if cells == sizes[0] else _SECOND if cells < _MANY else _THIRD
        widths = (*(_SECOND if len(sizes) < 3 else ()), *_LAST) if cells == n else coarse
        flow = PhaseFlow(CellGrid(cells), phases, source)
        mean = averages(n, cells)
        p = mean @ known @ mean.T
        found, matrix = u, interpolation(flow.grid, setting.x)
        observation: Observation = Separable(matrix, matrix)
        if setting.sensors is not None:
            observation = Composition(observation, Sensors(setting.sensors))
            found = found[:, setting.sensors]
        error = ModelError.from_samples(found - np.stack([observation(flow(one)) for one in p]))
        extra_steps = _MORE if cells == n else 0
        models.append(
            GridModel(Prior(field, flow.grid), flow, observation, error, widths, extra_steps)
        )
    return tuple(models)


def _sizes(n: int) -> list[int]:
    """Cells of the levels: halves of n down to some twenty, and the fewest."""
    sizes = [n]
    while sizes[0] > 4 * _FEWEST // 3:
        sizes.insert(0, max(_FEWEST, -(-sizes[0] // 2)))
    return sizes


def noise_level(
    data: Float[np.ndarray, "m m"], deviation: Float[np.ndarray, "m m"]
) -> float:  # fmt: skip
    """ε of data u(x) + ε σ(x) ξ(x), ξ(x) ~ N(0, 1) independent at the points.

    The second difference along both axes leaves of a smooth u only h⁴ uₓₓᵧᵧ; of noise it has the
    variance Σ w² σ², w the products of 1, -2, 1. Where u has kinks, at interfaces, it is larger;
    the median over the points does not see these, as long as they are few.

    Args:
        data: On a product grid with equal spacings, 3 points an axis at least.
        deviation: σ(x).

    References: D. Donoho and I. Johnstone, Ideal spatial adaptation by wavelet shrinkage,
    Biometrika 81 (1994), section 4.2.

    >>> x = np.linspace(0, 1, 60)
    >>> u, xi = np.outer(np.sin(x), np.cos(x)), np.random.default_rng(0).standard_normal((60, 60))
    >>> round(noise_level(u + 0.1 * xi, np.ones((60, 60))), 2)
    0.1
    """
    found = _along_both(data, _DIFFERENCE)
    expected = np.sqrt(_along_both(deviation**2, _DIFFERENCE**2))
    sensors = expected > 0
    return float(np.median(np.abs(found[sensors]) / expected[sensors]) / _MEDIAN)


def _along_both(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(values, len(weights), axis=axis)
        values = windows @ weights
    return values
