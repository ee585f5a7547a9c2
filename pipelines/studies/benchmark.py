"""Results of a benchmark in a folder: errors and costs of each operator on each dataset, for each
seed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count, takewhile
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from pydantic import ValidationError

from operators.base import Operator
from operators.norms import RelativeL2, over_defined
from operators.plugins import file_of
from operators.registry import build_operator
from operators.training.evaluate import predictions
from operators.training.fit import Epoch, TrainingError
from operators.training.identity import key_of
from operators.training.step import AS_WRITTEN, Acceleration, is_out_of_memory
from pdegen.files import DamagedError, read_json, write_json
from pdegen.schema import SchemaError
from pdegen.store.format import MetadataError
from pdegen.store.reading import StoreError, open_sealed
from pipelines.config.benchmark import Benchmark, Budget, Case, Profile
from pipelines.config.shipped import slug
from pipelines.runs.checks import check_training
from pipelines.runs.data import Source
from pipelines.runs.evaluation import (
    compute_score,
    evaluate_run,
    provenance,
    trivial_scores,
    trivial_validation_error,
)
from pipelines.runs.finished import TRIVIAL, label_error, read_result
from pipelines.runs.folder import FolderClaim, RunError, recorded_history
from pipelines.runs.predictions import experiment_key
from pipelines.runs.score import Score, measures_of
from pipelines.studies.cost import (
    SAMPLES,
    SolverCost,
    Steps,
    held_bytes,
    recipe_of,
    solver_cost,
    step_cost,
    step_seconds,
)
from pipelines.studies.runner import (
    NO_MEMORY,
    Ended,
    Execution,
    Row,
    Study,
    StudyTraining,
    count_time,
    doubled,
    mean_measured,
    seconds,
)


def cases_on(benchmark: Benchmark, dims: Mapping[str, int]) -> list[Case]:
    """The cases of a benchmark whose operator supports the dimension of the dataset.

    `dims` has the dimension of each dataset.
    """
    return [
        case
        for case in benchmark.cases()
        if benchmark.operators[case.operator].models
        or dims[case.dataset] in benchmark.model(case).dims()
    ]


def check_cases(benchmark: Benchmark, dims: Mapping[str, int], wanted: Collection[str]) -> None:
    """Raise SchemaError if there is no case, or a requested operator supports no dataset."""
    left = {case.operator for case in cases_on(benchmark, dims)}
    datasets = ", ".join(f"{dataset}: {dim}" for dataset, dim in dims.items())
    for label in (label for label in wanted if label not in left):
        model: Any = benchmark.operators[label].model
        raise SchemaError(
            f"{label}: {model.name} supports domains of dimension "
            f"{', '.join(map(str, model.dims()))}; "
            f"the datasets have {datasets}"
        )
    if not left:
        raise nothing_left(benchmark)


def nothing_left(benchmark: Benchmark) -> SchemaError:
    """SchemaError for a benchmark that has no case."""
    return SchemaError(
        f"benchmark {benchmark.name}: no operator supports the dimension of "
        f"{', '.join(benchmark.datasets)}"
    )


EPOCHS = "training.epochs"


def settings_of(run: BenchmarkRun, case: Case, how: Execution) -> tuple[dict[str, Any], Ended]:
    """The settings that the search or the budget chooses, and why the budget ended."""
    words = filter(None, [slug(case.dataset), slug(case.operator), case.protocol, "search"])
    claim = run.folder / "claims" / "--".join(words)
    with how.wait_and_hold(claim):  # one search for all seeds
        if run.benchmark.budget is None or case.protocol == "published":
            return _searched_values(run, case, how), ""
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


def _searched_values(run: BenchmarkRun, case: Case, how: Execution) -> dict[str, Any]:
    """The settings with the smallest validation error among all settings tried."""
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


PROFILE_HOLDING = FolderClaim(
    "profile", "profile.json", "use --overwrite, or --resume to finish it"
)


@dataclass(frozen=True)
class ProfileRun(Study[str]):
    """A profile whose results are stored in a folder. Each part is the name of an operator."""

    profile: Profile
    folder: Path

    def check(self, device: torch.device) -> None:
        for label, entry in self.profile.operators.items():
            a, _, x = self._functions(device)
            try:
                with torch.no_grad():
                    self._operator(label, device).eval()(a[:1], x)
            except (
                ValueError,
                RuntimeError,
            ) as error:  # for example a grid too coarse for the modes
                if isinstance(error, RuntimeError) and is_out_of_memory(error):
                    raise
                where = f"{label} in profile {self.profile.name}"
                raise SchemaError(f"{where}: model {entry.model.name}: {error}") from error

    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        PROFILE_HOLDING.check(self.folder, resume, overwrite)
        if resume:
            self.check_device(device)
        declared = self.profile.model_dump(mode="json")
        PROFILE_HOLDING.claim(self.folder, declared, resume=resume, overwrite=overwrite)

    def stages(self) -> Sequence[Sequence[str]]:
        return [list(self.profile.operators)]

    def row_path(self, part: str) -> Path:
        return self.folder / "rows" / f"{list(self.profile.operators).index(part)}.json"

    def digest(self, part: str) -> str:
        file = file_of(self.profile.operators[part].model.operator)  # of a user's own operator
        digest = None if file is None else file["sha256"]
        return key_of(operator=part, profile=self.profile.model_dump(mode="json"), file=digest)

    def progress_line(self, part: str, row: Row) -> str:
        return f"{part}: {row.step_seconds:.3g} s"

    def make(self, part: str, how: Execution) -> Row:
        a, u, x = self._functions(how.device)
        operator, loss = self._operator(part, how.device).train(), RelativeL2()
        optimizer = torch.optim.Adam(operator.parameters(), lr=1e-6, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            loss(operator(a, x), u, a).backward()
            optimizer.step()

        row = Row(
            made_from=self.digest(part),
            operator=part,
            parameters=operator.parameter_count,
            provenance=provenance(how.device),
        )
        row.step_held_bytes = held_bytes(step, how.device)
        row.cost = step_cost(step, operator, optimizer, how.device)
        return row

    def _functions(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random functions a and u, and the points x of the circle."""
        torch.manual_seed(0)
        n = self.profile.points
        x = (torch.arange(n, device=device) / n)[:, None]
        a, u = torch.randn(2, self.profile.batch, n, 1, device=device)
        return a, u, x

    def _operator(self, label: str, device: torch.device) -> Operator:
        model = self.profile.operators[label].model.model_dump(mode="json")
        described = {"model": model, "in_channels": 1, "out_channels": 1, "dim": 1}
        return build_operator(described).to(device)


