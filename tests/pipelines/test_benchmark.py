"""Benchmarks: what is declared, what is kept, what the table says, what is refused."""

import csv
import json
import shutil
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from operators.data import Channel
from operators.training.files import read_json, read_lines, write_json, write_lines
from operators.training.fit import Stopped, TrainingError, read_history
from pdegen.domains import Cloud
from pdegen.making.generate import generate
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.declared.benchmark import Benchmark, Case, load_benchmark
from pipelines.declared.entries import Profile
from pipelines.declared.experiment import Experiment
from pipelines.declared.shipped import names as shipped
from pipelines.reports import benchmark_pictures as drawing
from pipelines.reports import benchmark_report
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.reports.benchmark_table import line_of
from pipelines.reports.fields import Look
from pipelines.reports.samples import predictions_in_panels
from pipelines.reports.sheets import Functions
from pipelines.reports.studies import write_profile_report
from pipelines.reports.study_charts import curves
from pipelines.reports.wording import scientific
from pipelines.runs.baselines import MEAN
from pipelines.runs.evaluation import evaluate
from pipelines.runs.folder import RunError
from pipelines.runs.reproduction import toml
from pipelines.studies import benchmark as module
from pipelines.studies import profile as profile_module
from pipelines.studies import runner
from pipelines.studies.benchmark import BenchmarkRun, row_case
from pipelines.studies.cost import Cost
from pipelines.studies.profile import ProfileRun
from pipelines.studies.row import Row

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


@pytest.mark.parametrize("name", shipped("benchmark"))
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
        small = benchmark.quickly()
        small.check()
        assert small.datasets.keys() <= benchmark.datasets.keys()


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
    monkeypatch.setattr(runner, "train_part", None)
    BenchmarkRun(declared(), stores, finished.folder).run(CPU, resume=True)


def test_processes_make_the_same_rows(finished, stores, tmp_path):
    run, said = BenchmarkRun(declared(), stores, tmp_path / "run"), []
    run.run(CPU, workers=2, progress=lambda what, done, total: said.append((done, total)))
    assert [row.errors for row in run.rows()] == [row.errors for row in finished.rows()]
    assert said == [(1, 4), (2, 4), (3, 4)] + 5 * [(4, 4)]  # their costs come after the trainings
    assert all(row.step_seconds > 0 for row in run.rows())


def test_processes_stop_and_go_on(finished, stores, tmp_path):
    long = declared(seeds=1).with_overrides({"training.epochs": 100_000})
    run = BenchmarkRun(long, stores, tmp_path / "run")

    def begun():
        return len(list((tmp_path / "run").rglob("state.pt"))) == 2

    with pytest.raises(Stopped):
        run.run(CPU, workers=2, stop=begun)
    assert begun()
    assert run.rows() == []


def test_another_declaration_makes_its_rows_again(finished, stores):
    longer = declared().with_overrides({"training.epochs": 3})
    assert BenchmarkRun(longer, stores, finished.folder).rows() == []


def test_another_store_makes_its_rows_again(stores, tmp_path):
    recipe = load_recipe("burgers-quick").with_overrides({**SMALL, "problem.solver.resolution": 64})
    other = generate(recipe.with_overrides({"seed": 5}), str(tmp_path / "b.zarr"), workers=1).url
    one = declared(seeds=1).only(["FNO"], [])
    BenchmarkRun(one, stores, tmp_path / "run").run(CPU)
    moved = BenchmarkRun(one, {"burgers": other}, tmp_path / "run")
    assert moved.rows() == []
    moved.run(CPU, resume=True)
    fresh = BenchmarkRun(one, {"burgers": other}, tmp_path / "fresh")
    fresh.run(CPU)
    assert moved.rows()[0].errors == fresh.rows()[0].errors


