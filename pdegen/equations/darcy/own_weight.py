"""Penalised inversions of two-phase Darcy that choose their weight for each sample."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pdegen.inverse.covariance import Covariance
from pdegen.inverse.phases import Level
from pdegen.inverse.regularised import PenalisedFit, by_discrepancy, by_l_curve
from pdegen.inverse.setting import Estimate, Inversion
from pdegen.inverse.variation import Penalty

# λ, from large to small: of data with their noise level, and with 1 in place of an unknown one
_KNOWN = tuple(10.0 ** (0.5 - k / 4) for k in range(16))
_UNKNOWN = tuple(10.0 ** -(2 + k / 2) for k in range(11))
_FLOOR = 1e-3  # deviation of u where it hardly varies, at walls, of that elsewhere


def by_known_level(level: Level, phases: tuple[float, float], penalty: Penalty) -> Inversion:
    """The largest weight with which the data fit as well as their noise and the model's error let
    them."""
    fit = PenalisedFit(level, penalty)

    def inverted(data: np.ndarray, deviation: np.ndarray) -> Estimate:
        covariance = level.error.with_noise(deviation, float(np.sqrt(np.mean(data**2))))
        found, solves = by_discrepancy(fit, data - level.error.mean, covariance, _KNOWN)
        return _in_phases(found.fraction, solves, phases)

    return inverted


def by_unknown_level(
    level: Level,
    phases: tuple[float, float],
    penalty: Penalty,
    spread: Float[np.ndarray, " *data"],
) -> Inversion:
    """The weight at the corner of the L-curve, whatever the level.

    Args:
        level, phases: The model, and α < β.
        penalty: What is weighed against the misfit.
        spread: Deviation of the noise up to a factor: that of u over samples.
    """
    fit = PenalisedFit(level, penalty)
    floor = _FLOOR * float(np.sqrt(np.mean(spread**2)))
    covariance = Covariance(spread + floor, np.empty((0, *spread.shape)))

    def inverted(data: np.ndarray, deviation: np.ndarray) -> Estimate:
        found, solves = by_l_curve(fit, data - level.error.mean, covariance, _UNKNOWN)
        return _in_phases(found.fraction, solves, phases)

    return inverted


def _in_phases(
    fraction: Float[np.ndarray, "n n"], solves: int, phases: tuple[float, float]
) -> Estimate:  # fmt: skip
    low, high = phases
    return Estimate(low + (high - low) * fraction, solves)
