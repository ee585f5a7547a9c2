"""Benchmarks: what is declared, what is kept, what the table says, what is refused."""

import csv
import re
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.training.fit import Stopped, TrainingError, read_history
from pdegen.files import read_json, write_json
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark, Case, Profile, load_benchmark
from pipelines.config.shipped import names as shipped
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.reports.document import scientific
from pipelines.runs.evaluation import evaluate
from pipelines.runs.folder import RunError
from pipelines.runs.reproduction import toml
from pipelines.studies import benchmark as module
from pipelines.studies import runner
from pipelines.studies.benchmark import BenchmarkRun, row_case
from pipelines.studies.cost import Cost

pytestmark = pytest.mark.usefixtures("unpainted")

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
def stores(burgers):
    return {"burgers": str(burgers)}


@pytest.mark.parametrize("name", shipped("benchmark"))
def test_shipped_benchmarks_are_possible_and_written_to_be_read_as_the_same(name):
    benchmark = load_benchmark(name, sound=False)
    assert benchmark.name == name
    if isinstance(benchmark, Profile):
        return
    benchmark.check()  # test_quick.py checks the quick version
    for version in [benchmark, benchmark.quickly()] if benchmark.quick else [benchmark]:
        text = toml(version.model_dump(mode="json", exclude_none=True))
        assert Benchmark.parse(tomllib.loads(text), name) == version


def test_every_training_is_a_row_with_scores_on_every_grid(benchmarked, stores):
    rows = benchmarked.rows()
    assert [(row.operator, row.seed) for row in rows] == [
        ("FNO", 0), ("FNO", 1), ("DeepONet (16)", 0), ("DeepONet (16)", 1),
    ]  # fmt: skip
    for row in rows:
        assert len(row.errors) == 2
        assert row.means[16] == pytest.approx(row.mean)
        assert row.parameters > 0
        assert min(row.step_seconds, row.step_bytes, row.step_flops) > 0
    assert rows[0].errors != rows[1].errors  # of two seeds
    folder = benchmarked.run_folder(Case(rows[0].dataset, rows[0].operator), "seed-0")
    for resolution in (16, 32):
        score = evaluate(folder / "best.safetensors", stores["burgers"], CPU, resolution=resolution)
        assert score.samples == (10, 11)
        assert rows[0].means[resolution] == pytest.approx(np.mean(score.errors), rel=1e-6)


def test_finished_rows_are_not_made_again(benchmarked, stores, monkeypatch):
    monkeypatch.setattr(runner, "train_part", None)
    BenchmarkRun(declared(), stores, benchmarked.folder).run(CPU, resume=True)
    longer = declared().with_overrides({"training.epochs": 3})
    assert BenchmarkRun(longer, stores, benchmarked.folder).rows() == []


def test_finished_trainings_with_other_settings_are_not_replaced(benchmarked, stores):
    longer = declared().with_overrides({"training.epochs": 3})
    run = BenchmarkRun(longer, stores, benchmarked.folder)
    declaration = (run.folder / "benchmark.json").read_bytes()
    with pytest.raises(RunError, match=r"is finished with training\.epochs = 2, not 3: give"):
        run.run(CPU, resume=True)
    part = run.stages()[0][0]
    with pytest.raises(RunError, match=r"training\.epochs = 2, not 3"):  # in any process
        run.training(*part, {}).run(runner.Execution(CPU))
    assert (run.folder / "benchmark.json").read_bytes() == declaration
    assert len(benchmarked.rows()) == 4


def test_a_search_with_other_values_leaves_the_trainings_of_the_first(stores, tmp_path):
    one = declared(seeds=1, search={"training.lr": [1e-3, 2e-3]}).only(["FNO"], [])
    BenchmarkRun(one, stores, tmp_path / "run").run(CPU)
    folders = sorted((tmp_path / "run").rglob("seed-0-*"))
    before = [(folder / "best.safetensors").read_bytes() for folder in folders]
    other = one.model_copy(update={"search": {"training.lr": [5e-3]}})
    run = BenchmarkRun(other.with_overrides({"training.epochs": 1}), stores, tmp_path / "run")
    run.run(CPU, resume=True)
    assert [row.chosen for row in run.rows()] == [{"training.lr": 5e-3}]
    assert len(before) == 2
    assert [(folder / "best.safetensors").read_bytes() for folder in folders] == before


