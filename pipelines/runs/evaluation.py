"""Evaluation of single checkpoints and of whole runs."""

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pdegen
from operators.data import Batch, Samples, Task
from operators.norms import mean_defined
from operators.registry import build_operator
from operators.training.checkpoint import (
    CheckpointError,
    check_fit,
    checkpoint_file,
    load_checkpoint,
)
from operators.training.evaluate import errors_of, scores
from operators.training.identity import MADE_FROM, check_made_from, training_key
from operators.transforms import Predictor
from pdegen.ownership import FileError, write_json
from pdegen.software import platform_facts, processor, versions
from pdegen.store.format import Json
from pdegen.store.reading import open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.baselines import trivial
from pipelines.runs.checks import operator_description
from pipelines.runs.data import Source
from pipelines.runs.differences import differences
from pipelines.runs.folder import RunError
from pipelines.runs.measures import measures_of
from pipelines.runs.predictions import KEPT_BYTES, kept_mean, kept_predictions, mean_target
from pipelines.runs.run_folder import declared_in, recorded_content, recorded_history, scores_key
from pipelines.runs.score import Score, channel_parts


def open_checkpoint(
    checkpoint: Path, store: str, device: torch.device, split: str, resolution: int | None,
    level: float | None, assumed_level: float | None = None,
    on_differences: Callable[[str], None] = lambda differences: None, content: str | None = None,
) -> tuple[Predictor, dict[str, Any], Samples]:  # fmt: skip
    """The predictor of a checkpoint, its description, and the samples to evaluate it on.

    Args:
        content, on_differences: See `evaluate`.

    Raises:
        CheckpointError, ForeignError, DataError, SchemaError: See `evaluate`.
    """
    checkpoint = checkpoint_file(checkpoint)
    predictor, description = load_checkpoint(checkpoint, build_operator)
    absent = {"experiment", "epoch"} - description.keys()
    if absent:
        raise CheckpointError(f"{checkpoint} is of no experiment: it has no {min(absent)}")
    check_beside(checkpoint, description)
    experiment = parse_recorded(description["experiment"], str(checkpoint))
    source = Source(store, experiment, at=level, assumed_level=assumed_level, content=content)
    pairs = source.samples(split, resolution=resolution or source.stored_resolution, device=device)
    check_fit(predictor, pairs)
    if line := differences(description, experiment, store):
        on_differences(line)
    return predictor, description, pairs


def check_beside(checkpoint: Path, description: Json) -> None:
    """Raise ForeignError if a checkpoint lies in the folder of another run."""
    try:
        declared = declared_in(checkpoint.parent)
    except (FileNotFoundError, FileError, RunError):  # alone, as in an exported model
        return
    check_made_from(checkpoint, training_key(description), training_key(declared))


def parse_recorded(recorded: Any, where: str) -> Experiment:
    """A recorded experiment with the default optimiser and schedule, and the loss l2.

    Evaluation uses none of the three, so users' files with those of the training need not be
    loaded. Raises SchemaError if the experiment is impossible.
    """
    training = recorded.get("training") if isinstance(recorded, Mapping) else None
    if isinstance(training, Mapping):
        kept = {k: value for k, value in training.items() if k not in ("optimizer", "schedule")}
        recorded = {**recorded, "training": {**kept, "loss": {"name": "l2"}}}
    return Experiment.parse(recorded, where)


def evaluate(
    checkpoint: Path,
    store: str,
    device: torch.device,
    *,
    split: str = "test",
    resolution: int | None = None,
    level: float | None = None,
    assumed_level: float | None = None,
    content: str | None = None,
    keep_in: Path | None = None,
    on_differences: Callable[[str], None] = lambda differences: None,
) -> Score:
    """Scores of a checkpoint on a split of a store.

    Args:
        checkpoint: A safetensors file of a run, or the folder of an exported model.
        store: URL of the store.
        device: Device of the evaluation.
        split: Name of the split.
        resolution: Points along the first axis; by default those of the store.
        level: Noise level of the inputs; by default the training level.
        assumed_level: Noise level that the operator receives, if the level is one of its inputs; by
            default the true level.
        content: Digest that the content of the store must have; by default any.
        keep_in: Folder in which predictions are cached, unless they are too large.
        on_differences: Called with a line that names the constants of the store that differ from
            those of the training data, if there are any.

    Raises:
        SchemaError: If a level is impossible, or if `assumed_level` is given and the operator does
            not have the noise level as an input.
        CheckpointError: If the file is no checkpoint, or was trained on other channels.
        ForeignError: If the file lies in the folder of another run.
        DataError: If the store lacks the variables, the split or the grid.
    """
    predictor, description, pairs = open_checkpoint(
        checkpoint, store, device, split, resolution, level, assumed_level, on_differences, content
    )
    predictions: list[Tensor] = []

    def keep(p: Tensor) -> None:
        if keep_in is not None and len(pairs) * p[0].nbytes <= KEPT_BYTES:
            predictions.append(p.cpu())

    try:
        score = compute_score(predictor.to(device), pairs, predictor.task, keep)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {store}: {error}") from error
    if keep_in is not None and predictions:
        kept_predictions(keep_in, checkpoint, pairs, lambda: torch.cat(predictions))
    return replace(score, checkpoint=checkpoint.stem, epoch=description["epoch"], split=split)


