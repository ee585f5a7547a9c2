"""Imports: declared by hand, shard by shard, in bounded memory, resumed to the same bytes."""

import pickle
import struct
import zipfile
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
import xarray as xr

from pdegen.equations.base import SampleError
from pdegen.formats import importing
from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import ImportJob, import_files
from pdegen.formats.plan import ImportOptions
from pdegen.store.reading import StoreError
from tests.pdegen.formats.files import (
    hdf5,
    imported,
    mat5,
    mat5_compressed,
    mat73,
    mat73_compressed,
    random,
    run,
    trains,
    value,
)
from tests.stores import faults, interrupted, objects_of

SPLITS = {"train": 6, "validation": 2, "test": 2}
BY_HAND = ImportOptions(input="p", target="q", grid="nodal", splits=SPLITS)


def npy_pair(folder, a, u):
    for name, values in (("p", a), ("q", u)):
        np.save(folder / f"{name}.npy", values)
    return folder / "p.npy", folder / "q.npy"


def test_a_file_that_is_not_known_is_listed_with_what_to_say(tmp_path):
    file = mat5(tmp_path / "mine.mat", {"p": random(10, 8), "q": random(10, 8)})
    with pytest.raises(FormatError) as caught:
        imported(tmp_path, file)
    message = str(caught.value)
    assert "p (10, 8) float64, q (10, 8) float64" in message
    for option in ("--input", "--target", "--grid", "--split (NAME=SIZE"):
        assert option in message
    assert "\n" not in message


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool", "int16", "int32"])
def test_numbers_are_kept_exactly(tmp_path, dtype):
    a, u = (random(10, 8, seed=s).astype(dtype) for s in (0, 1))
    store = imported(tmp_path, *npy_pair(tmp_path, a, u), import_options=BY_HAND)
    assert value(store, "a").dtype == (np.float64 if dtype in ("float64", "int32") else np.float32)
    np.testing.assert_array_equal(value(store, "a"), a)
    assert store.raw_attributes["imported"]["variables"]["a"]["type"] == dtype
    trains(store)


