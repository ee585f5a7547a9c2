"""What is asked of operators and cannot be: one line, status 2, and nothing is written."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from pdegen.schema import SchemaError
from pipelines.cli.studies import Launch, chosen
from pipelines.config.benchmark import Benchmark, load_benchmark
from tests.pipelines.command import quietly

TOY = """
name = "toy"
summary = "Two operators"

[datasets.burgers]
experiment = "benchmark-burgers-quick"

[datasets.burgers.overrides]
resolutions = [16]
"data.resolution" = 16
"training.epochs" = 1
"training.batch" = 4

[operators.FNO]
model = {{ name = "fno", modes = {modes}, width = 4, depth = 1 }}

[operators.DeepONet]
model = {{ name = "deeponet", sensors = {sensors}, width = 8, basis = 4 }}
"""
SMALL_DARCY = ["--samples", "12", "--resolution", "13", "--set", "shard=12", "--set", "modes=8",
               "--set", "train=8", "--set", "validation=2", "--set", "test=2"]  # fmt: skip


def write_toy(folder, modes=4, sensors=16):
    path = folder / "toy.toml"
    path.write_text(TOY.format(modes=modes, sensors=sensors), "utf-8")
    return path


@pytest.fixture(scope="module")
def stores(burgers, tmp_path_factory):
    """One on the circle, and one on the square."""
    folder = tmp_path_factory.mktemp("stores")
    shutil.copytree(burgers, folder / "burgers.zarr")
    quietly("generate", "darcy-quick", *SMALL_DARCY, "--out", folder / "darcy.zarr")
    return folder


@pytest.fixture(scope="module")
def made(stores, tmp_path_factory):
    """A finished benchmark, to be read only."""
    folder = tmp_path_factory.mktemp("made")
    quietly("benchmark", write_toy(folder), "--data", f"burgers={stores}/burgers.zarr",
            "--out", folder / "run")  # fmt: skip
    return folder / "run"


@pytest.mark.parametrize(
    ("store", "model", "settings", "message"),
    [
        (
            "burgers",
            "galerkin-transformer-2d",
            [],
            "supports domains of dimension 2, the data have dimension 1",
        ),
        ("burgers", "fno", ["modes=17"], "17 modes need a grid of at least 34 points"),
        (
            "darcy",
            "galerkin-transformer-2d",
            ["modes=12"],
            "12 modes need a grid of at least 24 points",
        ),
        ("darcy", "deeponet", ["sensors=7", 'sensor_grid="periodic"'], "7 sensors on a grid"),
        ("burgers", "deeponet", ["sensors=24", 'sensor_grid="periodic"'], "24 sensors"),
        ("burgers", "neuraloperator", ["model=SFNO"], "model must be one of"),
        ("burgers", "fnoo", [], "unknown model 'fnoo': did you mean fno"),
        ("burgers", "galerkin", [], "did you mean galerkin-transformer"),
        ("burgers", "fno", ["preset=burger"], "unknown preset 'burger' of fno: did you mean"),
        ("burgers", "fno", ["widht=8"], "unknown key"),
        ("burgers", "fno", ["padding=0.1", "padding_points=3"], "one of padding and"),
        ("burgers", "ono", ["queries=true", "coordinates=none"], "queries=true needs coordinates"),
        ("burgers", "lrsa", ["width=10", "heads=4"], "heads must divide width"),
        ("burgers", "galerkin-transformer", ["attention=softmaxx"], "attention"),
    ],
)
def test_an_operator_that_cannot_be_is_refused(refused, stores, store, model, settings, message):
    words = [word for setting in settings for word in ("--set", f"model.{setting}")]
    line = refused("train", "--data", stores / f"{store}.zarr", "--model", model, *words)
    assert message in line


def test_a_trained_operator_refuses_a_store_of_another_equation(refused, stores, made):
    checkpoint = made / "runs/burgers/fno/seed-0/last.safetensors"
    line = refused("evaluate", checkpoint, "--data", stores / "darcy.zarr")
    assert "darcy.zarr is a store of darcy, experiment toy-burgers-fno needs one of burgers" in line
    assert "name a store of burgers-quick" in line


def test_a_benchmark_with_an_operator_that_cannot_act_on_the_data_is_refused(
    refused, stores, tmp_path
):
    data = ["--data", f"burgers={stores}/burgers.zarr", "--out", tmp_path / "run"]
    line = refused("benchmark", write_toy(tmp_path, modes=12), *data)
    assert "FNO on burgers: model fno on" in line
    assert "12 modes need a grid of at least 24 points" in line
    grids = ["--set", "data.resolutions=[8,32]"]
    line = refused("benchmark", write_toy(tmp_path, modes=8), *grids, *data)
    assert "FNO on burgers: data.resolutions: fno at 8 points along each axis: 8 modes need" in line
    line = refused("benchmark", write_toy(tmp_path, sensors=12), *data)
    assert "DeepONet on burgers" in line
    assert "12 sensors" in line


PLANE = """
[operators.GT]
model = { name = "galerkin-transformer-2d" }
"""


def test_an_operator_that_is_asked_for_is_not_left_out(refused, stores, tmp_path):
    path = write_toy(tmp_path)
    path.write_text(path.read_text("utf-8") + PLANE, "utf-8")
    for data in ([], ["--data", f"burgers={stores}/burgers.zarr"]):
        line = refused("benchmark", path, "--only", "GT", *data)
        assert (
            "GT: galerkin-transformer-2d supports domains of dimension 2; the datasets have" in line
        )
        assert "burgers: 1" in line


def test_a_benchmark_of_no_operator_is_refused(refused, tmp_path):
    path = write_toy(tmp_path)
    path.write_text(path.read_text("utf-8").split("[operators.FNO]")[0] + PLANE, "utf-8")
    assert "toy: no operator supports the dimension of burgers" in refused("benchmark", path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("search.'training.lr' = []", "search.training.lr: must have 1 or more values, got []"),
        ("search.'model.width' = [8]", "a search may only try settings of the training, got model"),
        ("search.width = [8]", "a search may only try settings of the training, got width"),
        ("search.'training.seed' = [1]", "a search needs the same training.seed for all trials"),
        (
            "search.weights = ['area']",
            "a search needs the same weights for all trials",
        ),
        ("search.'data.resolution' = [8, 16]", "settings of the training, got data.resolution"),
        ("search.'data.recipe' = ['burgers-r10']", "a search: data.recipe belongs to the dataset"),
        ("search.'training.batch' = [4, 100]", "batch 100 is larger than the 8 training samples"),
        ("overrides.'data.recipe' = 'darcy-quick'", "FNO: data.recipe belongs to the dataset"),
        ("overrides.width = 8", "FNO: width is set in its model, not in overrides"),
        (
            "quick = { datasets = [], overrides = {} }",
            "quick.datasets: must have 1 or more values, got []",
        ),
    ],
)
def test_a_declaration_that_has_no_effect_is_refused(refused, stores, tmp_path, lines, message):
    path = tmp_path / "one.toml"
    text = write_toy(tmp_path).read_text("utf-8")
    before = "[operators.FNO]\n" if lines.startswith("overrides") else ""  # else the beginning
    path.write_text(text.replace(before, f"{before}{lines}\n", 1), "utf-8")
    data = ["--data", f"burgers={stores}/burgers.zarr", "--out", tmp_path / "run"]
    assert message in refused("benchmark", path, *data)


def test_the_folder_of_another_benchmark_is_refused(refused, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "run")
    for way in ([], ["--resume"], ["--overwrite"]):
        line = refused("benchmark", "quick", "--out", folder, *way)
        assert f"{folder} holds the benchmark toy: choose another --out" in line


@pytest.mark.parametrize("content", ["{", "[]", "{}", '"toy"', "\udcff"])
def test_a_damaged_folder_is_refused(refused, tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/benchmark.json").write_text(content, "utf-8", "surrogateescape")
    for way in ([], ["--resume"], ["--overwrite"]):
        line = refused("benchmark", "quick", "--out", tmp_path / "run", *way)
        assert f"{tmp_path}/run holds a damaged benchmark.json: choose another --out" in line


def test_a_file_in_place_of_a_folder_is_refused(refused, tmp_path):
    (tmp_path / "file").write_text("mine", "utf-8")
    for name in ("quick", "profile-quick"):
        for out in ("file", "file/run"):
            line = refused("benchmark", name, "--out", tmp_path / out, "--overwrite")
            assert f"{tmp_path}/file is a file, not a folder: choose another --out" in line


def test_operators_of_packages_that_are_absent_are_left_out_with_a_line(monkeypatch, capsys):
    """But not where they are asked for: then what is missing is said."""
    row = "FNO of neuraloperator"
    assert row in chosen(load_benchmark("quick", sound=False), False, None, None, []).operators
    monkeypatch.setitem(sys.modules, "neuralop", None)  # as where it is not installed
    quick = load_benchmark("quick", sound=False)
    assert capsys.readouterr().err == ""
    left = chosen(quick, False, None, None, [])
    assert quick.operators.keys() - left.operators.keys() == {row}
    assert capsys.readouterr().err == (
        "FNO of neuraloperator is left out: the package neuralop is not installed\n"
    )
    with pytest.raises(SchemaError, match=r"pip install 'pdegen-operators\[neuraloperator\]'"):
        chosen(quick, False, [row], None, [])


@pytest.mark.parametrize(
    ("scheduler", "same"),
    [("processes", True), ("tcp://127.0.0.1:8786", False), ("slurm", False)],
)
def test_workers_of_a_scheduler_get_absolute_paths(stores, tmp_path, monkeypatch, scheduler, same):
    """Their current folder may be another one."""
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(f"{stores}/burgers.zarr")
    launch = Launch(1, "cpu", False, False, scheduler)
    benchmark = load_benchmark(str(write_toy(tmp_path)))
    assert isinstance(benchmark, Benchmark)
    run = launch.prepared(benchmark, Path("run"), {"burgers": relative})
    expected = (Path("run"), relative) if same else (tmp_path / "run", f"{stores}/burgers.zarr")
    assert (run.folder, run.stores["burgers"]) == expected
