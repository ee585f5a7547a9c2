"""Every curve, mark and label of the charts of a trained operator."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from operators.training.fit import Epoch
from pipelines.reports import figures
from pipelines.reports.palette import ERROR, INKS, MODEL, QUIET, SHADE, TRUTH

NAN = float("nan")


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def labels_of(axes: Axes) -> tuple[str, str, str, str]:
    """Labels and scales of both axes."""
    return axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale(), axes.get_yscale()


def drawn(axes: Axes) -> list[tuple[str, str, str, str]]:
    """Label, colour, dashes and marker of each line."""
    return [
        (str(line.get_label()), str(line.get_color()), line.get_linestyle(), str(line.get_marker()))
        for line in axes.lines
    ]


def epochs(count: int, largest: bool = True) -> list[Epoch]:
    return [
        Epoch(e, 0.9 / e, abs(e - 2.2), 1e-3 * e, seconds=2.0, largest=3.0 * e if largest else None)
        for e in range(1, count + 1)
    ]


def test_a_learning_curve_names_its_curves_and_scales():
    figure = figures.learning_curve(epochs(3), "h1", "validation split")
    axes, rate = figure.axes
    assert labels_of(axes) == ("epoch", "loss, error", "linear", "log")
    assert rate.get_ylabel() == "learning rate"
    assert rate.get_ylim() == (0, pytest.approx(1.08 * 3e-3))
    assert drawn(axes) == [
        ("training loss (h1)", TRUTH, "--", "s"),
        ("relative L² error, validation split", MODEL, "-", "o"),
        ("largest error of a sample", MODEL, "-.", "o"),
        ("best: 2.00e-1, epoch 2", ERROR, "None", "D"),
    ]
    assert drawn(rate) == [("learning rate (right)", QUIET, ":", "None")]
    assert sorted(legend_of(figure)) == sorted(one[0] for one in drawn(axes) + drawn(rate))
    assert axes.get_zorder() > rate.get_zorder()
    assert not axes.patch.get_visible()
    assert axes.get_ylim()[0] < 0.2 < 9 < axes.get_ylim()[1]
    whole = axes.xaxis.get_major_locator().tick_values(1, 2)
    assert all(tick == int(tick) for tick in whole)


def test_learning_curves_of_many_epochs_have_no_markers():
    for count, marker in ((11, "o"), (12, "None")):
        axes, _ = figures.learning_curve(epochs(count, largest=False), "l2", "x").axes
        assert axes.lines[1].get_marker() == marker
        assert len(axes.lines) == 3
    mixed = [*epochs(2), *epochs(3, largest=False)[2:]]
    assert len(figures.learning_curve(mixed, "l2", "x").axes[0].lines) == 3


def test_errors_in_time_have_a_line_for_each_component_and_trivial_prediction():
    errors = {"u_x": np.array([[0.1, 0.2], [0.3, 0.8]]), "u_y": np.array([[0.5, 0.6], [0.9, 0.7]])}
    beside = {"last": np.array([1.1, 1.2]), "mean": np.array([1.3, 1.4])}
    figure = figures.error_by_time([0.5, 2.0], errors, beside, None)
    (axes,) = figure.axes
    assert drawn(axes) == [
        ("u_x", MODEL, "-", "o"), ("u_y", ERROR, "--", "s"),
        ("last", TRUTH, ":", "None"), ("mean", TRUTH, "-.", "None"),
    ]  # fmt: skip
    values = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    np.testing.assert_allclose(values, [[0.2, 0.5], [0.7, 0.65], [1.1, 1.2], [1.3, 1.4]])
    assert labels_of(axes) == ("time t", "relative L² error", "linear", "log")
    assert legend_of(figure) == ["u_x", "u_y", "last", "mean"]
    ends = [np.asarray(c.get_paths()[0].vertices)[:, 1] for c in axes.collections]
    np.testing.assert_allclose([e.min() for e in ends], [0.11, 0.52])
    np.testing.assert_allclose([e.max() for e in ends], [0.77, 0.88])


def test_errors_in_time_ignore_samples_without_one():
    errors = np.array([[0.1, 0.2], [NAN, 0.6], [0.5, NAN]])
    (axes,) = figures.error_by_time([1.0, 2.0], {"u": errors}, {}, 2.0).axes
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata(), float), [0.3, 0.4])
    assert axes.lines[1].get_label() == "trained to t = 2"


def test_errors_of_grids_have_the_ticks_of_their_grids():
    errors = {64: np.array([0.2, NAN, 0.4]), 16: np.array([0.1, 0.3, 0.8])}
    figure = figures.error_by_grid(errors, 64, "points along each axis")
    (axes,) = figure.axes
    assert drawn(axes) == [
        ("each sample", SHADE, "None", "_"), ("_child1", SHADE, "None", "_"),
        ("mean", MODEL, "-", "D"), ("training grid", QUIET, ":", "None"),
    ]  # fmt: skip
    assert [list(line.get_xdata()) for line in axes.lines[:2]] == [[16] * 3, [64] * 2]
    np.testing.assert_allclose(axes.lines[2].get_xydata(), [[16, 0.4], [64, 0.3]])
    assert axes.lines[3].get_xdata()[0] == 64
    assert axes.get_xticks().tolist() == [16, 64]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "64"]
    assert axes.get_xlim() == (pytest.approx(16 / 1.3), pytest.approx(64 * 1.3))
    assert labels_of(axes) == ("points along each axis", "relative L² error", "log", "log")
    assert legend_of(figure) == ["each sample", "mean", "training grid"]


def test_a_spectrum_is_the_mean_modulus_over_samples_and_channels():
    x = 2 * np.pi * np.arange(16) / 16
    waves = [[2.0, 4.0], [6.0, 20.0]]  # amplitudes of samples and channels; the mean is 8
    u = np.stack([np.stack([5 + a * np.sin(3 * x) for a in of], -1) for of in waves])
    figure = figures.error_spectrum(u, u + 0.5 * np.cos(2 * x)[:, None], None)
    (axes,) = figure.axes
    assert drawn(axes) == [("target u", TRUTH, "-", "None"), ("error p − u", ERROR, "--", "None")]
    target, error = (np.asarray(line.get_ydata(), float) for line in axes.lines)
    np.testing.assert_allclose(target, [0, 0, 4.0], atol=1e-12)  # half the amplitude
    np.testing.assert_allclose(error, [0, 0.25], atol=1e-12)
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3], [1, 2]]
    assert labels_of(axes) == ("mode k", "mean |û(k)|", "log", "log")
    assert legend_of(figure) == ["target u", "error p − u"]
    assert legend_of(figures.error_spectrum(u, u + 1e-2, 6))[-1] == "decoder keeps k < 6"


def test_a_spectrum_below_the_rounding_errors_stays_whole():
    assert figures.above_rounding(np.array([1e-9, 2e-9]), 1.0).tolist() == [1e-9, 2e-9]
    eps = float(np.finfo(np.float32).eps)
    assert figures.above_rounding(np.array([5.0, 2.5 * eps, 1.5 * eps]), 2.0).size == 2


def test_a_histogram_of_few_samples_shows_their_ranks():
    figure = figures.error_histogram(np.array([0.6, NAN, 0.1, 0.25, 0.2]))
    (axes,) = figure.axes
    assert axes.lines[0].get_xydata().tolist() == [[0.1, 1], [0.2, 2], [0.25, 3], [0.6, 4]]
    assert drawn(axes) == [
        ("each sample", MODEL, "None", "o"), ("mean 2.87e-1", MODEL, "-", "None"),
        ("median 2.25e-1", TRUTH, "--", "None"), ("worst 6.00e-1", ERROR, ":", "None"),
    ]  # fmt: skip
    assert labels_of(axes) == ("relative L² error", "rank of the sample", "log", "linear")
    assert legend_of(figure) == [one[0] for one in drawn(axes)]


@pytest.mark.parametrize(("count", "bins"), [(20, 9), (100, 21)])
def test_a_histogram_has_more_bins_for_more_samples(count, bins):
    axes = figures.error_histogram(np.geomspace(0.01, 1, count)).axes[0]
    assert len(axes.patches) == bins
    assert axes.get_ylabel() == "samples"
    first, last = axes.patches[0], axes.patches[-1]
    assert first.get_x() == pytest.approx(0.01 / 1.05)
    assert last.get_x() + last.get_width() == pytest.approx(1.05)


def test_distributions_leave_out_samples_without_an_error():
    figure = figures.distributions({"p": np.array([0.4, NAN, 0.1]), "q": np.array([0.3, 0.2, 0.9])})
    (axes,) = figure.axes
    assert drawn(axes) == [("p", INKS[0], "-", "None"), ("q", INKS[1], "--", "None")]
    assert axes.lines[0].get_drawstyle() == "steps-post"
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.1, 0.5], [0.4, 1]])
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[0.2, 1 / 3], [0.3, 2 / 3], [0.9, 1]])
    assert labels_of(axes)[:3] == ("relative L² error e", "share with errors ≤ e", "log")
    assert axes.get_ylim() == (0, 1.02)
    assert legend_of(figure) == ["p", "q"]


def test_each_run_beside_the_reference_has_its_own_marker():
    reference = ("first", np.array([0.2, 0.5]))
    others = {"second": np.array([0.1, 0.9]), "third": np.array([0.3, 0.4])}
    figure = figures.sample_by_sample(reference, others)
    (axes,) = figure.axes
    assert drawn(axes) == [
        ("second", INKS[1], "None", "s"), ("third", INKS[2], "None", "D"),
        ("equal errors", QUIET, "--", "None"),
    ]  # fmt: skip
    assert axes.lines[1].get_xydata().tolist() == [[0.2, 0.3], [0.5, 0.4]]
    ends = np.array([0.1 / 1.1, 0.9 * 1.1])
    np.testing.assert_allclose(axes.lines[2].get_xydata(), np.stack([ends, ends], -1))
    assert labels_of(axes) == ("error by first", "error by the other run", "log", "log")
    assert legend_of(figure) == ["second", "third", "equal errors"]