def big_pt(path, arrays):
    """A file of torch.save on a machine of the other byte order."""
    torch.save({name: torch.from_numpy(values) for name, values in arrays.items()}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {one.filename: archive.read(one) for one in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            if "/data/" in name:
                content = np.frombuffer(content, "<f8").astype(">f8").tobytes()
            archive.writestr(name, b"big" if name.endswith("/byteorder") else content)
    return path


def big_mat5(path, arrays):
    def element(kind, content):
        return struct.pack(">II", kind, len(content)) + content.ljust(-(-len(content) // 8) * 8)

    parts = [b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI"]
    for name, values in arrays.items():
        flags = element(6, struct.pack(">II", 6, 0))  # class double
        shape = element(5, struct.pack(">2i", *values.shape))
        numbers = element(9, values.astype(">f8").tobytes("F"))
        parts.append(element(14, flags + shape + element(1, name.encode()) + numbers))
    path.write_bytes(b"".join(parts))
    return path


def big_npz(path, arrays):
    np.savez(path.with_suffix(".npz"), **{k: v.astype(">f8") for k, v in arrays.items()})
    return path.with_suffix(".npz")


def big_hdf5(path, arrays):
    return hdf5(path, {name: values.astype(">f8") for name, values in arrays.items()})


def big_hdf5_in_chunks(path, arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values.astype(">f8"), chunks=(2, 8), compression="gzip")
    return path


def big_mat73(path, arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values.T.astype(">f8"))
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    return path


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    "write", [big_pt, big_mat5, big_npz, big_hdf5, big_hdf5_in_chunks, big_mat73]
)
def test_numbers_of_the_other_byte_order_are_read(tmp_path, write):
    arrays = {"p": random(10, 8), "q": random(10, 8, seed=1)}
    store = imported(tmp_path, write(tmp_path / "file", arrays), import_options=BY_HAND)
    np.testing.assert_array_equal(value(store, "a"), arrays["p"])
    np.testing.assert_array_equal(value(store, "u"), arrays["q"])
    assert value(store, "u").dtype == np.float64


def test_integers_beyond_a_float_are_refused(tmp_path):
    a = np.full((10, 8), 2**60 + 1)
    with pytest.raises(FormatError, match=r"int64 and holds 1\.15292e"):
        imported(tmp_path, *npy_pair(tmp_path, a, a), import_options=BY_HAND)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("samples", ["first", "last"])
@pytest.mark.parametrize("times", ["first", "last"])
def test_axes_are_found_or_said(tmp_path, order, samples, times):
    a, u = random(10, 8, 8), random(10, 3, 8, 8, seed=1)
    stored_a, stored_u = a, u
    if times == "last":
        stored_u = np.moveaxis(stored_u, 1, -1)
    if samples == "last":
        stored_a, stored_u = np.moveaxis(a, 0, -1), np.moveaxis(stored_u, 0, -1)
    stored_a, stored_u = (np.asarray(v, order=order) for v in (stored_a, stored_u))
    import_options = ImportOptions("p", "q", "periodic", SPLITS, samples)
    store = imported(
        tmp_path, *npy_pair(tmp_path, stored_a, stored_u), import_options=import_options
    )
    np.testing.assert_array_equal(value(store, "a"), a)
    np.testing.assert_array_equal(value(store, "u"), u)
    dataset = xr.open_zarr(store.url)
    assert dataset.u.dims == ("sample", "time", "x", "y")
    trains(store)


def test_times_that_shapes_do_not_tell_must_be_said(tmp_path):
    a, u = random(10, 8, 8), random(10, 8, 8, 8, seed=1)
    files = npy_pair(tmp_path, a, u)
    with pytest.raises(FormatError, match="say whether the times are first"):
        imported(tmp_path, *files, import_options=BY_HAND)
    last = ImportOptions("p", "q", "nodal", SPLITS, times="last")
    np.testing.assert_array_equal(
        value(imported(tmp_path, *files, import_options=last), "u"), np.moveaxis(u, -1, 1)
    )


@pytest.mark.parametrize("space", [(8,), (8, 6)])
def test_channels_and_times_of_any_place_are_said(tmp_path, space):
    names = "xy"[: len(space)]
    a, u = random(10, *space, 2), random(2, 10, *space, 3, seed=1)
    u[:, :, [0, -1]] = 0.5
    import_options = ImportOptions(
        "p", "q", ",".join(["nodal", "periodic"][: len(space)]), SPLITS,
        input_axes=("sample", *names, "channel"), target_axes=("channel", "sample", *names, "time"),
        boundary=0.5,
    )  # fmt: skip
    store = imported(tmp_path, *npy_pair(tmp_path, a, u), import_options=import_options)
    np.testing.assert_array_equal(value(store, "a"), np.moveaxis(a, -1, 1))
    np.testing.assert_array_equal(value(store, "u"), np.moveaxis(np.moveaxis(u, -1, 0), 2, 0))
    assert xr.open_zarr(store.url).u.dims == ("sample", "time", "channel", *names)
    assert store.raw_attributes_of("u")["channels"] == ["c0", "c1"]
    assert store.raw_attributes["physics"] == {"boundary": {"u": 0.5}}
    grids = [axis["grid"] for axis in store.raw_attributes["domain"]["axes"]]
    assert grids == ["nodal", "periodic"][: len(space)]
    assert faults(store) == []


@pytest.mark.parametrize(
    ("change", "a", "u", "message"),
    [
        *(
            ({key: tuple(words.split(","))}, (10, 8, 8), (10, 8, 8), f"--{key[:-5]}-axes {words}: ")
            for key in ("input_axes", "target_axes")
            for words in ("sample,x", "sample,x,x", "sample,x,level", "x,y,time")
        ),
        (
            {"target_axes": ("sample", "time", "channel")},
            (10, 8, 8),
            (10, 8, 8),
            "--target-axes sample,time,channel: ",
        ),
        ({"grid": "nodal,cell,cell"}, (10, 8, 8), (10, 8, 8), "one of these for each of x, y"),
        ({"grid": "square"}, (10, 8, 8), (10, 8, 8), "one of these for each of x, y"),
        ({"splits": {"test": 2}}, (10, 8), (10, 8), "train"),
        ({"splits": {"train": 0}}, (10, 8), (10, 8), "train"),
        ({"splits": {"train": 4, "more": 1}}, (10, 8), (10, 8), "train"),
        ({}, (10, 8), (9, 8), "different numbers of samples"),
        ({}, (10, 8), (10, 9), "different grid"),
        ({}, (10,), (10,), "an input has samples"),
        ({}, (10, 8), (10, 3, 4, 8), "an input has samples"),
        ({}, (0, 8), (0, 8), "is empty: its shape is"),
        ({}, (5, 8), (5, 8), "5 samples cannot be split"),
        ({}, (10, 1), (10, 1), "the axis x has 1 point: an axis of space has at least 2"),
        ({"grid": "cell,periodic"}, (10, 8, 1), (10, 8, 1), "the axis y has 1 point"),
    ],
)
def test_declarations_and_shapes_that_do_not_fit_are_refused(tmp_path, change, a, u, message):
    files = npy_pair(tmp_path, np.zeros(a), np.zeros(u))
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, *files, import_options=replace(BY_HAND, **change))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("p", random(4, 8).astype("float32")),
        ("q", random(4, 8).astype("float16")),
        ("p", random(4, 9)),
        ("q", random(8, 4)),
    ],
    ids=["float32", "float16", "another grid", "other axes"],
)
def test_files_that_are_joined_have_one_type_and_one_grid(tmp_path, name, other):
    first, second = ({key: random(n, 8, seed=n) for key in "pq"} for n in (6, 4))
    files = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for file, values in zip(files, (first, second), strict=True):
        np.savez(file, **values)
    store = imported(tmp_path, *files, import_options=BY_HAND)
    np.testing.assert_array_equal(value(store, "u"), np.concatenate([first["q"], second["q"]]))
    np.savez(files[1], **{**second, name: other})
    with pytest.raises(FormatError, match=rf"one.npz: {name} .* and two.npz: {name} .* differ"):
        imported(tmp_path / "other", *files, import_options=BY_HAND)


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "u is not finite"), (1e200, r"u is larger than 1e\+150 in the file")],
)
def test_a_sample_whose_squares_are_not_finite_is_named(tmp_path, value, message):
    u = random(10, 8)
    u[7, 3] = value
    files = npy_pair(tmp_path, random(10, 8), u)
    with pytest.raises(SampleError, match=f"sample 7: {message}"):
        imported(tmp_path, *files, import_options=BY_HAND)
    store = imported(tmp_path, *files, import_options=BY_HAND, skip_failed=True, resume=True)
    assert store.skipped == [7]


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(importing, "_SHARD_BYTES", 3 * 8 * 8)  # three samples


