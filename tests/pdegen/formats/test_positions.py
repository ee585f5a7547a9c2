"""Positions, times and units of described files, several arrays as channels, and whole numbers."""

import h5py
import numpy as np
import pytest

from pdegen.domains import Box, NodalGrid, PeriodicGrid, from_attributes
from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import ImportOptions
from pdegen.formats.points import axis_of
from pdegen.store.reading import Store
from tests.pdegen.formats.files import hdf5, imported, mat5, random, trains, value
from tests.pipelines.command import quietly
from tests.stores import faults

SPLITS = {"train": 4, "test": 2}
X = np.linspace(-5, 5, 32, endpoint=False)
TIMES = np.array([0, 0.1, 0.5, 2.0])
U = random(6, 4, 32)


Names = str | tuple[str, ...]


def described(
    tmp_path, arrays, input: Names = "u", target: Names = "u", grid="periodic", **options
):
    np.savez(tmp_path / "mine.npz", **arrays)
    own = ImportOptions(input, target, grid, SPLITS, **options)
    return imported(tmp_path, tmp_path / "mine.npz", import_options=own, overwrite=True)


def domain(store):
    return from_attributes(store.raw_attributes["domain"])


@pytest.mark.parametrize(
    ("x", "t"), [("x", "t"), ("x-coordinate", "t-coordinate"), ("grid", "time"), ("Lon", "tspan")]
)
@pytest.mark.parametrize("column", [False, True])
def test_positions_and_times_are_those_of_the_file(tmp_path, x, t, column):
    shape = (-1, 1) if column else (-1,)
    store = described(tmp_path, {"u": U, x: X.reshape(shape), t: TIMES.reshape(shape)})
    np.testing.assert_array_equal(value(store, "x"), X)
    np.testing.assert_array_equal(value(store, "time"), TIMES[1:])
    assert domain(store) == Box((PeriodicGrid(32, 10.0, -5.0),))
    about = store.raw_attributes["imported"]
    assert (about["left_out"], about["positions"]) == ([], f"x from {x}, time from {t}")
    assert faults(store) == []
    trains(store)


def test_positions_that_are_not_in_the_file_are_assumed_and_said(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", u=U)
    words = ("--input", "u", "--target", "u", "--grid", "cell", "--split", "train=4")
    quietly("import", tmp_path / "mine.npz", *words, "--out", tmp_path / "s.zarr")
    assert capsys.readouterr().err.splitlines()[0] == (
        "pdegen: assumed, because the file does not say: x from 0 to 1, times are counted "
        "(--coordinate, --length and --times give others)"
    )


def test_positions_and_times_are_named_or_given_by_options(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", u=U, places=X, when=TIMES, x=X + 100)
    words = ["import", tmp_path / "mine.npz", "--input", "u", "--target", "u", "--grid", "periodic",
             "--split", "train=4", "--overwrite", "--out", tmp_path / "s.zarr"]  # fmt: skip
    for given, x, t in (
        (["--coordinate", "x=places", "--coordinate", "time=when"], X, TIMES[1:]),
        (["--coordinate", "x=none", "--length", "x=10", "--times", "0,0.1,0.5,2"],
         10 * PeriodicGrid(32).x, TIMES[1:]),
    ):  # fmt: skip
        quietly(*words, *given)
        store = Store(str(tmp_path / "s.zarr"))
        np.testing.assert_allclose(store.values("x"), x, rtol=1e-15)
        np.testing.assert_array_equal(store.values("time"), t)


def test_meshes_of_positions_are_read_along_the_axis_on_which_they_vary(tmp_path):
    x, y = np.linspace(0, 2, 5), np.linspace(-1, 1, 5)
    a = random(6, 5, 5)
    meshes = dict(zip(("X", "Y"), np.meshgrid(x, y, indexing="ij"), strict=True))
    store = described(tmp_path, {"p": a, "q": a, **meshes}, "p", "q", "nodal")
    assert domain(store) == Box((NodalGrid(5, 2.0), NodalGrid(5, 2.0, -1.0)))


def test_positions_that_fall_are_read_in_reverse(tmp_path):
    lat = np.array([60.0, 40, 20, 0])
    a = random(6, 4, 8)
    axes = ("sample", "y", "x")
    store = described(
        tmp_path, {"p": a, "q": a, "lat": lat}, "p", "q", "nodal",
        input_axes=axes, target_axes=axes,
    )  # fmt: skip
    np.testing.assert_array_equal(value(store, "y"), lat[::-1])
    np.testing.assert_array_equal(value(store, "a"), np.swapaxes(a, 1, 2)[:, :, ::-1])


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"x": X, "x-coordinate": X + 1}, {}, "x and x-coordinate both fit the axis x: give one"),
        ({"x": X**3}, {}, "the axis x has 32 points: they do not rise by equal steps"),
        ({"x": X}, {"lengths": {"x": 3.0}}, "--length x=3: its positions are those of x"),
        ({}, {"lengths": {"y": 3.0}}, "--length y: there is no such axis, known are x"),
        ({}, {"lengths": {"x": -1.0}}, "positive, finite length"),
        ({"t": TIMES[::-1]}, {}, "t: 4 times are needed, each later"),
        ({}, {"moments": (0.0, 1.0)}, "--times: 4 times are needed"),
        ({"k": X[:7]}, {"coordinates": {"x": "k"}}, r"--coordinate x=k: .* does not have the 32"),
        ({}, {"coordinates": {"x": "k"}}, "has no array 'k'"),
    ],
    ids=["two", "unequal", "both", "axis", "negative", "order", "number", "shape", "absent"],
)
def test_what_does_not_fit_is_refused(tmp_path, arrays, options, message):
    with pytest.raises(FormatError, match=message):
        described(tmp_path, {"u": U, **arrays}, **options)


