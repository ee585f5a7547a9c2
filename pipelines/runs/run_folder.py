"""Checks, reserves and removes the folder of a run."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from operators.plugins import recorded_files
from operators.training.checkpoint import CheckpointError, check_checkpoint
from operators.training.files import BusyError, DamagedError, locked, read_json, write, write_json
from operators.training.settings import Settings
from operators.transforms import Predictor
from pdegen.errors import check_room
from pdegen.ownership import LOCK, PARTIAL, is_ours, remove
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment
from pipelines.runs.folder import (
    FolderClaim,
    InUseError,
    RunError,
    check_folder,
    check_name,
    check_ours,
    claim,
)
from pipelines.runs.plugins import keep_plugins, other_version
from pipelines.runs.predictions import MEAN, PREDICTIONS
from pipelines.runs.reproduction import toml
from pipelines.runs.run_tracking import TRACKING, forget
from pipelines.tracking.tracker import TABLE, flat

_FILES = (  # the state is removed first: a run without it starts from the beginning
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
_CLAIM = FolderClaim("run", "run.json", "use --resume to continue or --overwrite", "run folder")

_EPOCH_BYTES = 1024  # size of an epoch in the state, the history and its table


def check_run_folder(folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError if a folder cannot be used for a run."""
    check_folder(folder)
    for name in ("run.json", LOCK, TRACKING, *_FILES):
        check_name(folder / name)
    _CLAIM.check(folder, resume, overwrite)


def check_run_room(folder: Path, predictor: Predictor, settings: Settings) -> None:
    """Raise NoRoomError if the disk has no room for checkpoints, optimiser state and history.

    An old file is deleted only after its successor is written, so the disk must have room for both.
    """
    tensors = predictor.state_dict().values()
    weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    state = (4 if settings.average else 3) * weights
    need = 2 * weights + 2 * state + settings.epochs * _EPOCH_BYTES
    paths = [folder / name for name in _FILES]
    need -= sum(path.stat().st_size for path in paths if path.is_file())
    check_room(folder, need, ": checkpoints and history of the training need")


def declared_in(folder: Path) -> dict[str, Any]:
    """The declaration of the run in a folder. If run.json is damaged, the declaration is read from
    a checkpoint. Raises RunError if both are damaged, or if an entry `plugins` is malformed."""
    try:
        declared = read_json(folder / "run.json")
    except DamagedError as damage:
        try:
            return check_checkpoint(folder / "last.safetensors")
        except CheckpointError:
            raise RunError(f"{damage}: start again by --overwrite") from None
    try:
        recorded_files(declared)
    except ValueError as error:
        raise RunError(f"{folder / 'run.json'}: {error}: start again by --overwrite") from None
    return declared


def recorded_experiment(experiment: Experiment, recorded: object) -> dict[str, Any]:
    """The content of an experiment for the record of a run or study.

    If an earlier record of it, `recorded`, has the same experiment, the result is that record:
    versions differ in their keys, and what is resumed keeps its record.
    """
    content = experiment.model_dump(mode="json")
    if not isinstance(recorded, dict):
        return content
    try:
        same = Experiment.parse(recorded, "experiment").model_dump(mode="json") == content
    except SchemaError:
        return content
    return recorded if same else content


def changed_setting(experiment: Experiment, folder: Path) -> str | None:
    """The first setting in which an experiment differs from the run in a folder, with both values.

    None if there is no difference, or no readable run.
    """
    try:
        recorded = declared_in(folder)["experiment"]
    except (FileNotFoundError, RunError, KeyError):
        return None
    present = recorded_experiment(experiment, recorded)
    if present == recorded:
        return None
    with suppress(SchemaError):  # which a record of an earlier version may raise
        recorded = Experiment.parse(recorded, "experiment").model_dump(mode="json")
    old, new = flat(recorded), flat(present)
    keys = (key for key in old | new if old.get(key) != new.get(key))
    return next(
        (f"{key} = {old.get(key, 'absent')}, not {new.get(key, 'absent')}" for key in keys), None
    )


def claim_run(
    folder: Path, declared: dict[str, Any], store: str, resume: bool, overwrite: bool
) -> bool:
    """Reserve a folder for a run. Returns whether the folder has a state from which to resume."""
    check_run_folder(folder, resume, overwrite)
    path, has_state = folder / "run.json", False
    if path.exists() and not overwrite:
        recorded = declared_in(folder)
        if (fault := other_version(recorded, declared, folder)) is not None:
            raise RunError(f"{folder} cannot be resumed: {fault}, or start again by --overwrite")
        for key in declared:
            if key != "plugins" and recorded.get(key) != declared[key]:
                quantity = "number of processes" if key == "processes" else key
                raise RunError(
                    f"{folder} holds a run with another {quantity}: it cannot be resumed"
                )
        has_state = (folder / "state.pt").exists()
    claim(folder)
    if overwrite:
        forget(folder)
        remove(folder, {"run.json", LOCK})
    obsolete = [path.name for path in folder.glob(f"*{PARTIAL}")]
    for name in obsolete + ([] if has_state else list(_FILES)):
        if is_ours(folder, name):
            (folder / name).unlink()
    write_json(path, {**declared, "store": store})
    keep_plugins(folder, declared.get("plugins", {}))
    write(folder / "experiment.toml", (toml(declared["experiment"]) + "\n").encode())
    return has_state


def remove_run(folder: Path) -> None:
    """Remove a run folder. Raises InUseError if another process is training in it."""
    try:
        with locked(folder):
            check_ours(folder)
            remove(folder)
    except BusyError as error:
        raise in_use(error) from None


def in_use(error: BusyError) -> InUseError:
    """Error for a run folder in which another process is training."""
    return InUseError(f"{error}: wait for it, or choose another --out")
