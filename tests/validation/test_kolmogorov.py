"""Stated errors and statistics of Kolmogorov flows (`python -m tests.validation.kolmogorov`)."""

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from tests.validation.kolmogorov import enstrophies, errors

pytestmark = pytest.mark.slow
QUICK = load_recipe("kolmogorov-quick")


def test_stated_errors_are_within_a_factor_of_two_of_the_true_ones():
    stated, true = errors(QUICK.problem, range(20), 400)
    assert np.mean((true > stated / 2) & (true < 2 * stated)) >= 0.95


def test_the_enstrophy_of_states_does_not_depend_on_the_grid():
    """After 60 units of time, when states of one sample on two grids have parted."""
    problem = QUICK.with_overrides({"burn_in": 60.0}).problem
    coarse, fine = (enstrophies(problem, range(64), n) for n in (64, 96))
    spread = np.hypot(coarse.std(ddof=1), fine.std(ddof=1)) / 8
    assert abs(coarse.mean() - fine.mean()) < 2 * spread
