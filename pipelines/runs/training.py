"""Trains an experiment on a store and writes the folder of the run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from operators.base import Operator
from operators.data import Samples
from operators.posterior import FlowPosterior
from operators.training.checkpoint import CheckpointError, check_checkpoint
from operators.training.fit import Epoch, Settings, StartError, fit, start_from
from operators.training.step import ALONE, Acceleration, Ranks
from operators.transforms import Extent, Predictor
from pdegen.files import BusyError, locked, note_part, remove
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.checks import (
    boundary_of,
    check_applies,
    check_resolutions,
    check_scores,
    check_symmetries,
    checked_operator,
    flow_of,
    operator_description,
    phases_of,
)
from pipelines.runs.data import Source, tail_draw
from pipelines.runs.differences import training_problem
from pipelines.runs.evaluation import check_beside, provenance
from pipelines.runs.folder import (
    InUseError,
    RunError,
    Saved,
    check_folder,
    check_run_folder,
    check_run_room,
    claim_run,
    declared_in,
    in_use,
    recorded_experiment,
    remove_run,
    tracked_run,
)
from pipelines.runs.plugins import resumed_plugins
from pipelines.runs.predictions import kept_mean
from pipelines.runs.residual import with_residual
from pipelines.tracking.tracker import Following, Tracker


def train(
    experiment: Experiment,
    store: str | Store,
    folder: Path,
    device: torch.device,
    *,
    resume: bool = False,
    overwrite: bool = False,
    acceleration: Acceleration | None = None,
    ranks: Ranks = ALONE,
    on_reading: Callable[[str], None] = lambda reading: None,
    on_labels: Callable[[str], None] = lambda residual: None,
    on_start: Callable[[str], None] = lambda how: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    stop: Callable[[], bool] = lambda: False,
    track: Sequence[Tracker] = (),
) -> list[Epoch]:
    """Train an experiment on a store, and write checkpoints and history to a folder.

    Args:
        store: The store, or its URL.
        resume: Whether to continue the run in the folder.
        overwrite: Whether to replace the run in the folder.
        acceleration: Precision and compilation of steps; by default the fastest on the device.
        ranks, on_start, on_epoch, stop: See `operators.training.fit.fit`.
        on_reading: Called once with a description of how the training samples are read.
        on_labels: Called with a line that states the residual of the labels, if the residual is a
            part of the loss.
        track: Trackers that receive the epochs, in addition to history.csv.

    Raises:
        RunError: If the folder contains a run and neither `resume` nor `overwrite` is set, or if
            the run to resume has another declaration.
        DataError: If the store lacks the variables, the splits or the grid.
        SchemaError: If the model or the batch size does not fit the data; nothing is written.
        TrainingError: If the training fails. If it fails in its first epoch, the folder is removed.
    """
    acceleration = acceleration or Acceleration.chosen(device)
    recorded = _recorded(folder) if resume else {}
    source = _source(experiment, store, recorded)
    pairs = source.samples("train", "training", device=device)
    selection = source.samples(experiment.training.selection_split, "selection", device=device)
    draw = tail_draw(experiment, pairs, ranks.count)
    settings, unlabelled = _settings(source, pairs, resume, ranks, on_labels)
    content = recorded_experiment(experiment, recorded.get("experiment"))
    further = _declaration(experiment, recorded, pairs, selection, acceleration, ranks)
    declared = {"experiment": content, **further}
    operator = checked_operator(experiment, pairs)
    if experiment.training.start is not None:
        declared["start"] = _initial_weights(operator, experiment.training.start, folder)
    predictor = _adapted(source, pairs, operator, device)
    model = operator_description(experiment, pairs) | {"model": content["model"]}
    description = {"operator": model, **declared, "parameters": operator.parameter_count}
    description["problem"] = training_problem(experiment, source.store)
    if experiment.training.symmetries.mean:  # the predictor that is loaded has it, not this one
        description["mean"] = "square"
    if ranks.first:  # only this process writes
        check_run_folder(folder, resume, overwrite)
        check_run_room(folder, predictor, settings)
    try:
        with locked(folder) if ranks.first else nullcontext():
            has_state = ranks.first and claim_run(folder, declared, source.url, resume, overwrite)
            resume = ranks.any(has_state)
            if ranks.first and experiment.data.stream is None:
                kept_mean(folder, source)
            on_reading(pairs.reading)
            following = None
            if ranks.first and track:
                run = tracked_run(folder, declared, source.url, provenance(device))
                following = Following(track, run)
            with _removed_at_failure(folder, ranks), Saved(folder, following) as on_saved:
                return fit(
                    predictor, pairs, selection, settings, folder, description, resume=resume,
                    acceleration=acceleration, ranks=ranks, draw=draw, unlabelled=unlabelled,
                    on_start=on_start, on_epoch=on_epoch, on_saved=on_saved, stop=stop,
                )  # fmt: skip
    except BusyError as error:
        raise in_use(error) from None
    except CheckpointError as error:
        raise RunError(f"{error}: train again by --overwrite") from None


def _settings(
    source: Source, pairs: Samples, resume: bool, ranks: Ranks, on_labels: Callable[[str], None]
) -> tuple[Settings, Samples | None]:
    """The result of `with_residual`. Raises SchemaError if a key of the experiment does not fit the
    store or the processes."""
    settings = source.experiment.training.settings()
    if not resume:  # a run that is resumed was checked at its start
        check_applies(source)
    if settings.batch % ranks.count:
        raise SchemaError(f"batch {settings.batch} cannot be divided among {ranks.count} processes")
    check_symmetries(source, settings.augment)
    check_scores(source)
    return with_residual(source, pairs, settings, ranks.count, on_labels)


@contextmanager
def _removed_at_failure(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Remove the folder of a training that fails before its first state is saved."""
    try:
        yield
    except Exception:
        if ranks.first and not (folder / "state.pt").exists():
            remove(folder)
        raise


