"""Equations that are no box of one function: from a file of their own to a verified store."""

import numpy as np
import pytest
import xarray as xr

from pdegen.domains import Box, Cloud, Curvilinear
from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.schema import SchemaError
from pdegen.store.layout import Layout, Variable, check_domain, function, positions
from tests.pdegen.toys.recipes import TOYS, recipe_of
from tests.stores import objects_of


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    return {name: generate(recipe_of(name), str(folder / name), workers=1) for name in TOYS}


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_is_verified_with_its_law_and_again(stores, name):
    found = verify(stores[name].url, deep=3)
    assert (found.faults, found.values_checked, len(found.recomputed)) == ([], True, 3)


@pytest.mark.parametrize("name", TOYS)
def test_dask_makes_the_same_bytes(stores, name, cluster, tmp_path):
    again = generate(recipe_of(name), str(tmp_path / "s"), scheduler=cluster)
    assert objects_of(again) == objects_of(stores[name])


def test_the_law_sees_another_solution(stores, tmp_path):
    recipe = recipe_of("turning")
    wrong = recipe.model_copy(
        update={"problem": recipe.problem.model_copy(update={"diffusivity": 0.5})}
    )
    values = recipe.problem.compute(0, range(4))
    assert not recipe.problem.checks_of_store().check([(np.arange(4), values)])
    (found,) = wrong.problem.checks_of_store().check([(np.arange(4), values)])
    assert "the distance from the solution" in found.message


def test_positions_that_differ_are_coordinates_to_xarray(stores):
    data = xr.open_zarr(stores["disc"].url, decode_coords="all")
    assert {"x", "y"} <= set(data.coords)
    assert data.u.coords["x"].dims == data.u.dims
    assert data.x.attrs["role"] == "geometry"


def test_padding_is_counted(stores):
    data = xr.open_zarr(stores["disc"].url)
    count = data["count"].values
    assert count.min() >= 12
    assert len(set(count.tolist())) > 1
    beyond = np.arange(16) >= count[:, None]
    assert not data.u.values[beyond].any()
    assert data.u.values[~beyond].all()


def test_channels_and_times_are_named(stores):
    data = xr.open_zarr(stores["turning"].url)
    assert data.u.dims == ("sample", "time", "channel", "x", "y")
    assert data.u.shape == (24, 3, 2, 16, 8)
    assert data.u.attrs["channels"] == ["u", "v"]
    assert data.time.values.tolist() == [0.1, 0.2, 0.4]
    assert data.y.values[-1] == 1.75  # of a side of length 2


# what a store cannot hold


MESH = Curvilinear((4, 3), 2)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ([function(MESH, "u", "target", "u")], "a variable x with the role geometry"),
        ([Variable("u", ("j", "i"), (3, 4), "float32")], "u has the axes j, i: expected i, j"),
        ([Variable("u", ("i",), (4,), "float32")], "u has the axes i: expected i, j"),
        ([Variable("u", ("channel", "time", "i", "j"), (2, 3, 4, 3), "float32")],
         "time and channel in this order, if present"),
        ([Variable("u", ("i", "j"), (4, 4), "float32")], "u has 4 points along j, expected 3"),
        ([Variable("u", ("channel", "i", "j"), (2, 4, 3), "float32")],
         "u has 2 channels, but the names"),
    ],
)  # fmt: skip
def test_variables_that_do_not_fit_the_domain_are_refused(variables, said):
    with pytest.raises(SchemaError, match=said):
        check_domain(MESH, variables)


def test_a_shared_mesh_has_positions_cells_and_its_boundary():
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    cells = np.array([[0, 1, 3], [0, 3, 2]])
    cloud = Cloud((4,), 2, points, cells, np.ones(4, bool))
    found = {coordinate.name: coordinate for coordinate in positions(cloud)}
    assert set(found) == {"x", "y", "cells", "mesh", "edge"}
    assert found["x"].dims == ("point",)
    assert np.array_equal(found["cells"].values, cells)
    assert found["mesh"].attributes["cf_role"] == "mesh_topology"
    assert function(cloud, "u", "target", "u").attributes["coordinates"] == "x y"


def test_a_layout_is_checked_against_its_domain():
    with pytest.raises(SchemaError, match="u has 5 points along x, expected 4"):
        Layout(1, 1, (Variable("u", ("x",), (5,), "float32"),), (), {}, domain=Box.periodic(4))
