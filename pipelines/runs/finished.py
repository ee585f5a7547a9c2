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
from jaxtyping import Float
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor, nn

from operators.data import Map, Samples
from operators.data.opening import names_of
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint
from operators.training.evaluate import errors_of, predictions
from operators.training.fit import Epoch, read_history
from operators.training.identity import ForeignError, check_made_from, training_key
from operators.transforms import Predictor
from pdegen.files import DamagedError, FileError, read_json
from pdegen.plugins import loaded_plugins
from pdegen.schema import SchemaError
from pdegen.store.format import Json
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment, physics_of
from pipelines.runs.data import Source
from pipelines.runs.folder import recorded_checkpoint, recorded_content, scores_key
from pipelines.runs.plugins import absent_class
from pipelines.runs.predictions import kept_mean, kept_predictions
from pipelines.runs.reproduction import overriding
from pipelines.runs.score import KeptScore, Score, agreement

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
    corrected: list[KeptScore] = []

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


def read_finished(path: Path, store: str | Store, device: torch.device) -> FinishedRun:
    """Read a finished run, with the predictions of its first reported checkpoint on the test split.

    Raises:
        ReportError: If the folder is no finished run, is damaged, or belongs to other data.
        StoreError: If the store is absent or unfinished.
    """
    result = read_result(path)
    experiment, scores, checkpoint = result.experiment, result.scores, result.checkpoint
    store = open_sealed(store)
    content = store.metadata.content
    if content != scores.data.get("content"):
        raise ReportError(
            f"{store.url} has other data than {path} was evaluated on: name its store"
        )
    source = Source(store, experiment, content=content)
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


# Baselines for a trained operator: the errors of trivial predictors and of the labels.


MEAN, CONSTANT = "mean of the training targets", "constant (mean over points too)"
IDENTITY = "identity (the last known state)"
TRIVIAL = {"mean": MEAN, "identity": IDENTITY}


@dataclass(frozen=True)
class Measured:
    """Errors of a method on the test samples.

    Args:
        errors: Relative L² error of each sample.
        iou, hausdorff: Intersection over union of the phases and Hausdorff distance of the
            interfaces for each sample. None if the target is not a two-phase coefficient.
    """

    errors: np.ndarray
    iou: np.ndarray | None = None
    hausdorff: np.ndarray | None = None


def compare_baselines(run: FinishedRun) -> dict[str, Measured]:
    """Errors of the model and of the baselines on the test samples, keyed by name.

    One baseline predicts the mean function of the training targets. If the targets are later
    states, another predicts the input state. If the target is a two-phase coefficient, a third
    predicts a constant: the mean of the training targets over samples and points.
    """
    predictions = {f"model ({run.checkpoint})": run.prediction.double(), **trivial_predictions(run)}
    if run.target_phases is not None:
        predictions[CONSTANT] = run.mean.mean().expand_as(run.pairs.u)
    return {name: _measured(run, prediction) for name, prediction in predictions.items()}


def trivial_predictions(run: FinishedRun) -> dict[str, Tensor]:
    """Predictions of the trivial predictors for the test samples, keyed by name."""
    predictors = trivial(run.experiment, run.store, run.pairs, run.mean)
    return {TRIVIAL[name]: predictor(run.pairs.a) for name, predictor in predictors.items()}


def trivial(
    experiment: Experiment, store: Store, pairs: Samples, mean: Float[Tensor, "*grid c"]
) -> dict[str, Trivial]:
    """The trivial predictors that apply to the data, keyed by name.

    "mean" predicts the mean training target. "identity" predicts the last state in the input. It
    applies only if that state has the shape of the target.
    """
    predictors = {"mean": Trivial(lambda a: mean.to(a.device).expand(len(a), *mean.shape))}
    times = len(dict.fromkeys(channel.time for channel in pairs.target_channels)) or 1
    components, task = len(pairs.target_channels) // times, experiment.learned
    first = pairs.first()
    if isinstance(task, Map) and not _are_states(experiment, store):
        return predictors
    has_level = experiment.noise is not None and experiment.noise.levels is not None

    def last_state(a: Tensor) -> Tensor | None:
        # the last channel is the noise level
        return task.persistence(a[..., : a.shape[-1] - has_level], components, times)

    last = last_state(first.a)
    if last is not None and last.shape == first.u.shape and pairs.y is None and first.y is None:
        predictors["identity"] = Trivial(lambda a: _present(last_state(a)))
    return predictors


class Trivial(nn.Module):
    """A predictor without weights, which maps inputs a to targets u."""

    def __init__(self, predict: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.predict = predict

    def forward(self, a: Tensor, *positions: Tensor | None, steps: int = 1) -> Tensor:
        return self.predict(a)


def _are_states(experiment: Experiment, store: Store) -> bool:
    """Whether the input is a single state and the target has later states."""
    input, target = experiment.variables
    if not isinstance(input, str) or not isinstance(target, str):
        return False
    before, after = store.arrays[input], store.arrays[target]
    return "time" in after.metadata.coordinates and "time" not in before.dims


def _present(state: Tensor | None) -> Tensor:
    assert state is not None
    return state


def _measured(run: FinishedRun, prediction: torch.Tensor) -> Measured:
    """Errors of predictions on the test samples."""
    truth, values = run.pairs.u.double(), run.target_phases
    errors = run.errors(prediction)[:, 0]
    if values is None:
        return Measured(errors)
    return Measured(errors, *agreement(prediction[..., 0].numpy(), truth[..., 0].numpy(), values))


_SOLVED = "u"  # the variable whose errors `error` and `label_error` of a store are


def label_error(source: Source) -> float | None:
    """Mean relative L² error of the labels.

    If the store has the solver's error of each sample, the mean is over the test split. Otherwise
    it is over the samples that were compared with a reference solution. Returns None if the store
    has no errors (for example of exact solutions), or if the target is not the solution u.
    """
    names, store = source.experiment.variables[1], source.store
    if _SOLVED not in ((names,) if isinstance(names, str) else names):
        return None
    if "error" in store.variables:
        test = range(*store.metadata.splits["test"])
        values = np.asarray(store.values("error", test))
        values = values[np.isfinite(values)]
        return float(np.mean(values)) if len(values) else None
    measured = store.metadata.label_error
    return float(np.mean(measured.relative_l2)) if measured else None
