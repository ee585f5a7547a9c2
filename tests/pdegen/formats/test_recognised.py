"""Published files: recognised by keys and shapes, and stored with what is known of them."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import xarray as xr

from operators.data import read_pairs
from pdegen.domains import Box, CellGrid, NodalGrid, PeriodicGrid, from_attributes
from pdegen.equations.base import SampleError
from pdegen.formats import importing, recognised
from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.formats.recognised import recognised_plan
from pdegen.formats.sandbox import merged, open_file
from pdegen.store.reading import Store
from tests.pdegen.formats.files import (
    MATLAB,
    burgers_pairs,
    darcy_pairs,
    hdf5,
    imported,
    mat5,
    mat5_compressed,
    mat73,
    neuralop_file,
    of_mean_zero,
    random,
    trains,
    value,
)
from tests.pipelines.command import quietly
from tests.stores import faults

FEW = ImportOptions(splits={"train": 3, "validation": 1, "test": 2})


@pytest.fixture(scope="module")
def burgers():
    pairs = burgers_pairs(6)
    return pairs | dict.fromkeys(("a_smooth", "a_smooth_x", "a_x"), pairs["a"])


@MATLAB
def test_burgers_r10_is_read_from_every_version_of_matlab(burgers, tmp_path, write):
    file = write(tmp_path / "burgers_data_R10.mat", burgers)
    store = imported(tmp_path, file, import_options=FEW)
    for name in ("a", "u"):
        assert value(store, name).dtype == np.float64
        np.testing.assert_array_equal(value(store, name), burgers[name])
    np.testing.assert_array_equal(value(store, "x"), PeriodicGrid(8192).x)
    assert store.raw_attributes["imported"]["left_out"] == ["a_smooth", "a_smooth_x", "a_x"]
    assert store.raw_attributes_of("u")["viscosity"] == pytest.approx(0.1 / (2 * np.pi))
    assert store.raw_attributes["domain"] == Box.periodic(8192).attributes()
    assert store.raw_attributes["physics"]["symmetries"] == ["shift", "odd-reflection"]
    assert faults(store) == []
    trains(store)


@pytest.mark.parametrize("write", [mat5_compressed, mat73], ids=lambda f: f.__name__)
def test_two_darcy_files_are_joined_as_training_and_test(tmp_path, monkeypatch, write):
    n = 20
    monkeypatch.setattr(importing, "_SHARD_BYTES", 8 * n * n)  # two samples: a shard is of both
    parts = []
    for k, count in enumerate((3, 2)):
        a, u = darcy_pairs(count, n, seed=k).values()
        parts.append({"coeff": a, "sol": u, "Kcoeff": a[:, :2].astype("float64")})
    files = [write(tmp_path / f"smooth{k}.mat", part) for k, part in enumerate(parts)]
    splits = ImportOptions(splits={"train": 3, "test": 2})
    store = imported(tmp_path, *files, import_options=splits)
    assert store.shards == 3
    for name, key in (("a", "coeff"), ("u", "sol")):
        expected = np.concatenate([part[key] for part in parts])
        assert value(store, name).dtype == np.float32
        np.testing.assert_array_equal(value(store, name), expected)
    np.testing.assert_array_equal(value(store, "y"), CellGrid(n).x)
    assert store.raw_attributes_of("x")["grid"] == "cell"
    assert store.raw_attributes["physics"]["boundary"] == {"u": 0.0}
    assert store.raw_attributes["physics"]["phases"] == {"a": [3.0, 12.0]}
    assert store.raw_attributes["imported"]["left_out"] == ["Kcoeff"]
    assert len(store.raw_attributes["imported"]["files"]) == 2
    trains(store)


@pytest.mark.parametrize("write", [mat5_compressed, mat73], ids=lambda f: f.__name__)
def test_navier_stokes_has_its_times_before_space(tmp_path, write):
    a = of_mean_zero(random(6, 8, 8, dtype="float32"), 1, 2)
    u = of_mean_zero(random(6, 8, 8, 20, dtype="float32", seed=1), 1, 2)
    t = np.arange(1.0, 21)[None]
    file = write(tmp_path / "NavierStokes_V1e-5_N1200_T20.mat", {"a": a, "u": u, "t": t})
    store = imported(tmp_path, file, import_options=FEW)
    np.testing.assert_array_equal(value(store, "u"), np.moveaxis(u, -1, 1))
    np.testing.assert_array_equal(value(store, "time"), t[0])
    assert store.raw_attributes_of("u")["viscosity"] == 1e-5
    dataset = xr.open_zarr(store.url)
    assert dataset.u.dims == ("sample", "time", "x", "y")
    np.testing.assert_array_equal(dataset.u.sel(time=3.0, sample=2), u[2, ..., 2])
    assert read_pairs(store.url, "test").u.shape == (2, 8, 8, 20)


@pytest.mark.parametrize(
    ("name", "shape", "viscosity"),
    [("ns_V1000_N5000_T50", (6, 4, 4, 30), 1e-3), ("ns", (1200, 64, 64, 20), 1e-5),
     ("ns", (6, 64, 64, 20), None), ("ns", (1200, 64, 64, 21), None)],
)  # fmt: skip
def test_navier_stokes_viscosity_follows_from_the_name_or_the_sizes(
    tmp_path, name, shape, viscosity
):
    """Other files whose arrays are a and u are not of this equation."""
    arrays = {"a": np.zeros(shape[:3], "u1"), "u": np.zeros(shape, "u1")}
    file = mat5_compressed(tmp_path / f"{name}.mat", arrays)
    plan = recognised_plan(merged([open_file(file, tmp_path)]), FEW)
    assert (plan is None) == (viscosity is None)
    if plan is not None:
        u = plan.fields[1].variable
        assert u.attributes["viscosity"] == pytest.approx(viscosity)
        np.testing.assert_array_equal(plan.coordinates[-1].values, np.arange(1, shape[-1] + 1))


@pytest.mark.parametrize(
    ("samples", "validation"), [(1200, None), (1250, (1000, 1050)), (5000, (4600, 4800))]
)
def test_splits_of_navier_stokes_begin_with_1000_and_end_with_200(tmp_path, samples, validation):
    arrays = {"a": random(samples, 2, 2), "u": random(samples, 2, 2, 20)}
    file = mat5(tmp_path / "ns_V1e-5.mat", arrays)
    plan = recognised_plan(merged([open_file(file, tmp_path)]), ImportOptions())
    expected = {"train": (0, 1000), "test": (samples - 200, samples)}
    assert plan.splits == expected | ({"validation": validation} if validation else {})


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("1D_Burgers_Sols_Nu0.01.hdf5", "viscosity", 0.01 / np.pi),
        ("1D_Advection_Sols_beta0.4.hdf5", "speed", 0.4),
    ],
)
def test_pdebench_trajectories_begin_with_the_input(tmp_path, name, key, expected):
    tensor = of_mean_zero(random(20, 5, 16, dtype="float32"), 2)
    x, t = (np.arange(16, dtype="f4") + 0.5) / 16, np.linspace(0, 2, 6, dtype="f4")
    file = hdf5(tmp_path / name, {"tensor": tensor, "x-coordinate": x, "t-coordinate": t})
    store = imported(tmp_path, file)
    np.testing.assert_array_equal(value(store, "a"), tensor[:, 0])
    np.testing.assert_array_equal(value(store, "u"), tensor[:, 1:])
    np.testing.assert_array_equal(value(store, "time"), t[1:5])
    np.testing.assert_array_equal(value(store, "x"), x)
    assert store.raw_attributes_of("u")[key] == pytest.approx(expected)
    assert store.raw_attributes["splits"] == {"train": [2, 20], "test": [0, 2]}
    (axis,) = store.raw_attributes["domain"]["axes"]
    assert (axis["length"], axis["start"]) == pytest.approx((1, 1 / 32))
    trains(store)


def test_files_of_reaction_and_diffusion_are_called_wrong(tmp_path, capsys):
    x, t = (np.arange(16, dtype="f4") + 0.5) / 16, np.linspace(0, 1, 6, dtype="f4")
    tensor = of_mean_zero(random(20, 5, 16, dtype="float32"), 2)
    arrays = {"tensor": tensor, "x-coordinate": x, "t-coordinate": t}
    file = hdf5(tmp_path / "ReacDiff_Nu0.5_Rho1.0.hdf5", arrays)
    quietly("import", file, "--out", tmp_path / "s.zarr")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert "labels of PDEBench's reaction-diffusion files are wrong" in line
    store = Store(str(tmp_path / "s.zarr"))
    assert line.endswith(store.raw_attributes["imported"]["warning"])
    assert store.raw_attributes_of("u")["diffusion"] == 0.5
    assert store.raw_attributes_of("u")["growth"] == 1.0
    other = imported(tmp_path, hdf5(tmp_path / "1D_Burgers_Sols_Nu0.5.hdf5", arrays))
    assert "warning" not in other.raw_attributes["imported"]


def test_pdebench_darcy(tmp_path):
    nu, u = darcy_pairs(10, 8, 0.1, 1.0).values()
    tensor = u[:, None]
    x = CellGrid(8).x.astype("f4")
    arrays = {"nu": nu, "tensor": tensor, "x-coordinate": x, "y-coordinate": x}
    store = imported(tmp_path, hdf5(tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5", arrays))
    np.testing.assert_array_equal(value(store, "a"), nu)
    np.testing.assert_array_equal(value(store, "u"), tensor[:, 0])
    assert store.raw_attributes_of("u")["source"] == 1.0
    trains(store)


def well_file(path, fields, bc="PERIODIC"):
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "toy"
        file.attrs["Rayleigh"] = 1e5
        file.attrs["n_spatial_dims"] = 2
        for dim, points in (("time", np.arange(4, dtype="f4")), ("x", np.arange(8) / 8),
                            ("y", np.arange(8) / 8)):  # fmt: skip
            file.create_dataset(f"dimensions/{dim}", data=points.astype("f4"))
        boundary = file.create_group("boundary_conditions/x_y")
        boundary.attrs["bc_type"] = bc
        boundary.create_dataset("mask", data=np.ones(8, bool))
        file.create_group("t1_fields")
        for name, values in fields.items():
            file.create_dataset(f"t0_fields/{name}", data=values)
    return path


def test_the_well_has_its_first_frame_as_input(tmp_path):
    values = random(5, 4, 8, 8, dtype="f4")
    store = imported(tmp_path, well_file(tmp_path / "toy.hdf5", {"density": values}))
    np.testing.assert_array_equal(value(store, "a"), values[:, 0])
    np.testing.assert_array_equal(value(store, "u"), values[:, 1:])
    assert value(store, "time").tolist() == [1, 2, 3]
    assert store.raw_attributes_of("x")["grid"] == "periodic"
    assert store.raw_attributes_of("u")["Rayleigh"] == 1e5
    trains(store)


def test_fields_of_the_well_are_channels_and_its_grid_is_asked_for(tmp_path):
    values = random(5, 4, 8, 8, dtype="f4")
    fields = {"density": values, "pressure": 2 * values}
    file = well_file(tmp_path / "toy.hdf5", fields, bc="WALL")
    with pytest.raises(FormatError, match="t0_fields/density, t0_fields/pressure"):
        imported(tmp_path, file, import_options=ImportOptions(input="t0_fields/heat"))
    both = import_files([file], str(tmp_path / "both.zarr"), ImportOptions(grid="cell"))
    np.testing.assert_array_equal(value(both, "u"), np.stack([values, 2 * values], 2)[:, 1:])
    assert both.raw_attributes_of("u")["channels"] == ["density", "pressure"]
    one = ImportOptions(input="t0_fields/pressure")
    with pytest.raises(FormatError, match="give the grid"):
        imported(tmp_path, file, import_options=one)
    one = ImportOptions(input="t0_fields/pressure", grid="cell")
    store = imported(tmp_path, file, import_options=one)
    np.testing.assert_array_equal(value(store, "u"), 2 * values[:, 1:])


def test_the_well_is_read_as_it_is_described(tmp_path):
    values = random(5, 4, 8, 8, dtype="f4")
    file = well_file(tmp_path / "toy.hdf5", {"density": values})
    name, splits = "t0_fields/density", {"train": 3, "test": 1}
    options = ImportOptions(name, name, "cell", splits, times="last", boundary=0.5)
    with pytest.raises(FormatError, match="dimensions/x has 8 positions, as many as there are"):
        imported(tmp_path, file, import_options=options)
    options = replace(options, coordinates={"x": "none", "time": "none"})
    store = imported(tmp_path, file, import_options=options)
    assert store.raw_attributes["physics"] == {"boundary": {"u": 0.5}}
    np.testing.assert_array_equal(value(store, "a"), values[..., 0])
    np.testing.assert_array_equal(store.values("time"), np.arange(1, 8))


def test_the_well_has_vectors_and_boxes_of_several_kinds(tmp_path):
    values = random(5, 4, 8, 6, 2, dtype="f4")
    file = well_file(tmp_path / "toy.hdf5", {}, bc="WALL")
    with h5py.File(file, "r+") as content:
        content["t1_fields/velocity"] = values
        del content["dimensions/y"]
        content["dimensions/y"] = np.linspace(-1, 2, 6).astype("f4")
    store = imported(tmp_path, file, import_options=ImportOptions(grid="periodic,nodal"))
    np.testing.assert_array_equal(value(store, "u"), np.moveaxis(values[:, 1:], -1, 2))
    np.testing.assert_array_equal(value(store, "a"), np.moveaxis(values[:, 0], -1, 1))
    assert store.raw_attributes_of("u")["channels"] == ["velocity_x", "velocity_y"]
    assert xr.open_zarr(store.url).u.dims == ("sample", "time", "channel", "x", "y")
    domain = from_attributes(store.raw_attributes["domain"])
    assert domain == Box((PeriodicGrid(8), NodalGrid(6, 3.0, -1.0)))
    with h5py.File(file, "r+") as content:
        content["dimensions/y"][3] = 0.9
    with pytest.raises(FormatError, match="axis y has 6 points: they do not rise by equal"):
        imported(tmp_path, file, import_options=ImportOptions(grid="periodic,nodal"))


def test_files_of_numpy_have_their_samples_last(tmp_path):
    a, u = random(5, 5, 8), random(5, 5, 8, seed=1)
    for name, values in (("inputs", a), ("outputs", u)):
        np.save(tmp_path / f"Helmholtz_{name}.npy", values)
    files = [tmp_path / f"Helmholtz_{name}.npy" for name in ("inputs", "outputs")]
    store = imported(tmp_path, *files)
    np.testing.assert_array_equal(value(store, "a"), np.moveaxis(a, -1, 0))
    np.testing.assert_array_equal(value(store, "u"), np.moveaxis(u, -1, 0))
    np.testing.assert_array_equal(value(store, "x"), NodalGrid(5).x)
    assert store.raw_attributes["splits"] == {"train": [0, 4], "test": [4, 8]}
    trains(store)


def test_neuralop_darcy_is_joined_and_its_phases_are_zero_and_one(tmp_path):
    files = [neuralop_file(f"darcy_{split}_16.pt") for split in ("train", "test")]
    store = imported(tmp_path, *files)
    a = value(store, "a")
    assert a.shape == (1050, 16, 16)
    assert a.dtype == np.float32
    assert set(np.unique(a)) == {0, 1}
    assert store.raw_attributes_of("a")["type_in_file"] == "bool"
    assert store.raw_attributes["splits"] == {"train": [0, 1000], "test": [1000, 1050]}
    # the mean and deviation of y that are known of the training file
    statistics = store.raw_attributes["statistics"]["u"]
    assert statistics["mean"] == pytest.approx(0.3863, abs=1e-4)
    assert statistics["std"] == pytest.approx(0.3400, abs=1e-4)
    trains(store)


@pytest.mark.parametrize("first", [True, False])
def test_a_known_file_beside_an_unknown_one_is_no_reason_to_leave_it_out(burgers, tmp_path, first):
    known = mat5(tmp_path / "burgers_data_R10.mat", burgers)
    other = mat5(tmp_path / "mine.mat", {"p": random(10, 8), "q": random(10, 8)})
    files = [known, other] if first else [other, known]
    with pytest.raises(FormatError, match=r"not a recognised file: give --input"):
        imported(tmp_path, *files)


# own files with arrays of the same names


def darcy_file(path, **changes):
    arrays = darcy_pairs(6, 16)
    a, u = (changes[key](arrays[key]) if key in changes else arrays[key] for key in ("a", "u"))
    return mat5(path / "mine.mat", {"coeff": a, "sol": u})


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (lambda path: darcy_file(path, a=np.log), "a is not 3 or 12 everywhere"),
        (lambda path: darcy_file(path, u=lambda u: u + 1), "u is not near 0 at the sides"),
        (lambda path: darcy_file(path, u=lambda u: 2 * u),
         "-a Laplace u is 2 where a is constant, not 1"),
        (lambda path: mat5(path / "V1e-3.mat", {"a": random(6, 8, 8), "u": random(6, 8, 8, 4)}),
         "its mean over the periodic domain is not 0"),
        (lambda path: mat5(path / "mine.mat", {"a": random(6, 8192), "u": random(6, 8192)}),
         "u is not the solution of Burgers' equation"),
        (lambda path: hdf5(path / "1D_Burgers_Nu0.1.hdf5", {
            "tensor": random(6, 4, 8), "x-coordinate": CellGrid(8).x,
            "t-coordinate": np.arange(5.0)}), "its mean over the periodic domain changes"),
    ],
    ids=["coefficient", "sides", "scale", "vorticity", "burgers", "conservation"],
)  # fmt: skip
def test_an_own_file_is_not_taken_for_a_published_one(tmp_path, file, why):
    """It has the names and sizes, but not the values. Described by its owner, it is imported."""
    path = file(tmp_path)
    with pytest.raises(FormatError, match=f"not a recognised file: give --input .*but {why}"):
        imported(tmp_path, path)
    names = list(merged([open_file(path, tmp_path)])[0].arrays)[:2]
    if path.suffix == ".hdf5":
        names = ["tensor", "tensor"]
    own = ImportOptions(*names, "cell", {"train": 4, "test": 2})
    attributes = imported(tmp_path, path, import_options=own).raw_attributes
    assert attributes["equation"] == "not given"
    assert "physics" not in attributes
    assert "recognised_by" not in attributes["imported"]


def test_what_was_recognised_is_said_first(tmp_path, capsys):
    quietly("import", darcy_file(tmp_path), "--split", "train=6", "--out", tmp_path / "s.zarr")
    assert capsys.readouterr().err.splitlines()[0] == (
        "pdegen: recognised as Darcy, the published files piececonst_r421_N1024_smooth, by arrays "
        "coeff, sol, a is 3 or 12, -a Laplace u = 1 where a is constant, u near 0 at the sides; to "
        "describe it yourself, give --input and --target"
    )


# declared physics


def declared(tmp_path, u, **changes):
    np.savez(tmp_path / "mine.npz", p=random(*u.shape), q=u)
    options = ImportOptions("p", "q", "nodal", {"train": 4, "test": 2}, **changes)
    return imported(tmp_path, tmp_path / "mine.npz", import_options=options, overwrite=True)


def walled(value=0.0):
    u = random(6, 9, 9)
    u[:, [0, -1]] = u[:, :, [0, -1]] = value
    return u


def test_values_on_the_boundary_are_those_that_are_declared(tmp_path):
    u = walled(0.5)
    assert faults(declared(tmp_path, u, boundary=0.5)) == []
    u[:, 0, 3] = 0.6
    why = r"mine.npz: sample 0: u is up to 0\.1 away from 0\.5, its"
    with pytest.raises(FormatError, match=why):
        declared(tmp_path, u, boundary=0.5)
    u[:2, 0, 3] = 0.5
    with pytest.raises(SampleError, match=r"sample 2: u is up to 0\.1 away from 0\.5"):
        declared(tmp_path, u, boundary=0.5)


def test_verify_compares_an_imported_store_with_what_it_declares(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "contradictions", lambda *arguments: [])  # as before it was
    u = walled()
    u[4, :, -1] = 1
    store = declared(tmp_path, u, boundary=0.0)
    (fault,) = faults(store)
    assert str(fault).startswith(
        "u, sample 4: is up to 1 away from 0, its declared value on the boundary"
    )


def test_attributes_name_the_source_without_its_path(burgers, tmp_path):
    file = mat73(tmp_path / "burgers_data_R10.mat", burgers)
    attributes = imported(tmp_path, file, import_options=FEW).raw_attributes
    assert str(tmp_path) not in json.dumps(attributes)
    (known,) = attributes["imported"]["files"]
    assert known["name"] == file.name
    assert known["bytes"] == file.stat().st_size
    assert attributes["recipe"] == {"name": "burgers-r10-published"}


def test_splits_are_those_of_the_literature(tmp_path):
    file = mat5(tmp_path / "r10.mat", {"a": np.zeros((2048, 8192), "u1")} | {
        "u": np.zeros((2048, 8192), "u1")})  # fmt: skip
    plan = recognised_plan([open_file(file, tmp_path)], ImportOptions())
    assert plan is not None
    assert plan.splits == {"train": (0, 1024), "validation": (1848, 1948), "test": (1948, 2048)}


def test_a_torus_has_its_length_and_nodes_their_boundary(tmp_path):
    for name, values in (("inputs", random(8, 8, 4)), ("outputs", random(8, 8, 4, seed=1))):
        np.save(tmp_path / f"NavierStokes_{name}.npy", values)
    files = [tmp_path / f"NavierStokes_{name}.npy" for name in ("inputs", "outputs")]
    store = imported(tmp_path, *files)
    domain = from_attributes(store.raw_attributes["domain"])
    assert [grid.length for grid in domain.grids] == pytest.approx([2 * np.pi] * 2)
    np.testing.assert_allclose(value(store, "x"), 2 * np.pi * PeriodicGrid(8).x, rtol=1e-15)
    assert "physics" not in store.raw_attributes


def test_the_grid_that_is_given_goes_before_what_is_known(tmp_path):
    file = neuralop_file("darcy_test_16.pt")
    store = imported(tmp_path, file, import_options=ImportOptions(grid="cell"))
    assert store.raw_attributes_of("x")["grid"] == "cell"


def test_the_last_of_several_files_is_the_test_split():
    assert recognised._last_file([7]) == {"train": 7}
    assert recognised._last_file([7, 2, 3]) == {"train": 9, "test": 3}
