"""Folder and store -> a finished run; an error says which file is wrong and what makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError

from operators.data import Samples
from operators.registry import build_operator
from operators.training.checkpoint import CheckpointError, check_checkpoint, load_checkpoint
from operators.training.evaluate import errors_of, predictions
from operators.training.files import DamagedError, FileError, read_json
from operators.training.fit import Epoch, read_history
from operators.transforms import Predictor
from pdegen.equations.registry import equation_files
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.config.physics import physics_of
from pipelines.runs.data import Source
from pipelines.runs.predictions import kept_mean, kept_predictions
from pipelines.runs.reproduction import overriding
from pipelines.runs.score import KeptScore, Score

_T = TypeVar("_T")


class ReportError(ValueError):
    """A folder that is no finished run, or is damaged; one line that says what to do."""

    exit_status = 2


class Scores(BaseModel):
    """What a report needs of scores.json."""

    data: dict[str, Any]
    reading: str = "resident"
    parameters: int
    training_seconds: float
    provenance: dict[str, Any]
    results: list[KeptScore] = Field(min_length=1)
    trivial: list[KeptScore] = []


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, its store, test predictions, mean training target, and what reads the
    checkpoint."""

    experiment: Experiment
    scores: Scores
    history: list[Epoch]
    store: Store
    pairs: Samples
    prediction: torch.Tensor
    mean: torch.Tensor
    predictor: Callable[[], Predictor]

    @property
    def published(self) -> bool:
        return self.experiment.training.protocol == "published"

    @property
    def checkpoint(self) -> str:
        return self.experiment.training.reported[0]

    @property
    def dimension(self) -> int:
        return self.pairs.dim

    def errors(self, prediction: torch.Tensor, parts: int = 1) -> np.ndarray:
        """Relative L² errors of the test samples, of runs of channels, shape (samples, parts)."""
        return errors_of(prediction, self.pairs.all, self.pairs, parts=parts).numpy()

    @property
    def phases(self) -> tuple[float, float] | None:
        """The smaller and the larger value of input or target, where one has just two."""
        said, data = physics_of(self.store).phases, self.experiment.data
        return said.get(data.input) or said.get(data.target)

    @property
    def target_phases(self) -> tuple[float, float] | None:
        """Those of the target alone."""
        return physics_of(self.store).phases.get(self.experiment.data.target)

    @property
    def trivial(self) -> dict[str, Score]:
        """Those of predictors that do not learn, by name."""
        return {score.checkpoint: score for score in self.scores.trivial}

    @property
    def main(self) -> Score:
        """The score of the first reported checkpoint on the grid nearest to that of training."""
        grid = self.experiment.data.resolution
        results = [r for r in self.scores.results if r.checkpoint == self.checkpoint]
        return min(results, key=lambda r: abs(r.resolution - grid))


@dataclass(frozen=True)
class _Folder:
    """Files of a run, and the commands that make them."""

    path: Path
    words: tuple[str, ...] = ("EXPERIMENT",)

    @classmethod
    def of(cls, path: Path) -> tuple[_Folder, Experiment]:
        return cls(path).read("run.json", lambda content: cls._of(path, content), "--overwrite")

    @classmethod
    def _of(cls, path: Path, content: dict[str, Any]) -> tuple[_Folder, Experiment]:
        experiment = Experiment.parse(content["experiment"], "experiment")
        words = overriding(experiment) or [str(path / "experiment.toml")]
        if "store" in content:
            words += ["--data", content["store"]]
        words += [word for source in equation_files() for word in ("--equation", source.path)]
        return cls(path, tuple(words)), experiment

    def command(self, option: str) -> str:
        return shlex.join(["pdegen", "run", *self.words, "--out", str(self.path), option])

    def read(self, file: str, parse: Callable[[dict[str, Any]], _T], repair: str) -> _T:
        """What a JSON file holds; `repair` is the option that makes a damaged one again."""
        with self.explained(file, repair):
            return parse(read_json(self.path / file))

    def history(self) -> list[Epoch]:
        with self.explained("history.jsonl", "--resume"):
            return read_history(self.path)

    @contextmanager
    def explained(self, file: str, repair: str) -> Iterator[None]:
        """Say of a file that cannot be read what makes it again."""
        path, again = self.path / file, f"make it again by {self.command(repair)}"
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            if not self.path.is_dir():
                raise ReportError(f"{self.path}: no such folder") from None
            raise ReportError(
                f"{self.path} is no finished run, {file} is missing: {self.command('--resume')}"
            ) from None
        except DamagedError as error:
            raise ReportError(f"{error}: {again}") from None
        except FileError as error:
            raise ReportError(str(error)) from None
        except ValidationError as error:
            keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
            raise ReportError(f"{path} is damaged, see {keys}: {again}") from None
        except SchemaError as error:
            raise ReportError(f"{path}: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{path} is damaged ({error}): {again}") from None


