"""Requests that cannot be: one line and status 2, before anything is written, in no time."""

import os
import shutil
from pathlib import Path

import pytest

import pdegen.equations.base
from pdegen.equations.registry import names
from pdegen.recipe import recipe_folder
from pdegen.schema import SchemaError
from tests.pipelines.command import SMALL, quietly

pytestmark = pytest.mark.timeout(60)  # what waits for a pipe, or parses for long, fails

NAMES = ["../../x", "a/b", "/tmp/x", "..", ".hidden", "", " ", "x\\ty", "x\\u001b[2J", "a" * 201,
         "-x", "x;y", "$(x)", "\\u202ex"]  # fmt: skip


def written(path: Path, of: str = "burgers-quick", **changes: str) -> Path:
    """A recipe of ones own: lines of a shipped one replaced."""
    text = (recipe_folder() / f"{of}.toml").read_text("utf-8")
    for old, new in changes.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{old} ="))
        text = text.replace(line, f"{old} = {new}", 1)
    path.write_text(text, "utf-8")
    return path


# names


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_a_name_that_is_no_path(refused, tmp_path, name):
    path = written(tmp_path / "mine.toml", name=f'"{name}"')
    assert "name: a name begins with a letter or a digit" in refused("generate", path)


@pytest.mark.parametrize("name", ["mine", "burgers 512, ν = 0.1", "Übung_3.b", "a+b-c"])
def test_ordinary_names_are_names(pdegen, tmp_path, name):
    path = written(tmp_path / "mine.toml", name=f'"{name}"')
    outcome = pdegen("generate", path, "--dry-run")
    assert outcome.status == 0
    assert outcome.out[0].startswith(f"{name} to data/{name}-")


def test_the_name_is_confined_wherever_it_is_said(refused):
    for words in (
        ["generate", "burgers-quick", "--set", "name=../x"],
        ["train", "burgers-quick", "--set", "name=../x"],
        ["run", "burgers-quick", "--set", "name=/tmp/x"],
    ):
        assert "name: a name begins with a letter" in refused(*words)


@pytest.mark.parametrize("kind", ["experiments/burgers-quick", "benchmarks/quick",
                                  "benchmarks/profile-quick"])  # fmt: skip
def test_experiments_and_benchmarks_have_such_names_too(refused, root, tmp_path, kind):
    text = (root / "pipelines" / "declared" / f"{kind}.toml").read_text("utf-8")
    first = next(line for line in text.splitlines() if line.startswith("name ="))
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(first, 'name = "../x"', 1), "utf-8")
    command = "train" if kind.startswith("experiments") else "benchmark"
    assert "name: a name begins with a letter" in refused(command, path)


def test_words_that_name_nothing_are_shown_in_short(refused):
    assert len(refused("generate", "x" * 20_000)) < 1000
    assert len(refused("train", "x" * 20_000)) < 2000
    assert len(refused("generate", "burgers-quick", "--set", "a." * 10_000 + "b=1")) < 1000


# sizes


@pytest.mark.parametrize("samples", [16_777_217, 10**10, 10**12, 10**18, 10**30])
def test_more_samples_than_readers_accept_are_refused(refused, samples):
    for words in (["--samples", samples], ["--set", f"samples={samples}"]):
        line = refused("generate", "burgers-r10", *words)
        assert "samples: must be at most 16,777,216, got 1" in line


def test_numbers_of_samples_are_whole(refused):
    assert "--samples" in refused("generate", "burgers-r10", "--samples", "1e10")
    line = refused("generate", "burgers-r10", "--set", "samples=1e10")
    assert "samples: must be a whole number, got 10000000000.0" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["burgers-r10", "--resolution", 2**20, "--set", f"solver.resolution={2**20}"],
         "a has 4,194,304 bytes in each sample, so 536,870,912 in a shard"),
        (["burgers-quick", "--resolution", 2**25, "--set", f"solver.resolution={2**25}"],
         "a has 33,554,432 points along x, readers accept 16,777,216"),
        (["burgers-quick", "--resolution", 10**30], "problem.resolution: must be at most"),
        (["darcy-quick", "--resolution", 99_999], "bytes in each sample, readers accept"),
        (["darcy-421", "--resolution", 4_001], "in a shard of 64, readers accept 2,147,483,648"),
        (["burgers-r10", "--set", "shard=2048", "--resolution", 8192, "--set",
          "times=[" + ",".join(str(k / 100) for k in range(1, 99)) + "]"],
         "choose a shard of at most 668"),
    ],
)  # fmt: skip
def test_more_bytes_than_readers_accept_are_refused(refused, words, message, monkeypatch):
    if "536,870,912" in message:  # which they do accept: the rest is memory
        monkeypatch.setattr(pdegen.equations.base.psutil, "virtual_memory", _small)
        message = "one sample takes some 0 GB of memory"
    assert message in refused("generate", *words)


class _small:
    total = 10**6


