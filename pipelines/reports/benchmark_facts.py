"""Facts in the report of a benchmark: the protocol of a dataset, and the costs of its solver."""

from pdegen.store.reading import open_sealed
from pipelines.config.shipped import records
from pipelines.reports.studies import Facts, of_data
from pipelines.reports.wording import (
    duration,
    listed,
    part_of,
    scientific,
    settings,
    trained_points,
)
from pipelines.studies.benchmark import BenchmarkRun
from pipelines.studies.runner import LEARNED


def protocol_facts(run: BenchmarkRun, dataset: str) -> Facts:
    """Settings that all operators share."""
    experiment, store = run.benchmark.datasets[dataset].load(), run.stores[dataset]
    data, benchmark = experiment.data, run.benchmark
    tried = {**benchmark.search, "factor of the width": benchmark.widths}
    searched = [f"{key} from {', '.join(map(str, of))}" for key, of in tried.items() if of]
    number = max(len(benchmark.searched(case)) for case in run.cases)
    by = f"; {number} trainings per operator, chosen by the validation error of seed 0"
    stored = open_sealed(store).samples_in("train")
    training = experiment.training.model_dump(mode="json", exclude_none=True)
    training |= {"protocol": " and ".join(benchmark.protocols) or training["protocol"]}
    inputs, targets = map(listed, experiment.variables)
    grid = trained_points(data.training_resolutions, run.source(dataset).stored("test").domain)
    return [
        *of_data(store, f"{inputs} → {targets} on {grid} points"),
        ("Trained on", part_of(data.samples, stored)),
        ("Training", settings(training)),
        ("Normalisation", settings(experiment.normalization.model_dump(exclude_none=True))),
        (
            "Searched",
            " x ".join(searched) + by
            if searched
            else "nothing: all operators have the same settings",
        ),
        *_record(run, dataset),
        *_budget(run, dataset),
        ("Seeds", str(benchmark.seeds_on(dataset))),
        *_solver(run, dataset),
    ]


def _record(run: BenchmarkRun, dataset: str) -> Facts:
    """The smallest published error on the dataset, in benchmarks that have published figures."""
    experiment = run.benchmark.datasets[dataset].load()
    recipe, forward = experiment.data.recipe, experiment.variables[1] == "u"
    published = any(entry.published for entry in run.benchmark.operators.values())
    if not (published and forward and recipe in records()):
        return []
    return [("Smallest published error", records()[recipe].sentence)]


def _budget(run: BenchmarkRun, dataset: str) -> Facts:
    """The rule by which the epochs of each operator are chosen."""
    budget = run.benchmark.budget
    if budget is None:
        return []
    rule = (
        f"{run.benchmark.datasets[dataset].load().training.epochs}, doubled until the validation "
        f"error of seed 0 is below {LEARNED} times that of the best predictor without learning and "
        f"falls by less than {budget.flat:.0%}, or until {budget.seconds:g} s are spent on all "
        "trainings of an operator"
    )
    return [("Epochs", rule)]


def _solver(run: BenchmarkRun, dataset: str) -> Facts:
    """Costs of the numerical solver, from which the break-even is computed."""
    cost = run.solver(dataset)
    if cost is None:
        coarser = run.benchmark.datasets[dataset].coarser
        if coarser and not run.has_coarser_solver(dataset):
            return [("Solver", "not measured: the store was not made by a recipe")]
        return []
    first, *coarser = cost.solves
    words = [f"labels {duration(first.seconds)} a sample"]
    for solve in coarser:
        changed = {key.removeprefix("problem."): v for key, v in solve.overrides.items()}
        spent = f"{duration(solve.seconds)}, error {scientific(solve.error)}"
        words.append(f"{settings(changed)}: {spent}")
    return [("Solver, at several resolutions", "; ".join(words))]
