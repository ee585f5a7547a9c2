"""The published three-step scheme."""

import numpy as np
import pytest
from scipy.interpolate import RectBivariateSpline

from pdegen.domains import CellGrid, NodalGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.published import PublishedScheme
from pdegen.sampling.gaussian import SquareGaussianField


@pytest.fixture(scope="module")
def a():
    field = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 85)
    return np.where(field(CellGrid(85), 0, [0, 1]) >= 0, 12.0, 3.0)


def test_smooth_coefficients_are_solved_to_second_order():
    def error(n):
        x, y = np.meshgrid(CellGrid(n).x, CellGrid(n).x, indexing="ij")
        a = (2 + np.sin(3 * x) * np.cos(2 * y))[None]
        fine = FiniteVolume(CellGrid(9 * n), rtol=1e-10)
        x, y = np.meshgrid(CellGrid(9 * n).x, CellGrid(9 * n).x, indexing="ij")
        exact = fine((2 + np.sin(3 * x) * np.cos(2 * y))[None])[:, 4::9, 4::9]
        return np.linalg.norm(PublishedScheme(CellGrid(n))(a) - exact) / np.linalg.norm(exact)

    assert np.log2(error(15) / error(30)) == pytest.approx(2, abs=0.2)


def test_splines_agree_with_fitpack_inside(a):
    """FITPACK's interpolating bicubic spline has the same knots, but does not extrapolate."""
    grid = CellGrid(85)
    x, nodes = grid.x, NodalGrid(85).x
    expected = RectBivariateSpline(x, x, a[0])(nodes[1:-1], nodes[1:-1])
    got = PublishedScheme(grid).nodal_coefficient(a)[0, 1:-1, 1:-1]
    assert abs(got - expected).max() < 1e-9


def test_labels_are_off_by_a_few_tenths_of_a_per_cent(a):
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    exact = FiniteVolume(CellGrid(255))(fine)[:, 1::3, 1::3]
    size = np.linalg.norm(exact, axis=(1, 2))

    def errors(solver):
        return np.linalg.norm(solver(a) - exact, axis=(1, 2)) / size

    published, ours = errors(PublishedScheme(CellGrid(85))), errors(FiniteVolume(CellGrid(85)))
    assert ((published > 2e-3) & (published < 2e-2)).all()  # 0.35-0.9 % at 85 cells
    assert (ours < published / 2).all()


def test_the_residual_is_small(a):
    solution = PublishedScheme(CellGrid(85)).solve(a)
    assert solution.residual.max() < 1e-9
    assert (solution.iterations == 0).all()
