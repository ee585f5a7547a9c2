"""Stated errors of PDEBench's family are within a factor of 2 of the true ones."""

import numpy as np
import pytest

from tests.validation.waves import RECIPES, errors

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", RECIPES)
def test_stated_errors_are_within_a_factor_of_two_of_the_true_ones(name):
    stated, true = errors(name, range(20))
    ratio = stated / true
    assert np.mean((ratio > 0.5) & (ratio < 2)) >= 0.95
