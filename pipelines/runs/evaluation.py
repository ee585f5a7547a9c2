"""Evaluation of single checkpoints and of whole runs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from zarr.errors import ZarrUserWarning

import pdegen
from operators.api import by_axes, load_model, positions
from operators.data import Batch, Channel, Samples, Task
from operators.data.opening import names_of
from operators.norms import mean_defined
from operators.registry import build_operator
from operators.training.checkpoint import (
    CheckpointError,
    Grids,
    check_fit,
    checkpoint_file,
    load_checkpoint,
)
from operators.training.evaluate import errors, errors_of, scores
from operators.training.identity import MADE_FROM, check_made_from, training_key
from operators.transforms import Predictor
from pdegen.domains import GRIDS, Box, Domain
from pdegen.files import FileError, is_url, note_all, write_json
from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import replacing
from pdegen.formats.sandbox import open_file, unpacked
from pdegen.schema import SchemaError
from pdegen.software import platform_facts, processor, versions
from pdegen.store.format import Json
from pdegen.store.reading import Store
from pipelines.config.experiment import Experiment
from pipelines.runs.checks import operator_description
from pipelines.runs.data import Source
from pipelines.runs.differences import differences
from pipelines.runs.finished import Trivial, trivial
from pipelines.runs.folder import (
    RunError,
    check_folder,
    declared_in,
    recorded_content,
    recorded_history,
    scores_key,
)
from pipelines.runs.guaranteed import Guaranteed
from pipelines.runs.predictions import KEPT_BYTES, kept_mean, kept_predictions, mean_target
from pipelines.runs.residual import Correction, EquationResidual
from pipelines.runs.score import Score, channel_parts, measures_of


def open_checkpoint(
    checkpoint: Path, store: str | Store, device: torch.device, split: str, resolution: int | None,
    level: float | None, assumed_level: float | None = None,
    on_differences: Callable[[str], None] = lambda differences: None, content: str | None = None,
) -> tuple[Predictor, dict[str, Any], Source, Samples]:  # fmt: skip
    """The predictor of a checkpoint, its description, its data, and the samples to evaluate it on.

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
    if line := differences(description, experiment, source.store):
        on_differences(line)
    return predictor, description, source, pairs


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
    store: str | Store,
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
        store: The store, or its URL.
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
    predictor, description, source, pairs = open_checkpoint(
        checkpoint, store, device, split, resolution, level, assumed_level, on_differences, content
    )
    residual = EquationResidual.if_any(source, pairs)
    predictions: list[Tensor] = []

    def keep(p: Tensor) -> None:
        if keep_in is not None and len(pairs) * p[0].nbytes <= KEPT_BYTES:
            predictions.append(p.cpu())

    try:
        score = compute_score(predictor.to(device), pairs, predictor.task, keep, residual)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {pairs.source['url']}: {error}") from error
    if keep_in is not None and predictions:
        kept_predictions(keep_in, checkpoint, pairs, lambda: torch.cat(predictions))
    return replace(score, checkpoint=checkpoint.stem, epoch=description["epoch"], split=split)


def compute_score(
    predictor: nn.Module,
    pairs: Samples,
    task: Task,
    keep: Callable[[Tensor], None] = lambda p: None,
    residual: EquationResidual | None = None,
) -> Score:
    """Evaluate a predictor on samples. `keep` is called with the predictions of each batch. The
    measures include the residual, if there is one."""
    parts, batches = channel_parts(pairs.target_channels), list[dict[str, Tensor]]()

    def measure(p: Tensor, batch: Batch) -> None:
        keep(p)
        of_parts = {
            f"of {kind}": errors_of(p, batch, pairs, parts=len(names))
            for kind, names in parts.items()
        }
        found = of_parts | measures_of(p, batch, pairs, task)
        if residual is not None:
            found["residual"] = residual(batch.a, p).nan_to_num(nan=inf)
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
    experiment, store = source.experiment, source.store
    pairs = source.samples("test", device=device)
    mean, residual = kept_mean(folder, source).to(device), EquationResidual.if_any(source, pairs)
    return [
        replace(compute_score(predictor, pairs, source.task, residual=residual), checkpoint=name)
        for name, predictor in trivial(experiment, store, pairs, mean).items()
    ]


