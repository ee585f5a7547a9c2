"""Measures of reconstructions by hand."""

import numpy as np
import pytest

from pdegen.inverse.classical import Estimate
from pipelines.studies.scores import (
    BAND_MEASURES,
    MEASURES,
    Reconstructed,
    Stated,
    block_means,
    measured,
)

TRUTH = np.array([[[3.0, 12.0], [12.0, 12.0]]])
PHASES = (3.0, 12.0)
FOUND = np.array([[[3.0, 9.0], [6.0, 12.0]]])


def of(estimates=(), cells=None, **words):
    stated = Stated.of(estimates, cells, PHASES) if estimates else None
    return measured(Reconstructed(FOUND, TRUTH, PHASES, stated=stated, **words))


def test_errors_and_areas():
    found = of()
    assert found["errors"] == pytest.approx([np.sqrt(45 / 441)])
    assert found["l1"] == pytest.approx([9 / 39])
    assert found["misclassified"] == [0.25]  # 6 is below the middle of 3 and 12
    assert found["iou"] == [(2 / 3 + 1 / 2) / 2]
    assert found["iou_upper"] == [2 / 3]
    # shares 0, 2/3, 1/3, 1 of the upper phase where 0, 1, 1, 1 are true; each cell has 4 blocks
    assert found["crps"] == pytest.approx([(1 / 3 + 2 / 3) / 4])


STATING = {"brier", "set_coverage", "set_size"}
DRAWING = {"coverage", "width"}
POINTS = {"points", "points_width", "points_crps"}


def test_measures_that_a_method_does_not_have_are_left_out():
    assert of().keys() == MEASURES.keys() - STATING - DRAWING - {"misfit", *POINTS, *BAND_MEASURES}
    plain = (Estimate(TRUTH[0], 1, 1, converged=True),)
    assert not of(plain, TRUTH).keys() & STATING
    assert of(misfits=np.array([1.5]))["misfit"] == [1.5]


def test_stated_probabilities_are_scored_in_the_cells_of_the_method():
    """p = 1/9 where the upper phase is wrong, 2/3 and 1/3 where it is true, and 1."""
    a = np.array([[4.0, 9.0], [6.0, 12.0]])
    found = of((Estimate(a, 1, 1, True, np.ones((2, 2))),), TRUTH)
    assert found["brier"] == pytest.approx([(1 / 81 + 1 / 9 + 4 / 9) / 4])
    assert found["set_coverage"] == [1]
    assert found["set_size"] == [(2 + 2 + 2 + 1) / 4]
    wrong = (Estimate(15 - TRUTH[0], 1, 1, True, np.ones((2, 2))),)
    assert of(wrong, TRUTH)["set_coverage"] == [0]


def test_reconstructions_that_failed_have_infinite_errors():
    truth = np.stack([TRUTH[0], TRUTH[0], 0 * TRUTH[0]])
    found = np.stack([np.full((2, 2), np.nan), FOUND[0], FOUND[0]])
    errors = measured(Reconstructed(found, truth, (3.0, 12.0)))["errors"]
    assert errors == pytest.approx([np.inf, np.sqrt(45 / 441), np.nan], nan_ok=True)


def three() -> tuple[np.ndarray, np.ndarray]:
    """Found and true fields of three samples with 2 x 3 cells."""
    rng = np.random.default_rng(0)
    return rng.uniform(3, 12, (3, 2, 3)), rng.choice(PHASES, (3, 2, 3))


def test_errors_of_several_samples_are_their_own():
    found, truth = three()
    scores = measured(Reconstructed(found, truth, PHASES, misfits=np.array([0.5, 1.5, 2.5])))
    off = abs(found - truth)
    for k in range(3):
        norm = np.sqrt((off[k] ** 2).sum() / (truth[k] ** 2).sum())
        assert scores["errors"][k] == pytest.approx(norm)
        assert scores["l1"][k] == pytest.approx(off[k].sum() / truth[k].sum())
        wrong = (found[k] > 7.5) != (truth[k] > 7.5)
        assert scores["misclassified"][k] == pytest.approx(wrong.mean())
    assert scores["misfit"] == [0.5, 1.5, 2.5]


def test_phases_of_squares_agree_by_iou_and_distance():
    truth, found = np.full((2, 4, 4), 3.0), np.full((2, 4, 4), 3.0)
    truth[0, :2], found[0, :1], truth[1, 1:], found[1, 3:] = 12, 9, 12, 9
    scores = measured(Reconstructed(found, truth, PHASES))
    assert scores["iou"] == pytest.approx([(4 / 8 + 8 / 12) / 2, (4 / 12 + 4 / 12) / 2])
    assert scores["hausdorff"] == pytest.approx([0.25, 0.5])


def test_fields_without_phases_are_covered_by_intervals():
    found, truth = three()
    std = np.linspace(0.5, 6, 18).reshape(3, 2, 3)
    estimates = [Estimate(a, 1, 1, True, s) for a, s in zip(found, std, strict=True)]
    scores = measured(Reconstructed(found, truth, None, stated=Stated.of(estimates, truth, None)))
    inside = abs(found - truth) <= 1.6448536 * std
    assert scores["points"] == pytest.approx(inside.mean(axis=(1, 2)).tolist())
    assert len({*scores["points"]}) > 1
    assert scores.keys() == {"errors", "l1", "crps"} | POINTS


