"""The benchmark of chains: it counts rightly, goes on, and its data are what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.posterior import calibrated, cases

SHARES = list(cases.BLOCKS)


def row(number: int, truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    uniform = np.random.default_rng(number).random(truth.shape)
    found = calibrated.quantities(values, truth, uniform)
    return {"sample": cases.KNOWN + number, "seconds": 0.0} | dict.fromkeys(SHARES, found)


def test_members_of_the_law_of_the_truth_cover_as_they_should() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((400, 400, 3))
    drawn[..., 2] = np.maximum(drawn[..., 2], 0.3)  # 0.3 with the probability 0.62
    rows = [row(k, one[0], one[1:]) for k, one in enumerate(drawn)]
    summary, histogram = calibrated.summed(rows, SHARES[0])
    assert summary["intervals"] == 1200
    # 1,200 intervals: an error of 0.9 %
    assert summary["in the middle"] == pytest.approx(0.9, abs=0.025)
    assert summary["error of in the middle"] == pytest.approx(0.0087, rel=0.2)
    # an end of the interval that many truths are equal to holds them all
    assert summary["held"] == pytest.approx((0.9 + 0.9 + 0.95) / 3, abs=0.025)
    assert histogram.sum() == 1200
    assert histogram.std() < 2 * np.sqrt(60)
    # members that are too near to each other are seen
    narrow = [row(k, one[0], 0.5 * one[1:]) for k, one in enumerate(drawn[..., :2])]
    assert calibrated.summed(narrow, SHARES[0])[0]["in the middle"] < 0.65
