"""Figures for papers: widths, legends, labels and ticks that fit, and few rows of panels."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box
from pipelines.reports import figures, pictures
from pipelines.reports.document import scientific
from pipelines.reports.fields import Functions, Look, bar, sheet, show
from pipelines.reports.figures import HALF, WIDE, legend, logarithmic, styled
from pipelines.reports.pictures import Predicted, _styles


@styled
def half() -> Figure:
    return Figure(figsize=(HALF, HALF))


def drawn(figure: Figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def rollout(count: int = 3, times: int = 5) -> Functions:
    values = np.random.default_rng(0).normal(size=(count, 8, 8, times))
    channels = tuple(Channel("w", "", float(t)) for t in range(times))
    return Functions(Look("w", "diverging"), values, channels, Box.periodic(8, 8))


def test_figures_have_the_widths_of_one_and_two_columns():
    assert (HALF, WIDE) == (3.3, 6.8)
    assert figures.error_histogram(np.array([0.1, 0.2])).get_size_inches()[0] == HALF


@pytest.mark.parametrize("labels", [["u"], ["a long name of a curve"] * 4, ["x" * 30] * 7])
def test_legends_fit_into_their_figures(labels):
    figure = half()
    axes = figure.subplots()
    for label in labels:
        axes.plot([0, 1], label=label)
    legend(figure, axes)
    renderer = drawn(figure)
    assert len(figure.legends) == 1
    assert figure.legends[0].get_window_extent(renderer).width <= figure.bbox.width


@pytest.mark.parametrize("ends", [(1e-3, 0.9), (2e-2, 0.9), (1e-9, 1.0), (0.1, 0.2), (3.0, 600.0)])
def test_labels_of_logarithmic_axes_do_not_collide(ends):
    figure = figures.error_histogram(np.geomspace(*ends, 30))
    axis = figure.axes[0].xaxis
    renderer = drawn(figure)
    low, high = figure.axes[0].get_xlim()
    boxes = [
        label.get_window_extent(renderer)
        for place, label in zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_the_label_of_a_colour_bar_is_beside_its_ticks():
    figure = half()
    axes = figure.subplots()
    values = np.linspace(0, 0.0123, 64).reshape(8, 8)
    look = Look("u")
    bar(show(axes, Box.cell(8, 8), values, look.map, look.scale(values)), axes, look, "pressure u")
    renderer = drawn(figure)
    axis = axes.child_axes[0].yaxis
    right = max(label.get_window_extent(renderer).x1 for label in axis.get_ticklabels())
    assert axis.label.get_window_extent(renderer).x0 > right


def test_rollouts_have_at_most_four_rows_with_whole_names():
    truth = rollout()
    errors = np.array([0.1, 0.2, 0.3])
    predicted = Predicted("", truth, truth.values + errors[:, None, None, None], errors)
    figure = pictures.predictions(truth, predicted, range(10_000, 10_003))
    images = [axes for axes in figure.axes if axes.images]
    assert len(images) == 3 * 4
    renderer = drawn(figure)
    names = figure.findobj(lambda artist: "sample" in getattr(artist, "get_text", str)())
    assert len(names) == 3
    for name in names:
        box = name.get_window_extent(renderer)
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_names_that_are_longer_than_their_panels_are_above_them():
    domain, values = Box.cell(16, 4), np.zeros((1, 16, 4, 1))
    panel = Functions(Look("u"), values, (Channel("u", "", None),), domain).panel(0, 0, title="u")
    figure = sheet([[panel] * 4], ["worst: sample 100000\nerror 4.01e-1"])
    assert figure.axes[0].get_title(loc="left") == "worst: sample 100000, error 4.01e-1\nu"
    assert not figure.axes[0].get_ylabel().startswith("worst")


def test_inputs_of_a_plot_differ_from_each_other_and_from_the_target():
    assert len(set(_styles(["a", "f", "g", "u"], "u"))) == 4
    assert _styles(["a", "u"], "u")[1][1] == "-"


def test_numbers_around_one_have_no_power():
    assert [scientific(x) for x in (1.0, 0.5, 12.0)] == ["1.00", "5.00e-1", "1.20e1"]


def test_an_axis_without_positive_values_stays_linear():
    axes = Figure().subplots()
    logarithmic(axes, "y", np.zeros(3))
    assert axes.get_yscale() == "linear"
