"""The folder of a run: what is in the way of one, its claim, and how it is given up."""

from pathlib import Path
from typing import Any

from operators.training.checkpoint import CheckpointError, check_checkpoint
from operators.training.files import BusyError, DamagedError, held, read_json, write, write_json
from operators.training.settings import Settings
from operators.transforms import Predictor
from pdegen.errors import check_room
from pdegen.ownership import LOCK, PARTIAL, is_ours, remove
from pipelines.runs.folder import (
    FolderClaim,
    InUseError,
    RunError,
    check_folder,
    check_name,
    check_ours,
    claim,
)
from pipelines.runs.predictions import MEAN, PREDICTIONS
from pipelines.runs.reproduction import toml
from pipelines.runs.run_tracking import TRACKING, forget
from pipelines.tracking.tracker import TABLE

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
_HOLDING = FolderClaim("run", "run.json", "use --resume to continue or --overwrite", "run folder")

_EPOCH_BYTES = 1024  # of an epoch in the state, in the history and in its table


def check_place(folder: Path, resume: bool, overwrite: bool) -> None:
    """Raise RunError where a folder is in the way of a run."""
    check_folder(folder)
    for name in ("run.json", LOCK, TRACKING, *_FILES):
        check_name(folder / name)
    _HOLDING.check(folder, resume, overwrite)


def check_run_room(folder: Path, predictor: Predictor, settings: Settings) -> None:
    """Raise NoRoomError where checkpoints, the state of Adam and the history have no room; files
    that are there are replaced, each after its successor is written."""
    weights = sum(one.numel() * one.element_size() for one in predictor.state_dict().values())
    state = (4 if settings.average else 3) * weights
    need = 2 * weights + 2 * state + settings.epochs * _EPOCH_BYTES
    there = [folder / name for name in _FILES]
    need -= sum(path.stat().st_size for path in there if path.is_file())
    check_room(folder, need, ": checkpoints and history of the training take")


def declared_in(folder: Path) -> dict[str, Any]:
    """What the run of a folder is of; where run.json is damaged, by what its checkpoint says."""
    try:
        return read_json(folder / "run.json")
    except DamagedError as damage:
        try:
            return check_checkpoint(folder / "last.safetensors")
        except CheckpointError:
            raise RunError(f"{damage}: start again by --overwrite") from None


def claim_run(
    folder: Path, declared: dict[str, Any], store: str, resume: bool, overwrite: bool
) -> bool:
    """Take a folder for a run; true where a state is there to resume from."""
    check_place(folder, resume, overwrite)
    path, begun = folder / "run.json", False
    if path.exists() and not overwrite:
        there = declared_in(folder)
        for key in declared:
            if there.get(key) != declared[key]:
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


def remove_run(folder: Path) -> None:
    """Remove a run folder. Raises InUseError where another process trains in it."""
    try:
        with held(folder):
            check_ours(folder)
            remove(folder)
    except BusyError as error:
        raise in_use(error) from None


def in_use(error: BusyError) -> InUseError:
    return InUseError(f"{error}: wait for it, or choose another --out")