HOLDING = FolderClaim("benchmark", "benchmark.json")
SOME = 16  # test samples in the batch of a timed prediction
_NO_MEMORY = (MemoryError, torch.OutOfMemoryError)
Seeded = tuple[Case, int]


@dataclass(frozen=True)
class BenchmarkRun(Study[Seeded]):
    """A benchmark whose results are stored in a folder.

    Each training has an ordinary run folder such as `runs/DATASET/OPERATOR/seed-0`. Each finished
    training also has a row in `rows/`. If a training diverges or runs out of memory, its row says
    so.

    Args:
        stores: URL of the store of each dataset.
        seed: The only seed to compute rows for; by default all seeds.
        parts: The parts of the table; by default all (`pipelines.studies.benchmark`).
    """

    benchmark: Benchmark
    stores: Mapping[str, str]
    folder: Path
    seed: int | None = None
    parts: tuple[Seeded, ...] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as JSON, because the classes of operator settings are created at import."""
        declared = self.benchmark.model_dump_json(exclude_none=True)
        return _from_text, (declared, dict(self.stores), self.folder, self.seed, self.parts)

    @cached_property
    def cases(self) -> list[Case]:
        """All cases whose operator supports the dimension of the dataset."""
        dims = {
            dataset: self.source(dataset).stored("test").dim for dataset in self.benchmark.datasets
        }
        cases, chosen = cases_on(self.benchmark, dims), {case for case, _ in self.parts or ()}
        return [case for case in cases if self.parts is None or case in chosen]

    def source(self, dataset: str) -> Source:
        return Source(self.stores[dataset], self.benchmark.datasets[dataset].load())

    def rows(self) -> list[Row]:
        """The finished rows that are not stale, in the order of the cases."""
        order = {case: number for number, case in enumerate(self.cases)}
        return sorted(super().rows(), key=lambda row: order[row_case(row)])

    def training(self, case: Case, seed: int, chosen: Mapping[str, object]) -> StudyTraining:
        words = [f"{key.rsplit('.', 1)[-1]}-{value}" for key, value in chosen.items()]
        name = [case.protocol] if case.protocol else []
        folder = self.run_folder(case, "-".join([*name, f"seed-{seed}", *words]))
        experiment = self.benchmark.experiment(case, seed, chosen)
        return StudyTraining(experiment, self.stores[case.dataset], folder)

    def training_of(self, row: Row) -> StudyTraining:
        return self.training(row_case(row), row.seed, row.chosen)

    def history(self, row: Row) -> list[Epoch]:
        return recorded_history(self.training_of(row).folder)

    def run_folder(self, case: Case, name: str) -> Path:
        return self.folder / "runs" / slug(case.dataset) / slug(case.operator) / name

    def trivial(self, dataset: str) -> dict[str, float]:
        """Mean test errors of the trivial predictors, keyed by name. Trivial predictors have no
        weights."""
        if dataset not in self._trivial:
            source, folder = self.source(dataset), self.folder / "runs" / slug(dataset)
            scores = trivial_scores(source, folder, torch.device("cpu"))
            measure = self.benchmark.datasets[dataset].measure
            self._trivial[dataset] = {
                TRIVIAL[score.checkpoint]: over_defined(mean, score.measured(measure))
                for score in scores
            }
        return self._trivial[dataset]

    @cached_property
    def _trivial(self) -> dict[str, dict[str, float]]:
        return {}

    def label_error(self, dataset: str) -> float | None:
        """Mean error of the test labels, as recorded in their store; None if the store records no
        errors.
        """
        return label_error(self.source(dataset))

    def has_coarser_solver(self, dataset: str) -> bool:
        """Whether the cost of a dataset's solver is also measured at coarser resolutions.

        This requires that the benchmark declares such resolutions and that a recipe generated the
        store.

        Raises:
            SchemaError: See `recipe_of`.
        """
        coarser = self.benchmark.datasets[dataset].coarser
        return bool(coarser) and recipe_of(self.stores[dataset], coarser) is not None

    def solver(self, dataset: str) -> SolverCost | None:
        """Measured cost of a dataset's solver; None if it has not been measured."""
        try:
            cost = SolverCost.model_validate(read_json(self._solver_path(dataset)))
        except (FileNotFoundError, DamagedError, ValidationError):
            return None
        return cost if cost.made_from == self._solver_digest(dataset) else None

    def _solver_path(self, dataset: str) -> Path:
        return self.folder / "solvers" / f"{slug(dataset)}.json"

    def _solver_digest(self, dataset: str) -> str:
        declared, source = self.benchmark.datasets[dataset], self.source(dataset)
        how = {"coarser": declared.coarser, "measure": declared.measure, "solved": SAMPLES}
        return experiment_key(source.experiment, source.url, **how)

    def _measure_solver(self, dataset: str) -> None:
        declared, label = self.benchmark.datasets[dataset], self.label_error(dataset)
        cost = SolverCost(
            made_from=self._solver_digest(dataset),
            provenance=provenance(torch.device("cpu")) | {"threads": 1},
            **solver_cost(self.source(dataset), declared.coarser, declared.measure, label),
        )
        self.keep_solver(dataset, cost)

    def keep_solver(self, dataset: str, cost: SolverCost) -> None:
        write_json(self._solver_path(dataset), cost.model_dump(mode="json"))

    # interface of the runner

    def check(self, device: torch.device) -> None:
        if not self.cases:
            raise nothing_left(self.benchmark)
        for case in self.cases:
            for chosen in self.benchmark.searched(case) or [{}]:
                self._check(case, chosen, device)
        for dataset in self.benchmark.datasets:
            self.has_coarser_solver(dataset)  # raises if the recipe is not the store's

    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        check_place(self.benchmark.name, self.folder, resume, overwrite)
        if resume:
            self.check_device(device)
            for part in (part for stage in self.stages() for part in stage):
                self._check_folders(*part)
        path = self.folder / HOLDING.file
        if self.seed is None or not path.exists():
            declared = {**self.benchmark.model_dump(mode="json"), "stores": dict(self.stores)}
            HOLDING.claim(self.folder, declared, resume=resume, overwrite=overwrite)
            return
        recorded = read_json(path)  # of the table that these rows belong to
        stores = {**recorded.get("stores", {}), **self.stores}
        if stores != recorded.get("stores"):
            write_json(path, {**recorded, "stores": stores})

    def stages(self) -> Sequence[Sequence[Seeded]]:
        """A single stage with all parts, ordered by seed.

        All seeds use the settings that a search or a budget chooses with seed 0. Trainings with
        other seeds wait for this choice.
        """
        if self.parts is not None:
            return [self.parts]
        seeds = range(self.benchmark.most_seeds) if self.seed is None else [self.seed]
        return [[
            (case, seed) for seed in seeds for case in self.cases
            if seed < self.benchmark.seeds_on(case.dataset)
        ]]  # fmt: skip

    def row_path(self, part: Seeded) -> Path:
        case, seed = part
        words = [slug(case.dataset), slug(case.operator), case.protocol, f"seed-{seed}"]
        return self.folder / "rows" / f"{'--'.join(filter(None, words))}.json"

    def digest(self, part: Seeded) -> str:
        (case, seed), budget = part, self.benchmark.budget
        return experiment_key(
            self.benchmark.experiment(case, seed, {}),
            self.stores[case.dataset],
            searched=self.benchmark.searched(case),
            measure=self.benchmark.datasets[case.dataset].measure,
            **({} if budget is None else {"budget": budget.model_dump()}),
        )

    def progress_line(self, part: Seeded, row: Row) -> str:
        return f"{part[0]}: {row.failed or f'{row.mean:.3e}'}"

    def make(self, part: Seeded, how: Execution) -> Row:
        case, seed = part
        row = Row(
            made_from=self.digest(part),
            dataset=case.dataset,
            operator=case.operator,
            protocol=case.protocol,
            seed=seed,
            provenance={**provenance(how.device), "steps": str(Acceleration.chosen(how.device))},
        )
        try:
            row.chosen, row.ended = settings_of(self, case, how)
            row.tuning_seconds = tuning_seconds(self, case, row.chosen)
            training = self.training(case, seed, row.chosen)
            training.run(how)
            _evaluate(row, training, self.benchmark.datasets[case.dataset].measure, how.device)
            if how.measures_costs:
                self._measure(row, how.device)
        except TrainingError as error:
            row.failed = str(error)
        except _NO_MEMORY as error:
            row.failed = f"{NO_MEMORY}: {str(error).splitlines()[0]}"
        return row

    def finish(self, how: Execution, progress: Callable[[str], None]) -> None:
        """Measure the costs of training steps, predictions and solvers, one after another."""
        for row in self.rows():
            part = row_case(row), row.seed
            if row.failed or row.has_costs:
                continue
            with how.wait_and_hold(self._claimed(part)):
                row = self.kept(part)  # another process may have measured it
                if row is None or row.has_costs:
                    continue
                self._measure(row, how.device)
                self.keep(part, row)
            progress(f"{part[0]}: {row.step_seconds:.3g} s a step")
        for dataset in self.benchmark.datasets if self.seed is None else ():
            if self.has_coarser_solver(dataset) and self.solver(dataset) is None:
                with how.wait_and_hold(self.folder / "claims" / f"{slug(dataset)}--solver"):
                    if self.solver(dataset) is None:  # another process may have measured it
                        self._measure_solver(dataset)
                progress(f"solver of {dataset}: measured")

    def _check(self, case: Case, chosen: Mapping[str, object], device: torch.device) -> None:
        experiment = self.benchmark.experiment(case, 0, chosen)
        source = Source(self.stores[case.dataset], experiment)
        for resolution in experiment.resolutions:
            source.stored("test", resolution)
        try:
            self._check_measure(case, source)
            check_training(experiment, source, device)
        except ValueError as error:
            raise SchemaError(f"{case}: {error}") from error

    def _check_folders(self, case: Case, seed: int) -> None:
        """Raise RunError if run folders have finished trainings with other settings."""
        for chosen in self.benchmark.searched(case) or [{}]:
            self.training(case, seed, chosen).check_folder()
        if self.benchmark.budget is not None:
            for chosen in begun_budget(self, case, seed):
                self.training(case, seed, chosen).check_folder()

    def _check_measure(self, case: Case, source: Source) -> None:
        """Raise SchemaError if a dataset's error measure cannot be computed from its samples."""
        pairs = source.samples("test", noise=None)
        measure = self.benchmark.datasets[case.dataset].measure
        first = pairs.first()
        measures = ["l2", *measures_of(first.u, first, pairs, source.task)]
        if measure not in measures:
            raise SchemaError(
                f"unknown measure {measure}; measures of these data: {', '.join(measures)}"
            )

    def _measure(self, row: Row, device: torch.device) -> None:
        """Measure the costs of a row, with as many threads as its training used."""
        training, case = self.training_of(row), row_case(row)
        row.tuning_seconds = tuning_seconds(self, case, row.chosen)  # older rows have none
        some = (
            Source(training.store, training.experiment)
            .samples("test", noise=None)
            .rows(slice(SOME))
            .resident()
            .to(device)
        )
        predictor = training.predictor(device)
        finest = training.experiment.data.finest_resolution
        pairs = Source(training.store, training.experiment).samples(
            "train", "training", resolution=finest, device=device
        )
        batch = next(pairs.in_order(training.experiment.training.batch))
        how, threads = Acceleration.chosen(device), torch.get_num_threads()
        torch.set_num_threads(row.provenance["threads"])
        try:
            inference = step_seconds(lambda: predictions(predictor, some), device)
            row.inference_seconds = inference / len(some)
            if row.step_seconds:
                return
            steps = Steps(training.experiment, pairs, AS_WRITTEN)  # counted one by one
            cost = step_cost(lambda: steps(batch), steps.predictor, steps.optimizer, device)
            if how != AS_WRITTEN:
                steps = Steps(training.experiment, pairs, how)
                cost = replace(cost, seconds=step_seconds(lambda: steps(batch), device))
        except _NO_MEMORY:
            return
        finally:
            torch.set_num_threads(threads)
        row.cost = cost


