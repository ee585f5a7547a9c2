"""MLflow: a training is an MLflow run, which its tag `pdegen.training` finds again."""

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

DEFAULT = "sqlite:///mlflow.db"  # of MLflow itself
_TAG = "pdegen.training"
_MOST = {"metrics": 1000, "params": 100, "value": 6000}  # that MLflow takes at a time
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
_END = re.compile(r"\. | \[SQL| \(Background on")
_LOCKED_SECONDS = 5  # that another program may hold a database
_Thing = TypeVar("_Thing")
_SETTINGS = {  # those that the environment has are kept
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the training goes on, and catches up at its end
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def mlflow(uri: str | None = None) -> Tracker:
    """Shows rows in an MLflow run, with the experiment as parameters, digests as tags, files as
    artifacts.

    Args:
        uri: Of the tracking server or database; None for MLFLOW_TRACKING_URI, or a database
            mlflow.db in this folder.

    Raises:
        TrackerError: If MLflow is not installed, or the store cannot be used; nothing is written.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    word = f"--track mlflow:{_CREDENTIALS.sub('//***@', uri)}"
    try:
        import mlflow  # noqa: F401 (what follows needs it)
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
        if file is None or file.exists():  # a client would make one, and it is not time yet
            _client(uri).search_experiments(max_results=1)
    except TrackerError:
        raise
    except Exception as error:  # of MLflow, its database or the network: no common class
        raise TrackerError(f"{word} cannot be used: {_said(error)}") from None
    return Tracker("mlflow", lambda run: _opened(uri, run))


def _client(uri: str) -> MlflowClient:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def _opened(uri: str, run: TrackedRun) -> Callback:
    """A run is found by its tag or made, so that a kill between the two leaves one."""
    from mlflow.entities import Metric, Param

    client = _client(uri)
    group = _group(uri, client, run.group)
    found = client.search_runs([group], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
    tags = {_TAG: run.id, **run.tags}
    seen = found[0] if found else client.create_run(group, tags=tags, run_name=run.folder.name)
    number, there = seen.info.run_id, seen.data.params
    params = [Param(k, _text(v)) for k, v in flat(run.declaration).items() if k not in there]
    for some in _parts(params, _MOST["params"]):
        client.log_batch(number, params=some)
    if seen.info.status != RUNNING:
        client.update_run(number, status=RUNNING)
    steps: dict[str, set[int]] = {}  # that are there, by metric

    def write(rows: Sequence[MetricRow], status: str, files: Sequence[Path]) -> None:
        for name in {name for _, values in rows for name in values} - steps.keys():
            steps[name] = {one.step for one in client.get_metric_history(number, name)}
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
    """The number of an MLflow experiment. Files go beside an SQLite database; by MLflow's own
    default they would go to whatever folder is the current one."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    file = _database(uri)
    place = None if file is None else (file.parent / "mlartifacts" / name).as_uri()
    return client.create_experiment(name, artifact_location=place)


def _database(uri: str) -> Path | None:
    """The file of an SQLite database; None for other stores."""
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    name = make_url(uri).database
    if not name or name == ":memory:":
        raise TrackerError(f"--track mlflow:{uri} names no file: sqlite:///PATH")
    return Path(name).absolute()


def _check_database(file: Path) -> None:
    """Raise sqlite3.Error where a file cannot be read as a database: MLflow tries for minutes."""
    uri = f"{file.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED_SECONDS)) as database:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _parts(things: list[_Thing], size: int) -> list[list[_Thing]]:
    return [things[k : k + size] for k in range(0, len(things), size)]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[: _MOST["value"]]


def _said(error: Exception) -> str:
    """The first sentence of what an error says, without credentials and without SQL."""
    text = _CREDENTIALS.sub("//***@", " ".join(str(error).split())) or type(error).__name__
    return _END.split(text)[0][:300]
