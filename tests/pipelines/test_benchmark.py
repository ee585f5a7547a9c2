"""Benchmarks: what is declared, what is kept, what the table says, what is refused."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from operators.train import Stopped, TrainingError
from pdegen.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines import benchmark as module
from pipelines.benchmark import Benchmark, BenchmarkRun, benchmark_names, load_benchmark
from pipelines.benchmark_report import write_benchmark_report
from pipelines.profile import Profile, measure, write_profile
from pipelines.run import RunError

CPU = torch.device("cpu")
SMALL = {"samples": 12, "shard": 5, "resolution": 32, "modes": 31, "train": 8, "validation": 2,
         "test": 2}  # fmt: skip
CONTENT = {
    "name": "small",
    "summary": "Two operators",
    "seeds": 2,
    "datasets": {
        "burgers": {
            "experiment": "benchmark-burgers-quick",
            "overrides": {"data.resolution": 16, "resolutions": [16, 32], "training.epochs": 2,
                          "training.batch": 2},
        }
    },
    "operators": {
        "FNO": {"model": {"name": "fno", "width": 8, "depth": 1, "modes": 4},
                "published": {"burgers": 1e-3}, "differs": "smaller"},
        "DeepONet (16)": {"model": {"name": "deeponet", "sensors": 16, "basis": 4, "width": 8}},
    },
}  # fmt: skip


def declared(**changes):
    return Benchmark.parse({**CONTENT, **changes}, "small")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    recipe = load_recipe("burgers-quick").with_overrides({**SMALL, "problem.solver.resolution": 64})
    place = tmp_path_factory.mktemp("stores") / "burgers.zarr"
    return {"burgers": generate(recipe, str(place), workers=1).url}


@pytest.fixture(scope="module")
def finished(stores, tmp_path_factory):
    run = BenchmarkRun(declared(), stores, tmp_path_factory.mktemp("benchmark") / "run")
    run.run(CPU)
    return run


@pytest.mark.parametrize("name", benchmark_names())
def test_shipped_benchmarks_are_possible(name):
    benchmark = load_benchmark(name)
    assert benchmark.name == name
    if isinstance(benchmark, Profile):
        return
    for dataset in benchmark.datasets.values():
        experiment = dataset.load()
        for entry in benchmark.operators.values():
            assert experiment.with_overrides(entry.overrides).training.epochs > 0
    if benchmark.quick is not None:
        assert benchmark.quickly().datasets.keys() <= benchmark.datasets.keys()


def test_every_training_is_a_row(finished):
    rows = finished.rows()
    assert [(row.operator, row.seed) for row in rows] == [
        ("FNO", 0), ("FNO", 1), ("DeepONet (16)", 0), ("DeepONet (16)", 1),
    ]  # fmt: skip
    for row in rows:
        assert len(row.errors) == 2
        assert row.means[16] == pytest.approx(row.mean)
        assert {16, 32} == row.means.keys()
        assert row.parameters > 0
        assert min(row.step_seconds, row.step_bytes, row.step_flops) > 0
    assert rows[0].errors != rows[1].errors  # of two seeds


def test_finished_rows_are_not_made_again(finished, stores, monkeypatch):
    monkeypatch.setattr(module, "train", None)
    BenchmarkRun(declared(), stores, finished.folder).run(CPU, resume=True)


def test_another_declaration_makes_its_rows_again(finished, stores):
    longer = declared().with_overrides({"training.epochs": 3})
    assert BenchmarkRun(longer, stores, finished.folder).rows() == []


def test_a_stopped_benchmark_goes_on_to_the_same_rows(finished, stores, tmp_path):
    asked = iter([False] * 5 + [True] + [False] * 1000)
    run = BenchmarkRun(declared(), stores, tmp_path / "run")
    with pytest.raises(Stopped):
        run.run(CPU, stop=lambda: next(asked))
    run.run(CPU, resume=True)
    errors = [[row.errors for row in r.rows()] for r in (run, finished)]
    assert errors[0] == errors[1]


def test_a_training_that_diverges_is_a_row_that_says_so(stores, tmp_path, monkeypatch):
    trained = module.train

    def diverging(experiment, *arguments, **options):
        if experiment.model.name == "fno":
            raise TrainingError("the loss is not finite in epoch 1: use a smaller lr")
        return trained(experiment, *arguments, **options)

    monkeypatch.setattr(module, "train", diverging)
    run = BenchmarkRun(declared(seeds=1), stores, tmp_path / "run")
    run.run(CPU)
    failed, other = run.rows()
    assert failed.failed == "the loss is not finite in epoch 1: use a smaller lr"
    assert other.failed == ""
    text = write_benchmark_report(run, CPU).read_text("utf-8")
    assert "FNO, seed 0: the loss is not finite" in text


def test_the_search_takes_the_value_with_the_smallest_validation_error(stores, tmp_path):
    run = BenchmarkRun(
        declared(seeds=1, search={"training.lr": [1e-9, 1e-2]}), stores, tmp_path / "run"
    )
    run.run(CPU)
    assert [row.chosen for row in run.rows()] == [{"training.lr": 1e-2}] * 2
    assert "training.lr of 1e-09, 0.01" in write_benchmark_report(run, CPU).read_text("utf-8")


def test_the_report_has_the_table_in_three_forms(finished):
    page = write_benchmark_report(finished, CPU)
    html, text = page.read_text("utf-8"), (finished.folder / "table.md").read_text("utf-8")
    table = (finished.folder / "table.csv").read_text("utf-8")
    lines = list(csv.DictReader(table.splitlines()))
    assert [line["operator"] for line in lines] == ["FNO", "DeepONet (16)"]
    means = [row.mean for row in finished.rows() if row.operator == "FNO"]
    assert float(lines[0]["mean"]) == pytest.approx(sum(means) / 2)
    assert float(lines[0]["ratio to published"]) == pytest.approx(sum(means) / 2 / 1e-3)
    for word in ("FNO", "mean of the training targets", "smaller"):
        assert word in html
        assert word in text or word == "smaller"
    assert len(list((finished.folder / "pictures").glob("burgers-*.svg"))) == 5


def test_an_operator_that_cannot_act_on_the_grid_is_refused_before_anything(stores, tmp_path):
    coarse = {"FNO": {"model": {"name": "fno", "modes": 12}}}
    run = BenchmarkRun(declared(operators=coarse), stores, tmp_path / "run")
    with pytest.raises(SchemaError, match="FNO on burgers: 12 modes need a grid of at least 24"):
        run.run(CPU)
    assert not (tmp_path / "run").exists()


def test_some_operators_and_datasets_can_be_chosen():
    quick = load_benchmark("quick")
    chosen = quick.only(["GT", "FNO"], ["darcy"])
    assert (list(chosen.operators), list(chosen.datasets)) == (["GT", "FNO"], ["darcy"])
    assert quick.only([], []) == quick


def test_an_operator_for_the_plane_is_left_out_on_the_circle(stores, tmp_path):
    operators = {**CONTENT["operators"], "GT": {"model": {"name": "galerkin-transformer-2d"}}}
    run = BenchmarkRun(declared(operators=operators), stores, tmp_path / "run")
    assert [case.operator for case in run.cases] == ["FNO", "DeepONet (16)"]


def test_the_folder_of_another_benchmark_is_refused(finished, stores, tmp_path):
    other = declared(name="other")
    with pytest.raises(RunError, match="holds the benchmark small: choose another --out"):
        BenchmarkRun(other, stores, finished.folder).run(CPU, resume=True)
    with pytest.raises(RunError, match="holds the benchmark small: choose another --out"):
        BenchmarkRun(other, stores, finished.folder).run(CPU, overwrite=True)
    assert len(finished.rows()) == 4
    with pytest.raises(RunError, match="use --resume or --overwrite"):
        BenchmarkRun(declared(), stores, finished.folder).run(CPU)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(RunError, match="exists and is no benchmark"):
        BenchmarkRun(declared(), stores, tmp_path).run(CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operators": {"X": {}}}, "either a model, or models by dataset"),
        ({"operators": {"X": {"model": {"name": "fnoo"}}}}, "fnoo"),
        ({"operators": {"X": {"models": {"burgrs": {"name": "fno"}}}}}, "no dataset 'burgrs'"),
        ({"operators": {"X": {"model": {"name": "fno", "widht": 3}}}}, "unknown key"),
        ({"operators": {"a b": {"model": {"name": "fno"}}, "a-b": {"model": {"name": "fno"}}}},
         "differ in more than signs"),
        ({"search": {"training.lr": [1], "training.clip": [1]}}, "search is over one key"),
        ({"seeds": 0}, "seeds"),
        ({"datasets": {}}, "datasets"),
        ({"quick": {"datasets": ["darcy"]}}, "quick: no dataset 'darcy'"),
    ],
)  # fmt: skip
def test_an_impossible_declaration_is_refused(changes, message):
    with pytest.raises(SchemaError, match=message):
        declared(**changes)


def test_unknown_words_name_the_near_ones():
    with pytest.raises(SchemaError, match="unknown benchmark 'quik': did you mean quick"):
        load_benchmark("quik")
    with pytest.raises(SchemaError, match="no operator 'FNOO': did you mean FNO"):
        declared().only(["FNOO"], [])
    with pytest.raises(SchemaError, match="no dataset 'burger': did you mean burgers"):
        declared().stores(["burger=x"])
    with pytest.raises(SchemaError, match="--data is DATASET=STORE, got 'x'"):
        declared().stores(["x"])


def test_a_profile_measures_every_operator(tmp_path):
    operators = {
        name: {"model": {"name": "galerkin-transformer", "width": 8, "depth": 1, "modes": 4,
                         "attention": name}}
        for name in ("galerkin", "softmax")
    }  # fmt: skip
    profile = Profile.parse(
        {"name": "p", "summary": "s", "points": 512, "batch": 2, "operators": operators}, "p"
    )
    found = measure(profile, CPU, lambda what, done, total: None)
    linear, quadratic = (found[name].cost for name in ("galerkin", "softmax"))
    assert quadratic.flops > linear.flops
    assert min(linear.seconds, linear.peak_bytes) > 0
    write_profile(profile, found, tmp_path / "p", CPU)
    table = (tmp_path / "p/table.csv").read_text("utf-8").splitlines()
    assert len(table) == 3
    assert json.loads(json.dumps(profile.model_dump(mode="json")))["points"] == 512
    assert replace(found["galerkin"]).parameters > 0
