"""Pictures of samples and trajectories have every curve, panel, scale and label."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box
from pipelines.reports import pictures
from pipelines.reports.fields import Functions, Look
from pipelines.reports.figures import HALF, TIMES, WIDE
from pipelines.reports.palette import DASHES, ERROR, INKS, INPUT, MODEL, QUIET, TRUTH
from pipelines.reports.pictures import Predicted
from tests.pipelines.test_charts import legend_of

RNG = np.random.default_rng(3)
ERRORS = np.array([0.3, 0.1, 0.2])
AT = (0.5, 1.0, 1.5, 2.0, 2.5)


def functions(name: str, grid: tuple[int, ...], parts=("",), times=(None,), count=3) -> Functions:
    """Random values on cells of the unit box, of components at times."""
    channels = tuple(Channel(name, part, time) for time in times for part in parts)
    values = RNG.normal(size=(count, *grid, len(channels)))
    return Functions(Look(name), values, channels, Box.cell(*grid))


def predicted(truth: Functions, name: str = "", errors: np.ndarray = ERRORS) -> Predicted:
    return Predicted(name, truth, truth.values + RNG.normal(size=truth.values.shape), errors)


def curves(axes) -> list[tuple]:
    """Colour, dashes and values of each curve of a panel that has points."""
    return [
        (line.get_color(), line.get_linestyle(), np.asarray(line.get_ydata()))
        for line in axes.lines
        if len(line.get_xdata())
    ]


def same(found: list[tuple], expected: list[tuple]) -> None:
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    for (*_, values), (*_, wanted) in zip(found, expected, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-12)


def labels(figure: Figure, rows: int) -> list[list[str]]:
    columns = len(figure.axes) // rows
    return [
        [axes.get_ylabel() for axes in figure.axes[k * columns : (k + 1) * columns]]
        for k in range(rows)
    ]


def test_components_on_a_line_have_their_own_rows_of_values_and_errors():
    a, u = functions("a", (6,)), functions("u", (6,), ("u_1", "u_2"))
    p = predicted(u)
    titles = {"first": 2, "second": 0}
    figure = pictures.drawn(a, [p], titles, noisy=True)
    assert labels(figure, 5) == [
        ["input a", ""], ["u_1", ""], ["p − u_1", ""], ["u_2", ""], ["p − u_2", ""],
    ]  # fmt: skip
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["first", "second"]
    zero = (QUIET, "-", np.array([0, 0]))
    for column, i in enumerate((2, 0)):
        given, *rows = figure.axes[column::2]
        same(curves(given), [(INPUT, "-", a.values[i, :, 0])])
        for c in range(2):
            above, below = rows[2 * c : 2 * c + 2]
            t, q = u.values[i, :, c], p.values[i, :, c]
            same(curves(above), [(TRUTH, "-", t), (INKS[0], "--", q)])
            same(curves(below), [(ERROR, "-", q - t), zero])
            assert below.get_xlim() == (pytest.approx(1 / 12), pytest.approx(11 / 12))
    assert [axes.get_xlabel() for axes in figure.axes] == [""] * 8 + ["x", "x"]
    assert legend_of(figure) == ["input a with noise", "truth u", "prediction p", "error p − u"]
    alone = pictures.drawn(None, [p], titles)
    assert len(alone.axes) == 8
    assert legend_of(alone) == ["truth u", "prediction p", "error p − u"]


def test_only_the_errors_of_a_line_have_scales_of_their_own():
    a, u = functions("a", (6,)), functions("u", (6,))
    figure = pictures.drawn(a, [predicted(u)], {"first": 2, "second": 0})
    limits = [axes.get_ylim() for axes in figure.axes]
    assert limits[0] == limits[1]
    assert limits[2] == limits[3]
    assert limits[4] != limits[5]


def test_the_colour_of_a_trajectory_on_a_line_is_its_time():
    a, u = functions("a", (6,)), functions("u", (6,), times=AT)
    p = predicted(u)
    figure = pictures.drawn(a, [p], {"only": 1})
    scale = Normalize(0.5, 2.5)
    shown = [0, 1, 3, 4]  # four of five times
    given, above, below, bar = figure.axes
    ink = [to_hex(TIMES(scale(AT[k]))) for k in shown]
    assert [to_hex(line[0]) for line in curves(above)] == [c for c in ink for _ in range(2)]
    assert [to_hex(line[0]) for line in curves(below)[:-1]] == ink
    for k, line in zip(shown, curves(below)[:-1], strict=True):
        np.testing.assert_allclose(line[2], (p.values - u.values)[1, :, k])
    assert curves(given)[0][0] == INPUT
    assert bar.get_ylabel() == "time t"
    assert above.lines[0].get_alpha() == 0.5
    middle = to_hex(TIMES(scale(1.5)))  # the colour of the legend
    named = {line.get_label(): line for line in given.lines if not len(line.get_xdata())}
    assert to_hex(named["truth u"].get_color()) == middle
    assert named["truth u"].get_alpha() == 0.5
    assert list(named) == ["input a", "truth u", "prediction p", "error p − u"]


def test_inputs_of_several_components_have_their_own_dashes():
    a, u = functions("a", (6,), ("a_1", "a_2")), functions("u", (6,))
    figure = pictures.drawn(a, [predicted(u)], {"only": 1})
    same(curves(figure.axes[0]), [
        (INPUT, "-", a.values[1, :, 0]), (INPUT, "--", a.values[1, :, 1]),
    ])  # fmt: skip
    assert legend_of(figure)[:2] == ["input a_1", "input a_2"]


def test_operators_on_a_line_are_drawn_over_one_truth():
    u = functions("u", (6,), ("u_1", "u_2"))
    first, second = predicted(u, "FNO"), predicted(u, "GT")
    figure = pictures.drawn(None, [first, second], {"only": 2})
    above, below = figure.axes  # of one component
    p, q = first.values[2, :, 0], second.values[2, :, 0]
    t = u.values[2, :, 0]
    same(curves(above), [
        (TRUTH, "-", t), (INKS[0], DASHES[1], p), (INKS[1], DASHES[2], q),
    ])  # fmt: skip
    same(curves(below), [
        (INKS[0], DASHES[1], p - t), (INKS[1], DASHES[2], q - t), (QUIET, "-", np.array([0, 0])),
    ])  # fmt: skip
    assert legend_of(figure) == ["truth u", "p of FNO", "p of GT"]


def panels(figure: Figure) -> list[tuple[str, str, np.ndarray, tuple[float, float], str | None]]:
    """Title, label, values, limits and label of the bar of each image."""
    return [
        (
            axes.get_title(loc="left"), axes.get_ylabel(), np.asarray(axes.images[0].get_array()).T,
            axes.images[0].get_clim(), next((bar.get_ylabel() for bar in axes.child_axes), None),
        )
        for axes in figure.axes
        if axes.images
    ]  # fmt: skip


def test_channels_in_the_plane_have_rows_of_truth_prediction_and_error():
    a, u = functions("a", (5, 4)), functions("u", (5, 4), ("u_1", "u_2"))
    p = predicted(u)
    found = panels(pictures.drawn(a, [p], {"best": 1}, noisy=True))
    e = p.values - u.values
    titles = ["best, input a with noise", "truth u_1", "prediction p", "error p − u_1",
              "truth u_2", "prediction p", "error p − u_2"]  # fmt: skip
    assert [one[0].replace("\n", ", ") for one in found][1:] == titles[1:]
    assert "input a with noise" in found[0][0]
    values = [a.values[1, ..., 0]]
    for c in range(2):
        values += [of[1, ..., c] for of in (u.values, p.values, e)]
    for one, wanted in zip(found, values, strict=True):
        np.testing.assert_array_equal(one[2], wanted)
    assert [one[4] for one in found] == ["a", None, "u_1, p", "p − u_1", None, "u_2, p", "p − u_2"]
    for c in range(2):
        t, q, d = found[1 + 3 * c : 4 + 3 * c]
        both = np.stack([t[2], q[2]])
        assert t[3] == q[3] == (both.min(), both.max())
        assert d[3] == (-np.abs(d[2]).max(), np.abs(d[2]).max())


def test_operators_in_the_plane_have_their_errors_below_their_predictions():
    a, u = functions("a", (5, 4)), functions("u", (5, 4))
    every = [predicted(u, "FNO"), predicted(u, "GT", ERRORS / 10)]
    found = panels(pictures.drawn(a, every, {"best": 1, "worst": 0}))
    assert len(found) == 2 * (1 + 3 + 2)
    assert [one[0].split("\n")[-1] for one in found[:6]] == [
        "input a", "truth u", "FNO", "GT", "error 1.00e-1", "error 1.00e-2",
    ]  # fmt: skip
    assert [one[0].split("\n")[-1] for one in found[7:]] == ["", "", "", *(
        "error 3.00e-1", "error 3.00e-2")]  # fmt: skip
    for first, i in ((0, 1), (6, 0)):
        truth, one, other, e, d = found[first + 1 : first + 6]
        np.testing.assert_array_equal(truth[2], u.values[i, ..., 0])
        for drawn, error, of in ((one, e, every[0]), (other, d, every[1])):
            np.testing.assert_array_equal(drawn[2], of.values[i, ..., 0])
            np.testing.assert_array_equal(error[2], (of.values - u.values)[i, ..., 0])
        three = np.stack([x[2] for x in (truth, one, other)])
        assert truth[3] == one[3] == other[3] == (three.min(), three.max())
        size = max(np.abs(e[2]).max(), np.abs(d[2]).max())
        assert e[3] == d[3] == (-size, size)
        assert [x[4] for x in (truth, one, other, e, d)] == [None, None, "u, p", None, "p − u"]


def test_one_time_of_a_trajectory_in_the_plane_is_drawn():
    assert pictures.channels_of(functions("u", (5, 4), times=AT)) == 1
    assert pictures.channels_of(functions("u", (5, 4), times=(1.0,))) == 4
    assert pictures.channels_of(functions("u", (5,), times=AT)) == 4


def test_ranks_leave_out_samples_without_an_error():
    errors = np.array([0.4, np.nan, 0.1, 0.3, 0.2])
    assert pictures.ranked(errors) == {"best": 2, "median": 4, "worst": 0}
    assert pictures.ranked(np.array([0.4, 0.1, 0.3])) == {"best": 1, "median": 2, "worst": 0}


def test_the_mean_error_has_a_panel_for_each_component_over_its_times():
    truth = functions("u", (5, 4), ("u_1", "u_2"), AT[:3])
    error = RNG.normal(size=truth.values.shape)
    figure = pictures.mean_error(truth, error)
    found = panels(figure)
    for c, one in enumerate(found):
        mean = np.abs(error[..., c::2]).mean(axis=(0, -1))
        np.testing.assert_allclose(one[2], mean)
        assert one[3] == (0, pytest.approx(mean.max()))
    assert [one[4] for one in found] == ["mean |p − u_1|", "mean |p − u_2|"]
    assert figure.get_size_inches()[0] == WIDE
    alone = pictures.mean_error(functions("u", (5, 4)), error[..., :1])
    assert alone.get_size_inches()[0] == HALF
    assert alone.axes[0].images[0].get_cmap().name == "magma_r"


def test_operators_of_a_benchmark_on_a_line_have_a_panel_of_their_error():
    truth = functions("u", (6,), times=AT)
    p, q = (RNG.normal(size=(6, 5)) for _ in range(2))
    figure = pictures.predictions_on_a_line(truth, {"FNO": p, "GT": q})
    first, *others = figure.axes
    u = truth.values[0, :, 4]  # the last time
    same(curves(first), [(TRUTH, "-", u)])
    assert first.get_title(loc="left") == "truth u"
    for axes, name, of in zip(others, ("FNO", "GT"), (p, q), strict=False):
        e = of[:, 4] - u
        same(curves(axes), [(ERROR, "-", e), (QUIET, "-", np.array([0, 0]))])
        size = np.linalg.norm(e) / np.linalg.norm(u)
        assert axes.get_title(loc="left") == f"{name}: p − u, {size:.2e}".replace(
            "e+00", ""
        ).replace("e-0", "e-")


def test_operators_of_a_benchmark_in_the_plane_have_one_scale_of_errors():
    truth = functions("u", (5, 4), count=2)
    named = {name: RNG.normal(size=(5, 4, 1)) * 3**k for k, name in enumerate("pqr")}
    found = panels(pictures.predictions_in_panels(truth, named))
    u = truth.values[0]
    largest = [np.abs(of - u).max() for of in named.values()]
    np.testing.assert_array_equal(found[0][2], u[..., 0])
    for k, (name, of) in enumerate(named.items()):
        p, e = found[1 + 2 * k : 3 + 2 * k]
        assert (p[0], e[0]) == (name, "p − u")
        np.testing.assert_array_equal(p[2], of[..., 0])
        np.testing.assert_allclose(e[2], (of - u)[..., 0])
        limit = np.sort(largest)[1:].mean()  # three quarters of the way
        assert e[3] == pytest.approx((-limit, limit))
        assert p[3] == found[0][3] == (truth.values.min(), truth.values.max())
    assert found[0][0] == "truth u"


def test_frames_have_their_times_and_one_bar():
    truth = functions("u", (5, 4), ("u_1", "u_2"), (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5))
    values = RNG.normal(size=truth.values.shape)
    found = panels(pictures.frames(truth, values, 2))
    shown = [0, 2, 3, 4, 6]  # five of seven times
    for row, of in enumerate((truth.values, values, values - truth.values)):
        for column, time in enumerate(shown):
            np.testing.assert_array_equal(found[5 * row + column][2], of[2, ..., 2 * time])
    assert [one[0].split("\n")[-1] for one in found[:5]] == [
        f"t = {truth.times[time]:g}" for time in shown
    ]
    assert not any("t =" in one[0] for one in found[5:])
    bars = [one[4] is not None for one in found]
    assert bars == [False, False, False, False, True] * 3


def test_an_animation_in_the_plane_has_a_row_for_each_component_and_scales_of_all_times():
    truth = functions("u", (5, 4), ("u_1", "u_2"), (0.5, 1.5))
    values = RNG.normal(size=truth.values.shape)
    figure = pictures._panels_at(truth, values, 2, 1.5)
    found = panels(figure)
    assert [one[0] for one in found] == ["truth u", "prediction p", "difference p − u", "", "", ""]
    assert [found[0][1], found[3][1]] == ["u_1", "u_2"]
    assert figure.get_suptitle() == "t = 1.5"
    for c in range(2):
        every = [of[2, ..., c::2] for of in (truth.values, values, values - truth.values)]
        limits = min(map(np.min, every)), max(map(np.max, every))
        for one, of in zip(found[3 * c : 3 * c + 3], every, strict=True):
            np.testing.assert_array_equal(one[2], of[..., 1])
            assert one[3] == limits
    assert [one[4] is not None for one in found] == [False, False, True] * 2


def test_an_animation_on_a_line_has_limits_of_all_times():
    truth = functions("u", (6,), ("u_1", "u_2"), (0.5, 1.5))
    values = RNG.normal(size=truth.values.shape)
    figure = pictures._curves_at(truth, values, 1, 0.5)
    for c, axes in enumerate(figure.axes):
        u, p = (of[1, :, c::2] for of in (truth.values, values))
        same(curves(axes), [(TRUTH, "-", u[:, 0]), (MODEL, "--", p[:, 0])])
        low, high = min(u.min(), p.min()), max(u.max(), p.max())
        rim = 0.05 * (high - low)
        assert axes.get_ylim() == pytest.approx((low - rim, high + rim))
        assert axes.get_xlim() == pytest.approx((1 / 12, 11 / 12))
        assert axes.get_ylabel() == f"u_{c + 1}"
    assert figure.axes[0].get_title(loc="left") == "t = 0.5"
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "x"]
    assert legend_of(figure) == ["truth u", "prediction p"]


def test_a_power_spectrum_is_that_of_one_time_and_all_components():
    n = 16
    x = 2 * np.pi * np.arange(n) / n
    wave = np.stack([a * np.cos(k * x) for a, k in ((2, 1), (4, 2), (6, 3), (8, 1))], -1)
    values = np.repeat(wave[None, :, None], n, axis=2)
    parts = [("u_1", 0.5), ("u_2", 0.5), ("u_1", 1.5), ("u_2", 1.5)]
    channels = tuple(Channel("u", *part) for part in parts)
    truth = Functions(Look("u"), values, channels, Box.periodic(n, n))
    figure = pictures.spectrum(truth, 3 * values, 1.5)
    (axes,) = figure.axes
    u, p, e = (np.asarray(line.get_ydata(), float) for line in axes.lines)
    np.testing.assert_allclose(u, [32, 0, 18], atol=1e-9)
    np.testing.assert_allclose(p, 9 * u, atol=1e-9)
    np.testing.assert_allclose(e, 4 * u, atol=1e-9)
    assert [(line.get_color(), line.get_linestyle()) for line in axes.lines] == [
        (TRUTH, "-"), (MODEL, "--"), (ERROR, ":"),
    ]  # fmt: skip
    assert legend_of(figure) == ["truth u", "prediction p", "error p − u"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("wave number |k|", "power in the shell")
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3]] * 3
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_power_is_a_mean_over_the_samples():
    x = 2 * np.pi * np.arange(16) / 16
    waves = np.stack([a * np.cos(2 * x)[:, None] * np.ones(16) for a in (1.0, 3.0)])[..., None]
    np.testing.assert_allclose(pictures.shells(waves, (1.0, 1.0))[1][:3], [0, 2.5, 0],
                               atol=1e-12)  # fmt: skip
