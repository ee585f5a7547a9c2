"""Generate (if absent) -> verify -> train -> evaluate -> report, each step also by itself."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pdegen
from operators.base import Operator, check_domain
from operators.data import Batch, Samples, Task
from operators.norms import RelativeH1, WeightedH1
from operators.registry import build_operator
from operators.symmetries import CircleSymmetries, SquareSymmetries
from operators.training.checkpoint import (
    CONFIG,
    CheckpointError,
    check_checkpoint,
    check_fit,
    load_checkpoint,
    model_file,
)
from operators.training.evaluate import errors_of, positions, quadrature_of, scores
from operators.training.files import (
    BusyError,
    DamagedError,
    held,
    read_json,
    write,
    write_json,
)
from operators.training.fit import Epoch, Settings, fit, read_history
from operators.training.memory import is_out_of_memory
from operators.training.ranks import ALONE, Ranks
from operators.training.start import StartError, start_from
from operators.training.step import Acceleration
from operators.training.widening import start_as
from operators.transforms import Extent, Predictor
from pdegen.domains import Box
from pdegen.owned import LOCK, PARTIAL, is_ours, note_part, remove
from pdegen.reasons import check_room
from pdegen.schema import SchemaError
from pdegen.software import here, processor, versions
from pdegen.store.reading import open_sealed
from pipelines.declared.experiment import Experiment
from pipelines.declared.models import blamed
from pipelines.runs.baselines import trivial
from pipelines.runs.data import Source, free_memory
from pipelines.runs.folder import (
    Holding,
    InUseError,
    RunError,
    check_folder,
    check_name,
    check_ours,
    claim,
)
from pipelines.runs.measures import measures_of
from pipelines.runs.predictions import (
    KEPT_BYTES,
    MEAN,
    PREDICTIONS,
    kept_mean,
    kept_predictions,
)
from pipelines.runs.reproduction import toml
from pipelines.runs.score import Score, channel_parts
from pipelines.runs.tracked import TRACKING, Saved, forget, tracked
from pipelines.tracking.following import Following
from pipelines.tracking.table import TABLE
from pipelines.tracking.tracker import Tracker

_FILES = (  # of a run; the state goes first, for a run without one starts anew
    "state.pt",
    "history.jsonl",
    TABLE,
    "best.safetensors",
    "last.safetensors",
    PREDICTIONS,
    MEAN,
    "scores.json",
    "report.html",
    "report.md",
)
_HOLDING = Holding("run", "run.json", "use --resume to continue or --overwrite", "run folder")
_BEFORE = {"precision": "float32", "compiled": False, "processes": 1}  # of runs that do not say it


def check_place(folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a run.

    Args:
        folder: Where it is to be kept.
        resume, overwrite: Whether one that is there may be continued, or replaced.
    """
    check_folder(folder)
    for name in ("run.json", LOCK, TRACKING, *_FILES):
        check_name(folder / name)
    _HOLDING.check(folder, resume, overwrite)


