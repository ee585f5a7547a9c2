"""Measures of reconstructions by hand."""

import numpy as np
import pytest

from pdegen.inverse.classical import Estimate
from pipelines.studies.noise import MEASURES, Reconstructed, measured

TRUTH = np.array([[[3.0, 12.0], [12.0, 12.0]]])
FOUND = np.array([[[3.0, 9.0], [6.0, 12.0]]])


def of(**words):
    return measured(Reconstructed(FOUND, TRUTH, (3.0, 12.0), **words))


def test_errors_and_areas():
    found = of()
    assert found["errors"] == pytest.approx([np.sqrt(45 / 441)])
    assert found["l1"] == pytest.approx([9 / 39])
    assert found["misclassified"] == [0.25]  # 6 is below the middle of 3 and 12
    assert found["iou"] == [(2 / 3 + 1 / 2) / 2]


def test_measures_that_a_method_does_not_have_are_left_out():
    assert of().keys() == MEASURES.keys() - {"misfit", "brier", "coverage", "miscalibration"}
    plain = (Estimate(TRUTH[0], 1, 1, converged=True),)
    assert "brier" not in of(estimates=plain, cells=TRUTH)
    assert of(misfits=np.array([1.5]))["misfit"] == [1.5]


def test_stated_probabilities_are_scored_in_the_cells_of_the_method():
    """p = 1/9 where the upper phase is wrong, 2/3 and 1/3 where it is true, and 1."""
    a = np.array([[4.0, 9.0], [6.0, 12.0]])
    found = of(estimates=(Estimate(a, 1, 1, True, np.ones((2, 2))),), cells=TRUTH)
    assert found["brier"] == pytest.approx([(1 / 81 + 1 / 9 + 4 / 9) / 4])
    assert found["coverage"] == [1]
    assert found["miscalibration"] == pytest.approx([(1 / 9 + 1 / 3 + 2 / 3) / 4])
    wrong = (Estimate(15 - TRUTH[0], 1, 1, True, np.ones((2, 2))),)
    assert of(estimates=wrong, cells=TRUTH)["coverage"] == [0]


def test_reconstructions_that_failed_have_infinite_errors():
    truth = np.stack([TRUTH[0], TRUTH[0], 0 * TRUTH[0]])
    found = np.stack([np.full((2, 2), np.nan), FOUND[0], FOUND[0]])
    errors = measured(Reconstructed(found, truth, (3.0, 12.0)))["errors"]
    assert errors == pytest.approx([np.inf, np.sqrt(45 / 441), np.nan], nan_ok=True)


PHASES = (3.0, 12.0)


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
    scores = measured(Reconstructed(found, truth, None, None, estimates, truth))
    inside = abs(found - truth) <= 1.6448536 * std
    assert scores["coverage"] == pytest.approx(inside.mean(axis=(1, 2)).tolist())
    assert len({*scores["coverage"]}) > 1
    assert scores.keys() == {"errors", "l1", "coverage"}


def test_no_coverage_is_counted_where_one_estimate_states_no_deviation():
    found, truth = three()
    estimates = [Estimate(a, 1, 1, True, None if k else found[k]) for k, a in enumerate(found)]
    for values in (None, PHASES):
        scores = measured(Reconstructed(found, truth, values, None, estimates, truth))
        assert not scores.keys() & {"coverage", "brier", "miscalibration"}
    stated = [Estimate(a, 1, 1, True, a) for a in found]
    assert "coverage" not in measured(Reconstructed(found, truth, None, None, stated))


def test_stated_probabilities_of_several_samples_are_their_own():
    found, truth = three()
    estimates = [Estimate(a, 1, 1, True, a) for a in found]
    scores = measured(Reconstructed(found, truth, PHASES, None, estimates, truth))
    p, true = (found - 3) / 9, truth == 12
    for k in range(3):
        assert scores["brier"][k] == pytest.approx(((p[k] - true[k]) ** 2).mean())
        least = np.where(true[k], p[k], 1 - p[k])
        assert scores["coverage"][k] == pytest.approx((least > 0.1).mean())
        bins = np.minimum((10 * p[k]).astype(int), 9)
        off = sum(abs((p[k] - true[k])[bins == b].sum()) for b in range(10) if (bins == b).any())
        assert scores["miscalibration"][k] == pytest.approx(off / 6)
