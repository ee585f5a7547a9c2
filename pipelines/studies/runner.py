"""Runner of all studies: computes their parts in stages and saves each row when it is finished."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor

from operators.data import Samples
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import predictions
from operators.training.fit import Epoch, Stopped
from operators.training.identity import ForeignError
from operators.transforms import Predictor
from pdegen.ownership import (
    BusyError,
    DamagedError,
    FileError,
    locked,
    read,
    read_json,
    write,
    write_json,
)
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.folder import (
    RunError,
    changed,
    check_folder,
    recorded_checkpoint,
    recorded_experiment,
    recorded_history,
)
from pipelines.runs.predictions import experiment_key, kept_predictions
from pipelines.runs.training import train_part
from pipelines.studies.cost import clock_of
from pipelines.studies.processes import LOCAL, Processes
from pipelines.studies.row import Row

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
        self, pairs: Samples, device: torch.device, folder: Path | None = None, noise: str = ""
    ) -> Tensor:
        """Predictions for test samples, shape (samples, *grid, c).

        If `folder` (by default that of the run) contains these predictions, they are read.
        Otherwise they are computed and saved there; see `kept_predictions`.
        """

        def predict() -> Tensor:
            return predictions(self.predictor(device), pairs.to(device))

        return kept_predictions(folder or self.folder, self.checkpoint, pairs, predict, noise)

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
    """Compute a row in a worker process.

    If another process is already computing the row and `wait` is true, wait for that process. If
    `wait` is false, return None.
    """
    (part, wait), how = part_and_wait, Execution(device, stop=stop, measures_costs=measures_costs)
    return (study.make_and_keep if wait else study.try_to_make)(part, how)


def content(store: str) -> str:
    """The content hash of a store."""
    return open_sealed(store).metadata.content
