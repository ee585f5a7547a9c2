"""Weights integrate, boundaries are where they should be, and attributes give the domain back."""

import json

import numpy as np
import pytest

from pdegen.domains import (
    Box,
    CellGrid,
    Cloud,
    Curvilinear,
    DomainError,
    NodalGrid,
    PeriodicGrid,
    from_attributes,
)
from pdegen.numerics.spectral import wave_numbers

pytestmark = pytest.mark.usefixtures("shapes")

CHANNEL = Box((PeriodicGrid(16, length=4.0), NodalGrid(5, length=2.0, start=-1.0)))


def annulus(angles: int, radii: int) -> np.ndarray:
    """Nodes of 1 <= r <= 2; the first angle is not repeated."""
    angle = 2 * np.pi * np.arange(angles) / angles
    radius = np.linspace(1, 2, radii)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return circle[:, None] * radius[:, None]


@pytest.mark.parametrize(
    ("grid", "x"),
    [
        (PeriodicGrid(4, 2.0, -1.0), [-1, -0.5, 0, 0.5]),
        (CellGrid(4, 2.0, -1.0), [-0.75, -0.25, 0.25, 0.75]),
        (NodalGrid(5, 2.0, -1.0), [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_a_grid_has_its_length_and_is_found_by_its_points(grid, x):
    np.testing.assert_allclose(grid.x, x, atol=1e-15)
    assert grid.spacing == 0.5
    assert grid.weights.sum() == pytest.approx(2)
    assert type(grid).through(grid.x) == grid


@pytest.mark.parametrize("kind", [PeriodicGrid, CellGrid, NodalGrid])
@pytest.mark.parametrize("n", [2, 3, 64, 421, 8192])
def test_a_grid_of_the_unit_interval_is_found_exactly(kind, n):
    assert kind.through(kind(n).x) == kind(n)


@pytest.mark.parametrize("x", [[0, 0.1, 0.3], [0.5, 0.25, 0], [0, 0], [0, np.nan], [0, np.inf]])
def test_other_points_are_no_grid(x):
    with pytest.raises(DomainError, match="the points of a nodal grid must increase by equal"):
        NodalGrid.through(np.array(x, float))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda length=length: CellGrid(4, length), "positive, finite length")
          for length in (0, -1, np.inf, np.nan)),
        (lambda: PeriodicGrid(0), "at least one point, got 0"),
        (lambda: PeriodicGrid(-2), "at least one point, got -2"),
        (lambda: CellGrid(0), "at least one cell, got 0"),
        (lambda: NodalGrid(1), "at least its two ends, got 1"),
        *((lambda n=n: wave_numbers(PeriodicGrid(n)), f"even number of points >= 4, got {n}")
          for n in (2, 3, 7, 65)),
        *((lambda n=n: PeriodicGrid(64).stride_to(PeriodicGrid(n)), f"{n} points is not part of")
          for n in (6, 128)),
        *((lambda count=count: Box((CellGrid(4),) * count), f"one to three axes, got {count}")
          for count in (0, 4)),
    ],
)  # fmt: skip
def test_an_impossible_grid_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_every_stride_th_fine_point_is_a_coarse_point():
    fine, coarse = PeriodicGrid(8192), PeriodicGrid(512)
    np.testing.assert_array_equal(fine.x[:: fine.stride_to(coarse)], coarse.x)
    assert fine.stride_to(fine) == 1


def test_weights_integrate_waves_of_a_period_and_lines_between_nodes_exactly():
    circle, line = PeriodicGrid(16), NodalGrid(5)
    wave = 2 + np.cos(2 * np.pi * 7 * circle.x)
    assert circle.weights @ wave == pytest.approx(2, abs=1e-14)  # a few roundings
    assert line.weights @ (2 + 3 * line.x) == pytest.approx(3.5)


def test_a_box_of_several_kinds_integrates_over_its_lengths():
    x, y = np.moveaxis(CHANNEL.points, -1, 0)
    values = (1 + np.cos(2 * np.pi * x / 4)) * (3 + y)
    assert (CHANNEL.weights * values).sum() == pytest.approx(4 * 6)
    assert CHANNEL.grid == "mixed"
    assert CHANNEL.spacing == (0.25, 0.5)
    assert CHANNEL.boundary.sum() == 2 * 16
    assert CHANNEL.boundary[:, [0, -1]].all()
    assert Box.cell(3, 4).grid == "cell"
    assert not Box.cell(3, 4).boundary.any()
    assert Box.nodal(3, 4).boundary.sum() == 10


def test_the_weights_of_a_curvilinear_mesh_are_its_areas():
    mesh = Curvilinear.of(annulus(400, 101), closed=[True, False])
    assert mesh.weights.sum() == pytest.approx(3 * np.pi, rel=1e-4)  # of a 400-gon
    r = np.linalg.norm(mesh.points, axis=-1)
    assert (mesh.weights * r**2).sum() == pytest.approx(np.pi * 15 / 2, rel=1e-3)
    assert mesh.boundary.sum() == 2 * 400
    assert mesh.boundary[:, [0, -1]].all()
    np.testing.assert_allclose(np.ptp(mesh.weights, axis=0), 0, atol=1e-12)  # the seam is no edge


