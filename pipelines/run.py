"""Generate (if absent) -> verify -> train -> evaluate -> report, each step also by itself."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pdegen
from operators.base import Operator
from operators.checkpoint import CheckpointError, check_fit, load_checkpoint
from operators.data import Samples
from operators.evaluate import scores
from operators.norms import WeightedH1
from operators.ranks import ALONE, Ranks
from operators.step import Acceleration, AccelerationError
from operators.train import Epoch, fit
from operators.transforms import Predictor, SquareSymmetries
from pdegen.schema import SchemaError
from pipelines.data import Source
from pipelines.experiment import Experiment
from pipelines.models import build_operator

_BEFORE = {"precision": "float32", "compiled": False, "processes": 1}  # of runs that do not say it


class RunError(ValueError):
    """A run folder that is in the way or is another's; one line."""


@dataclass(frozen=True)
class Score:
    """Relative L² errors of the samples of one split at one resolution.

    Args:
        samples: Their numbers in the store.
    """

    checkpoint: str
    epoch: int
    split: str
    resolution: int
    samples: tuple[int, ...]
    errors: tuple[float, ...]
    seconds: float

    def summary(self) -> dict[str, Any]:
        errors = np.array(self.errors)
        return {
            "checkpoint": self.checkpoint,
            "epoch": self.epoch,
            "split": self.split,
            "resolution": self.resolution,
            "first_sample": self.samples[0],
            "skipped": sorted(set(range(self.samples[0], self.samples[-1])) - set(self.samples)),
            "samples": len(errors),
            "mean": float(errors.mean()),
            "median": float(np.median(errors)),
            "worst": float(errors.max()),
            "std": float(errors.std()),
            "seconds": self.seconds,
            "errors": list(self.errors),
        }


def check_folder(folder: Path) -> None:
    """Raise RunError where a folder cannot be made or written to."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise RunError(f"{there} is a file, not a folder: choose another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunError(f"{there} cannot be written to: choose another --out")


def check_device(name: str) -> torch.device:
    """Raise SchemaError for a device that this machine lacks."""
    if name not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {name!r}: known: cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise SchemaError("device cuda was asked for, but PyTorch finds none here: use cpu")
    return torch.device(name)


def check_acceleration(device: torch.device, precision: str, compiled: str) -> Acceleration:
    """How steps are run, from the words of a user.

    Raises:
        SchemaError: For a word or a precision that is not to be had on the device.
    """
    try:
        return Acceleration.chosen(device, precision, compiled)
    except AccelerationError as error:
        raise SchemaError(str(error)) from None


def train(
    experiment: Experiment,
    store: str,
    folder: Path,
    device: torch.device,
    *,
    resume: bool = False,
    overwrite: bool = False,
    acceleration: Acceleration | None = None,
    ranks: Ranks = ALONE,
    on_reading: Callable[[str], None] = lambda reading: None,
    on_start: Callable[[str], None] = lambda how: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Epoch]:
    """Train an experiment on a store; leaves its checkpoints and history in the folder.

    Args:
        experiment, store, folder, device: What to train, on what, where to, and by what.
        resume, overwrite: Go on with what is in the folder, or replace it.
        on_reading: Called once with how the training samples are read.
        acceleration: How steps are run; by default what is fastest on the device.
        ranks, on_start, on_epoch, stop: As of `operators.train.fit`.

    Raises:
        RunError: If the folder holds a run already, or another one than is to be resumed.
        DataError: If the store cannot be read as asked.
        SchemaError: If the model or the batch does not fit the data; nothing is written.
    """
    acceleration = acceleration or Acceleration.chosen(device)
    source = Source(store, _as_before(experiment, folder) if resume else experiment)
    pairs = source.training(device)
    selection = source.tested(experiment.training.selection_split, device)
    settings = experiment.training.settings()
    data = _identity(pairs)
    if experiment.data.stream is not None:
        data["selection"] = _identity(selection)
    declared = {
        "experiment": experiment.model_dump(mode="json"),
        "data": data,
        "reading": pairs.reading,
        "precision": acceleration.precision,
        "compiled": acceleration.compiled,
        "processes": ranks.count,
    }
    if settings.batch % ranks.count:
        raise SchemaError(
            f"batch {settings.batch} does not divide among the {ranks.count} processes"
        )
    operator = checked_operator(experiment, pairs)
    predictor = Predictor(
        operator,
        *experiment.normalization.of(pairs),
        vanishes=pairs.grid == "nodal" and experiment.data.target == "u",
    ).to(device)
    # the first process alone writes
    resume = ranks.any(ranks.first and _claim(folder, declared, resume, overwrite))
    on_reading(pairs.reading)
    model = operator_description(experiment, pairs)
    description = {"operator": model, **declared, "parameters": operator.parameter_count}
    return fit(
        predictor, pairs, selection, settings, folder, description,
        resume=resume, acceleration=acceleration, ranks=ranks, on_start=on_start,
        on_epoch=on_epoch, stop=stop,
    )  # fmt: skip


def checked_operator(experiment: Experiment, pairs: Samples) -> Operator:
    """The operator of an experiment with its initial weights, after a first evaluation.

    Raises:
        SchemaError: If it, the batch, the symmetries or the loss do not fit the data.
    """
    settings = experiment.training.settings()
    if settings.batch > len(pairs):
        raise SchemaError(
            f"batch {settings.batch} is larger than the {len(pairs)} samples to train"
        )
    torch.manual_seed(settings.seed)
    a, u = pairs.first()
    try:
        operator = build_operator(operator_description(experiment, pairs)).to(a.device)
        of_the_square = {
            "symmetries of the square": isinstance(settings.augment, SquareSymmetries),
            "the loss weighted-h1": isinstance(settings.loss, WeightedH1),
        }
        for what in (what for what, asked in of_the_square.items() if asked):
            if operator.dim != 2:
                raise ValueError(f"{what} needs 2 dimensions, the data have {operator.dim}")
        if isinstance(settings.augment, SquareSymmetries):
            settings.augment.check(pairs.x)
        with torch.no_grad():
            settings.loss(operator.eval()(a, pairs.x, pairs.y), u, a)
    except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
        where = pairs.source["url"]
        raise SchemaError(f"model {experiment.model.name} on {where}: {error}") from error
    return operator


def store_of_run(folder: Path) -> str:
    """The store that a finished run was evaluated on.

    Raises:
        RunError: If the folder is no finished run.
    """
    try:
        return json.loads((folder / "scores.json").read_text("utf-8"))["data"]["url"]
    except FileNotFoundError:
        raise RunError(f"{folder} is no finished run: it has no scores.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'scores.json'} is damaged: {error}") from None


def _as_before(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment read as a run to resume was: what memory is free now must not change it."""
    if experiment.data.stream is not None:
        return experiment
    try:
        reading = json.loads((folder / "run.json").read_text("utf-8"))["reading"]
    except (FileNotFoundError, KeyError):
        return experiment
    return experiment.with_overrides({"data.reading": reading.split(",")[0]})


