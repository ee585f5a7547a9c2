"""Eigenfunctions on boxes against exact ones; principal angles."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from benchmarks.attention.sturm_liouville import Line, SturmLiouville, principal_cosines
from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid


def test_between_walls_the_functions_at_equal_spacings_are_sines():
    x = NodalGrid(33).x
    values, u = SturmLiouville((Line(x, walls="dirichlet"),)).eigenfunctions(5)
    j = np.arange(1, 6)
    # of linear elements: the eigenvectors are exact, the eigenvalues 6/h² (1 - cos)/(2 + cos)
    cosine = np.cos(j * np.pi / 32)
    assert values == pytest.approx(6 * 32**2 * (1 - cosine) / (2 + cosine), rel=1e-9)
    sines = np.sin(np.pi * np.outer(x, j))
    assert u.shape == (33, 5)
    for one, sine in zip(u.T, sines.T, strict=True):
        assert principal_cosines(one[:, None], sine[:, None]) == pytest.approx([1.0], abs=1e-12)
    assert np.abs(u[[0, -1]]).max() == 0


def test_in_a_period_they_are_sines_and_cosines():
    x = PeriodicGrid(48, length=2.0).x
    values, u = SturmLiouville((Line(x, 0.0, 2.0, "periodic"),)).eigenfunctions(5)
    assert values / np.pi**2 == pytest.approx([0, 1, 1, 4, 4], abs=0.03)
    waves = [np.ones_like(x), *(f(np.pi * k * x) for k in (1, 2) for f in (np.cos, np.sin))]
    assert principal_cosines(u, np.stack(waves, -1)) == pytest.approx(np.ones(5), abs=1e-12)


@pytest.mark.parametrize("grid", [NodalGrid, CellGrid])
def test_a_coefficient_is_that_of_the_equation(grid):
    """-((1+x)² u')' = λ u, u(0) = u(1) = 0: λ = (πj/log 2)² + 1/4, to second order."""
    errors = []
    for n in (40, 80):
        x = grid(n).x
        problem = SturmLiouville((Line(x, walls="dirichlet"),), (1 + x) ** 2)
        values, u = problem.eigenfunctions(3)
        j = np.arange(1, 4)
        exact = (np.pi * j / np.log(2)) ** 2 + 0.25
        errors.append(np.abs(values / exact - 1).max())
        phase = np.outer(np.log(1 + x), np.pi * j / np.log(2))
        assert np.degrees(subspace_angles(u, np.sin(phase) / (1 + x)[:, None] ** 0.5)).max() < 0.5
    # beyond the outermost cells the coefficient is constant, which is of second order too
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.2)


def test_on_a_square_they_are_products():
    lines = (Line(CellGrid(24).x, walls="dirichlet"), Line(NodalGrid(21).x, walls="dirichlet"))
    values, u = SturmLiouville(lines).eigenfunctions(8)
    assert u.shape == (24, 21, 8)
    assert values / np.pi**2 == pytest.approx([2, 5, 5, 8, 10, 10, 13, 13], rel=0.03)
    x, y = (line.x for line in lines)
    pairs = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2)]
    exact = [np.outer(np.sin(i * np.pi * x), np.sin(j * np.pi * y)).ravel() for i, j in pairs]
    angles = np.degrees(subspace_angles(u.reshape(-1, 8), np.stack(exact, -1)))
    assert angles.max() < 3


@pytest.mark.parametrize(
    ("x", "message"), [([0.0, 0.5, 0.5], "rising"), ([0.0, 1.5], "points lie in"), ([0.5], "two")]
)
def test_impossible_points_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        Line(np.array(x))
