"""Reads finished runs. An error message names the damaged file and the command that rewrites it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError

from operators.data import Samples
from operators.data.opening import names_of
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import errors_of, predictions
from operators.training.fit import Epoch, read_history
from operators.training.identity import ForeignError, check_made_from, training_key
from operators.transforms import Predictor
from pdegen.ownership import DamagedError, FileError, read_json
from pdegen.plugins import loaded_plugins
from pdegen.schema import SchemaError
from pdegen.store.format import Json
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment, physics_of
from pipelines.runs.data import Source
from pipelines.runs.plugins import absent_class
from pipelines.runs.predictions import kept_mean, kept_predictions
from pipelines.runs.reproduction import overriding
from pipelines.runs.run_folder import recorded_checkpoint, recorded_content, scores_key
from pipelines.runs.score import KeptScore, Score

_T = TypeVar("_T")


class ReportError(ValueError):
    """Error for a folder that is not a finished run, or is damaged. The message says what to do."""

    exit_status = 2


class Scores(BaseModel):
    """The part of scores.json that reports use."""

    made_from: str | None = None
    experiment: Json | None = None
    data: dict[str, Any]
    reading: str = "resident"
    parameters: int
    training_seconds: float
    provenance: dict[str, Any]
    results: list[KeptScore] = Field(min_length=1)
    trivial: list[KeptScore] = []

    def contradict(self, experiment: Experiment, declared: Json) -> bool:
        """Whether the entries show that these are scores of another experiment or store, in files
        of earlier versions, which record no key."""
        if self.data.get("content") != recorded_content(declared):
            return True
        if self.experiment is None:
            return False
        of = Experiment.parse(self.experiment, "experiment")
        # a row of a benchmark is evaluated on one grid
        return of.model_copy(update={"resolutions": experiment.resolutions}) != experiment


@dataclass(frozen=True)
class FinishedRun:
    """A finished run with its store and predictions.

    Args:
        declared: Content of run.json.
        pairs: Test samples at the training resolution.
        prediction: Predictions for these test samples.
        mean: Mean function of the training targets.
        predictor: Function that loads the first reported checkpoint and returns its predictor.
    """

    experiment: Experiment
    declared: Json
    scores: Scores
    history: list[Epoch]
    store: Store
    pairs: Samples
    prediction: torch.Tensor
    mean: torch.Tensor
    predictor: Callable[[], Predictor]

    @property
    def published(self) -> bool:
        """Whether the protocol is "published"."""
        return self.experiment.training.protocol == "published"

    @property
    def checkpoint(self) -> str:
        """Name of the first reported checkpoint."""
        return self.experiment.training.reported[0]

    @property
    def dimension(self) -> int:
        """Number of space dimensions."""
        return self.pairs.dim

    def errors(self, prediction: torch.Tensor, parts: int = 1) -> np.ndarray:
        """Relative L² errors of predictions for the test samples, shape (samples, parts). The
        channels are divided into `parts` equal groups, each with its own error."""
        return errors_of(prediction, self.pairs.all, self.pairs, parts=parts).numpy()

    @property
    def phases(self) -> tuple[float, float] | None:
        """The two values of a two-phase first input or single target, the smaller first; otherwise
        None."""
        first = names_of(self.experiment.variables[0])[0]
        return physics_of(self.store).phases.get(first) or self.target_phases

    @property
    def target_phases(self) -> tuple[float, float] | None:
        """The two values of a single two-phase target, the smaller first; otherwise None."""
        target, *others = names_of(self.experiment.variables[1])
        return None if others else physics_of(self.store).phases.get(target)

    @property
    def trivial(self) -> dict[str, Score]:
        """Scores of the trivial predictors, keyed by the predictor's name."""
        return {score.checkpoint: score for score in self.scores.trivial}

    @property
    def main(self) -> Score:
        """Score of the first reported checkpoint at the resolution closest to the training
        resolution."""
        grid = self.experiment.data.finest_resolution
        results = [r for r in self.scores.results if r.checkpoint == self.checkpoint]
        return min(results, key=lambda r: abs(r.resolution - grid))


