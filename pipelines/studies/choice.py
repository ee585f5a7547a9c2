"""Choice of the settings of a benchmark's trainings, by its search or its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from operators.training.fit import TrainingError
from pipelines.config.benchmark import Budget, Case
from pipelines.config.shipped import slug
from pipelines.runs.evaluation import trivial_validation_error
from pipelines.runs.folder import recorded_history
from pipelines.studies.budget import Ended, count_time, doubled, seconds
from pipelines.studies.runner import Execution

if TYPE_CHECKING:
    from pipelines.studies.benchmark import BenchmarkRun

EPOCHS = "training.epochs"


def settings_of(run: BenchmarkRun, case: Case, how: Execution) -> tuple[dict[str, Any], Ended]:
    """The settings that the search or the budget chooses, and why the budget ended."""
    words = filter(None, [slug(case.dataset), slug(case.operator), case.protocol, "search"])
    claim = run.folder / "claims" / "--".join(words)
    with how.wait_and_hold(claim):  # one search for all seeds
        if run.benchmark.budget is None or case.protocol == "published":
            return _searched(run, case, how), ""
        return _budgeted(run, case, run.benchmark.budget, how)


def _budgeted(
    run: BenchmarkRun, case: Case, budget: Budget, how: Execution
) -> tuple[dict[str, Any], Ended]:
    """The number of epochs that a budget chooses, as a setting, and why the budget ended."""

    def train(epochs: int) -> tuple[float, float]:
        training = run.training(case, 0, {EPOCHS: epochs})
        history = training.finished()
        if history is None:
            training.check_folder()
            with count_time(training.folder, training.begun, how.device):
                history = training.run(how)
        spent = seconds(training.folder) or sum(epoch.seconds for epoch in history)
        return min(epoch.score for epoch in history), spent

    experiment, store = run.benchmark.experiment(case, 0, {}), run.stores[case.dataset]
    trivial = partial(trivial_validation_error, experiment, store, how.device)
    epochs, ended = doubled(budget, experiment.training.epochs, train, trivial)
    return {EPOCHS: epochs}, ended


def begun_budget(run: BenchmarkRun, case: Case, seed: int) -> list[dict[str, Any]]:
    """The settings of a budget whose run folders exist, whatever training they have."""

    def exists(chosen: Mapping[str, object]) -> bool:
        return run.training(case, seed, chosen).folder.exists()

    return [*takewhile(exists, _doublings(run, case))]


def _doublings(run: BenchmarkRun, case: Case) -> Iterator[dict[str, Any]]:
    """The settings that a budget tries, one after another."""
    first = run.benchmark.experiment(case, 0, {}).training.epochs
    return ({EPOCHS: first * 2**k} for k in count())


def tried(run: BenchmarkRun, case: Case) -> Sequence[Mapping[str, object]]:
    """All settings that the search or the budget has tried."""
    if run.benchmark.budget is None:
        return run.benchmark.searched(case)
    return [*takewhile(lambda chosen: run.training(case, 0, chosen).begun, _doublings(run, case))]


def _searched(run: BenchmarkRun, case: Case, how: Execution) -> dict[str, Any]:
    """The settings with the smallest validation error among all settings tried. Settings whose
    training diverges are ignored.
    """
    best: dict[str, Any] = {}
    smallest, failure = float("inf"), None
    for chosen in run.benchmark.searched(case):
        try:
            history = run.training(case, 0, chosen).run(how)
        except TrainingError as error:
            failure = error
            continue
        score = min(epoch.score for epoch in history)
        if score < smallest:
            best, smallest = chosen, score
    if not best and failure is not None:
        raise failure
    return best


def tuning_seconds(run: BenchmarkRun, case: Case, chosen: Mapping[str, object]) -> float:
    """Time in seconds of the trainings whose settings the search or the budget did not choose."""
    others = [values for values in tried(run, case) if values != chosen]
    folders = [run.training(case, 0, values).folder for values in others]
    return sum(e.seconds for f in folders if f.exists() for e in recorded_history(f))
