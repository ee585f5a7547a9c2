"""Bodies within meshes are detected, filled and followed; the part near them is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

from operators.data import Channel
from pdegen.domains import Box, Cloud, Curvilinear
from pdegen.recipe import load_recipe
from pdegen.store.format import SurfaceCurve
from pipelines.reports import fields
from pipelines.reports.fields import Functions, Look, sheet
from pipelines.reports.fields import bodies as bodies_of

NEAR = np.array([-0.5, -0.5]), np.array([1.5, 0.5])
BEHIND, AROUND, OUT = 3, 8, 4  # nodes of a C-grid behind its section, around it, and outwards


def c_grid() -> Curvilinear:
    """Around a diamond from (0, 0) to (1, 0), with a cut from there to (2, 0)."""
    angle = 2 * np.pi * np.arange(AROUND + 1) / AROUND
    section = np.stack([(1 + np.cos(angle)) / 2, -0.1 * np.sin(angle)], axis=-1)
    section[[0, -1]] = 1.0, 0.0
    wake = np.stack([1 + np.arange(1, BEHIND + 1) / BEHIND, np.zeros(BEHIND)], axis=-1)
    inner = np.concatenate([wake[::-1], section, wake])
    away = inner * [1.0, 0.0] + np.linspace(-1, 1, len(inner))[:, None] * [0.0, 3.0]
    share = np.linspace(0, 1, OUT)[:, None]
    return Curvilinear.of(inner[:, None] * (1 - share) + away[:, None] * share)


def with_void() -> Cloud:
    """A square of 4 x 4 cells without the one at (1, 1)."""
    number = np.arange(25).reshape(5, 5)
    cells = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], -1)
    kept = np.delete(cells.reshape(-1, 4), 5, axis=0)
    points = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij"), -1)
    return Cloud.of(points.reshape(-1, 2), kept)


def flow(**changes: object) -> Functions:
    domain = c_grid()
    values = np.random.default_rng(0).random((2, *domain.shape, 1))
    how = Look("M", contours=True, along=SurfaceCurve("c", 1.0, 0.5))
    made = Functions(how, values, (Channel("u"),), domain, near=NEAR)
    return replace(made, **changes)


def test_a_cut_behind_a_section_is_no_body():
    (section,) = bodies_of(c_grid())
    inner = c_grid().points[:, 0]
    expected = {tuple(point) for point in inner[BEHIND : BEHIND + AROUND]}
    assert {tuple(point) for point in c_grid().points.reshape(-1, 2)[section]} == expected
    assert len(section) == AROUND


def in_part_of_triangles() -> Cloud:
    """The same, with each second cell as two triangles."""
    quads = with_void().cells
    assert quads is not None
    triangles = [[*cell[k], -1] for cell in quads[1::2] for k in ([0, 1, 2], [0, 2, 3])]
    return replace(with_void(), cells=np.concatenate([quads[::2], triangles]))


@pytest.mark.parametrize("domain", [with_void(), in_part_of_triangles()], ids=["cells", "mixed"])
def test_a_void_is_what_a_cloud_goes_around(domain):
    (void,) = bodies_of(domain)
    assert sorted(void.tolist()) == [6, 7, 11, 12]
    around = with_void().points[void]
    assert np.abs(np.diff(around, axis=0)).sum(axis=1).tolist() == [1, 1, 1]  # in order


@pytest.mark.parametrize(
    "domain",
    [
        Box.nodal(4, 4),
        Curvilinear.of(Box.nodal(4, 4).points),
        Cloud.of(with_void().points),
        replace(with_void(), cells=np.array([[0, 1, 6, 5], [6, 7, 12, 11]])),
    ],
    ids=["box", "mesh", "points", "cells that touch at a corner"],
)
def test_others_go_around_nothing(domain):
    assert bodies_of(domain) == []


def test_a_panel_shows_the_part_near_a_body_with_lines_of_equal_values():
    axes = sheet([[flow().panel(0, 0)]]).axes[0]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 1.5), (-0.5, 0.5))
    (body,) = axes.patches
    assert len(body.get_xy()) == AROUND + 1
    lines = [one for one in axes.collections if isinstance(one, ContourSet)]
    assert len(lines) == 1
    plain = flow(look=Look("M"), near=None)
    axes = sheet([[plain.panel(0, 0)]]).axes[0]
    assert axes.get_ylim()[0] < -2.9
    assert not any(isinstance(one, ContourSet) for one in axes.collections)


def test_values_along_a_body_are_those_of_truth_and_prediction():
    truth = flow()
    figure = fields.along(truth, truth.values + 1, {"best: sample 3": 1, "worst: sample 4": 0})
    for axes, i in zip(figure.axes, (1, 0), strict=True):
        u, p = axes.lines
        found = {tuple(point) for point in np.stack(u.get_data(), axis=-1)}
        x, values = (v[BEHIND : BEHIND + AROUND, 0] for v in (truth.domain.points[..., 0],
                                                            truth.values[i, ..., 0]))  # fmt: skip
        assert found == set(zip(x, (values - 1) / 0.5, strict=True))
        np.testing.assert_allclose(p.get_ydata(), u.get_ydata() + 2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "best: sample 3", "worst: sample 4",
    ]  # fmt: skip
    assert figure.axes[0].get_ylabel() == "c"


def test_the_pressure_coefficient_is_that_of_isentropic_flow_where_it_stops():
    """(1 + (γ - 1)/2 M²)^(γ/(γ-1)) - 1 over γM²/2 at Mach 0.8: 1.170."""
    how = load_recipe("airfoil").problem.physics().drawing["pressure"].along
    assert how is not None
    at_rest = (1 + 0.2 * 0.8**2) ** 3.5
    assert -(at_rest - how.offset) / how.scale == pytest.approx(1.170, abs=1e-3)


@pytest.mark.parametrize(("shape", "lines"), [((40, 20), (10, 20)), ((20, 40), (10, 5))])
def test_a_plane_grid_has_lines_at_about_equal_distances(shape, lines, monkeypatch):
    """Ten lines along the first axis, and across it as many as its length asks for."""
    monkeypatch.setattr(fields, "_LINES", 10)
    x = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).astype(float)
    axes = Figure().subplots()
    fields._lines(axes, x)
    along = [line for line in axes.lines if len(line.get_xdata()) == shape[0]]
    assert (len(along), len(axes.lines) - len(along)) == lines