def test_a_stopped_benchmark_goes_on_to_the_same_rows(finished, stores, tmp_path):
    asked = iter([False] * 5 + [True] + [False] * 1000)
    run = BenchmarkRun(declared(), stores, tmp_path / "run")
    with pytest.raises(Stopped):
        run.run(CPU, stop=lambda: next(asked))
    run.run(CPU, resume=True)
    errors = [[row.errors for row in r.rows()] for r in (run, finished)]
    assert errors[0] == errors[1]


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


def test_rows_of_another_device_are_not_mixed(finished, stores, tmp_path):
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    for path in (folder / "rows").iterdir():
        row = read_json(path)
        row["provenance"]["device"] = row["provenance"]["device"].replace("cpu (", "cuda (")
        write_json(path, row)
    with pytest.raises(RunError, match="was made on cuda: resume it there"):
        BenchmarkRun(declared(), stores, folder).run(CPU, resume=True)


def test_what_is_best_on_the_test_samples_is_a_score_with_its_own_epoch(finished, monkeypatch):
    """In a short training both epochs are the last one."""
    row, made = finished.rows()[0], module.evaluate_run

    def evaluated(*args):
        summary = made(*args)
        (last,) = summary["results"]
        best = {**last, "checkpoint": "best", "epoch": 1, "errors": [0.0 for _ in last["errors"]]}
        return {**summary, "results": [last, best]}

    monkeypatch.setattr(module, "evaluate_run", evaluated)
    found = row.model_copy(deep=True)
    module._evaluate(found, finished.training_of(row), "l2", CPU)
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


def test_other_grids_are_scored_on_the_test_samples_too(finished, stores):
    row = finished.rows()[0]
    folder = finished.run_folder(Case(row.dataset, row.operator), "seed-0")
    for resolution, mean in row.means.items():
        score = evaluate(folder / "best.safetensors", stores["burgers"], CPU, resolution=resolution)
        assert score.samples == (10, 11)
        assert mean == pytest.approx(np.mean(score.errors), rel=1e-6)


def test_the_table_has_mean_spread_and_median_of_the_errors(finished):
    rows = [
        row.model_copy(update={"errors": errors})
        for row, errors in zip(finished.rows(), ([0.1, 0.2, 0.9], [0.3, 0.2, 0.1]), strict=False)
    ]
    line = line_of(finished, Case(rows[0].dataset, rows[0].operator), rows)
    assert line["mean"] == pytest.approx(0.3)
    assert line["median"] == pytest.approx(0.2)
    assert line["spread"] == pytest.approx(0.2 / np.sqrt(2))  # of the means 0.4 and 0.2


def test_seeds_may_differ_in_the_grids_they_can(finished, stores, tmp_path):
    run = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "run"))
    path = run.folder / "rows/burgers--fno--seed-1.json"
    row = read_json(path)
    del row["means"]["32"]
    write_json(path, {**row, "refused": {"32": "too fine"}})
    assert "FNO at 32: too fine" in write_benchmark_report(run, CPU).read_text("utf-8")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_row_is_made_again(finished, tmp_path, damage):
    run = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "run"))
    (run.folder / "rows/burgers--fno--seed-1.json").write_bytes(damage)
    assert len(run.rows()) == len(finished.rows()) - 1
    run.run(CPU, resume=True)
    assert [row.errors for row in run.rows()] == [row.errors for row in finished.rows()]


@pytest.mark.parametrize("name", ["best.safetensors", "history.jsonl", "done"])
def test_a_damaged_training_is_mended(finished, tmp_path, name):
    run = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "run"))
    (run.folder / "rows/burgers--fno--seed-1.json").unlink()
    (run.folder / "runs/burgers/fno/seed-1" / name).write_bytes(b"")
    run.run(CPU, resume=True)
    assert [row.errors for row in run.rows()] == [row.errors for row in finished.rows()]


def test_an_unstable_training_is_said(finished, tmp_path):
    run = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "run"))
    path = run.folder / "runs/burgers/fno/seed-0/history.jsonl"
    first, last = read_lines(path)
    write_lines(path, [{**first, "loss": 0.1}, {**last, "loss": 4.0}])
    page = write_benchmark_report(run, CPU).read_text("utf-8")
    assert "FNO, seed 0: the training was unstable" in page
    assert "40 times its smallest" in page


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


