"""Stated errors of Darcy recipes with laws of their inputs are within a factor of 2 of the true."""

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from tests.validation.darcy import RECIPES, errors

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", RECIPES)
def test_stated_errors_are_within_a_factor_of_two_of_the_true_ones(name):
    stated, true = errors(load_recipe(name), range(40))
    ratio = stated / true
    assert np.mean((ratio > 0.5) & (ratio < 2)) >= 0.95
