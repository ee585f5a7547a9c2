"""Lines, bands and marks of charts have the numbers that the chart is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from operators.training.fit import Epoch
from pipelines.reports import figures

FIRST, SECOND = np.array([0.5, 0.02, 0.3]), np.array([0.1, 0.2, 0.07])


def labelled(axes: Axes, label: str) -> Line2D:
    """The line with a label; that of an error bar is its container's."""
    for container in axes.containers:
        if container.get_label() == label:
            return container.lines[0]
    return next(line for line in axes.lines if line.get_label() == label)


def drawn(axes: Axes, label: str) -> list[list[float]]:
    return np.array(labelled(axes, label).get_data(), dtype=float).tolist()


def band(axes: Axes, number: int = 0) -> dict[float, tuple[float, float]]:
    """Place -> lower and upper end of what is filled between two curves."""
    vertices = np.asarray(axes.collections[number].get_paths()[0].vertices)
    return {
        x: (vertices[vertices[:, 0] == x, 1].min(), vertices[vertices[:, 0] == x, 1].max())
        for x in np.unique(vertices[:, 0])
    }


def test_a_learning_curve_has_losses_scores_rates_and_the_best_epoch():
    rows = [(1, 0.9, 0.4, 1e-4), (2, 0.5, 0.2, 3e-4), (3, 0.1, 0.3, 2e-4)]
    history = [Epoch(e, loss, score, lr, seconds=1.0) for e, loss, score, lr in rows]
    axes, rate = figures.learning_curve(history, "h1", "validation split").axes
    assert drawn(axes, "training loss (h1)") == [[1, 2, 3], [0.9, 0.5, 0.1]]
    assert drawn(axes, "relative L² error, validation split") == [[1, 2, 3], [0.4, 0.2, 0.3]]
    note = "best: 2.00e-1, epoch 2"
    assert axes.lines[2].get_label() == note
    assert drawn(rate, "learning rate (right)") == [[1, 2, 3], [1e-4, 3e-4, 2e-4]]
    assert [list(v) for v in axes.lines[2].get_data()] == [[2], [0.2]]
    worst = [replace(epoch, largest=2 * epoch.score) for epoch in history]
    axes, _ = figures.learning_curve(worst, "h1", "validation split").axes
    assert drawn(axes, "largest error of a sample") == [[1, 2, 3], [0.8, 0.4, 0.6]]


def test_errors_in_time_have_means_and_nine_samples_in_ten():
    errors = np.linspace(0.1, 0.5, 21)[:, None] * np.array([1.0, 3.0])
    figure = figures.error_by_time([0.5, 1.5], {"w": errors}, {"last state": np.array([1, 2])}, 0.7)
    (axes,) = figure.axes
    np.testing.assert_allclose(drawn(axes, "w"), [[0.5, 1.5], [0.3, 0.9]])
    assert drawn(axes, "last state") == [[0.5, 1.5], [1, 2]]
    assert drawn(axes, "trained to t = 0.7")[0] == [0.7, 0.7]
    ends = band(axes)  # 21 errors: the 2nd and the 20th
    np.testing.assert_allclose([ends[0.5], ends[1.5]], [(0.12, 0.48), (0.36, 1.44)])


def test_a_histogram_marks_mean_median_and_worst():
    axes = figures.error_histogram(np.array([0.1, 0.2, 0.6])).axes[0]
    marks = {line.get_label(): line.get_xdata()[0] for line in axes.lines[1:]}
    found = {str(label).split()[0]: value for label, value in marks.items()}
    assert found == {"mean": pytest.approx(0.3), "median": 0.2, "worst": 0.6}