@pytest.mark.parametrize("name", [n for n in shipped("benchmark") if not n.startswith("profile")])
def test_a_written_declaration_is_read_as_the_same(name):
    benchmark = load_benchmark(name)
    for version in [benchmark, benchmark.quickly()] if benchmark.quick else [benchmark]:
        text = toml(version.model_dump(mode="json", exclude_none=True))
        assert Benchmark.parse(tomllib.loads(text), name) == version


def test_the_search_takes_the_value_with_the_smallest_validation_error(stores, tmp_path):
    run = BenchmarkRun(
        declared(seeds=1, search={"training.lr": [1e-9, 1e-2]}), stores, tmp_path / "run"
    )
    run.run(CPU)
    assert [row.chosen for row in run.rows()] == [{"training.lr": 1e-2}] * 2
    assert "training.lr of 1e-09, 0.01" in write_benchmark_report(run, CPU).read_text("utf-8")


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
    assert "width / its own of 0.5, 1.0; 4 trainings of each operator" in report
    line = next(csv.DictReader((run.folder / "table.csv").read_text("utf-8").splitlines()))
    tuning = [row.tuning_seconds for row in run.rows() if row.operator == "FNO"]
    assert float(line["tuning seconds"]) == pytest.approx(np.mean(tuning))


def test_widths_stay_multiples_of_the_heads():
    operators = {"T": {"model": {"name": "transformer", "width": 24, "heads": 4}},
                 "N": {"model": {"name": "neuraloperator"}}}  # fmt: skip
    searched = declared(operators=operators, widths=[0.7, 1.0])
    wide, none = map(searched.searched, searched.cases())
    assert wide == [{"model.width": 16}, {"model.width": 24}]
    assert none == [{}]  # it declares no width


def test_heads_that_do_not_divide_a_width_and_heads_of_levels_may_be_searched():
    levels = {"name": "scot", "width": 24, "depths": [2, 2], "heads": [4, 8], "skips": [1, 0]}
    operators = {"F": {"model": {"name": "factformer", "width": 16, "heads": 3}},
                 "S": {"model": {**levels, "size": 32, "patch": 2}}}  # fmt: skip
    searched = declared(operators=operators, widths=[0.5, 1.0])
    ways = [[one["model.width"] for one in searched.searched(case)] for case in searched.cases()]
    assert ways == [[8, 16], [12, 24]]


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


def test_a_row_says_what_a_prediction_costs_and_the_table_what_labels_are_worth(finished, stores):
    label = open_sealed(stores["burgers"]).values("error", range(10, 12)).mean()
    assert finished.label_error("burgers") == pytest.approx(label)
    assert all(0 < row.inference_seconds < 1 for row in finished.rows())
    write_benchmark_report(finished, CPU)
    line = next(csv.DictReader((finished.folder / "table.csv").read_text("utf-8").splitlines()))
    errors = [error for row in finished.rows()[:2] for error in row.errors]
    assert float(line["label error"]) == pytest.approx(label)
    assert float(line["trivial"]) == min(finished.trivial("burgers").values())
    assert float(line["p95"]) == pytest.approx(np.quantile(errors, 0.95))
    assert float(line["worst"]) == max(errors)


def test_rows_of_earlier_versions_get_the_costs_of_a_prediction(finished, stores, tmp_path):
    run = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "run"))
    path = run.folder / "rows/burgers--fno--seed-1.json"
    row = read_json(path)
    del row["inference_seconds"]
    write_json(path, row)
    run.run(CPU, resume=True)
    mended = read_json(path)
    assert mended.pop("inference_seconds") > 0
    assert mended == row


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


