"""Packed arrays and named axes of HDF5 and netCDF-4 files, as the CF conventions define them."""

import h5py
import numpy as np
import pytest
import xarray as xr

from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import ImportOptions
from tests.pdegen.formats.files import hdf5, imported, random, trains, value
from tests.stores import faults

SPLITS = {"train": 4, "test": 2}
STORED = np.random.default_rng(0).integers(-3000, 3000, (6, 8)).astype("i2")
OWN = ImportOptions("p", "q", "cell", SPLITS)


def packed(path, values, **attributes):
    file = hdf5(path / "packed.h5", {"p": random(6, 8), "q": values})
    with h5py.File(file, "a") as content:
        content["q"].attrs.update(attributes)
    return file


@pytest.mark.parametrize(
    ("stored", "attributes", "expected"),
    [
        (STORED, {"scale_factor": 0.01, "add_offset": 273.15}, STORED * 0.01 + 273.15),
        (STORED, {"scale_factor": np.array([0.5])}, STORED * 0.5),
        (STORED, {"add_offset": 3.0, "_FillValue": np.int16(-32768)}, STORED + 3.0),
        (STORED, {"missing_value": np.array([-9999], "i2")}, STORED),
        (STORED, {"valid_range": np.array([-4000, 4000], "i2")}, STORED),
        (STORED.astype("i1"), {"_Unsigned": "true"}, STORED.astype("i1").view("u1")),
        (random(6, 8), {"_FillValue": np.nan}, random(6, 8)),
        (random(6, 8).astype("f4"), {"missing_value": np.float32(1e20)}, random(6, 8).astype("f4")),
        (STORED.astype(">i2"), {"scale_factor": 2.0}, 2.0 * STORED),
    ],
    ids=["scale and offset", "of one element", "fill", "missing", "range", "unsigned", "nan",
         "float32", "big endian"],
)  # fmt: skip
@pytest.mark.parametrize("compressed", [False, True])
def test_values_are_the_physical_ones(tmp_path, stored, attributes, expected, compressed):
    file = packed(tmp_path, stored, **attributes)
    if compressed:
        with h5py.File(file, "a") as content:
            del content["q"]
            content.create_dataset("q", data=stored, compression="gzip", chunks=(2, 8))
            content["q"].attrs.update(attributes)
    store = imported(tmp_path, file, import_options=OWN)
    np.testing.assert_allclose(value(store, "u"), expected, rtol=1e-15)
    assert faults(store) == []
    trains(store)


@pytest.mark.parametrize(
    ("attributes", "name"),
    [({"_FillValue": np.int16(7)}, "_FillValue 7"),
     ({"missing_value": np.int16(7), "scale_factor": 0.1}, "missing_value 7"),
     ({"valid_range": np.array([-9, 6], "i2")}, "valid_range"),
     ({"valid_max": np.int16(6)}, "valid_max 6"), ({"valid_min": np.int16(9)}, "valid_min 9")],
    ids=["fill", "missing", "range", "max", "min"],
)  # fmt: skip
def test_what_is_missing_is_refused_or_left_out(tmp_path, attributes, name):
    """The numbers that stand for it are never values of the store."""
    stored = np.full((6, 8), 5 if "valid_min" not in attributes else 10, "i2")
    stored[0, 3] = 7
    file = packed(tmp_path, stored, **attributes)
    with pytest.raises(FormatError, match=f"sample 0: u is missing, or not finite, by .*{name}"):
        imported(tmp_path, file, import_options=OWN)
    assert not (tmp_path / "store.zarr").exists()
    store = imported(tmp_path, file, import_options=OWN, skip_failed=True)
    assert [*store.skipped] == [0]
    assert 7 not in value(store, "u")


def scales(file, **axes):
    """Name the axes of p and q, which are arrays of the file, or netCDF dimensions without one."""
    with h5py.File(file, "a") as content:
        for place, (name, points) in enumerate(axes.items()):
            if points is None:
                content.create_dataset(name, shape=(content["p"].shape[place],), dtype="f4")
                content[name].make_scale(
                    "This is a netCDF dimension but not a netCDF variable.   6"
                )
            else:
                content[name] = points
                content[name].make_scale(name)
            for array in "pq":
                content[array].dims[place].attach_scale(content[name])


def test_axes_and_positions_are_those_of_dimension_scales(tmp_path):
    lat, lon = np.array([60.0, 30, 0]), np.arange(4) * 90.0
    values = random(3, 6, 4)
    file = hdf5(tmp_path / "climate.nc", {"p": values, "q": values})
    scales(file, lat=lat, realization=None, lon=lon)
    own = ImportOptions("p", "q", "periodic,nodal", SPLITS)
    store = imported(tmp_path, file, import_options=own)
    read = xr.open_zarr(store.url)
    np.testing.assert_array_equal(
        read.a.transpose("sample", "y", "x"), values.swapaxes(0, 1)[:, ::-1]
    )
    np.testing.assert_array_equal(read.x, lon)
    np.testing.assert_array_equal(read.y, lat[::-1])
    assert store.raw_attributes["imported"]["left_out"] == ["realization"]
    for axes in (("sample", "x", "y"), ("y", "time", "x")):
        wrong = ImportOptions("p", "q", "cell", SPLITS, input_axes=axes, target_axes=axes)
        with pytest.raises(FormatError, match=r"p has the axes lat, realization, lon: \w+ is not"):
            imported(tmp_path, file, import_options=wrong, overwrite=True)


def test_positions_may_be_those_of_a_scale_of_any_name(tmp_path):
    file = hdf5(tmp_path / "ring.h5", {"p": random(6, 8), "q": random(6, 8)})
    scales(file, pair=None, theta=2 * np.pi * np.arange(8) / 8)
    store = imported(tmp_path, file, import_options=ImportOptions("p", "q", "periodic", SPLITS))
    np.testing.assert_allclose(value(store, "x"), 2 * np.pi * np.arange(8) / 8, rtol=1e-15)
    assert store.raw_attributes["imported"]["positions"] == "x from theta"