def test_nothing_is_scored_where_one_estimate_states_nothing():
    found, truth = three()
    estimates = [Estimate(a, 1, 1, True, None if k else found[k]) for k, a in enumerate(found)]
    for values in (None, PHASES):
        stated = Stated.of(estimates, truth, values)
        scores = measured(Reconstructed(found, truth, values, stated=stated))
        assert not scores.keys() & (STATING | {"points"})


def test_stated_probabilities_of_several_samples_are_their_own():
    found, truth = three()
    estimates = [Estimate(a, 1, 1, True, a) for a in found]
    stated = Stated.of(estimates, truth, PHASES)
    scores = measured(Reconstructed(found, truth, PHASES, stated=stated))
    p, true = (found - 3) / 9, truth == 12
    for k in range(3):
        assert scores["brier"][k] == pytest.approx(((p[k] - true[k]) ** 2).mean())
        least = np.where(true[k], p[k], 1 - p[k])
        assert scores["set_coverage"][k] == pytest.approx((least > 0.1).mean())


# what theory says of known answers, for shares of random phases


def blobs(samples=200, cells=24, seed=0):
    """Two-phase fields of independent 4 x 4 patches, and the shares in 4 x 4 blocks."""
    rng = np.random.default_rng(seed)
    patches = rng.random((samples, cells // 4, cells // 4)) < 0.5
    upper = patches.repeat(4, axis=1).repeat(4, axis=2)
    return np.where(upper, 12.0, 3.0), block_means(upper.astype(float), 2)


def test_the_truth_as_an_answer_scores_zero():
    truth, _ = blobs()
    scores = measured(Reconstructed(truth, truth, PHASES))
    for name in ("errors", "misclassified", "crps", "hausdorff", "l1"):
        assert scores[name] == [0.0] * 200
    assert scores["iou_upper"] == [1.0] * 200


def test_half_everywhere_scores_the_distance_of_the_shares_from_a_half():
    truth, shares = blobs()
    half = np.full_like(truth, 7.5)
    stated = Stated(truth, half, probability=np.full_like(truth, 0.5))
    scores = measured(Reconstructed(half, truth, PHASES, stated=stated))
    assert scores["crps"] == pytest.approx(abs(shares - 0.5).mean(axis=1).tolist())
    assert scores["misclassified"] == pytest.approx((truth == 12).mean(axis=(1, 2)).tolist())
    assert set(scores["set_size"]) == {2.0}
    assert set(scores["brier"]) == {0.25}


def drawn(truth, spread, seed):
    """Draws of the law of `blobs`, of which a share 1 - spread of patches is that of one draw."""
    rng = np.random.default_rng(seed)
    fields = np.stack([blobs(len(truth), truth.shape[1], seed=(seed, k))[0] for k in range(20)])
    keep = rng.random((1, len(truth), 6, 6)) < 1 - spread
    kept = keep.repeat(4, axis=2).repeat(4, axis=3)
    return np.where(kept, fields[:1], fields[1:])


def test_intervals_that_are_too_narrow_are_seen_by_coverage_and_crps():
    truth, _ = blobs()
    results = dict[float, tuple[float, ...]]()
    for spread in (1.0, 0.3):
        draws = drawn(truth, spread, seed=1)
        stated = Stated(truth, draws.mean(axis=0), draws=draws)
        scores = measured(Reconstructed(draws.mean(axis=0), truth, PHASES, stated=stated))
        results[spread] = tuple(np.mean(scores[name]) for name in ("coverage", "width", "crps"))
    # shares are multiples of 1/9 or 1/36 with ties, so true intervals cover a little more
    assert 0.88 < results[1.0][0] < 0.99
    assert results[0.3][0] < results[1.0][0] - 0.1
    assert results[0.3][1] < results[1.0][1]
    assert results[0.3][2] > 1.1 * results[1.0][2]


def test_draws_are_thresholded_and_few_of_them_make_no_interval():
    truth = blobs(4)[0]
    blurred = np.stack([truth * 0.9 + 0.75, truth * 0.9 + 0.75])  # 3.45 and 11.55
    stated = Stated(truth, blurred.mean(axis=0), draws=blurred)
    scores = measured(Reconstructed(blurred.mean(axis=0), truth, PHASES, stated=stated))
    assert scores["crps"] == [0.0] * 4
    assert not scores.keys() & DRAWING


def test_draws_of_fields_without_phases_are_scored_in_their_unit():
    rng = np.random.default_rng(2)
    truth, draws = rng.standard_normal((300, 16)), rng.standard_normal((19, 300, 16))
    stated = Stated(truth, draws.mean(axis=0), draws=draws)
    scores = measured(Reconstructed(draws.mean(axis=0), truth, None, stated=stated, dim=1))
    # means of 4 independent values: deviation 1/2, whose CRPS is 1/(2 √π)
    assert np.mean(scores["crps"]) == pytest.approx(0.5 * np.pi**-0.5, rel=0.06)
    assert np.mean(scores["coverage"]) == pytest.approx(0.9, abs=0.03)
    assert "crps" not in measured(Reconstructed(truth, truth, None, dim=0))
