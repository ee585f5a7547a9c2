"""Benchmarks that double the epochs of their trainings, and tables that are not finished."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from operators.norms import mean_defined
from operators.training.evaluate import scores
from operators.training.fit import Epoch, Stopped, TrainingError, read_history
from pdegen.files import write_json
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Benchmark, Budget, Case, load_benchmark
from pipelines.config.experiment import load_experiment
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.runs import evaluation
from pipelines.runs.data import Source
from pipelines.runs.evaluation import trivial_validation_error
from pipelines.runs.finished import trivial
from pipelines.runs.predictions import mean_target
from pipelines.runs.training import train_part
from pipelines.studies import benchmark as choice
from pipelines.studies import runner
from pipelines.studies import runner as module
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import Execution, count_time, doubled, seconds
from tests.pipelines.conftest import CPU, SMALL
from tests.pipelines.test_benchmark import CONTENT, declared

pytestmark = pytest.mark.usefixtures("unpainted")

FNO = Case("burgers", "FNO")
LONG = 1e9  # seconds
ONE: dict[str, Any] = {"operators": {"FNO": CONTENT["operators"]["FNO"]}}


def learning(errors: dict[int, float]) -> Callable[[int], tuple[float, float]]:
    """A training of which an epoch takes a second; it diverges where no error is known."""

    def train(epochs: int) -> tuple[float, float]:
        if epochs not in errors:
            raise TrainingError("diverged")
        return errors[epochs], float(epochs)

    return train


@pytest.mark.parametrize(
    ("errors", "spent", "chosen"),
    [
        ({1: 0.4, 2: 0.2, 4: 0.195}, LONG, (4, "flat")),
        ({1: 0.4, 2: 0.2, 4: 0.21}, LONG, (2, "flat")),  # longer and worse
        ({1: 0.4, 2: 0.2, 4: 0.1}, 6.9, (2, "time")),  # 1 + 2 + 4 seconds are not there
        ({1: 0.4, 2: 0.2, 4: 0.1}, 7.0, (4, "time")),
        ({1: 0.4}, 0.5, (1, "time")),  # the declared epochs are always trained
        ({1: 0.4, 2: 0.2}, LONG, (2, "")),
    ],
)
def test_epochs_are_doubled_until_the_error_is_flat_or_time_is_spent(errors, spent, chosen):
    assert doubled(Budget(flat=0.05, seconds=spent), 1, learning(errors), lambda: 0.9) == chosen


@pytest.mark.parametrize(
    ("errors", "spent", "chosen"),
    [
        ({1: 0.9, 2: 0.9, 4: 0.87, 8: 0.2, 16: 0.195}, LONG, (16, "flat")),
        ({1: 0.9, 2: 0.9, 4: 0.84}, LONG, (4, "")),  # it falls
        ({1: 0.9, 2: 0.85, 4: 0.84}, LONG, (4, "flat")),
        ({1: 0.85, 2: 0.9, 4: 0.2}, LONG, (1, "flat")),  # the best one counts
        ({1: 0.95, 2: 0.95, 4: 0.95}, 7.0, (1, "time")),
    ],
)
def test_an_error_near_that_of_a_trivial_predictor_is_not_flat(errors, spent, chosen):
    assert doubled(Budget(flat=0.05, seconds=spent), 1, learning(errors), lambda: 0.9) == chosen


def test_a_first_training_that_diverges_is_an_error():
    with pytest.raises(TrainingError):
        doubled(Budget(), 1, learning({}), lambda: 0.9)


def test_seconds_of_a_training_are_added_up_over_its_parts(tmp_path, monkeypatch):
    now = iter([10.0, 13.0, 100.0, 104.0, 0.0, 2.0, 0.0, 1.0])
    monkeypatch.setattr(module.time, "process_time", lambda: next(now))
    write_json(tmp_path / "run.json", {})
    with pytest.raises(Stopped), count_time(tmp_path, False, CPU):
        raise Stopped
    write_json(tmp_path / "state.pt", {})  # a stopped training has a state, and goes on
    with count_time(tmp_path, True, CPU):
        pass
    assert seconds(tmp_path) == 7.0
    with count_time(tmp_path, False, CPU):  # another training replaces it
        pass
    assert seconds(tmp_path) == 2.0
    (tmp_path / "state.pt").unlink()  # a training that begins anew
    with count_time(tmp_path, True, CPU):
        pass
    assert seconds(tmp_path) == 1.0


@pytest.fixture(scope="module")
def flat(burgers, tmp_path_factory):
    """Two seeds, one doubling: the error does not fall to a hundredth."""
    benchmark = declared(**ONE, budget={"flat": 0.99, "seconds": LONG})
    run = BenchmarkRun(benchmark, {"burgers": str(burgers)}, tmp_path_factory.mktemp("flat") / "b")
    run.run(CPU)
    return run


def test_all_seeds_have_the_epochs_that_the_first_one_chose(flat):
    first, second = flat.rows()
    assert first.ended == second.ended == "flat"
    assert first.chosen == second.chosen
    assert first.seed != second.seed
    folders = {path.name: path for path in (flat.folder / "runs/burgers/fno").iterdir()}
    longest = 2 ** (len(folders) - 1)  # of seed 0, from 2 epochs on
    tried = {2**k: f"seed-0-epochs-{2**k}" for k in range(1, len(folders))}
    assert folders.keys() == {*tried.values(), f"seed-1-epochs-{epochs(first)}"}
    scores = {n: min(e.score for e in read_history(folders[tried[n]])) for n in tried}
    assert epochs(first) == min(scores, key=lambda n: scores[n])
    source = flat.source("burgers")
    trivial = trivial_validation_error(source.experiment, source.url, CPU)
    assert longest > 4  # the first epochs learn nothing
    earlier = [min(scores[m] for m in scores if m <= n) for n in scores if 2 < n < longest]
    assert all(error > 0.95 * trivial for error in earlier)  # the first flat one ends it
    assert min(scores.values()) < 0.95 * trivial
    others = [folders[tried[n]] for n in tried if n != epochs(first)]
    spent = sum(epoch.seconds for folder in others for epoch in read_history(folder))
    assert first.tuning_seconds == pytest.approx(spent)
    assert all(seconds(folders[tried[n]]) for n in tried)


def epochs(row):
    return row.chosen["training.epochs"]


def test_a_budget_is_resumed_row_by_row(flat, tmp_path, monkeypatch):
    flat = replace(flat, folder=Path(shutil.copytree(flat.folder, tmp_path / "run")))
    before = [row.errors for row in flat.rows()]
    lost = flat.row_path((Case("burgers", "FNO"), 1))
    lost.unlink()
    assert len(flat.rows()) == 1

    def train_part(*arguments, **how):
        raise AssertionError("all trainings are finished")

    monkeypatch.setattr(runner, "train_part", train_part)
    flat.run(CPU, resume=True)
    assert [row.errors for row in flat.rows()] == before


def test_rows_of_another_budget_are_not_used(flat):
    changed = declared(**ONE, budget={"flat": 0.98, "seconds": LONG})
    for benchmark in (changed, declared(**ONE)):
        assert BenchmarkRun(benchmark, flat.stores, flat.folder).rows() == []


def test_the_table_says_why_a_budget_ended(flat, burgers, tmp_path):
    page = write_benchmark_report(flat, CPU).with_suffix(".md").read_text("utf-8")
    assert f"| {epochs(flat.rows()[0])} epochs, flat |" in page
    assert "predictor without learning and falls by less than 99%, or" in page
    dataset = CONTENT["datasets"]["burgers"]
    content = {"datasets": {"burgers": dataset, "again": {**dataset, "seeds": 1}}}
    benchmark = declared(**ONE, **content, budget={"seconds": 1e-9})
    run = BenchmarkRun(benchmark, {name: str(burgers) for name in content["datasets"]}, tmp_path)
    run.run(CPU)
    page = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    assert "| 2 epochs, time spent |" in page
    assert "*: the time of the budget was spent before the error was flat." in page
    lines = csv.DictReader((tmp_path / "table.csv").read_text("utf-8").splitlines())
    assert [(line["dataset"], line["seeds"], line["ended"]) for line in lines] == [
        ("burgers", "2", "time"), ("again", "1", "time"),
    ]  # fmt: skip


@pytest.mark.usefixtures("painted")
def test_an_interrupted_benchmark_has_a_report_that_names_the_missing_rows(
    pdegen, burgers, tmp_path, monkeypatch
):
    made = BenchmarkRun.make

    def make(self, part, how):
        if part == (Case("burgers", "FNO"), 1):
            raise Stopped("the study was stopped")
        return made(self, part, how)

    monkeypatch.setattr(BenchmarkRun, "make", make)
    path = tmp_path / "small.toml"
    path.write_text(
        'name = "small"\nsummary = "Two operators"\nseeds = 2\n'
        '[datasets.burgers]\nexperiment = "benchmark-burgers-quick"\n'
        'overrides = { "data.resolution" = 16, resolutions = [16], "training.epochs" = 1, '
        '"training.batch" = 2 }\n'
        '[operators.FNO]\nmodel = { name = "fno", width = 4, depth = 1, modes = 4 }\n'
        "[operators.DeepONet]\n"
        'model = { name = "deeponet", sensors = 16, basis = 4, width = 8 }\n',
        "utf-8",
    )
    outcome = pdegen("benchmark", path, "--data", f"burgers={burgers}", "--out", "run")
    assert outcome.status == 130
    assert outcome.out[-1] == "run/report.html"
    page = (tmp_path / "run/report.md").read_text("utf-8")
    assert "2 of 4 trainings are not finished. burgers: FNO, seed 1; DeepONet, seed 1." in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"search": {"training.lr": [1e-3, 1e-2]}}, "either budget or search and widths, got both"),
        ({"widths": [1.0, 2.0]}, "either budget or search and widths, got both"),
        (
            {
                "budget": None,
                "search": {"training.lr": [1e-3]},
                "quick": {"datasets": ["burgers"], "budget": {}},
            },
            "either budget or search and widths, got both",
        ),
        ({"budget": {"flat": 1.0}}, "flat: .*less than 1, got 1.0"),
        ({"budget": {"seconds": 0.0}}, "seconds: .*greater than 0, got 0.0"),
    ],
)
def test_an_impossible_budget_is_refused(changes, message):
    with pytest.raises(SchemaError, match=message):
        declared(**{"budget": {}, **changes})


def test_a_budget_by_the_test_samples_is_refused():
    with pytest.raises(SchemaError, match="small: a budget needs a validation error"):
        declared(budget={}).with_overrides({"training.protocol": "published"})


@pytest.mark.parametrize("way", [{"budget": {}}, {"search": {"training.lr": [1e-3, 1e-2]}}])
def test_an_operator_that_is_chosen_by_the_test_samples_is_refused(way):
    fno = {**CONTENT["operators"]["FNO"], "overrides": {"training.protocol": "published"}}
    with pytest.raises(SchemaError, match="needs a validation error"):
        declared(**way, operators={"FNO": fno}).check()


def test_training_resolutions_of_the_command_replace_those_of_an_operator():
    fno = {**CONTENT["operators"]["FNO"], "overrides": {"data.resolution": 32}}
    changed = declared(operators={"FNO": fno}).with_overrides({"data.resolutions": [8, 16]})
    (case, *_) = changed.cases()
    assert changed.experiment(case, 0, {}).data.training_resolutions == (8, 16)


def test_the_converged_table_has_two_seeds_on_five_datasets():
    benchmark = load_benchmark("standard-converged", sound=False)
    assert isinstance(benchmark, Benchmark)
    small = benchmark.quickly()
    seeds = [small.seeds_on(dataset) for dataset in small.datasets]
    assert sorted(seeds) == [1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert small.budget == Budget(flat=0.05, seconds=600.0)
    assert small.most_seeds == 2
    assert small.with_seeds(3).seeds_on("pipe") == small.with_seeds(3).seeds_on("darcy") == 3


def of_scores(*values):
    return [Epoch(k, 1.0, score, 1e-3, 1.0, score) for k, score in enumerate(values, 1)]


def test_the_best_epoch_of_each_training_is_compared(burgers, tmp_path, monkeypatch):
    """As that epoch has the weights that are used, and not the last one."""
    histories = {2: (0.4, 0.5), 4: (0.1, 0.3), 8: (0.099, 0.2), 16: (0.05, 0.05)}
    monkeypatch.setattr(
        runner.StudyTraining, "finished",
        lambda self: of_scores(*histories[self.experiment.training.epochs]),
    )  # fmt: skip
    monkeypatch.setattr(choice, "trivial_validation_error", lambda *of: 0.9)
    benchmark = declared(**ONE, budget={"flat": 0.05, "seconds": 40})
    run = BenchmarkRun(benchmark, {"burgers": str(burgers)}, tmp_path / "b")
    assert choice.settings_of(run, FNO, Execution(CPU)) == ({choice.EPOCHS: 8}, "flat")


def test_a_search_compares_the_best_epochs_too(burgers, tmp_path, monkeypatch):
    histories = {1e-3: (0.1, 0.5), 1e-2: (0.3, 0.2)}
    monkeypatch.setattr(
        runner.StudyTraining, "finished",
        lambda self: of_scores(*histories[self.experiment.training.lr]),
    )  # fmt: skip
    benchmark = declared(**ONE, search={"training.lr": [*histories]})
    run = BenchmarkRun(benchmark, {"burgers": str(burgers)}, tmp_path / "b")
    assert choice.settings_of(run, FNO, Execution(CPU)) == ({"training.lr": 1e-3}, "")


def test_the_published_protocol_has_the_declared_epochs(burgers, tmp_path, monkeypatch):
    """As a budget would choose by its test samples."""
    monkeypatch.setattr(runner.StudyTraining, "finished", lambda self: of_scores(0.1, 0.1))
    protocols = ["validation", "published"]
    benchmark = declared(**ONE, protocols=protocols, budget={"flat": 0.05, "seconds": LONG})
    run = BenchmarkRun(benchmark, {"burgers": str(burgers)}, tmp_path / "b")
    case = Case("burgers", "FNO", "published")
    assert choice.settings_of(run, case, Execution(CPU)) == ({}, "")


def test_seconds_of_a_replaced_training_do_not_count(burgers, tmp_path):
    """A folder with an unfinished training of another experiment."""
    benchmark = declared(**ONE, budget={"seconds": 1e-9})
    run = BenchmarkRun(benchmark, {"burgers": str(burgers)}, tmp_path / "b")
    folder, epochs = run.training(FNO, 0, {choice.EPOCHS: 2}).folder, []
    other = run.training(FNO, 1, {choice.EPOCHS: 2}).experiment
    with pytest.raises(Stopped), count_time(folder, False, CPU):
        train_part(other, str(burgers), folder, CPU, epochs.append, lambda: len(epochs) == 1)
    write_json(folder / "processor.json", {"seconds": 1e6})
    assert choice.settings_of(run, FNO, Execution(CPU)) == ({choice.EPOCHS: 2}, "time")
    assert 0 < seconds(folder) < 1e5


def test_a_trivial_predictor_is_measured_on_the_samples_that_choose(store):
    experiment = load_experiment("burgers-quick").with_overrides(SMALL)
    source = Source(store, experiment)
    mean = mean_target(source.samples("train", "selection"))
    best = {}
    for split in ("validation", "test"):
        pairs = source.samples(split, "selection")
        of = trivial(experiment, open_sealed(store), pairs, mean).values()
        best[split] = min(mean_defined(scores(predictor, pairs)) for predictor in of)
    found = trivial_validation_error(experiment, store, CPU)
    assert found == pytest.approx(best["validation"], rel=1e-6)
    assert found != pytest.approx(best["test"], rel=1e-3)


def test_the_best_of_several_trivial_predictors_counts(store, monkeypatch):
    experiment = load_experiment("burgers-quick").with_overrides(SMALL)
    errors = iter([0.5, 0.3])
    monkeypatch.setattr(evaluation, "trivial", lambda *of: {"mean": None, "identity": None})
    monkeypatch.setattr(evaluation, "scores", lambda *of: torch.full((2,), next(errors)))
    assert trivial_validation_error(experiment, store, CPU) == pytest.approx(0.3)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_dataset_has_its_own_number_of_seeds(burgers, tmp_path, seeds):
    content = {"datasets": {"burgers": {**CONTENT["datasets"]["burgers"], "seeds": seeds}}}
    run = BenchmarkRun(declared(**content), {"burgers": str(burgers)}, tmp_path)
    ((*parts,),) = run.stages()
    assert [seed for case, seed in parts if case.operator == "FNO"] == [*range(seeds)]


def test_a_row_has_the_errors_at_the_finest_training_resolution(burgers, tmp_path):
    overrides = {"data.resolutions": [16, 32], "resolutions": [16, 32], "training.epochs": 1}
    fno = {"FNO": {**ONE["operators"]["FNO"], "overrides": overrides}}
    run = BenchmarkRun(declared(operators=fno, seeds=1), {"burgers": str(burgers)}, tmp_path / "b")
    run.run(CPU)
    (row,) = run.rows()
    of = {n: evaluation.evaluate(run.training_of(row).checkpoint, str(burgers), CPU, resolution=n)
          for n in (16, 32)}  # fmt: skip
    assert row.errors == pytest.approx(list(of[32].errors), rel=1e-6)
    assert row.errors != pytest.approx(list(of[16].errors), rel=1e-3)
    assert row.means == pytest.approx({n: of[n].mean for n in of}, rel=1e-6)
