"""Pictures of a store have every variable, component, sample and time where they belong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure

from pdegen.domains import Box, Cloud
from pdegen.store.reading import open_sealed
from pipelines.reports import pictures
from pipelines.reports.fields import Above, Look
from pipelines.reports.figures import TIMES
from pipelines.reports.palette import INPUT, MODEL
from tests.pipelines.shapes import a_store
from tests.pipelines.test_charts import legend_of
from tests.pipelines.test_drawn_samples import functions, panels

RNG = np.random.default_rng(13)
STYLES = [(INPUT, "--"), (MODEL, "-")]


def lines(axes) -> list[tuple[str, str, np.ndarray]]:
    return [(to_hex(one.get_color()), one.get_linestyle(), np.asarray(one.get_ydata()))
            for one in axes.lines if len(one.get_xdata())]  # fmt: skip


def same(axes, *expected: tuple[str, str, np.ndarray]) -> None:
    found = lines(axes)
    assert [one[:2] for one in found] == [(to_hex(ink), dashes) for ink, dashes, _ in expected]
    for one, (*_, values) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[2], values)


def test_values_of_a_store_are_those_of_their_sample_component_and_time(tmp_path):
    url = a_store(str(tmp_path / "s.zarr"), Box.cell(4, 3), times=(0.5, 1.5), channels=("p", "q"))
    store = open_sealed(url)
    found = pictures.functions(store, "u", [7, 2])
    stored = np.asarray(store.values("u"))  # sample, time, channel, space
    assert [(c.variable, c.component, c.time) for c in found.channels] == [
        ("u", "p", 0.5), ("u", "q", 0.5), ("u", "p", 1.5), ("u", "q", 1.5),
    ]  # fmt: skip
    for i, sample in enumerate((7, 2)):
        for channel, (time, part) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
            np.testing.assert_array_equal(found.values[i, ..., channel], stored[sample, time, part])
    assert (found.look.name, found.look.colours, found.look.log) == ("state u", "sequential", True)
    medium = pictures.functions(store, "a", [1])
    assert (medium.look.name, medium.look.colours) == ("medium a", "phases")
    assert pictures._named(store, "u") == "target u: state u"
    assert pictures._title(store, "u").startswith("Toy functions\n")


def test_points_and_counts_of_a_cloud_are_those_of_its_samples(tmp_path):
    positions, counts = RNG.random((12, 6, 2)), np.arange(12) % 3 + 4
    url = a_store(str(tmp_path / "s.zarr"), Cloud((6,), 2), positions=positions, counts=counts)
    found = pictures.functions(open_sealed(url), "u", [5, 3])
    kept = np.arange(6) < counts[[5, 3], None]
    stored = positions.astype("float32")[[5, 3]]
    np.testing.assert_array_equal(found.positions, stored * kept[..., None])
    assert found.counts.tolist() == [counts[5], counts[3]]


def test_curves_of_a_sample_are_those_of_all_variables():
    a, u = functions("a", (6,)), functions("u", (6,))
    figure = pictures._curves([a, u], ["s 0", "s 1", "s 2"], ["input", "target"], STYLES, "title")
    for i, axes in enumerate(figure.axes):
        same(axes, (INPUT, "--", a.values[i, :, 0]), (MODEL, "-", u.values[i, :, 0]))
        assert axes.get_title(loc="left") == f"s {i}"
        assert axes.get_xlabel() == "x"
        assert axes.get_xlim() == pytest.approx((1 / 12, 11 / 12))
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_ylabel() == "a, u"
    assert legend_of(figure) == ["input", "target"]
    assert figure.get_suptitle() == "title"
    five = functions("u", (6,), count=5)
    figure = pictures._curves([five], [f"{i}" for i in range(5)], ["u"], STYLES[1:], "")
    assert [axes.axison for axes in figure.axes] == [True] * 5 + [False]
    same(figure.axes[4], (MODEL, "-", five.values[4, :, 0]))


def test_components_have_rows_and_at_most_three_samples():
    u = functions("u", (6,), ("p", "q"), count=5)
    figure = pictures._curves([u], [f"s {i}" for i in range(5)], ["u"], STYLES[1:], "")
    assert len(figure.axes) == 6
    for k, axes in enumerate(figure.axes):
        same(axes, (MODEL, "-", u.values[k % 3, :, k // 3]))
    assert [axes.get_ylabel() for axes in figure.axes] == ["p", "", "", "q", "", ""]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["s 0", "s 1", "s 2", *[""] * 3]
    assert figure.axes[0].get_ylim() == figure.axes[2].get_ylim() != figure.axes[3].get_ylim()


def test_a_trajectory_has_colours_of_its_times_and_an_image_of_one_sample():
    times = (0.5, 1.0, 2.5)
    a, u = functions("a", (6,)), functions("u", (6,), times=times)
    figure = pictures._curves([a, u], ["only"], ["input", "target"], STYLES, "")
    curves, image, *bars = figure.axes
    scale = Normalize(0.5, 2.5)
    same(curves, (INPUT, "--", a.values[0, :, 0]), *(
        (to_hex(TIMES(scale(time))), "-", u.values[0, :, k]) for k, time in enumerate(times)
    ))  # fmt: skip
    (mesh,) = image.collections
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(3, 6), u.values[0].T)
    size = np.abs(u.values[0]).max()
    assert mesh.get_clim() == (-size, size)
    assert image.get_ylabel() == "time t"
    assert sorted(bar.get_ylabel() for bar in bars) == ["time t", "u"]
    assert curves.get_title(loc="left") == ""
    several = pictures._curves([u], ["s 0", "s 1"], ["u"], STYLES[1:], "")
    assert not any(axes.collections for axes in several.axes[:2])


def test_nothing_is_drawn_against_a_single_time():
    figure = Figure()
    axes = figure.subplots()
    pictures._against_time(figure, axes, functions("u", (6,), times=(0.5,)), "u")
    assert not axes.axison


def test_few_panels_are_wrapped_and_samples_have_columns():
    a, u = functions("a", (5, 4)), functions("u", (5, 4), ("p", "q"))
    found = panels(pictures._panels([a, u], ["sample 3"], "title", None))
    assert [one[0] for one in found] == ["", "p", "q"]
    assert [one[4] for one in found] == ["a", "u", "u"]
    np.testing.assert_array_equal(found[2][2], u.values[0, ..., 1])
    assert found[1][3] == (u.values[..., 0].min(), u.values[..., 0].max())
    found = panels(pictures._panels([a, u], ["sample 3", "sample 4"], "title", None))
    assert [one[0] for one in found] == ["sample 3", "sample 4", "", "", "", ""]
    np.testing.assert_array_equal(found[5][2], u.values[1, ..., 1])


def test_channels_have_scales_of_their_own():
    a, u = functions("a", (5, 4)), functions("u", (5, 4), ("p", "q"))
    u = replace(u, values=u.values * np.array([1.0, 100.0]))
    found = panels(pictures._panels([a, u], ["sample 3"], "title", None))
    for channel, one in enumerate(found[1:]):
        assert one[3] == (u.values[..., channel].min(), u.values[..., channel].max())


def test_the_title_has_the_constants_of_a_variable():
    attributes = {"viscosity": 0.01, "modes": 12, "kind": "two-phase"}
    store = SimpleNamespace(
        raw_attributes={"title": "Flow"}, raw_attributes_of={"u": attributes, "a": {}}.get
    )
    assert pictures._title(store, "u") == "Flow\nviscosity = 0.01, modes = 12"
    assert pictures._title(store, "a") == "Flow\n"


def test_noise_levels_share_the_scale_of_their_variable():
    a, u = functions("a", (5, 4)), functions("u", (5, 4))
    found = panels(pictures._panels([a, u], ["noise 0", "noise 1", "noise 2"], "title", 1))
    assert [one[0] for one in found] == ["a", "noise 0", "noise 1", "noise 2"]
    np.testing.assert_array_equal(found[0][2], a.values[0, ..., 0])
    for k, one in enumerate(found[1:]):
        np.testing.assert_array_equal(one[2], u.values[k, ..., 0])
        assert one[3] == (u.values.min(), u.values.max())


def test_a_body_replaces_its_variable_where_displacements_are_drawn():
    die = replace(functions("die", (5, 4)), look=Look("die", falls=0.5))
    u, other = functions("u", (5, 4)), functions("s", (5, 4))
    moves = replace(u, look=Look("u", moves=True))
    assert pictures._with_bodies([die, u]) == [die, u]
    drawn, stress = pictures._with_bodies([die, moves, other])
    assert isinstance(drawn.above, Above)
    np.testing.assert_array_equal(drawn.above.heights, die.values[:, :, -1, 0])
    assert (drawn.look, stress.look, stress.above) == (moves.look, other.look, None)
    assert pictures._with_bodies([moves])[0].above is None


def test_the_main_variable_has_the_solid_line():
    assert pictures._styles(["a", "b", "u"], "u") == [
        (INPUT, "--"), ("#CC79A7", "-."), (MODEL, "-"),
    ]  # fmt: skip


def test_meanings_end_before_an_afterthought():
    cut = pictures.AFTERTHOUGHT.sub
    assert cut("", "state u(x, t), scaled, twice") == "state u(x, t)"
