"""Whatever changes in an exported file, and wherever: it is refused, or makes the same store."""

from __future__ import annotations

import dataclasses
import json
import random as chance
import re
import shutil
import zipfile
import zlib

import h5py
import numpy as np
import pytest
import scipy.io
import torch

from pdegen.formats import exporting
from pdegen.formats.arrays import FormatError
from pdegen.formats.exporting import FORMATS, export
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.generation.generate import Options, write
from pdegen.store.format import with_digest, without_digest
from tests.pdegen.formats.files import BY_HAND as PQ
from tests.pdegen.formats.files import PAIR, imported, random, refused, value
from tests.pdegen.formats.test_exporting import Mixed

# a declaration would read these arrays of a file that is not known as an export
BY_HAND = ImportOptions("a", "u", "periodic", {"train": 4})
OPTIONS = {
    "input": "a", "target": "u", "grid": "cell", "splits": {"train": 2}, "samples": "last",
    "times": "last", "input_axes": ("sample", "x"), "target_axes": ("sample", "x"), "boundary": 0.0,
    "coordinates": {"x": "x"}, "lengths": {"x": 2.0}, "moments": (0.0, 1.0),
    "points": "a", "cells": "a", "edge": "a", "mask": "a", "window": 2, "stride": 1,
}  # fmt: skip
FILES = [*(name for name in FORMATS if name != "vtu"), "mat73"]  # VTU files are of meshes
EVERY = pytest.mark.parametrize("format", FILES)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("mixed") / "mixed.zarr")
    return write(Mixed("float32"), url, Options(workers=1))


@pytest.fixture
def exported(mixed, tmp_path, monkeypatch):
    def made(format, name="out"):
        if format == "mat73":
            monkeypatch.setattr(exporting, "_LARGEST_MAT5", 2**8)
        return export(mixed.url, "mat" if format == "mat73" else format, tmp_path / name)

    return made


def outcome(path, folder, mixed, import_options=ImportOptions()):  # noqa: B008, it is frozen
    """The refusal of a file; None where it makes the same store."""
    try:
        store = import_files([path], str(folder / "store.zarr"), import_options, workers=1)
    except FormatError as error:
        return str(error)
    assert {*store.arrays} == {*mixed.arrays}
    for name in mixed.arrays:
        assert value(store, name).tobytes() == value(mixed, name).tobytes(), name
        there, here = (one.description.zarr_metadata[name] for one in (store, mixed))
        assert there["attributes"] == here["attributes"]
    for key in ("title", "equation", "recipe", "splits", "variables"):
        assert store.raw_attributes[key] == mixed.raw_attributes[key]
    shutil.rmtree(store.url)
    return None


def files_of(path):
    """Files of an export that an import reads: without the card, and without the manifest of
    replaceable files."""
    files = sorted(path.rglob("*.*")) if path.is_dir() else [path]
    return [file for file in files if file.name not in (".written.jsonl", "README.md")]


@EVERY
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("flips", [8, pytest.param(600, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(
    exported, mixed, tmp_path, format, flips
):
    path = exported(format)
    draws = chance.Random(7)
    places = [(file, k) for file in files_of(path) for k in range(file.stat().st_size)]
    noticed = 0
    for file, k in draws.sample(places, flips):
        whole = file.read_bytes()
        data = bytearray(whole)
        data[k] ^= 1 << draws.randrange(8)
        file.write_bytes(data)
        noticed += outcome(path, tmp_path, mixed) is not None
        file.write_bytes(whole)
    assert noticed > flips / 4  # others hit padding and free space of the containers


@EVERY
@pytest.mark.usefixtures("forked")
def test_a_cut_off_export_is_refused(exported, mixed, tmp_path, format):
    path = exported(format)
    for file in files_of(path):
        whole = file.read_bytes()
        for keep in (0.5, 1 - 1e-9):
            file.write_bytes(whole[: int(keep * len(whole))])
            assert outcome(path, tmp_path, mixed)
        file.write_bytes(whole)
    assert outcome(path, tmp_path, mixed) is None


def described(folder, change):
    """A description that was edited and signed again."""
    path = folder / "pdegen.json"
    said = without_digest(path.read_bytes())
    change(said)
    path.write_bytes(with_digest(said))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda said: said["arrays"].update(a=said["arrays"]["a"] | {"sha256": "0" * 64}),
         "a differs from its SHA-256"),
        (lambda said: said["arrays"]["a"].update(sha256=""), "sha256"),
        (lambda said: said["arrays"]["a"].pop("sha256"), "sha256"),
        (lambda said: said.update(format="pdegen export 1"), "pdegen export 2"),
        (lambda said: said["arrays"].pop("level"), "holds level, which was not exported"),
        (lambda said: said["arrays"].update(b=said["arrays"]["a"]), "the array b is missing"),
        (lambda said: said["attributes"].update(splits={"train": [0, 5], "test": [4, 7]}),
         "splits share no sample"),
        (lambda said: said["attributes"].update(splits={"train": [0, 5], "test": [5, 5]}),
         "split test is a range"),
        (lambda said: said["arrays"].update({"../x": said["arrays"]["a"]}), "the name"),
        (lambda said: said["arrays"]["a"].update(shape=[7, 4, 5]), ""),
        (lambda said: said["arrays"]["a"].update(dtype="object"), ""),
        (lambda said: said["arrays"]["a"]["attributes"].update(more=float("nan")), ""),
        (lambda said: said["attributes"].pop("splits"), "splits"),
        (lambda said: said["attributes"].update(splits={"train": ["0", "4"]}), "splits"),
        (lambda said: said["attributes"].update(splits={"train": [0, 4, 6]}), "splits"),
        (lambda said: said["attributes"].update(skipped=[99]), "skipped"),
        (lambda said: said["attributes"].update(variables=["nothing"]), "damaged"),
        (lambda said: said["attributes"].update(recipe="x"), "damaged"),
        (lambda said: said.update(more=1), "more"),
        (lambda said: said.update(files={"../x": "0" * 64}), "the file '../x'"),
        (lambda said: said.update(files={"x.parquet": "0" * 63}), "the file 'x.parquet'"),
        (lambda said: said.clear(), ""),
    ],
)  # fmt: skip
def test_an_edited_description_with_its_digest_is_refused(exported, mixed, tmp_path, change, match):
    folder = exported("npy")
    described(folder, change)
    refusal = outcome(folder, tmp_path, mixed)
    assert refusal
    assert match in refusal
    assert "\n" not in refusal


