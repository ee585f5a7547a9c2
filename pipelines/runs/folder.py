"""Result folders: what a folder contains, and whether its contents may be resumed or replaced."""

from __future__ import annotations

import csv
import io
import json
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from operators.plugins import digests_of, recorded_files
from operators.training.checkpoint import CheckpointError, check_checkpoint
from operators.training.fit import Epoch, Settings, Stopped, read_history
from operators.training.identity import MADE_FROM, check_made_from, key_of, training_key
from operators.transforms import Predictor
from pdegen.files import (
    LOCK,
    MANIFEST,
    PARTIAL,
    BusyError,
    DamagedError,
    FileError,
    check_file,
    check_room,
    enclosing_store,
    foreign_files,
    is_ours,
    is_url,
    locked,
    make_folder,
    read_json,
    remove,
    start_manifest,
    write,
    write_json,
)
from pdegen.schema import SchemaError, flattened
from pdegen.store.format import Json
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.plugins import keep_plugins, other_version, resumed_plugins
from pipelines.runs.predictions import MEAN, PREDICTIONS, files_of, weights_of
from pipelines.runs.reproduction import toml
from pipelines.tracking.tracker import (
    FOLDER,
    METRICS,
    Following,
    TrackedRun,
    Tracker,
    event_files,
    flat,
    rows_of,
)

# Sends the identity, tags, epochs, scores and files of a run to TensorBoard or MLflow.


TABLE = "history.csv"
TRACKING = "tracking.json"  # the identity of the run in trackers
_KEPT = (TABLE, "experiment.toml", "scores.json", "report.html", "report.md")


def tracked_run(
    folder: Path, declared: Mapping[str, Any], store: str, about: Mapping[str, Any]
) -> TrackedRun:
    """Identity and tags of a run for trackers.

    The identity is first written to a file and then sent to a tracker. If the process is killed in
    between, the resumed run has the same identity in the tracker. Raises DamagedError if the file
    was modified, or belongs to another run.
    """
    path, key = folder / TRACKING, training_key(declared)
    if not path.exists():
        write_json(path, {"id": uuid.uuid4().hex, MADE_FROM: key})
    content = read_json(path)
    check_made_from(path, content.get(MADE_FROM), key)
    data, experiment = declared["data"], declared["experiment"]
    facts = {"pdegen.store": store, **{f"pdegen.data.{k}": v for k, v in data.items()}}
    facts |= {f"pdegen.made.{k}": v for k, v in about.items()}
    tags = {key: str(value) for key, value in facts.items() if isinstance(value, (str, int, float))}
    return TrackedRun(content["id"], experiment["name"], folder, experiment, tags)


def write_table(folder: Path, history: Sequence[Epoch]) -> None:
    """Write history.csv, which has a row for each epoch.

    The columns are epoch, loss, score, lr and seconds. Numbers have all their digits. The file is
    replaced atomically: if writing raises OSError, an earlier file stays unchanged.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("epoch", *METRICS))
    rows.writerows([epoch.epoch, *(getattr(epoch, name) for name in METRICS)] for epoch in history)
    write(folder / TABLE, text.getvalue().encode())


class Saved:
    """Writes the epochs to history.csv and to trackers, whenever a checkpoint is saved.

    If used as a context manager, it also reports to the trackers how the training ended.
    """

    def __init__(self, folder: Path, following: Following | None = None) -> None:
        self._folder, self._following = folder, following
        self._history: list[Epoch] = []

    def __call__(self, history: list[Epoch]) -> None:
        self._history = history
        write_table(self._folder, history)
        if self._following is not None:
            self._following(rows_of(history))

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._following is not None:
            interrupted = isinstance(error, (Stopped, KeyboardInterrupt))
            status = "FINISHED" if error is None else "KILLED" if interrupted else "FAILED"
            self._following(rows_of(self._history), status)


def forget(folder: Path) -> None:
    """Remove the identity of a run that is replaced, so that trackers start a new run. In MLflow,
    the rows of the old run remain."""
    (folder / TRACKING).unlink(missing_ok=True)
    for path in event_files(folder / FOLDER):
        path.unlink()


def track_results(
    trackers: Sequence[Tracker], folder: Path, store: str, results: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> None:  # fmt: skip
    """Send the test scores and the report of a finished run to trackers."""
    if not trackers:
        return
    declared = read_json(folder / "run.json")
    run = tracked_run(folder, declared, store, about)
    scores = [
        (score["epoch"], {f"test/{score['checkpoint']}/{score['resolution']}": score["mean"]})
        for score in results
    ]
    files = [path for path in (folder / name for name in _KEPT) if path.is_file()]
    Following(trackers, run)(
        [*rows_of(read_history(folder, training_key(declared))), *scores], "FINISHED", files
    )


_DECLARATIONS = {
    f"{word}.json"
    for word in ("run", "benchmark", "study", "profile", "comparison", "set", "leaderboard")
}


class RunError(ValueError):
    """Error for a folder in which results cannot be written."""

    exit_status = 2


class InUseError(RunError):
    """Error for a run folder in which another process is training."""


@dataclass(frozen=True)
class FolderClaim:
    """Reserves folders for one kind of results: runs, benchmarks, studies, profiles or comparisons.

    Args:
        word: The kind, such as "run".
        file: Name of the file that declares the results, such as "run.json".
        advice: Advice in the error message if the folder already contains such results.
        folder_kind: Name of such a folder in error messages; by default `word`.
    """

    word: str
    file: str
    advice: str = "use --resume or --overwrite"
    folder_kind: str = ""

    def check(self, folder: Path, resume: bool, overwrite: bool) -> bool:
        """Whether the folder already contains results of this kind.

        Raises:
            RunError: If the folder cannot be written to, or contains something else. Also if it
                contains results and neither `resume` nor `overwrite` is set. With `overwrite`, also
                if it contains files that pdegen did not write.
        """
        check_folder(folder)
        files = {path.name for path in folder.iterdir()} if folder.exists() else set()
        contents = {
            name for name in files if name not in (LOCK, MANIFEST) and not name.endswith(PARTIAL)
        }
        exists = self.file in contents and not contents & (_DECLARATIONS - {self.file})
        if exists and not resume and not overwrite:
            raise RunError(f"{folder} holds a {self.word}: {self.advice}")
        if contents and not exists:
            raise RunError(f"{folder} exists and is no {self.folder_kind or self.word}")
        if exists and overwrite and folder.is_symlink():
            raise RunError(
                f"{folder} is a symbolic link to {folder.resolve()}, whose {self.word} --overwrite "
                "would replace: give the path of the folder"
            )
        if exists and overwrite:
            check_ours(folder)
        return exists

    def claim(
        self,
        folder: Path,
        declared: Mapping[str, Any],
        *,
        same: Collection[str] = (),
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Reserve a folder for new or resumed results, and write their declaration.

        Args:
            declared: Content of the declaration.
            same: Keys whose declared values may not change when results are resumed.

        Raises:
            RunError: If `check` raises RunError, or a key in `same` has another value than before.
        """
        path, exists = folder / self.file, self.check(folder, resume, overwrite)
        if exists and overwrite:
            remove(folder, {self.file})
        elif exists and same:
            try:
                recorded = read_json(path)
            except DamagedError as damage:
                raise RunError(f"{damage}: start again by --overwrite") from None
            for key in same:
                if recorded.get(key) != declared[key]:
                    raise RunError(f"{folder} holds a {self.word} of another {key}")
        claim(folder)
        write_json(path, declared)


