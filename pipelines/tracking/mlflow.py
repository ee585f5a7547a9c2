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
from typing import Any, TypeVar

from pipelines.tracking.tracker import (
    MetricRow,
    Session,
    TrackedRun,
    Tracker,
    TrackerError,
    flat,
)

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


class MLflowTracker(Tracker):
    """Rows -> an MLflow run, with the experiment as parameters, digests as tags, files as
    artifacts.

    Args:
        uri: Of the tracking server or database; None for MLFLOW_TRACKING_URI, or a database
            mlflow.db in this folder.
    """

    name = "mlflow"

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT

    def check(self) -> None:
        try:
            import mlflow  # noqa: F401 (what follows needs it)
        except ImportError as error:
            raise TrackerError(
                f"{self} needs MLflow: pip install 'pdegen-operators[track]' ({error})"
            ) from None
        try:
            file = self.database
            if file is not None and not file.parent.is_dir():
                raise TrackerError(f"{self}: there is no folder {file.parent}")
            if file is not None and file.exists():
                _check_database(file)
            if file is None or file.exists():  # a client would make one, and it is not time yet
                self.client().search_experiments(max_results=1)
        except TrackerError:
            raise
        except Exception as error:  # of MLflow, its database or the network: no common class
            raise TrackerError(f"{self} cannot be used: {_said(error)}") from None

    def open(self, run: TrackedRun) -> Session:
        return _Run(self, run)

    def client(self) -> Any:
        """What speaks with the store."""
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri)

    @property
    def database(self) -> Path | None:
        """The file of an SQLite database; None for other stores."""
        if not self.uri.startswith("sqlite"):
            return None
        from sqlalchemy.engine import make_url

        name = make_url(self.uri).database
        if not name or name == ":memory:":
            raise TrackerError(f"{self} names no file: sqlite:///PATH")
        return Path(name).absolute()

    def __str__(self) -> str:
        return f"--track mlflow:{_CREDENTIALS.sub('//***@', self.uri)}"


class _Run(Session):
    """An MLflow run: found by its tag or made, so that a kill between the two leaves one."""

    def __init__(self, tracker: MLflowTracker, run: TrackedRun) -> None:
        from mlflow.entities import Param

        self._client = client = tracker.client()
        group = _group(tracker, client, run.group)
        found = client.search_runs([group], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
        tags = {_TAG: run.id, **run.tags}
        made = found[0] if found else client.create_run(group, tags=tags, run_name=run.folder.name)
        self._id = made.info.run_id
        if made.info.status != "RUNNING":
            client.update_run(self._id, status="RUNNING")
        self._steps: dict[str, set[int]] = {}
        there = made.data.params
        params = [Param(k, _text(v)) for k, v in flat(run.declaration).items() if k not in there]
        for some in _parts(params, _MOST["params"]):
            client.log_batch(self._id, params=some)

    def write(self, rows: Sequence[MetricRow]) -> None:
        from mlflow.entities import Metric

        for name in {name for _, values in rows for name in values} - self._steps.keys():
            kept = self._client.get_metric_history(self._id, name)
            self._steps[name] = {metric.step for metric in kept}
        now = int(time.time() * 1000)
        new = [
            Metric(name, value, now, step)
            for step, values in rows
            for name, value in values.items()
            if step not in self._steps[name]
        ]
        for some in _parts(new, _MOST["metrics"]):
            self._client.log_batch(self._id, metrics=some)
            for metric in some:
                self._steps[metric.key].add(metric.step)

    def end(self, status: str) -> None:
        self._client.set_terminated(self._id, status)

    def keep(self, files: Sequence[Path]) -> None:
        for path in files:
            self._client.log_artifact(self._id, str(path))


def _group(tracker: MLflowTracker, client: Any, name: str) -> str:
    """The number of an MLflow experiment. Files go beside an SQLite database; by MLflow's own
    default they would go to whatever folder is the current one."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    file = tracker.database
    place = None if file is None else (file.parent / "mlartifacts" / name).as_uri()
    return client.create_experiment(name, artifact_location=place)


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