def corrected_scores(
    checkpoint: Path,
    store: str | Store,
    device: torch.device,
    steps: int,
    resolution: int | None = None,
) -> list[Score]:
    """Scores on the test split after steps of the solver: from predictions, from nothing, and after
    twice as many from nothing. Errors are those of `evaluate`, and SchemaError without a residual.
    """
    predictor, description, source, pairs = open_checkpoint(
        checkpoint, store, device, "test", resolution, None
    )
    residual, model = EquationResidual.of(source, pairs), predictor.to(device).eval()

    def score(name: str, count: int, start: Callable[[Tensor], Tensor | None]) -> Score:
        corrected = Trivial(lambda a: residual.corrected(a, start(a), count))
        found = compute_score(corrected, pairs, source.task, residual=residual)
        return replace(found, checkpoint=f"{name}, {count} steps")

    return [
        replace(
            score(checkpoint.stem, steps, lambda a: model(a, pairs.x, pairs.y)),
            epoch=description["epoch"],
        ),
        *(score("no model", count, lambda a: None) for count in (steps, 2 * steps)),
    ]


def trivial_validation_error(
    experiment: Experiment, store: str | Store, device: torch.device
) -> float:
    """Error of the best trivial predictor on the samples that select the weights of a training. It
    is measured in the same way as the validation errors in the history of a run."""
    source = Source(store, experiment)
    pairs = source.samples(experiment.training.selection_split, "selection", device=device)
    mean = mean_target(source.samples("train", "selection", noise=None)).to(device)
    predictors = trivial(experiment, source.store, pairs, mean).values()
    return min(mean_defined(scores(predictor, pairs)) for predictor in predictors)


_STEPS = 2  # of the solver, by which scores.json has corrected predictions


def evaluate_run(
    experiment: Experiment, store: str | Store, folder: Path, device: torch.device
) -> dict:
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
            folder / f"{name}.safetensors", source.store, device, resolution=resolution,
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
    if "residual" in summary["trivial"][0].get("measures", {}):
        best = folder / f"{first}.safetensors"
        corrected = corrected_scores(best, source.store, device, _STEPS, grid)
        summary["corrected"] = [score.summary() for score in corrected]
    write_json(folder / "scores.json", summary)
    return summary


