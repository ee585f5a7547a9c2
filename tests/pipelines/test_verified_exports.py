"""`pdegen verify` of exports: sound ones pass, and whatever was changed in them is reported."""

import json
import random
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pdegen.formats import exporting
from pdegen.formats.exporting import FORMATS
from tests.absent import absent
from tests.pdegen.formats.conftest import forked as forked
from tests.pipelines.command import everything, quietly

pytestmark = pytest.mark.usefixtures("forked")
EVERY = pytest.mark.parametrize("format", [*(name for name in FORMATS if name != "vtu"), "mat73"])


@pytest.fixture(scope="module")
def other(burgers, tmp_path_factory):
    """A store of the same recipe with other values."""
    url = tmp_path_factory.mktemp("other") / "other.zarr"
    quietly("noise", burgers, "--variable", "u", "--level", "0.1", "--out", url)
    return url


@pytest.fixture
def exported(pdegen, tmp_path, monkeypatch):
    def made(store, format, name="out"):
        if format == "huggingface" and find_spec("pyarrow") is None:
            absent("pyarrow is missing: make test installs it")
        if format == "mat73":
            monkeypatch.setattr(exporting, "_LARGEST_MAT5", 2**8)
        words = ("--format", "mat" if format == "mat73" else format, "--out", tmp_path / name)
        assert pdegen("export", store, *words).status == 0
        return tmp_path / name

    return made


def refused(pdegen, path):
    """The report of a damaged export, which names its path."""
    outcome = pdegen("verify", path)
    assert outcome.status in (1, 2), outcome.out
    assert outcome.out == []
    assert len(outcome.err) == 1 if outcome.status == 2 else len(outcome.err) > 1
    assert all(path.name in line for line in outcome.err)
    return outcome.err[0]


@EVERY
def test_a_sound_export_is_verified_and_not_touched(pdegen, burgers, exported, tmp_path, format):
    path = exported(burgers, format)
    before = everything(tmp_path)
    outcome = pdegen("verify", path)
    assert (outcome.status, outcome.out, outcome.err) == (0, [f"{path}: verified"], [])
    outcome = pdegen("verify", path, "--json")
    assert json.loads("\n".join(outcome.out))["verified"] is True
    assert everything(tmp_path) == before


@EVERY
def test_a_flipped_bit_of_a_value_is_reported(pdegen, burgers, exported, format):
    path = exported(burgers, format)
    chance = random.Random(3)
    files = [f for f in path.rglob("*.*") if f.is_file()] if path.is_dir() else [path]
    files = [file for file in files if file.name != ".written.jsonl"]
    for file in files:
        whole = file.read_bytes()
        data = bytearray(whole)
        data[chance.randrange(len(data) // 3, 2 * len(data) // 3)] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        assert refused(pdegen, path)
        file.write_bytes(whole)
    assert pdegen("verify", path).status == 0


@pytest.mark.parametrize("format", ["npy", "huggingface"])
def test_a_file_of_another_export_or_a_missing_one_is_reported(
    pdegen, burgers, other, exported, format
):
    path, others = exported(burgers, format), exported(other, format, "others")
    names = [file.relative_to(path) for file in path.rglob("*.*") if file.is_file()]
    swapped = []
    for name in names:
        whole = (path / name).read_bytes()
        if name.name == ".written.jsonl" or (others / name).read_bytes() == whole:
            continue
        shutil.copy(others / name, path / name)
        swapped.append(name.name)
        assert refused(pdegen, path)
        (path / name).unlink()
        refusal = refused(pdegen, path)
        assert name.stem in refusal or name.name == "pdegen.json"
        (path / name).write_bytes(whole)
    assert {"pdegen.json", "u.npy" if format == "npy" else "README.md"} <= {*swapped}
    assert pdegen("verify", path).status == 0


@EVERY
def test_stores_alone_are_recomputed_and_repaired(pdegen, burgers, exported, format):
    path = exported(burgers, format)
    for option in ("--deep", "--repair"):
        outcome = pdegen("verify", path, option)
        assert outcome.status == 2
        assert outcome.err == [f"pdegen: {path} is no store: --deep and --repair are for stores"]


def test_every_changed_file_of_a_folder_of_tables_is_named(pdegen, burgers, exported):
    path = exported(burgers, "huggingface")
    (path / "data/test-00000-of-00001.parquet").unlink()
    (path / "README.md").write_text("mine")
    shutil.copy(path / "data/coordinates.parquet", path / "data/train-1.parquet")
    outcome = pdegen("verify", path)
    assert outcome.status == 1
    assert outcome.err == [
        f"{path}: data/test-00000-of-00001.parquet: is missing",
        f"{path}: README.md: differs from its SHA-256: the file was changed",
        f"{path}: data/train-1.parquet: was not exported: move it away",
        f"pdegen: {path} has 3 faults",
    ]
    outcome = pdegen("verify", path, "--json")
    assert outcome.status == 1
    assert len(json.loads("\n".join(outcome.out))["faults"]) == 3


def test_a_licence_may_be_written_into_the_card(pdegen, burgers, exported):
    path = exported(burgers, "huggingface")
    card = path / "README.md"
    lines = card.read_text("utf-8").splitlines(keepends=True)
    assert lines[1].startswith("license: ")
    card.write_text("".join([lines[0], "license: mit\n", *lines[2:]]), "utf-8")
    assert pdegen("verify", path).status == 0
    card.write_text("".join([*lines[:2], *lines[2:], "license: mit\n"]), "utf-8")
    assert refused(pdegen, path)


@pytest.mark.parametrize("kind", ["empty", "tables", "arrays", "text", "file", "pickle"])
def test_what_is_no_export_is_refused_in_one_line(pdegen, burgers, exported, tmp_path, kind):
    path = tmp_path / "mine"
    path.mkdir()
    if kind == "tables":
        exported(burgers, "huggingface")
        shutil.copytree(tmp_path / "out/data", path / "data")
    elif kind == "arrays":
        np.save(path / "a.npy", np.arange(3))
    elif kind != "empty":
        path = path / "file"
        path.write_text("mine")
        if kind == "file":
            np.savez(path.with_suffix(".npz"), a=np.arange(3.0))
            path = path.with_suffix(".npz")
        elif kind == "pickle":
            path.write_bytes(b"\x80\x04N.")
    outcome = pdegen("verify", path)
    assert (outcome.status, outcome.out) == (2, [])
    (line,) = outcome.err
    assert f"{path} is neither a store nor an export" in line
    if path.is_dir():
        outcome = pdegen("import", path, "--out", "s.zarr")
        assert outcome.status == 2
        assert "is not an exported folder, it has no pdegen.json" in outcome.err[-1]
        assert not Path("s.zarr").exists()
