"""Sound files of unusual kinds: what MATLAB, PyTorch, netCDF-3 and Zarr allow."""

import json
import os
import pickle
import shlex
import struct
import zipfile
import zlib
from importlib.util import find_spec
from math import prod

import h5py
import numpy as np
import pytest
import scipy.sparse
import torch
import xarray as xr
import zarr
from scipy.io import savemat

from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import listing
from pdegen.formats.plan import ImportOptions
from pdegen.store.reading import Store
from tests.pdegen.formats.files import hdf5, imported, mat5, random, trains, value
from tests.pdegen.formats.test_importing import big_pt
from tests.pipelines.command import call, quietly
from tests.stores import faults

SPLITS = {"train": 4, "test": 2}
P, Q = random(6, 8), random(6, 8, seed=1)


def read(tmp_path, *files, p="p", q="q", expected=(P, Q), **options):
    """The store of an import, whose values are those of the file."""
    own = ImportOptions(p, q, "periodic", SPLITS)
    store = imported(tmp_path, *files, import_options=own, **options)
    for name, values in zip("au", expected, strict=True):
        np.testing.assert_array_equal(value(store, name), values)
    assert faults(store) == []
    trains(store)
    return store


# MATLAB


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def string_object(name, compressed):
    """What MATLAB writes for a variable that is a string: class 17, without dimensions."""
    inner = (
        element(6, struct.pack("<II", 13, 0)) + element(5, struct.pack("<ii", 6, 1))
        + element(1, b"") + element(6, struct.pack("<6I", 0xDD000000, 2, 1, 1, 1, 1))
    )  # fmt: skip
    body = element(6, struct.pack("<II", 17, 0))
    body += b"".join(element(1, word) for word in (name, b"MCOS", b"string"))
    whole = element(14, body + element(14, inner))
    if not compressed:
        return whole
    packed = zlib.compress(whole)
    return struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_string_of_matlab_is_left_out(tmp_path, compressed, first):
    file = mat5(tmp_path / "own.mat", {"p": P, "q": Q}, compressed)
    data = file.read_bytes()
    note = string_object(b"note", compressed)
    file.write_bytes(data[:128] + note + data[128:] if first else data + note)
    store = read(tmp_path, file)
    assert store.raw_attributes["imported"]["left_out"] == ["note"]
    with pytest.raises(FormatError, match="note is a string: arrays of numbers"):
        read(tmp_path, file, q="note", overwrite=True)


@pytest.mark.parametrize("values", [P > 0, P])
def test_a_sparse_matrix_of_matlab_is_left_out(tmp_path, values):
    savemat(tmp_path / "own.mat", {"p": P, "mask": scipy.sparse.csc_matrix(values), "q": Q})
    store = read(tmp_path, tmp_path / "own.mat")
    assert store.raw_attributes["imported"]["left_out"] == ["mask"]


def test_files_of_matlab_4_are_read(tmp_path):
    savemat(tmp_path / "own.mat", {"p": P, "q": Q}, format="4")
    read(tmp_path, tmp_path / "own.mat")
    (tmp_path / "own.mat").write_bytes((tmp_path / "own.mat").read_bytes()[:-8])
    with pytest.raises(FormatError, match="cut off or damaged"):
        read(tmp_path, tmp_path / "own.mat", overwrite=True)


# PyTorch


def strided(values):
    """A tensor with these values in which the samples vary fastest, with others between."""
    whole = torch.randn(*values.shape[::-1], 2, dtype=torch.float64)
    whole[..., 0] = torch.from_numpy(values).permute(*reversed(range(values.ndim)))
    return whole[..., 0].permute(*reversed(range(values.ndim)))


def saved(path, content):
    torch.save(content, path)
    return path


T = torch.from_numpy(P), torch.from_numpy(Q)


@pytest.mark.parametrize(
    ("content", "p", "q"),
    [
        ({"p": strided(P), "q": T[1].t().contiguous().t()}, "p", "q"),
        ((T[0], strided(Q)), None, None), ((*T, 3), "0", "1"), ([*T], "0", "1"),
        ({"p": T[0][None].expand(3, 6, 8)[1], "q": T[1]}, "p", "q"),
    ],
    ids=["strides", "pair", "tuple", "list", "expanded"],
)  # fmt: skip
def test_tensors_of_any_strides_and_containers_are_read(tmp_path, content, p, q):
    read(tmp_path, saved(tmp_path / "own.pt", content), p=p, q=q)


