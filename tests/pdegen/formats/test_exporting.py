"""Stores in other formats: the same numbers there, and the same store back."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import h5py
import meshio
import numpy as np
import pytest
import scipy.io
import torch
import xarray as xr

from pdegen.domains import Box, Curvilinear
from pdegen.formats import export_metadata, exporting, plan
from pdegen.formats import exporting as writers
from pdegen.formats.arrays import FormatError
from pdegen.formats.exporting import FORMATS, export
from pdegen.formats.importing import import_files
from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import Job, Options, write
from pdegen.store.format import with_digest, without_digest
from pdegen.store.layout import Coordinate, Layout, Variable, function, positions, scalar, times
from pdegen.store.reading import StoreError
from tests.pdegen.formats.files import imported, random, value
from tests.stores import faults, with_attributes

ON_GRIDS = [name for name in FORMATS if name != "vtu"]
EVERY = pytest.mark.parametrize("format", ON_GRIDS)
TYPES = ["bool", "int64", "uint8", "float32", "float64"]
MATLAB_TYPES = [*TYPES, "int8", "int16", "uint16", "int32", "uint32", "uint64"]


class Mixed(Job):
    """A store with variables and coordinates of several types and numbers of axes."""

    fingerprint = "0" * 64

    def __init__(self, dtype):
        self.dtype = dtype

    def check(self):
        pass

    def values(self):
        a = random(7, 4, 4, dtype=self.dtype)
        return {"a": a, "u": random(7, 3, 4, 4, dtype=self.dtype, seed=1), "error": random(7)}

    def layout(self):
        dims = {"a": ("x", "y"), "u": ("time", "x", "y"), "error": ()}
        return Layout(
            samples=7,
            shard=3,
            variables=tuple(
                Variable(name, dims[name], v.shape[1:], v.dtype.name, {"long_name": name})
                for name, v in self.values().items()
            ),
            coordinates=(
                *(Coordinate(d, (d,), np.arange(4) / 4, {"grid": "periodic"}) for d in ("x", "y")),
                Coordinate("time", ("time",), np.arange(3.0)),
                Coordinate("level", (), np.array(0.5)),
                *(Coordinate(f"c-{t}".replace("-", "_"), ("x", "time"), random(4, 3).astype(t))
                  for t in TYPES),
                Coordinate("sample", ("sample",), np.arange(7)),
            ),
            attributes={
                "title": "Mixed", "equation": "ü = 0", "recipe": {"name": "mixed", "seed": 3},
                "fingerprint": self.fingerprint, "provenance": {"pdegen": "0"},
                "splits": {"train": [0, 4], "validation": [4, 5], "test": [5, 7]},
            },
        )  # fmt: skip

    def compute(self, store, samples):
        return {name: v[samples.start : samples.stop] for name, v in self.values().items()}

    def difference(self, store):
        return ""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Functions of float32; errors of float64."""
    url = str(tmp_path_factory.mktemp("mixed") / "mixed.zarr")
    return write(Mixed("float32"), url, Options(workers=1))


def assert_same(store, expected):
    assert faults(store) == []
    assert set(store.arrays) == set(expected.arrays)
    for name, array in expected.description.zarr_metadata.items():
        there = store.description.zarr_metadata[name]
        for key in ("shape", "data_type", "dimension_names", "attributes"):
            assert there.get(key) == array.get(key), (name, key)
        if name in store.arrays:  # the labels of channels are in the metadata
            assert value(store, name).tobytes() == value(expected, name).tobytes(), name
    for key in ("title", "equation", "recipe", "splits", "statistics", "variables"):
        assert store.raw_attributes[key] == expected.raw_attributes[key]


