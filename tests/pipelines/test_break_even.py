"""After how many solves an operator has paid, beside our own solver made coarser."""

import csv
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from operators.data import Samples
from pdegen.domains import Box, Cloud
from pdegen.files import read_json, read_lines, write_json, write_lines
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.benchmark import Benchmark
from pipelines.reports.benchmark_report import line_of, write_benchmark_report
from pipelines.studies.benchmark import BenchmarkRun, break_evens, row_case
from pipelines.studies.cost import (
    Solve,
    SolverCost,
    _along,
    _at_labels,
    _coordinates,
    solver_cost,
)
from tests.pipelines.test_benchmark import CONTENT, CPU, SMALL

pytestmark = pytest.mark.usefixtures("unpainted")

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


def test_a_solve_that_a_more_accurate_one_beats_does_not_count():
    known = cost((8.0, 0.0), (2.0, 0.01), (3.0, 0.02), (1.0, 0.16))
    assert known.seconds(0.02) == pytest.approx(2.0 * 0.5 ** (1 / 4))  # from 0.01 to 0.16
    assert known.seconds(0.04) == pytest.approx(2.0 * 0.5 ** (2 / 4))
    unordered = cost((8.0, 0.0), (1.0, 0.16), (3.0, 0.02), (2.0, 0.01))
    assert unordered.seconds(0.04) == known.seconds(0.04)
    assert cost((8.0, 0.0)).seconds(0.3) == 8.0


def test_rounding_bounds_what_labels_resolve():
    known = cost((8.0, 0.0), (2.0, 2.0**-20))
    error = math.hypot(2.0**-22, 2.0**-24)
    share = math.log(error / 2.0**-24) / math.log(math.hypot(2.0**-20, 2.0**-24) / 2.0**-24)
    assert known.seconds(2.0**-22) == pytest.approx(8.0 * 0.25**share)


def test_only_a_coarser_solve_makes_a_solver_comparable():
    assert not cost((8.0, 0.0)).comparable
    assert cost((8.0, 0.0), (2.0, 0.1)).comparable
    assert cost((8.0, 0.0), (2.0, 0.1)).data_seconds == 800.0


def test_coordinates_are_those_of_the_axis():
    box = Box.cell(4, 5)
    assert _coordinates(box, 1) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert _coordinates(box, 0) == pytest.approx([0.125, 0.375, 0.625, 0.875])
    mesh = SimpleNamespace(shape=(4, 5), kinds=("periodic", "nodal"))
    assert _coordinates(mesh, 0) == pytest.approx([0.0, 0.25, 0.5, 0.75])
    assert _coordinates(mesh, 1) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_each_axis_is_interpolated_by_its_own_kind():
    x, y, finer = np.arange(6) / 6, np.linspace(0, 1, 4), np.linspace(0, 1, 7)
    u = np.sin(2 * np.pi * x)[:, None] + 3 * y
    line = _along(u, 1, y, finer, 1, False)
    np.testing.assert_allclose(line, np.sin(2 * np.pi * x)[:, None] + 3 * finer, atol=1e-12)
    assert _along(u, 0, x, x, 1, True) is u
    # the end of a circle is its beginning
    middle = _along(u, 0, x, np.array([5.5 / 6]), 1, True)
    np.testing.assert_allclose(middle[0], (u[5] + u[0]) / 2)
    three = np.array([0.0, 0.5, 1.0])
    parabola = _along(three**2, 0, three, finer, 3, False)  # of the order that the points allow
    np.testing.assert_allclose(parabola, finer**2, atol=1e-12)
    shifted = _along(np.array([1.0, 2.0]), 0, np.array([1.0, 3.0]), np.array([2.5]), 1, False)
    np.testing.assert_allclose(shifted, [1.75])


def test_clouds_take_the_nearest_value_outside_of_their_points():
    def cloud(places, u):
        return Samples.of(
            a=u, u=u, x=None, y=None, samples=np.arange(len(u)), domain=Cloud(u.shape[1:2], 2),
            source={}, per_sample={"x": places},
        )  # fmt: skip

    square = torch.tensor([[0.0, 0.0], [1, 0], [0, 1], [1, 1]])
    corners, slopes = torch.stack([square, 2 * square]), torch.tensor([[1.0, 10.0], [2.0, 3.0]])
    values = (corners * slopes[:, None]).sum(-1)
    at = torch.tensor([[[0.25, 0.5], [1.5, 1.2]], [[0.5, 1.0], [3.0, -1.0]]])
    coarse, labels = cloud(corners, values[..., None]), cloud(at, torch.zeros(2, 2, 1))
    found = [_at_labels(coarse, labels, i, 1)[:, 0] for i in (0, 1)]
    np.testing.assert_allclose(found, [[5.25, 11.0], [4.0, 4.0]], rtol=1e-6)
