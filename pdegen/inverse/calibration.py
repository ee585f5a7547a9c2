"""Calibration of stated uncertainty: Brier score, coverage, ranks, CRPS; conformal bands."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Float, Int

Truth = Float[np.ndarray, " *shape"]
Ensemble = Float[np.ndarray, "members *shape"]


def brier(probability: Truth, phase: Truth) -> float:
    """Brier score: the mean of (p - y)², where p is the predicted probability that y = 1.

    >>> brier(np.array([0.5, 1.0]), np.array([1.0, 1.0]))
    0.125
    """
    return float(np.mean((probability - phase) ** 2))


def central_interval(ensemble: Ensemble, level: float) -> tuple[Truth, Truth]:
    """Ends of the central interval that covers a new draw with the probability `level`.

    The ends are the order statistics r and m + 1 - r of m members with 2r = (1 - level)(m + 1),
    interpolated if r is no integer. A new draw of the members' distribution has each rank with the
    same probability. The interval therefore has the right coverage for few members, too.

    Raises:
        ValueError: If the members are too few, r < 1.

    >>> low, high = central_interval(np.arange(1.0, 20.0), 0.9)
    >>> float(low), float(high)
    (1.0, 19.0)
    """
    _in_range(level)
    if (1 - level) / 2 * (len(ensemble) + 1) < 1 - 1e-9:
        raise ValueError(f"an interval of {level:g} needs more members than {len(ensemble)}")
    ends = np.quantile(ensemble, [(1 - level) / 2, (1 + level) / 2], axis=0, method="weibull")
    return ends[0], ends[1]


def coverage(low: Truth, high: Truth, truth: Truth) -> float:
    """Share of true values in [low, high].

    >>> coverage(np.zeros(4), np.ones(4), np.array([-1.0, 0.0, 0.5, 2.0]))
    0.5
    """
    return float(np.mean((low <= truth) & (truth <= high)))


def ranks(
    ensemble: Ensemble, truth: Truth, uniform: Float[np.ndarray, " *shape"]
) -> Int[np.ndarray, " *shape"]:
    """Number of members below the truth: uniform on 0 ... members if the truth has their law.

    Args:
        ensemble: Members.
        truth: True values.
        uniform: Uniform numbers in [0, 1) that rank the truth among members equal to it.

    References: T. Hamill, Interpretation of rank histograms for verifying ensemble forecasts,
    Monthly Weather Review 129 (2001).

    >>> ranks(np.array([[1.0], [2.0], [2.0]]), np.array([2.0]), np.array([0.5])).tolist()
    [2]
    """
    below, equal = (ensemble < truth).sum(axis=0), (ensemble == truth).sum(axis=0)
    return below + np.floor(uniform * (equal + 1)).astype(below.dtype)


def rank_histogram(rank: Int[np.ndarray, " *shape"], members: int, bins: int) -> np.ndarray:
    """Counts of ranks in equal bins.

    Raises:
        ValueError: If `bins` does not divide members + 1.

    >>> rank_histogram(np.array([0, 1, 2, 3, 3]), members=3, bins=2).tolist()
    [2, 3]
    """
    if (members + 1) % bins:
        raise ValueError(f"bins must divide members + 1 = {members + 1}, got {bins}")
    return np.bincount(rank.ravel() * bins // (members + 1), minlength=bins)


def crps(ensemble: Ensemble, truth: Truth) -> Truth:
    """E|X - y| - ½ E|X - X'|, without bias for any number of members ("fair").

    Its mean is lowest for members with the law of y. It has the unit of y.

    Raises:
        ValueError: On fewer than two members.

    References: C. Ferro, Fair scores for ensemble forecasts, Q. J. R. Meteorol. Soc. 140 (2014),
    section 3; T. Gneiting and A. Raftery, Strictly proper scoring rules, prediction, and
    estimation, J. Amer. Statist. Assoc. 102 (2007), equation 21.

    >>> float(crps(np.array([0.0, 2.0]), np.array(1.0)))
    0.0
    """
    m = len(ensemble)
    if m < 2:
        raise ValueError(f"the fair CRPS needs at least 2 members, got {m}")
    # Σ_i<j |x_j - x_i| of sorted members: x_(i) has the coefficient 2i - m + 1
    weights = (2 * np.arange(m) - m + 1).reshape(-1, *[1] * truth.ndim)
    spread = (weights * np.sort(ensemble, axis=0)).sum(axis=0) / (m * (m - 1))
    return np.abs(ensemble - truth).mean(axis=0) - spread


@dataclass(frozen=True)
class ConformalBand:
    """[â - q s, â + q s], which holds a new true value with at least the probability `level`.

    The probability is over calibration sets and new samples, for any law and any estimate, if the
    new sample and the calibration samples are exchangeable. It is not guaranteed for each kind of
    sample separately. q is the ⌈(n + 1) level⌉-th smallest of the n scores |a - â|/s; without ties
    the probability is below level + 1/(n + 1).

    Args:
        quantile: q, one for each quantity.
        level: Probability that the band was built for.

    References: J. Lei et al., Distribution-free predictive inference for regression, J. Amer.
    Statist. Assoc. 113 (2018), theorem 2 and section 5.2.
    """

    quantile: Truth
    level: float

    @classmethod
    def of(
        cls, scores: Float[np.ndarray, " calibration *shape"], level: float
    ) -> ConformalBand:  # fmt: skip
        """The band from scores |a - â|/s of samples that the estimate was not fitted to.

        Raises:
            ValueError: If the samples are too few for the level.

        >>> float(ConformalBand.of(np.arange(1.0, 20.0), 0.9).quantile)
        18.0
        """
        _in_range(level)
        n, rank = len(scores), math.ceil((len(scores) + 1) * level - 1e-9)
        if rank > n:
            least = math.ceil(level / (1 - level) - 1e-9)
            raise ValueError(f"a band of {level:g} needs {least} calibration samples, got {n}")
        return cls(np.sort(scores, axis=0)[rank - 1], level)

    @classmethod
    def of_share(
        cls, scores: Float[np.ndarray, " calibration *shape"], level: float, missed: float = 0.0
    ) -> ConformalBand:  # fmt: skip
        """The band that holds at least the share 1 - `missed` of the points of a new field, with at
        least the probability `level`. With the default it holds all points.

        The score of a field is the ⌈(1 - missed) m⌉-th smallest of its scores at m points. All
        points have the same q, that of these scores.

        Raises:
            ValueError: If the fields are too few for the level, or `missed` is not in [0, 1).

        References: Z. Ma et al., Calibrated uncertainty quantification for operator learning via
        conformal prediction, arXiv:2402.01960 (2024), for the statement, which holds here by order
        statistics.

        >>> fields = np.arange(1.0, 20.0)[:, None] * [0.1, 0.2, 0.7, 1.0]
        >>> [float(ConformalBand.of_share(fields, 0.9, missed).quantile) for missed in (0.0, 0.5)]
        [18.0, 3.6]
        """
        if not 0 <= missed < 1:
            raise ValueError(f"a share of missed points is in [0, 1), got {missed:g}")
        points = scores.reshape(len(scores), -1)
        rank = math.ceil((1 - missed) * points.shape[1] - 1e-9)
        return cls.of(np.sort(points, axis=1)[:, rank - 1], level)

    def sets(self, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the cells whose set of phases has the upper and the lower phase.

        The scores of the band were 1 - p of the true phase, where p is its probability. A phase is
        in the set if 1 - p <= q.

        >>> band = ConformalBand(np.array(0.4), 0.9)
        >>> [mask.tolist() for mask in band.sets(np.array([0.9, 0.5, 0.2]))]
        [[True, False, False], [False, False, True]]
        """
        return 1 - probability <= self.quantile, probability <= self.quantile

    def interval(self, estimate: np.ndarray, scale: np.ndarray | float) -> tuple[Truth, Truth]:
        """Lower and upper ends of the band."""
        return estimate - self.quantile * scale, estimate + self.quantile * scale


def gaussian_crps(mean: Truth, deviation: Truth, truth: Truth) -> Truth:
    """CRPS of the law N(m, s²): s (z (2Φ(z) - 1) + 2φ(z) - 1/√π) with z = (y - m)/s.

    It is |y - m| where s = 0.

    References: T. Gneiting and A. Raftery (see `crps`), section 4.2.

    >>> float(gaussian_crps(np.array(0.0), np.array(1.0), np.array(0.0)).round(4))
    0.2337
    """
    error = truth - mean
    deviation = np.maximum(deviation, 1e-9 * abs(error) + np.finfo(float).tiny)
    z = error / deviation
    density = np.exp(-(z**2) / 2) * math.sqrt(2 / math.pi)  # 2φ(z)
    return deviation * (z * scipy.special.erf(z / math.sqrt(2)) + density - 1 / math.sqrt(math.pi))


def _in_range(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a level is in (0, 1), got {level:g}")
