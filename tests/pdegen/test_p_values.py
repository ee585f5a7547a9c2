"""Probabilities of statistics are exact, or never less than they say."""

import numpy as np
import pytest
from scipy import stats

from pdegen.checks.check import Cells, RankSum, binomial, chi_square, normal


def test_tests_of_single_numbers_are_exact():
    draws = np.random.default_rng(0).standard_normal((4000, 3))
    p = [chi_square(float(energy), 3) for energy in (draws**2).sum(axis=1)]
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    assert stats.kstest([normal(z) for z in draws[:, 0]], "uniform").pvalue > 1e-3
    counts = np.arange(13)
    p = np.array([binomial(int(k), 12, 0.3) for k in counts])
    weights = stats.binom.pmf(counts, 12, 0.3)
    for level in (0.5, 0.1, 0.01, 1e-4):  # never more often than it says
        assert weights[p <= level].sum() <= level


def test_cells_of_equal_probability_are_counted():
    cells = Cells(np.array([-1.0, 0.0, 1.0]))
    cells.add(np.array([-2.0, -0.5, 0.5, 0.6, 3.0]))
    assert cells.counts.tolist() == [1, 1, 2, 1]
    assert cells.p(2) == binomial(2, 5, 0.25)


@pytest.mark.parametrize(("n", "r"), [(1, 30), (3, 20), (6, 8), (12, 12)])
def test_rank_sums_are_never_less_probable_than_they_say(n, r):
    """The distribution of U by counting: the coefficients of the Gaussian binomial."""
    ways = np.zeros(n * r + 1)
    ways[0] = 1
    for i in range(1, n + 1):
        ways[i + r :] -= ways[: len(ways) - i - r].copy()
        for j in range(i, len(ways)):
            ways[j] += ways[j - i]
    assert ways.sum() == pytest.approx(stats.binom(n + r, 0.5).pmf(n) * 2.0 ** (n + r))
    ranks = RankSum(np.arange(float(r)))
    ranks.add(np.zeros(n))
    p = np.empty(len(ways))
    for ranks._pairs in range(len(ways)):
        p[ranks._pairs] = ranks.p
    assert p[0] == p[-1] < 0.1
    for level in (0.01, 1e-3, 1e-4, 1e-5):
        assert ways[p <= level].sum() / ways.sum() <= level


def test_rank_sums_count_pairs_and_halve_ties():
    ranks = RankSum(np.array([1.0, 2.0, 2.0, 5.0]))
    ranks.add(np.array([2.0, 6.0]))
    assert ranks._pairs == 1 + 2 * 0.5 + 4
    assert (ranks.observed, ranks.expected) == (4.0, 2.5)
