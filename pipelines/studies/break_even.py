"""Break-even points of the operators of a benchmark, recomputed from the logs of the runs only."""

import csv
import math
from pathlib import Path
from statistics import mean

from operators.norms import over_defined
from pdegen.ownership import DamagedError, read_json
from pipelines.config.benchmark import Benchmark, Case
from pipelines.runs.finished import read_result
from pipelines.runs.folder import RunError, recorded_history
from pipelines.runs.score import Score
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.choice import tried
from pipelines.studies.row import Row, mean_measured


def break_evens(folder: Path) -> dict[str, tuple[float, float]]:
    """The break-even of each case: first as computed from the logs, then as stated in table.csv.

    A break-even is the number of solves after which an operator saves time. The logs contain the
    time of every epoch, the scores of the reported checkpoints, and the measured times of
    predictions and of the solver.

    Raises:
        RunError: If the folder contains no finished benchmark, or its logs are incomplete.
        ReportError: If a file of a run is damaged, or belongs to another run.
    """
    try:
        declared = read_json(folder / "benchmark.json")
        table = (folder / "table.csv").read_text("utf-8")
    except (OSError, DamagedError):
        raise RunError(f"{folder} holds no finished benchmark") from None
    stores = declared.pop("stores")
    benchmark = Benchmark.parse({k: v for k, v in declared.items() if v is not None}, str(folder))
    run, numbers = BenchmarkRun(benchmark, stores, folder), dict[str, tuple[float, float]]()
    for line in csv.DictReader(table.splitlines()):
        if line["break-even"]:
            case = Case(line["dataset"], line["operator"], line["protocol"])
            numbers[str(case)] = _logged(run, case), float(line["break-even"])
    if not numbers:
        raise RunError(f"{folder} has no break-even: no dataset declares a coarser solver")
    return numbers


def _logged(run: BenchmarkRun, case: Case) -> float:
    """Break-even of a case, computed from the logs in its run folders."""
    measure, solver = run.benchmark.datasets[case.dataset].measure, run.solver(case.dataset)
    parts = [(case, seed) for seed in range(run.benchmark.seeds_on(case.dataset))]
    rows = [row for row in map(run.kept, parts) if row is not None and not row.failed]
    if solver is None or not rows:
        raise RunError(f"{run.folder}: the measurements of {case} are missing")
    folders = [run.training_of(row).folder for row in rows]
    scores = [read_result(folder).scores for folder in folders]
    error = mean(_error(score.results[0], measure) for score in scores)
    if error >= min(_error(score, measure) for score in scores[0].trivial):
        return math.inf
    spent = mean(map(_seconds, folders)) + mean(_searched(run, case, row) for row in rows)
    saved = solver.seconds(error) - mean_measured(row.inference_seconds for row in rows)
    data = solver.samples * solver.solves[0].seconds
    return (data + spent) / saved if saved > 0 else math.inf


def _error(score: Score, measure: str) -> float:
    return over_defined(mean, score.measured(measure))


def _seconds(folder: Path) -> float:
    return sum(epoch.seconds for epoch in recorded_history(folder))


def _searched(run: BenchmarkRun, case: Case, row: Row) -> float:
    """Time in seconds that the search or the budget spent on settings that it did not choose."""
    if not row.chosen:
        return 0.0
    others = [chosen for chosen in tried(run, case) if chosen != row.chosen]
    folders = [run.training(case, 0, chosen).folder for chosen in others]
    return sum(_seconds(folder) for folder in folders if folder.exists())
