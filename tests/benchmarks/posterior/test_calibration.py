"""Coverage, ranks, CRPS and bands where the truth is known."""

import numpy as np
import pytest

from benchmarks.posterior.calibration import (
    ConformalBand,
    central_interval,
    coverage,
    crps,
    rank_histogram,
    ranks,
)


# Φ(z) - Φ(-z) with z = 1.645 spread
@pytest.mark.parametrize(("spread", "expected"), [(1.0, 0.9), (0.5, 0.589)])
def test_coverage_and_ranks_of_gaussians(spread, expected):
    rng = np.random.default_rng(0)
    mean = rng.standard_normal(4000)
    truth = mean + rng.standard_normal(4000)
    ensemble = mean + spread * rng.standard_normal((199, 4000))
    low, high = central_interval(ensemble, 0.9)
    # 4000 samples: 0.005; 199 members: 0.005
    assert coverage(low, high, truth) == pytest.approx(expected, abs=0.02)
    counts = rank_histogram(ranks(ensemble, truth, rng.random(4000)), 199, 10)
    chi_square = np.sum((counts - 400.0) ** 2 / 400)
    # 9 degrees of freedom: 27.9 is exceeded once in 1,000
    assert (chi_square < 27.9) == (spread == 1.0)


def test_the_crps_is_the_sum_over_pairs():
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((6, 2)), rng.standard_normal(2)
    pairs = sum(abs(x[i] - x[j]) for i in range(6) for j in range(6)) / (2 * 6 * 5)
    assert np.allclose(crps(x, y), abs(x - y).mean(axis=0) - pairs, rtol=1e-12)


def test_a_band_covers_whatever_the_law():
    """Heavy tails, a biased estimate, a wrong scale: over many calibration sets, 37/41."""
    rng = np.random.default_rng(5)
    scores = np.abs(rng.standard_cauchy((40, 4000)) + 3.0)
    low, high = ConformalBand.of(scores, 0.9).interval(np.zeros(4000), 1.0)
    # the 37th of 40 scores: 37/41 = 0.902; 4000 sets: 0.005
    held = coverage(low, high, rng.standard_cauchy(4000) + 3.0)
    assert held == pytest.approx(37 / 41, abs=0.02)
    with pytest.raises(ValueError, match=r"a band of 0\.9 needs 9 calibration samples, got 8"):
        ConformalBand.of(np.arange(8.0), 0.9)