def test_learning_curves_have_a_band_over_the_seeds(finished, monkeypatch):
    drawn = []
    monkeypatch.setattr(drawing.charts, "curves", lambda *a, **k: drawn.append((a, k)))
    monkeypatch.setattr(drawing, "picture", lambda figure, name, caption: caption)
    found = {"FNO": finished.rows()[:2], "one seed": finished.rows()[:1]}
    caption = drawing.learning(finished, found, "validation", "learning")
    assert "mean over 2 seeds" in caption
    scores = np.array([[e.score for e in finished.history(row)] for row in found["FNO"]])
    [((series, *_), said)] = drawn
    assert said["bands"] == {"FNO": (scores.min(0).tolist(), scores.max(0).tolist())}
    assert series["FNO"] == (range(1, 3), scores.mean(0).tolist())


def test_all_datasets_are_drawn_in_multiples_of_the_smallest(monkeypatch):
    def rows(means, seconds):
        return {
            name: [Row(errors=[mean], parameters=10, training_seconds=seconds[name])]
            for name, mean in means.items()
        }

    drawn = []
    monkeypatch.setattr(drawing.charts, "errors_against_costs", lambda *a: drawn.append(a))
    monkeypatch.setattr(drawing, "picture", lambda figure, name, caption: name)
    first = rows({"b": 4.0, "a": 2.0}, {"a": 3.0, "b": 1.0}), 8.0
    assert drawing.against_costs([first, (rows({"a": 1.0}, {"a": 7.0}), 8.0)]) == "all-costs"
    [(costs, errors, baseline, _)] = drawn
    assert errors == {"a": 1.0, "b (1 of 2)": 2.0}
    assert list(errors) == ["a", "b (1 of 2)"]
    assert costs["parameters, over the smallest"] == {"a": 1.0, "b (1 of 2)": 1.0}
    assert costs["training time, over the smallest"]["a"] == pytest.approx(3**0.5)
    assert baseline == pytest.approx((4 * 8) ** 0.5)


def test_a_dataset_on_which_nothing_finished_is_in_the_table_alone(monkeypatch):
    drawn, rows = [], {"FNO": [Row(errors=[2.0])]}
    monkeypatch.setattr(benchmark_report, "against_costs", drawn.append)
    full, empty = (
        SimpleNamespace(dataset=name, found=found, references={MEAN: 4.0})
        for name, found in (("a", rows), ("b", {}))
    )
    section = benchmark_report._overview([full, empty])
    assert drawn == [[(rows, 4.0)]]
    assert section.tables[0].rows[0][::2] == ("FNO", "")
    assert benchmark_report._overview([empty]).pictures == ()


def test_a_band_lies_between_its_ends():
    figure = curves({"a": ([1, 2], [2.0, 4.0])}, "x", bands={"a": ([1.0, 3.0], [3.0, 5.0])})
    [area] = figure.axes[0].collections[-1].get_paths()
    corners = {tuple(corner) for corner in area.vertices.tolist()}
    assert corners == {(1, 1), (1, 3), (2, 3), (2, 5)}


def test_the_report_reads_predictions_that_are_kept(finished, monkeypatch):
    write_benchmark_report(finished, CPU)
    page = (finished.folder / "report.html").read_bytes()
    assert b"all 8 samples" in page
    monkeypatch.setattr(runner, "predictions", None)
    assert write_benchmark_report(finished, CPU).read_bytes() == page


def test_an_operator_that_cannot_act_on_the_grid_is_refused_before_anything(stores, tmp_path):
    coarse = {"FNO": {"model": {"name": "fno", "modes": 12}}}
    run = BenchmarkRun(declared(operators=coarse), stores, tmp_path / "run")
    with pytest.raises(
        SchemaError, match=r"FNO on burgers: .*: 12 modes need a grid of at least 24"
    ):
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
        ({"protocols": ["published", "published"]}, "protocols must differ"),
        ({"protocols": ["test"]}, "protocols"),
        ({"widths": [0.0]}, "widths"),
        ({"seeds": 0}, "seeds"),
        ({"datasets": {name: CONTENT["datasets"]["burgers"] for name in ("burgers", "burgers!")}},
         "names of datasets differ"),
        ({"datasets": {}}, "datasets"),
        ({"quick": {"datasets": ["darcy"]}}, "quick: no dataset 'darcy'"),
        ({"quick": {"datasets": ["burgers"], "changes": {"burger": {}}}},
         "quick: no dataset 'burger': did you mean burgers"),
    ],
)  # fmt: skip
def test_an_impossible_declaration_is_refused(changes, message):
    with pytest.raises(SchemaError, match=message):
        declared(**changes)


