"""Results of a benchmark in a folder: errors and costs of each operator on each dataset, for each
seed."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from pydantic import ValidationError

from operators.norms import over_defined
from operators.training.evaluate import predictions
from operators.training.fit import Epoch, TrainingError
from operators.training.step import AS_WRITTEN, Acceleration
from pdegen.ownership import DamagedError, read_json, write_json
from pdegen.schema import SchemaError
from pipelines.config.benchmark import Benchmark, Case
from pipelines.config.shipped import slug
from pipelines.runs.checks import check_training
from pipelines.runs.data import Source
from pipelines.runs.evaluation import compute_score, evaluate_run, provenance, trivial_scores
from pipelines.runs.finished import TRIVIAL, label_error
from pipelines.runs.folder import FolderClaim, RunError, recorded_history
from pipelines.runs.predictions import experiment_key
from pipelines.runs.score import Score, measures_of
from pipelines.studies.cases import cases_on, nothing_left
from pipelines.studies.choice import begun_budget, settings_of, tuning_seconds
from pipelines.studies.cost import Steps, step_cost, step_seconds
from pipelines.studies.row import NO_MEMORY, Row
from pipelines.studies.runner import Execution, Study, StudyTraining
from pipelines.studies.solver import SAMPLES, SolverCost, recipe_of, solver_cost

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
        parts: The parts of the table; by default all (`pipelines.studies.extended`).
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
        """Raise RunError if the run folders of a part have finished trainings with other
        settings."""
        for chosen in self.benchmark.searched(case) or [{}]:
            self.training(case, seed, chosen).check_folder()
        if self.benchmark.budget is not None:
            for chosen in begun_budget(self, case, seed):
                self.training(case, seed, chosen).check_folder()

    def _check_measure(self, case: Case, source: Source) -> None:
        """Raise SchemaError if the error measure that a dataset declares cannot be computed from
        its samples."""
        pairs = source.samples("test", noise=None)
        measure = self.benchmark.datasets[case.dataset].measure
        first = pairs.first()
        measures = ["l2", *measures_of(first.u, first, pairs, source.task)]
        if measure not in measures:
            raise SchemaError(
                f"unknown measure {measure}; measures of these data: {', '.join(measures)}"
            )

    def _measure(self, row: Row, device: torch.device) -> None:
        """Measure the costs of a row, with as many threads as its training used.

        The costs stay 0 if there is not enough memory to measure them.
        """
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
