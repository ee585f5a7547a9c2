"""Runner of all studies: computes their parts in stages and saves each row when it is finished."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
from dask import config
from pydantic import BaseModel, ValidationError
from torch import Tensor

from operators.data import Samples
from operators.norms import over_defined
from operators.posterior import FlowPosterior
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import predictions
from operators.training.fit import Epoch, Stopped, TrainingError
from operators.training.identity import MADE_FROM, ForeignError, check_made_from, training_key
from operators.training.step import AS_WRITTEN
from operators.transforms import Predictor
from pdegen.files import (
    BusyError,
    DamagedError,
    FileError,
    locked,
    read,
    read_json,
    write,
    write_json,
)
from pdegen.generation.pools import Cluster, pool
from pdegen.plugins import PluginFile, loaded_plugins
from pdegen.software import cores
from pdegen.store.reading import open_sealed
from pipelines.config.benchmark import Budget
from pipelines.config.experiment import Experiment
from pipelines.runs.folder import (
    RunError,
    changed,
    check_folder,
    declared_in,
    recorded_checkpoint,
    recorded_experiment,
    recorded_history,
)
from pipelines.runs.predictions import experiment_key, kept_predictions
from pipelines.runs.training import train_part
from pipelines.studies.cost import Cost, clock_of

if TYPE_CHECKING:
    from distributed import Client, Worker


Ended = Literal["", "flat", "time"]
"""Why epochs were not doubled again: the error was flat, or there was no time. Empty without a
budget, or if the longest training diverged."""

LEARNED = 0.95
"""Share of the error of the best trivial predictor below which an operator has learned
something."""

_FILE = "processor.json"


def doubled(
    budget: Budget,
    epochs: int,
    train: Callable[[int], tuple[float, float]],
    trivial: Callable[[], float],
) -> tuple[int, Ended]:
    """The number of epochs with the smallest validation error, and why it was not doubled again.

    The result depends on the machine only if it is "time".

    Args:
        epochs: Number of epochs of the first training.
        train: Function of the number of epochs. It trains from the beginning, and returns the
            smallest validation error and the seconds spent.
        trivial: Function that returns the validation error of the best trivial predictor. Many
            operators learn nothing else in their first epochs, so only errors below `LEARNED` times
            that error are flat.

    Raises:
        TrainingError: If the first training fails. A longer one that fails is ignored.

    >>> errors = {10: 0.4, 20: 0.2, 40: 0.1, 80: 0.099, 160: 0.01}
    >>> doubled(Budget(seconds=1e9), 10, lambda epochs: (errors[epochs], epochs), lambda: 0.5)
    (80, 'flat')
    >>> doubled(Budget(seconds=100), 10, lambda epochs: (errors[epochs], epochs), lambda: 0.5)
    (40, 'time')
    """
    error, spent = train(epochs)
    best, total = (error, epochs), spent
    while total + 2 * spent <= budget.seconds:
        epochs *= 2
        try:
            longer, spent = train(epochs)
        except TrainingError:
            return best[1], ""
        total += spent
        best = min(best, (longer, epochs))
        if longer > (1 - budget.flat) * error and best[0] < LEARNED * trivial():
            return best[1], "flat"
        error = longer
    return best[1], "time"


@contextmanager
def count_time(folder: Path, begun: bool, device: torch.device) -> Iterator[None]:
    """Add the seconds of a training to those recorded in its folder, also if it is interrupted.

    They are processor time on a CPU and wall time on a GPU.

    Args:
        begun: Whether the folder contains this training. It goes on if it has a state. Otherwise
            the folder is replaced, and the recorded seconds do not count.
    """
    now = time.process_time if device.type == "cpu" else time.monotonic
    resumed = begun and (folder / "state.pt").exists()
    before, start = seconds(folder) if resumed else 0.0, now()
    try:
        yield
    finally:
        if (folder / "run.json").exists():  # else it failed, and its folder was removed
            key = training_key(declared_in(folder))
            write_json(folder / _FILE, {"seconds": before + now() - start, MADE_FROM: key})


def seconds(folder: Path) -> float:
    """Seconds of a training, recorded by `count_time`; 0 if there is no record, or one of another
    training."""
    try:
        content = read_json(folder / _FILE)
        check_made_from(folder / _FILE, content.get(MADE_FROM), training_key(declared_in(folder)))
        return float(content["seconds"])
    except (FileNotFoundError, DamagedError, KeyError):
        return 0.0


VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(device: torch.device) -> list[str]:
    """GPUs that this process may use, as entries of CUDA_VISIBLE_DEVICES; none on a CPU.

    An existing list in CUDA_VISIBLE_DEVICES is respected, also one of UUIDs. Its last entries are
    left out if the driver ignores them.
    """
    if device.type != "cuda":
        return []
    count, listed = torch.cuda.device_count(), os.environ.get(VARIABLE)
    if listed is None:
        return [str(number) for number in range(count)]
    return [entry.strip() for entry in listed.split(",")][:count]


def take_device(devices: Sequence[str], worker: object) -> None:
    """Let this worker process see only one of the devices: device (worker mod number of devices).

    `worker` is the number of the worker. This must happen before CUDA starts in the process. If
    there are no devices, this does nothing.
    """
    if devices:
        os.environ[VARIABLE] = devices[int(str(worker)) % len(devices)]


def sharing(workers: int, device: torch.device) -> str:
    """A sentence about workers that share GPUs; empty if each has its own."""
    count = len(visible_devices(device))
    if not count or workers <= count:
        return ""
    return f"{workers} workers share {count} GPU{'s' if count > 1 else ''}"


LOCAL = "processes"
_CPU = torch.device("cpu")
_DEVICES = "pdegen.devices"  # key of Dask's configuration, which worker processes inherit
_STOP_POLL = 0.5  # seconds between checks whether to stop
_CONFIG = {  # a training may use more than its share of the memory, and is not retried
    "distributed.scheduler.allowed-failures": 0,
    **{f"distributed.worker.memory.{what}": False for what in ("pause", "spill", "target")},
    "distributed.worker.memory.terminate": False,
    "distributed.worker.preload": [__name__],
}


class Processes(AbstractContextManager["Processes"]):
    """Processes that call a function.

    The processes start at the first call. Processes on this machine share the cores equally.

    Args:
        call: The function to call. Its first argument is an element of the sequence that `__call__`
            receives; its second argument is a function that returns whether to stop.
        workers: Number of processes.
        stop: A function that returns whether to stop.
        scheduler: `LOCAL`, "slurm", or the address of a Dask scheduler.
        folder: A folder that all processes can read. A file there tells the processes to stop.
        device: The device of the calls. If it is a GPU, processes on this machine see one GPU each,
            in turn (`pipelines.studies.runner`).
    """

    def __init__(
        self,
        call: Callable[[Any, Callable[[], bool]], Any],
        workers: int,
        stop: Callable[[], bool],
        scheduler: str = LOCAL,
        folder: Path | None = None,
        device: torch.device = _CPU,
    ) -> None:
        self.call, self.workers, self.stop = call, workers, stop
        self.scheduler, self.folder, self.device = scheduler, folder, device
        self._stack = ExitStack()

    @property
    def parallel(self) -> bool:
        """Whether calls run in processes other than this one."""
        return self.workers > 1 or self.scheduler != LOCAL

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __call__(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Call the function for each argument and yield (argument, result) as calls finish.

        Raises:
            Stopped: If `stop` returns true. It is raised after all calls have ended.
            RunError: If a process was killed.
            Exception: If a call raises it. Results of other calls that are ready are yielded first.
        """
        from distributed import wait
        from distributed.scheduler import KilledWorker

        if not arguments:
            return
        client, halt = self._started
        local = self.scheduler == LOCAL
        threads = max(1, cores() // self.workers) if local else None
        call = partial(_called, loaded_plugins(), self.call, halt, threads)
        pending = dict(zip(client.map(call, arguments, pure=False), arguments, strict=True))
        try:
            while pending:
                with suppress(TimeoutError), client.as_current():
                    wait(list(pending), _STOP_POLL, "FIRST_COMPLETED")
                done = [future for future in pending if future.done()]
                for future in sorted(done, key=lambda future: future.status == "error"):
                    argument = pending.pop(future)
                    yield argument, future.result()
                if self.stop():
                    raise Stopped("the study was stopped")
        except KilledWorker:
            raise RunError(
                "a training was killed, perhaps because memory was short. Finished trainings are "
                "kept: continue with --resume, with fewer --workers or with more memory"
            ) from None
        finally:
            if pending:
                halt.touch()
                with client.as_current():
                    wait(list(pending))

    @cached_property
    def _started(self) -> tuple[Client, Path]:
        """The Dask client, and the path of a file. All calls stop when this file exists."""
        folder = TemporaryDirectory(prefix=".stop-", dir=self.folder)
        halt = Path(self._stack.enter_context(folder)).absolute() / "halt"
        if self.scheduler == LOCAL:
            devices = {_DEVICES: visible_devices(self.device)}
            self._stack.enter_context(config.set(_CONFIG | devices))
        cluster = self._stack.enter_context(pool(self.scheduler, self.workers))
        assert isinstance(cluster, Cluster)
        return cluster.client, halt


def dask_setup(server: Worker) -> None:
    """Ignore interrupts in a worker process, so that only the parent process handles them. Take one
    of the GPUs.

    Dask preloads this module in each worker process and calls this function when the process
    starts.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    take_device(config.get(_DEVICES, []), server.name)


def _called(
    plugins: Sequence[PluginFile],
    call: Callable[[Any, Any], Any],
    halt: Path,
    threads: int | None,
    argument: Any,
) -> Any:
    """Call the function in a worker process."""
    if halt.exists():
        return None
    if threads is not None:
        torch.set_num_threads(threads)
    with suppress(Stopped):
        return call(argument, halt.exists)
    return None


NO_MEMORY = "not enough memory"


class Row(BaseModel):
    """Errors and costs of a method on the test samples, for one seed if the method is trained.

    Args:
        made_from: Hash of everything that the row is computed from.
        dataset, operator, protocol, seed: Identify the training. The protocol is empty unless the
            benchmark has several.
        chosen: Settings that the search or the budget chose.
        ended: Why the budget did not double the epochs again; see `pipelines.studies.runner`.
        best, best_epoch: Mean error and number of the epoch with the smallest test error. They are
            None and 0 unless the protocol evaluates the test samples after each epoch.
        errors: Error of each test sample on the training grid, in the measure of the dataset (by
            default the relative L² error). It is NaN where it is undefined, for example because the
            target is 0; means omit NaN.
        scores: Other scores of each test sample, keyed by measure
            (`pipelines.studies.noise`).
        means: Mean error, keyed by resolution, on the grids on which the operator can be evaluated.
        measures: Means over the test samples of other error measures, keyed by measure.
        refused: Reason why the operator cannot be evaluated on a grid, keyed by resolution.
        weight: Regularisation weight of a classical inversion; None for other methods.
        weight_samples, weight_at_end, weight_unconverged: How the weight was chosen; see
            `pipelines.studies.inversions.ChosenWeight`.
        converged: Number of test samples on which the iteration of a classical inversion ended by
            its criterion, of as many as have an error; None for other methods.
        iterations: Mean number of steps of a classical inversion per sample.
        solves: Mean number of systems of equations that a classical inversion solves per sample.
        solve_seconds: Processor time of the recipe's solver per sample.
        training_seconds: Time of the training, including evaluations on the selection samples.
        tuning_seconds: Total time that the search spent on trainings whose settings it did not
            choose.
        inference_seconds: Time per test sample of a prediction in a batch, with no other load. For
            a classical inversion it is the processor time per sample, with samples inverted one
            after another. In tables with classical inversions, the times of models are also
            processor times (wall times on a GPU).
        step_seconds, step_bytes, step_flops: See `pipelines.studies.cost.Cost`.
        step_held_bytes: Memory that the process holds during a training step
            (`pipelines.studies.cost.held_bytes`). Only profiles measure it.
        failed: Reason why the training failed; empty if it did not.
    """

    made_from: str = ""
    dataset: str = ""
    operator: str = ""
    protocol: str = ""
    seed: int = 0
    chosen: dict[str, Any] = {}
    ended: Ended = ""
    parameters: int = 0
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    errors: list[float] = []
    scores: dict[str, list[float]] = {}
    means: dict[int, float] = {}
    measures: dict[str, float] = {}
    refused: dict[int, str] = {}
    weight: float | None = None
    weight_samples: int = 0
    weight_at_end: bool = False
    weight_unconverged: int = 0
    converged: int | None = None
    iterations: float = 0.0
    solves: float = 0.0
    solve_seconds: float = 0.0
    training_seconds: float = 0.0
    tuning_seconds: float = 0.0
    inference_seconds: float = 0.0
    step_seconds: float = 0.0
    step_bytes: int = 0
    step_flops: int = 0
    step_held_bytes: int = 0
    failed: str = ""
    provenance: dict[str, Any] = {}

    @property
    def mean(self) -> float:
        return over_defined(mean, self.errors)

    @property
    def cost(self) -> Cost:
        return Cost(self.step_seconds, self.step_bytes, self.step_flops)

    @cost.setter
    def cost(self, cost: Cost) -> None:
        self.step_seconds, self.step_bytes = cost.seconds, cost.peak_bytes
        self.step_flops = cost.flops

    @property
    def has_costs(self) -> bool:
        """Whether the costs of a training step and of a prediction are measured."""
        return bool(self.step_seconds and self.inference_seconds)

    @property
    def lacked_memory(self) -> bool:
        """Whether the training ran out of memory. A resumed study computes such a row again."""
        return self.failed.startswith(NO_MEMORY)


def mean_measured(costs: Iterable[float]) -> float:
    """Mean of the measured costs. A cost that could not be measured is 0. If there are no others,
    the mean is 0."""
    measured = [cost for cost in costs if cost]
    return mean(measured) if measured else 0.0


def mean_and_spread(rows: Sequence[Row], measure: str = "errors") -> tuple[float, float]:
    """Mean over samples and seeds, and the spread between seeds.

    For each seed, the mean over the samples is computed; the spread is the standard deviation of
    these means. The mean is NaN if a row does not have the measure.

    >>> mean_and_spread([Row(errors=[1, 3]), Row(errors=[3, 5])])
    (3.0, 1.4142135623730951)
    """
    means = [over_defined(mean, row.errors if measure == "errors" else row.scores.get(measure, []))
             for row in rows]  # fmt: skip
    several = len(means) > 1 and all(map(isfinite, means))
    return float(mean(means)), stdev(means) if several else 0.0


def by_case(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """The rows of each (dataset, operator, protocol), with one row per seed."""
    cases: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.dataset, row.operator, row.protocol), []).append(row)
    return cases


Part = TypeVar("Part")
Progress = Callable[[str, int, int], None]
_FEW = 8  # samples of the batch that is timed
_POLL = 1.0  # seconds between attempts to take a folder that another process holds


@dataclass(frozen=True)
class Execution:
    """Settings for the computation of a part of a study.

    Args:
        device: The device on which trainings and predictions run.
        on_epoch: Called after each epoch.
        stop: A function that returns whether to stop.
        measures_costs: Whether each row includes its costs. This is needed if parts are computed on
            several machines; otherwise costs are measured after all rows.
    """

    device: torch.device
    on_epoch: Callable[[Epoch], None] = lambda epoch: None
    stop: Callable[[], bool] = lambda: False
    measures_costs: bool = False

    def check(self) -> None:
        """Raise Stopped if `stop` returns true."""
        if self.stop():
            raise Stopped("the study was stopped")

    def wait_and_hold(self, folder: Path) -> ExitStack:
        """Wait until no other process holds the lock of the folder, then lock the folder.

        The lock also applies to processes on other machines that share the folder. Raises Stopped
        if `stop` returns true.
        """
        stack = ExitStack()
        while True:
            self.check()
            try:
                stack.enter_context(locked(folder))
                return stack
            except BusyError:
                time.sleep(_POLL)


@dataclass(frozen=True)
class StudyTraining:
    """A training of a study, in an ordinary run folder. The folder contains a file `done` once the
    training is finished."""

    experiment: Experiment
    store: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.experiment.training.reported[0]}.safetensors"

    def predictor(self, device: torch.device) -> Predictor:
        return load_checkpoint(self.checkpoint, build_operator)[0].to(device)

    def predicted(
        self, pairs: Samples, device: torch.device, folder: Path | None = None, noise: str = "",
        deviation: bool = False,
    ) -> Tensor:  # fmt: skip
        """Predictions for test samples, shape (samples, *grid, c). With `deviation` they are
        followed by their deviations, as further channels.

        If `folder` (by default that of the run) contains these predictions, they are read.
        Otherwise they are computed and saved there; see `kept_predictions`.
        """

        options = {"deviation": True} if deviation else {}
        folder = (folder or self.folder) / ("stated" if deviation else "")

        def predict() -> Tensor:
            return predictions(self.predictor(device), pairs.to(device), **options)

        return kept_predictions(folder, self.checkpoint, pairs, predict, noise)

    def drawn(
        self, pairs: Samples, device: torch.device, folder: Path, noise: str = ""
    ) -> Tensor | None:
        """Draws of the posterior for test samples, shape (samples, members, *grid, c); None if the
        model draws none. They are kept like `predicted`."""
        if self.experiment.training.loss.name != "flow":
            return None

        def draw() -> Tensor:
            of, on = self.predictor(device), pairs.to(device)
            assert isinstance(of, FlowPosterior)
            seed = self.experiment.training.seed  # seeds that are pooled have their own x₀
            with AS_WRITTEN.products():
                draws = of.draw(on.a, on.x, on.y, pairs.ids.tolist(), of.members, seed)
            return draws.transpose(0, 1).cpu()

        return kept_predictions(folder / "draws", self.checkpoint, pairs, draw, noise)

    def seconds(self, pairs: Samples, device: torch.device) -> float:
        """Time in seconds of a prediction per sample, measured on a batch of a few samples.

        The time is processor time on a CPU and wall time on a GPU.
        """
        predictor, few = self.predictor(device), pairs.rows(slice(_FEW)).to(device)
        predictions(predictor, few)  # warms up
        now = time.process_time if device.type == "cpu" else clock_of(device)
        start = now()
        predictions(predictor, few)
        return (now() - start) / len(few)

    @property
    def begun(self) -> bool:
        """Whether the folder contains a training of this experiment, finished or not."""
        try:
            recorded = read_json(self.folder / "run.json").get("experiment")
        except (FileNotFoundError, FileError):
            return False
        return recorded == recorded_experiment(self.experiment, recorded)

    def finished(self) -> list[Epoch] | None:
        """The epochs of the finished training.

        None if the training is unfinished or damaged, or belongs to another experiment or store.
        """
        try:
            if read(self.folder / "done") != self.key.encode():
                return None
            if changed(self.experiment, self.store, self.folder) is not None:
                return None
            return self._read()
        except (FileNotFoundError, FileError, RunError):
            return None

    def _read(self) -> list[Epoch]:
        """The epochs, if all files of results belong to run.json. Raises ForeignError otherwise."""
        for name in self.experiment.training.reported:
            recorded_checkpoint(self.folder, name)
        return recorded_history(self.folder)

    def check_folder(self) -> None:
        """Raise RunError if the folder contains a finished training with other settings, data or
        plugins, which `run` would replace, or if a file belongs to another training."""
        if not (self.folder / "done").exists():
            return
        difference = changed(self.experiment, self.store, self.folder)
        if difference is not None:
            raise RunError(
                f"{self.folder} is finished with {difference}: give the settings, data and plugins "
                "that it has, choose another --out, or remove this folder to train it again"
            )
        try:
            self._read()
        except ForeignError as error:
            raise RunError(f"{error}: remove {self.folder} to train it again") from None
        except (FileNotFoundError, FileError, RunError):
            return  # what is damaged is made again

    def run(self, how: Execution) -> list[Epoch]:
        """Train, or continue from the last saved state if the training is unfinished; return the
        epochs.

        Raises RunError if `check_folder` does.
        """
        history = self.finished()
        if history is None:
            self.check_folder()
            training = self.experiment, self.store, self.folder, how.device
            history = train_part(*training, on_epoch=how.on_epoch, stop=how.stop)
            write(self.folder / "done", self.key.encode())
        return history

    @property
    def key(self) -> str:
        """Hash of all that the training depends on."""
        return experiment_key(self.experiment, self.store)


class Study(ABC, Generic[Part]):
    """A study whose results are stored in a folder.

    A subclass declares the parts and computes a row for each of them. A saved row is stale if its
    `digest` has changed.
    """

    folder: Path

    @abstractmethod
    def check(self, device: torch.device) -> None:
        """Raise SchemaError or DataError if some part cannot be computed."""

    @abstractmethod
    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        """Reserve the folder for this study. Raises RunError if it contains something else."""

    @abstractmethod
    def stages(self) -> Sequence[Sequence[Part]]:
        """All parts, grouped in stages. A stage starts when the previous stage has finished."""

    @abstractmethod
    def row_path(self, part: Part) -> Path:
        """Path of the file that stores the row of a part."""

    @abstractmethod
    def digest(self, part: Part) -> str:
        """Hash of everything that a part's row is computed from."""

    @abstractmethod
    def make(self, part: Part, how: Execution) -> Row:
        """Compute the row of a part."""

    @abstractmethod
    def progress_line(self, part: Part, row: Row) -> str:
        """Text of the progress line about a finished part."""

    def finish(self, how: Execution, progress: Callable[[str], None]) -> None:
        """Work that remains after all rows are computed; by default there is none."""

    def run(
        self,
        device: torch.device,
        *,
        workers: int = 1,
        scheduler: str = LOCAL,
        resume: bool = False,
        overwrite: bool = False,
        progress: Progress = lambda what, done, total: None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute the missing rows, or all rows if `overwrite` is true.

        Args:
            workers: Number of parts computed at a time. If it is above 1, they run in separate
                processes, which share the cores. On a machine with several GPUs each process
                sees one of them.
            scheduler: `LOCAL` for processes on this machine, the address of a running Dask
                scheduler, or "slurm" for `workers` jobs. All workers need access to the folder and
                the stores.
            progress: Called after each row with the progress line, the number of rows so far and
                the number of all rows.
            begun: Called once all checks have passed and the folder is reserved.

        Raises:
            SchemaError, DataError: If a part cannot be computed. Nothing has been written then.
            RunError: If the folder contains something else, or already exists and neither `resume`
                nor `overwrite` is true.
            Stopped: If `stop` returns true. A call with `resume` continues the study.
        """
        how, stages, done = Execution(device, on_epoch, stop), self.stages(), 0
        self.check(device)
        check_folder(self.folder)
        with how.wait_and_hold(self.folder):  # one process at a time writes the declaration
            self.claim(device, resume, overwrite)
        begun()
        total = sum(map(len, stages))
        call = partial(_make, self, device, scheduler != LOCAL)
        with Processes(call, workers, stop, scheduler, self.folder, device) as processes:
            for stage in stages:
                for part, row in self._rows(stage, how, processes):
                    done += 1
                    progress(self.progress_line(part, row), done, total)
        self.finish(how, lambda what: progress(what, done, total))

    def rows(self) -> list[Row]:
        """The finished rows that are not stale."""
        parts = [part for stage in self.stages() for part in stage]
        return [row for row in map(self.kept, parts) if row is not None]

    def check_device(self, device: torch.device) -> None:
        """Raise RunError if existing rows were computed on another kind of device."""
        finished = [row for row in self.rows() if not row.failed]
        kinds = {row.provenance["device"].split()[0] for row in finished}
        if kinds - {device.type}:
            raise RunError(f"{self.folder} was made on {kinds.pop()}: resume it there")

    def row(self, part: Part, how: Execution) -> Row:
        """The row of a part. It is computed if its file is absent, damaged or stale."""
        row = self.kept(part)
        return self.make_and_keep(part, how) if row is None else row

    def make_and_keep(self, part: Part, how: Execution) -> Row:
        """Return the row of a part after it is saved. If another process computes it, wait;
        otherwise compute it here."""
        with how.wait_and_hold(self._claimed(part)):
            return self._made(part, how)

    def try_to_make(self, part: Part, how: Execution) -> Row | None:
        """Compute and save a row; None if another process is computing it."""
        try:
            with locked(self._claimed(part)):
                return self._made(part, how)
        except BusyError:
            return None

    def _made(self, part: Part, how: Execution) -> Row:
        row = self.kept(part)  # another process may have made it
        if row is None or row.lacked_memory:
            row = self.make(part, how)
            self.keep(part, row)
        return row

    def _claimed(self, part: Part) -> Path:
        """The folder whose lock a process holds while it computes the row of a part."""
        return self.folder / "claims" / self.row_path(part).stem

    def kept(self, part: Part) -> Row | None:
        """Read a row from its file; None if the file is absent, damaged or stale."""
        try:
            row = Row.model_validate(read_json(self.row_path(part)))
            return row if row.made_from == self.digest(part) else None
        except (FileNotFoundError, DamagedError, ValidationError):
            return None

    def keep(self, part: Part, row: Row) -> None:
        write_json(self.row_path(part), row.model_dump(mode="json", exclude_defaults=True))

    def _rows(
        self, stage: Sequence[Part], how: Execution, processes: Processes
    ) -> Iterator[tuple[Part, Row]]:
        """Yield all parts of a stage with their rows. Rows that are already saved come first."""
        rows = {part: self.kept(part) for part in stage}
        usable = {
            part: row for part, row in rows.items() if row is not None and not row.lacked_memory
        }
        missing = [part for part in stage if part not in usable]
        yield from usable.items()
        for wait in (False, True):  # at last wait for the rows that other processes make
            calls = [(part, wait) for part in missing]
            made = processes(calls) if processes.parallel else self._each(calls, how)
            missing = []
            for (part, _), row in made:
                if row is None:
                    missing.append(part)
                else:
                    yield part, row

    def _each(
        self, calls: Sequence[tuple[Part, bool]], how: Execution
    ) -> Iterator[tuple[tuple[Part, bool], Row | None]]:
        for part, wait in calls:
            how.check()
            yield (part, wait), (self.make_and_keep if wait else self.try_to_make)(part, how)


def _make(
    study: Study[Part],
    device: torch.device,
    measures_costs: bool,
    part_and_wait: tuple[Part, bool],
    stop: Callable[[], bool],
) -> Row | None:
    """Compute a row in a worker process."""
    (part, wait), how = part_and_wait, Execution(device, stop=stop, measures_costs=measures_costs)
    return (study.make_and_keep if wait else study.try_to_make)(part, how)


def content(store: str) -> str:
    """The content hash of a store."""
    return open_sealed(store).metadata.content