@dataclass(frozen=True)
class Result:
    """What the folder of a finished run holds: its first reported checkpoint, scores and epochs."""

    experiment: Experiment
    scores: Scores
    history: list[Epoch]
    checkpoint: Path
    description: dict[str, Any]


def read_result(path: Path) -> Result:
    """Read the folder of a finished run, whose files agree with each other. Raises ReportError if
    the folder is no finished run, or is damaged."""
    folder, experiment = _Folder.of(path)
    scores = folder.read("scores.json", Scores.model_validate, "--resume")
    history = folder.history()
    if len(history) < experiment.training.epochs:
        raise ReportError(
            f"{path} is not finished, {len(history)} of {experiment.training.epochs} epochs: "
            f"continue by {folder.command('--resume')}"
        )
    checkpoint = path / f"{experiment.training.reported[0]}.safetensors"
    try:
        description = check_checkpoint(checkpoint)
    except CheckpointError as error:
        raise ReportError(f"{error}: train again by {folder.command('--overwrite')}") from error
    if description.get("experiment") != experiment.model_dump(mode="json"):
        raise ReportError(
            f"{checkpoint} is of another run: train again by {folder.command('--overwrite')}"
        )
    score = next((e.score for e in history if e.epoch == description["epoch"]), None)
    if score != description.get("selection_score"):
        raise ReportError(
            f"{path}/history.jsonl is not of {checkpoint.name}: "
            f"write it again by {folder.command('--resume')}"
        )
    epochs = {r.epoch for r in scores.results if r.checkpoint == checkpoint.stem}
    if epochs != {description["epoch"]}:
        raise ReportError(
            f"{path}/scores.json is not of {checkpoint.name}: "
            f"evaluate again by {folder.command('--resume')}"
        )
    return Result(experiment, scores, history, checkpoint, description)


def read_finished(path: Path, url: str, device: torch.device) -> FinishedRun:
    """Read a finished run, and what its first reported checkpoint predicts of the test split.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or is of other data.
        StoreError: If the store is absent or unfinished.
    """
    result = read_result(path)
    experiment, scores, checkpoint = result.experiment, result.scores, result.checkpoint
    store = open_sealed(url)
    if store.metadata.content != scores.data.get("content"):
        raise ReportError(f"{url} holds other data than {path} was evaluated on: give its store")
    pairs = Source(url, experiment).samples("test").resident()

    def predictor() -> Predictor:
        return load_checkpoint(checkpoint, build_operator)[0]

    def predict() -> torch.Tensor:
        return predictions(predictor().to(device), pairs.to(device))

    prediction = kept_predictions(path, checkpoint, pairs, predict)
    mean = kept_mean(path, Source(url, experiment))
    return FinishedRun(
        experiment, scores, result.history, store, pairs, prediction, mean, predictor
    )


def store_of_run(path: Path) -> str:
    """The store that a finished run was evaluated on. Raises ReportError if the folder is no
    finished run, or is damaged."""
    folder, _ = _Folder.of(path)
    return folder.read("scores.json", lambda content: str(content["data"]["url"]), "--resume")
