"""One runner of all studies: trainings of cases and seeds, tested under conditions; rows are kept
as they are made."""

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
from operators.training.checkpoint import CheckpointError, check_checkpoint, load_checkpoint
from operators.training.evaluate import predictions
from operators.training.files import (
    BusyError,
    DamagedError,
    FileError,
    held,
    read,
    read_json,
    write,
    write_json,
)
from operators.training.fit import Epoch, Stopped, read_history
from operators.transforms import Predictor
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.folder import RunError, check_folder
from pipelines.runs.predictions import experiment_key, kept_predictions
from pipelines.runs.training import train_part
from pipelines.studies.cost import clock_of
from pipelines.studies.processes import LOCAL, Processes
from pipelines.studies.row import Row

Part = TypeVar("Part")
Progress = Callable[[str, int, int], None]
_FEW = 8  # samples of a prediction that is timed
_POLL = 1.0  # seconds between looks at what another process makes


@dataclass(frozen=True)
class Execution:
    """What makes a part of a study."""

    device: torch.device
    on_epoch: Callable[[Epoch], None] = lambda epoch: None
    stop: Callable[[], bool] = lambda: False
    apart: bool = False

    def check(self) -> None:
        """Raise Stopped where it was asked to stop."""
        if self.stop():
            raise Stopped("the study was stopped")

    def waited(self, folder: Path) -> ExitStack:
        """Hold a folder, as soon as no other process, on any machine that shares it, does. Raises
        Stopped if it was asked to stop."""
        stack = ExitStack()
        while True:
            self.check()
            try:
                stack.enter_context(held(folder))
                return stack
            except BusyError:
                time.sleep(_POLL)


@dataclass(frozen=True)
class StudyTraining:
    """A training of a study: an ordinary run folder, and the file `done` in it."""

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
        """Predictions (samples, *grid, c) of test samples: those that the run, or another folder,
        keeps; see `kept_predictions`."""

        def predict() -> Tensor:
            return predictions(self.predictor(device), pairs.to(device))

        return kept_predictions(folder or self.folder, self.checkpoint, pairs, predict, noise)

    def seconds(self, pairs: Samples, device: torch.device) -> float:
        """Seconds of a prediction, in a batch of a few samples: processor time, or wall time until
        a GPU has finished."""
        predictor, few = self.predictor(device), pairs.rows(slice(_FEW)).to(device)
        predictions(predictor, few)  # prepares
        now = time.process_time if device.type == "cpu" else clock_of(device)
        start = now()
        predictions(predictor, few)
        return (now() - start) / len(few)

    def finished(self) -> list[Epoch] | None:
        """Its epochs; None where it is not finished, is damaged, or of another declaration."""
        try:
            if read(self.folder / "done") != self._made_from():
                return None
            for name in self.experiment.training.reported:
                check_checkpoint(self.folder / f"{name}.safetensors")
            return read_history(self.folder)
        except (FileNotFoundError, FileError, CheckpointError):
            return None

    def run(self, how: Execution) -> list[Epoch]:
        """Its epochs; trained from where it was, where it is not finished."""
        history = self.finished()
        if history is None:
            of = self.experiment, self.store, self.folder, how.device
            history = train_part(*of, on_epoch=how.on_epoch, stop=how.stop)
            write(self.folder / "done", self._made_from())
        return history

    def _made_from(self) -> bytes:
        return experiment_key(self.experiment, self.store).encode()


