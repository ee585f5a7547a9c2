"""The classical inversions of two-phase Darcy that the noise study offers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.own_weight import by_known_level, by_unknown_level
from pdegen.equations.darcy.phase_flow import PhaseFlow
from pdegen.equations.darcy.total_variation import Tikhonov, TotalVariation
from pdegen.inverse.covariance import ModelError
from pdegen.inverse.ensemble_kalman import EnsembleKalman
from pdegen.inverse.level_set import LevelSet
from pdegen.inverse.noise_level import noise_level
from pdegen.inverse.observation import (
    After,
    Observation,
    Sensors,
    Separable,
    averages,
    interpolation,
)
from pdegen.inverse.phases import Level, PhaseEstimate, PhaseInversion
from pdegen.inverse.prior import Prior
from pdegen.inverse.setting import ClassicalMethod, Estimate, Inversion, Setting
from pdegen.inverse.variation import total_variation
from pdegen.sampling.gaussian import SquareGaussianField

# Widths of the steps, chosen by trials on 43 x 43 and 85 x 85 points; coarse cells cost little
_FIRST, _SECOND, _THIRD = (1.0, 0.7, 0.5, 0.35, 0.25), (0.25, 0.2), (0.15, 0.1, 0.07)
_LAST, _FEW = (0.12, 0.08, 0.05, 0.04), (0.12, 0.06)
_MORE = 6  # steps, at most, until the data fit
_FEWEST, _MANY = 15, 40  # cells of an axis: of the first level, and of one with narrow steps
_FLOOR = 1e-3  # deviation of noise that total variation assumes at least, of that of u
_TRIED = 16  # training samples by which the error of a model is stated
_COMPARED = 160  # training samples for the error of each model


def inversions(
    setting: Setting, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> dict[str, ClassicalMethod]:
    """By their names."""
    levels = cache(lambda: phase_levels(setting, field, phases, source))

    def regularised(by: type[TotalVariation], weight: float) -> Inversion:
        method = by(
            CellGrid(setting.cells), setting.x, phases, weight, source=source, seen=setting.seen
        )
        # of clean data, and next to walls
        floor = _FLOOR * float(np.linalg.norm(np.std(setting.u, axis=0))) / len(setting.x)
        return lambda data, deviation: method.estimate(data, deviation + floor)

    def largest_density(weight: float) -> Inversion:
        method = PhaseInversion(levels(), weight)
        return lambda data, deviation: _in_phases(method(data, deviation), phases)

    def few_steps(weight: float) -> Inversion:
        *coarse, last = levels()
        method = PhaseInversion((*coarse, replace(last, widths=_FEW, more=0)), weight)
        return lambda data, deviation: _in_phases(method(data, deviation), phases)

    def estimated(weight: float) -> Inversion:
        spread, method = setting.u.std(axis=0), largest_density(weight)
        return lambda data, _: method(data, noise_level(data, spread) * spread)

    def kalman(data: np.ndarray, deviation: np.ndarray) -> Estimate:
        return _kalman(levels(), data, deviation, setting.cells, phases)

    def corrected(data: np.ndarray, deviation: np.ndarray, a: np.ndarray) -> Estimate:
        method, (low, high) = PhaseInversion(levels()), phases
        start = method.start((a - low) / (high - low))
        return _in_phases(method(data, deviation, start), phases)

    def moved(smoothing: float) -> Inversion:
        method = LevelSet(levels(), smoothing)

        def inverted(data: np.ndarray, deviation: np.ndarray) -> Estimate:
            found = method(data, deviation)
            return Estimate(low + (high - low) * found.fraction, found.solves)

        return inverted

    def discrepancy(_: float) -> Inversion:
        return by_known_level(levels()[-1], phases, total_variation)

    def bent(_: float) -> Inversion:
        spread = setting.u.std(axis=0)
        known = spread if setting.seen is None else spread[setting.seen]
        return by_unknown_level(levels()[-1], phases, total_variation, known)

    def missed() -> float:
        return _missed(levels()[-1], setting)

    def missed_by_cells() -> float:
        return _missed_by_cells(setting, source)

    low, high = phases
    offered = {
        "total variation": ClassicalMethod(
            (0.03, 0.3, 3.0), partial(regularised, TotalVariation), missed=missed_by_cells
        ),
        "Tikhonov": ClassicalMethod(
            (0.003, 0.03, 0.3), partial(regularised, Tikhonov), missed=missed_by_cells
        ),
        "total variation, discrepancy": ClassicalMethod((1.0,), discrepancy, missed=missed),
        "total variation, L-curve": ClassicalMethod((1.0,), bent, missed=missed, told=False),
        "level set": ClassicalMethod((0.1, 0.2), moved, missed=missed),
        "ensemble Kalman": ClassicalMethod((1.0,), lambda _: kalman),
        "maximum a posteriori": ClassicalMethod((1.0, 0.3), largest_density, corrected, missed),
        "maximum a posteriori, few steps": ClassicalMethod((1.0, 0.3), few_steps, missed=missed),
        "maximum a posteriori, level estimated": ClassicalMethod(
            (1.0, 0.3), estimated, missed=missed, told=False
        ),
    }
    if setting.seen is not None:  # differences of neighbours estimate the level
        del offered["maximum a posteriori, level estimated"]
    return offered


def _missed(level: Level, setting: Setting) -> float:
    """By the model of a level, over the deviation of the data."""
    error = level.error
    squares = error.mean**2 + np.sum(error.directions**2, axis=0) + error.rest**2
    return _over_spread(squares, setting)


def _missed_by_cells(setting: Setting, source: float) -> float:
    """By finite volumes."""
    grid = CellGrid(setting.cells)
    matrix = interpolation(grid, setting.x)
    u = Separable(matrix, matrix)(FiniteVolume(grid)(setting.a[:_TRIED], source))
    return _over_spread((setting.u[:_TRIED] - u) ** 2, setting)


def _over_spread(squares: np.ndarray, setting: Setting) -> float:
    spread: np.ndarray = setting.u.std(axis=0)
    return (float(np.mean(squares)) / float(np.mean(spread**2))) ** 0.5


def _in_phases(found: PhaseEstimate, phases: tuple[float, float]) -> Estimate:
    return _stated(found.probability, found.work.linearised + found.work.derivatives, phases)


def _stated(p: np.ndarray, solves: int, phases: tuple[float, float]) -> Estimate:
    """By a method that states the probability p of the upper phase."""
    low, high = phases
    return Estimate(low + (high - low) * p, solves, (high - low) * np.sqrt(p * (1 - p)))


def _kalman(
    levels: tuple[Level, ...], data: np.ndarray, deviation: np.ndarray, cells: int,
    phases: tuple[float, float],
) -> Estimate:  # fmt: skip
    """The mean coefficient of an ensemble, moved on the coarse cells of the second level."""
    level = levels[min(1, len(levels) - 1)]

    def forward(xi: np.ndarray) -> np.ndarray:
        p = (level.prior.field_of(xi) >= 0).astype(float)
        return level.observation(level.forward.linearise(p).u)

    covariance = level.error.with_noise(deviation, float(np.sqrt(np.mean(data**2))))
    found = EnsembleKalman(forward)(data - level.error.mean, covariance, level.prior.zero.shape)
    fine = Prior(level.prior.field, CellGrid(cells))
    fields = [fine.field_of(fine.taken_over(xi)) for xi in found.members]
    share = np.mean([field >= 0 for field in fields], axis=0)
    return _stated(share, found.solves, phases)


def phase_levels(
    setting: Setting, field: SquareGaussianField, phases: tuple[float, float], source: float
) -> tuple[Level, ...]:
    """For `PhaseInversion`: finite volumes on cells from coarse to the setting's.

    Args:
        setting: Its samples give the error of each model.
        field: The law whose sign is the phase.
        phases: α < β.
        source: f.
    """
    n = setting.cells
    upper = (setting.a - phases[0]) / (phases[1] - phases[0])
    known, u = upper[:_COMPARED], setting.u[:_COMPARED]
    levels = list[Level]()
    sizes = _sizes(n)
    for cells in sizes:
        coarse = _FIRST if cells == sizes[0] else _SECOND if cells < _MANY else _THIRD
        widths = (*(_SECOND if len(sizes) < 3 else ()), *_LAST) if cells == n else coarse
        flow = PhaseFlow(CellGrid(cells), phases, source)
        mean = averages(n, cells)
        p = mean @ known @ mean.T
        found, matrix = u, interpolation(flow.grid, setting.x)
        observation: Observation = Separable(matrix, matrix)
        if setting.seen is not None:
            observation = After(observation, Sensors(setting.seen))
            found = found[:, setting.seen]
        error = ModelError.of(found - np.stack([observation(flow(one)) for one in p]))
        more = _MORE if cells == n else 0
        levels.append(Level(Prior(field, flow.grid), flow, observation, error, widths, more))
    return tuple(levels)


def _sizes(n: int) -> list[int]:
    """Cells of the levels: halves of n down to some twenty, and the fewest.

    >>> _sizes(43), _sizes(85), _sizes(12)
    ([15, 22, 43], [15, 22, 43, 85], [12])
    """
    sizes = [n]
    while sizes[0] > 4 * _FEWEST // 3:
        sizes.insert(0, max(_FEWEST, -(-sizes[0] // 2)))
    return sizes
