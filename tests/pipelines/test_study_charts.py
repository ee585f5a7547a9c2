"""Every curve, mark, tick and label of the charts of a study."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import LogNorm

from pipelines.reports import figures
from pipelines.reports.figures import HALF, WIDE, Style, styles
from pipelines.reports.palette import QUIET
from tests.pipelines.test_charts import labels_of, legend_of

AT = [1.0, 2.0, 4.0]
SERIES = {"p": (AT, [0.5, 0.02, 0.3]), "q": (AT, [0.1, 0.2, 0.07])}


def test_curves_have_the_styles_ticks_and_limits_that_they_are_given():
    looks = {"p": Style("#112233", "--", "D"), "q": Style("#445566", ":", "s")}
    figure = figures.curves(
        SERIES, "level", "error", looks=looks, ticks={1.0: "one", 4.0: "four"}, width=HALF,
        ends=[2.0, 0.01], trained=2.0,
    )  # fmt: skip
    (axes,) = figure.axes
    first, second = (container.lines[0] for container in axes.containers)
    assert [(c.get_color(), c.get_linestyle(), c.get_marker()) for c in (first, second)] == [
        ("#112233", "--", "D"), ("#445566", ":", "s"),
    ]  # fmt: skip
    assert labels_of(axes) == ("level", "error", "linear", "log")
    assert axes.get_xticks().tolist() == [1, 4]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["one", "four"]
    assert axes.get_ylim() == (0.01, 2.0)
    assert figure.get_size_inches()[0] == HALF
    mark = axes.lines[-1]
    assert (mark.get_xdata()[0], mark.get_color(), mark.get_linestyle()) == (2, QUIET, ":")
    assert sorted(legend_of(figure)) == ["grid of training", "p", "q"]


def test_curves_have_the_styles_of_their_names_unless_they_are_given():
    (axes,) = figures.curves(SERIES, "x", markers=False, log=True).axes
    lines = [container.lines[0] for container in axes.containers]
    assert [line.get_color() for line in lines] == [styles([*SERIES])[n].colour for n in SERIES]
    assert [line.get_marker() for line in lines] == ["", ""]
    assert labels_of(axes) == ("x", "mean relative L² error", "log", "log")
    (axes,) = figures.curves(SERIES, "x").axes
    assert [container.lines[0].get_marker() for container in axes.containers] == [
        style.marker for style in styles([*SERIES]).values()
    ]


def test_crosses_mark_the_failed_points_of_their_curve():
    crossed = [[False, False, False], [True, False, True]]
    (axes,) = figures.curves(SERIES, "x", crossed=crossed).axes
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [line.get_xydata().tolist() for line in crosses] == [[[1, 0.1], [4, 0.07]]]


def test_an_error_bar_that_contains_zero_ends_at_the_axis():
    spreads = [[0.1, 0.05, 0.2], [0.01, 0.02, 0.03]]
    (axes,) = figures.curves(SERIES, "x", spreads=spreads).axes
    low, high = axes.get_ylim()
    assert (low, high) == (pytest.approx(0.02 / 1.15), pytest.approx(0.6 * 1.15))
    first, second = ([s[:, 1].tolist() for s in c.lines[2][0].get_segments()]
                     for c in axes.containers)  # fmt: skip
    np.testing.assert_allclose(first, [[0.4, 0.6], [low, 0.07], [0.1, 0.5]])
    np.testing.assert_allclose(second, [[0.09, 0.11], [0.18, 0.22], [0.04, 0.1]])


def test_ends_leave_out_what_is_not_positive():
    means, halves = np.array([[0.5, np.nan], [0.2, 0.0]]), np.array([[0.7, 0.1], [0.1, 0.3]])
    assert figures.ends_of(means, halves) == pytest.approx([0.1 / 1.15, 1.2 * 1.15])
    assert figures.ends_of(np.array([-1.0]), np.array([0.5])) == []


def test_bands_have_the_colour_of_their_curve():
    bands = {"q": ([0.05, 0.1, 0.06], [0.2, 0.3, 0.09])}
    figure = figures.curves(SERIES, "x", bands=bands, band="range")
    (axes,) = figure.axes
    (filled,) = [c for c in axes.collections if len(c.get_paths()) == 1]
    assert filled.get_facecolor()[0, :3] == pytest.approx(
        tuple(int(styles([*SERIES])["q"].colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    )
    assert legend_of(figure) == ["p", "q", "range"]
    assert legend_of(figures.curves(SERIES, "x", band="range")) == ["p", "q"]


def test_levels_are_evenly_spaced_where_two_of_them_are_close():
    assert figures.positions_of([0.5]) == ([0.5], "")
    assert figures.positions_of([0.0, 0.06, 1.0])[1] == ""
    assert figures.positions_of([1.0, 0.059, 0.0])[0] == [0.0, 1.0, 2.0]


def test_dots_are_crossed_where_a_method_failed():
    figure = figures.dots(
        {"mid": 0.2, "worst": 0.5, "best": 0.1}, [0.03, 0.0, 0.02], [True, False, False]
    )
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["worst", "mid", "best"]
    points = [c.lines[0].get_xydata()[0].tolist() for c in axes.containers]
    assert points == [[0.5, 0], [0.2, 1], [0.1, 2]]
    (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert cross.get_xydata().tolist() == [[0.2, 1]]
    assert [text.get_text() for text in axes.texts] == ["0.500", "0.200", "0.100"]
    assert [text.xy for text in axes.texts] == [(0.5, 0), (0.2, 1), (0.1, 2)]
    assert axes.get_xlim() == (0, pytest.approx(1.12 * 0.5))
    assert labels_of(axes)[0] == "mean relative L² error"
    assert figures.dots({"a": 0.1}, [0.3]).axes[0].get_xlim() == (
        pytest.approx(-1.12 * 0.2), pytest.approx(1.12 * 0.4),
    )  # fmt: skip


def test_operators_have_numbers_and_styles_in_every_panel_of_costs():
    costs = {"seconds": {"p": 3.0, "q": 5.0}, "parameters": {"q": 20.0, "p": 70.0}}
    looks = {"p": Style("#112233", marker="D"), "q": Style("#445566", marker="s")}
    figure = figures.errors_against_costs(costs, {"q": 0.4, "p": 0.1}, 0.7, "error", looks)
    assert [axes.get_ylabel() for axes in figure.axes] == ["error", ""]
    for axes, values in zip(figure.axes, costs.values(), strict=True):
        q, p, line = axes.lines
        assert (q.get_label(), q.get_color(), q.get_marker()) == ("1 q", "#445566", "s")
        assert (p.get_label(), p.get_color(), p.get_marker()) == ("2 p", "#112233", "D")
        assert [(t.get_text(), t.xy) for t in axes.texts] == [
            ("1", (values["q"], 0.4)), ("2", (values["p"], 0.1)),
        ]  # fmt: skip
        assert line.get_label() == "mean of the targets"
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert legend_of(figure) == ["1 q", "2 p", "mean of the targets"]
    usual = figures.errors_against_costs(costs, {"q": 0.4, "p": 0.1}, 0.7)
    assert usual.axes[0].get_ylabel() == "mean relative L² error"
    assert usual.axes[0].lines[1].get_color() == styles(["q", "p"])["p"].colour


def test_errors_of_numbers_of_samples_stand_beside_the_stream():
    figure = figures.error_by_samples([8, 32, 128], [0.5, 0.2, 0.3], (512, 0.1))
    (axes,) = figure.axes
    stored, stream, level = axes.lines
    assert stored.get_xydata().tolist() == [[8, 0.5], [32, 0.2], [128, 0.3]]
    assert stream.get_xydata().tolist() == [[512, 0.1]]
    assert list(level.get_ydata()) == [0.1, 0.1]
    assert labels_of(axes) == (
        "distinct training samples", "mean relative L² error, test", "log", "log",
    )  # fmt: skip
    assert legend_of(figure) == ["stored samples, in several passes", "a stream, each sample once"]


MEANS = np.array([[0.1, 0.25, 0.6], [0.4, 0.03, 0.9]])
SPREADS = np.array([[0.01, 0, 0.04], [0, 0.002, 0]])


def test_a_heat_map_has_crosses_ticks_and_a_logarithmic_scale():
    crossed = np.array([[False, True, False], [True, False, False]])
    rows, columns = ["p", "a name of more than thirty letters in all"], ["0", "0.1", "1"]
    figure = figures.heat_map(MEANS, SPREADS, rows, columns, "level", crossed)
    axes, bar = figure.axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {
        (0, 0): "0.100 ± 0.010", (1, 0): "× 0.250", (2, 0): "0.600 ± 0.040",
        (0, 1): "× 0.400", (1, 1): "0.0300 ± 0.0020", (2, 1): "0.900",
    }  # fmt: skip
    assert [tick.get_text() for tick in axes.get_xticklabels()] == columns
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "p", "a name of more than thirty\nletters in all",
    ]  # fmt: skip
    assert axes.get_xlabel() == "level"
    assert bar.get_ylabel() == "mean relative L² error"
    scale = axes.images[0].norm
    assert isinstance(scale, LogNorm)
    assert (scale.vmin, scale.vmax) == (0.03, pytest.approx(0.9009))
    colours = {text.get_position(): text.get_color() for text in axes.texts}
    assert colours[2, 1] == "white"  # the largest is dark
    assert colours[1, 1] == "black"
    assert figure.get_size_inches()[0] == WIDE


def test_spreads_of_narrow_cells_have_their_own_line():
    columns = [str(k) for k in range(9)]
    figure = figures.heat_map(np.full((2, 9), 0.2), np.full((2, 9), 0.01), ["p", "q"], columns, "x")
    assert {text.get_text() for text in figure.axes[0].texts} == {"0.200\n± 0.010"}
    zeros = figures.heat_map(np.zeros((1, 1)), np.zeros((1, 1)), ["p"], ["0"], "x").axes[0]
    assert not isinstance(zeros.images[0].norm, LogNorm)


def test_couplings_are_logarithms_relative_to_the_largest():
    figure = figures.couplings({
        "p": np.array([[4.0, -0.4], [0.04, 1e-9]]), "q": np.array([[0.0, 0.5], [-5.0, 0.05]]),
    })  # fmt: skip
    first, second, *_, bar = figure.axes
    shown = [np.asarray(axes.images[0].get_array(), float) for axes in (first, second)]
    np.testing.assert_allclose(shown[0], [[0, -1], [-2, -3]])
    np.testing.assert_allclose(shown[1], [[-3, -1], [0, -2]])
    for axes, name in ((first, "p"), (second, "q")):
        assert axes.images[0].origin == "lower"
        assert axes.images[0].get_clim() == (-3, 0)
        assert axes.get_title() == name
    assert bar.get_ylabel() == "log₁₀ |∂u(y)/∂a(x)| / largest"