def evaluate_trained(folder: Path, device: torch.device, store: str | Store | None = None) -> bool:
    """Evaluate a run that was trained but not evaluated, as after `train`. Returns whether it was.

    Nothing happens if the folder has scores.json, or if epochs are missing.

    Args:
        store: The store, or its URL; by default that of the training.

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


# Writes predictions of a checkpoint to a Zarr group, with guaranteed error bounds on request.


FORMAT = "pdegen-predictions"
_ZARR = re.compile(r"zarr\.json|[^/]+/(zarr\.json|c(/\d+)*)")  # files of a Zarr group


class Predictions(NamedTuple):
    """The folder to which predictions were written, and lines of text about their error bounds."""

    out: Path
    lines: tuple[str, ...]


def predict(
    checkpoint: Path,
    store: str,
    out: Path,
    device: torch.device,
    *,
    split: str = "test",
    resolution: int | None = None,
    level: float | None = None,
    assumed_level: float | None = None,
    bound: bool = False,
    correct: int = 0,
    overwrite: bool = False,
    on_differences: Callable[[str], None] = lambda differences: None,
) -> Predictions:
    """Write the predictions of a checkpoint on a split of a store to a Zarr group.

    The group is written completely or not at all. An existing group is replaced only after the new
    one is complete (`pdegen.formats.plan`). The predictions must fit into memory.

    Args:
        resolution: Points along each axis; by default those of the store.
        level: Noise level of the inputs; by default the training level.
        assumed_level: Noise level that the operator receives, if the level is one of its inputs; by
            default the true level.
        bound: Whether to write a guaranteed bound of the error of each prediction.
        correct: Number of steps of the solver that correct each prediction.
        on_differences: See `evaluate`.

    Raises:
        SchemaError: If a level is impossible, `assumed_level` is given although the operator does
            not have the noise level as an input, or the equation offers no bound for these
            predictions, or no residual by which to correct them.
        SampleError: If the bound of a prediction cannot be computed.
        RunError: If `out` exists and cannot be replaced.
        FormatError: If another process writes to `out`.
        CheckpointError: If the file is no checkpoint, or does not fit the data.
        DataError: If the store lacks the variables, the split or the grid.
    """
    _check(out, overwrite)
    checkpoint = checkpoint_file(checkpoint)
    predictor, description, source, pairs = open_checkpoint(
        checkpoint, store, device, split, resolution, level, assumed_level, on_differences
    )
    guaranteed = Guaranteed.of(pairs) if bound else None
    correction = Correction(EquationResidual.of(source, pairs), correct) if correct else None
    predicted: list[Tensor] = []
    points: list[Tensor] = []

    def keep(p: Tensor, batch: Batch) -> None:
        if correction is not None:
            p = correction(batch.a, p)
        if batch.mask is not None and batch.mask.shape == p.shape[:-1]:
            p = p.masked_fill(~batch.mask[..., None], torch.nan)
        predicted.append(p.cpu())
        sample_points = batch.y if batch.y is not None else batch.x
        if sample_points is not None and pairs.y is None:
            points.append(sample_points.cpu())

    try:
        errors(predictor.to(device), pairs, keep=keep)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {pairs.source['url']}: {error}") from error
    values = torch.cat(predicted).numpy()
    places = torch.cat(points).numpy() if points else pairs.target_points.cpu().numpy()
    target = str(pairs.source["target"])
    channels = pairs.target_channels or (Channel(target),) * values.shape[-1]
    dataset = _dataset(pairs.domain, pairs.ids, channels, values, places).assign_attrs(
        split=split,
        source=pairs.source,
        **_attributes(checkpoint, description, device),
        **_noise_attributes(description, store, level, assumed_level),
    )
    lines = list[str]()
    for addition in filter(None, (guaranteed, correction)):
        dataset, line = addition.added(dataset)
        lines.append(line)
    _write(dataset, out, overwrite)
    return Predictions(out, (*lines,))


def predict_file(
    checkpoint: Path,
    file: Path,
    out: Path,
    device: torch.device,
    *,
    input: str | None = None,
    grid: str | None = None,
    overwrite: bool = False,
) -> Predictions:
    """Write the predictions of a checkpoint for the inputs in a file to a Zarr group.

    The array of the inputs has shape (samples, *grid, channels) or, if the operator has one input
    channel, (samples, *grid). Its points are those of the training, unless `grid` is given.

    Args:
        file: A .npy, .npz, .mat, .h5 or .pt file.
        input: Name of the array; by default that of the input in training, or of the only array.
        grid: Kind of the grid, or one per axis, separated by commas: periodic, cell or nodal. The
            grid has the lengths of the training, and as many points as the array.

    Raises:
        FormatError: If the file cannot be read, or has no such array.
        SchemaError: If the array or `grid` does not fit the operator.
        RunError: If `out` exists and cannot be replaced.
        CheckpointError: If the file is no checkpoint.
        ForeignError: If the checkpoint lies in the folder of another run.
    """
    _check(out, overwrite)
    checkpoint = checkpoint_file(checkpoint)
    model = load_model(checkpoint, device)
    check_beside(checkpoint, dict(model.description))
    experiment = parse_recorded(model.description.get("experiment"), str(checkpoint))
    name, values = _inputs(file, input, experiment.data.input)
    operator = model.predictor.operator
    channels = model.predictor.in_channels
    if values.ndim == operator.dim + 1 and channels == 1:
        values = values[..., None]
    try:
        if values.ndim != operator.dim + 2 or values.shape[-1] != channels:
            raise ValueError(_misfit(values.shape, operator.dim, channels))
        shape = values.shape[1:-1]
        x = model.grids.x if grid is None else _stated(model.grids, grid, shape)
        if shape != x.shape:
            raise ValueError(
                f"it has {by_axes(shape)} points, the training had {by_axes(x.shape)}: state their "
                f"grid, such as --grid {x.grid.replace('mixed', ','.join(x.kinds))}"
            )
        y = model.grids.y or x
        predicted = model.predict(values, positions(x), None if y is x else positions(y))
    except ValueError as error:
        raise SchemaError(f"{file}: {name}: {error}") from None
    names = names_of(experiment.data.target)
    if len(names) != predicted.shape[-1]:
        names = ["_".join(names)] * predicted.shape[-1]
    dataset = _dataset(
        x, np.arange(len(values)), [*map(Channel, names)], predicted, positions(y).numpy()
    ).assign_attrs(
        source={"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "array": name},
        **_attributes(checkpoint, dict(model.description), device),
    )  # fmt: skip
    _write(dataset, out, overwrite)
    return Predictions(out, ())


def _inputs(file: Path, name: str | None, trained: object) -> tuple[str, np.ndarray]:
    """Name and values of the array of inputs in a file."""
    with tempfile.TemporaryDirectory(prefix="pdegen-predict-") as folder:
        contents = open_file(file, Path(folder))
        if name is None and len(contents.arrays) == 1:
            name = next(iter(contents.arrays))
        elif name is None and trained in contents.arrays:
            name = str(trained)
        elif name is None:
            raise FormatError(f"{contents.summary}: name the inputs by --input")
        array = contents.array(name)
        ready = unpacked([array], Path(folder))[array]
        stored = np.array(ready.read(tuple(slice(None) for _ in ready.shape)))
    if not np.isfinite(stored).all():
        raise FormatError(f"{array.where} has values that are not finite")
    with np.errstate(over="ignore"):
        values = stored.astype(np.float32)
    if not np.isfinite(values).all():
        largest = np.abs(stored).max()
        raise FormatError(f"{array.where} has values of {largest:.1e}, which float32 cannot hold")
    return name, values


def _misfit(shape: tuple[int, ...], dim: int, channels: int) -> str:
    grid = ", ".join(f"points along {axis}" for axis in "xyz"[:dim])
    return (
        f"its shape is {shape}, the operator needs (samples, {grid}, {channels} "
        f"channel{'s' if channels > 1 else ''})"
    )


def _stated(grids: Grids, kinds: str, shape: tuple[int, ...]) -> Box:
    """The grid of the given kinds on the box of the training, with `shape` points."""
    words = kinds.split(",")
    axes = grids.stored.grids
    words = words * len(axes) if len(words) == 1 else words
    if len(words) != len(axes) or not GRIDS.keys() >= set(words):
        raise ValueError(
            f"--grid takes {', '.join(GRIDS)}, or one for each of {len(axes)} axes, got {kinds}"
        )
    along = zip(words, shape, axes, strict=True)
    return Box(tuple(GRIDS[word](n, axis.length, axis.start) for word, n, axis in along))


def _attributes(checkpoint: Path, description: Json, device: torch.device) -> Json:
    """Attributes that record how predictions were made."""
    return {
        "format": FORMAT,
        "title": f"predictions of {description['experiment']['name']}",
        "epoch": description["epoch"],
        "checkpoint": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "experiment": description["experiment"],
        "provenance": provenance(device),
    }


def _write(dataset: xr.Dataset, out: Path, overwrite: bool) -> None:
    """Write predictions to a Zarr group, completely or not at all."""
    with replacing(out) as written, warnings.catch_warnings():
        _check(out, overwrite)  # again, because predicting took a while
        # zarr warns that other readers may ignore consolidated metadata, which does no harm
        warnings.filterwarnings("ignore", "Consolidated metadata", ZarrUserWarning)
        dataset.to_zarr(written, mode="w-", zarr_format=3, consolidated=True)
    note_all(out)


def _noise_attributes(
    description: Json, store: str, level: float | None, assumed_level: float | None
) -> Json:
    """Attributes that record the noise on the inputs, and the assumed level if one was given."""
    experiment = parse_recorded(description["experiment"], store)
    noise = Source(store, experiment, at=level, assumed_level=assumed_level).noise
    attributes: Json = {}
    if noise is not None and noise.on_inputs:
        attributes["noise"] = noise.model_dump(mode="json", exclude_none=True)
    if assumed_level is not None:
        attributes["assumed_level"] = assumed_level
    return attributes


def _dataset(
    domain: Domain, samples: np.ndarray, channels: Sequence[Channel], values: np.ndarray,
    positions: np.ndarray,
) -> xr.Dataset:  # fmt: skip
    """Predictions as an xarray dataset, with sample numbers and the positions of the points."""
    axes = tuple(domain.axes)
    coordinates: Json = {"sample": ("sample", samples)}
    if isinstance(domain, Box):
        for number, axis in enumerate(axes):
            along = tuple(slice(None) if k == number else 0 for k in range(len(axes)))
            coordinates[axis] = (axis, positions[*along, number])
    else:
        dims = axes if positions.ndim == len(axes) + 1 else ("sample", *axes)
        for number, letter in zip(range(positions.shape[-1]), "xyz", strict=False):
            coordinates[letter] = (dims, positions[..., number])
    variables: Json = {}
    for name in dict.fromkeys(channel.variable for channel in channels):
        columns = [number for number, channel in enumerate(channels) if channel.variable == name]
        time, parts, layout = _layout([channels[number] for number in columns])
        if time and coordinates.setdefault("time", time) != time:  # times of another variable
            parts = [channels[number].name for number in columns]
            layout = [(f"{name}_channel", len(columns))]
        shape = (len(values), *(size for _, size in layout), *values.shape[1:-1])
        rows = np.moveaxis(values[..., columns], -1, 1).reshape(shape)
        attributes = {"long_name": f"predicted {name}", **({"channels": parts} if parts else {})}
        variables[name] = (("sample", *(dim for dim, _ in layout), *axes), rows, attributes)
    return xr.Dataset(variables, coordinates)


def _layout(
    channels: Sequence[Channel],
) -> tuple[tuple[tuple[str, ...], Any] | None, list[str], list[tuple[str, int]]]:
    """Layout of the channels of one variable.

    Returns the time coordinate, the names of the components, and the axes (names and lengths)
    between the sample axis and the space axes.

    >>> _layout([Channel("u", part, time) for time in (0.1, 0.2) for part in ("u_x", "u_y")])
    ((('time',), [0.1, 0.2]), ['u_x', 'u_y'], [('time', 2), ('channel', 2)])
    >>> _layout([Channel("u", "", 0.5)])
    (((), 0.5), [], [])
    """
    times = list(dict.fromkeys(c.time for c in channels if c.time is not None))
    parts = list(dict.fromkeys(c.component for c in channels))
    whole = [(c.time, c.component) for c in channels] == list(product(times or [None], parts))
    if not whole:  # not every component at every time
        return None, [c.name for c in channels], [("channel", len(channels))]
    axes = [("time", len(times)), ("channel", len(parts))]
    coordinate = ((("time",), times) if len(times) > 1 else ((), times[0])) if times else None
    named = parts if any(parts) else []
    return coordinate, named, [axis for axis in axes if axis[1] > 1]


def _check(out: Path, overwrite: bool) -> None:
    """Raise RunError if predictions cannot be written."""
    if is_url(out):
        raise RunError(f"{out}: predictions are written to a local folder, not to a URL")
    check_folder(out.absolute().parent)
    if not out.absolute().parent.is_dir():
        raise RunError(f"{out.absolute().parent}: no such folder")
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise RunError(f"{out} exists: use --overwrite or choose another --out")
    try:
        attributes = json.loads((out / "zarr.json").read_bytes())["attributes"]
        is_ours = attributes["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise RunError(f"{out} holds no predictions: choose another --out")
    names = (path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
    if others := sorted(name for name in names if not _ZARR.fullmatch(name)):
        raise RunError(f"{out} holds another file, {others[0]}: move it away")
