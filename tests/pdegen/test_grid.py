import numpy as np
import pytest

from pdegen.domains import CellGrid, NodalGrid, PeriodicGrid
from pdegen.numerics.spectral import wave_numbers


def test_the_points_start_at_zero_and_do_not_repeat_the_end():
    grid = PeriodicGrid(64)
    assert grid.x[0] == 0
    assert grid.x[-1] == 63 / 64
    assert grid.x.shape == (64,)
    np.testing.assert_array_equal(np.diff(grid.x), grid.spacing)


def test_the_spacing_integrates_trigonometric_polynomials_exactly():
    grid = PeriodicGrid(16)
    values = 2 + np.cos(2 * np.pi * 7 * grid.x)
    assert grid.spacing * values.sum() == pytest.approx(2, abs=1e-14)  # a few roundings


@pytest.mark.parametrize("n", [2, 3, 7, 65])
def test_an_odd_or_tiny_number_of_points_has_no_fourier_space(n):
    with pytest.raises(ValueError, match=f"even number of points >= 4, got {n}"):
        wave_numbers(PeriodicGrid(n))


def test_every_stride_th_fine_point_is_a_coarse_point():
    fine, coarse = PeriodicGrid(8192), PeriodicGrid(512)
    np.testing.assert_array_equal(fine.x[:: fine.stride_to(coarse)], coarse.x)
    assert fine.stride_to(fine) == 1


@pytest.mark.parametrize("n", [-2, 0])
def test_a_grid_without_points_is_refused(n):
    with pytest.raises(ValueError, match=f"at least one point, got {n}"):
        PeriodicGrid(n)


@pytest.mark.parametrize("coarse", [6, 128])
def test_points_that_are_not_a_part_of_the_grid_are_refused(coarse):
    with pytest.raises(ValueError, match=f"{coarse} points is not a part of one of 64"):
        PeriodicGrid(64).stride_to(PeriodicGrid(coarse))


def test_cell_centres_tile_the_interval():
    grid = CellGrid(5)
    assert grid.x == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert grid.spacing * grid.n == 1
    with pytest.raises(ValueError, match="at least one cell, got 0"):
        CellGrid(0)


def test_nodes_hold_both_ends():
    grid = NodalGrid(5)
    assert grid.x.tolist() == [0, 0.25, 0.5, 0.75, 1]
    # the trapezoidal rule is exact for linear functions
    assert grid.weights @ (2 + 3 * grid.x) == pytest.approx(3.5)
    with pytest.raises(ValueError, match="at least its two ends, got 1"):
        NodalGrid(1)