def test_curves_have_values_spreads_and_bands_of_each_name():
    series = {"one": ([1, 2, 4], list(FIRST)), "two": ([1, 2, 4], list(SECOND))}
    bands = {"two": (0.5 * SECOND, 3 * SECOND)}
    spreads = [[0.1, 0.01, 0.2], [0, 0, 0]]
    axes = figures.curves(series, "x", bands=bands, spreads=spreads, trained=2, whole=True).axes[0]
    assert axes.xaxis.get_major_locator().tick_values(0, 1).tolist() == [0, 1]
    for name, (places, values) in series.items():
        assert drawn(axes, name) == [places, values]
    filled = next(n for n, c in enumerate(axes.collections) if len(c.get_paths()) == 1)
    assert band(axes, filled)[4] == (pytest.approx(0.035), pytest.approx(0.21))
    (bars,) = [c for c in axes.containers if c.lines[2]]
    ends = [segment[:, 1] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(np.ptp(ends, axis=1), [0.2, 0.02, 0.4])


def test_noise_levels_stand_at_their_distances_where_their_labels_have_room():
    assert figures.positions_of([0.1, 0.0, 0.05]) == ([0.1, 0.0, 0.05], "")
    positions, words = figures.positions_of([0.0, 1e-4, 0.1])
    assert positions == [0, 1, 2]
    assert "not to scale" in words


def test_bands_are_explained_in_the_legend():
    series, ends = {"one": ([1, 2], [0.1, 0.2])}, ([0.05, 0.1], [0.2, 0.3])
    figure = figures.curves(series, "epoch", bands={"one": ends}, band="range of the seeds")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "range of the seeds"]


def test_errors_stand_over_their_own_costs():
    costs = {"seconds": {"a": 3.0, "b": 5.0}, "parameters": {"a": 70.0, "b": 20.0}}
    figure = figures.errors_against_costs(costs, {"a": 0.1, "b": 0.4}, baseline=0.7)
    for axes, (what, values) in zip(figure.axes, costs.items(), strict=True):
        assert axes.get_xlabel() == what
        assert drawn(axes, "1 a") == [[values["a"]], [0.1]]
        assert drawn(axes, "2 b") == [[values["b"]], [0.4]]
        assert drawn(axes, "mean of the targets")[1] == [0.7, 0.7]


def test_dots_have_values_and_spreads():
    axes = figures.dots({"worse": 0.4, "better": 0.1}, [0.0, 0.05]).axes[0]
    found = {
        text.get_text(): line.get_xdata()[0]
        for text, line in zip(axes.texts, axes.lines, strict=False)
    }
    assert found["0.400"] == 0.4
    assert [label.get_text() for label in axes.get_yticklabels()] == ["worse", "better"]
    (bar,) = [s for c in axes.containers for g in c.lines[2] for s in g.get_segments()]
    np.testing.assert_allclose(bar[:, 0], [0.05, 0.15])


def test_a_heat_map_says_mean_and_spread_in_its_cells():
    means, spreads = np.array([[0.1, 0.25], [0.4, 0.03]]), np.array([[0.01, 0], [0, 0.002]])
    axes = figures.heat_map(means, spreads, ["p", "q"], ["0", "1"], "level").axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {
        (0, 0): "0.100 ± 0.010", (1, 0): "0.250", (0, 1): "0.400", (1, 1): "0.0300 ± 0.0020",
    }  # fmt: skip
    assert np.asarray(axes.images[0].get_array()).tolist() == means.tolist()


def test_shares_of_samples_rise_to_one_in_steps_at_their_errors():
    axes = figures.distributions({"a": FIRST}).axes[0]
    found = drawn(axes, "a")
    assert found[0] == [0.02, 0.3, 0.5]
    np.testing.assert_allclose(found[1], [1 / 3, 2 / 3, 1])


def test_errors_sample_by_sample_stand_over_those_of_the_reference():
    axes = figures.sample_by_sample(("a", FIRST), {"b": SECOND}).axes[0]
    assert drawn(axes, "b") == [FIRST.tolist(), SECOND.tolist()]
    ends = drawn(axes, "equal errors")
    assert ends[0] == ends[1]