def compute_score(
    predictor: nn.Module,
    pairs: Samples,
    task: Task,
    keep: Callable[[Tensor], None] = lambda p: None,
) -> Score:
    """Evaluate a predictor on samples. `keep` is called with the predictions of each batch."""
    parts, batches = channel_parts(pairs.target_channels), list[dict[str, Tensor]]()

    def measure(p: Tensor, batch: Batch) -> None:
        keep(p)
        of_parts = {
            f"of {kind}": errors_of(p, batch, pairs, parts=len(names))
            for kind, names in parts.items()
        }
        found = of_parts | measures_of(p, batch, pairs, task)
        batches.append({name: errors.cpu() for name, errors in found.items()})

    start = time.perf_counter()
    errors = scores(predictor, pairs, keep=measure)
    seconds = time.perf_counter() - start
    measured = {
        name: torch.cat([batch.get(name, torch.full_like(batch["l1"], nan)) for batch in batches])
        for name in dict.fromkeys(name for batch in batches for name in batch)
    }
    means = {kind: measured.pop(f"of {kind}").nanmean(dim=0).tolist() for kind in parts}
    return Score(
        checkpoint="", epoch=0, split="test", resolution=pairs.source["resolution"],
        samples=tuple(pairs.ids.tolist()), errors=tuple(errors.tolist()), seconds=seconds,
        measures={name: tuple(values.tolist()) for name, values in measured.items()},
        **{
            kind: {name: v for name, v in zip(names, means[kind], strict=True) if not isnan(v)}
            for kind, names in parts.items()
        },
    )  # fmt: skip


def trivial_scores(source: Source, folder: Path, device: torch.device) -> list[Score]:
    """Scores of the trivial predictors on the test split at the training resolution."""
    experiment, store = source.experiment, source.url
    pairs = source.samples("test", device=device)
    mean = kept_mean(folder, source).to(device)
    return [
        replace(compute_score(predictor, pairs, source.task), checkpoint=name)
        for name, predictor in trivial(experiment, open_sealed(store), pairs, mean).items()
    ]


def trivial_validation_error(experiment: Experiment, store: str, device: torch.device) -> float:
    """Error of the best trivial predictor on the samples that select the weights of a training. It
    is measured in the same way as the validation errors in the history of a run."""
    source = Source(store, experiment)
    pairs = source.samples(experiment.training.selection_split, "selection", device=device)
    mean = mean_target(source.samples("train", "selection", noise=None)).to(device)
    predictors = trivial(experiment, open_sealed(store), pairs, mean).values()
    return min(mean_defined(scores(predictor, pairs)) for predictor in predictors)


def evaluate_run(experiment: Experiment, store: str, folder: Path, device: torch.device) -> dict:
    """Evaluate the reported checkpoints on the test split at all resolutions. Writes scores.json.

    Raises:
        ForeignError: If a file of the folder belongs to another training.
        DataError: If the store has other data than the training.
    """
    grid, (first, *_) = experiment.data.finest_resolution, experiment.training.reported
    declared = declared_in(folder)
    source = Source(store, experiment, content=recorded_content(declared))
    results = [
        evaluate(
            folder / f"{name}.safetensors", store, device, resolution=resolution,
            content=source.content, keep_in=folder if (name, resolution) == (first, grid) else None,
        ).summary()
        for name in experiment.training.reported
        for resolution in experiment.resolutions
    ]  # fmt: skip
    pairs = source.samples("test", noise=None)
    history = recorded_history(folder)
    summary = {
        MADE_FROM: scores_key(folder, experiment),
        "experiment": experiment.model_dump(mode="json"),
        "protocol": experiment.training.protocol,
        "data": pairs.source,
        "reading": declared["reading"],
        "parameters": build_operator(operator_description(experiment, pairs)).parameter_count,
        "training_seconds": sum(epoch.seconds for epoch in history),
        "provenance": provenance(device),
        "results": results,
        "trivial": [s.summary() for s in trivial_scores(source, folder, device)],
    }
    write_json(folder / "scores.json", summary)
    return summary


def evaluate_trained(folder: Path, device: torch.device, store: str | None = None) -> bool:
    """Evaluate a run that was trained but not evaluated, as after `train`. Returns whether it was.

    Nothing happens if the folder has scores.json, or if epochs are missing.

    Args:
        store: URL of the store; by default that of the training.

    Raises:
        RunError, SchemaError: If run.json is damaged.
        ForeignError, DataError: See `evaluate_run`.
    """
    if (folder / "scores.json").exists() or not (folder / "run.json").exists():
        return False
    declared = declared_in(folder)
    experiment = Experiment.parse(declared["experiment"], str(folder / "run.json"))
    url = store or declared.get("store")
    if url is None or not (folder / "history.jsonl").exists():
        return False
    if len(recorded_history(folder)) < experiment.training.epochs:
        return False
    evaluate_run(experiment, url, folder, device)
    return True


def provenance(device: torch.device) -> dict[str, Any]:
    """Software versions, machine and device of this process."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else processor()
    return {
        "pdegen": pdegen.__version__,
        "python": platform.python_version(),
        **versions("torch", "numpy", "zarr"),
        **(versions("triton") if device.type == "cuda" else {}),
        **platform_facts(),
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
    }
