"""Functions on every domain of a store are read: boxes, meshes, clouds, times, components."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from operators.data import DataError, Samples, open_pairs
from pdegen.domains import Box, CellGrid, Cloud, Curvilinear, Domain, NodalGrid, PeriodicGrid
from pdegen.store.layout import (
    Variable,
    function,
    geometry,
    positions,
    scalar,
    times,
)
from tests.stores import sealed_store

SAMPLES = 12
RNG = np.random.default_rng(0)
TIMES = (0.0, 0.25, 0.5)


def sealed(folder, domain: Domain | None, values, variables, coordinates=()):
    """A store of these variables."""
    coordinates = (*(() if domain is None else positions(domain)), *coordinates)
    splits = {"train": [0, 7], "test": [7, SAMPLES]}
    return sealed_store(
        folder / "store.zarr", values, variables, coordinates, splits, shard=5, domain=domain
    )


def random(variable: Variable) -> np.ndarray:
    return RNG.standard_normal((SAMPLES, *variable.shape)).astype(variable.dtype)


def plain(folder, domain: Domain, **more):
    """The URL of a store of a and u, one value a point, and what it holds."""
    variables = [function(domain, name, name, name) for name in "au"]
    values = {v.name: random(v) for v in variables} | more
    return sealed(folder, domain, values, [*variables, *(geometry(domain) if more else [])]), values


def both(url, split="train", *arguments, **options) -> Samples:
    """The samples in memory, after their batches were compared with those that are streamed."""
    streamed = open_pairs(url, split, *arguments, **options)
    resident = streamed.resident()
    for one, other in (
        (streamed.first(), resident.first()),
        *zip(streamed.in_order(3), resident.in_order(3), strict=False),
    ):
        count = min(len(one), len(other))  # pieces of a stream end with a window
        names = ("a", "u", "x", "y", "weight", "mask", "parameters")
        for name in names:
            mine, theirs = getattr(one, name), getattr(other, name)
            assert (mine is None) == (theirs is None), name
            assert mine is None or torch.equal(mine[:count], theirs[:count]), name
    order = [batch.a for batch in streamed.batches(0, 0, 1)]
    found = torch.cat(order)
    assert sorted(found.flatten(1).sum(1).tolist()) == sorted(resident.a.flatten(1).sum(1).tolist())
    return resident


BOXES = {
    "1-D": Box((PeriodicGrid(8, 2.0),)),
    "2-D": Box((CellGrid(9, 2.0), CellGrid(5))),
    "mixed": Box((PeriodicGrid(8), NodalGrid(5, 0.5, -1.0))),
    "3-D": Box((NodalGrid(5), CellGrid(3, 3.0), PeriodicGrid(4))),
}


@pytest.mark.parametrize("domain", BOXES.values(), ids=BOXES)
def test_times_and_components_are_read_on_every_box(domain, tmp_path):
    a = function(domain, "a", "input", "input", channels=("p", "q"))
    u = function(domain, "u", "target", "velocity", times=TIMES, channels=("u_x", "u_y"))
    values = {"a": random(a), "u": random(u)}
    pairs = both(sealed(tmp_path, domain, values, [a, u], [times(TIMES)]))
    assert pairs.domain == domain
    assert np.array_equal(pairs.x, domain.points.astype(np.float32))
    assert np.array_equal(pairs.a, np.moveaxis(values["a"][:7], 1, -1))
    flat = values["u"][:7].reshape(7, 6, *domain.shape)  # time-major
    assert np.array_equal(pairs.u, np.moveaxis(flat, 1, -1))
    names = [channel.name for channel in pairs.target_channels]
    assert names[:3] == ["u_x, t = 0", "u_y, t = 0", "u_x, t = 0.25"]
    assert [channel.name for channel in pairs.input_channels] == ["p", "q"]


def test_an_old_store_says_its_box_by_its_coordinates(tmp_path):
    """Stores had no attribute `domain`, and their axes had as many points of one kind."""
    domain = Box((CellGrid(9, 2.0), NodalGrid(5)))
    a, u = (function(domain, name, name, name) for name in "au")
    values = {"a": random(a), "u": random(u)}
    url = sealed(tmp_path, None, values, [a, u], positions(domain))
    content = json.loads((Path(url) / "zarr.json").read_text("utf-8"))
    assert "domain" not in content["attributes"]
    pairs = both(url)
    assert pairs.domain == domain
    assert np.array_equal(pairs.u[..., 0], values["u"][:7])


@pytest.mark.parametrize(
    ("domain", "resolution", "strides"),
    [
        (BOXES["2-D"], 5, (2, 2)),
        (BOXES["2-D"], (3, 5), (4, 1)),
        (BOXES["mixed"], 4, (2, 2)),
        (BOXES["mixed"], (2, 3), (4, 2)),
        (BOXES["3-D"], (3, 3, 1), (2, 1, 4)),
    ],
)
def test_a_resolution_is_of_the_first_axis_or_of_each(domain, resolution, strides, tmp_path):
    url, values = plain(tmp_path, domain)
    pairs = both(url, "train", resolution)
    kept = tuple(slice(None, None, r) for r in strides)
    assert np.array_equal(pairs.a[..., 0], values["a"][:7][(slice(None), *kept)])
    np.testing.assert_allclose(pairs.x, domain.points[kept], rtol=0, atol=1e-7)
    np.testing.assert_allclose(pairs.domain.points, domain.points[kept], rtol=0, atol=1e-12)
    assert pairs.domain.shape == pairs.a.shape[1:-1]


@pytest.mark.parametrize(
    ("domain", "resolution", "message"),
    [
        (
            Box((CellGrid(9), CellGrid(6))),
            5,
            r"every 2-th point, which leaves out the last of the 6 cell points along y",
        ),
        (BOXES["2-D"], (5, 4), "resolution 4 is not a subsample of the 5 cell points"),
        (BOXES["2-D"], (5,), "has 2 axes, got 5"),
    ],
)
def test_resolutions_that_an_axis_has_not_are_refused(domain, resolution, message, tmp_path):
    url, _ = plain(tmp_path, domain)
    with pytest.raises(DataError, match=message):
        open_pairs(url, "train", resolution)


def test_targets_are_averaged_over_cells_of_each_axis(tmp_path):
    domain = Box((CellGrid(8, 2.0), CellGrid(4)))
    url, values = plain(tmp_path, domain)
    means = values["u"][:7].reshape(7, 4, 2, 2, 2).mean(axis=(2, 4))
    for wanted in (4, (4, 2)):
        pairs = both(url, target_resolution=wanted)
        np.testing.assert_allclose(pairs.u[..., 0], means, rtol=1e-5, atol=1e-6)
        cells = Box((CellGrid(4, 2.0), CellGrid(2)))
        assert np.array_equal(pairs.y, cells.points.astype(np.float32))
    with pytest.raises(DataError, match="must be 1 to 8 x 1 to 4 on a cell grid, got 3 on"):
        open_pairs(url, "train", target_resolution=3)


def mesh(moved=0.0) -> np.ndarray:
    """Positions of 5 x 9 nodes."""
    x = Box.nodal(5, 9).points.copy()
    x[..., 0] += 0.1 * np.sin(np.pi * x[..., 1]) + moved
    return x


def test_a_mesh_of_all_samples_is_read(tmp_path):
    domain = Curvilinear.of(mesh())
    url, values = plain(tmp_path, domain)
    pairs = both(url)
    assert isinstance(pairs.domain, Curvilinear)
    assert np.array_equal(pairs.x, mesh().astype(np.float32))
    assert np.array_equal(pairs.u[..., 0], values["u"][:7])
    assert pairs.weight is not None
    coarse = both(url, "train", 3)
    assert np.array_equal(coarse.x, mesh()[::2, ::2].astype(np.float32))
    assert np.array_equal(coarse.u[..., 0], values["u"][:7, ::2, ::2])
    with xr.open_zarr(url) as dataset:
        assert dataset.u.coords["x"].dims == ("i", "j")
        assert {"x", "y"} <= set(dataset.a.coords)


def test_a_mesh_of_each_sample_is_read_with_its_weights(tmp_path):
    domain = Curvilinear((5, 9), 2)
    own = np.stack([mesh(0.1 * k) * (1 + k) for k in range(SAMPLES)])
    url, _ = plain(tmp_path, domain, x=own[..., 0], y=own[..., 1])
    pairs = both(url)
    assert pairs.x is None
    assert np.array_equal(pairs.all.per_sample["x"], own[:7].astype(np.float32))
    weight = domain.at(own[3]).weights
    np.testing.assert_allclose(pairs.all.per_sample["weight"][3], weight / weight.mean(), rtol=1e-5)
    coarse = both(url, "train", (3, 3))
    assert np.array_equal(coarse.all.per_sample["x"], own[:7, ::2, ::4].astype(np.float32))


def test_clouds_of_fewer_points_have_a_mask_and_parameters(tmp_path):
    domain = Cloud((20,), 3)
    a, u = (function(domain, name, name, name) for name in "au")
    count = scalar("count", "count", "points", dtype="int64")
    speed = scalar("speed", "parameter", "speed")
    load = Variable("load", ("k",), (2,), "float64", {"long_name": "load", "role": "parameter"})
    values = {name.name: random(name) for name in (a, u, *geometry(domain), speed, load)}
    values["count"] = np.arange(SAMPLES) + 9
    for k, n in enumerate(values["count"]):
        for name in ("a", "u", "x", "y", "z"):
            values[name][k, n:] = 0
    variables = [a, u, *geometry(domain), count, speed, load]
    pairs = both(sealed(tmp_path, domain, values, variables))
    assert pairs.x is None
    assert pairs.all.per_sample["x"].shape == (7, 20, 3)
    assert pairs.all.per_sample["mask"].sum(1).tolist() == values["count"][:7].tolist()
    assert pairs.all.per_sample["mask"][0].tolist() == [True] * 9 + [False] * 11
    assert "weight" not in pairs.all.per_sample  # points count alike
    expected = np.column_stack([values["speed"], values["load"]])[:7].astype(np.float32)
    assert np.array_equal(pairs.all.per_sample["parameters"], expected)
    with pytest.raises(DataError, match="10 is not a subsample of the 20 cloud points"):
        open_pairs(str(tmp_path / "store.zarr"), "train", 10)


def test_a_cloud_with_cells_is_read_with_its_triangles(tmp_path):
    points = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    edge = np.array([True, True, True, True])
    domain = Cloud((4,), 2, points, np.array([[0, 1, 2], [0, 2, 3]]), edge)
    url, _ = plain(tmp_path, domain)
    pairs = both(url)
    assert isinstance(pairs.domain, Cloud)
    assert np.array_equal(pairs.domain.cells, domain.cells)
    assert pairs.domain.boundary.all()
    weights = domain.weights / domain.weights.mean()
    np.testing.assert_allclose(pairs.weight, weights, rtol=1e-6)


def test_weights_that_a_store_has_by_sample_come_with_its_batches(tmp_path):
    domain = Cloud((6,), 2)
    a, u = (function(domain, name, name, name) for name in "au")
    weight = function(domain, "w", "weight", "quadrature weights", dtype="float64")
    values = {v.name: random(v) for v in (a, u, weight, *geometry(domain))}
    values["w"] = np.abs(values["w"]) + 0.1
    pairs = both(sealed(tmp_path, domain, values, [a, u, weight, *geometry(domain)]))
    assert np.array_equal(pairs.all.per_sample["weight"], values["w"][:7].astype(np.float32))


def test_weights_of_points_are_not_those_of_averages_over_cells(tmp_path):
    domain = Box.cell(8)
    a, u = (function(domain, name, name, name) for name in "au")
    weight = function(domain, "w", "weight", "quadrature weights", dtype="float64")
    values = {v.name: np.abs(random(v)) + 0.1 for v in (a, u, weight)}
    pairs = open_pairs(
        sealed(tmp_path, domain, values, [a, u, weight]), "train", target_resolution=4
    ).resident()
    assert pairs.u.shape == (7, 4, 1)
    assert "weight" not in pairs.all.per_sample


def test_several_variables_are_channels_side_by_side(tmp_path):
    domain = BOXES["2-D"]
    a, b, u = (function(domain, name, name, name) for name in "abu")
    values = {v.name: random(v) for v in (a, b, u)}
    pairs = both(sealed(tmp_path, domain, values, [a, b, u]), input=["b", "a"], target=["u"])
    assert np.array_equal(pairs.a, np.stack([values["b"], values["a"]], -1)[:7])
    assert [channel.name for channel in pairs.input_channels] == ["b", "a"]
    assert pairs.source["input"] == ["b", "a"]


def damaged(url, change):
    path = Path(url) / "zarr.json"
    content = json.loads(path.read_text("utf-8"))
    change(content["attributes"]["domain"])
    path.write_text(json.dumps(content), "utf-8")
    from pdegen.store.reading import Store
    from tests.stores import resealed

    resealed(Store(url))


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["axes"][0].update(n=10**12),
        lambda said: said["axes"][0].update(length=10**400),
        lambda said: said["axes"][0].update(grid="chebyshev"),
        lambda said: said["axes"][0].update(length=3.0),
        lambda said: said.update(kind="cloud"),
        lambda said: said.update(axes=5),
        lambda said: said.pop("kind"),
    ],
)
def test_a_domain_that_cannot_be_is_refused_in_one_line(change, tmp_path):
    domain = BOXES["2-D"]
    url, _ = plain(tmp_path, domain)
    damaged(url, change)
    with pytest.raises(DataError) as refused:
        open_pairs(url, "train")
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(url)
