"""Measures of reconstructed phases."""

import numpy as np
import pytest

from pipelines.runs.score import (
    agreement,
    at_interface,
    hausdorff,
    interface_points,
    intersection_over_union,
    phases,
)


def disc(radius, n=200, centre=0.5):
    x = (np.arange(n) + 0.5) / n
    return (x[:, None] - centre) ** 2 + (x - 0.5) ** 2 < radius**2


def test_discs_one_in_the_other():
    small, large = disc(0.2), disc(0.3)
    inside = 0.2**2 / 0.3**2
    outside = (1 - np.pi * 0.3**2) / (1 - np.pi * 0.2**2)
    assert intersection_over_union(small, large) == pytest.approx((inside + outside) / 2, abs=5e-3)
    assert hausdorff(small, large) == pytest.approx(0.1, abs=1 / 200)
    assert hausdorff(large, small) == hausdorff(small, large)


def test_a_lost_inclusion_counts_in_full():
    assert hausdorff(disc(0.1, centre=0.2) | disc(0.1, centre=0.8), disc(0.1, centre=0.2)) == (
        pytest.approx(0.6, abs=0.02)
    )


def test_without_an_interface():
    none, one = np.zeros((8, 8), bool), disc(0.3, 8)
    assert hausdorff(none, none) == 0
    assert hausdorff(none, one) == np.sqrt(2)
    assert intersection_over_union(none, none) == 1
    assert intersection_over_union(none, ~none) == 0


def test_interface_points_lie_on_faces():
    p = np.zeros((4, 4), bool)
    p[:2] = True
    assert interface_points(p).tolist() == [[0.5, (j + 0.5) / 4] for j in range(4)]


def test_cells_at_an_interface_have_a_face_of_it():
    p = np.zeros((2, 4, 4), bool)
    p[0, 1:] = True
    found = at_interface(p)
    assert found[0].tolist() == [[True] * 4, [True] * 4, [False] * 4, [False] * 4]
    assert not found[1].any()


def test_averaged_cells_belong_to_the_nearer_value():
    assert phases(np.array([[3.0, 7.4], [7.6, 12.0]]), (3.0, 12.0)).tolist() == [
        [False, False], [True, True],
    ]  # fmt: skip


def test_each_sample_agrees_by_its_own_phases():
    truth, found = np.full((3, 4, 4), 3.0), np.full((3, 4, 4), 3.0)
    truth[0, :2], found[0, :1] = 12.0, 9.0
    truth[1, :, 1:], found[1, :, 3:] = 12.0, 9.0
    truth[2, :2] = 12.0
    iou, distance = agreement(found, truth, (3.0, 12.0))
    assert iou.tolist() == pytest.approx(
        [(4 / 8 + 8 / 12) / 2, (4 / 12 + 4 / 12) / 2, (0 + 8 / 16) / 2]
    )
    assert distance.tolist() == pytest.approx([0.25, 0.5, np.sqrt(2)])


def test_both_fields_are_searched_for_the_largest_distance():
    two, one = np.zeros((8, 8), bool), np.zeros((8, 8), bool)
    one[:1], two[:1], two[5:6] = True, True, True
    assert hausdorff(one, two) == hausdorff(two, one) == 5 / 8
    assert hausdorff(one, np.zeros_like(one)) == np.sqrt(2)


def test_interface_points_of_a_corner_lie_along_both_axes():
    p = np.zeros((4, 4), bool)
    p[3, 0] = True
    assert interface_points(p).tolist() == [[0.75, 0.125], [0.875, 0.25]]


def test_cells_on_both_sides_of_a_corner_are_at_the_interface():
    p = np.zeros((2, 4, 5), bool)
    p[0, 2, 1], p[1, 0, 4] = True, True
    first, second = at_interface(p)
    assert {*map(tuple, np.argwhere(first))} == {(2, 1), (1, 1), (3, 1), (2, 0), (2, 2)}
    assert {*map(tuple, np.argwhere(second))} == {(0, 4), (1, 4), (0, 3)}
