"""Stated probabilities of a phase."""

import numpy as np
import pytest

from pipelines.studies.noise import brier, reliability


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