def test_an_open_mesh_of_the_square_has_the_weights_of_its_box():
    box = Box.nodal(5, 9)
    mesh = Curvilinear.of(box.points)
    np.testing.assert_allclose(mesh.weights, box.weights, atol=1e-15)
    np.testing.assert_array_equal(mesh.boundary, box.boundary)
    line = Curvilinear.of(np.array([[0.0], [1.0], [3.0]]))
    assert line.weights.tolist() == [0.5, 1.5, 1.0]


def test_the_weights_of_a_cloud_are_those_of_its_cells():
    corners = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1], [3, 0.5]])
    cells = np.array([[0, 1, 2, 3], [1, 4, 2, -1]])  # a rectangle and a triangle
    cloud = Cloud.of(corners, cells)
    assert cloud.weights.sum() == pytest.approx(2 + 0.5)
    assert (cloud.weights * corners[:, 0]).sum() == pytest.approx(2 * 1 + 0.5 * 7 / 3)
    assert cloud.triangles.tolist() == [[0, 1, 2], [1, 4, 2], [0, 2, 3]]
    assert Cloud.of(corners).weights.tolist() == [0.2] * 5
    assert Cloud.of(corners).triangles is None


@pytest.mark.parametrize(
    "domain", [Curvilinear((3, 4), 2), Cloud((7,), 2, cells=np.array([[0, 1, 6]]))]
)
def test_a_domain_that_moves_has_the_positions_of_a_sample(domain):
    assert domain.moves
    for what in ("points", "weights"):
        with pytest.raises(DomainError, match="differ from sample to sample"):
            getattr(domain, what)
    positions = np.random.default_rng(0).random((*domain.shape, 2))
    there = domain.at(positions)
    assert not there.moves
    np.testing.assert_array_equal(there.points, positions)
    with pytest.raises(ValueError, match="expected positions of shape"):
        domain.at(positions[1:])


def test_a_box_has_no_positions_of_a_sample():
    with pytest.raises(DomainError, match="the same in all samples"):
        Box.cell(3).at(np.zeros((3, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curvilinear((3, 4), 3), "as many as space"),
        (lambda: Curvilinear((3, 4), 2, closed=(True,)), "a value for each axis"),
        (lambda: Cloud((3, 4), 2), "a cloud has one axis"),
        (lambda: Cloud((0,), 2), "is invalid"),
        (lambda: Cloud((3,), 4), "is invalid"),
        (lambda: Cloud((3,), 2, cells=np.array([[0, 1, 3]])), "rows of indices of points, -1 to 2"),
        (
            lambda: Cloud((3,), 2, cells=np.array([[0, 1, -2]])),
            "rows of indices of points, -1 to 2",
        ),
        (lambda: Cloud((3,), 2, edge=np.zeros(4, bool)), "edge has shape"),
    ],
)
def test_an_impossible_domain_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "domain",
    [
        Box.periodic(8),
        CHANNEL,
        Box.nodal(3, 4, 5),
        Curvilinear((3, 4), 2, closed=(True, False)),
        Curvilinear.of(annulus(8, 3)),
        Cloud((7,), 3),
        Cloud.of(np.eye(2)),
    ],
    ids=lambda domain: domain.kind,
)
def test_attributes_give_the_domain_back(domain):
    said = json.loads(json.dumps(domain.attributes()))
    again = from_attributes(said, None if domain.moves else domain.points)
    assert again.attributes() == said
    assert type(again) is type(domain)
    if not domain.moves:
        np.testing.assert_array_equal(again.points, domain.points)
        np.testing.assert_array_equal(again.boundary, domain.boundary)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "sphere", "shape": [3], "axes": ["point"]},
        {"kind": "box", "axes": [{"name": "x", "grid": "polar", "n": 3, "length": 1, "start": 0}]},
        {"kind": "box", "axes": [{"name": "y", "grid": "cell", "n": 3, "length": 1, "start": 0}]},
        {"kind": "box", "axes": [{"name": "x", "grid": "cell", "n": 0, "length": 1, "start": 0}]},
        {"kind": "box", "axes": [{"name": "x", "grid": "cell", "n": "3", "length": 1, "start": 0}]},
        {"kind": "box", "axes": []},
        {"kind": "cloud", "axes": ["point"], "shape": [3], "dim": 2, "moves": False},
        {"kind": "cloud", "axes": ["i"], "shape": [3], "dim": 2, "moves": True},
        {"kind": "curvilinear", "axes": ["i", "j"], "shape": [3], "dim": 2, "moves": True},
        {"kind": "curvilinear", "axes": ["i", "j"], "shape": 3, "dim": 2, "moves": True},
    ],
)
def test_damaged_attributes_are_an_error_in_one_line(content):
    with pytest.raises(DomainError) as error:
        from_attributes(content)
    assert "\n" not in str(error.value)