def test_a_stopped_benchmark_goes_on_in_processes_to_the_same_rows(benchmarked, stores, tmp_path):
    run, said = BenchmarkRun(declared(), stores, tmp_path / "run"), []
    asked = iter([False] * 5 + [True])
    with pytest.raises(Stopped):
        run.run(CPU, stop=lambda: next(asked))
    assert len(run.rows()) < 4
    run.run(CPU, resume=True, workers=2, progress=lambda what, *done: said.append(done))
    assert [row.errors for row in run.rows()] == [row.errors for row in benchmarked.rows()]
    assert said[-1] == (4, 4)
    assert all(row.step_seconds > 0 for row in run.rows())


def test_finished_trainings_on_another_store_are_not_replaced(stores, tmp_path):
    changes = {**SMALL, "problem.solver.resolution": 64, "seed": 5}
    recipe = load_recipe("burgers-quick").with_overrides(changes)
    other = generate(recipe, str(tmp_path / "b.zarr"), workers=1).url
    one = declared(seeds=1).only(["FNO"], [])
    BenchmarkRun(one, stores, tmp_path / "run").run(CPU)
    moved = BenchmarkRun(one, {"burgers": other}, tmp_path / "run")
    assert moved.rows() == []
    with pytest.raises(
        RunError, match=r"seed-0 is finished with data of SHA-256 \w{12}, not \w{12}"
    ):
        moved.run(CPU, resume=True)
    assert len(BenchmarkRun(one, stores, tmp_path / "run").rows()) == 1


@pytest.mark.usefixtures("painted")
def test_a_training_that_diverges_is_a_row_that_says_so(stores, tmp_path, monkeypatch):
    trained = runner.train_part

    def diverging(experiment, *arguments, **options):
        if experiment.model.name == "fno":
            raise TrainingError("the loss is not finite in epoch 1: use a smaller lr")
        return trained(experiment, *arguments, **options)

    monkeypatch.setattr(runner, "train_part", diverging)
    run = BenchmarkRun(declared(seeds=1), stores, tmp_path / "run")
    run.run(CPU)
    failed, other = run.rows()
    assert failed.failed == "the loss is not finite in epoch 1: use a smaller lr"
    assert other.failed == ""
    text = write_benchmark_report(run, CPU).read_text("utf-8")
    assert "FNO, seed 0: the loss is not finite" in text


@pytest.mark.usefixtures("painted")
def test_want_of_memory_is_tried_again(stores, tmp_path, monkeypatch):
    run = BenchmarkRun(declared(seeds=1).only(["FNO"], []), stores, tmp_path / "run")

    def small_machine(*arguments, **options):
        raise MemoryError("64 GiB were asked for")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "train_part", small_machine)
        run.run(CPU)
    assert run.rows()[0].failed == "not enough memory: 64 GiB were asked for"
    with monkeypatch.context() as patch:
        patch.setattr(module, "step_cost", small_machine)
        run.run(CPU, resume=True)
    (row,) = run.rows()
    assert row.failed == ""
    assert (len(row.errors), row.step_seconds) == (2, 0.0)
    assert "| – |" in write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")


def test_rows_of_another_device_are_not_mixed(benchmarked, stores, tmp_path):
    folder = shutil.copytree(benchmarked.folder, tmp_path / "run")
    for path in (folder / "rows").iterdir():
        row = read_json(path)
        row["provenance"]["device"] = row["provenance"]["device"].replace("cpu (", "cuda (")
        write_json(path, row)
    with pytest.raises(RunError, match="was made on cuda: resume it there"):
        BenchmarkRun(declared(), stores, folder).run(CPU, resume=True)