class Study(ABC, Generic[Part]):
    """A study in its folder. A subclass declares parts, and how a row is made of one."""

    folder: Path

    @abstractmethod
    def check(self, device: torch.device) -> None:
        """Raise SchemaError or DataError where a part cannot be made."""

    @abstractmethod
    def claim(self, device: torch.device, resume: bool, overwrite: bool) -> None:
        """Take the folder. Raises RunError where it holds something else."""

    @abstractmethod
    def stages(self) -> Sequence[Sequence[Part]]:
        """All parts; those of a stage are made when all of the stages before it are."""

    @abstractmethod
    def row_path(self, part: Part) -> Path:
        """The file of a row."""

    @abstractmethod
    def digest(self, part: Part) -> str:
        """Of all that a row is computed from."""

    @abstractmethod
    def make(self, part: Part, how: Execution) -> Row:
        """Compute a row."""

    @abstractmethod
    def progress_line(self, part: Part, row: Row) -> str:
        """A part in a line of progress."""

    def finish(self, how: Execution, progress: Callable[[str], None]) -> None:
        """What is done when all rows are made."""

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
        """Make the rows that are not there yet; with `overwrite` all, from the start.

        Args:
            workers: Parts at a time; more than one are made in processes, which share the cores.
            scheduler: Of Dask: processes here, the address of a running one, or "slurm", whose
                `workers` jobs, like all workers, must see the folder and the stores.
            progress: Called after each row with what it says, its number and the number of all.

        Raises:
            SchemaError, DataError: If a part cannot be made; before anything is written.
            RunError: If the folder holds something else, or is there and not to be resumed.
            Stopped: If it was asked to; `resume` continues it.
        """
        how, stages, done = Execution(device, on_epoch, stop), self.stages(), 0
        self.check(device)
        check_folder(self.folder)
        with how.waited(self.folder):  # one process at a time declares what it is
            self.claim(device, resume, overwrite)
        begun()
        total = sum(map(len, stages))
        call = partial(_make, self, device, scheduler != LOCAL)
        with Processes(call, workers, stop, scheduler, self.folder) as processes:
            for stage in stages:
                for part, row in self._rows(stage, how, processes):
                    done += 1
                    progress(self.progress_line(part, row), done, total)
        self.finish(how, lambda what: progress(what, done, total))

    def rows(self) -> list[Row]:
        parts = [part for stage in self.stages() for part in stage]
        return [row for row in map(self.kept, parts) if row is not None]

    def check_device(self, device: torch.device) -> None:
        """Raise RunError where rows were made on another device."""
        finished = [row for row in self.rows() if not row.failed]
        made = {row.provenance["device"].split()[0] for row in finished}
        if made - {device.type}:
            raise RunError(f"{self.folder} was made on {made.pop()}: resume it there")

    def row(self, part: Part, how: Execution) -> Row:
        """A row: read, or made where it is absent, damaged or stale."""
        row = self.kept(part)
        return self.made(part, how) if row is None else row

    def made(self, part: Part, how: Execution) -> Row:
        """Make a row, and keep it; one that another process makes is waited for."""
        with how.waited(self._claimed(part)):
            return self._made(part, how)

    def tried(self, part: Part, how: Execution) -> Row | None:
        """`made`; None where another process is making it."""
        try:
            with held(self._claimed(part)):
                return self._made(part, how)
        except BusyError:
            return None

    def _made(self, part: Part, how: Execution) -> Row:
        row = self.kept(part)  # others may have made it meanwhile
        if row is None or row.again:
            row = self.make(part, how)
            self.keep(part, row)
        return row

    def _claimed(self, part: Part) -> Path:
        """The folder that is held while a row is made."""
        return self.folder / "claims" / self.row_path(part).stem

    def kept(self, part: Part) -> Row | None:
        """A row from its file; None where that is absent, damaged or stale."""
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
        """All rows of a stage, those that are there first."""
        kept = {part: self.kept(part) for part in stage}
        there = {part: row for part, row in kept.items() if row is not None and not row.again}
        missing = [part for part in stage if part not in there]
        yield from there.items()
        for wait in (False, True):  # what other processes make comes last
            asked = [(part, wait) for part in missing]
            made = processes(asked) if processes.several else self._each(asked, how)
            missing = []
            for (part, _), row in made:
                if row is None:
                    missing.append(part)
                else:
                    yield part, row

    def _each(
        self, asked: Sequence[tuple[Part, bool]], how: Execution
    ) -> Iterator[tuple[tuple[Part, bool], Row | None]]:
        for part, wait in asked:
            how.check()
            yield (part, wait), (self.made if wait else self.tried)(part, how)


def _make(
    study: Study[Part],
    device: torch.device,
    apart: bool,
    asked: tuple[Part, bool],
    stop: Callable[[], bool],
) -> Row | None:
    """Make a row in a worker process; wait for one that another process makes, or not."""
    (part, wait), how = asked, Execution(device, stop=stop, apart=apart)
    return (study.made if wait else study.tried)(part, how)


def content(store: str) -> str:
    return open_sealed(store).metadata.content
