"""MLflow tracker. A training is an MLflow run, identified by the tag `pdegen.training`."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipelines.tracking.tracker import (
    RUNNING,
    Callback,
    MetricRow,
    TrackedRun,
    Tracker,
    TrackerError,
    flat,
)

if TYPE_CHECKING:  # importing it takes a second
    from mlflow import MlflowClient

DEFAULT = "sqlite:///mlflow.db"  # the default of MLflow
_TAG = "pdegen.training"
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
            _check_database(file)
        if file is None or file.exists():  # a client would create the database too early
            _client(uri).search_experiments(max_results=1)
    except TrackerError:
        raise
    except (
        Exception
    ) as error:  # errors of MLflow, its database and the network have no common class
        raise TrackerError(f"{word} cannot be used: {_message(error)}") from None
    return Tracker("mlflow", lambda run: _opened(uri, run))


def _client(uri: str) -> MlflowClient:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def _opened(uri: str, run: TrackedRun) -> Callback:
    """Open the run that has the training's tag, or create it.

    A training that was killed and then resumed therefore has only one run.
    """
    from mlflow.entities import Metric, Param

    client = _client(uri)
    group = _group(uri, client, run.group)
    runs = client.search_runs([group], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
    tags = {_TAG: run.id, **run.tags}
    shown = runs[0] if runs else client.create_run(group, tags=tags, run_name=run.folder.name)
    number, written = shown.info.run_id, shown.data.params
    params = [Param(k, _text(v)) for k, v in flat(run.declaration).items() if k not in written]
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
    """ID of the MLflow experiment with a name. It is created if it does not exist.

    With an SQLite database, artifacts are stored in the folder of the database. By default MLflow
    would use the current folder.
    """
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


def _check_database(file: Path) -> None:
    """Raise sqlite3.Error if a file is not a readable database.

    Without this check, MLflow would retry for minutes.
    """
    uri = f"{file.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED_SECONDS)) as database:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _parts(items: list[_Item], size: int) -> list[list[_Item]]:
    return [items[k : k + size] for k in range(0, len(items), size)]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[: _MOST["value"]]


def _message(error: Exception) -> str:
    """First sentence of an error message, with credentials and SQL removed."""
    text = _CREDENTIALS.sub("//***@", " ".join(str(error).split())) or type(error).__name__
    return _END.split(text)[0][:300]