def test_what_is_best_on_the_test_samples_is_a_score_with_its_own_epoch(benchmarked, monkeypatch):
    """In a short training both epochs are the last one."""
    row, made = benchmarked.rows()[0], module.evaluate_run

    def evaluated(*args):
        summary = made(*args)
        (last,) = summary["results"]
        best = {**last, "checkpoint": "best", "epoch": 1, "errors": [0.0 for _ in last["errors"]]}
        return {**summary, "results": [last, best]}

    monkeypatch.setattr(module, "evaluate_run", evaluated)
    found = row.model_copy(deep=True)
    module._evaluate(found, benchmarked.training_of(row), "l2", CPU)
    assert (found.epoch, found.errors) == (row.epoch, row.errors)
    assert (found.best_epoch, found.best) == (1, 0.0)
    assert row.epoch > 1


def test_the_published_protocol_shows_both_epochs(stores, tmp_path):
    watched = declared(seeds=1).with_overrides({"training.protocol": "published"})
    run = BenchmarkRun(watched, stores, tmp_path / "run")
    run.run(CPU)
    for row in run.rows():
        assert row.epoch == 2
        assert row.best <= row.mean
    page = write_benchmark_report(run, CPU).read_text("utf-8")
    assert "the test samples were watched" in page
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    assert float(line["best on test"]) == run.rows()[0].best
    assert "Set by the command: training.protocol = published." in page
    operators = {
        label: entry.model_copy(update={"published": {"burgers": 0.5}})
        for label, entry in watched.operators.items()
    }
    run = replace(run, benchmark=watched.model_copy(update={"operators": operators}))
    write_benchmark_report(run, CPU)
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    # what is published is of the epoch that is best on the test samples
    assert float(line["ratio to published"]) == pytest.approx(run.rows()[0].best / 0.5)


def test_what_is_damaged_is_made_again(benchmarked, tmp_path):
    """A row, whatever is in its place, and each file of a training."""
    run = replace(benchmarked, folder=shutil.copytree(benchmarked.folder, tmp_path / "run"))
    place = run.folder / "rows/burgers--fno--seed-1.json"
    right = [row.errors for row in benchmarked.rows()]
    for damage in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        place.write_bytes(damage)
        assert len(run.rows()) == len(right) - 1
    for name in ("best.safetensors", "history.jsonl", "done"):
        (run.folder / "runs/burgers/fno/seed-1" / name).write_bytes(b"")
        run.run(CPU, resume=True)
        assert [row.errors for row in run.rows()] == right
        place.unlink()


def test_a_quick_version_changes_all_experiments_and_single_ones():
    one = CONTENT["datasets"]["burgers"]
    quick = {"datasets": ["burgers", "again"], "overrides": {"training.epochs": 3, "lr": 1e-4},
             "changes": {"again": {"training.epochs": 5}}}  # fmt: skip
    small = declared(datasets={"burgers": one, "again": one}, quick=quick).quickly()
    trained = {name: dataset.load().training for name, dataset in small.datasets.items()}
    assert {name: of.epochs for name, of in trained.items()} == {"burgers": 3, "again": 5}
    assert {of.lr for of in trained.values()} == {1e-4}


def test_what_is_set_goes_before_what_an_operator_has_of_its_own():
    operators = {"FNO": {**CONTENT["operators"]["FNO"], "overrides": {"training.lr": 5e-4}}}
    one = declared(operators=operators)
    (case,) = one.cases()
    assert one.experiment(case, 0, {}).training.lr == 5e-4
    assert one.with_overrides({"lr": 1e-4}).experiment(case, 0, {}).training.lr == 1e-4


