"""Interface of trackers, which write the epochs of a training to another tool."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from operators.training.fit import Epoch
from pdegen.schema import near

if TYPE_CHECKING:
    from mlflow import MlflowClient


MetricRow = tuple[int, Mapping[str, float]]  # epoch, counted from 1, and values by name
METRICS = tuple(field.name for field in fields(Epoch) if field.name != "epoch")
RUNNING = "RUNNING"  # later FINISHED, KILLED (stopped by request) or FAILED


class TrackerError(ValueError):
    """Raised if a tracker is unknown, missing or not writable. The message is a single line."""

    exit_status = 2


@dataclass(frozen=True)
class TrackedRun:
    """Description of a training that trackers receive.

    Args:
        id: Unique identifier. It stays the same if a training is resumed; `--overwrite` creates a
            new one.
        group: Name of the experiment. Tools show the trainings of a group together.
        declaration: The experiment, which trackers show as parameters.
        tags: Other text values by name.
    """

    id: str
    group: str
    folder: Path
    declaration: Mapping[str, object]
    tags: Mapping[str, str]


# Arguments: all rows so far, the status of the training, and files to keep. Each row is shown once.
Callback = Callable[[Sequence[MetricRow], str, Sequence[Path]], None]


@dataclass(frozen=True)
class Tracker:
    """A tool that shows trainings. The function `open` starts the output of one training."""

    name: str
    open: Callable[[TrackedRun], Callback]


def rows_of(history: Sequence[Epoch]) -> list[MetricRow]:
    """Convert epochs to rows for trackers, with one row per epoch."""
    return [(epoch.epoch, {name: getattr(epoch, name) for name in METRICS}) for epoch in history]


def flat(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten a nested declaration to a dict with dotted keys. None and empty tables are omitted.

    >>> flat({"model": {"name": "fno", "modes": 8}, "noise": None})
    {'model.name': 'fno', 'model.modes': 8}
    """
    values: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            values[f"{prefix}{key}"] = value
    return values