WRITERS = pytest.mark.parametrize("write", [mat5, mat5_compressed, mat73, hdf5])


@WRITERS
@pytest.mark.usefixtures("small_shards")
def test_resumed_is_the_same_bytes_as_uninterrupted(tmp_path, write):
    file = write(tmp_path / "file", {"p": random(10, 8), "q": random(10, 8, seed=1)})
    if not file.exists():  # SciPy appends the suffix
        file = file.with_suffix(".mat")
    whole = import_files([file], str(tmp_path / "whole.zarr"), BY_HAND, workers=2)
    assert whole.shards == 4
    url = str(tmp_path / "resumed.zarr")
    with interrupted(ImportJob, sample=4):
        import_files([file], url, BY_HAND, workers=1)
    resumed = import_files([file], url, BY_HAND, workers=1, resume=True)
    left, right = objects_of(whole), objects_of(resumed)
    assert {k: v for k, v in left.items() if k.startswith(("a/c", "u/c"))} == {
        k: v for k, v in right.items() if k.startswith(("a/c", "u/c"))
    }
    assert whole.raw_attributes["content"] == resumed.raw_attributes["content"]
    assert faults(resumed) == []


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("write", [mat5, mat5_compressed, mat73])
def test_a_job_that_travels_to_another_process_computes_the_same(tmp_path, monkeypatch, write):
    file = write(tmp_path / "f.mat", {"p": random(10, 8), "q": random(10, 8, seed=1)})
    compute = ImportJob.compute

    def travelled(self, store, samples):
        return compute(pickle.loads(pickle.dumps(self)), store, samples)

    here = import_files([file], str(tmp_path / "here.zarr"), BY_HAND, workers=1)
    monkeypatch.setattr(ImportJob, "compute", travelled)
    there = import_files([file], str(tmp_path / "there.zarr"), BY_HAND, workers=2)
    assert here.raw_attributes["content"] == there.raw_attributes["content"]