def test_the_search_has_the_same_widths_for_all_and_its_cost_in_the_table(stores, tmp_path):
    both = declared(seeds=2, search={"training.lr": [1e-9, 1e-2]}, widths=[0.5, 1.0])
    run = BenchmarkRun(both, stores, tmp_path / "run")
    assert [len(both.searched(case)) for case in run.cases] == [4, 4]
    assert both.searched(run.cases[0])[0] == {"training.lr": 1e-9, "model.width": 4}
    run.run(CPU)
    trained = {path.name for path in (run.folder / "runs/burgers/fno").iterdir()}
    assert {name for name in trained if name.startswith("seed-0")} == {
        f"seed-0-lr-{lr}-width-{width}" for lr in (1e-9, 0.01) for width in (4, 8)
    }
    assert len(trained) == 5  # the seed 1 has the choice of the seed 0
    for row in run.rows():
        assert row.chosen["training.lr"] == 1e-2
        others = [one for one in both.searched(row_case(row)) if one != row.chosen]
        tried = [read_history(run.training(row_case(row), 0, one).folder) for one in others]
        assert row.tuning_seconds == pytest.approx(sum(e.seconds for of in tried for e in of))
    report = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    assert "factor of the width from 0.5, 1.0; 4 trainings per operator" in report
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    fno = [row for row in run.rows() if row.operator == "FNO"]
    assert float(line["tuning seconds"]) == pytest.approx(np.mean([r.tuning_seconds for r in fno]))
    width = fno[0].chosen["model.width"]
    assert re.search(rf"\| FNO \| fno width {width}, .* \| training.lr 0.01; ", report)
    row = fno[1]
    row.inference_seconds, row.cost = 0.0, Cost(0.0, 0, 0)  # they could not be measured
    run.keep((row_case(row), row.seed), row)
    write_benchmark_report(run, CPU)
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    assert float(line["inference seconds"]) == pytest.approx(fno[0].inference_seconds)
    assert float(line["step seconds"]) == pytest.approx(fno[0].step_seconds)
    assert float(line["step MiB"]) == pytest.approx(fno[0].step_bytes / 2**20)
    fno[0].inference_seconds, fno[0].cost = 0.0, Cost(0.0, 0, 0)
    run.keep((row_case(fno[0]), fno[0].seed), fno[0])
    report = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    costs = "inference seconds", "step seconds", "step MiB", "step GFLOP", "break-even"
    assert [line[name] for name in costs] == [""] * 5
    assert re.search(r"\| FNO \| [\d,]+ \| – \| – \| – \| – \|", report)


def test_widths_stay_multiples_of_the_heads():
    levels = {"name": "scot", "width": 24, "depths": [2, 2], "heads": [4, 8], "skips": [1, 0]}
    models = {
        "T": {"name": "transformer", "width": 24, "heads": 4}, "N": {"name": "neuraloperator"},
        "F": {"name": "factformer", "width": 16, "heads": 3},
        "S": {**levels, "size": 32, "patch": 2},
    }  # fmt: skip
    operators = {label: {"model": model} for label, model in models.items()}
    searched = declared(operators=operators, widths=[0.7, 1.0])
    found = [[one.get("model.width") for one in searched.searched(c)] for c in searched.cases()]
    # N declares no width; the heads of F need not divide it, and S has heads of levels
    assert found == [[16, 24], [None], [11, 16], [16, 24]]


def test_both_protocols_stand_side_by_side(stores, tmp_path):
    both = declared(seeds=1, protocols=["validation", "published"], search={"training.lr": [1e-2]})
    run = BenchmarkRun(both, stores, tmp_path / "run")
    run.run(CPU)
    rows = {(row.operator, row.protocol): row for row in run.rows()}
    clean, watched = rows["FNO", "validation"], rows["FNO", "published"]
    assert clean.best is None
    assert watched.best is not None
    assert (clean.chosen, watched.chosen) == ({"training.lr": 1e-2}, {})  # which has no search
    assert run.training_of(watched).experiment.training.protocol == "published"
    text = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| FNO |"))
    for shown in (clean.mean, watched.mean, watched.best):
        assert scientific(shown) in line
    lines = csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines())
    assert [(of["operator"], of["protocol"]) for of in lines] == list(rows)


