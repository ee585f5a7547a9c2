"""Requests that cannot be: one line and status 2, before anything is written, in no time."""

import os
import re
import shlex
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pdegen.equations.base
from pdegen.equations.base import names
from pdegen.recipe import recipe_folder
from pdegen.schema import SchemaError
from tests.pipelines.command import SMALL

pytestmark = pytest.mark.timeout(60)  # what waits for a pipe, or parses for long, fails

TIMES = ",".join(str(k / 100) for k in range(1, 99))
REFUSED = [  # a request, and a pattern of what is said
    # recipes
    ("generate burgers-quik", "unknown recipe 'burgers-quik'.*burgers-quick"),
    ("generate inviscid-burger", "did you mean inviscid-burgers"),
    ("generate mine.toml", r"cannot read mine\.toml"),
    ("generate", "recipe"),
    ("generat", "generat"),
    ("generate burgers-quick --device tpu", "unknown device 'tpu'.*cpu, cuda"),
    ("generate burgers-quick --device tpu --dry-run", "unknown device 'tpu'"),
    ("generate darcy-421-published --device cuda", "published-splines.*on the CPU only.*use cpu"),
    ("generate burgers-r10 --sampels 3", "--sampels"),
    ("generate burgers-r10 --samples zehn", "'--samples'.*got zehn"),
    ("generate burgers-r10 --samples 1e10", "--samples"),
    ("generate burgers-r10 --samples 0", "samples.*got 0"),
    ("generate burgers-r10 --samples 2", "splits need 3 samples"),
    ("generate burgers-r10 --workers 0", "--workers"),
    ("generate burgers-r10 --scheduler treads", "'treads'.*threads, processes"),
    ("generate burgers-r10 --scheduler host:1:2", "unknown scheduler 'host:1:2'"),
    ("generate burgers-r10 --dry-run --scheduler x", "unknown scheduler 'x'"),
    ("generate burgers-r10 --resume --overwrite", "exclude each other"),
    ("generate burgers-r10 --resolution 300", "must divide.*8192, for example 128 or 256, got 300"),
    ("generate burgers-r10 --samples 4 --set samples=0", "both set samples"),
    ("generate burgers-r10 --resolution 64 --set problem.resolution=32", "both set problem.res"),
    ("import a.npz --boundary nan", "--boundary must be a finite number"),
    ("import a.npz --split train", "--split must be NAME=SIZE, got 'train'"),
    ("generate burgers-r10 --set viscositi=1", r"did you mean problem\.viscosity\?"),
    ("generate burgers-r10 --set viscosity", "KEY=VALUE.*'viscosity'"),
    ("generate burgers-r10 --set viscosity=-1", r"problem\.viscosity.*got -1"),
    ("generate burgers-r10 --set viscosity=0", r"problem\.viscosity.*got 0"),
    ("generate burgers-r10 --set viscosity=nan", "viscosity: must be a number"),
    ("generate burgers-r10 --set viscosity=low", r"problem\.viscosity.*'low'"),
    ("generate burgers-r10 --set problem.solver.resolution=4096 --resolution 512",
     r"initial\.modes = 4095.*solver\.resolution >= 8192.*4096"),
    ("generate burgers-r10 --set method=etdrk", "unknown 'etdrk'.*etdrk4"),
    ("generate burgers-r10 --set dt=0.1", "dt.*cole-hopf"),
    ("generate plasticity-quick --set gap=6", r"below the 5\.7.*misses the block"),
    ("generate shock-tube-quick --set 'u_left=[-9.0, 1.0]'", "a vacuum develops where"),
    ("generate shock-tube-quick --set times=[0.0]", r"must be greater than 0, got 0\.0"),
    ("generate inviscid-burgers-quick --set boundary=outflo", r"did you mean outflow\?"),
    ("generate inviscid-burgers-quick --set times=[-1.0]", r"must be greater than 0, got -1\.0"),
    ("generate pulses-quick --set times=[0.0]", r"must be greater than 0, got 0\.0"),
    ("generate elasticity-quick --set least=0.5", r"least must be below 0\.5"),
    ("generate burgers-quick --set name=../x", "name: a name begins with a letter"),
    ("generate burgers-quick --samples 4 --out memory://s.zarr", "in memory is lost when this c"),
    # sizes
    (f"generate burgers-r10 --samples {10**30}", "samples: must be at most 16,777,216, got 1"),
    ("generate burgers-r10 --set samples=16777217", "samples: must be at most 16,777,216, got 1"),
    ("generate burgers-r10 --set samples=1e10", r"must be a whole number, got 10000000000\.0"),
    (f"generate burgers-quick --resolution {2**25} --set solver.resolution={2**25}",
     "a has 33,554,432 points along x, readers accept 16,777,216"),
    (f"generate burgers-quick --resolution {10**30}", r"problem\.resolution: must be at most"),
    ("generate darcy-quick --resolution 99999", "bytes in each sample, readers accept"),
    ("generate darcy-421 --resolution 4001", "in a shard of 64, readers accept 2,147,483,648"),
    (f"generate burgers-r10 --set shard=2048 --resolution 8192 --set times=[{TIMES}]",
     "choose a shard of at most 668"),
    (f"generate burgers-quick --set solver.resolution={2**32}", "GB of memory, this machine has"),
    ("generate darcy-quick --set refinement=99999", "GB of memory, this machine has"),
    ("generate darcy-quick --set modes=1000000", "GB of memory, this machine has"),
    # stores and files
    ("info absent.zarr", r"absent\.zarr: no such store"),
    ("verify absent.zarr", r"absent\.zarr: no such store"),
    ("verify absent.zarr --samples 0", "--samples"),
    ("plot absent.zarr", r"absent\.zarr: no such store"),
    ("noise absent.zarr --variable u --out o --level 0.1", "no such store"),
    ("generate burgers-quick --out a::b.zarr", "store has no '::'"),
    ("verify simplecache::s3://bucket/a.zarr", "store has no '::'"),
    ("import absent.mat --out s.zarr", r"absent\.mat"),
    ("import absent.mat --out memory://s.zarr", "a store in memory is lost"),
    ("import absent.mat --out s.zarr --grid square", "'square'.*nodal"),
    ("import absent.mat --out s.zarr --split trian=3", "'trian'.*train"),
    ("import absent.mat --out s.zarr --split train=0", "train.*got 0"),
    ("import absent.mat --out s.zarr --split train=4 --split train=5", "each split once"),
    ("export absent.zarr --format mat --out x.mat", r"absent\.zarr"),
    ("export STORE --format csv --out x.csv", "'csv'"),
    ("evaluate absent.safetensors --data absent.zarr", r"absent\.safetensors"),
    ("report absent", "absent"),
    # noise
    ("noise STORE", "--variable"),
    ("noise STORE --variable u --out o", "at least one level"),
    ("noise STORE --variable u --out o --level much", "--level"),
    ("noise STORE --variable u --out o --level -0.1", r"must be >= 0, got -0\.1"),
    ("noise STORE --variable u --out o --level nan", "level.*nan"),
    ("noise STORE --variable u --out o --levels 0,x", "by commas.*'0,x'"),
    ("noise STORE --variable u --out o --levels 0,0.1,0", "differ.*0 twice"),
    ("noise STORE --variable u --out o --levels 0,.1 --level 0.1", r"differ.*0\.1 twice"),
    ("noise STORE --variable u --out o --level 0.1 --kind ensembel", "did you mean ensemble"),
    ("noise STORE --variable u --out o --level 0.1 --seed -1", "seed.*got -1"),
    ("noise STORE --variable u --out o --level 0.1 --set lenght=1", "did you mean length"),
    ("noise STORE --variable u --out o --level 0.1 --set length=0.1", "not apply to ensemble"),
    ("noise STORE --variable u --out o --level 0.1 --set level=0.2", "not the key 'level'"),
    ("noise STORE --variable u --out o --level 0.1 --kind correlated --set length=0", "got 0"),
    ("noise STORE --variable u --out o --level 0.1 --kind sensors --set fraction=1.5", r"got 1\.5"),
    ("noise STORE --variable v --out o --level 0.1", "'v' is not in.*a, u"),
    ("noise STORE --variable error --out o --level 0.1", "no field of"),
    ("noise STORE --variable u --out STORE --level 0.1 --overwrite", "must lie outside of"),
    ("noise STORE --variable u --out o --level 0.1 --resume --overwrite", "exclude each other"),
    ("noise STORE --variable u --out memory://s.zarr --level 0.1", "a store in memory is lost"),
    # trainings
    ("train burgers-quik", "unknown experiment 'burgers-quik'.*burgers-quick"),
    ("train", "name an experiment"),
    ("train --model galerkin-transformer", "--data STORE"),
    ("train --data STORE --model galerkin-transformr", "did you mean galerkin-transformer or"),
    ("train burgers-quick --set widht=3", r"'widht'.*model\.width"),
    ("train burgers-quick --set lr=-1", r"training\.lr.*got -1"),
    ("train burgers-quick --set normalization.eps=0.1", "eps is for pointwise scaling"),
    ("train burgers-quick --set heads=7", "heads must divide width.*7"),
    ("train burgers-quick --set attention=galerkn", r"model\.attention.*galerkn"),
    ("train burgers-quick --data absent.zarr", r"absent\.zarr"),
    ("train burgers-quick --data a::b.zarr", "store has no '::'"),
    ("train burgers-quick --set name=../x", "name: a name begins with a letter"),
    ("train burgers-quick --precision tf32", "precision tf32 needs a CUDA device"),
    ("train burgers-quick --precision half", "unknown precision 'half': known are auto, float32"),
    ("train burgers-quick --compile maybe", "compile must be auto, on, off or tuned, got 'maybe'"),
    ("run burgers-quik", "unknown experiment 'burgers-quik'.*burgers-quick"),
    ("run burgers-quick --device tpu", "unknown device 'tpu'.*cpu, cuda"),
    ("run burgers-quick --precision bf16", "precision bf16 needs a CUDA device"),
    ("run burgers-quick --set training.batch=600", "batch 600 is larger than the 512 samples"),
    ("train burgers-quick --stream burgers-quik", "did you mean burgers-quick"),
    ("run burgers-quick --stream burgers-quick --set data.reading=resident", "leave one of"),
    ("train burgers-quick --stream burgers-quick --set training.batch=600", "batch 600 is larger"),
    ("run burgers-quick --stream darcy-quick", "128 is not a subsample of the 43 cell points"),
    ("train burgers-quick --stream burgers-trajectory", r"differ: channels \(1, 20\), \(1, 1\)"),
    # benchmarks and studies
    ("benchmark quik", "unknown benchmark 'quik': did you mean quick"),
    ("benchmark nothing.toml", r"nothing\.toml"),
    ("benchmark quick --only FN0", "no operator 'FN0': did you mean FNO"),
    ("benchmark quick --on dracy", "no dataset 'dracy': did you mean darcy"),
    ("benchmark quick --data burger=x", "no dataset 'burger': did you mean burgers"),
    ("benchmark quick --data x", "--data must be DATASET=STORE, got 'x'"),
    ("benchmark quick --seeds 0", "--seeds"),
    ("benchmark quick --set training.epoch=3", r"training\.epoch"),
    ("benchmark quick --set model.width=16", "the benchmark sets operators and seeds"),
    ("benchmark quick --resume --overwrite", "exclude each other"),
    ("benchmark quick --device cuda:99", "cuda"),
    ("benchmark quick --on darcy --only Self-PiT", "'Self-PiT' of benchmark quick is on burgers, "),
    ("benchmark profile-quick --only GT", "profile-quick is a profile"),
    ("benchmark profile-quick --workers 3", "profile-quick is a profile"),
    ("study resolution resolutoin", "did you mean resolution"),
    ("study resolution profile-quick", "no dataset with several"),
    ("study resolution slides-table --quick", "no dataset with several"),
    ("study resolution slides-table --set resolutions=[2048]", "no dataset with several"),
    ("study samples --samples 8,many", "got '8,many'"),
    ("study samples --samples 0", "numbers >= 1 or unlimited"),
    ("study samples burgers-quick --quick", "--quick chooses the experiment"),
    ("study samples burgers-quik", "unknown experiment 'burgers-quik'"),
    ("study samples burgers-quick --samples 8", "a batch has 16 samples, got 8"),
    ("study noise darcy-inverse-quick --cells 3", "cells must be at least 4, got 3"),
    (
        "study noise darcy-inverse-quick --condition c --set conditions.c.noise.kind=pink",
        "conditions.c.noise: kind: unknown kind 'pink'",
    ),
    (
        "run burgers-quick --set data.stream.recipe=burgers-quick "
        "--set data.stream.overrides.select.statistic=energy "
        "--set data.stream.overrides.select.low=0.0 --set data.stream.overrides.select.high=1e3",
        "select chooses samples of stores, a stream has all: leave it out",
    ),
    ("study noise darcy-inverse-quick --condition pink", "unknown condition 'pink': it has none"),
    ("keys burgers-quik", "did you mean burgers-quick"),
    ("keys nonsense", "see pdegen recipes, pdegen experiments, pdegen benchmarks$"),
    ("keys nosuch.toml", r"cannot read nosuch\.toml"),
]  # fmt: skip


