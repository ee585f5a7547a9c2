"""After how many solves an operator has paid, beside our own solver made coarser."""

import csv
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from operators.training.files import read_json, read_lines, write_json, write_lines
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.benchmark import Benchmark
from pipelines.reports.benchmark_report import write_benchmark_report
from pipelines.reports.benchmark_table import line_of
from pipelines.studies.benchmark import BenchmarkRun, row_case
from pipelines.studies.break_even import break_evens
from pipelines.studies.solver import Solve, SolverCost, _along, solver_cost
from tests.pipelines.test_benchmark import CONTENT, CPU, SMALL

RECIPE = {**SMALL, "problem.solver.resolution": 64}
COARSER = [
    {"problem.resolution": n, "problem.solver.resolution": n, "problem.initial.modes": n // 2 - 1,
     "problem.solver.largest_error": 1.0}
    for n in (32, 24)
]  # fmt: skip


def cost(*solves, label=0.0):
    return SolverCost(made_from="", label_error=label, samples=100, solves=[
        Solve(seconds=seconds, error=error) for seconds, error in solves
    ])  # fmt: skip


def test_the_solver_is_coarsened_to_the_error_of_the_operator():
    known = cost((8.0, 0.0), (4.0, 0.01), (1.0, 0.04))
    assert known.seconds(0.01) == pytest.approx(4.0)
    assert known.seconds(0.02) == pytest.approx(2.0)  # half way between their logarithms
    assert known.seconds(0.5) == 1.0  # the coarsest that was measured
    assert 4.0 < known.seconds(1e-4) < 8.0
    off = cost((8.0, 0.0), (4.0, 0.01), (1.0, 0.04), label=0.01)
    assert off.seconds(0.0) == pytest.approx(8.0)  # no better than its labels
    assert off.seconds(0.01) == pytest.approx(4.0)  # both are off by √2 0.01