def test_the_folder_of_another_benchmark_is_refused(benchmarked, stores, tmp_path):
    other = declared(name="other")
    with pytest.raises(RunError, match="holds the benchmark small: choose another --out"):
        BenchmarkRun(other, stores, benchmarked.folder).run(CPU, resume=True)
    with pytest.raises(RunError, match="holds the benchmark small: choose another --out"):
        BenchmarkRun(other, stores, benchmarked.folder).run(CPU, overwrite=True)
    assert len(benchmarked.rows()) == 4
    with pytest.raises(RunError, match="use --resume or --overwrite"):
        BenchmarkRun(declared(), stores, benchmarked.folder).run(CPU)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(RunError, match="exists and is no benchmark"):
        BenchmarkRun(declared(), stores, tmp_path).run(CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operators": {"X": {}}}, "needs either model, or models by dataset"),
        ({"operators": {"X": {"models": {"burgrs": {"name": "fno"}}}}}, "no dataset 'burgrs'"),
        ({"operators": {"X": {"model": {"name": "fno", "widht": 3}}}}, "unknown key"),
        ({"operators": {"a b": {"model": {"name": "fno"}}, "a-b": {"model": {"name": "fno"}}}},
         "must differ in letters or digits"),
        ({"protocols": ["published", "published"]}, "protocols must differ"),
        ({"widths": [0.0]}, "widths"),
        ({"seeds": 0}, "seeds"),
        ({"datasets": {name: CONTENT["datasets"]["burgers"] for name in ("burgers", "burgers!")}},
         "names of datasets must differ"),
        ({"quick": {"datasets": ["burgers"], "changes": {"burger": {}}}},
         "quick: no dataset 'burger': did you mean burgers"),
    ],
)  # fmt: skip
def test_an_impossible_declaration_is_refused(changes, message):
    with pytest.raises(SchemaError, match=message):
        declared(**changes)


def test_a_search_by_the_test_samples_is_refused():
    searched = declared(search={"training.lr": [1e-3, 1e-2]})
    with pytest.raises(SchemaError, match="a search needs a validation error"):
        searched.with_overrides({"training.protocol": "published"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.batch": 5000}, "batch 5000 is larger than the 8 training samples"),
        ({"resolutions": [16, 24]}, "24"),
    ],
)
def test_what_cannot_be_trained_leaves_the_old_benchmark(
    benchmarked, stores, tmp_path, overrides, message
):
    folder = shutil.copytree(benchmarked.folder, tmp_path / "run")
    run = BenchmarkRun(declared().with_overrides(overrides), stores, folder)
    with pytest.raises(ValueError, match=message):
        run.run(CPU, overwrite=True)
    assert len(replace(benchmarked, folder=folder).rows()) == 4


@pytest.mark.parametrize("together", [1, 40])
def test_seconds_of_a_prediction_are_those_of_the_samples_that_are_predicted(
    benchmarked, monkeypatch, together
):
    """Of a test split with fewer samples than are timed together, and of one with more."""
    row = benchmarked.rows()[0].model_copy(update={"inference_seconds": 0.0})
    monkeypatch.setattr(module, "SOME", together)
    monkeypatch.setattr(module, "step_seconds", lambda timed, device: 6.0)
    benchmarked._measure(row, CPU)
    assert row.inference_seconds == pytest.approx(6.0 / min(together, 2))


def test_folders_of_any_labels_are_their_slugs(tmp_path):
    labels = ["Burgers (64)", ".hidden: [1]", "nu=0.01", "nu"]
    datasets = dict.fromkeys(labels, CONTENT["datasets"]["burgers"])
    operators = {"FNO: [4]": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
    named = declared(datasets=datasets, operators=operators)
    again = Benchmark.parse(tomllib.loads(toml(named.model_dump(exclude_none=True))), "toy")
    run = BenchmarkRun(again, dict.fromkeys(labels, "s.zarr"), tmp_path)
    folders = [run.run_folder(case, "seed-0").relative_to(tmp_path) for case in again.cases()]
    names = ["burgers-64", "hidden-1", "nu-0-01", "nu"]
    assert [str(folder) for folder in folders] == [f"runs/{name}/fno-4/seed-0" for name in names]
    for label in ("()", "x" * 300):
        datasets = {label: CONTENT["datasets"]["burgers"]}
        with pytest.raises(SchemaError, match=r"need a letter|too long"):
            declared(datasets=datasets, operators=operators).check()


def test_rows_of_another_measure_are_not_used(burgers, tmp_path):
    benchmark = declared()
    other = benchmark.datasets["burgers"].model_copy(update={"measure": "h1"})
    digests = {
        BenchmarkRun(b, {"burgers": str(burgers)}, tmp_path).digest((Case("burgers", "FNO"), 0))
        for b in (benchmark, benchmark.model_copy(update={"datasets": {"burgers": other}}))
    }
    assert len(digests) == 2