def _evaluate(row: Row, training: StudyTraining, measure: str, device: torch.device) -> None:
    """Compute the errors of a finished training and enter them in its row."""
    experiment, store = training.experiment, training.store
    grid = experiment.data.finest_resolution
    alone = experiment.model_copy(update={"resolutions": (grid,)})
    summary = evaluate_run(alone, store, training.folder, device)
    main, *others = map(Score.of, summary["results"])
    row.errors, row.epoch = list(main.measured(measure)), main.epoch
    row.means = {grid: row.mean}
    row.measures = {
        name: over_defined(mean, main.measured(name))
        for name in ("l2", *main.measures)
        if name != measure
    }
    if "block" in main.measures:  # the relative L² error
        row.measures.pop("l2" if measure != "l2" else "block", None)
    for other in others:  # only with the protocol "published"
        row.best = over_defined(mean, other.measured(measure))
        row.best_epoch = other.epoch
    row.parameters, row.training_seconds = summary["parameters"], summary["training_seconds"]
    predictor, source = training.predictor(device), Source(store, experiment)
    for resolution in (n for n in experiment.resolutions if n != grid):
        pairs = source.samples("test", resolution=resolution, device=device)
        try:
            score = compute_score(predictor, pairs, source.task)
            row.means[resolution] = over_defined(mean, score.measured(measure))
        except ValueError as error:  # for example a fixed grid of sensors
            row.refused[resolution] = str(error).splitlines()[0]
        except _NO_MEMORY:
            row.refused[resolution] = NO_MEMORY


