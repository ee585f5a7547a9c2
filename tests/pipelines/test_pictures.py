"""Pictures show what they are given, in every format, and leave nothing behind."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box
from pdegen.generation.derived import add_noise, at_levels
from pdegen.schema import SchemaError
from pdegen.store.reading import StoreError, open_sealed
from pipelines.reports import fields, figures, pictures
from pipelines.reports.fields import Functions, Look
from pipelines.reports.figures import error_by_samples
from pipelines.reports.pictures import Predicted, plot_store


def texts(svg: str) -> str:
    return " ".join("".join(e.itertext()) for e in ElementTree.fromstring(svg).iter())


def test_a_sample_is_drawn_with_its_title_parameters_and_time(store, tmp_path):
    out = plot_store(store, 3, tmp_path / "sample.svg")
    words = texts(out.read_text("utf-8"))
    assert "sample 3 of Burgers: u(0)" in words
    assert "viscosity = 0.01592" in words
    assert "at t = 0.1592" in words


def a_wedge(n: int) -> tuple[Box, np.ndarray]:
    """Cells, and values that are 7 in the corner x near 1, y near 0, and 2 elsewhere."""
    x = (np.arange(n) + 0.5) / n
    return Box.cell(n, n), np.where((x[:, None] > 0.5) & (x < 0.5), 7.0, 2.0)


def functions(values: np.ndarray, look: Look, times: tuple[float, ...] = ()) -> Functions:
    """Functions on cells of the unit box; one channel if there are no times."""
    values = values if times else values[..., None]
    channels = tuple(Channel(look.name, time=time) for time in times or (None,))
    return Functions(look, values, channels, Box.cell(*values.shape[1:-1]))


def drawn_images(figure: Figure) -> list[np.ndarray]:
    """What the images of a figure show, the first row at the bottom."""
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


@pytest.mark.parametrize("n", [8, 421])
def test_x_points_to_the_right_and_y_upwards_and_nothing_is_smoothed(n):
    domain, values = a_wedge(n)
    axes = Figure().subplots()
    fields.show(axes, domain, values, "viridis", Normalize(0, 10))
    image = axes.images[0]
    shown = np.asarray(image.get_array())
    assert shown[0, -1] == 7  # the last x, the first y
    assert (image.origin, image.get_interpolation()) == ("lower", "none")
    assert tuple(image.get_extent()) == pytest.approx((0, 1, 0, 1), abs=0.003)  # thinned
    assert axes.get_aspect() == 1
    assert set(np.unique(shown)) == {2.0, 7.0}
    assert max(shown.shape) <= 160


def test_truth_and_prediction_have_one_scale_and_the_error_is_centred():
    _, values = a_wedge(8)
    u = np.stack([values, values, values])
    p = u + np.array([0.1, 0.2, 3.0])[:, None, None]
    truth = functions(u, Look("a", "phases", phases=(2.0, 7.0)))
    figure = pictures.predictions(
        functions(u, Look("u")),
        Predicted("p", truth, p[..., None], np.array([0.1, 0.2, 3.0])),
        range(100, 103),
    )
    images = [axes.images[0] for axes in figure.axes]
    for row in range(3):
        _, truth, prediction, error = images[4 * row : 4 * row + 4]
        assert truth.get_clim() == prediction.get_clim()
        largest = (0.1, 0.2, 3.0)[row]
        assert error.get_clim() == pytest.approx((-largest, largest))
    labels = [bar.get_ylabel() for axes in figure.axes[:4] for bar in axes.child_axes]
    assert labels == ["u", "a, p", "p − a"]
    np.testing.assert_allclose(np.asarray(images[11].get_array()), 3.0)
    assert images[9].get_clim() == (2.0, 10.0)
    assert figure.axes[8].get_title(loc="left") == "worst: sample 102, error 3.00"


@pytest.mark.parametrize(
    ("look", "values", "labels"),
    [(Look("a", "phases", phases=(2.0, 7.0)), a_wedge(8)[1], ["2", "7"]),
     (Look("a", log=True), np.diag([0.01, 0.99]) + 0.01, ["0.01", "0.1", "1"])],
    ids=["phases", "magnitudes"],
)  # fmt: skip
def test_a_bar_has_phases_or_magnitudes(look, values, labels):
    axes = Figure().subplots()
    domain = Box.cell(*values.shape)
    fields.bar(fields.show(axes, domain, values, look.map, look.scale(values)), axes, look)
    assert [text.get_text() for text in axes.child_axes[0].get_yticklabels()] == labels
    narrow = np.array([[3.0, 12.0]])
    assert not isinstance(Look("a", log=True).scale(narrow), LogNorm)


def test_the_mean_error_is_that_of_the_samples():
    error = np.stack([np.full((4, 4), -1.0), np.full((4, 4), 3.0)])
    figure = pictures.mean_error(functions(error, Look("u")), error[..., None])
    np.testing.assert_allclose(drawn_images(figure)[0], 2.0)


@pytest.mark.parametrize(("kind", "variable"), [("darcy", "a"), ("finished", "u")])
def test_the_noise_levels_of_a_sample_are_drawn_side_by_side(kind, variable, tmp_path, request):
    _, parent = request.getfixturevalue(kind)
    url = str(tmp_path / "noisy.zarr")
    noises = at_levels({"kind": "relative"}, [0.0, 0.01, 0.1])
    add_noise(parent, variable, noises, url, workers=1)
    words = texts(plot_store(url, 2, tmp_path / "levels.svg").read_text("utf-8"))
    assert re.findall(r"relative noise ([\d.]+)", words)[:3] == ["0", "0.01", "0.1"]
    assert "sample 2 of" in words
    made = open_sealed(url)
    (sample,) = made.values(variable, range(2, 3))
    drawn = [pictures.functions(made, variable, [2], level).values[0] for level in range(3)]
    for own, values in zip(drawn, sample, strict=True):
        np.testing.assert_array_equal(own.ravel(), values.ravel())
    assert abs(drawn[2] - drawn[1]).max() > 0


@pytest.mark.parametrize(
    ("sample", "name", "error", "message"),
    [
        (-1, "sample.png", StoreError, "samples 0 to 23, got -1"),
        (24, "sample.png", StoreError, "samples 0 to 23, got 24"),
        (None, "sample.jpg", SchemaError, r"\.png, \.svg, \.pdf"),
    ],
)
def test_samples_that_are_not_there_and_unknown_formats_are_refused(
    store, tmp_path, sample, name, error, message
):
    with pytest.raises(error, match=message):
        plot_store(store, sample, tmp_path / name)


def test_best_median_and_worst_are_those_of_the_errors():
    x, errors = np.linspace(0, 1, 16), np.array([0.3, 0.1, 0.2])
    truth = functions(np.ones((3, 16)) * np.sin(x), Look("u"))
    figure = pictures.predictions(
        truth, Predicted("p", truth, truth.values + errors[:, None, None], errors), range(100, 103)
    )
    titles = [axes.get_title(loc="left") for axes in figure.axes[:3]]
    assert titles == [
        "best: sample 101\nerror 1.00e-1",
        "median: sample 102\nerror 2.00e-1",
        "worst: sample 100\nerror 3.00e-1",
    ]
    given, beneath = ([axes.lines[0].get_ydata() for axes in figure.axes[at : at + 3]]
                      for at in (0, 6))  # fmt: skip
    np.testing.assert_allclose(given, np.broadcast_to(np.sin(x), (3, 16)))
    np.testing.assert_allclose(beneath, np.broadcast_to([[0.1], [0.2], [0.3]], (3, 16)))
    for row, scales in enumerate((1, 1, 3)):  # each error has its own
        assert len({axes.get_ylim() for axes in figure.axes[3 * row : 3 * row + 3]}) == scales


def test_the_spectrum_of_a_sine_is_half_its_amplitude_at_its_mode():
    x = np.arange(32) / 32
    u = 3.0 * np.sin(2 * np.pi * 5 * x)[None, :, None]
    figure = figures.error_spectrum(u, 1.1 * u, modes=8)
    target, error, mark = figure.axes[0].lines
    assert target.get_ydata()[4] == pytest.approx(1.5)
    assert error.get_ydata()[4] == pytest.approx(0.15)
    assert list(target.get_xdata()) == list(range(1, 6))  # rounding errors follow
    assert mark.get_xdata()[0] == 8


def test_the_histogram_counts_every_sample():
    for errors in ([0.0], [0.1, 0.1], [1e-5, 1e-3, 2.0]):
        many = figures.error_histogram(np.array(20 * errors)).axes[0]
        assert sum(bar.get_height() for bar in many.patches) == 20 * len(errors)
        few = figures.error_histogram(np.array(errors)).axes[0]
        assert not few.patches
        assert list(few.lines[0].get_ydata()) == list(range(1, len(errors) + 1))


def test_errors_of_each_grid_are_drawn_with_their_mean():
    errors = {32: np.array([0.2, 0.4]), 16: np.array([0.1, 0.3])}
    axes = figures.error_by_grid(errors, 16, "points").axes[0]
    *samples, mean, trained = axes.lines
    np.testing.assert_allclose(mean.get_xydata(), [[16, 0.2], [32, 0.3]])
    assert [list(one.get_ydata()) for one in samples] == [[0.1, 0.3], [0.2, 0.4]]
    assert trained.get_xdata()[0] == 16


def test_a_picture_is_labelled_and_hostile_labels_are_escaped():
    label = '"><script>alert(1)</script>'
    drawn = figures.svg(figures.error_histogram(np.array([0.1])), "p", label)
    root = ElementTree.fromstring(drawn)
    assert root.get("role") == "img"
    assert root.get("aria-label") == label
    assert "<script" not in drawn


@pytest.mark.parametrize(
    "errors", [[0.112, 0.128, 0.217], [1.2e-5, 2.1e-5], [2e-4, 0.3], [1e-8, 1.0], [0.1]]
)
def test_labels_of_logarithmic_axes_are_the_numbers_they_stand_at(errors):
    figure = figures.error_histogram(np.array(errors))
    axis = figure.axes[0].xaxis
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    ticks = [float(v) for v in axis.get_majorticklocs() if low <= v <= high]
    labels = [axis.get_major_formatter()(v) for v in ticks]
    assert len(ticks) >= 2
    assert [read(label) for label in labels] == pytest.approx(ticks, rel=1e-6)


def read(label: str) -> float:
    """A label such as 0.02 or 5·10⁻³ as a number."""
    plain = label.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    if plain == label:
        return float(label)
    factor, _, power = plain.rpartition("·")
    return float(factor or 1) * 10.0 ** float(power.removeprefix("10"))


@pytest.mark.parametrize(("streamed", "lines"), [(None, 1), ((64, 0.1), 3)])
def test_a_stream_has_a_point_and_a_line_beside_the_stored_samples(streamed, lines):
    (axes,) = error_by_samples([8, 16], [0.4, 0.2], streamed).axes
    assert len(axes.lines) == lines
    assert (axes.get_xlim()[1] >= 64) == (streamed is not None)