def _declaration(
    experiment: Experiment,
    recorded: dict[str, object],
    pairs: Samples,
    selection: Samples,
    acceleration: Acceleration,
    ranks: Ranks,
) -> dict[str, object]:
    """Content of run.json beside the experiment."""
    data = _identity(pairs)
    if experiment.data.stream is not None:
        data["selection"] = _identity(selection)
    declared = {
        "data": data,
        "reading": pairs.reading,
        "precision": acceleration.precision,
        "compiled": "tuned" if acceleration.tuned else acceleration.compiled,
        "processes": ranks.count,
    }
    if files := resumed_plugins(experiment, recorded):
        declared["plugins"] = files
    return declared


def _identity(pairs: Samples) -> dict[str, object]:
    """Values that identify the data independently of their URL."""
    return {key: value for key, value in pairs.source.items() if key != "url"}


def _initial_weights(operator: Operator, start: str, folder: Path) -> dict[str, object]:
    """Load the initial weights of an operator from a file."""
    if "://" in start:
        raise SchemaError(f"training.start: {start} is a URL, a local file is needed")
    try:
        read = start_from(operator, Path(start))
    except StartError as error:
        raise SchemaError(f"training.start: {error}") from None
    if Path(start).resolve().is_relative_to(folder.resolve()):
        raise SchemaError(
            f"training.start: {start} is in the folder of this run, which would replace it: copy "
            "it, or choose another --out"
        )
    with suppress(CheckpointError):  # published weights are no checkpoint
        check_beside(Path(start), check_checkpoint(Path(start)))
    return read


def _adapted(source: Source, pairs: Samples, operator: Operator, device: torch.device) -> Predictor:
    """The predictor of an operator."""
    experiment = source.experiment
    input, target = experiment.normalization.of(pairs)
    boundary, extent = boundary_of(source, pairs), Extent.of(pairs.domain)
    predictor = Predictor(
        operator, input, target, boundary, source.task, extent, phases=phases_of(source),
        gaussian=experiment.training.loss.name == "gaussian",
    )  # fmt: skip
    if flow := flow_of(experiment, pairs, operator):
        predictor = FlowPosterior(
            operator, input, target, flow.spectrum, extent, flow.members, flow.steps
        )
    predictor = predictor.to(device)
    check_resolutions(experiment, source, predictor)
    try:
        predictor.adapt(pairs)
    except ValueError as error:
        raise SchemaError(f"model {experiment.model.name}: {error}") from None
    return predictor


def train_part(
    experiment: Experiment, store: str, folder: Path, device: torch.device,
    on_epoch: Callable[[Epoch], None], stop: Callable[[], bool],
) -> list[Epoch]:  # fmt: skip
    """Train one run of a study with `train`.

    An unfinished training is resumed. A damaged training, or a training of another experiment,
    store or plugin, is replaced. Raises RunError if the folder cannot be written to, or if another
    process trains in it.
    """
    check_folder(folder)
    if folder.exists() and not (folder / "run.json").exists():  # killed while it was removed
        remove_run(folder)
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
    remove_run(folder)
    return train(experiment, store, folder, device, on_epoch=on_epoch, stop=stop)


def _source(experiment: Experiment, store: str | Store, recorded: dict[str, object]) -> Source:
    """The data of a training, which must be in the store whenever it is opened."""
    reading = recorded.get("reading")
    if isinstance(reading, str) and experiment.data.stream is None:
        experiment = experiment.with_overrides({"data.reading": reading.split(",")[0]})
    opened = open_sealed(store)
    return Source(opened, experiment, content=opened.metadata.content)


def _recorded(folder: Path) -> dict[str, Any]:
    """The declaration of the run in a folder; empty if there is no run."""
    return declared_in(folder) if (folder / "run.json").exists() else {}
