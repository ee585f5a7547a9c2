"""Conformal bands of fields and of phases, on samples like those of the calibration or not."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.studies.scores import BANDS, MEASURES, ConformalBands, Reconstructed, Stated

M = 12  # points of a field
LIMITS = {(100, 200): (0.790, 0.975), (500, 1000): (0.854, 0.939)}  # 99 %, beta-binomial
PHASES = 3.0, 12.0


def answers(rng, count, kind):
    """A biased answer to random fields whose errors at neighbours are correlated, with heavy
    tails over the samples; of phases, a probability that is too near 0 and 1."""
    errors = np.cumsum(rng.standard_normal((count, M)), axis=1) * rng.gamma(2.0, size=(count, 1))
    if kind == "phases":
        p = 1 / (1 + np.exp(-errors))
        truth = np.where(rng.random(p.shape) < p, PHASES[1], PHASES[0])
        sharp = 1 / (1 + np.exp(-3 * errors))
        a = PHASES[0] + (PHASES[1] - PHASES[0]) * sharp
        return Stated(truth, a, sharp)
    a = rng.standard_normal((count, M))
    stated = Stated(a + errors + 0.5, a)
    return replace(stated, deviation=np.full(a.shape, 0.1)) if kind == "deviation" else stated


@pytest.mark.parametrize(("n", "tests"), LIMITS)
@pytest.mark.parametrize("kind", ["values", "deviation", "phases"])
def test_bands_hold_what_they_state(n, tests, kind):
    rng, values = np.random.default_rng(n), PHASES if kind == "phases" else None
    bands = ConformalBands.of(answers(rng, 2 * n, kind), values)  # the second half calibrates
    new, (low, high) = answers(rng, tests, kind), LIMITS[n, tests]
    for band in BANDS:
        held, width = bands.judged(new, band)
        assert low <= held.mean() <= high, band
        assert width.min() >= 0
    points, share, every = (bands.judged(new, band)[1].mean() for band in BANDS)
    assert points <= share <= every
    if kind == "phases":
        assert every <= 2
        alone = replace(new, probability=None)  # the reconstruction is the share of the phase
        assert np.array_equal(bands.judged(alone, "all")[0], bands.judged(new, "all")[0])


def test_the_width_of_a_band_is_that_of_the_scores_of_the_second_half():
    a = np.zeros((40, 2))
    truth = np.arange(1.0, 41.0)[:, None] * [1.0, -2.0]
    of = Stated(truth, a)
    bands = ConformalBands.of(of, None)
    scale = np.array([10.5, 21.0])  # mean error of the first 20 samples
    assert bands.scale == pytest.approx(scale)
    # the 19th of the 20 errors 21, 22, ...
    for band in BANDS:
        held, width = bands.judged(of.__class__(truth[20:], a[20:]), band)
        assert width == pytest.approx(np.full(20, (2 * 39 + 2 * 78) / 2))
        assert held.tolist() == [1.0] * 19 + [0.0]
    stated = ConformalBands.of(replace(of, deviation=np.full(a.shape, 3.0)), None)
    assert stated.bands["points"].quantile == pytest.approx([13.0, 26.0])


def test_no_band_is_calibrated_again_under_shift():
    rng = np.random.default_rng(3)
    bands, new = ConformalBands.of(answers(rng, 200, "values"), None), answers(rng, 200, "values")
    usual, worse = (
        bands.judged(replace(new, truth=new.a + factor * (new.truth - new.a)), "share")
        for factor in (1.0, 3.0)
    )
    assert worse[0].mean() < usual[0].mean() - 0.2
    assert np.array_equal(worse[1], usual[1])


def test_phases_that_are_equally_likely_are_both_in_the_sets():
    truth = np.where(np.arange(40)[:, None] % 2 == [0, 1, 0], *PHASES)
    half = np.full(truth.shape, 0.5)
    of = Stated(truth, 7.5 + 0 * truth, half)
    held, size = ConformalBands.of(of, PHASES).judged(of, "all")
    assert (held.min(), size.min(), size.max()) == (1, 2, 2)
    sure = Stated(truth, truth, (truth - 3) / 9)  # a right answer has sets of one phase
    assert ConformalBands.of(sure, PHASES).judged(sure, "all")[1].tolist() == [1.0] * 40


def test_an_exact_answer_has_a_band_without_width_and_few_samples_have_none():
    truth = np.random.default_rng(0).random((20, 4))
    of = Stated(truth, truth)
    held, width = ConformalBands.of(of, None).judged(of, "all")
    assert (held.min(), width.max()) == (1, 0)
    with pytest.raises(ValueError, match=r"a band of 0\.9 needs 9 calibration samples, got 8"):
        ConformalBands.of(Stated(truth[:16], truth[:16]), None)


def test_measures_of_bands_are_those_of_methods_with_bands():
    rng = np.random.default_rng(5)
    new = answers(rng, 30, "values")
    names = [name for name in MEASURES if name.startswith("band")]
    assert len(names) == 2 * len(BANDS)
    plain = Reconstructed(new.a, new.truth, None, stated=new, dim=1)
    assert {MEASURES[name].of(plain) for name in names} == {None}
    bands = ConformalBands.of(answers(rng, 60, "values"), None)
    judged = replace(plain, stated=replace(new, bands=bands))
    for name, (band, which) in zip(names, [(b, k) for b in BANDS for k in (0, 1)], strict=True):
        assert np.array_equal(MEASURES[name].of(judged), bands.judged(new, band)[which])
