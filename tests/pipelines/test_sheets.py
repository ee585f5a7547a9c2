"""Panels stand in their rows and columns, with their places, names, scales and bars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box, CellGrid, Cloud
from pipelines.reports import fields
from pipelines.reports.fields import Above, Curves, Functions, Look
from pipelines.reports.figures import WIDE
from pipelines.reports.palette import MODEL, TRUTH
from tests.pipelines.test_drawn_samples import functions

RNG = np.random.default_rng(11)
LONG = Box((CellGrid(6, 2.0, 1.0), CellGrid(4, 1.0, -0.5)))


def test_a_body_comes_down_with_its_speed():
    x, heights = np.array([0.0, 0.5, 2.0]), np.array([[1.0, 0.8, 1.2], [0.5, 0.9, 0.4]])
    outline = Above(x, heights, speed=0.3).at(1, 2.0)
    low = heights[1] - 0.6
    np.testing.assert_allclose(outline[:3], np.stack([x, low], -1))
    np.testing.assert_allclose(outline[3:], [[2.0, low.max() + 0.2], [0.0, low.max() + 0.2]])


def test_a_body_is_read_from_the_upper_side_of_its_block():
    block = functions("h", (5, 4))
    assert Above.of(block) is None
    falling = replace(block, look=Look("h", falls=0.5))
    body = Above.of(falling)
    np.testing.assert_array_equal(body.heights, block.values[:, :, -1, 0])
    np.testing.assert_array_equal(body.x, block.domain.points[:, -1, 0])
    assert body.speed == 0.5
    assert Above.of(replace(functions("h", (5,)), look=Look("h", falls=0.5))) is None


def test_a_panel_shows_the_body_at_its_time_and_the_points_where_they_moved():
    block = functions("w", (5, 4), ("w_x", "w_y"), (0.5, 1.5))
    body = Above(np.array([0.0, 1.0]), np.full((3, 2), 2.0), 1.0)
    moved = replace(block, look=Look("w", moves=True), above=body)
    panel = moved.panel(2, 3)
    np.testing.assert_allclose(panel.over, body.at(2, 1.5))
    np.testing.assert_allclose(
        panel.domain.points, block.domain.points + block.values[2][..., [2, 3]]
    )
    by = replace(moved, by=3 * block.values)
    np.testing.assert_allclose(
        by.panel(2, 0).domain.points, block.domain.points + 3 * block.values[2][..., [0, 1]]
    )
    high = panel.ends[1]
    assert high[1] == pytest.approx(max(panel.domain.points[..., 1].max(), 0.6))
    assert (panel.rim, block.panel(0, 0).rim) == (fields.RIM, 0)


def test_channels_that_are_drawn_are_the_last_ones_of_displacements():
    times = (0.5, 1.0, 1.5, 2.0, 2.5)
    one = functions("w", (5, 4), times=times)
    assert one.chosen(4) == [0, 1, 3, 4]
    assert one.chosen(1) == [4]
    moving = replace(one, look=Look("w", moves=True))
    assert moving.chosen(4) == [1, 2, 3, 4]
    assert moving.chosen(1) == [4]
    both = functions("w", (5, 4), ("p", "q"), times)
    assert both.chosen(4) == [0, 8, 1, 9]
    assert both.chosen(1) == [8]
    assert both.like(3) == [1, 3, 5, 7, 9]
    assert [both.symbol(k) for k in range(3)] == ["p", "q", "p"]
    assert one.symbol(2) == "w"
    assert functions("w", (5, 4), ("part",)).symbol(0) == "part"


def test_a_point_cloud_is_drawn_without_its_padding_in_every_part():
    points = RNG.random((2, 5, 2))
    cells = np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4]])
    domain = Cloud((5,), 2, None, cells, np.array([True, False, True, True, False]))
    cloud = Functions(Look("u"), RNG.normal(size=(2, 5, 1)), (Channel("u"),), domain, points,
                      np.array([4, 5]))  # fmt: skip
    first = cloud.place(0)
    np.testing.assert_array_equal(first.points, points[0, :4])
    np.testing.assert_array_equal(first.cells, cells[:2])
    np.testing.assert_array_equal(first.edge, domain.edge[:4])
    np.testing.assert_array_equal(cloud.of(0, 0), cloud.values[0, :4, 0])
    scale = cloud.scale(0)
    kept = np.concatenate([cloud.values[0, :4], cloud.values[1]])
    assert (scale.vmin, scale.vmax) == (kept.min(), kept.max())


def test_ticks_mark_the_ends_of_the_domain_on_the_lower_and_left_panels():
    one = Functions(Look("u"), RNG.normal(size=(4, 6, 4, 1)), (Channel("u"),), LONG)
    rows = [[one.panel(0, 0), one.panel(1, 0)], [one.panel(2, 0), None]]
    figure = fields.sheet(rows, ["first", "second"], "a title")
    axes = [cell for cell in figure.axes if cell.images]
    assert [cell.get_xlabel() for cell in axes] == ["", "", "x"]
    assert [tick.get_text() for tick in axes[2].get_xticklabels()] == ["1", "3"]
    assert [tick.get_text() for tick in axes[2].get_yticklabels()] == ["-0.5", "0.5"]
    assert [list(cell.get_xticks()) for cell in axes] == [[], [], [1, 3]]
    assert [list(cell.get_yticks()) for cell in axes] == [[-0.5, 0.5], [], [-0.5, 0.5]]
    assert [cell.get_ylabel() for cell in axes] == ["first", "", "second"]
    assert all((cell.get_xlim(), cell.get_ylim()) == ((1, 3), (-0.5, 0.5)) for cell in axes)
    assert figure.get_suptitle() == "a title"
    assert not figure.axes[3].axison
    assert figure.get_size_inches()[0] == WIDE
    assert fields.sheet(rows, width=4.0).get_size_inches()[0] == 4
    assert all(cell.get_aspect() == 1 for cell in axes)


def test_curves_in_a_sheet_have_their_labels_and_legend():
    x, values = np.arange(3.0), np.array([2.0, 5.0, 3.0])
    curves = Curves(
        [(x, values, MODEL, "--", "p"), (x, 2 * values, TRUTH, "-", "u")], "t", "C", True
    )
    (axes,) = fields.sheet([[curves]]).axes
    assert [(c.get_color(), c.get_linestyle(), c.get_label()) for c in axes.lines] == [
        (MODEL, "--", "p"), (TRUTH, "-", "u"),
    ]  # fmt: skip
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), 2 * values)
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")) == ("x", "C", "t")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["p", "u"]
    (axes,) = fields.sheet([[replace(curves, named=False)]]).axes
    assert axes.get_legend() is None


def test_samples_have_columns_and_channels_rows_with_one_scale():
    a, u = functions("a", (5, 4)), functions("u", (5, 4), ("p", "q"))
    rows, names = fields.in_columns([a, u], 4, ["sample 7", "sample 8", "sample 9"])
    assert names == ["", "p", "q"]
    assert [[panel.title for panel in row] for row in rows] == [
        ["sample 7", "sample 8", "sample 9"], ["", "", ""], ["", "", ""],
    ]  # fmt: skip
    assert [[panel.label for panel in row] for row in rows] == [
        [None, None, "a"], [None, None, "u"], [None, None, "u"],
    ]  # fmt: skip
    for row, (of, channel) in zip(rows, [(a, 0), (u, 0), (u, 1)], strict=True):
        values = of.values[..., channel]
        for i, panel in enumerate(row):
            np.testing.assert_array_equal(panel.values, values[i])
            assert (panel.scale.vmin, panel.scale.vmax) == (values.min(), values.max())
    assert fields.wrapped(list(range(10))) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


# scales and views


def test_scales_contain_what_they_are_made_for():
    field, other = np.array([2.0, 5.0]), np.array([-3.0, 4.0])
    for look, ends in (
        (Look("u"), (-3, 5)), (Look("u", "diverging"), (-5, 5)), (Look("u", log=True), (-3, 5)),
    ):  # fmt: skip
        scale = look.scale(field, other)
        assert (scale.vmin, scale.vmax) == ends
        assert not isinstance(scale, LogNorm)
    wide = Look("u", log=True).scale(np.array([0.1, 3.1]), other)
    assert isinstance(wide, LogNorm)
    assert (wide.vmin, wide.vmax, wide.clip) == (0.1, 3.1, True)
    assert Look("u").scale(np.array([1.0]), np.array([7.0])).vmax == 7
    zero = Look("u", "diverging").scale(np.zeros(2))
    assert (zero.vmin, zero.vmax) == (-1, 1)


def test_domains_far_from_a_square_are_not_drawn_with_equal_axes():
    low = np.zeros(2)
    assert fields.sides(low, np.array([2.0, 8.0])) == (4, True)
    assert fields.sides(low, np.array([2.0, 8.5])) == (1, False)
    assert fields.sides(low, np.array([8.5, 2.0])) == (1, False)
    assert fields.sides(low, np.array([0.0, 2.0])) == (1, True)


def test_a_frame_contains_all_domains_and_a_margin():
    axes = Figure().subplots()
    ends = [
        (np.array([0.0, 1.0]), np.array([2.0, 3.0])),
        (np.array([-1.0, 2.0]), np.array([1.0, 5.0])),
    ]
    low, high = fields.framed(axes, ends, 0.1)
    assert (low.tolist(), high.tolist()) == ([-1, 1], [2, 5])
    assert axes.get_xlim() == pytest.approx((-1.4, 2.4))
    assert axes.get_ylim() == pytest.approx((0.6, 5.4))


def test_points_in_space_are_seen_from_above():
    points = RNG.random((7, 3))
    cloud, values = Cloud.of(points), RNG.random(7)
    image = fields.show(Figure().subplots(), cloud, values, "viridis", Normalize(0, 1))
    order = np.argsort(points[:, 2])
    np.testing.assert_array_equal(image.get_offsets(), points[order, :2])
    np.testing.assert_array_equal(image.get_array(), values[order])
    assert fields.layer(cloud, values)[1] == "seen along z"
    middle = fields.layer(Box.cell(3, 3, 4), np.arange(36).reshape(3, 3, 4))
    assert (middle[0][0, 0], middle[1]) == (2, "at z = 0.625")


def test_contours_are_white_lines_within_the_scale():
    domain, values = Box.cell(8, 8), RNG.random((8, 8))
    axes = Figure().subplots()
    fields.contours(axes, domain, values, Normalize(0.0, 1.0))
    (lines,) = axes.collections
    assert 0 < min(lines.levels) < max(lines.levels) < 1
    assert len(lines.levels) > 8
    for nothing in (np.ones((8, 8)), None):
        axes = Figure().subplots()
        other = Box.cell(8) if nothing is None else domain
        fields.contours(
            axes, other, np.arange(8.0) if nothing is None else nothing, Normalize(0, 1)
        )
        assert not axes.collections


def test_blocks_are_drawn_under_their_body_at_the_last_times():
    times = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    truth = functions("w", (5, 4), ("w_x", "w_y"), times)
    truth = replace(truth, values=0.05 * truth.values, look=Look("w", moves=True),
                    above=Above(np.array([0.0, 1.0]), np.full((3, 2), 4.0), 1.0))  # fmt: skip
    values = truth.values + 0.03
    figure = fields.deformed(truth, values, {"best": 2, "worst": 1})
    assert len(figure.axes) == 8
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4]]
    assert titles == [f"t = {time:g}" for time in fields.few(times, 5)[-4:]]
    assert [axes.get_ylabel() for axes in figure.axes[::4]] == ["best", "worst"]
    x = truth.domain.points + values[1][..., 10:12]  # the last panel: worst, t = 3
    body, block = figure.axes[7].patches
    np.testing.assert_allclose(body.get_xy()[:4], truth.above.at(1, 3.0))
    moved = truth.domain.points + truth.values[1][..., 10:12]
    np.testing.assert_allclose(block.get_xy()[:5], moved[:, 0])
    np.testing.assert_allclose(np.stack(figure.axes[7].lines[0].get_data(), -1), x[:, 0])
    np.testing.assert_allclose(np.stack(figure.axes[7].lines[3].get_data(), -1), x[:, -1])
    np.testing.assert_allclose(np.stack(figure.axes[7].lines[4].get_data(), -1), x[0])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["truth", "prediction p"]


def test_the_boundary_of_a_grid_is_walked_once():
    x = np.stack(np.meshgrid(np.arange(3), np.arange(4), indexing="ij"), -1)
    around = fields._around(x)
    assert len(around) == len({tuple(point) for point in around}) == 10
    steps = np.abs(np.diff(np.concatenate([around, around[:1]]), axis=0)).sum(axis=1)
    assert steps.tolist() == [1] * 10
