"""Subsamples of points, coarse cells and their refusals."""

import re

import numpy as np
import pytest
import torch

from operators.data.resolution import (
    Averaged,
    DataError,
    ResolutionError,
    Strided,
    Subsample,
    allowed_resolutions,
    averaging_weights,
    strides,
)
from pdegen.domains import Box, CellGrid, NodalGrid, PeriodicGrid

MIXED = Box((PeriodicGrid(12, 3.0, -1.0), CellGrid(7, 2.0, 0.5)))
CELLS = Box((CellGrid(8, 2.0, -1.0), CellGrid(12, 3.0, 5.0)))


@pytest.mark.parametrize(
    ("n", "kind", "allowed"),
    [
        (12, "periodic", [1, 2, 3, 4, 6, 12]),
        (13, "nodal", [2, 3, 4, 5, 7, 13]),
        (13, "cloud", [13]),
        (1, "cell", [1]),
        (1, "periodic", [1]),
        (2, "curvilinear", [2]),
    ],
)
def test_resolutions_of_an_axis_are_those_with_equal_steps(n, kind, allowed):
    assert allowed_resolutions(n, kind) == allowed


@pytest.mark.parametrize(
    ("domain", "resolution", "expected"),
    [
        (MIXED, None, (1, 1)),
        (MIXED, (4, 3), (3, 3)),
        (MIXED, (6, 4), (2, 2)),
        (MIXED, (3, 2), (4, 6)),
        (MIXED, 6, (2, 2)),
        (MIXED, 4, (3, 3)),
        (Box.nodal(9, 13), 3, (4, 4)),
        (Box.cell(1, 5), (1, 3), (1, 2)),
    ],
)
def test_strides_give_the_resolution_along_each_axis(domain, resolution, expected):
    assert strides(domain, resolution, "a store") == expected


@pytest.mark.parametrize(
    ("resolution", "message"),
    [
        ((4, 3, 2), "a resolution of a store has 2 axes, got 4 x 3 x 2"),
        ((5, 3), "resolution 5 is not a subsample of the 12 periodic points of a store: possible "
         "are 4 or 6"),
        ((4, 5), "resolution 5 is not a subsample of the 7 cell points of a store: possible are 4 "
         "or 7"),
        (3, "resolution 3 takes every 4-th point, which leaves out the last of the 7 cell points "
         "along y of a store: give one resolution for each axis"),
    ],
)  # fmt: skip
def test_other_resolutions_are_refused(resolution, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        strides(MIXED, resolution, "a store")


@pytest.mark.parametrize(("second", "n"), [(PeriodicGrid, 9), (CellGrid, 7), (NodalGrid, 7)])
def test_a_stride_that_does_not_divide_another_axis_is_refused(second, n):
    """Even where another stride would leave as many points."""
    domain = Box((PeriodicGrid(12), second(n)))
    with pytest.raises(DataError, match=f"every 4-th point, which leaves out the last of the {n} "):
        strides(domain, 3, "a store")


@pytest.mark.parametrize(
    ("resolution", "possible", "text"),
    [(5, 6, "4 or 6"), (13, 12, "12"), (0, 1, "1"), (7, 12, "6 or 12")],
)
def test_the_next_possible_resolution_is_named(resolution, possible, text):
    with pytest.raises(ResolutionError, match=f"possible are {text}$") as error:
        strides(Box.periodic(12), resolution, "a store")
    assert error.value.possible == possible


def test_a_subsample_has_the_points_and_values_of_its_strides():
    lines = [grid.x + 10 for grid in MIXED.grids]
    chosen = Subsample.of(MIXED, (4, 3), None, "a store", lines)
    assert (chosen.stored, chosen.domain.shape) == (MIXED, (4, 3))
    assert (chosen.y, chosen.target_domain) == (None, None)
    assert chosen.input == chosen.target == Strided((3, 3))
    assert chosen.x.dtype == torch.float32
    np.testing.assert_array_equal(chosen.x[:, 0, 0], lines[0][::3].astype(np.float32))
    np.testing.assert_array_equal(chosen.x[0, :, 1], lines[1][::3].astype(np.float32))
    computed = Subsample.of(MIXED, (4, 3), None, "a store")
    np.testing.assert_allclose(computed.x + 10, chosen.x, rtol=1e-6)
    values = np.arange(2 * 12 * 7.0).reshape(2, 12, 7)
    np.testing.assert_array_equal(chosen.input(values), values[:, ::3, ::3])
    assert chosen.input.shape((12, 7)) == (4, 3)


def test_strides_of_one_keep_all_points():
    assert Strided((1, 1)).keeps_all
    assert not Strided((1, 2)).keeps_all
    assert not Strided((2, 2)).keeps_all
    assert not Averaged(()).keeps_all


@pytest.mark.parametrize(
    ("resolution", "sizes"), [(4, (4, 6)), ((4,), (4, 6)), ((3, 5), (3, 5)), ((8, 12), (8, 12))]
)
def test_targets_are_averaged_over_cells_of_the_same_box(resolution, sizes):
    chosen = Subsample.of(CELLS, None, resolution, "a store")
    first, second = chosen.target_domain.grids
    assert first == CellGrid(sizes[0], 2.0, -1.0)
    assert second == CellGrid(sizes[1], 3.0, 5.0)
    np.testing.assert_array_equal(chosen.y[:, 0, 0], first.x.astype(np.float32))
    np.testing.assert_array_equal(chosen.y[0, :, 1], second.x.astype(np.float32))
    assert chosen.y.dtype == torch.float32
    assert chosen.x.shape == (8, 12, 2)
    assert chosen.target.shape((8, 12)) == sizes


@pytest.mark.parametrize(
    ("domain", "resolution", "got"),
    [
        (CELLS, 3, "1 to 8 x 1 to 12 on a cell grid, got 3 on the cell"),
        (CELLS, 9, "1 to 8 x 1 to 12 on a cell grid, got 9 on the cell"),
        (CELLS, (4, 13), "1 to 8 x 1 to 12 on a cell grid, got 4 x 13 on the cell"),
        (CELLS, (4, 0), "1 to 8 x 1 to 12 on a cell grid, got 4 x 0 on the cell"),
        (CELLS, (4, 6, 2), "1 to 8 x 1 to 12 on a cell grid, got 4 x 6 x 2 on the cell"),
        (Box.nodal(9, 9), 3, "1 to 9 on a cell grid, got 3 on the nodal"),
        (MIXED, (4, 3), "1 to 12 x 1 to 7 on a cell grid, got 4 x 3 on the mixed"),
    ],
)
def test_cells_that_cannot_be_averaged_are_refused(domain, resolution, got):
    text = f"target_resolution averages cells: it must be {got} grid of a store"
    with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
        Subsample.of(domain, None, resolution, "a store")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_averages_are_taken_along_their_axes_in_float64(kind):
    first, second = averaging_weights(8, 3), averaging_weights(12, 5)
    values = np.random.default_rng(0).standard_normal((2, 3, 8, 12)).astype(np.float32)
    expected = np.einsum("bcij,ki,lj->bckl", values.astype(float), first, second)
    given = values if kind == "numpy" else torch.from_numpy(values)
    found = Averaged((first, second))(given)
    assert found.dtype == (np.float64 if kind == "numpy" else torch.float64)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-14)


def test_nodal_subsamples_keep_the_ends_of_their_box():
    grid = NodalGrid(13, 3.0, -2.0).every(4)
    assert (grid.n, grid.start, grid.length) == (4, -2.0, 3.0)
    np.testing.assert_allclose(grid.x, [-2, -1, 0, 1], atol=1e-12)