def test_a_description_without_digests_is_refused(exported, mixed, tmp_path):
    folder = exported("npy")
    said = without_digest((folder / "pdegen.json").read_bytes())
    (folder / "pdegen.json").write_text(json.dumps(said), "utf-8")
    assert "export the store again" in outcome(folder, tmp_path, mixed)


def test_edited_values_with_a_fresh_digest_of_them_alone_are_refused(exported, mixed, tmp_path):
    from pdegen.formats.arrays import Digest

    folder = exported("npy")
    path, digest = folder / "a.npy", Digest()
    edited = np.load(path) + 1
    np.save(path, edited)
    digest.add(edited)
    text = (folder / "pdegen.json").read_bytes()
    old = without_digest(text)["arrays"]["a"]["sha256"]
    (folder / "pdegen.json").write_bytes(text.replace(old.encode(), digest.hex.encode()))
    assert "differs from its own digest" in outcome(folder, tmp_path, mixed)


@pytest.mark.usefixtures("forked")
def test_arrays_beside_those_of_the_export_are_refused(exported, mixed, tmp_path):
    folder = exported("npy")
    shutil.copy(folder / "a.npy", folder / "b.npy")
    assert "out holds b, which was not exported" in outcome(folder, tmp_path, mixed)
    file = exported("hdf5", "out.h5")
    with h5py.File(file, "a") as content:
        content["more/a"] = 1.0
    assert "holds more/a, which was not exported" in outcome(file, tmp_path, mixed)


@EVERY
@pytest.mark.usefixtures("forked")
def test_a_renamed_file_makes_the_same_store(exported, mixed, tmp_path, format):
    path = exported(format)
    assert outcome(path.rename(tmp_path / "burgers_data_R10.zip"), tmp_path, mixed) is None


@EVERY
@pytest.mark.usefixtures("forked")
def test_a_damaged_name_of_the_description_makes_no_file_of_others(
    exported, mixed, tmp_path, format
):
    path = exported(format)
    for file in files_of(path):
        whole = file.read_bytes()
        for found in re.finditer(b"pdegen", whole):
            data = bytearray(whole)
            data[found.end() - 1] ^= 1
            file.write_bytes(data)
            outcome(path, tmp_path, mixed, BY_HAND)
        file.write_bytes(whole)


def test_an_export_is_not_joined_with_files_of_others(exported, tmp_path):
    file = exported("hdf5", "out.h5")
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as content:
        content.update({"a": random(2, 4, 4), "u": random(2, 3, 4, 4)})
    with pytest.raises(FormatError, match=r"out\.h5 was exported: it is imported by itself"):
        import_files([other, file], str(tmp_path / "store.zarr"), BY_HAND)


# files of others have what checksums their format has