def test_tensors_of_their_own_files_are_named_as_these(tmp_path):
    files = [saved(tmp_path / f"{name}.pt", t) for name, t in zip("pq", T, strict=True)]
    store = read(tmp_path, *files)
    assert len(store.raw_attributes["imported"]["files"]) == 2
    np.save(tmp_path / "r.npy", P)
    with pytest.raises(FormatError, match="only with others of their kind"):
        read(tmp_path, files[0], tmp_path / "r.npy")


def test_bfloat16_is_float32(tmp_path):
    half = [t.bfloat16() for t in T]
    file = saved(tmp_path / "own.pt", dict(zip("pq", half, strict=True)))
    store = read(tmp_path, file, expected=[t.float().numpy() for t in half])
    assert value(store, "u").dtype == np.float32


def test_views_of_the_other_byte_order_are_read(tmp_path):
    file = big_pt(tmp_path / "own.pt", {"p": P[:, ::2], "q": Q[:, ::2]})
    read(tmp_path, file, expected=(P[:, ::2], Q[:, ::2]))


def test_a_view_that_repeats_a_number_too_often_is_refused(tmp_path):
    tensor = torch.zeros(1, dtype=torch.float64).expand(40_000, 8)
    file = saved(tmp_path / "own.pt", {"p": tensor, "q": tensor})
    with pytest.raises(FormatError, match="p claims 2,560,000 bytes from 8 in the file"):
        read(tmp_path, file)


# netCDF-3 and Zarr

X = np.linspace(-1, 1, 8, endpoint=False)
DATASET = xr.Dataset(
    {"p": (("sample", "x"), P), "q": (("sample", "x"), Q), "word": ("x", [*"abcdefgh"])},
    {"x": ("x", X, {"units": "m"})},
)
NUMBERS = DATASET.drop_vars("word")


@pytest.mark.parametrize("kind", ["netCDF-3", "Zarr 2", "Zarr 3"])
def test_what_xarray_writes_is_read_with_its_coordinates(tmp_path, kind):
    path = tmp_path / "own"
    if kind == "netCDF-3":
        DATASET.to_netcdf(path, engine="scipy")
    else:
        NUMBERS.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False)
    store = read(tmp_path, path)
    np.testing.assert_array_equal(value(store, "x"), X)
    assert store.raw_attributes_of("x")["units"] == "m"
    about = store.raw_attributes["imported"]
    assert about["format"] == kind.split()[0]
    assert about["positions"] == "x from x"
    assert about["left_out"] == (["word"] if kind == "netCDF-3" else [])
    assert [file["name"] for file in about["files"]] == ["own"]


@pytest.mark.parametrize("kind", ["netCDF-3", "Zarr"])
def test_packed_values_of_xarray_are_physical(tmp_path, kind):
    path = tmp_path / "own"
    q = np.round(10 * Q) / 10
    encoding = {"q": {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -999}}
    dataset = NUMBERS.assign(q=(("sample", "x"), q))
    if kind == "netCDF-3":
        dataset.to_netcdf(path, engine="scipy", encoding=encoding)
    else:
        dataset.to_zarr(path, consolidated=False, encoding=encoding)
    store = imported(tmp_path, path, import_options=ImportOptions("p", "q", "periodic", SPLITS))
    np.testing.assert_allclose(value(store, "u"), q, rtol=1e-12)


def test_groups_of_zarr_are_parts_of_names(tmp_path):
    for group in ("train", "train/more"):
        NUMBERS.to_zarr(tmp_path / "own", group=group, consolidated=False)
    store = read(tmp_path, tmp_path / "own", p="train/p", q="train/q")
    assert "train/more/p" in store.raw_attributes["imported"]["left_out"]


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_arrays_without_names_of_axes_are_described(tmp_path, version):
    root = zarr.open_group(tmp_path / "o.zarr", mode="w", zarr_format=version)
    for name, values in {"p": P, "sub/q": Q, "number": np.array(3.0)}.items():
        root.create_array(name, data=values)
    lines, _ = listed(tmp_path / "o.zarr")
    assert lines[0] == "o.zarr (Zarr) holds"
    assert {line.split(" float64")[0].strip() for line in lines[1:4]} == {
        "p (6, 8)", "sub/q (6, 8)", "number ()",
    }  # fmt: skip
    read(tmp_path, tmp_path / "o.zarr", q="sub/q")


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_array_without_a_group_is_described(tmp_path, version):
    u = random(12, 5, 8)
    zarr.save_array(tmp_path / "u.zarr", u, zarr_format=version)
    own = {"input_axes": ("sample", "time", "x"), "target_axes": ("sample", "time", "x")}
    options = ImportOptions("u", "u", "periodic", SPLITS, **own)
    store = imported(tmp_path, tmp_path / "u.zarr", import_options=options)
    np.testing.assert_array_equal(value(store, "a"), u[:, 0])
    np.testing.assert_array_equal(value(store, "u"), u[:, 1:])