def test_a_search_by_the_test_samples_is_refused():
    searched = declared(search={"training.lr": [1e-3, 1e-2]})
    with pytest.raises(SchemaError, match="a search is by the validation error"):
        searched.with_overrides({"training.protocol": "published"})


@pytest.mark.parametrize("key", ["model.width", "width", "training.seed"])
def test_operators_and_seeds_are_not_set_by_the_way(key):
    with pytest.raises(SchemaError, match="operators and seeds are the benchmark's"):
        declared().with_overrides({key: 3})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.batch": 5000}, "batch 5000 is larger than the 8 samples to train"),
        ({"resolutions": [16, 24]}, "24"),
    ],
)
def test_what_cannot_be_trained_leaves_the_old_benchmark(
    finished, stores, tmp_path, overrides, message
):
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    run = BenchmarkRun(declared().with_overrides(overrides), stores, folder)
    with pytest.raises(ValueError, match=message):
        run.run(CPU, overwrite=True)
    assert len(replace(finished, folder=folder).rows()) == 4


def test_unknown_words_name_the_near_ones():
    with pytest.raises(SchemaError, match="unknown benchmark 'quik': did you mean quick"):
        load_benchmark("quik")
    with pytest.raises(SchemaError, match="no operator 'FNOO': did you mean FNO"):
        declared().only(["FNOO"], [])
    with pytest.raises(SchemaError, match="no dataset 'burger': did you mean burgers"):
        declared().stores(["burger=x"])
    with pytest.raises(SchemaError, match="--data is DATASET=STORE, got 'x'"):
        declared().stores(["x"])


def test_a_half_written_declaration_is_in_nobodys_way(stores, tmp_path):
    """As a kill leaves it."""
    (tmp_path / "benchmark.json.partial").write_text("{")
    BenchmarkRun(declared(), stores, tmp_path).claim(CPU, False, False)
    assert read_json(tmp_path / "benchmark.json")["name"] == "small"


def test_a_profile_goes_on_with_what_is_not_measured(tmp_path, monkeypatch):
    operators = {name: {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}
                 for name in ("A", "B")}  # fmt: skip
    profile = Profile.parse(
        {"name": "p", "summary": "s", "points": 16, "batch": 2, "operators": operators}, "p"
    )
    run, costs = ProfileRun(profile, tmp_path / "p"), iter([Cost(1.0, 1, 1), KeyboardInterrupt()])

    def measured(*arguments):
        cost = next(costs)
        if isinstance(cost, BaseException):
            raise cost
        return cost

    monkeypatch.setattr(profile_module, "step_cost", measured)
    with pytest.raises(KeyboardInterrupt):
        run.run(CPU)
    monkeypatch.setattr(profile_module, "step_cost", lambda *arguments: Cost(2.0, 1, 1))
    run.run(CPU, resume=True)
    assert [row.step_seconds for row in run.rows()] == [1.0, 2.0]


