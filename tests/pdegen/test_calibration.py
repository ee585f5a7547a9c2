"""Brier score, coverage, ranks, CRPS and bands where the truth is known."""

import numpy as np
import pytest

from pdegen.inverse.calibration import (
    ConformalBand,
    brier,
    central_interval,
    coverage,
    crps,
    gaussian_crps,
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


@pytest.mark.parametrize("members", [19, 39])
def test_intervals_of_few_draws_cover_as_stated(members):
    rng = np.random.default_rng(7)
    low, high = central_interval(rng.standard_normal((members, 40_000)), 0.9)
    # deviation of the share: 0.0015
    assert coverage(low, high, rng.standard_normal(40_000)) == pytest.approx(0.9, abs=0.007)


def test_intervals_need_enough_draws():
    with pytest.raises(ValueError, match=r"an interval of 0.9 needs more members than 18"):
        central_interval(np.zeros((18, 2)), 0.9)


def test_the_fair_crps_does_not_depend_on_the_number_of_members():
    rng = np.random.default_rng(8)
    for members in (2, 5, 19):
        draws, truth = (rng.standard_normal((k, 1_000_000), np.float32) for k in (members, 1))
        # 1/√π for draws of N(0, 1) and a truth of the same law; deviation of the mean: 0.0005
        assert crps(draws, truth[0]).mean() == pytest.approx(np.pi**-0.5, abs=0.002)


def test_the_crps_of_a_gaussian_law_is_that_of_many_draws():
    rng = np.random.default_rng(9)
    m, s, y = np.array([[0.3, -1.0, 2.0], [0.5, 2.0, 0.1], [0.3, 1.5, 1.0]])
    drawn = crps(m + s * rng.standard_normal((200_000, 3)), y)
    assert gaussian_crps(m, s, y) == pytest.approx(drawn, rel=0.01)  # deviation: 0.002
    assert gaussian_crps(m, np.array([0.0, 1e-300, 0.0]), y) == pytest.approx(abs(y - m))


def test_probabilities_that_are_right_have_the_least_brier_score():
    rng = np.random.default_rng(6)
    p = rng.random(100_000)
    y = (rng.random(p.size) < p).astype(float)
    assert brier(p, y) == pytest.approx(1 / 6, abs=0.003)  # ∫ p (1 - p)
    assert brier(p**2, y) > brier(p, y)


def fields(rng, *shape):
    """Sizes of random errors at 12 points. Those at neighbours are correlated, and some samples
    have larger errors."""
    errors = np.cumsum(rng.standard_normal((*shape, 12)), axis=-1)
    return np.abs(errors) * rng.gamma(2.0, size=(*shape, 1))


@pytest.mark.parametrize("n", [19, 32, 100])
@pytest.mark.parametrize("kind", ["points", "share", "all", "phases"])
def test_bands_hold_new_fields_with_their_probability(n, kind):
    """The covered share is in [0.9, 0.9 + 1/(n + 1)], by the mean over calibration sets."""
    sets, new = 400, 100
    rng = np.random.default_rng(n)
    covered = list[float]()
    for _ in range(sets):
        known, later = fields(rng, n), fields(rng, new)
        if kind == "points":
            covered.append(float(np.mean(later <= ConformalBand.of(known, 0.9).quantile)))
        elif kind == "phases":
            p = [1 / (1 + np.exp(errors - 2)) for errors in (known, later)]  # of the true phase
            band = ConformalBand.of_share(1 - p[0], 0.9)
            upper, lower = band.sets(np.where(np.arange(12) % 2, p[1], 1 - p[1]))
            inside = np.where(np.arange(12) % 2, upper, lower)
            covered.append(float(np.mean(inside.all(axis=1))))
        else:
            missed = 0.25 if kind == "share" else 0.0  # 9 or 12 of the points are held
            band = ConformalBand.of_share(known, 0.9, missed)
            low, high = band.interval(np.zeros(12), 1.0)
            inside = np.mean((low <= later) & (later <= high), axis=1)
            covered.append(float(np.mean(inside >= 1 - missed)))
    # four deviations of the mean: of a covered share, which has a beta law, and of new fields
    tolerance = 4 * np.sqrt(0.09 / (n + 2) / sets + 0.09 / (sets * new))
    assert 0.9 - tolerance <= np.mean(covered) <= 0.9 + 1 / (n + 1) + tolerance


def test_bands_of_shares_need_enough_fields_and_a_share():
    with pytest.raises(ValueError, match=r"a band of 0\.9 needs 9 calibration samples, got 8"):
        ConformalBand.of_share(np.ones((8, 4)), 0.9)
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1"):
        ConformalBand.of_share(np.ones((9, 4)), 0.9, 1.0)