@pytest.mark.skipif(find_spec("cfgrib") is not None, reason="cfgrib is installed")
def test_a_grib_file_says_which_package_reads_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "era5.grib").write_bytes(b"GRIB" + bytes(100) + b"7777")
    done = call(capsys, monkeypatch, "import", tmp_path / "era5.grib", "--out", tmp_path / "s.zarr")
    assert done.status == 2
    assert done.err == ["pdegen: era5.grib is a GRIB file, which needs cfgrib: pip install cfgrib"]
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("name", ["p", "x"])
def test_a_codec_of_zarr_that_executes_code_is_refused(tmp_path, name, escaped):
    NUMBERS.to_zarr(tmp_path / "own", zarr_format=2, consolidated=False)
    path = tmp_path / "own" / name / ".zarray"
    content = json.loads(path.read_text()) | {"compressor": None, "filters": [{"id": "pickle"}]}
    text = json.dumps(content)
    path.write_text(text.replace("pickle", "\\u0070ickle") if escaped else text)

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    for chunk in (tmp_path / "own" / name).glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(FormatError, match="own has the codec pickle, which executes code"):
        read(tmp_path, tmp_path / "own")
    assert not (tmp_path / "executed").exists()


def test_a_link_in_a_group_of_zarr_is_refused(tmp_path):
    NUMBERS.to_zarr(tmp_path / "own", consolidated=False)
    (tmp_path / "own/q/link").symlink_to("/etc/hostname")
    with pytest.raises(FormatError, match="'link' is a link to another file"):
        read(tmp_path, tmp_path / "own")


def test_a_changed_chunk_of_zarr_is_another_file(tmp_path):
    NUMBERS.to_zarr(tmp_path / "own", consolidated=False)
    store = read(tmp_path, tmp_path / "own")
    chunk = next(path for path in (tmp_path / "own/q/c").rglob("*") if path.is_file())
    chunk.write_bytes(b"damaged")
    with pytest.raises(FormatError, match="own cannot be read"):
        read(tmp_path, tmp_path / "own", overwrite=True)
    assert faults(store) == []


def test_a_store_of_pdegen_needs_no_import(tmp_path):
    file = hdf5(tmp_path / "own.h5", {"p": P, "q": Q})
    store = read(tmp_path, file)
    with pytest.raises(FormatError, match=r"store\.zarr is a store of pdegen: it needs no import"):
        read(tmp_path / "other", tmp_path / "store.zarr")
    assert store.sealed


# unreadable arrays beside others


