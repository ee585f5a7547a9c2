"""Stated errors of semilinear equations in space, between walls and with a projection, against
finite differences (`tests.validation.differences`)."""

import numpy as np
import pytest

from tests.validation.differences import FORMS, ratios

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FORMS)
def test_the_stated_error_is_within_a_factor_of_two_of_the_true_one(name):
    """In 95 % of the samples; the differences are far more exact."""
    _, ratio = ratios(name)
    assert np.mean((ratio > 1 / 2) & (ratio < 2)) >= 0.95, np.sort(ratio)