def test_another_file_or_declaration_does_not_resume_a_store(tmp_path):
    files = npy_pair(tmp_path, random(10, 8), random(10, 8, seed=1))
    url = imported(tmp_path, *files, import_options=BY_HAND).url
    other = ImportOptions("p", "q", "periodic", SPLITS)
    with pytest.raises(StoreError, match="with other options"):
        import_files(files, url, other, resume=True)
    np.save(tmp_path / "q.npy", random(10, 8, seed=2))
    with pytest.raises(StoreError, match="other files"):
        import_files(files, url, BY_HAND, resume=True)
    with pytest.raises(StoreError, match="overwrite"):
        import_files(files, url, BY_HAND)
    assert faults(import_files(files, url, BY_HAND, overwrite=True)) == []


@pytest.mark.parametrize("points", [8, 9], ids=["of the same size", "of another size"])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path, points):
    files = npy_pair(tmp_path, random(10, 8), random(10, 8, seed=1))
    job_check = ImportJob.check
    calls = []

    def check(self):
        calls.append(1)
        if len(calls) == 2:
            np.save(tmp_path / "q.npy", random(10, points, seed=3))
        job_check(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImportJob, "check", check)
        with pytest.raises(FormatError, match="changed during the import"):
            imported(tmp_path, *files, import_options=BY_HAND)


def test_nothing_unpacked_is_left_behind(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    file = mat5_compressed(tmp_path / "f.mat", {"p": random(10, 8), "q": random(10, 8, seed=1)})
    imported(tmp_path, file, import_options=BY_HAND)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_memory_is_bounded_by_shards_not_by_the_file(tmp_path):
    """Two arrays of 67 MB each, in shards of 16 MB."""
    a = np.zeros((16, 1024, 1024), "u1")
    a[:, ::3] = 1
    for write in (mat5, mat5_compressed, mat73_compressed):
        write(tmp_path / f"{write.__name__}.mat", {"p": a, "q": a})
        write(tmp_path / f"small_{write.__name__}.mat", {"p": a[:, :8, :8], "q": a[:, :8, :8]})
    done = run(f"""
        for kind in ("mat5", "mat5_compressed", "mat73_compressed"):  # what they import is not data
            import_files(["{tmp_path}/small_" + kind + ".mat"], "{tmp_path}/small_" + kind,
                ImportOptions("p", "q", "nodal", {{"train": 16}}), workers=1)
        for kind in ("mat5", "mat5_compressed", "mat73_compressed"):
            file = "{tmp_path}/" + kind + ".mat"
            before = at_most()
            import_files([file], "{tmp_path}/" + kind, ImportOptions(
                "p", "q", "nodal", {{"train": 16}}), workers=1)
            print(kind, at_most() - before)
    """)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    for line in done.stdout.splitlines():
        # the two shards, two copies on their way, and the pages of the file that are mapped
        assert int(line.split()[1]) < 110 * 1024
