"""Checks, reserves and removes the folder of a run."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from operators.plugins import digests_of, recorded_files
from operators.training.checkpoint import CheckpointError, check_checkpoint
from operators.training.fit import Epoch, Settings, read_history
from operators.training.identity import check_made_from, key_of, training_key
from operators.transforms import Predictor
from pdegen.ownership import (
    LOCK,
    PARTIAL,
    BusyError,
    DamagedError,
    check_room,
    is_ours,
    locked,
    read_json,
    remove,
    write,
    write_json,
)
from pdegen.schema import SchemaError
from pdegen.store.format import Json
from pdegen.store.reading import open_sealed
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
from pipelines.runs.plugins import keep_plugins, other_version, resumed_plugins
from pipelines.runs.predictions import MEAN, PREDICTIONS, files_of, weights_of
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


def recorded_content(declared: Json) -> str | None:
    """Digest of the store of a run. None if run.json, `declared`, is of an early version."""
    data = declared["data"]
    return data.get("selection", data).get("content")  # a stream selects the epoch on a store


def digests_in(declared: Json) -> dict[str, str]:
    """SHA-256 of the data, stream, initial weights and plugins of a run, as run.json records
    them."""
    digests, content = digests_of(declared), recorded_content(declared)
    if content is not None:
        digests["data"] = content
    if "selection" in declared["data"]:
        digests["stream"] = declared["data"]["fingerprint"]
    if "start" in declared:
        digests["start"] = declared["start"]["sha256"]
    return digests


def recorded_history(folder: Path) -> list[Epoch]:
    """The epochs of the run in a folder. Raises DamagedError if the file was changed, or belongs to
    another training."""
    return read_history(folder, training_key(declared_in(folder)))


def recorded_checkpoint(folder: Path, name: str) -> Json:
    """The description of a checkpoint of the run in a folder.

    Raises:
        CheckpointError: If the file is missing or damaged.
        ForeignError: If it belongs to another training than run.json.
    """
    path = folder / f"{name}.safetensors"
    description = check_checkpoint(path)
    check_made_from(path, training_key(description), training_key(declared_in(folder)))
    return description


def scores_key(folder: Path, experiment: Experiment) -> str:
    """Key of scores.json: the training, and the weights of the checkpoints that it reports."""
    names = experiment.training.reported
    weights = {name: weights_of(folder / f"{name}.safetensors") for name in names}
    return key_of(training=training_key(declared_in(folder)), weights=weights)


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


def changed(experiment: Experiment, store: str, folder: Path) -> str | None:
    """What differs between a training of an experiment on a store and the run in a folder: a
    setting with both values, or two digests of data, initial weights or plugins.

    None if nothing differs, or if there is no readable run.
    """
    try:
        declared = declared_in(folder)
        recorded = declared["experiment"]
    except (FileNotFoundError, RunError, KeyError):
        return None
    present = recorded_experiment(experiment, recorded)
    if present == recorded:
        return _changed_source(experiment, store, declared)
    with suppress(SchemaError):  # which a record of an earlier version may raise
        recorded = Experiment.parse(recorded, "experiment").model_dump(mode="json")
    old, new = flat(recorded), flat(present)
    keys = (key for key in old | new if old.get(key) != new.get(key))
    return next(
        (f"{key} = {old.get(key, 'absent')}, not {new.get(key, 'absent')}" for key in keys), None
    )


def _changed_source(experiment: Experiment, store: str, declared: Json) -> str | None:
    """The first digest in which the data, the initial weights or the plugins of a training differ
    from those in run.json."""
    old, plugins = digests_in(declared), resumed_plugins(experiment, declared)
    new = files_of(experiment) | digests_of({"plugins": plugins})
    if "data" in old:
        new["data"] = open_sealed(store).metadata.content
    return next(
        (
            f"{name} of SHA-256 {old.get(name, 'none')[:12]}, not {new.get(name, 'none')[:12]}"
            for name in old | new
            if old.get(name) != new.get(name)
        ),
        None,
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
