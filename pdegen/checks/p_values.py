"""p-values of statistical tests. For any number of samples they are exact or upper bounds."""

from __future__ import annotations

import numpy as np
import scipy


def chi_square(energy: float, degrees: int) -> float:
    """Two-sided p-value of a sum Σ z² of `degrees` independent variables z ~ N(0, 1).

    >>> round(chi_square(3.84, 1), 2), chi_square(200.0, 100) < 1e-7
    (0.1, True)
    """
    low, high = scipy.special.chdtr(degrees, energy), scipy.special.chdtrc(degrees, energy)
    return float(min(1.0, 2 * min(low, high)))


def normal(z: float) -> float:
    """Two-sided p-value of a value z under the distribution N(0, 1)."""
    return float(2 * scipy.special.ndtr(-abs(z)))


def binomial(count: int, trials: int, probability: float) -> float:
    """Two-sided p-value of a number of successes: twice the smaller tail probability.

    >>> binomial(0, 10, 0.5) == 2 * 0.5**10
    True
    """
    low = scipy.special.bdtr(count, trials, probability)
    high = scipy.special.bdtrc(count - 1, trials, probability) if count else 1.0
    return float(min(1.0, 2 * min(low, high)))


def massart(distance: float, samples: int) -> float:
    """Massart's bound for the empirical distribution function of independent values.

    It bounds the probability that the empirical function differs from the true one by `distance` or
    more at some point.

    >>> massart(0.0, 10), round(massart(0.1, 100), 3)
    (1.0, 0.271)
    """
    return float(min(1.0, 2 * np.exp(-2 * samples * distance**2)))


class RankSum:
    """Test that N independent values have the distribution of R independent reference values.

    U counts the pairs (value, reference) with value > reference, and half of the pairs with ties.
    If both have the same distribution, the mean of U is NR/2, and its variance is at most NR(N + R
    + 1)/12. The p-value is computed from the normal distribution with this mean and variance, which
    has heavier tails than U.

    References: Mann and Whitney, Ann. Math. Statist. 18 (1947).
    """

    def __init__(self, reference: np.ndarray) -> None:
        self._reference = np.sort(reference)
        self._sum, self._pairs, self._count = 0.0, 0.0, 0

    def add(self, x: np.ndarray) -> None:
        """Add values to the test."""
        below = np.searchsorted(self._reference, x, "left")
        not_above = np.searchsorted(self._reference, x, "right")
        self._pairs += float((below + not_above).sum()) / 2
        self._sum += float(x.sum())
        self._count += len(x)

    @property
    def observed(self) -> float:
        """The mean of the values."""
        return self._sum / max(1, self._count)

    @property
    def expected(self) -> float:
        """The mean of the reference values."""
        return float(self._reference.mean())

    @property
    def p(self) -> float:
        n, r = self._count, len(self._reference)
        return normal((self._pairs - n * r / 2) / np.sqrt(max(1, n) * r * (n + r + 1) / 12))


class Cells:
    """Counts of independent values in cells of equal probability; each count is binomial.

    Args:
        edges: Increasing inner edges of the cells.
    """

    def __init__(self, edges: np.ndarray) -> None:
        self._edges = edges
        self.counts = np.zeros(len(edges) + 1, dtype=int)

    def add(self, x: np.ndarray) -> None:
        """Add values to the counts."""
        self.counts += np.bincount(np.searchsorted(self._edges, x), minlength=len(self.counts))

    def p(self, cell: int) -> float:
        return binomial(int(self.counts[cell]), int(self.counts.sum()), 1 / len(self.counts))