def check_device(name: str) -> torch.device:
    """Raise SchemaError for a device that this machine lacks."""
    if name not in ("cpu", "cuda"):
        raise SchemaError(f"unknown device {name!r}: known: cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise SchemaError("device cuda was asked for, but PyTorch finds none here: use cpu")
    return torch.device(name)


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
    track: Sequence[Tracker] = (),
) -> list[Epoch]:
    """Train an experiment on a store; leaves its checkpoints and history in the folder.

    Args:
        experiment, store, folder, device: What to train, on what, where to, and by what.
        resume, overwrite: Go on with what is in the folder, or replace it.
        on_reading: Called once with how the training samples are read.
        acceleration: How steps are run; by default what is fastest on the device.
        ranks, on_start, on_epoch, stop: As of `operators.training.fit.fit`.
        track: Where else the epochs are to be seen; history.csv has them always.

    Raises:
        RunError: If the folder holds a run already, or another one than is to be resumed.
        DataError: If the store cannot be read as asked.
        SchemaError: If the model or the batch does not fit the data; nothing is written.
    """
    acceleration = acceleration or Acceleration.chosen(device)
    source = Source(store, _as_before(experiment, folder) if resume else experiment)
    pairs = source.training(device)
    selection = source.selection(device)
    settings = experiment.training.settings()
    data = _identity(pairs)
    if experiment.data.stream is not None:
        data["selection"] = _identity(selection)
    declared = {
        "experiment": experiment.model_dump(mode="json"),
        "data": data,
        "reading": pairs.reading,
        "precision": acceleration.precision,
        "compiled": "tuned" if acceleration.tuned else acceleration.compiled,
        "processes": ranks.count,
    }
    if settings.batch % ranks.count:
        raise SchemaError(
            f"batch {settings.batch} does not divide among the {ranks.count} processes"
        )
    operator = checked_operator(experiment, pairs)
    if (start := experiment.training.start) is not None:
        if "://" in start:
            raise SchemaError(f"training.start: {start} is a URL: a file of this machine is needed")
        try:
            declared["start"] = start_from(operator, Path(start))
        except StartError as error:
            raise SchemaError(f"training.start: {error}") from None
    source.check_symmetries(settings.augment)
    if not resume:  # one that is continued began when nothing was said of it
        source.check_applies()
    source.check_scores()
    normalizers = experiment.normalization.of(pairs)
    about = source.boundary(pairs), source.task, Extent.of(pairs.domain)
    predictor = Predictor(operator, *normalizers, *about)
    predictor = predictor.to(device)
    check_resolutions(experiment, source, predictor)
    try:
        predictor.adapt(pairs)
    except ValueError as error:
        raise SchemaError(f"model {experiment.model.name}: {error}") from None
    model = operator_description(experiment, pairs)
    description = {"operator": model, **declared, "parameters": operator.parameter_count}
    if ranks.first:  # which alone writes
        check_place(folder, resume, overwrite)
        _check_room(folder, predictor, settings)
    try:
        with held(folder) if ranks.first else nullcontext():
            resume = ranks.any(ranks.first and _claim(folder, declared, store, resume, overwrite))
            if ranks.first and experiment.data.stream is None:
                kept_mean(folder, source)
            on_reading(pairs.reading)
            following = None
            if ranks.first and track:
                run = tracked(folder, declared, store, provenance(device))
                following = Following(track, run)
            with Saved(folder, following) as on_saved:
                return fit(
                    predictor, pairs, selection, settings, folder, description,
                    resume=resume, acceleration=acceleration, ranks=ranks, on_start=on_start,
                    on_epoch=on_epoch, on_saved=on_saved, stop=stop,
                )  # fmt: skip
    except BusyError as error:
        raise _in_use(error) from None
    except CheckpointError as error:
        raise RunError(f"{error}: train again by --overwrite") from None


_EPOCH_BYTES = 1024  # of an epoch in the state, in the history and in its table


def _check_room(folder: Path, predictor: Predictor, settings: Settings) -> None:
    """Raise NoRoomError where checkpoints, the state of Adam and the history have no room; files
    that are there are replaced, each after its successor is written."""
    weights = sum(one.numel() * one.element_size() for one in predictor.state_dict().values())
    state = (4 if settings.average else 3) * weights
    need = 2 * weights + 2 * state + settings.epochs * _EPOCH_BYTES
    there = [folder / name for name in _FILES]
    need -= sum(path.stat().st_size for path in there if path.is_file())
    check_room(folder, need, ": checkpoints and history of the training take")


def train_part(
    experiment: Experiment, store: str, folder: Path, device: torch.device,
    on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
) -> list[Epoch]:  # fmt: skip
    """`train` of a part of a study. An unfinished training is resumed; a damaged one, or one of
    another declaration, is replaced.

    Raises:
        RunError: If the folder cannot be written to, or another process trains in it.
    """
    check_folder(folder)
    if folder.exists() and not (folder / "run.json").exists():  # killed while it was removed
        _remove(folder)
    note_part(folder)
    resume = (folder / "state.pt").exists()
    try:
        return train(experiment, store, folder, device, resume=resume, overwrite=not resume,
                     on_epoch=on_epoch, stop=stop)  # fmt: skip
    except InUseError:
        raise
    except RunError:
        if not resume:
            raise
    _remove(folder)
    return train(experiment, store, folder, device, on_epoch=on_epoch, stop=stop)


def _remove(folder: Path) -> None:
    """Remove a run folder. Raises InUseError where another process trains in it."""
    try:
        with held(folder):
            check_ours(folder)
            remove(folder)
    except BusyError as error:
        raise _in_use(error) from None


def _in_use(error: BusyError) -> InUseError:
    return InUseError(f"{error}: wait for it, or choose another --out")


