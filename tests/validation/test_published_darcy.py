"""Interface Darcy as published: one of its samples, and the statistics of its distribution."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.published import PublishedScheme
from pdegen.recipe import load_recipe
from tests.validation.published import file as published_file

SOLVERS = pytest.mark.parametrize(
    "solver", [FiniteVolume(CellGrid(421)), PublishedScheme(CellGrid(421))], ids=["ours", "theirs"]
)


@pytest.fixture(scope="module")
def published(root):
    """A solution on 211 x 211 points with 5 % noise, and where its coefficient is 12."""
    with np.load(published_file(root, "real_darcy_1.npz")) as file:
        u, picture = file["sol_211_noisy5pct"].astype(float), file["coeff_is12_mask_323"]
    pixel = (CellGrid(421).x * len(picture)).astype(int)  # the picture has other pixels
    return u, picture[np.ix_(pixel, pixel)][None]


def misfit(solver, phases, u, low=3.0):
    """‖solution - u‖/‖u‖ on every second of 421 cells, and the factor that fits u best."""
    solution = solver(np.where(phases, 12.0, low))[0, ::2, ::2]
    factor = (solution * u).sum() / (solution**2).sum()
    return np.linalg.norm(solution - u) / np.linalg.norm(u), factor


@SOLVERS
def test_the_published_field_is_met_up_to_its_noise(published, solver):
    u, phases = published
    error, factor = misfit(solver, phases, u)
    assert 0.012 <= error <= 0.014  # what 5 % of the pointwise deviation is of the norm
    assert factor == pytest.approx(1, abs=2e-3)  # so f = 1, nothing is rescaled


def test_other_conventions_do_not_meet_it(published):
    u, phases = published
    solver = FiniteVolume(CellGrid(421))
    assert misfit(solver, phases, u, low=4.0)[0] > 0.1  # as the script demo.m has it
    assert misfit(solver, phases.swapaxes(1, 2), u)[0] > 0.05
    assert misfit(solver, phases[:, ::-1], u)[0] > 0.05


def test_statistics_of_the_law():
    """Over 400 samples on 85 x 85 cells; the published files have std(u) = 3.884e-3."""
    recipe = load_recipe("darcy-85").with_overrides({"refinement": 1})
    values = recipe.problem.compute(0, range(400))
    a, u = values["a"].astype(float), values["u"].astype(float)
    assert u.mean() == pytest.approx(5.71e-3, rel=0.02)
    assert u.std() == pytest.approx(3.85e-3, rel=0.02)
    assert np.sqrt((u**2).mean()) == pytest.approx(6.9e-3, rel=0.02)
    assert u.max(axis=(1, 2)).mean() == pytest.approx(1.32e-2, rel=0.02)
    assert u[:, 42, 42].mean() == pytest.approx(1.139e-2, rel=0.02)
    assert u[:, 42, 42].std() == pytest.approx(1.34e-3, rel=0.15)
    share = (a == 12).mean(axis=(1, 2))
    assert share.mean() == pytest.approx(0.5, abs=4 * 0.058 / 20)  # 400 samples
    assert share.std() == pytest.approx(0.058, rel=0.15)
    assert a.std() == pytest.approx(4.49996, rel=1e-3)
    predictor = np.linalg.norm(u - u.mean(axis=0), axis=(1, 2)) / np.linalg.norm(u, axis=(1, 2))
    assert predictor.mean() == pytest.approx(0.25, abs=0.02)


@pytest.mark.slow
def test_statistics_of_the_lognormal_law():
    values = load_recipe("darcy-lognormal").problem.compute(0, range(100))
    u = values["u"].astype(float)
    assert u.mean() == pytest.approx(0.0354, rel=0.05)
    assert u.std() == pytest.approx(0.0221, rel=0.05)
    assert u.max(axis=(1, 2)).mean() == pytest.approx(0.075, rel=0.05)


@pytest.mark.slow
def test_the_outermost_points_of_the_published_scheme_are_not_zero():
    """On every fifth of 421 cells the published file has there mean |u| = 5.17e-5."""
    values = load_recipe("darcy-421-published").problem.compute(0, range(24))
    u = abs(values["u"][:, ::5, ::5].astype(float))
    ring = np.concatenate([u[:, 0], u[:, -1], u[:, 1:-1, 0], u[:, 1:-1, -1]], axis=1)
    assert ring.mean() == pytest.approx(5.17e-5, rel=0.05)
