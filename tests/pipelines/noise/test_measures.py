"""Measures of reconstructions by hand."""

import numpy as np
import pytest

from pdegen.inverse.classical import Estimate
from pipelines.studies.noise_measures import MEASURES, Reconstructed, measured

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
