"""Each number of a benchmark's tables is that of its rows, in its own unit."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipelines.config.benchmark import Case
from pipelines.reports import benchmark_report
from pipelines.reports.benchmark_report import _budget, _solver, error
from pipelines.studies.runner import Row

NAN = float("nan")
CASE = Case("darcy", "FNO", "published")
FIRST = Row(
    dataset="darcy", operator="FNO", protocol="published", seed=0, parameters=12345, epoch=7,
    best=0.11, best_epoch=5, errors=[0.1, 0.4, NAN, 0.25], chosen={"training.lr": 0.002},
    ended="time", training_seconds=90.0, tuning_seconds=30.0, inference_seconds=0.002,
    step_seconds=0.25, step_bytes=3 * 2**20, step_flops=5 * 10**9,
)  # fmt: skip
SECOND = FIRST.model_copy(update={
    "seed": 1, "epoch": 9, "best": 0.13, "best_epoch": 8, "errors": [0.2, 0.5, NAN, 0.05],
    "training_seconds": 150.0, "tuning_seconds": 50.0, "inference_seconds": 0.004,
    "step_seconds": 0.75, "step_bytes": 5 * 2**20, "step_flops": 9 * 10**9,
})  # fmt: skip
LOST = Row(dataset="darcy", operator="FNO", protocol="published", seed=2, failed="diverged")
ROWS = [FIRST, SECOND, LOST]


class Solver:
    """Costs of a solver whose samples take as long as 1/1000 of what was spent."""

    data_seconds, comparable = 4000.0, True

    def break_even(self, mean, spent, each, trivial):
        return 1000 * mean + spent + 1e4 * each + 1e5 * trivial


def a_run(solver=None, published=0.05, label=0.003, **changes):
    facts = {"parameters": 3e6, "hours": 1.5, "epoch": 77}
    entry = SimpleNamespace(
        published={"darcy": published} if published else {}, differs="smaller",
        published_training={"darcy": facts}, published_measures={"darcy": {"l1": 0.3}},
    )  # fmt: skip
    benchmark = SimpleNamespace(
        operators={"FNO": entry}, sources={kind: f"Table {kind}" for kind in facts},
        seeds_on=lambda dataset: {"darcy": 2, "pipe": 1}[dataset], **changes,
    )  # fmt: skip
    training = SimpleNamespace(epochs=40)
    return SimpleNamespace(
        benchmark=benchmark, label_error=lambda dataset: label, solver=lambda dataset: solver,
        trivial=lambda dataset: {"mean": 0.9, "identity": 0.7},
        training_of=lambda row: SimpleNamespace(experiment=SimpleNamespace(training=training)),
    )  # fmt: skip


def test_a_line_has_every_number_of_its_finished_rows():
    line = benchmark_report.line_of(a_run(Solver()), CASE, ROWS)
    assert line == {
        "dataset": "darcy", "operator": "FNO", "protocol": "published", "seeds": 2,
        "differs": "smaller", "failed": "diverged", "published": 0.05,
        "published parameters": 3e6, "published hours": 1.5, "published best epoch": 77,
        "parameters": 12345, "mean": 0.25, "spread": 0.0, "median": 0.225,
        "p95": pytest.approx(0.475), "worst": 0.5, "samples": 3, "label error": 0.003,
        "trivial": 0.7, "epoch": "7 9", "training seconds": 120, "tuning seconds": 40,
        "inference seconds": pytest.approx(0.003), "step seconds": 0.5, "step MiB": 4,
        "step GFLOP": 7, "chosen": '{"training.lr": 0.002}', "ended": "time",
        "data seconds": 4000, "break-even": pytest.approx(250 + 160 + 30 + 7e4),
        "best on test": pytest.approx(0.12), "best epoch": "5 8",
        "ratio to published": pytest.approx(2.4),
    }  # fmt: skip


def test_a_line_leaves_out_what_was_not_measured():
    bare = {"best": None, "chosen": {}, "inference_seconds": 0.0, "step_seconds": 0.0,
            "step_bytes": 0, "step_flops": 0}  # fmt: skip
    line = benchmark_report.line_of(
        a_run(Solver(), label=None), CASE, [FIRST.model_copy(update=bare)]
    )
    empty = ("spread", "label error", "inference seconds", "step seconds", "step MiB",
             "step GFLOP", "chosen")  # fmt: skip
    assert [line[key] for key in empty] == [""] * len(empty)
    assert not {"best on test", "best epoch", "break-even"} & line.keys()
    assert line["data seconds"] == 4000
    assert line["ratio to published"] == pytest.approx(5)
    none = benchmark_report.line_of(a_run(published=None), CASE, [LOST])
    assert (none["published"], none["seeds"], none["failed"]) == ("", 0, "diverged")
    assert "mean" not in none
    one = benchmark_report.line_of(
        a_run(), CASE, [FIRST, SECOND.model_copy(update={"errors": [0.5] * 3})]
    )
    assert one["spread"] == pytest.approx(0.25 / 2**0.5)


def test_a_solver_that_is_not_comparable_has_no_break_even():
    solver = Solver()
    solver.comparable = False
    assert "break-even" not in benchmark_report.line_of(a_run(solver), CASE, ROWS)


def test_the_file_has_a_line_for_each_case():
    other = replace(CASE, protocol="validation")
    rows = [*ROWS, FIRST.model_copy(update={"protocol": "validation", "errors": [0.8]})]
    first, second = csv.DictReader(benchmark_report.csv_file(a_run(), rows).splitlines())
    assert (first["protocol"], second["protocol"]) == ("published", other.protocol)
    assert (first["mean"], second["mean"]) == ("0.25", "0.8")
    assert json.loads(first["chosen"]) == {"training.lr": 0.002}


def test_the_table_of_errors_has_both_protocols():
    rows = [row.model_copy(update={"ended": ""}) for row in (FIRST, SECOND)]
    words = benchmark_report.errors_of(a_run(), CASE, rows, [])
    assert words == (
        "FNO", "2.50e-1 ± 0.00e-1", "2.25e-1", "4.75e-1", "5.00e-1", "", "1.20e-1, epoch 5 8",
        "5.00e-2 (x 2.40)", "12,345", "7 9", "",
    )  # fmt: skip
    watched = [FIRST.model_copy(update={"errors": [0.6, 0.3], "best": 0.2, "best_epoch": 3})]
    clean = [FIRST.model_copy(update={"best": None, "chosen": {"training.epochs": 16}})]
    words = benchmark_report.errors_of(
        a_run(), replace(CASE, protocol="validation"), clean, watched
    )
    assert words[5:8] == ("4.50e-1", "2.00e-1, epoch 3", "5.00e-2 (x 4.00)")
    assert words[10] == "16 epochs, time spent"
    flat = FIRST.model_copy(update={"ended": "flat", "chosen": {"training.epochs": 8}})
    assert benchmark_report.budget_of(flat) == "8 epochs, flat"
    unpublished = benchmark_report.errors_of(a_run(published=None), CASE, clean, [])
    assert unpublished[5:8] == ("", "", "")


def test_the_table_of_costs_has_units():
    assert benchmark_report.costs_of(a_run(Solver()), CASE, [FIRST, SECOND]) == (
        "FNO", "12,345", "0.5", "4", "7", "3", "2 min 0 s", "40 s", "1 h 6 min", "70,440",
    )  # fmt: skip
    bare = {"inference_seconds": 0.0, "step_bytes": 0, "tuning_seconds": 0.0}
    assert benchmark_report.costs_of(a_run(), CASE, [FIRST.model_copy(update=bare)]) == (
        "FNO", "12,345", "0.25", "–", "5", "–", "1 min 30 s", "", "", "",
    )  # fmt: skip


def test_trainings_that_are_not_finished_are_named():
    cases = [Case("darcy", "FNO"), Case("darcy", "GT"), Case("pipe", "FNO", "published")]
    parts = [
        (case, seed) for case in cases for seed in ((0, 1) if case.dataset == "darcy" else (0,))
    ]
    run = a_run()
    run.stages = lambda: [parts[:2], parts[2:]]

    def rows(*numbers):
        return [Row(dataset=c.dataset, operator=c.operator, protocol=c.protocol, seed=s)
                for c, s in (parts[k] for k in numbers)]  # fmt: skip

    assert benchmark_report.unfinished(run, rows(0, 1, 2, 3, 4)) == ""
    assert benchmark_report.unfinished(run, rows(0, 2, 3, 4)) == (
        "1 of 5 training is not finished. darcy: FNO, seed 1."
    )
    assert benchmark_report.unfinished(run, rows(1)) == (
        "4 of 5 trainings are not finished. darcy: FNO, seed 0; GT, seed 0 and 1. pipe: all."
    )
    more = [*parts, (Case("pipe", "GT", "validation"), 0)]
    run.stages = lambda: [more]
    assert benchmark_report.unfinished(run, rows(0, 1, 2, 3)) == (
        "2 of 6 trainings are not finished. pipe: all."
    )
    assert benchmark_report.unfinished(run, rows(0, 1, 2, 3, 4)) == (
        "1 of 6 training is not finished. pipe: GT (validation)."
    )


def test_empty_columns_are_left_out():
    table = benchmark_report.without_empty(
        [("a", "", "1"), ("b", "", "")], ("x", "y", "z"), "named"
    )
    assert (table.rows, table.header, table.name) == ([("a", "1"), ("b", "")], ("x", "z"), "named")


def test_measures_have_spreads_and_published_lines():
    rows = {"FNO": [Row(measures={"l1": 0.2, "l2": 0.5, "max": 0.9}),
                    Row(measures={"l1": 0.4, "l2": 0.7, "max": 0.8})]}  # fmt: skip
    norms, parts = benchmark_report.measure_tables(rows, a_run().benchmark.operators, "darcy")
    assert norms.rows == [
        ("FNO", "6.00e-1 ± 1.41e-1", "3.00e-1 ± 1.41e-1"), ("FNO, published", "", "3.00e-1"),
    ]  # fmt: skip
    assert norms.header == ("operator", "l2", "l1")
    assert (parts.name, parts.header) == ("parts of the error", ("operator", "max"))
    assert parts.rows == [("FNO", "8.50e-1 ± 7.07e-2".replace("7.07e-2", "0.71e-1"))]


def test_published_trainings_stand_beside_the_watched_ones():
    watched = {"FNO": [FIRST, SECOND]}
    *_, table = benchmark_report.further_tables(a_run(), "darcy", {"FNO": [LOST]}, watched)
    assert table.name == "published trainings"
    assert table.header == (
        "operator", "parameters, ours", "parameters, published: Table parameters", "hours, ours",
        "hours, published: Table hours", "best epoch, ours", "best epoch, published: Table epoch",
    )  # fmt: skip
    assert table.rows == [("FNO", "12,345", "3,000,000", "0.0333", "1.5", "5 8", "77")]
    run = a_run()
    assert benchmark_report._fact(run, "gflop", [FIRST, SECOND]) == "7"
    assert benchmark_report._fact(run, "gflop", [LOST]) == "–"
    assert benchmark_report._fact(run, "seconds", [FIRST, SECOND]) == "3"
    assert benchmark_report._fact(run, "epoch", [FIRST.model_copy(update={"best": None})]) == "7"


def test_a_budget_is_told_with_its_limits():
    data = SimpleNamespace(load=lambda: SimpleNamespace(training=SimpleNamespace(epochs=4)))
    run = a_run(budget=SimpleNamespace(flat=0.02, seconds=3600.0), datasets={"darcy": data})
    ((name, rule),) = _budget(run, "darcy")
    assert name == "Epochs"
    assert rule == (
        "4, doubled until the validation error of seed 0 is below 0.95 times that of the best "
        "predictor without learning and falls by less than 2%, or until 3600 s are spent on all "
        "trainings of an operator"
    )
    assert _budget(a_run(budget=None), "darcy") == []


def test_the_costs_of_the_solver_are_told_at_every_resolution():
    solves = [
        SimpleNamespace(seconds=2.5, error=0.0, overrides={}),
        SimpleNamespace(seconds=0.25, error=0.03, overrides={"problem.resolution": 32}),
        SimpleNamespace(seconds=0.125, error=0.2, overrides={"problem.resolution": 16, "rtol": 1}),
    ]
    ((name, words),) = _solver(a_run(SimpleNamespace(solves=solves)), "darcy")
    assert name == "Solver, at several resolutions"
    assert words == (
        "labels 2.5 s a sample; resolution 32: 0.25 s, error 3.00e-2; "
        "resolution 16, rtol 1: 0.125 s, error 2.00e-1"
    )
    for coarser, possible, expected in (
        (True, False, [("Solver", "not measured: the store was not made by a recipe")]),
        (True, True, []), (False, False, []),
    ):  # fmt: skip
        run = a_run(datasets={"darcy": SimpleNamespace(coarser=coarser)})
        run.has_coarser_solver = lambda dataset, possible=possible: possible
        assert _solver(run, "darcy") == expected


def test_errors_over_several_seeds_have_a_deviation():
    assert error([Row(errors=[0.1, 0.3])]) == "2.00e-1"
    assert error([Row(errors=[0.1, 0.3]), Row(errors=[0.4])]) == "3.00e-1 ± 1.41e-1"