def test_files_of_different_positions_are_not_joined(tmp_path):
    files = [mat5(tmp_path / f"{k}.mat", {"u": U, "x": X + k}) for k in range(2)]
    options = ImportOptions("u", "u", "periodic", SPLITS)
    with pytest.raises(FormatError, match="x differs between the files"):
        imported(tmp_path, *files, import_options=options)


def test_units_are_those_of_the_file(tmp_path):
    file = hdf5(tmp_path / "own.h5", {"u": U, "x": X, "t": TIMES})
    with h5py.File(file, "a") as content:
        content["u"].attrs["units"] = "m s-1"
        content["u"].attrs["long_name"] = "velocity"
        content["x"].attrs["units"] = "m"
        content["t"].attrs["units"] = "hours since 2000-01-01"
    store = imported(tmp_path, file, import_options=ImportOptions("u", "u", "periodic", SPLITS))
    assert store.raw_attributes_of("a")["units"] == "m s-1"
    assert store.raw_attributes_of("u")["long_name"] == "velocity"
    assert store.raw_attributes_of("x")["units"] == "m"
    time = store.raw_attributes_of("time")
    assert (time["units"], time["since"], time["of_calendar"]) == (
        "hours",
        "2000-01-01",
        "standard",
    )


def test_names_of_axes():
    words = {"x": "X grid_x longitude", "time": "T t-coordinate time_steps", "y": "lat y-coord",
             "sample": "batch trajectories", None: "xi tensor density"}  # fmt: skip
    for axis, names in words.items():
        assert {axis_of(name) for name in names.split()} == {axis}


def test_axes_in_another_order_are_noticed_by_the_numbers_of_positions(tmp_path):
    a, x, y = random(6, 4, 8), np.linspace(0, 1, 8), np.linspace(0, 1, 4)
    with pytest.raises(FormatError, match="x has 8 positions, as many as there are along y, but 4"):
        described(tmp_path, {"p": a, "q": a, "x": x, "y": y}, "p", "q", "nodal")
    axes = ("sample", "y", "x")
    store = described(
        tmp_path, {"p": a, "q": a, "x": x, "y": y}, "p", "q", "nodal",
        input_axes=axes, target_axes=axes,
    )  # fmt: skip
    np.testing.assert_array_equal(value(store, "a"), a.swapaxes(1, 2))
    assert store.raw_attributes["imported"]["positions"] == "x from x, y from y"
    store = described(tmp_path, {"p": a, "q": a, "x": y, "y": x}, "p", "q", "nodal")
    assert store.raw_attributes["imported"]["positions"] == (
        "x from x, y from y; axes taken as sample, x, y"
    )


# several arrays, whole numbers


def test_several_arrays_are_channels_of_one_variable(tmp_path):
    u, v, w = (random(6, 4, 9, seed=k) for k in range(3))
    store = described(tmp_path, {"u": u, "v": v, "w": w}, ("u", "v"), ("w",), "nodal")
    np.testing.assert_array_equal(value(store, "a"), np.stack([u, v], axis=1))
    np.testing.assert_array_equal(value(store, "u"), w)
    assert store.raw_attributes_of("a")["channels"] == ["u", "v"]
    both = described(tmp_path, {"u": u, "v": v}, ("u", "v"), ("u", "v"))
    np.testing.assert_array_equal(value(both, "a"), np.stack([u, v], axis=1)[:, :, 0])
    np.testing.assert_array_equal(
        value(both, "u"), np.stack([u, v], axis=1)[:, :, 1:].swapaxes(1, 2)
    )
    assert faults(both) == []
    trains(both)
    with pytest.raises(FormatError, match=r"v .* is on a different grid"):
        described(tmp_path, {"u": u, "v": v[:, :3], "w": w}, ("u", "v"), "w")


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_whole_numbers_that_float64_holds_are_imported(tmp_path, dtype):
    k = np.where(random(6, 9) > 0, 12, 3).astype(dtype)
    store = described(tmp_path, {"k": k, "p": random(6, 9)}, "k", "p", "cell")
    assert value(store, "a").dtype == np.float64
    np.testing.assert_array_equal(value(store, "a"), k)
    k[3, 2] = 2**53 + 2
    with pytest.raises(FormatError, match=r"k is u?int64 and holds 9.0072e\+15: floats hold"):
        described(tmp_path, {"k": k, "p": random(6, 9)}, "k", "p", "cell")


def test_one_array_without_times_cannot_be_input_and_target(tmp_path):
    axes = ("sample", "y", "x")
    with pytest.raises(FormatError, match=r"b \(6, 4, 32\) is input and target, but has no axis"):
        described(tmp_path, {"b": U}, "b", "b", "cell", input_axes=axes, target_axes=axes)
