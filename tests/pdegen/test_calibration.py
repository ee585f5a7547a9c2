"""Coverage, ranks, CRPS and bands where the truth is known."""

import numpy as np
import pytest

from pdegen.inverse.calibration import (
    ConformalBand,
    brier,
    central_interval,
    coverage,
    crps,
    rank_histogram,
    ranks,
    reliability,
)


def gaussians(spread, members=199, samples=4000):
    """Ensembles of this deviation about means whose truth has the deviation 1."""
    rng = np.random.default_rng(0)
    mean = rng.standard_normal(samples)
    truth = mean + rng.standard_normal(samples)
    return mean + spread * rng.standard_normal((members, samples)), truth, rng.random(samples)


# Φ(z) - Φ(-z) with z = 1.645 spread
@pytest.mark.parametrize(("spread", "expected"), [(1.0, 0.9), (0.5, 0.589), (2.0, 0.999)])
def test_coverage_of_gaussians(spread, expected):
    ensemble, truth, _ = gaussians(spread)
    low, high = central_interval(ensemble, 0.9)
    # 4000 samples: 0.005; 199 members: 0.005
    assert coverage(low, high, truth) == pytest.approx(expected, abs=0.02)


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_ranks_are_uniform_if_the_ensemble_is_right_alone():
    counts = {}
    for spread in (0.5, 1.0, 2.0):
        ensemble, truth, uniform = gaussians(spread)
        counts[spread] = rank_histogram(ranks(ensemble, truth, uniform), 199, 10)
    # 9 degrees of freedom: 27.9 is exceeded once in 1,000
    assert chi_square(counts[1.0]) < 27.9
    assert counts[0.5][0] > 1.5 * 400 < counts[0.5][-1]  # too narrow: truth outside
    assert counts[2.0][0] < 0.5 * 400 > counts[2.0][-1]


def test_ties_are_broken_evenly():
    """Phases: members and truth are 0 or 1, of one law."""
    rng = np.random.default_rng(1)
    ensemble, truth = rng.integers(0, 2, (19, 5000)), rng.integers(0, 2, 5000)
    found = ranks(ensemble, truth, rng.random(5000))
    assert found.min() == 0
    assert found.max() == 19
    assert chi_square(rank_histogram(found, 19, 10)) < 27.9


def test_bins_of_a_rank_histogram_are_equal():
    with pytest.raises(ValueError, match="divide members \\+ 1 = 20, got 7"):
        rank_histogram(np.arange(20), 19, 7)


def test_the_crps_of_a_gaussian():
    """σ (z (2Φ(z) - 1) + 2φ(z) - π^-½): Gneiting and Raftery (2007), equation 22."""
    rng = np.random.default_rng(2)
    sigma, y = 2.0, np.array([-1.0, 0.0, 3.0])
    ensemble = sigma * rng.standard_normal((100_000, 3))
    z = y / sigma
    phi = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    cumulative = np.array([0.3085375387, 0.5, 0.9331927987])
    exact = sigma * (z * (2 * cumulative - 1) + 2 * phi - 1 / np.sqrt(np.pi))
    assert np.allclose(crps(ensemble, y), exact, atol=0.02)


def test_the_crps_does_not_depend_on_the_number_of_members():
    rng = np.random.default_rng(3)
    y = np.full(200_000, 0.5)
    few, more = (crps(rng.standard_normal((m, y.size)), y).mean() for m in (2, 8))
    assert few == pytest.approx(more, abs=0.006)  # deviation of one of 2: about 1


def test_the_crps_is_the_sum_over_pairs():
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((6, 2)), rng.standard_normal(2)
    pairs = sum(abs(x[i] - x[j]) for i in range(6) for j in range(6)) / (2 * 6 * 5)
    assert np.allclose(crps(x, y), abs(x - y).mean(axis=0) - pairs, rtol=1e-12)


def test_a_band_covers_whatever_the_law():
    """Heavy tails, a biased estimate, a wrong scale: over many calibration sets, 37/41."""
    rng = np.random.default_rng(5)
    n, sets = 40, 4000
    scores = np.abs(rng.standard_cauchy((n, sets)) + 3.0)
    new = rng.standard_cauchy(sets) + 3.0
    band = ConformalBand.of(scores, 0.9)
    low, high = band.interval(np.zeros(sets), 1.0)
    # the 37th of 40 scores: 37/41 = 0.902; 4000 sets: 0.005
    assert coverage(low, high, new) == pytest.approx(37 / 41, abs=0.02)


def test_a_band_is_as_wide_as_the_scale_says():
    band = ConformalBand.of(np.arange(1.0, 100.0)[:, None], 0.9)
    low, high = band.interval(np.array([1.0]), np.array([0.1]))
    assert low == pytest.approx(-8.0)  # the 90th score
    assert high == pytest.approx(10.0)


def test_nine_samples_are_the_fewest_for_nine_tenths():
    assert ConformalBand.of(np.arange(9.0), 0.9).quantile == 8
    with pytest.raises(ValueError, match=r"a band of 0\.9 needs 9 calibration samples, got 8"):
        ConformalBand.of(np.arange(8.0), 0.9)
    with pytest.raises(ValueError, match="a level is in \\(0, 1\\), got 1"):
        ConformalBand.of(np.arange(8.0), 1.0)


def test_one_member_has_no_fair_score():
    with pytest.raises(ValueError, match="at least 2 members, got 1"):
        crps(np.zeros((1, 3)), np.zeros(3))


def test_probabilities_that_are_right_are_reliable():
    rng = np.random.default_rng(6)
    p = rng.random(100_000)
    y = (rng.random(p.size) < p).astype(float)
    table = reliability(p, y)
    assert np.allclose(table[:, 0], table[:, 1], atol=0.02)
    assert table[:, 2].sum() == p.size
    assert brier(p, y) == pytest.approx(1 / 6, abs=0.003)  # ∫ p (1 - p)
    assert brier(p**2, y) > brier(p, y)
    assert np.isnan(reliability(np.zeros(3), np.zeros(3))[1:, :2]).all()
    assert reliability(np.ones(3), np.ones(3))[-1].tolist() == [1, 1, 3]
