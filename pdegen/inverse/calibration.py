"""Calibration of predicted phase probabilities: Brier score and reliability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Truth = Float[np.ndarray, " *shape"]


def brier(probability: Truth, phase: Truth) -> float:
    """Brier score: the mean of (p - y)², where p is the predicted probability that y = 1.

    >>> brier(np.array([0.5, 1.0]), np.array([1.0, 1.0]))
    0.125
    """
    return float(np.mean((probability - phase) ** 2))


def reliability(probability: Truth, phase: Truth, bins: int = 10) -> Float[np.ndarray, "bins 3"]:
    """Reliability table: a row (mean of p, fraction with y = 1, count) for each bin of p.

    p is the predicted probability that y = 1. In empty bins the mean and the fraction are NaN.

    >>> reliability(np.array([0.1, 0.2, 0.9]), np.array([0.0, 1.0, 1.0]), bins=2).round(2).tolist()
    [[0.15, 0.5, 2.0], [0.9, 1.0, 1.0]]
    """
    bin_of = np.minimum((probability.ravel() * bins).astype(int), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    divisor = np.where(count > 0, count, np.nan)
    sums = (np.bincount(bin_of, weights=w.ravel(), minlength=bins) for w in (probability, phase))
    mean_p, share = (total / divisor for total in sums)
    return np.stack([mean_p, share, count], axis=1)