def test_an_operator_pays_after_what_was_spent_over_what_it_saves():
    known = cost((8.0, 0.0), (4.0, 0.01))
    assert known.data_seconds == 800.0
    assert known.break_even(0.01, 200.0, 2.0) == pytest.approx((800 + 200) / (4 - 2))
    assert known.break_even(0.01, 200.0, 2.0, trivial=0.011) == known.break_even(0.01, 200.0, 2.0)
    assert known.break_even(0.01, 200.0, 2.0, trivial=0.01) == math.inf  # nothing is cheaper
    assert known.break_even(0.01, 200.0, 4.0) == math.inf
    assert known.break_even(0.01, 200.0, 5.0) == math.inf


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("even")
    store = generate(
        load_recipe("burgers-quick").with_overrides(RECIPE), str(folder / "s.zarr")
    ).url
    overrides = {
        **CONTENT["datasets"]["burgers"]["overrides"],
        **{f"data.overrides.{key}": value for key, value in RECIPE.items()},
        "resolutions": [16],
        "training.epochs": 10,
    }
    dataset = {"experiment": "benchmark-burgers-quick", "overrides": overrides, "coarser": COARSER}
    fno = {"FNO": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
    content = {**CONTENT, "seeds": 1, "datasets": {"burgers": dataset}, "operators": fno}
    searched = Benchmark.parse({**content, "search": {"training.lr": [1e-3, 1e-2]}}, "small")
    run = BenchmarkRun(searched, {"burgers": store}, folder / "run")
    run.run(CPU)
    write_benchmark_report(run, CPU)
    return run


def test_coarse_solutions_are_compared_with_labels_as_operators_are(finished):
    solver, source = finished.solver("burgers"), finished.source("burgers")
    assert solver.samples == 10
    assert solver.label_error == finished.label_error("burgers")
    _, first, second = solver.solves
    assert 0 < first.error < second.error < 1
    assert all(one.seconds > 0 for one in solver.solves)
    # twice as many points of a smooth solution hold the label to the error of both solvers
    finer = {"problem.resolution": 32, "problem.solver.resolution": 128}
    found = solver_cost(source, [finer], "l2", None)["solves"][1]
    assert found.error < 1e-3
    several = source.experiment.with_overrides({"data.resolutions": [16, 32]})
    same = solver_cost(replace(source, experiment=several), [finer], "l2", None)["solves"][1]
    assert same.error < 1e-3


def test_the_table_has_the_break_even_of_its_own_numbers(finished):
    line = next(csv.DictReader((finished.folder / "table.csv").read_text("utf-8").splitlines()))
    (row,), solver = finished.rows(), finished.solver("burgers")
    spent = row.training_seconds + row.tuning_seconds
    trivial = min(finished.trivial("burgers").values())
    even = solver.break_even(row.mean, spent, row.inference_seconds, trivial)
    assert float(line["break-even"]) == pytest.approx(even)
    assert float(line["data seconds"]) == pytest.approx(solver.data_seconds)
    assert "Solver, at several resolutions" in (finished.folder / "report.md").read_text("utf-8")


def test_a_command_finds_the_same_in_the_logs_of_the_runs(finished, pdegen, tmp_path):
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    (row,) = finished.rows()
    # as a solver that takes longer than predictions, whatever this one does
    table = (folder / "table.csv").read_text("utf-8")
    slow = finished.solver("burgers").model_copy(update={"solves": [
        one.model_copy(update={"seconds": one.seconds + 10 * row.inference_seconds})
        for one in finished.solver("burgers").solves
    ]})  # fmt: skip
    run = BenchmarkRun(finished.benchmark, finished.stores, folder)
    run.keep_solver("burgers", slow)
    write_benchmark_report(run, CPU)
    assert (folder / "table.csv").read_text("utf-8") != table
    outcome = pdegen("break-even", folder)
    assert outcome.status == 0, outcome.err
    logged, stated = outcome.out[0].removeprefix("FNO on burgers: ").rstrip(")").split(" (table: ")
    assert logged == stated != "∞"
    for path in folder.rglob("history.jsonl"):
        lines = [{**line, "seconds": line["seconds"] + 1e4} for line in read_lines(path)]
        write_lines(path, lines)
    outcome = pdegen("break-even", folder)
    assert outcome.status == 1
    assert "more than 10 % from the table: FNO on burgers" in outcome.err[0]


@pytest.mark.parametrize("best", [0, 1])
def test_the_best_predictor_without_learning_is_the_one_to_be_better_than(
    finished, monkeypatch, tmp_path, best
):
    (row,) = finished.rows()
    others = [2 * row.mean, 2 * row.mean]
    others[best] = row.mean / 2  # better than the operator; the other one is worse
    monkeypatch.setattr(BenchmarkRun, "trivial", lambda *_: dict(zip("ab", others, strict=True)))
    line = line_of(finished, row_case(row), [row])
    assert line["trivial"] == row.mean / 2
    assert line["break-even"] == math.inf
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    solver = finished.solver("burgers")
    slow = [
        one.model_copy(update={"seconds": 1e3 * (3 - k)}) for k, one in enumerate(solver.solves)
    ]
    run = BenchmarkRun(finished.benchmark, finished.stores, folder)
    run.keep_solver("burgers", solver.model_copy(update={"solves": slow}))
    (kept,) = folder.rglob("scores.json")  # of the training that was chosen
    scores = read_json(kept)
    result = scores["results"][0]
    scores["trivial"] = [_scaled(result, 2.0), _scaled(result, 2.0)]
    write_json(kept, scores)
    assert all(math.isfinite(even) for even, _ in break_evens(folder).values())
    scores["trivial"][best] = _scaled(result, 0.5)
    write_json(kept, scores)
    assert {even for even, _ in break_evens(folder).values()} == {math.inf}


def _scaled(summary, factor):
    return {**summary, "errors": [factor * error for error in summary["errors"]]}


def test_clouds_and_meshes_are_interpolated_between_their_points():
    x, y = np.linspace(0, 1, 9), np.linspace(0, 1, 33)
    cubic = _along(np.sin(x)[:, None], 0, x, y, 3, False)
    np.testing.assert_allclose(cubic[:, 0], np.sin(y), atol=1e-5)
    circle, finer = np.arange(8) / 8, np.arange(32) / 32
    wave = _along(np.sin(2 * np.pi * circle)[:, None], 0, circle, finer, 3, True)
    np.testing.assert_allclose(wave[:, 0], np.sin(2 * np.pi * finer), atol=1e-12)
    back = _along(np.sin(2 * np.pi * finer)[:, None], 0, finer, circle, 3, True)
    np.testing.assert_allclose(back[:, 0], np.sin(2 * np.pi * circle), atol=1e-12)
    line = _along(circle[:, None] * 0 + 2.0, 0, circle, finer, 1, True)
    np.testing.assert_allclose(line, 2.0)
    assert line.shape == (32, 1)


def test_costs_that_were_not_measured_do_not_count(finished, tmp_path):
    """Two seeds, of which one lacks costs, pay after as many solves as the other alone."""
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    (row,) = finished.rows()
    assert row.tuning_seconds > 0
    case, run = (
        row_case(row),
        BenchmarkRun(finished.benchmark.with_seeds(2), finished.stores, folder),
    )
    none = {name: 0 for name in ("inference_seconds", "step_seconds", "step_bytes", "step_flops")}
    twin = row.model_copy(update={"seed": 1, "made_from": run.digest((case, 1)), **none})
    run.keep((case, 1), twin)
    shutil.copytree(run.training_of(row).folder, run.training_of(twin).folder)
    run.keep_solver("burgers", run.solver("burgers").model_copy(update={"solves": [
        one.model_copy(update={"seconds": one.seconds + 10 * row.inference_seconds})
        for one in run.solver("burgers").solves
    ]}))  # fmt: skip
    one, both, other = (line_of(run, case, rows) for rows in ([row], [row, twin], [twin]))
    for name in ("inference seconds", "step seconds", "step MiB", "step GFLOP", "break-even"):
        assert 0 < both[name] == pytest.approx(one[name])
    assert "break-even" not in other
    write_json(folder / "benchmark.json", {**read_json(folder / "benchmark.json"), "seeds": 2})
    write_benchmark_report(run, CPU)
    logged, stated = break_evens(folder)["FNO on burgers"]
    assert logged == pytest.approx(stated) == pytest.approx(both["break-even"])
