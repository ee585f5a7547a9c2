"""Pictures of reconstructions show the data, the truth and each method on their scales."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import Normalize

from operators.data import Channel
from pdegen.domains import Box
from pipelines.reports import noise_pictures
from pipelines.reports.fields import Functions, Look
from pipelines.reports.noise_pictures import Answer, Image
from pipelines.reports.palette import INPUT, TRUTH
from pipelines.studies.inversions import Cell
from tests.pipelines.test_charts import legend_of

RNG = np.random.default_rng(7)


def functions(name: str, *grid: int, **look) -> Functions:
    values = RNG.normal(size=(1, *grid, 1))
    return Functions(Look(name, **look), values, (Channel(name),), Box.cell(*grid))


@pytest.mark.parametrize("count", [3, 6])
def test_images_have_one_scale_of_data_and_one_of_targets(count):
    data, truth = functions("u", 6, 6), functions("a", 4, 4, colours="phases", phases=(3.0, 12.0))
    images = [Image("data u", data, data.values[0, ..., 0])]
    images += [Image(f"{k}", truth, RNG.normal(size=(4, 4))) for k in range(count - 1)]
    scales = Normalize(-1, 5), Normalize(3, 12)
    figure = noise_pictures._image_sheet(
        images, *scales, ("data u", "a: truth and reconstructions")
    )
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == count
    for axes, image in zip(drawn, images, strict=True):
        np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()).T, image.values)
        assert axes.get_title(loc="left") == image.title
        assert axes.images[0].get_clim() == ((-1, 5) if image is images[0] else (3, 12))
        assert axes.images[0].get_cmap() == image.functions.look.map
    empty = [axes for axes in figure.axes if not axes.images and not axes.axison]
    assert len(empty) == 5 * -(-count // 5) - count
    bars = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert [bar.get_xlabel() for bar in bars] == ["data u", "a: truth and reconstructions"]
    assert [tick.get_text() for tick in bars[1].get_xticklabels()] == ["3", "12"]
    assert [tick.get_text() for tick in bars[0].get_xticklabels()] != ["3", "12"]


def test_a_reconstruction_on_a_line_has_the_ends_of_its_intervals():
    truth = functions("a", 5)
    values, std = RNG.normal(size=5), RNG.random(5)
    name, (x, curve), ends = noise_pictures._on_line(
        truth, Answer(Cell(0.1), values, std), "method"
    )
    assert name == "method"
    np.testing.assert_allclose(x, truth.domain.points[:, 0])
    np.testing.assert_array_equal(curve, values)
    for (at, end), sign in zip(ends, (-1, 1), strict=True):
        np.testing.assert_allclose(at, x)
        np.testing.assert_allclose(end, values + sign * 1.6448536 * std, rtol=1e-6)
    assert noise_pictures._on_line(truth, Answer(Cell(0.1), values), "method")[2] is None


def test_curves_have_the_truth_beside_each_method_and_bands_where_they_are_stated():
    x = np.linspace(0, 1, 5)
    data, truth, *curves = ((x, RNG.normal(size=5)) for _ in range(5))
    low, high = (x, curves[1][1] - 0.5), (x, curves[1][1] + 0.25)
    answers = [("p", curves[0], None), ("q", curves[1], (low, high)), ("r", curves[2], None)]
    colours = ["#111111", "#222222", "#333333"]
    figure = noise_pictures._curve_sheet(data, truth, answers, colours, ("data u", "truth a"))
    first, *others = [axes for axes in figure.axes if axes.axison]
    assert (len(others), len(figure.axes)) == (3, 6)
    (line,) = first.lines
    assert (line.get_color(), first.get_title(loc="left")) == (INPUT, "data u")
    np.testing.assert_array_equal(line.get_ydata(), data[1])
    for axes, (name, curve, ends), colour in zip(others, answers, colours, strict=True):
        u, p = axes.lines
        assert axes.get_title(loc="left") == name
        assert (u.get_color(), u.get_linestyle(), p.get_color()) == (TRUTH, "--", colour)
        np.testing.assert_array_equal(u.get_ydata(), truth[1])
        np.testing.assert_array_equal(p.get_ydata(), curve[1])
        assert len(axes.collections) == (ends is not None)
        assert axes.get_ylim() == others[0].get_ylim()
    band = others[1].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (low[1].min(), high[1].max())
    assert legend_of(figure) == [
        "data u", "truth a", "reconstruction (a colour for each method)", "90 % interval",
    ]  # fmt: skip
    plain = noise_pictures._curve_sheet(
        data, truth, answers[::2], colours[::2], ("data u", "truth a")
    )
    assert len(legend_of(plain)) == 3
    assert [axes.get_xlabel() for axes in figure.axes[:4]] == ["", "x", "x", "x"]


def test_a_deviation_is_drawn_on_its_scale_without_a_bar():
    truth, std = functions("a", 4, 4), RNG.random((4, 4))
    scale = Normalize(0, 2)
    panel = noise_pictures._panel(truth, std, scale, "method")
    np.testing.assert_array_equal(panel.values, std)
    assert (panel.scale, panel.title, panel.label) == (scale, "method", None)
    assert panel.look == Look("deviation", "sequential", True)


def test_the_error_of_a_reconstruction_is_relative_to_the_truth():
    assert noise_pictures._error(np.array([3.0, 6.0]), np.array([0.0, 2.0])) == pytest.approx(2.5)


def test_files_of_levels_below_zero_differ_from_those_above():
    assert noise_pictures.file_name(-2.5) == "reconstructions-at-minus-2-5"
    assert noise_pictures.file_name(2.5) == "reconstructions-at-2-5"
