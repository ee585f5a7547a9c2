"""A function is drawn where it lives: on boxes, meshes and clouds, without their padding."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh, TriMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box, CellGrid, Cloud, Curvilinear, Domain, PeriodicGrid
from pipelines.reports import fields, pictures
from pipelines.reports.fields import Functions, Look
from pipelines.reports.pictures import Predicted
from pipelines.runs.score import channel_parts

TIMES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
RNG = np.random.default_rng(0)


def ring() -> Curvilinear:
    """4 x 8 nodes between two circles; the angle closes."""
    r, angle = np.meshgrid(np.linspace(1, 2, 4), 2 * np.pi * np.arange(8) / 8, indexing="ij")
    return Curvilinear.of(np.stack([r * np.cos(angle), r * np.sin(angle)], -1), (False, True))


def two_triangles() -> Cloud:
    corners = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    return Cloud.of(corners, np.array([[0, 1, 2], [1, 3, 2]]))


def functions(domain: Domain, names: tuple[str, ...], samples: int = 3) -> Functions:
    values = RNG.normal(size=(samples, *domain.shape, len(names)))
    return Functions(Look(names[0][:1]), values, channels(*names), domain)


def channels(*names: str) -> tuple[Channel, ...]:
    """Of names such as "u_x, t = 0.5"."""
    parts = [name.partition(", t = ") for name in names]
    return tuple(Channel(u[:1], u, float(time) if time else None) for u, _, time in parts)


def shown(domain: Domain, values: np.ndarray) -> tuple[Figure, object]:
    figure = Figure()
    image = fields.show(figure.subplots(), domain, values, "viridis", Normalize(0, 1))
    return figure, image


def test_of_a_box_in_three_dimensions_the_middle_layer_is_drawn():
    domain = Box.cell(4, 4, 5)
    values = RNG.random(domain.shape)
    figure, _ = shown(domain, values)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array().T, values[:, :, 2])
    sheet = fields.sheet([[functions(domain, ("u",)).panel(0, 0)]])
    assert sheet.axes[0].get_title(loc="left") == "at z = 0.5"


def test_a_mesh_is_drawn_at_its_nodes_and_closes():
    values = RNG.random((4, 8))
    _, image = shown(ring(), values)
    assert isinstance(image, QuadMesh)
    points = image.get_coordinates()
    assert points.shape == (4, 9, 2)
    np.testing.assert_array_equal(points[:, 0], points[:, -1])
    np.testing.assert_allclose(points[:, :-1], ring().points)


def test_cells_of_a_cloud_are_triangles_and_a_cloud_without_cells_is_points():
    _, image = shown(two_triangles(), RNG.random(4))
    assert isinstance(image, TriMesh)
    _, image = shown(Cloud.of(two_triangles().points), RNG.random(4))
    assert isinstance(image, PathCollection)
    np.testing.assert_array_equal(image.get_offsets(), two_triangles().points)


def test_padding_is_not_drawn():
    positions = RNG.random((2, 4, 2))
    cells = np.array([[0, 1, 2], [1, 3, 2]])
    cloud = Functions(
        Look("u"), np.full((2, 4, 1), 7.0), channels("u"), Cloud((4,), 2, None, cells), positions,
        np.array([3, 4]),
    )  # fmt: skip
    first, second = cloud.panel(0, 0), cloud.panel(1, 0)
    assert (first.values.shape, second.values.shape) == ((3,), (4,))
    np.testing.assert_array_equal(first.domain.points, positions[0, :3])
    assert isinstance(first.domain, Cloud)
    np.testing.assert_array_equal(first.domain.triangles, [[0, 1, 2]])


def test_points_on_a_line_are_in_order_and_a_circle_closes():
    x, values = fields.line(Cloud.of(np.array([[0.5], [0.1], [0.9]])), np.array([5, 1, 9]))
    assert (x.tolist(), values.tolist()) == ([0.1, 0.5, 0.9], [1, 5, 9])
    x, values = fields.line(Box((PeriodicGrid(4, 2.0),)), np.arange(4))
    assert (x[-1], values[-1]) == (2.0, 0)


def test_few_times_of_each_component_are_drawn_evenly():
    names = tuple(f"{u}, t = {t}" for t in TIMES for u in ("u_x", "u_y"))
    one = functions(Box.cell(4, 4), names)
    assert one.times == list(TIMES)
    assert [one.names[c] for c in one.chosen(4)] == [
        "u_x, t = 0.1", "u_x, t = 0.7", "u_y, t = 0.1", "u_y, t = 0.7",
    ]  # fmt: skip
    alone = functions(Box.cell(4, 4), names[::2])
    assert [alone.names[c][-3:] for c in alone.chosen(4)] == ["0.1", "0.3", "0.5", "0.7"]


def test_times_of_a_component_have_one_scale_and_components_their_own():
    names = ("u_x, t = 1", "u_y, t = 1", "u_x, t = 2", "u_y, t = 2")
    one = functions(Box.cell(4, 4), names)
    one.values[..., 1::2] *= 100
    x, y = one.values[..., ::2], one.values[..., 1::2]
    for channel, of_it in enumerate((x, y, x, y)):
        scale = one.scale(channel)
        assert (scale.vmin, scale.vmax) == (of_it.min(), of_it.max())


def test_titles_of_neighbours_in_a_cube_do_not_meet():
    cube = Box.cell(4, 4, 4)
    a, u = functions(cube, ("a",)), functions(cube, ("u, t = 1", "u, t = 4"))
    predicted = Predicted("p", u, u.values + 1, np.array([0.3, 0.1, 0.2]))
    figure = pictures.predictions(a, predicted, [100, 101, 102])
    figure.draw_without_rendering()
    titles = [axes._left_title for axes in figure.axes if axes.get_title(loc="left")]
    assert len(titles) == 12
    for row in (titles[:4], titles[4:8], titles[8:]):
        counts = [title.get_text().count("\n") for title in row]
        assert counts[0] > max(counts[1:])  # the name of the sample is above
        boxes = [title.get_window_extent() for title in row[1:]]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize(
    "domain",
    [Box((CellGrid(8, 2.0), CellGrid(4))), Box.cell(4, 4, 4), ring(), two_triangles()],
    ids=["rectangle", "cube", "ring", "triangles"],
)
def test_predictions_on_any_domain_have_truth_and_prediction_on_one_scale(domain):
    a, u = functions(domain, ("a",)), functions(domain, ("u_x", "u_y"))
    figure = pictures.predictions(
        a, Predicted("p", u, u.values + 1, np.array([0.3, 0.1, 0.2])), [7, 8, 9]
    )
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    titles = [axes.get_title(loc="left").removesuffix("\nat z = 0.625") for axes in panels]
    titles = [title.split("\n")[-1] for title in titles]
    assert titles[:7] == [
        "input a", "truth u_x", "prediction p", "error p − u_x",
        "truth u_y", "prediction p", "error p − u_y",
    ]  # fmt: skip
    images = [(axes.images or axes.collections)[0] for axes in panels]
    assert images[1].get_clim() == images[2].get_clim() != images[4].get_clim()
    low, high = images[3].get_clim()
    assert low == -high
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in panels}) == 1


def test_a_picture_of_a_moving_mesh_has_the_points_of_each_sample():
    points = ring().points
    positions = np.stack([points, 2 * points])
    mesh = Functions(
        Look("u"), RNG.normal(size=(2, 4, 8, 1)), channels("u"), Curvilinear((4, 8), 2), positions
    )
    figure = fields.sheet([[mesh.panel(0, 0), mesh.panel(1, 0)]])
    first, second = (axes.collections[0].get_coordinates() for axes in figure.axes[:2])
    np.testing.assert_allclose(2 * first, second)
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_a_displacement_is_drawn_where_it_takes_the_points():
    domain, names = Box.nodal(3, 4), ("u_x, t = 1", "u_y, t = 1", "u_x, t = 2", "u_y, t = 2")
    one = functions(domain, names)
    one = replace(one, look=Look("u", moves=True))
    place = one.panel(1, 2).domain
    assert isinstance(place, Curvilinear)
    assert np.array_equal(place.points, domain.points + one.values[1][..., 2:])
    assert replace(one, look=Look("u")).panel(1, 2).domain is domain
    alone = functions(domain, ("u_x, t = 1",))
    assert replace(alone, look=one.look).panel(0, 0).domain is domain  # nobody knows where


def test_components_of_one_name_in_two_variables_keep_their_own_names():
    flow = (Channel("u"), Channel("velocity", "u"), Channel("velocity", "v"))
    names = ["u", "velocity.u", "v"]
    assert channel_parts(flow) == {"channels": names}
    domain = Box.cell(4, 4)
    drawn = Functions(Look("u"), RNG.normal(size=(1, *domain.shape, 3)), flow, domain)
    assert drawn.names == [*drawn.components] == [drawn.symbol(k) for k in range(3)] == names
    assert channel_parts(flow[1:]) == {"channels": ["u", "v"]}