@pytest.mark.parametrize(
    "words",
    [
        ["burgers-quick", "--set", f"solver.resolution={2**32}"],
        ["darcy-quick", "--set", "refinement=99999"],
        ["darcy-quick", "--set", "modes=1000000"],
    ],
)
def test_more_memory_than_there_is_is_refused_before_anything_is_written(refused, words):
    assert "GB of memory, this machine has" in refused("generate", *words)


# files


def test_what_is_in_the_place_of_a_file_is_named(refused, tmp_path):
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    (tmp_path / "empty.toml").touch()
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    for command in ("generate", "train", "run", "benchmark"):
        assert "folder.toml: it is a folder" in refused(command, "folder.toml")
        assert "pipe.toml: it is no file" in refused(command, "pipe.toml")
        assert "device.toml: it is no file" in refused(command, "device.toml")
        assert "empty.toml declares nothing" in refused(command, "empty.toml")
        assert "latin.toml: byte 8 is not UTF-8" in refused(command, "latin.toml")
        assert "absent.toml: no such file or directory" in refused(command, "absent.toml")
        assert "no NUL character" in refused(command, "a\0.toml")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "empty"])
def test_what_is_imported_is_a_file(refused, tmp_path, kind):
    path = tmp_path / "data.mat"
    make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "empty": path.touch,
            "device": lambda: path.symlink_to("/dev/zero")}  # fmt: skip
    make[kind]()
    assert "data.mat" in refused("import", "data.mat", "--out", "s.zarr")


def test_a_pipe_in_an_exported_folder_is_refused(refused, tmp_path):
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "pdegen.json")
    assert "pdegen.json" in refused("import", "data", "--out", "s.zarr")


# places


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "made.zarr"
    quietly("generate", "burgers-quick", *SMALL, "--out", folder)
    return folder


@pytest.fixture
def made(generated, tmp_path):
    return shutil.copytree(generated, tmp_path / "made.zarr").name


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x", "a\0b", "", "pipe", "device"])
def test_a_place_that_cannot_be_written_is_refused(refused, made, tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/full")
    assert refused("generate", "burgers-quick", *SMALL, "--out", place)
    assert refused("noise", made, "--variable", "u", "--level", "0.1", "--out", place)
    for format in ("mat", "npy", "hdf5", "pt", "huggingface"):
        assert refused("export", made, "--format", format, "--out", place)


@pytest.mark.parametrize("place", ["/proc/x.png", "/dev/null/x.png", "a\0b.png",
                                   "pipe.png", "folder.png"])  # fmt: skip
def test_a_picture_has_a_place_that_can_be_written(refused, made, tmp_path, place):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    assert refused("plot", made, "--out", place)


def test_an_import_has_a_place_that_can_be_written(refused, pdegen, made):
    assert pdegen("export", made, "--format", "npy", "--out", "data").status == 0
    for place in ("/proc/x", "/dev/null/x", "a\0b", ""):
        assert refused("import", "data", "--out", place)


# splits


def test_samples_in_no_split_are_named(pdegen):
    """As the published splits leave them; another number of samples leaves none."""
    outcome = pdegen("generate", "burgers-r10", "--dry-run")
    assert outcome.out[1:] == ["samples 1024 to 1847 are in no split"]
    assert len(pdegen("generate", "burgers-r10", "--samples", 600, "--dry-run").out) == 1
    words = ["--samples", "14", *SMALL[2:]]
    assert pdegen("generate", "burgers-quick", *words, "--out", "s.zarr").status == 0
    lines = pdegen("info", "s.zarr").out
    assert "no split    samples 8 to 9" in lines
    assert [line for line in lines if line.startswith("train ")] == ["train       samples 0 to 7"]


# declarations


def test_an_unknown_equation_names_the_known_ones(refused, tmp_path):
    path = written(tmp_path / "mine.toml", equation='"heat"')
    line = refused("generate", path)
    known = ", ".join(names())
    said = f"unknown 'heat', known: {known}; one of your own needs --equation FILE.py"
    assert line == f"pdegen: {path}: problem.equation: {said}"


def test_no_refusal_speaks_of_the_library_that_found_it(refused, tmp_path):
    for key, values in {
        "samples": ["0", "1.5", '"x"', "true", "[1]", "{}"], "seed": ["-1", "nan"],
        "viscosity": ["inf", '"x"', "0"], "times": ["1", "[]", '["x"]'],
        "law": ['"x"', "1"], "method": ['"x"', "1"], "equation": ["1", '"x"'], "name": ["1"],
    }.items():  # fmt: skip
        for value in values:
            line = refused("generate", written(tmp_path / "mine.toml", **{key: value}))
            assert key in line
            for word in ("Input", "pydantic", "Field", "tag", "should", "Errno", "parse", "ctx"):
                assert word not in line, line


def test_a_copy_that_cannot_be_is_the_fault_of_the_recipe(tmp_path):
    from pdegen.making.generate import generate
    from pdegen.recipe import load_recipe

    copy = load_recipe("burgers-quick").model_copy(update={"samples": 20})
    with pytest.raises(SchemaError, match="recipe burgers-quick: splits need 640 samples, got"):
        generate(copy, str(tmp_path / "s.zarr"))
    assert list(tmp_path.iterdir()) == []
