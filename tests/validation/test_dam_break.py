"""Stated errors of dam breaks against another radial scheme, and that of plane finite volumes."""

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from tests.validation.dam_break import errors, published_like

pytestmark = pytest.mark.slow


def test_stated_errors_are_within_a_factor_of_two_of_the_true_ones():
    stated, true = errors("dam-break-quick", range(20), 4000)
    ratio = stated / true
    assert np.mean((ratio > 0.5) & (ratio < 2)) >= 0.95


def test_plane_finite_volumes_agree_up_to_their_own_error():
    numbers = {"radius": 0.5, "times": [1.0], "resolution": 128, "rings": 1000}
    exact = load_recipe("dam-break").with_overrides(numbers).problem.compute(0, range(1))["u"][0]
    distance = np.linalg.norm(published_like(128, 0.5, 1.0) - exact) / np.linalg.norm(exact - 1)
    assert 0.05 < distance < 0.15