@EVERY
def test_a_store_comes_back_bit_for_bit(mixed, tmp_path, format):
    file = export(mixed.url, format, tmp_path / "out")
    store = imported(tmp_path, file)
    assert_same(store, mixed)
    assert store.raw_attributes["exported"]["content"] == mixed.raw_attributes["content"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store.zarr"]


@EVERY
def test_values_are_compared_to_the_last_sample_in_blocks_of_any_size(
    mixed, tmp_path, format, monkeypatch
):
    file = export(mixed.url, format, tmp_path / "out")
    monkeypatch.setattr(plan, "BLOCK", 1)
    assert_same(imported(tmp_path, file), mixed)


class OnMesh(Mixed):
    """Two components at two times on a mesh that all samples share, and numbers of the samples."""

    domain = Curvilinear.of(Box.nodal(4, 3).points)

    def values(self):
        return {"u": random(7, 2, 2, 4, 3, dtype=self.dtype), "count": np.arange(7)}

    def layout(self):
        names = {"times": (0.5, 1.0), "channels": ("p", "q"), "dtype": self.dtype}
        number = scalar("count", "quality", "a count", dtype="int64")
        return replace(
            Mixed(self.dtype).layout(),
            variables=(function(self.domain, "u", "target", "velocity", **names), number),
            coordinates=(
                Coordinate("sample", ("sample",), np.arange(7)),
                *positions(self.domain),
                times([0.5, 1.0]),
            ),
            domain=self.domain,
        )


@pytest.fixture(scope="module")
def on_mesh(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("mesh") / "mesh.zarr")
    return write(OnMesh("float32"), url, Options(workers=1))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.usefixtures("forked")
def test_a_store_on_a_mesh_comes_back(on_mesh, tmp_path, format):
    back = imported(tmp_path, export(on_mesh.url, format, tmp_path / "out"))
    assert_same(back, on_mesh)
    assert back.raw_attributes["domain"] == on_mesh.raw_attributes["domain"]


@pytest.mark.usefixtures("forked")
def test_each_vtu_file_is_a_sample_on_the_points(on_mesh, tmp_path):
    folder = export(on_mesh.url, "vtu", tmp_path / "out")
    files = sorted(folder.glob("*.vtu"))
    assert [file.stem for file in files] == [f"sample{k:06d}" for k in range(7)]
    u, points = value(on_mesh, "u"), OnMesh.domain.points  # (sample, time, channel, 4, 3)
    mesh = meshio.read(files[5])
    for i, j in np.ndindex(4, 3):
        at = i + 4 * j
        np.testing.assert_array_equal(mesh.points[at], [*points[i, j], 0])
        for t, c in np.ndindex(2, 2):
            assert mesh.point_data["u"][at, t + 2 * c] == u[5, t, c, i, j]
    (cells,) = mesh.cells
    assert (cells.type, len(cells.data)) == ("quad", 6)
    corners = mesh.points[cells.data][:, :, :2]
    diagonals = corners[:, 2:] - corners[:, :2]
    areas = np.linalg.det(diagonals) / 2
    np.testing.assert_allclose(areas, 1 / 6)  # counterclockwise, and together the unit square


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("change", ["a sample is missing", "a value", "a number of a sample"])
def test_a_changed_folder_of_vtu_files_is_refused(on_mesh, tmp_path, change):
    folder = export(on_mesh.url, "vtu", tmp_path / "out")
    file = folder / "sample000006.vtu"
    if change == "a sample is missing":
        file.unlink()
    elif change == "a value":
        mesh = meshio.read(file)
        mesh.point_data["u"][3, 1] += 1
        meshio.write(file, mesh)
    else:
        np.save(folder / "count.npy", np.arange(7)[::-1])
    with pytest.raises(FormatError, match=r"SHA-256|expected \(7, 2, 2, 4, 3\)"):
        imported(tmp_path, folder)
    assert not (tmp_path / "store.zarr").exists()


def test_a_grid_is_no_mesh(finished, tmp_path):
    with pytest.raises(FormatError, match="is on a grid: vtu holds clouds and meshes"):
        export(finished.url, "vtu", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_xarray_reads_the_units_and_positions_of_a_netcdf_file(finished, tmp_path):
    store = xr.open_zarr(finished.url)
    with xr.open_dataset(export(finished.url, "nc", tmp_path / "u.nc"), engine="scipy") as file:
        assert file.attrs["Conventions"] == "CF-1.11"
        for name in store.variables:
            if name in file:  # the labels of channels are in the metadata
                np.testing.assert_array_equal(file[name].values, store[name].values)
                assert file[name].attrs.get("units") == store[name].attrs.get("units")
        assert {"x", "sample"} <= {*file.coords}


def test_whole_numbers_of_more_than_32_bits_are_no_netcdf(tmp_path):
    class Counting(Mixed):
        def values(self):
            return super().values() | {"error": np.arange(7) + 2**31}

    store = write(Counting("float32"), str(tmp_path / "counts.zarr"), Options(workers=1))
    with pytest.raises(FormatError, match="error has integers of more than 32 bits"):
        export(store.url, "nc", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_array_that_is_too_large_for_netcdf_is_refused(mixed, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_LARGEST_NETCDF", 2**8)
    with pytest.raises(FormatError, match="too many for netCDF-3: use hdf5"):
        export(mixed.url, "nc", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", [name for name in ON_GRIDS if name != "huggingface"])
@pytest.mark.usefixtures("forked")  # samples in no split are no rows of tables
def test_a_recipe_and_its_noisy_store_come_back(finished, tmp_path, format):
    noisy = add_noise(finished.url, "u", at_levels({}, [0.0, 0.1]), str(tmp_path / "n.zarr"))
    for k, parent in enumerate((finished, noisy)):
        file = export(parent.url, format, tmp_path / f"out{k}")
        assert_same(import_files([file], str(tmp_path / f"back{k}.zarr")), parent)


@pytest.mark.usefixtures("forked")
def test_large_variables_are_written_for_matlab_7(mixed, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_LARGEST_MAT5", 2**8)
    file = export(mixed.url, "mat", tmp_path / "out.mat")
    assert file.read_bytes()[:10] == b"MATLAB 7.3"
    with h5py.File(file) as content:
        np.testing.assert_array_equal(content["u"][...].T, value(mixed, "u"))
        assert content["u"].attrs["MATLAB_class"] == b"single"
        assert content["error"].attrs["MATLAB_class"] == b"double"
        assert content["c_bool"].attrs["MATLAB_class"] == b"logical"
        assert content["level"].shape == (1, 1)
    assert_same(imported(tmp_path, file), mixed)


def test_scipy_reads_what_is_written_for_matlab(mixed, tmp_path):
    found = scipy.io.loadmat(export(mixed.url, "mat", tmp_path / "out.mat"))
    for name in mixed.arrays:
        expected = value(mixed, name)
        assert found[name].dtype == (np.uint8 if expected.dtype == bool else expected.dtype)
        np.testing.assert_array_equal(found[name].reshape(expected.shape), expected)
    text = json.loads(found["pdegen"].tobytes())
    assert text["attributes"]["equation"] == "ü = 0"


def test_the_files_are_plain_ones_of_their_formats(mixed, tmp_path):
    u = value(mixed, "u")
    tensors = torch.load(export(mixed.url, "pt", tmp_path / "u.pt"), weights_only=True)
    np.testing.assert_array_equal(tensors["u"].numpy(), u)
    assert tensors["level"].shape == ()
    with h5py.File(export(mixed.url, "hdf5", tmp_path / "u.h5")) as file:
        np.testing.assert_array_equal(file["u"][...], u)
    folder = export(mixed.url, "npy", tmp_path / "u")
    np.testing.assert_array_equal(np.load(folder / "u.npy", allow_pickle=False), u)


def test_a_folder_of_others_is_never_replaced(mixed, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for format in FORMATS:
        with pytest.raises(FormatError, match="it is not replaced"):
            export(mixed.url, format, tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize("change", ["a variable of one's own", "a value", "no export at all"])
@pytest.mark.usefixtures("forked")
def test_a_file_with_what_no_export_has_written_is_never_replaced(mixed, tmp_path, change):
    file = export(mixed.url, "hdf5", tmp_path / "out")
    with h5py.File(file, "r+") as content:
        if change == "a variable of one's own":
            content["mine"] = np.ones(3)
        elif change == "a value":
            content["u"][0, 0, 0, 0] += 1
        else:
            content.clear()
            content.update({"pdegen": np.ones(3), "mine": np.ones(3)})
    before = file.read_bytes()
    with pytest.raises(FormatError, match="or it was changed since: it is not replaced"):
        export(mixed.url, "hdf5", file, overwrite=True)
    assert file.read_bytes() == before


@EVERY
def test_an_interrupted_export_leaves_nothing(mixed, tmp_path, format):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(mixed.url, format, tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "attribute",
    [{"scale_factor": 2.0}, {"_FillValue": 0.0}, {"units": "days since 2000-01-01"}],
)
def test_what_xarray_would_read_as_other_values_is_refused(mixed, tmp_path, attribute):
    folder = export(mixed.url, "npy", tmp_path / "out")
    text = without_digest((folder / "pdegen.json").read_bytes())
    text["arrays"]["a"]["attributes"].update(attribute)
    (folder / "pdegen.json").write_bytes(with_digest(text))
    with pytest.raises(ValueError, match=r"xarray would (change|read these units)"):
        imported(tmp_path, folder)


@pytest.mark.usefixtures("forked")
def test_skipped_samples_stay_skipped(mixed, tmp_path):
    class Skipping(Mixed):
        def values(self):
            values = super().values()
            for array in values.values():
                array[2] = np.nan
            return values

        def skipped(self, samples):
            return {2: "it was not solved"} if 2 in samples else {}

    store = write(Skipping("float32"), str(tmp_path / "skipping.zarr"), Options(workers=1))
    back = imported(tmp_path, export(store.url, "mat", tmp_path / "out.mat"))
    assert_same(back, store)
    assert back.skipped == [2]


def test_every_type_of_number_has_its_class_in_matlab(tmp_path):
    values = {t: random(3, 2).astype(t) for t in MATLAB_TYPES}
    arrays = {t: writers.ArraySpec(v.shape, v.dtype) for t, v in values.items()}
    for k, make in enumerate((writers.mat5_file, writers.mat73_file)):
        with make(tmp_path / f"{k}.mat", arrays) as sinks:
            for name, sink in sinks.items():
                sink.put(0, values[name])
    found = scipy.io.loadmat(tmp_path / "0.mat")
    for name, expected in values.items():
        np.testing.assert_array_equal(found[name], expected)


def test_an_unsealed_store_is_not_exported(store, tmp_path):
    with_attributes(store, sealed=False)
    with pytest.raises(StoreError, match="not sealed"):
        export(store.url, "npy", tmp_path / "out")


def test_a_disk_without_room_is_reported_before_anything_is_written(mixed, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(OSError, match="no room"):
        export(mixed.url, "npy", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@EVERY
@pytest.mark.parametrize("url", ["s3://bucket/x", "memory://x", "file:///tmp/x"])
def test_an_export_to_a_url_is_refused_with_what_to_do(finished, format, url):
    with pytest.raises(FormatError, match=r"written to a local path, not to a URL: write it there"):
        export(finished.url, format, url)


def test_a_description_of_more_bytes_than_are_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(export_metadata, "SMALL_BYTES", 8)
    (tmp_path / "pdegen.json").write_bytes(b"12345678")
    assert export_metadata._bounded(tmp_path / "pdegen.json") == b"12345678"
    (tmp_path / "pdegen.json").write_bytes(b"123456789")
    with pytest.raises(FormatError, match="more than 8 bytes"):
        export_metadata._bounded(tmp_path / "pdegen.json")
