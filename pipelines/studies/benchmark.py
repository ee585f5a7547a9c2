"""A benchmark in its folder: trainings, one after another or several at a time, and their rows."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError

from operators.norms import relative_l2
from operators.training.checkpoint import check_checkpoint, load_checkpoint
from operators.training.evaluate import scores
from operators.training.files import DamagedError, FileError, read, read_json, write, write_json
from operators.training.fit import Epoch, Stopped, TrainingError, read_history
from operators.training.step import AS_WRITTEN, Acceleration
from operators.transforms import Predictor
from pdegen.schema import SchemaError
from pdegen.store.store import open_sealed
from pipelines.declared.benchmark import Benchmark, Case, slug
from pipelines.declared.experiment import Experiment
from pipelines.declared.models import build_operator
from pipelines.measure.cost import step_cost, step_seconds
from pipelines.measure.steps import Steps
from pipelines.runs.data import Source
from pipelines.runs.folder import RunError, check_folder, clear
from pipelines.runs.run import checked_operator, evaluate_run, provenance, train_part

_DECLARED = "benchmark.json"
_NO_MEMORY = (MemoryError, torch.OutOfMemoryError)
_NO_MEMORY_WORDS = "not enough memory"
_POLL = 0.5  # seconds between looks at whether to stop


class Row(BaseModel):
    """What came of one training.

    Args:
        made_from: Digest of what it was computed from; another one makes it stale.
        dataset, operator, seed: Which.
        chosen: What the search found.
        parameters: Trainable real numbers.
        epoch: The one that is reported.
        best, best_epoch: Mean error of the epoch that is best on the test samples, where the
            protocol watches them.
        errors: Relative L² error of each test sample, on the training grid.
        means: Mean of them on every grid, where the operator can.
        refused: Why it cannot, by grid.
        training_seconds: Evaluations on the selection samples included.
        step_seconds, step_bytes, step_flops: `pipelines.measure.cost.Cost`, measured alone when all
            trainings are over.
        failed: Why there are no errors; empty where there are.
        provenance: Software and hardware.
    """

    made_from: str
    dataset: str
    operator: str
    seed: int
    chosen: dict[str, Any] = {}
    parameters: int = 0
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    errors: list[float] = []
    means: dict[int, float] = {}
    refused: dict[int, str] = {}
    training_seconds: float = 0.0
    step_seconds: float = 0.0
    step_bytes: int = 0
    step_flops: int = 0
    failed: str = ""
    provenance: dict[str, Any] = {}

    @property
    def mean(self) -> float:
        return sum(self.errors) / len(self.errors)

    @property
    def again(self) -> bool:
        """Whether it is to be made again when a benchmark is resumed: for want of memory."""
        return self.failed.startswith(_NO_MEMORY_WORDS)


@dataclass(frozen=True)
class BenchmarkRun:
    """A benchmark in its folder: `runs/DATASET/OPERATOR/seed-0`, ..., each an ordinary run folder,
    and `rows/`, where every finished training is kept.

    Args:
        benchmark: What.
        stores: A store for each dataset.
        folder: Where rows, runs and the report are kept.
    """

    benchmark: Benchmark
    stores: Mapping[str, str]
    folder: Path

    @cached_property
    def cases(self) -> list[Case]:
        """Operators on the datasets that they are for."""
        dims = {dataset: self.source(dataset).dim for dataset in self.benchmark.datasets}
        return cases_on(self.benchmark, dims)

    def source(self, dataset: str) -> Source:
        """The data of a dataset."""
        return Source(self.stores[dataset], self.benchmark.datasets[dataset].load())

    def run(
        self,
        device: torch.device,
        *,
        workers: int = 1,
        resume: bool = False,
        overwrite: bool = False,
        progress: Callable[[str, int, int], None] = lambda what, done, total: None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train and evaluate what is not finished yet; with `overwrite` all, from the start.

        A training that diverges or does not fit into memory is a row that says so.

        Args:
            device: What trains and evaluates.
            workers: Trainings at a time; with more than one, each is a process on its share of
                the cores.
            resume, overwrite: Go on with what is in the folder, or replace it.
            progress: Called after each row with what it says, its number and the number of all.
            on_epoch: Called after each epoch; not with several workers.
            stop: Asked again and again.

        Raises:
            SchemaError: If an operator cannot act on a dataset, or none is for any; before anything
                is written.
            DataError: If a store cannot be read as an experiment asks.
            RunError: If the folder holds something else, or is there and not to be resumed.
            Stopped: See `operators.training.fit.fit`; what was stopped goes on with `resume`.
        """
        if not self.cases:
            raise _nothing_left(self.benchmark)
        for case in self.cases:
            self._check(case, device)
        self._claim(device, resume, overwrite)
        total, done = len(self.cases) * self.benchmark.seeds, 0
        for seed in range(self.benchmark.seeds):  # one search is for all seeds
            for row in self._rows_of(seed, device, workers, on_epoch, stop):
                done += 1
                outcome = row.failed or f"{row.mean:.3e}"
                progress(f"{row.operator} on {row.dataset}: {outcome}", done, total)
        for row in self.rows():
            if not row.failed and not row.step_seconds:
                self._measure(row, device)
                progress(f"{row.operator} on {row.dataset}: {row.step_seconds:.3g} s a step",
                         done, total)  # fmt: skip
            if stop():
                raise Stopped("the benchmark was stopped")

    def rows(self) -> list[Row]:
        """The rows that are finished and not stale, in the order of the declaration."""
        found = (
            self._kept(case, seed) for case in self.cases for seed in range(self.benchmark.seeds)
        )
        return [row for row in found if row is not None]

    def run_folder(self, case: Case, name: str) -> Path:
        """The run folder of one training."""
        return self.folder / "runs" / slug(case.dataset) / slug(case.operator) / name

    def folder_of(self, row: Row) -> Path:
        """The run folder of a row."""
        case = Case(row.dataset, row.operator)
        return self.run_folder(case, self._run_name(row.seed, row.chosen))

    def history(self, row: Row) -> list[Epoch]:
        """What was written after each epoch of a row's training."""
        return read_history(self.folder_of(row))

    # one row

    def make(
        self, case: Case, seed: int, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> Row:  # fmt: skip
        """Train and evaluate, and keep the row."""
        row = self._made(case, seed, device, on_epoch, stop)
        self._keep(row)
        return row

    def _rows_of(
        self, seed: int, device: torch.device, workers: int,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> Iterator[Row]:  # fmt: skip
        """All rows of a seed, those that are there first."""
        missing = []
        for case in self.cases:
            row = self._kept(case, seed)
            if row is None or row.again:
                missing.append(case)
            else:
                yield row
        if workers == 1:
            for case in missing:
                yield self.make(case, seed, device, on_epoch, stop)
        elif missing:
            yield from self._in_processes(missing, seed, device, workers, stop)

    def _in_processes(
        self, cases: list[Case], seed: int, device: torch.device, workers: int,
        stop: Callable[[], bool],
    ) -> Iterator[Row]:  # fmt: skip
        context = multiprocessing.get_context("spawn")
        halt = context.Event()
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        # declarations of operators are made when the project is imported, and are not sent
        declared = self.benchmark.model_dump_json(exclude_none=True)
        with ProcessPoolExecutor(workers, context, _begin, (halt, threads)) as pool:
            pending = {
                pool.submit(_make, declared, dict(self.stores), self.folder, case, seed, device)
                for case in cases
            }
            try:
                while pending:
                    done, pending = wait(pending, _POLL, FIRST_COMPLETED)
                    yield from _results(done)
                    if stop():
                        raise Stopped("the benchmark was stopped")
            except BrokenProcessPool:
                raise RunError(
                    "a training was killed, perhaps for want of memory: what is finished is kept, "
                    "continue with --resume and fewer --workers"
                ) from None
            finally:
                halt.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _keep(self, row: Row) -> None:
        place = self._place(Case(row.dataset, row.operator), row.seed)
        write_json(place, row.model_dump(mode="json"))

    def _place(self, case: Case, seed: int) -> Path:
        name = f"{slug(case.dataset)}--{slug(case.operator)}--seed-{seed}.json"
        return self.folder / "rows" / name

    def _made_from(self, case: Case, seed: int) -> str:
        content = {
            "experiment": self.benchmark.experiment(case, seed, {}).model_dump(mode="json"),
            "search": self.benchmark.search,
            "content": self._content(case),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _content(self, case: Case) -> str:
        return open_sealed(self.stores[case.dataset]).attributes["content"]

    def _kept(self, case: Case, seed: int) -> Row | None:
        try:
            row = Row.model_validate(read_json(self._place(case, seed)))
        except (FileNotFoundError, DamagedError, ValidationError):
            return None
        return row if row.made_from == self._made_from(case, seed) else None

    def _check(self, case: Case, device: torch.device) -> None:
        """Raise SchemaError where an operator cannot be trained on a dataset, and DataError where
        the store has not what the experiment asks for."""
        for chosen in self.benchmark.searched() or [{}]:
            self._check_chosen(case, chosen, device)

    def _check_chosen(self, case: Case, chosen: Mapping[str, Any], device: torch.device) -> None:
        experiment = self.benchmark.experiment(case, 0, chosen)
        source = Source(self.stores[case.dataset], experiment)
        for resolution in experiment.resolutions:
            source.streamed("test", resolution)
        try:
            if experiment.data.stream is not None:
                source.training(device)
            checked_operator(experiment, source.streamed("train"))
        except SchemaError as error:
            raise SchemaError(f"{case.operator} on {case.dataset}: {error}") from error

    def _made(
        self, case: Case, seed: int, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> Row:  # fmt: skip
        row = Row(
            made_from=self._made_from(case, seed), dataset=case.dataset, operator=case.operator,
            seed=seed, provenance={**provenance(device), "steps": str(Acceleration.chosen(device))},
        )  # fmt: skip
        try:
            row.chosen = self._searched(case, device, on_epoch, stop)
            experiment = self.benchmark.experiment(case, seed, row.chosen)
            folder = self.run_folder(case, self._run_name(seed, row.chosen))
            self._trained(experiment, case, folder, device, on_epoch, stop)
            self._evaluated(row, experiment, folder, device)
        except TrainingError as error:
            row.failed = str(error)
        except _NO_MEMORY as error:
            row.failed = f"{_NO_MEMORY_WORDS}: {str(error).splitlines()[0]}"
        return row

    def _run_name(self, seed: int, chosen: Mapping[str, Any]) -> str:
        words = [f"{key.rsplit('.', 1)[-1]}-{value}" for key, value in chosen.items()]
        return "-".join([f"seed-{seed}", *words])

    def _searched(
        self, case: Case, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> dict[str, Any]:  # fmt: skip
        """The value with the smallest validation error; those that diverge are out."""
        best: dict[str, Any] = {}
        smallest, failure = float("inf"), None
        for key, values in self.benchmark.search.items():
            for value in values:
                chosen = {key: value}
                experiment = self.benchmark.experiment(case, 0, chosen)
                folder = self.run_folder(case, self._run_name(0, chosen))
                try:
                    history = self._trained(experiment, case, folder, device, on_epoch, stop)
                except TrainingError as error:
                    failure = error
                    continue
                score = min(epoch.score for epoch in history)
                if score < smallest:
                    best, smallest = chosen, score
            if not best and failure is not None:
                raise failure
        return best

    def _trained(
        self, experiment: Experiment, case: Case, folder: Path, device: torch.device,
        on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
    ) -> list[Epoch]:  # fmt: skip
        """History of a training; read where it is finished and undamaged."""
        done, made_of = folder / "done", _digest(experiment, self._content(case))
        if done.exists() and read(done) != made_of:  # of another declaration
            shutil.rmtree(folder)
        try:
            if done.exists():
                for name in experiment.training.reported:
                    check_checkpoint(folder / f"{name}.safetensors")
                return read_history(folder)
        except (FileNotFoundError, FileError):
            pass  # from its state, or again
        store = self.stores[case.dataset]
        history = train_part(experiment, store, folder, device, on_epoch=on_epoch, stop=stop)
        write(done, made_of)
        return history

    def _evaluated(
        self, row: Row, experiment: Experiment, folder: Path, device: torch.device
    ) -> None:
        """Fill a row from a finished training."""
        store, grid = self.stores[row.dataset], experiment.data.resolution
        one = experiment.model_copy(update={"resolutions": (grid,)})
        summary = evaluate_run(one, store, folder, device)
        main, *others = summary["results"]
        row.errors, row.epoch = main["errors"], main["epoch"]
        for other in others:  # of the protocol "published"
            row.best, row.best_epoch = other["mean"], other["epoch"]
        row.means = {grid: main["mean"]}
        row.parameters = summary["parameters"]
        row.training_seconds = summary["training_seconds"]
        predictor, source = self._predictor(experiment, folder, device), Source(store, experiment)
        for resolution in experiment.resolutions:
            if resolution == grid:
                continue
            pairs = source.tested("test", device, resolution)
            try:
                row.means[resolution] = float(scores(predictor, pairs).mean())
            except ValueError as error:  # such as a fixed grid of sensors
                row.refused[resolution] = str(error).splitlines()[0]
            except _NO_MEMORY:
                row.refused[resolution] = _NO_MEMORY_WORDS

    def _predictor(self, experiment: Experiment, folder: Path, device: torch.device) -> Predictor:
        checkpoint = folder / f"{experiment.training.reported[0]}.safetensors"
        return load_checkpoint(checkpoint, build_operator)[0].to(device)

    def _measure(self, row: Row, device: torch.device) -> None:
        """Fill the costs of a row in, on as many threads as it was trained on; they stay 0 where
        memory is short of measuring them."""
        case = Case(row.dataset, row.operator)
        experiment = self.benchmark.experiment(case, row.seed, row.chosen)
        pairs = Source(self.stores[row.dataset], experiment).training(device)
        batch = next(pairs.parts(experiment.training.batch))
        how, threads = Acceleration.chosen(device), torch.get_num_threads()
        torch.set_num_threads(row.provenance["threads"])
        try:
            steps = Steps(experiment, pairs, AS_WRITTEN)  # its operations are seen one by one
            cost = step_cost(lambda: steps(batch), steps.predictor, steps.optimizer, device)
            if how != AS_WRITTEN:
                steps = Steps(experiment, pairs, how)
                cost = replace(cost, seconds=step_seconds(lambda: steps(batch), device))
        except _NO_MEMORY:
            return
        finally:
            torch.set_num_threads(threads)
        row.step_seconds, row.step_bytes, row.step_flops = (
            cost.seconds, cost.peak_bytes, cost.flops,
        )  # fmt: skip
        self._keep(row)

    def _claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        check_place(self.benchmark.name, self.folder, resume, overwrite)
        finished = [row for row in self.rows() if not row.failed]
        made = {row.provenance["device"].split()[0] for row in finished}
        if resume and made - {device.type}:
            raise RunError(f"{self.folder} was made on {made.pop()}: resume it there")
        if overwrite:
            clear(self.folder, _DECLARED)
        content = {**self.benchmark.model_dump(mode="json"), "stores": dict(self.stores)}
        write_json(self.folder / _DECLARED, content)


def cases_on(benchmark: Benchmark, dims: Mapping[str, int]) -> list[Case]:
    """The operators of a benchmark on the datasets, of known dimensions, that they are for."""
    return [
        case
        for case in benchmark.cases()
        if benchmark.operators[case.operator].models
        or dims[case.dataset] in benchmark.model(case).dims()
    ]


def check_cases(benchmark: Benchmark, dims: Mapping[str, int], wanted: Collection[str]) -> None:
    """Raise SchemaError where nothing is left to train, or a wanted operator is for no dataset."""
    left = {case.operator for case in cases_on(benchmark, dims)}
    there = ", ".join(f"{dataset} of {dim}" for dataset, dim in dims.items())
    for label in (label for label in wanted if label not in left):
        model: Any = benchmark.operators[label].model
        raise SchemaError(
            f"{label}: {model.name} is for domains of dimension "
            f"{', '.join(map(str, model.dims()))}, the datasets are {there}"
        )
    if not left:
        raise _nothing_left(benchmark)


def _nothing_left(benchmark: Benchmark) -> SchemaError:
    return SchemaError(
        f"benchmark {benchmark.name}: no operator is for the dimension of "
        f"{', '.join(benchmark.datasets)}"
    )


def check_place(name: str, folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a benchmark.

    Args:
        name: Of the benchmark.
        folder: Where it is to be kept.
        resume, overwrite: Whether one of that name may be continued, or replaced.
    """
    check_folder(folder)
    path = folder / _DECLARED
    if path.exists():
        try:
            there = read_json(path)["name"]
        except (DamagedError, KeyError):
            raise RunError(f"{folder} holds a damaged {_DECLARED}: choose another --out") from None
        if there != name:
            raise RunError(f"{folder} holds the benchmark {there}: choose another --out")
        if not resume and not overwrite:
            raise RunError(f"{folder} holds a benchmark: use --resume or --overwrite")
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} exists and is no benchmark")


def _digest(experiment: Experiment, content: str) -> bytes:
    """Of what a training is made of: its declaration, and the content of a store."""
    text = f"{content}\n{experiment.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest().encode()


def baseline(source: Source) -> float:
    """Mean relative L² test error of the mean training target, which does not look at the input."""
    train, test = source.streamed("train"), source.clean("test")
    total = sum(block.sum(dim=0, dtype=torch.float64) for block in train.targets)
    mean = torch.as_tensor(total) / len(train)
    return float(relative_l2(mean.expand_as(test.u), test.u.double()).mean())


def by_case(rows: list[Row]) -> Iterator[tuple[Case, list[Row]]]:
    """Rows of the same operator and dataset together."""
    for case in dict.fromkeys(Case(row.dataset, row.operator) for row in rows):
        yield case, [r for r in rows if (r.dataset, r.operator) == (case.dataset, case.operator)]


_halt: Event  # of a worker process


def _begin(halt: Event, threads: int) -> None:
    """In a worker process: the parent alone hears what is typed."""
    global _halt
    _halt = halt
    torch.set_num_threads(threads)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _make(
    declared: str, stores: dict[str, str], folder: Path, case: Case, seed: int, device: torch.device
) -> Row:
    """A row, in a worker process."""
    run = BenchmarkRun(Benchmark.parse(json.loads(declared), "benchmark"), stores, folder)
    return run.make(case, seed, device, lambda epoch: None, _halt.is_set)


def _results(done: set[Future[Row]]) -> Iterator[Row]:
    """Rows that are finished, before the error of one that is not."""
    yield from (one.result() for one in done if one.exception() is None)
    for one in done:
        one.result()
