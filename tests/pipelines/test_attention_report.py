"""What reports say of attention: functions beside those of the equation, spectra, agreement."""

import numpy as np
import pytest

from pdegen.domains import Box, NodalGrid
from pdegen.numerics.sturm_liouville import Line, SturmLiouville
from pipelines.reports import attention
from pipelines.reports.attention import agreement
from tests.pipelines.conftest import SMALL, a_run


def test_features_that_span_the_eigenfunctions_agree_with_them():
    _, e = SturmLiouville((Line(NodalGrid(65).x, walls="dirichlet"),)).eigenfunctions(4)
    share, cosines = agreement(e @ np.random.default_rng(0).standard_normal((4, 9)), e)
    assert share == pytest.approx(1)
    assert cosines == pytest.approx(np.ones(4))


def test_features_beside_the_eigenfunctions_do_not():
    e = np.eye(10)[:, :2]
    share, cosines = agreement(3 * np.eye(10)[:, 4:9], e)
    assert share == 0
    assert cosines == pytest.approx(np.zeros(2))


def test_the_leading_functions_are_compared():
    """The leading one holds 9 of 10 parts of the energy, half of it along the eigenfunction."""
    e, features = np.eye(4)[:, :1], np.zeros((4, 2))
    features[:, 0], features[3, 1] = [3 * 0.5**0.5, 3 * 0.5**0.5, 0, 0], 1
    turned = features @ np.array([[1, -1], [1, 1]]) / 2**0.5  # the features are mixtures
    share, cosines = agreement(turned, e)
    assert share == pytest.approx(0.45)
    assert cosines**2 == pytest.approx([0.5])


def section(run):
    text = (run / "report.md").read_text("utf-8")
    return text.partition("## What attention does")[2].partition("\n## ")[0]


def test_on_a_circle_functions_stand_beside_fourier_modes(finished):
    text = section(finished[0])
    assert "the first 8 eigenfunctions, −Δ on the period" in text
    assert "the 16 points that attention sees" in text
    [row] = [line for line in text.splitlines() if line.startswith("| 1 |")]
    _, ratio, rank, of_features, share, agreed, *angles = row.strip("| ").split(" | ")
    assert float(ratio) > 0
    assert 1 <= float(rank.split()[0]) <= float(rank.split()[-1]) == 9  # 8 features and x
    assert 1 <= float(of_features.split()[0]) <= 8
    assert 0 < float(share) <= 1
    assert 0 < float(agreed) <= 1
    assert 0 <= float(angles[0][:-1]) <= float(angles[1][:-1]) <= 90
    assert (finished[0] / "pictures" / "attention-functions.svg").exists()
    assert (finished[0] / "pictures" / "attention-spectra.svg").exists()


def test_of_darcy_they_are_those_of_the_sample(darcy):
    text = section(darcy[0])
    assert "the first 8 eigenfunctions, −∇·(a∇) with zero values at the walls" in text
    assert "the 7 x 7 points that attention sees" in text


def test_of_the_inverse_problem_they_are_those_of_the_laplacian(inverse):
    assert "−Δ with zero values at the walls" in section(inverse[0])


def test_without_attention_there_is_no_section(tmp_path_factory):
    changes = {**SMALL, "training.epochs": 1, "model.attention": "none"}
    run, _ = a_run(tmp_path_factory, "no-attention", changes)
    assert not section(run)


def test_a_coarse_grid_lies_between_the_same_points():
    grid = attention._coarse(Box.cell(16).grids[0], 5)
    assert grid.x == pytest.approx(np.linspace(1 / 32, 31 / 32, 5))