def check_memory(
    experiment: Experiment, device: torch.device, pairs: Samples | None = None
) -> None:
    """Raise SchemaError where weights, gradients and Adam's two moments have no room.

    Args:
        experiment, device: What is to be trained, and on what.
        pairs: The data, where they are known.
    """
    model = experiment.model
    channels, dim = (1, 1), model.dims()[0]
    if pairs is not None:
        channels, dim = pairs.channels, pairs.dim
    try:
        needed = 4 * model.weight_bytes(*channels, dim)
    except ValueError as error:  # of other dimensions: `checked_operator` says it
        if pairs is None:
            return
        raise SchemaError(f"model {model.name}: {error}") from error
    free = free_memory(device)
    if needed > free:
        raise SchemaError(
            f"model {model.name}: training needs {needed / 2**30:,.1f} GiB for weights, gradients "
            f"and moments, {free / 2**30:,.1f} GiB are free"
        )


def checked_operator(experiment: Experiment, pairs: Samples) -> Operator:
    """The operator of an experiment with its initial weights, after a first evaluation.

    Raises:
        SchemaError: If it, the batch, the symmetries or the loss do not fit the data.
    """
    settings = experiment.training.settings()
    try:
        settings.steps(len(pairs))
    except ValueError as error:
        raise SchemaError(str(error)) from None
    torch.manual_seed(settings.seed)
    first = pairs.first()
    check_memory(experiment, first.a.device, pairs)
    try:
        operator = _initial_operator(experiment, pairs, first)
        if isinstance(settings.loss, RelativeH1 | WeightedH1):
            settings.loss.check(pairs.domain)
        if isinstance(settings.augment, CircleSymmetries):
            settings.augment.check(pairs.domain)
        if isinstance(settings.augment, SquareSymmetries):
            if not isinstance(pairs.domain, Box) or pairs.dim != 2:
                raise ValueError(
                    "symmetries of the square needs 2 dimensions, the data have "
                    f"{pairs.dim} on a {pairs.domain.kind}"
                )
            settings.augment.check(pairs.points)
        check_domain(operator, pairs.domain, padded=first.mask is not None)
        with torch.no_grad():
            quadrature = quadrature_of(operator, first, pairs)
            found = operator.eval()(first.a, *positions(first, pairs), **quadrature)
            weights = first.weights(pairs.weight, pairs.y)
            u = first.u[..., : operator.out_channels]  # of the first step
            _check_output(operator, found, first.a, u)
            settings.loss(found, u, first.a, *(() if weights is None else (weights,)))
    except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
        short = isinstance(error, RuntimeError) and is_out_of_memory(error)
        reason = "one sample needs more memory than there is" if short else blamed(error) or error
        where = pairs.source["url"]
        raise SchemaError(f"model {experiment.model.name} on {where}: {reason}") from error
    return operator


def _initial_operator(experiment: Experiment, pairs: Samples, first: Batch) -> Operator:
    """The operator with its initial weights; one that is told the noise level, the last input of a
    map, starts as the one that is not, whose weights have the same random numbers."""
    description = operator_description(experiment, pairs)
    told = experiment.noise is not None and experiment.noise.levels is not None
    if not told or experiment.task is not None:
        return build_operator(description).to(first.a.device)
    narrow, operator = (
        build_operator({**description, "in_channels": channels}).to(first.a.device).eval()
        for channels in (pairs.channels[0] - 1, pairs.channels[0])
    )

    def applied(operator: Operator, a: Tensor) -> Tensor:
        return operator(a, *positions(first, pairs), **quadrature_of(operator, first, pairs))

    start_as(operator, narrow, applied, first.a[..., :-1])
    return operator


def check_training(experiment: Experiment, source: Source, device: torch.device) -> None:
    """Raise ValueError where the operator of an experiment cannot be trained on the data."""
    pairs = source.task.training(source.plain("train"))
    operator = checked_operator(experiment, pairs)
    source.check_applies()
    source.check_scores()
    if experiment.data.stream is not None:
        pairs = source.training(device)
    if experiment.training.start is None:  # which brings what `adapt` would find
        operator.check_samples(len(pairs.one_step))


def _check_output(operator: Operator, found: object, a: Tensor, u: Tensor) -> None:
    """Raise ValueError where the operator gives other functions for `a` than ones like `u`."""
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != tuple(u.shape):
        raise ValueError(
            f"{type(operator).__name__} gives u of shape {shape} for a of shape {tuple(a.shape)}: "
            f"expected {tuple(u.shape)}, channels last"
        )