def written(path, of="burgers-quick", **changes):
    """A recipe of ones own: lines of a shipped one replaced."""
    text = (recipe_folder() / f"{of}.toml").read_text("utf-8")
    for old, new in changes.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{old} ="))
        text = text.replace(line, f"{old} = {new}", 1)
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def made(burgers, tmp_path):
    return shutil.copytree(burgers, tmp_path / "made.zarr").name


@pytest.mark.parametrize(("request_", "said"), REFUSED, ids=lambda text: text[:70])
def test_a_wrong_request_is_refused_in_one_line(refused, made, monkeypatch, request_, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused(*(made if word == "STORE" else word for word in shlex.split(request_)))
    assert re.search(said, line), line


@pytest.mark.parametrize(
    "words",
    [["generate", "burgers-quick"], ["train", "burgers-quick"], ["run", "burgers-quick"],
     ["run", "burgers-quick", "--stream", "burgers-quick"]],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_done_on_a_device_that_is_not_there(refused, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused(*words, "--device", "cuda", "--out", "s.zarr")
    assert "device cuda is not available to PyTorch on this machine: use cpu" in line


def test_a_sample_that_memory_cannot_hold_is_refused(refused, monkeypatch):
    """Readers would accept it."""
    small = lambda: SimpleNamespace(total=10**6)  # noqa: E731
    monkeypatch.setattr(pdegen.equations.base.psutil, "virtual_memory", small)
    words = ["--resolution", 2**20, "--set", f"solver.resolution={2**20}"]
    assert "one sample takes about 0 GB of memory" in refused("generate", "burgers-r10", *words)


def test_words_that_name_nothing_are_shown_in_short(refused):
    assert len(refused("generate", "x" * 20_000)) < 1000
    assert len(refused("train", "x" * 20_000)) < 2000
    assert len(refused("generate", "burgers-quick", "--set", "a." * 10_000 + "b=1")) < 1000


# names


@pytest.mark.parametrize("name", ["../../x", "a/b", "/tmp/x", "..", ".hidden", "", " ", "x\\ty",
                                  "x\\u001b[2J", "a" * 201, "-x", "$(x)", "\\u202ex"])  # fmt: skip
def test_a_recipe_has_a_name_that_is_no_path(refused, tmp_path, name):
    path = written(tmp_path / "mine.toml", name=f'"{name}"')
    assert "name: a name begins with a letter or digit" in refused("generate", path)


@pytest.mark.parametrize("name", ["burgers 512, ν = 0.1", "Übung_3.b", "a+b-c"])
def test_ordinary_names_are_names(pdegen, tmp_path, name):
    outcome = pdegen("generate", written(tmp_path / "mine.toml", name=f'"{name}"'), "--dry-run")
    assert outcome.status == 0
    assert outcome.out[0].startswith(f"{name} to data/{name}-")


@pytest.mark.parametrize("kind", ["experiments/burgers-quick", "benchmarks/quick",
                                  "benchmarks/profile-quick"])  # fmt: skip
def test_experiments_and_benchmarks_have_such_names_too(refused, root, tmp_path, kind):
    text = (root / "pipelines" / "config" / f"{kind}.toml").read_text("utf-8")
    first = next(line for line in text.splitlines() if line.startswith("name ="))
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(first, 'name = "../x"', 1), "utf-8")
    command = "train" if kind.startswith("experiments") else "benchmark"
    assert "name: a name begins with a letter" in refused(command, path)


# files and places


def test_what_is_in_the_place_of_a_file_is_named(refused, tmp_path):
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    (tmp_path / "empty.toml").touch()
    (tmp_path / "latin.toml").write_bytes('name = "é"'.encode("latin-1"))
    for command in ("generate", "train", "run", "benchmark"):
        assert "folder.toml: it is a folder" in refused(command, "folder.toml")
        assert "pipe.toml: it is not a file" in refused(command, "pipe.toml")
        assert "device.toml: it is not a file" in refused(command, "device.toml")
        assert "empty.toml declares nothing" in refused(command, "empty.toml")
        assert "latin.toml: byte 8 is not UTF-8" in refused(command, "latin.toml")
        assert "absent.toml: no such file or directory" in refused(command, "absent.toml")
        assert "no NUL character" in refused(command, "a\0.toml")


def test_what_is_imported_is_a_file(refused, tmp_path):
    (tmp_path / "folder.mat").mkdir()
    os.mkfifo(tmp_path / "pipe.mat")
    (tmp_path / "device.mat").symlink_to("/dev/zero")
    (tmp_path / "empty.mat").touch()
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "pdegen.json")
    for name in ("folder.mat", "pipe.mat", "device.mat", "empty.mat"):
        assert name in refused("import", name, "--out", "s.zarr")
    assert "pdegen.json" in refused("import", "data", "--out", "s.zarr")


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x", "a\0b", "", "pipe", "device"])
def test_a_place_that_cannot_be_written_is_refused(refused, pdegen, made, tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/full")
    assert pdegen("export", made, "--format", "npy", "--out", "data").status == 0
    assert refused("generate", "burgers-quick", *SMALL, "--out", place)
    assert refused("noise", made, "--variable", "u", "--level", "0.1", "--out", place)
    assert refused("import", "data", "--out", place)
    for format in ("mat", "npy", "hdf5", "pt", "nc", "huggingface"):
        assert refused("export", made, "--format", format, "--out", place)


@pytest.mark.parametrize("place", ["/proc/x.png", "/dev/null/x.png", "a\0b.png",
                                   "pipe.png", "folder.png"])  # fmt: skip
def test_a_picture_has_a_place_that_can_be_written(refused, made, tmp_path, place):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    assert refused("plot", made, "--out", place)


# declarations


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


def test_an_unknown_equation_names_the_known_ones(refused, tmp_path):
    path = written(tmp_path / "mine.toml", equation='"heat"')
    said = f"unknown 'heat', known: {', '.join(names())}; one of your own needs --plugin FILE.py"
    assert refused("generate", path) == f"pdegen: {path}: problem.equation: {said}"


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
    from pdegen.generation.generate import generate
    from pdegen.recipe import load_recipe

    copy = load_recipe("burgers-quick").model_copy(update={"samples": 20})
    with pytest.raises(SchemaError, match="recipe burgers-quick: splits need 640 samples, got"):
        generate(copy, str(tmp_path / "s.zarr"))
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_one_value_is_not_given_twice(refused):
    for words in (
        ["import", "a.npz", "--grid", "cell", "--grid", "nodal"],
        ["train", "burgers-quick", "--out", "a", "--out=b"],
        ["predict", "run", "--data", "a.zarr", "--data", "a.zarr", "--out", "p.zarr"],
    ):
        assert refused(*words).endswith("is given twice: it takes one value")


@pytest.mark.parametrize("word", ["--workers=", "--workers=x"])
def test_an_option_is_refused_with_its_own_value_alone(refused, word):
    line = refused("generate", "burgers-quick", word, "--overwrite")
    assert "--overwrite" not in line
    assert "'--workers'" in line


def test_a_store_without_validation_says_how_to_train_on_it(pdegen, tmp_path):
    a = np.random.default_rng(0).standard_normal((2, 10, 16))
    np.savez(tmp_path / "own.npz", a=a[0], u=a[1])
    split = ("--split", "train=8", "--split", "test=2")
    store = tmp_path / "own.zarr"
    options = ("--input", "a", "--target", "u", "--grid", "periodic", *split)
    assert pdegen("import", tmp_path / "own.npz", *options, "--out", store).status == 0
    words = ["train", "--data", store, "--model", "fno", "--set", "model.modes=4", "--set",
             "epochs=1", "--set", "batch=4", "--out", tmp_path / "run"]  # fmt: skip
    done = pdegen(*words)
    assert done.status == 2
    (line,) = done.err
    assert "give it by --split validation=N at the import, or keep the last epoch by" in line
    remedy = line.partition("keep the last epoch by ")[2].split()
    assert pdegen(*words, *remedy).status == 0


@pytest.mark.parametrize("word", ["x=ten", "x=1,2"])
def test_a_length_is_one_number(refused, word):
    line = refused("import", "a.npz", "--length", word)
    assert line == f"pdegen: --length must be AXIS=NUMBER, got {word!r}"
