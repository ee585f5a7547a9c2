"""Tables in the report of a benchmark, and their numbers."""

import csv
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pdegen.files import read_json, read_lines, write_json, write_lines
from pdegen.schema import SchemaError
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Benchmark
from pipelines.reports import benchmark_report
from pipelines.reports.benchmark_report import measure_tables, write_benchmark_report
from pipelines.runs.folder import RunError
from pipelines.studies import runner
from pipelines.studies.benchmark import check_place
from pipelines.studies.runner import Row
from tests.pipelines.conftest import CPU


def test_a_grid_that_one_seed_refused_and_an_unstable_training_are_said(benchmarked, tmp_path):
    run = replace(benchmarked, folder=shutil.copytree(benchmarked.folder, tmp_path / "run"))
    path = run.folder / "runs/burgers/fno/seed-0/history.jsonl"
    first, last = read_lines(path)
    write_lines(path, [{**first, "loss": 0.1}, {**last, "loss": 4.0}])
    place = run.folder / "rows/burgers--fno--seed-1.json"
    row = read_json(place)
    del row["means"]["32"]
    write_json(place, {**row, "refused": {"32": "too fine"}})
    page = write_benchmark_report(run, CPU).read_text("utf-8")
    assert "FNO at 32: too fine" in page
    assert "FNO, seed 0: the training was unstable" in page
    assert "40 times its smallest" in page


def test_the_report_has_the_table_in_three_forms(benchmarked, burgers):
    names = ("report.html", "table.md", "table.csv")
    html, text, table = ((benchmarked.folder / name).read_text("utf-8") for name in names)
    line, other = csv.DictReader(table.splitlines())
    assert (line["operator"], other["operator"]) == ("FNO", "DeepONet (16)")
    rows = [row for row in benchmarked.rows() if row.operator == "FNO"]
    mean, errors = np.mean([row.mean for row in rows]), [e for row in rows for e in row.errors]
    label = open_sealed(str(burgers)).values("error", range(10, 12)).mean()
    assert benchmarked.label_error("burgers") == pytest.approx(label)
    expected = {
        "mean": mean, "median": np.median(errors), "p95": np.quantile(errors, 0.95),
        "worst": max(errors), "spread": np.std([row.mean for row in rows], ddof=1),
        "ratio to published": mean / 1e-3, "label error": label,
        "trivial": min(benchmarked.trivial("burgers").values()),
    }  # fmt: skip
    assert {key: float(line[key]) for key in expected} == pytest.approx(expected)
    assert all(0 < row.inference_seconds < 1 for row in rows)
    for word in ("FNO", "mean of the training targets", "smaller"):
        assert word in html
        assert word in text or word == "smaller"
    assert len(list((benchmarked.folder / "pictures").glob("burgers-*.svg"))) == 5


def test_the_report_reads_predictions_that_are_kept(benchmarked, tmp_path, monkeypatch):
    run = replace(benchmarked, folder=shutil.copytree(benchmarked.folder, tmp_path / "run"))
    page = (run.folder / "report.html").read_bytes()
    assert b"all 8 samples" in page
    monkeypatch.setattr(runner, "predictions", None)
    assert write_benchmark_report(run, CPU).read_bytes() == page


def test_learning_curves_have_a_band_over_the_seeds(benchmarked, monkeypatch):
    drawn = []
    monkeypatch.setattr(benchmark_report.figures, "curves", lambda *a, **k: drawn.append((a, k)))
    monkeypatch.setattr(benchmark_report, "picture", lambda figure, name, caption: caption)
    found = {"FNO": benchmarked.rows()[:2], "one seed": benchmarked.rows()[:1]}
    caption = benchmark_report.learning(benchmarked, found, "validation", "learning")
    assert "means over 2 seeds" in caption
    scores = np.array([[e.score for e in benchmarked.history(row)] for row in found["FNO"]])
    [((series, *_), options)] = drawn
    assert options["bands"] == {"FNO": (scores.min(0).tolist(), scores.max(0).tolist())}
    assert options["whole"]
    assert options["band"]
    assert series["FNO"] == (range(1, 3), scores.mean(0).tolist())


def test_an_operator_has_one_style_in_all_charts_of_its_benchmark(benchmarked):
    first, second = benchmarked.benchmark.operators
    one = benchmark_report.looks(benchmarked, [first, second])
    other = benchmark_report.looks(benchmarked, [second])
    assert one[second] == other[second] != one[first]