DEFAULT = "sqlite:///mlflow.db"  # the default of MLflow
_TAG = "pdegen.training"  # of the MLflow run that belongs to a training
_MOST = {"metrics": 1000, "params": 100, "value": 6000}  # limits of a request to MLflow
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
_END = re.compile(r"\. | \[SQL| \(Background on")
_LOCKED_SECONDS = 5  # how long another program may lock a database
_Item = TypeVar("_Item")
_SETTINGS = {  # values set in the environment take precedence
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # missing rows are written at the end
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def mlflow(uri: str | None = None) -> Tracker:
    """Tracker that writes an MLflow run.

    The experiment becomes parameters of the run, hashes become tags, and files become artifacts.

    Args:
        uri: The tracking server or database. The default is MLFLOW_TRACKING_URI; if this is not
            set, it is the database mlflow.db in the current folder.

    Raises:
        TrackerError: If MLflow is not installed, or the server or database cannot be used. Nothing
            is written in this case.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    word = f"--track mlflow:{_CREDENTIALS.sub('//***@', uri)}"
    try:
        import mlflow  # noqa: F401 - checks that it is installed
    except ImportError as error:
        raise TrackerError(
            f"{word} needs MLflow: pip install 'pdegen-operators[track]' ({error})"
        ) from None
    try:
        file = _database(uri)
        if file is not None and not file.parent.is_dir():
            raise TrackerError(f"{word}: there is no folder {file.parent}")
        if file is not None and file.exists():
            place = f"{file.as_uri()}?mode=rw"
            with closing(sqlite3.connect(place, uri=True, timeout=_LOCKED_SECONDS)) as database:
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if file is None or file.exists():  # a client would create the database too early
            _client(uri).search_experiments(max_results=1)
    except TrackerError:
        raise
    except (
        Exception
    ) as error:  # errors of MLflow, its database and the network have no common class
        text = _CREDENTIALS.sub("//***@", " ".join(str(error).split())) or type(error).__name__
        sentence = _END.split(text)[0][:300]  # SQL follows it
        raise TrackerError(f"{word} cannot be used: {sentence}") from None
    return Tracker("mlflow", lambda run: _opened(uri, run))


def _client(uri: str) -> MlflowClient:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def _opened(uri: str, run: TrackedRun) -> Callback:
    """Open the run that has the training's tag, or create it."""
    from mlflow.entities import Metric, Param

    client = _client(uri)
    group = _group(uri, client, run.group)
    runs = client.search_runs([group], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
    tags = {_TAG: run.id, **run.tags}
    shown = runs[0] if runs else client.create_run(group, tags=tags, run_name=run.folder.name)
    number, written = shown.info.run_id, shown.data.params
    missing = {k: v for k, v in flat(run.declaration).items() if k not in written}
    words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in missing.items()}
    params = [Param(key, text[: _MOST["value"]]) for key, text in words.items()]
    for some in _parts(params, _MOST["params"]):
        client.log_batch(number, params=some)
    if shown.info.status != RUNNING:
        client.update_run(number, status=RUNNING)
    steps: dict[str, set[int]] = {}  # steps that are written, by metric

    def write(rows: Sequence[MetricRow], status: str, files: Sequence[Path]) -> None:
        for name in {name for _, values in rows for name in values} - steps.keys():
            steps[name] = {metric.step for metric in client.get_metric_history(number, name)}
        now = int(time.time() * 1000)
        new = [
            Metric(name, value, now, step)
            for step, values in rows
            for name, value in values.items()
            if step not in steps[name]
        ]
        for some in _parts(new, _MOST["metrics"]):
            client.log_batch(number, metrics=some)
            for metric in some:
                steps[metric.key].add(metric.step)
        for path in files:
            client.log_artifact(number, str(path))
        if status != RUNNING:
            client.set_terminated(number, status)

    return write


def _group(uri: str, client: MlflowClient, name: str) -> str:
    """ID of the MLflow experiment with a name."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id
    file = _database(uri)
    folder = None if file is None else (file.parent / "mlartifacts" / name).as_uri()
    return client.create_experiment(name, artifact_location=folder)


def _database(uri: str) -> Path | None:
    """File of an SQLite database; None for servers and other databases."""
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    name = make_url(uri).database
    if not name or name == ":memory:":
        raise TrackerError(f"--track mlflow:{uri} names no file; use sqlite:///PATH")
    return Path(name).absolute()


def _parts(items: list[_Item], size: int) -> list[list[_Item]]:
    return [items[k : k + size] for k in range(0, len(items), size)]


FOLDER = "tensorboard"
_SUFFIX = ".pdegen"


def tensorboard() -> Tracker:
    """Tracker that writes TensorBoard event files to RUN/tensorboard, in float32.

    Raises TrackerError if TensorBoard is not installed.
    """
    try:
        import tensorboard  # noqa: F401 - checks that it is installed
    except ImportError:
        raise TrackerError(
            "--track tensorboard needs TensorBoard: pip install 'pdegen-operators[track]'"
        ) from None
    return Tracker("tensorboard", _opened_writer)


def event_files(folder: Path) -> list[Path]:
    """Event files that trainings have written to a folder."""
    return sorted(folder.glob(f"events.out.tfevents.*{_SUFFIX}"))


def _opened_writer(run: TrackedRun) -> Callback:
    """Start the output of a training."""
    from torch.utils.tensorboard.writer import SummaryWriter

    for path in event_files(run.folder / FOLDER):
        path.unlink()
    # purge_step: a running TensorBoard drops the steps of the earlier files
    writer = SummaryWriter(str(run.folder / FOLDER), purge_step=0, filename_suffix=_SUFFIX)
    written = 0

    def write(rows: Sequence[MetricRow], status: str, files: Sequence[Path]) -> None:
        nonlocal written
        for step, values in rows[written:]:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        written = len(rows)
        writer.flush() if status == RUNNING else writer.close()

    return write


KNOWN = ("tensorboard", "mlflow")
_log = logging.getLogger(__name__)


def trackers(words: Sequence[str]) -> list[Tracker]:
    """Trackers for the values of `--track`, such as "tensorboard" or "mlflow:URI".

    Raises:
        TrackerError: If a tracker is unknown or not installed, or the place where it stores results
            cannot be reached. Nothing is written in this case.

    >>> trackers(["wandb"])
    Traceback (most recent call last):
    pipelines.tracking.tracker.TrackerError: no tracker 'wandb': known: tensorboard, mlflow
    """
    pairs = [word.partition(":") for word in words]
    kinds = [kind for kind, _, _ in pairs]
    for kind, colon, uri in pairs:
        if kind not in KNOWN:
            raise TrackerError(f"no tracker {kind!r}: {near(kind, list(KNOWN))}")
        if colon and kind == "tensorboard":
            raise TrackerError(
                f"--track {kind}:{uri}: TensorBoard takes no URI; its files are in RUN/tensorboard"
            )
        if colon and not uri:
            raise TrackerError(f"--track {kind}: the URI after the colon is missing")
        if kinds.count(kind) > 1:
            raise TrackerError(f"--track {kind} is given twice, but can be given only once")
    return [mlflow(uri or None) if kind == "mlflow" else tensorboard() for kind, _, uri in pairs]


class Following:
    """Writes the progress of a training to trackers. A call takes the arguments of `Callback`.

    If a tracker fails, it is skipped until the training ends, and then receives all missing rows.
    """

    def __init__(self, trackers: Sequence[Tracker], run: TrackedRun) -> None:
        self._run, self._trackers = run, trackers
        self._callbacks: dict[str, Callback] = {}
        self._failed: set[str] = set()

    def __call__(
        self, rows: Sequence[MetricRow], status: str = RUNNING, files: Sequence[Path] = ()
    ) -> None:
        for tracker in self._trackers:
            name = tracker.name
            if name in self._failed and status == RUNNING:
                continue
            try:
                if name not in self._callbacks:
                    self._callbacks[name] = tracker.open(self._run)
                self._callbacks[name](rows, status, files)
            except Exception as error:  # no exception of a client may end the training
                self._callbacks.pop(name, None)
                again = "by --resume" if name in self._failed else "at the end, or by --resume"
                self._failed.add(name)
                text = " ".join(str(error).split())[:300] or type(error).__name__
                _log.warning("%s failed: %s; its missing epochs are written %s", name, text, again)