def check_resolutions(experiment: Experiment, source: Source, predictor: Predictor) -> None:
    """Raise SchemaError where a predictor cannot be evaluated on a grid of the experiment."""
    operator = predictor.operator
    place = next(operator.parameters()).device
    for resolution in experiment.resolutions:
        try:
            pairs = source.asked("test", resolution).to(place)
            first = pairs.first()
            with torch.no_grad(), torch.random.fork_rng():
                a = first.a[..., : operator.in_channels]  # of the first step
                quadrature = quadrature_of(operator, first, pairs)
                operator.eval()(a, *positions(first, pairs), **quadrature)
                predictor.input(a, pairs.x)
                predictor.target(
                    first.u[..., : operator.out_channels], pairs.x if pairs.y is None else pairs.y
                )
        except (ValueError, RuntimeError) as error:  # such as a grid too coarse for the modes
            if isinstance(error, RuntimeError) and is_out_of_memory(
                error
            ):  # of a machine, where another may have it
                continue
            name = f"resolutions: {experiment.model.name} at {resolution} points of each axis"
            raise SchemaError(f"{name}: {error}") from error


def _declared(folder: Path) -> dict[str, Any]:
    """What the run of a folder is of; where run.json is damaged, by what its checkpoint says."""
    try:
        return read_json(folder / "run.json")
    except DamagedError as damage:
        try:
            return check_checkpoint(folder / "last.safetensors")
        except CheckpointError:
            raise RunError(f"{damage}: start again by --overwrite") from None