@dataclass(frozen=True)
class _Folder:
    """The files of a run, and the command that writes them."""

    path: Path
    words: tuple[str, ...] = ("EXPERIMENT",)
    declared: Json = field(default_factory=Json)  # content of run.json

    @classmethod
    def of(cls, path: Path) -> tuple[_Folder, Experiment]:
        """The run folder at `path`, with its experiment. Raises ReportError if the folder is not a
        run."""
        return cls(path).read("run.json", lambda content: cls._of(path, content), "--overwrite")

    @classmethod
    def _of(cls, path: Path, content: dict[str, Any]) -> tuple[_Folder, Experiment]:
        if (fault := absent_class(content, path)) is not None:
            raise SchemaError(fault)
        experiment = Experiment.parse(content["experiment"], "experiment")
        words = overriding(experiment) or [str(path / "experiment.toml")]
        if "store" in content:
            words += ["--data", content["store"]]
        words += [word for file in loaded_plugins() for word in ("--plugin", file.path)]
        return cls(path, tuple(words), content), experiment

    def command(self, option: str) -> str:
        """The `pdegen run` command of this run, with `option` appended."""
        return shlex.join(["pdegen", "run", *self.words, "--out", str(self.path), option])

    def read(self, file: str, parse: Callable[[dict[str, Any]], _T], repair: str) -> _T:
        """Parsed content of a JSON file. `repair` is the option with which `pdegen run` rewrites a
        damaged file."""
        with self.explained(file, repair):
            return parse(read_json(self.path / file))

    def history(self) -> list[Epoch]:
        with self.explained("history.jsonl", "--resume"):
            return read_history(self.path, training_key(self.declared))

    @contextmanager
    def explained(self, file: str, repair: str) -> Iterator[None]:
        """Raise a ReportError in place of any error that occurs while a file is read.

        If a command of the run can write the file again, the message names it.
        """
        path, advice = self.path / file, f"write it again by {self.command(repair)}"
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            if not self.path.is_dir():
                raise ReportError(f"{self.path}: no such folder") from None
            raise ReportError(
                f"{self.path} is not a finished run, {file} is missing: {self.command('--resume')}"
            ) from None
        except DamagedError as error:
            raise ReportError(f"{error}: {advice}") from None
        except FileError as error:
            raise ReportError(str(error)) from None
        except ValidationError as error:
            keys = ", ".join(".".join(map(str, details["loc"])) for details in error.errors())
            raise ReportError(f"{path} is damaged, see {keys}: {advice}") from None
        except SchemaError as error:
            raise ReportError(f"{path}: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{path} is damaged ({error}): {advice}") from None


@dataclass(frozen=True)
class Result:
    """The contents of a finished run: experiment, content of run.json, scores, history and first
    reported checkpoint."""

    experiment: Experiment
    declared: Json
    scores: Scores
    history: list[Epoch]
    checkpoint: Path
    description: dict[str, Any]


def read_result(path: Path) -> Result:
    """Read the folder of a finished run and check that its files agree. Raises ReportError if the
    folder is no finished run, or is damaged."""
    folder, experiment = _Folder.of(path)
    scores = folder.read("scores.json", Scores.model_validate, "--resume")
    history = folder.history()
    if len(history) < experiment.training.epochs:
        raise ReportError(
            f"{path} is not finished, {len(history)} of {experiment.training.epochs} epochs: "
            f"continue by {folder.command('--resume')}"
        )
    names = experiment.training.reported
    checkpoint = path / f"{names[0]}.safetensors"
    try:
        description, *_ = [recorded_checkpoint(path, name) for name in names]
    except FileError as error:
        raise ReportError(f"{error}: train again by {folder.command('--overwrite')}") from error
    score = next((e.score for e in history if e.epoch == description["epoch"]), None)
    if score != description.get("selection_score"):
        raise ReportError(
            f"{path}/history.jsonl does not belong to {checkpoint.name}: "
            f"write it again by {folder.command('--resume')}"
        )
    epochs = {r.epoch for r in scores.results if r.checkpoint == checkpoint.stem}
    if epochs != {description["epoch"]}:
        raise ReportError(
            f"{path}/scores.json does not belong to {checkpoint.name}: "
            f"evaluate again by {folder.command('--resume')}"
        )
    with folder.explained("scores.json", "--resume"):
        check_made_from(path / "scores.json", scores.made_from, scores_key(path, experiment))
        if scores.made_from is None and scores.contradict(experiment, folder.declared):
            raise ForeignError(f"{path / 'scores.json'} belongs to another run")
    return Result(experiment, folder.declared, scores, history, checkpoint, description)


def read_finished(path: Path, url: str, device: torch.device) -> FinishedRun:
    """Read a finished run, with the predictions of its first reported checkpoint on the test split.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or belongs to other data.
        StoreError: If the store is absent or unfinished.
    """
    result = read_result(path)
    experiment, scores, checkpoint = result.experiment, result.scores, result.checkpoint
    store = open_sealed(url)
    content = store.metadata.content
    if content != scores.data.get("content"):
        raise ReportError(f"{url} has other data than {path} was evaluated on: name its store")
    source = Source(url, experiment, content=content)
    pairs = source.samples("test").resident()

    def predictor() -> Predictor:
        return load_checkpoint(checkpoint, build_operator)[0]

    def predict() -> torch.Tensor:
        return predictions(predictor().to(device), pairs.to(device))

    prediction = kept_predictions(path, checkpoint, pairs, predict)
    mean = kept_mean(path, source)
    return FinishedRun(
        experiment, result.declared, scores, result.history, store, pairs, prediction, mean,
        predictor,
    )  # fmt: skip


def store_of_run(path: Path) -> str:
    """URL of the store on which a finished run was evaluated. Raises ReportError if the folder is
    no finished run, or is damaged."""
    folder, _ = _Folder.of(path)
    return folder.read("scores.json", lambda content: str(content["data"]["url"]), "--resume")
