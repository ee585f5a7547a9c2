"""Stated errors of waves against Fourier's Laplacian and the leapfrog scheme."""

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from tests.validation.wave import errors

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "finer"), [("wave-quick", 4), ("wave-layers", 8)])
def test_stated_errors_are_within_a_factor_of_two(name, finer):
    recipe = load_recipe(name).with_overrides({"problem.resolution": 32})
    stated, true = errors(recipe.problem, range(100, 120), finer)
    assert np.mean((stated / true > 0.5) & (stated / true < 2)) >= 0.95