def _from_text(
    declared: str, stores: Mapping[str, str], folder: Path, *chosen: Any
) -> BenchmarkRun:
    return BenchmarkRun(Benchmark.parse(json.loads(declared), "benchmark"), stores, folder, *chosen)


def row_case(row: Row) -> Case:
    return Case(row.dataset, row.operator, row.protocol)


def check_place(name: str, folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError if a folder contains anything other than this benchmark."""
    if not HOLDING.check(folder, True, False):
        return
    try:
        other = read_json(folder / HOLDING.file)["name"]
    except (DamagedError, KeyError):
        raise RunError(f"{folder} holds a damaged benchmark.json: choose another --out") from None
    if other != name:
        raise RunError(f"{folder} holds the benchmark {other}: choose another --out")
    HOLDING.check(folder, resume, overwrite)


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


def extended(run: BenchmarkRun, whole: Benchmark) -> BenchmarkRun:
    """The table of a run, together with the finished rows that its folder holds.

    Only what the run asks for is computed. Rows of other cases of `whole` belong to the table if
    they are finished and were computed from the same settings and stores. Their files stay.
    """
    try:
        recorded = read_json(run.folder / HOLDING.file)["stores"]
    except (FileNotFoundError, DamagedError, KeyError):
        return run
    stores = {
        label: url
        for label, url in {**recorded, **run.stores}.items()
        if label in whole.datasets and (label in run.stores or _opens(url))
    }
    everything = BenchmarkRun(whole.installed().only([], list(stores)), stores, run.folder)
    finished = [part for (stage,) in [everything.stages()] for part in stage
                if everything.kept(part) is not None]  # fmt: skip
    requested = {part for stage in run.stages() for part in stage}
    order = whole.cases()
    parts = sorted(requested.union(finished), key=lambda part: (part[1], order.index(part[0])))
    operators, datasets = {case.operator for case, _ in parts}, {case.dataset for case, _ in parts}
    table = whole.only(
        [label for label in whole.operators if label in operators],
        [label for label in whole.datasets if label in datasets],
    )
    table_stores = {label: stores[label] for label in table.datasets}
    return BenchmarkRun(table, table_stores, run.folder, parts=tuple(parts))


def _opens(store: str) -> bool:
    """Whether a finished store is at this place."""
    try:
        open_sealed(store)
    except (StoreError, MetadataError, OSError):
        return False
    return True