def test_a_profile_measures_every_operator(tmp_path):
    operators = {
        name: {"model": {"name": "galerkin-transformer", "width": 8, "depth": 1, "modes": 4,
                         "attention": name}}
        for name in ("galerkin", "softmax")
    }  # fmt: skip
    profile = Profile.parse(
        {"name": "p", "summary": "s", "points": 512, "batch": 2, "operators": operators}, "p"
    )
    run = ProfileRun(profile, tmp_path / "p")
    run.run(CPU)
    found = {row.operator: row for row in run.rows()}
    linear, quadratic = (found[name].cost for name in ("galerkin", "softmax"))
    # QKᵀ and AV, and five such products of n x n with d = 16 (8 features and x, padded) backward
    of_attention = 7 * 2 * 2 * 512**2 * 16  # of two samples
    assert quadratic.flops - linear.flops == pytest.approx(of_attention, rel=0.01)
    assert min(linear.seconds, linear.peak_bytes) > 0
    write_profile_report(run, "pdegen benchmark p.toml")
    table = (tmp_path / "p/table.csv").read_text("utf-8").splitlines()
    assert len(table) == 3
    assert json.loads(json.dumps(profile.model_dump(mode="json")))["points"] == 512
    assert found["galerkin"].parameters > 0


def test_predictions_are_drawn_where_they_live():
    points = np.random.default_rng(0).random((50, 2))
    u = np.sin(points[:, :1])
    truth = Functions(Look("u"), u[None], (Channel("u"),), Cloud((50,), 2, points, None, None))
    figure = predictions_in_panels(truth, {"A": u + 0.1, "B": 0.9 * u})
    drawn = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title("left") for axes in drawn] == ["truth u", "A", "p − u", "B", "p − u"]
    np.testing.assert_allclose(drawn[2].collections[0].get_array(), 0.1)


@pytest.mark.parametrize(
    ("task", "batch"), [({"kind": "time"}, 30), ({"kind": "rollout", "steps": 2}, 4)]
)
def test_a_benchmark_trains_and_measures_tasks(task, batch, trajectories, tmp_path):
    plain = Experiment.on_store(trajectories, "fno").model_dump(mode="json", exclude_none=True)
    plain["training"] |= {"epochs": 1, "batch": batch, "loss": {"name": "l2"}}
    path = tmp_path / "steps.toml"
    path.write_text(toml({**plain, "task": task, "resolutions": [32]}), "utf-8")
    content = {**CONTENT, "seeds": 1, "datasets": {"steps": {"experiment": str(path)}}}
    model = {"name": "fno", "width": 4, "depth": 1, "modes": 2}
    small = Benchmark.parse({**content, "operators": {"FNO": {"model": model}}}, "small")
    run = BenchmarkRun(small, {"steps": trajectories}, tmp_path / "run")
    run.run(CPU)
    (row,) = run.rows()
    assert row.failed == ""
    assert row.step_seconds > 0


def test_the_summary_of_a_part_names_that_part_alone():
    models = {"FNO": "fno", "T": "transformer"}
    both = declared(
        datasets=dict.fromkeys("ab", CONTENT["datasets"]["burgers"]),
        operators={label: {"model": {"name": name}} for label, name in models.items()},
    )
    assert both.only([], []).summary == "Two operators"
    assert both.only(["T"], []).summary == "T on a, b"
    assert both.only([], ["b"]).summary == "FNO, T on b"


def test_the_report_explains_the_columns_that_it_has_and_no_others(finished):
    text = write_benchmark_report(finished, CPU).with_suffix(".md").read_text("utf-8")
    assert "in a batch of 2." in text  # as many test samples as there are
    assert "Training: of one seed." in text
    for absent in ("Tuning:", "Break-even:", "Data: the samples"):
        assert absent not in text


@pytest.mark.parametrize("together", [1, 40])
def test_seconds_of_a_prediction_are_those_of_the_samples_that_are_predicted(
    finished, monkeypatch, together
):
    """Of a test split with fewer samples than are timed together, and of one with more."""
    row = finished.rows()[0].model_copy(update={"inference_seconds": 0.0})
    monkeypatch.setattr(module, "SOME", together)
    monkeypatch.setattr(module, "step_seconds", lambda timed, device: 6.0)
    finished._measure(row, CPU)
    assert row.inference_seconds == pytest.approx(6.0 / min(together, 2))