def test_all_datasets_are_drawn_in_multiples_of_the_smallest(benchmarked, monkeypatch):
    def rows(means, seconds):
        return {
            name: [Row(errors=[mean], parameters=10, training_seconds=seconds[name])]
            for name, mean in means.items()
        }

    drawn = []
    monkeypatch.setattr(
        benchmark_report.figures, "errors_against_costs", lambda *a: drawn.append(a)
    )
    monkeypatch.setattr(benchmark_report, "picture", lambda figure, name, caption: name)
    first = rows({"b": 4.0, "a": 2.0}, {"a": 3.0, "b": 1.0}), 8.0
    assert (
        benchmark_report.against_costs(benchmarked, [first, (rows({"a": 1.0}, {"a": 7.0}), 8.0)])
        == "all-costs"
    )
    [(costs, errors, baseline, *_)] = drawn
    assert errors == {"a": 1.0, "b (1 of 2)": 2.0}
    assert list(errors) == ["a", "b (1 of 2)"]
    assert costs["parameters, over the smallest"] == {"a": 1.0, "b (1 of 2)": 1.0}
    assert costs["training time, over the smallest"]["a"] == pytest.approx(3**0.5)
    assert baseline == pytest.approx((4 * 8) ** 0.5)


def test_published_facts_of_trainings_stand_beside_ours(benchmarked, tmp_path):
    facts = {"parameters": 549e3, "gflop": 369.13, "hours": 0.063, "seconds": 0.938, "epoch": 86}
    declared = benchmarked.benchmark.model_dump(mode="json", exclude_none=True)
    declared["sources"] = {kind: f"Table {kind}" for kind in facts}
    declared["operators"]["FNO"]["published_training"] = {"burgers": facts}
    table = Benchmark.parse(declared, "small")
    folder = shutil.copytree(benchmarked.folder, tmp_path / "run")
    run = replace(benchmarked, benchmark=table, folder=folder)
    assert len(run.rows()) == 4  # rows do not depend on what is published
    page = write_benchmark_report(run, CPU).with_suffix(".md").read_text("utf-8")
    (head,) = [line for line in page.splitlines() if "hours, ours" in line]
    words = [word.strip() for word in head.strip("|").split("|")]
    assert words == ["operator", *(f"{name}, {whose}" for kind, name in (
        ("parameters", "parameters"), ("gflop", "GFLOP"), ("hours", "hours"),
        ("seconds", "seconds / epoch"), ("epoch", "best epoch"),
    ) for whose in ("ours", f"published: Table {kind}"))]  # fmt: skip
    lines = page[page.index(head) :].splitlines()[2:4]
    cells = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:]] for line in lines}
    fno, spent = cells["FNO"], np.mean([row.training_seconds for row in run.rows()[:2]])
    assert fno[1:10:2] == ["549,000", "369.13", "0.063", "0.938", "86"]
    assert fno[0] == f"{run.rows()[0].parameters:,}"
    assert float(fno[4]) == pytest.approx(spent / 3600, rel=0.01)
    assert float(fno[6]) == pytest.approx(spent / 2, rel=0.01)  # two epochs
    assert cells["DeepONet (16)"][1:10:2] == [""] * 5
    with (folder / "table.csv").open(encoding="utf-8") as opened:
        line, other = csv.DictReader(opened)
    assert (line["published GFLOP"], line["published best epoch"]) == ("369.13", "86.0")
    assert other["published hours"] == ""
    del declared["sources"]["hours"]
    with pytest.raises(
        SchemaError, match=r"FNO: published hours needs its place in sources\.hours"
    ):
        Benchmark.parse(declared, "small")


def test_measures_that_all_rows_have_are_columns():
    """The L² error is one of them on data that are judged by another measure."""
    rows = {"FNO": [Row(measures={"l2": 0.5, "l1": 0.25, "mean": 0.125})],
            "PiT": [Row(measures={"l2": 0.75, "l1": 0.5})]}  # fmt: skip
    operators = dict.fromkeys(rows, SimpleNamespace(published_measures={}))
    (table,) = measure_tables(rows, operators, "darcy")
    assert (table.name, table.header) == ("norms", ("operator", "l2", "l1"))
    assert [[line[0], *map(float, line[1:])] for line in table.rows] == [
        ["FNO", 0.5, 0.25], ["PiT", 0.75, 0.5],
    ]  # fmt: skip


def test_a_benchmark_goes_on_beside_other_files_which_are_never_overwritten(tmp_path):
    write_json(tmp_path / "benchmark.json", {"name": "quick"})
    check_place("quick", tmp_path, resume=True, overwrite=False)
    with pytest.raises(RunError, match="holds a benchmark"):
        check_place("quick", tmp_path, resume=False, overwrite=False)
    with pytest.raises(RunError, match="holds the benchmark quick"):
        check_place("standard", tmp_path, resume=True, overwrite=False)
    (tmp_path / "notes.txt").write_text("mine")
    check_place("quick", tmp_path, resume=True, overwrite=False)
    with pytest.raises(RunError, match=r"did not write.*notes\.txt"):
        check_place("quick", tmp_path, resume=False, overwrite=True)