def damaged_chunk(file, name, *shape):
    """An array whose compressed chunk unpacks to fewer bytes."""
    dataset = file.create_dataset(name, shape, "f8", chunks=shape, compression="gzip")
    dataset.id.write_direct_chunk((0, 0), zlib.compress(random(prod(shape) // 16).tobytes()))


def odd_hdf5(path):
    """P and Q, and an unreadable dataset of each kind with a word of its reason."""
    with h5py.File(hdf5(path, {"p": P, "q": Q}), "r+") as file:
        file["soft"] = h5py.SoftLink("/nowhere")
        file["external"] = h5py.ExternalLink("nowhere.h5", "/p")
        file.create_dataset("filter", (6, 8), "i4", chunks=(6, 8), scaleoffset=4)[...] = 1
        file.create_dataset("unwritten", (6, 8), "f8", chunks=(3, 8))[:3] = 1
        damaged_chunk(file, "chunk", 2**14, 8)
        file["compound"] = np.zeros(6, [("k", "i4"), ("v", "f8")])
        file["reference"] = file["p"].ref
        file["empty"] = h5py.Empty("f8")
        file["v (m_s)"] = P
        file["scale"] = P
        file["scale"].attrs["NAME"] = "text of variable length"
        file["scale"].attrs["MATLAB_class"] = np.zeros(3)
    return {
        "soft": "is a link", "external": "is a link", "filter": "has the filter 6",
        "unwritten": "1 of 2 chunks", "chunk": "unpacks to less", "compound": "holds [(",
        "reference": "holds references", "empty": "has no values", "v (m_s)": "has a name",
    }  # fmt: skip


def odd_npz(path):
    """The same of an archive."""
    objects = np.array([{}, "text"], object)
    np.savez(path, p=P, q=Q, objects=objects, pairs=np.zeros(6, [("k", "i4")]), **{"v (m_s)": P})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "text")
        archive.writestr("header.npy", b"\x93NUMPY\x03\x00")
        archive.writestr("short.npy", archive.read("p.npy")[:-8])
    return {
        "objects": "is of type object", "pairs": "is of type [(", "v (m_s)": "has a name",
        "notes.txt": "is not a .npy file", "header": "is no array of NumPy",
        "short": "has 376 bytes, its shape (6, 8) takes 384",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "write"), [("o.h5", odd_hdf5), ("o.npz", odd_npz)])
def test_only_an_unreadable_array_that_is_asked_for_is_refused(
    tmp_path, name, write, capsys, monkeypatch
):
    file = tmp_path / name
    reasons = write(file)
    lines, command = listed(file)
    for key, why in reasons.items():
        assert any(line.startswith(f"  {key} ") and why in line for line in lines), key
    assert {command[4], command[6]} == {"p", "q"}
    read(tmp_path, file)
    for key in reasons:
        words = ("--grid", "nodal", "--split", "train=6", "--out", tmp_path / "none.zarr")
        done = call(capsys, monkeypatch, "import", file, "--input", key, "--target", "q", *words)
        assert done.status == 2, key
        assert len(done.err) == 1
        assert done.err[0].startswith(f"pdegen: {name}: {key} ")
    assert not (tmp_path / "none.zarr").exists()


def test_a_large_array_with_a_damaged_chunk_is_listed(tmp_path):
    with h5py.File(hdf5(tmp_path / "o.h5", {"p": P, "q": Q}), "r+") as file:
        damaged_chunk(file, "r", 2**17, 33)
    lines, _ = listed(tmp_path / "o.h5")
    assert any("  r cannot be read: a chunk unpacks to less" in line for line in lines)
    read(tmp_path, tmp_path / "o.h5")


def test_a_group_with_an_unreadable_array_is_no_missing_sample(tmp_path):
    with h5py.File(groups(tmp_path / "own.h5"), "r+") as file:
        del file["0003/data"]
        file["0003/data"] = h5py.SoftLink("/nowhere")
    own = ImportOptions("data", "data", "cell", SPLITS)
    with pytest.raises(FormatError, match="data of the group 0003 is a link") as caught:
        imported(tmp_path, tmp_path / "own.h5", import_options=own)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 8), "compression": "gzip"}])
def test_pairs_named_real_and_imag_are_complex(tmp_path, options):
    kind = [("real", "f8"), ("imag", "f8")]
    with h5py.File(tmp_path / "c.mat", "w", userblock_size=512) as file:
        for name, values in (("p", P), ("q", Q)):
            pairs = np.zeros((8, 6), kind)
            pairs["real"], pairs["imag"] = values.T, -2 * values.T
            chunks = options | ({"chunks": (8, 2)} if options else {})
            file.create_dataset(name, data=pairs, **chunks).attrs["MATLAB_class"] = b"double"
        file["small"] = np.array((1, 2), [("imag", "i2"), ("real", "i2")])
    with (tmp_path / "c.mat").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\0\2IM")
    both = [np.stack([values, -2 * values], axis=1) for values in (P, Q)]
    store = read(tmp_path, tmp_path / "c.mat", expected=both)
    assert store.raw_attributes_of("u")["channels"] == ["real.q", "imaginary.q"]
    assert any(
        line.startswith("  small () complex64, 2.236 to") for line in listing([tmp_path / "c.mat"])
    )


# a group for each sample, and listings


def groups(path, count=12, **changed):
    with h5py.File(path, "w") as file:
        for k in range(count):
            for name, values in {
                "data": random(5, 8, 8, 2, dtype="f4", seed=k), "grid/x": X, "grid/y": X,
                "grid/t": np.linspace(0, 2, 5), **(changed if k == 3 else {}),
            }.items():  # fmt: skip
                file[f"{k:04d}/{name}"] = values
    return path