def repacked(path, change):
    """An archive whose entries, (name, bytes), were changed; each has its checksum."""
    with zipfile.ZipFile(path) as archive:
        entries = [(one.filename, archive.read(one)) for one in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in change(entries):
            archive.writestr(name, data)


@pytest.mark.usefixtures("forked")
def test_numbers_of_a_pt_file_have_their_checksum(tmp_path):
    file = tmp_path / "p.pt"
    torch.save({name: torch.from_numpy(v) for name, v in PAIR.items()}, file)
    data = bytearray(file.read_bytes())
    data[data.index(PAIR["p"].tobytes()) + 40] ^= 1
    file.write_bytes(data)
    refused(file, match="the entry p/data/0 differs from its checksum")


@pytest.mark.usefixtures("forked")
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("save", [
    lambda file, arrays: torch.save({k: torch.from_numpy(v) for k, v in arrays.items()}, file),
    lambda file, arrays: np.savez(file, **arrays),
], ids=["pt", "npz"])  # fmt: skip
def test_entries_of_one_name_are_refused(tmp_path, save):
    file = tmp_path / "p.npz"
    save(file, PAIR)
    repacked(file, lambda entries: [*entries, (entries[1][0], b"other")])
    refused(file, match="a name is repeated")


@pytest.mark.parametrize("options", [
    {}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True, "fletcher32": True},
])  # fmt: skip
@pytest.mark.usefixtures("forked")
def test_chunks_that_were_never_written_are_refused(tmp_path, options):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        content["p"] = random(6, 8)
        content.create_dataset("q", (6, 8), "f8", chunks=(2, 8), **options)[:3] = 1
    refused(tmp_path / "p.h5", match="q has 1 of 3 chunks never written")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("rows", "relation"), [(3, "more"), (1, "less")])
def test_chunks_of_another_size_than_they_claim_are_refused(tmp_path, rows, relation):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        content["p"] = random(6, 8)
        dataset = content.create_dataset("q", (6, 8), "f8", chunks=(2, 8), compression="gzip")
        dataset[...] = 1
        dataset.id.write_direct_chunk((2, 0), zlib.compress(bytes(rows * 64)))
    refused(
        tmp_path / "p.h5", match=f"q cannot be read: a chunk unpacks to {relation} than 128 bytes"
    )


@pytest.mark.usefixtures("forked")
def test_compressed_variables_of_matlab_have_their_checksum(tmp_path):
    file = tmp_path / "p.mat"
    scipy.io.savemat(file, PAIR, do_compression=True)
    whole = file.read_bytes()
    for k in chance.Random(3).sample(range(128, len(whole)), 6):
        data = bytearray(whole)
        data[k] ^= 1 << 3
        file.write_bytes(data)
        refused(file, match="p.mat")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("compressed", [False, True])
def test_variables_of_matlab_end_where_the_file_does(tmp_path, compressed):
    file = tmp_path / "p.mat"
    arrays = {**PAIR, "r": random(9)}  # of which the last is not asked for
    scipy.io.savemat(file, arrays, do_compression=compressed)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    refused(file, match="it is cut off")
    file.write_bytes(whole + bytes(20))
    refused(file, match="does not begin a variable")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_files_are_imported_with_their_checksums(tmp_path, save, order):
    file, arrays = tmp_path / "p.npz", PAIR
    save(file, p=np.asarray(arrays["p"], order=order), q=arrays["q"].astype(">f8"))
    store = imported(tmp_path, file, import_options=PQ)
    np.testing.assert_array_equal(value(store, "a"), arrays["p"])
    np.testing.assert_array_equal(value(store, "u"), arrays["q"])
    shutil.rmtree(store.url)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    refused(file, match="checksum|cut off or damaged")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda entries: [(entries[0][0], entries[0][1][:-8]), entries[1]], "shape .* takes 384"),
        (lambda entries: [("../p.npy", entries[0][1]), entries[1]], "has a name with other"),
        (lambda entries: [(entries[0][0], b"\x80\x04K\x01."), entries[1]], "is no array of NumPy"),
    ],
)
def test_a_damaged_npz_file_is_refused(tmp_path, change, match):
    file = tmp_path / "p.npz"
    np.savez(file, **PAIR)
    repacked(file, change)
    refused(file, match=match)


@pytest.mark.usefixtures("forked")
def test_objects_in_an_npz_file_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "p.npz", p=random(6, 8), q=np.array([{}], dtype=object))
    refused(tmp_path / "p.npz", match="q is of type object")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ImportOptions)])
def test_an_export_is_imported_without_options(exported, mixed, tmp_path, name):
    refusal = outcome(exported("npy"), tmp_path, mixed, ImportOptions(**{name: OPTIONS[name]}))
    assert refusal
    assert "was exported by pdegen: it is imported without options" in refusal


@pytest.mark.usefixtures("forked")
def test_a_small_dataset_that_was_never_written_is_refused(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as content:
        content["p"] = random(6, 8)
        content.create_dataset("q", (6, 8), "f8")
    refused(tmp_path / "p.h5", match="never written|claims 384 bytes")