def operator_description(experiment: Experiment, pairs: Samples) -> dict[str, Any]:
    """What builds the operator of an experiment for the data."""
    return {
        "model": experiment.model.model_dump(mode="json"),
        "in_channels": pairs.channels[0],
        "out_channels": pairs.channels[1],
        "dim": pairs.x.shape[-1],
    }


def _identity(pairs: Samples) -> dict[str, Any]:
    """What the data are, wherever they lie."""
    return {key: value for key, value in pairs.source.items() if key != "url"}


def _claim(folder: Path, declared: dict[str, Any], resume: bool, overwrite: bool) -> bool:
    """Take a folder for a run; true where a state is there to resume from."""
    path = folder / "run.json"
    if path.exists() and not overwrite:
        if not resume:
            raise RunError(f"{folder} holds a run: use --resume to continue or --overwrite")
        there = json.loads(path.read_text("utf-8"))
        for key in declared:
            if there.get(key, _BEFORE.get(key)) != declared[key]:
                what = "number of processes" if key == "processes" else key
                raise RunError(
                    f"{folder} holds a run of another {what}: it cannot be resumed as this"
                )
        return (folder / "state.pt").exists()
    if folder.exists() and not path.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} exists and is no run folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (
        "state.pt",
        "history.jsonl",
        "best.safetensors",
        "last.safetensors",
        "scores.json",
    ):
        (folder / name).unlink(missing_ok=True)
    path.write_text(json.dumps(declared, indent=2), "utf-8")
    return False


def evaluate(
    checkpoint: Path,
    store: str,
    device: torch.device,
    *,
    split: str = "test",
    resolution: int | None = None,
    level: float | None = None,
) -> Score:
    """Scores of a checkpoint on a split of a store, at the noise level of its experiment or
    another.

    Raises:
        CheckpointError: If it is none, or of data with other channels.
        DataError: If the store cannot be read as asked.
    """
    predictor, description = load_checkpoint(checkpoint, build_operator)
    experiment = Experiment.parse(description["experiment"], str(checkpoint))
    if level is not None:
        experiment = experiment.at_level(level)
    source = Source(store, experiment)
    pairs = source.tested(split, device, resolution or source.stored_resolution)
    check_fit(predictor, pairs)
    start = time.perf_counter()
    try:
        errors = scores(predictor.to(device), pairs)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {store}: {error}") from error
    return Score(
        checkpoint=checkpoint.stem,
        epoch=description["epoch"],
        split=split,
        resolution=pairs.source["resolution"],
        samples=tuple(pairs.samples.tolist()),
        errors=tuple(errors.tolist()),
        seconds=time.perf_counter() - start,
    )


def evaluate_run(experiment: Experiment, store: str, folder: Path, device: torch.device) -> dict:
    """Scores of the reported checkpoints on the test split at all resolutions, in scores.json."""
    results = [
        evaluate(folder / f"{name}.safetensors", store, device, resolution=resolution).summary()
        for name in experiment.training.reported
        for resolution in experiment.resolutions
    ]
    pairs = Source(store, experiment).streamed("test")
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    summary = {
        "experiment": experiment.model_dump(mode="json"),
        "protocol": experiment.training.protocol,
        "data": pairs.source,
        "reading": json.loads((folder / "run.json").read_text("utf-8"))["reading"],
        "parameters": build_operator(operator_description(experiment, pairs)).parameter_count,
        "training_seconds": sum(epoch["seconds"] for epoch in history),
        "provenance": provenance(device),
        "results": results,
    }
    (folder / "scores.json").write_text(json.dumps(summary, indent=2), "utf-8")
    return summary


def provenance(device: torch.device) -> dict[str, Any]:
    """Software and hardware of a run."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor()
    return {
        "pdegen": pdegen.__version__,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "scipy", "zarr")},
        "device": f"{device.type} ({name or platform.machine()})",
        "threads": torch.get_num_threads(),
    }