def claim(folder: Path) -> None:
    """Create a folder in which pdegen records the files it writes. Only recorded files are ever
    replaced."""
    make_folder(folder)
    start_manifest(folder)


def check_ours(folder: Path) -> None:
    """Raise RunError if a folder to be overwritten contains files that pdegen did not write, or
    files that were edited."""
    foreign = foreign_files(folder)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise RunError(
            f"{folder} holds files that pdegen did not write, or that were edited since: "
            f"{', '.join(foreign[:3])}{more}; nothing was deleted: move them away"
        )


def check_folder(folder: Path) -> None:
    """Raise RunError if a folder cannot be created or written to."""
    if is_url(folder):
        raise RunError(f"{folder}: results are written to a local folder, not to a URL")
    if "\0" in str(folder):
        raise RunError(f"{str(folder)!r} contains a null byte: choose another --out")
    if store := enclosing_store(folder / "inside"):
        raise RunError(f"{store} is a store and takes no other files: choose another --out")
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise RunError(f"{nearest} is a file, not a folder: choose another --out")
        with tempfile.TemporaryFile(dir=nearest):  # permissions alone can mislead, as in /proc
            return
    except OSError as error:
        raise RunError(f"{folder} cannot be written to: choose another --out") from error


def check_out(path: Path, keys: Collection[str]) -> None:
    """Raise RunError if a JSON file cannot be written, or would replace another kind of file.

    Args:
        path: The file.
        keys: Keys by which an earlier file of the same kind is recognised.
    """
    check_name(path)
    check_folder(path.parent)
    if not path.exists():
        return
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not set(keys) <= content.keys():
        raise RunError(f"{path} holds something else and is not replaced: choose another --out")


def check_name(path: Path) -> None:
    """Raise RunError if the path of a file to be written exists and is no regular file."""
    try:
        check_file(path)
    except FileError as error:
        raise RunError(f"{error}: remove it, or choose another --out") from None


# Checks, reserves and removes the folder of a run.


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


def changed(experiment: Experiment, store: str | Store, folder: Path) -> str | None:
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


def _changed_source(experiment: Experiment, store: str | Store, declared: Json) -> str | None:
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
                difference, remedy = "", ""
                if key == "experiment":
                    difference, remedy = _difference(recorded, declared, folder)
                raise RunError(
                    f"{folder} holds a run with another {quantity}{difference}: it cannot be "
                    f"resumed{remedy}"
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


def _difference(
    recorded: Mapping[str, Any], declared: Mapping[str, Any], folder: Path
) -> tuple[str, str]:
    """The first key in which an experiment differs from that of a run, and how to go on."""
    old, new = (flattened(of.get("experiment", {})) for of in (recorded, declared))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if not keys:
        return "", ""
    there, here = (of.get(keys[0], "its default") for of in (old, new))
    return (
        f", {keys[0]} is {there} there and {here} here",
        f"; another training goes on from its weights by --start {folder} and another --out",
    )


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