def _as_before(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment read as a run to resume was: what memory is free now must not change it."""
    if experiment.data.stream is not None or not (folder / "run.json").exists():
        return experiment
    reading = _declared(folder).get("reading")
    if reading is None:
        return experiment
    return experiment.with_overrides({"data.reading": reading.split(",")[0]})


def operator_description(experiment: Experiment, pairs: Samples) -> dict[str, Any]:
    """What builds the operator of an experiment for the data."""
    return {
        "model": experiment.model.model_dump(mode="json"),
        "in_channels": pairs.channels[0],
        "out_channels": pairs.channels[1],
        "dim": pairs.dim,
    }


def _identity(pairs: Samples) -> dict[str, Any]:
    """What the data are, wherever they lie."""
    return {key: value for key, value in pairs.source.items() if key != "url"}


def _claim(
    folder: Path, declared: dict[str, Any], store: str, resume: bool, overwrite: bool
) -> bool:
    """Take a folder for a run; true where a state is there to resume from."""
    check_place(folder, resume, overwrite)
    path, begun = folder / "run.json", False
    if path.exists() and not overwrite:
        there = _declared(folder)
        for key in declared:
            if there.get(key, _BEFORE.get(key)) != declared[key]:
                what = "number of processes" if key == "processes" else key
                raise RunError(
                    f"{folder} holds a run of another {what}: it cannot be resumed as this"
                )
        begun = (folder / "state.pt").exists()
    claim(folder)
    if overwrite:
        forget(folder)
        remove(folder, {"run.json", LOCK})
    left = [path.name for path in folder.glob(f"*{PARTIAL}")] + ([] if begun else list(_FILES))
    for name in left:
        if is_ours(folder, name):
            (folder / name).unlink()
    write_json(path, {**declared, "store": store})
    write(folder / "experiment.toml", (toml(declared["experiment"]) + "\n").encode())
    return begun


def opened(
    checkpoint: Path, store: str, device: torch.device, split: str, resolution: int | None,
    level: float | None, told: float | None = None,
) -> tuple[Predictor, dict[str, Any], Samples]:  # fmt: skip
    """The predictor of a checkpoint, its description, and the samples to evaluate it on.

    Raises:
        CheckpointError, DataError, SchemaError: See `evaluate`.
    """
    if (checkpoint / CONFIG).is_file():
        checkpoint = model_file(checkpoint)
    if checkpoint.is_dir():
        there = [path for path in (checkpoint / f"{name}.safetensors" for name in ("best", "last"))
                 if path.is_file()]  # fmt: skip
        hint = f"name its checkpoint, {there[0]}" if there else "it has no checkpoint"
        raise CheckpointError(f"{checkpoint} is a folder: {hint}")
    predictor, description = load_checkpoint(checkpoint, build_operator)
    absent = {"experiment", "epoch"} - description.keys()
    if absent:
        raise CheckpointError(f"{checkpoint} is not of an experiment: it has no {min(absent)}")
    experiment = Experiment.parse(description["experiment"], str(checkpoint))
    source = Source(store, experiment, at=level, told=told)
    pairs = source.tested(split, device, resolution or source.stored_resolution)
    check_fit(predictor, pairs)
    return predictor, description, pairs


def evaluate(
    checkpoint: Path,
    store: str,
    device: torch.device,
    *,
    split: str = "test",
    resolution: int | None = None,
    level: float | None = None,
    told: float | None = None,
    keep_in: Path | None = None,
) -> Score:
    """Scores of a checkpoint on a split of a store, at the noise level of its experiment or
    another; predictions are kept in the folder `keep_in`, unless they are too large.

    An operator that takes the level is told the true one, or `told`.

    Raises:
        SchemaError: If a level is impossible, or told to an operator that does not take it.
        CheckpointError: If it is none, or of data with other channels.
        DataError: If the store cannot be read as asked.
    """
    predictor, description, pairs = opened(
        checkpoint, store, device, split, resolution, level, told
    )
    found: list[Tensor] = []

    def keep(p: Tensor) -> None:
        if keep_in is not None and len(pairs) * p[0].nbytes <= KEPT_BYTES:
            found.append(p.cpu())

    try:
        score = scored(predictor.to(device), pairs, predictor.task, keep)
    except ValueError as error:  # such as a grid too coarse for the modes
        raise CheckpointError(f"{checkpoint} on {store}: {error}") from error
    if keep_in is not None and found:
        kept_predictions(keep_in, checkpoint, pairs, lambda: torch.cat(found))
    return replace(score, checkpoint=checkpoint.stem, epoch=description["epoch"], split=split)


def scored(
    predictor: nn.Module,
    pairs: Samples,
    task: Task,
    keep: Callable[[Tensor], None] = lambda p: None,
) -> Score:
    """Scores of what predicts; `keep` is given all predictions."""
    parts, found = channel_parts(pairs.target_channels), dict[str, list[Tensor]]()

    def measure(p: Tensor, batch: Batch) -> None:
        keep(p)
        of_parts = {
            f"of {what}": errors_of(p, batch, pairs, parts=len(names))
            for what, names in parts.items()
        }
        for what, errors in (of_parts | measures_of(p, batch, pairs, task)).items():
            found.setdefault(what, []).append(errors.cpu())

    start = time.perf_counter()
    errors = scores(predictor, pairs, keep=measure)
    seconds, every = time.perf_counter() - start, {k: torch.cat(v) for k, v in found.items()}
    means = {what: every.pop(f"of {what}").nanmean(dim=0).tolist() for what in parts}
    return Score(
        checkpoint="", epoch=0, split="test", resolution=pairs.source["resolution"],
        samples=tuple(pairs.samples.tolist()), errors=tuple(errors.tolist()), seconds=seconds,
        measures={name: tuple(values.tolist()) for name, values in every.items()},
        **{
            what: {name: v for name, v in zip(names, means[what], strict=True) if not isnan(v)}
            for what, names in parts.items()
        },
    )  # fmt: skip


def trivial_scores(
    experiment: Experiment, store: str, folder: Path, device: torch.device
) -> list[Score]:
    """Scores on the test split, at the resolution of training, of what does not learn."""
    source = Source(store, experiment)
    pairs = source.tested("test", device)
    mean = kept_mean(folder, source).to(device)
    return [
        replace(scored(predictor, pairs, source.task), checkpoint=name)
        for name, predictor in trivial(experiment, open_sealed(store), pairs, mean).items()
    ]


def evaluate_run(experiment: Experiment, store: str, folder: Path, device: torch.device) -> dict:
    """Scores of the reported checkpoints on the test split at all resolutions, in scores.json."""
    grid, (first, *_) = experiment.data.resolution, experiment.training.reported
    results = [
        evaluate(
            folder / f"{name}.safetensors", store, device, resolution=resolution,
            keep_in=folder if (name, resolution) == (first, grid) else None,
        ).summary()
        for name in experiment.training.reported
        for resolution in experiment.resolutions
    ]  # fmt: skip
    pairs = Source(store, experiment).asked("test")
    history = read_history(folder)
    summary = {
        "experiment": experiment.model_dump(mode="json"),
        "protocol": experiment.training.protocol,
        "data": pairs.source,
        "reading": read_json(folder / "run.json")["reading"],
        "parameters": build_operator(operator_description(experiment, pairs)).parameter_count,
        "training_seconds": sum(epoch.seconds for epoch in history),
        "provenance": provenance(device),
        "results": results,
        "trivial": [s.summary() for s in trivial_scores(experiment, store, folder, device)],
    }
    write_json(folder / "scores.json", summary)
    return summary


def provenance(device: torch.device) -> dict[str, Any]:
    """Software and hardware of a run."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else processor()
    return {
        "pdegen": pdegen.__version__,
        "python": platform.python_version(),
        **versions("torch", "numpy", "zarr"),
        **(versions("triton") if device.type == "cuda" else {}),
        **here(),
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
    }