@pytest.mark.parametrize("order", ["recognised", "described"])
def test_groups_are_samples_in_the_order_of_their_numbers(tmp_path, order):
    name = "2D_diff-react_NA_NA.h5" if order == "recognised" else "own.h5"
    file = groups(tmp_path / name)
    axes = ("time", "y", "x", "channel") if order == "described" else None
    own = ImportOptions("data", "data", "cell", SPLITS, input_axes=axes, target_axes=axes)
    options = {} if order == "recognised" else {"import_options": own}
    store = imported(tmp_path, file, **options)
    expected = np.stack([random(5, 8, 8, 2, dtype="f4", seed=k) for k in range(12)])
    expected = np.moveaxis(expected, -1, 2)
    if order == "described":
        expected = expected.swapaxes(-1, -2)
    np.testing.assert_array_equal(value(store, "a"), expected[:, 0])
    np.testing.assert_array_equal(value(store, "u"), expected[:, 1:])
    np.testing.assert_allclose(value(store, "x"), X, rtol=1e-12)
    np.testing.assert_array_equal(value(store, "time"), [0.5, 1, 1.5, 2])
    assert faults(store) == []
    trains(store)


def test_groups_of_several_shapes_are_no_samples(tmp_path):
    file = groups(tmp_path / "2D_rdb.h5", data=random(5, 8, 9, 2))
    with pytest.raises(FormatError, match=r"holds 0000/data \(5, 8, 8, 2\)"):
        imported(tmp_path, file)
    own = ImportOptions("0000/data", "0000/data", "cell", SPLITS)
    with pytest.raises(FormatError, match="as many samples as 0000/grid/t has times"):
        imported(tmp_path, file, import_options=own)


def listed(*files):
    *lines, _, command = listing(files)
    return lines, shlex.split(command)


def test_a_file_without_description_is_listed_with_a_command_that_imports_it(
    tmp_path, capsys, monkeypatch
):
    x = np.linspace(0, 2, 9)
    fields = np.cumsum(random(20, 9), axis=1)
    file = hdf5(tmp_path / "own file.h5", {"sol": fields, "x": x, "initial": fields[:, ::-1]})
    with h5py.File(file, "a") as content:
        content["sol"].attrs["units"] = "K"
        content["name"] = "text"
    lines, command = listed(file)
    ends = f"{fields.min():.4g} to {fields.max():.4g}"
    assert lines[:3] == [
        "own file.h5 (HDF5) holds", f"  initial (20, 9) float64, {ends}",
        f"  sol (20, 9) float64, {ends}, in K",
    ]  # fmt: skip
    assert lines[4].startswith("  name holds objects or texts")
    assert command[:2] == ["pdegen", "import"]
    assert command[3:9] == ["--input", "initial", "--target", "sol", "--grid", "nodal"]
    quietly(*command[1:-1], tmp_path / "s.zarr")
    assert Store(str(tmp_path / "s.zarr")).raw_attributes["splits"] == {
        "train": [0, 16], "validation": [16, 18], "test": [18, 20],
    }  # fmt: skip
    done = call(capsys, monkeypatch, "import", file)
    assert done.status == 2
    assert done.out[:2] == lines[:2]
    assert done.err[-1].startswith("pdegen: own file.h5 (HDF5) holds")


def test_an_array_of_frames_is_listed_as_a_trajectory_on_a_circle(tmp_path):
    x = 2 * np.pi * np.arange(16) / 16
    u = np.sin(x + np.linspace(0, 3, 4)[:, None] + random(10, 1, 1))
    _, command = listed(hdf5(tmp_path / "own.h5", {"u": u, "x": x}))
    assert command[3:9] == ["--input", "u", "--target", "u", "--grid", "periodic"]
    quietly(*command[1:-1], tmp_path / "s.zarr")
    assert xr.open_zarr(str(tmp_path / "s.zarr")).u.shape == (10, 3, 16)


def test_a_file_without_samples_is_listed_without_a_command(tmp_path):
    lines = listing([hdf5(tmp_path / "own.h5", {"x": X})])
    assert lines[-1] == "no array has samples and points: nothing can be imported"


def test_groups_are_listed_with_a_command_that_names_their_arrays(tmp_path):
    lines, command = listed(groups(tmp_path / "own.h5"))
    assert lines[0] == "own.h5 (HDF5) holds 12 groups, each with"
    assert command[3:7] == ["--input", "data", "--target", "data"]
    assert command[-8:-2] == [
        "--split", "train=10", "--split", "validation=1", "--split", "test=1",
    ]  # fmt: skip
