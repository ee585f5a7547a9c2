"""What trackers are told of a run: its name there, its data, its scores and files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from operators.training.files import read_json, write_json
from operators.training.fit import Epoch, Stopped, read_history
from pipelines.tracking.following import Following
from pipelines.tracking.tensorboard import FOLDER, event_files
from pipelines.tracking.tracker import TABLE, TrackedRun, Tracker, rows_of, write_table

TRACKING = "tracking.json"  # what the run is called in trackers
_KEPT = (TABLE, "experiment.toml", "scores.json", "report.html", "report.md")


def tracked(
    folder: Path, declared: Mapping[str, Any], store: str, about: Mapping[str, Any]
) -> TrackedRun:
    """What trackers are told of a run. Its name is on the disk before a tracker has it, so that a
    kill between the two does not make a second one. Raises DamagedError if the file of the name is
    not what was written."""
    path = folder / TRACKING
    if not path.exists():
        write_json(path, {"id": uuid.uuid4().hex})
    data, experiment = declared["data"], declared["experiment"]
    said = {"pdegen.store": store, **{f"pdegen.data.{k}": v for k, v in data.items()}}
    said |= {f"pdegen.made.{k}": v for k, v in about.items()}
    tags = {key: str(value) for key, value in said.items() if isinstance(value, (str, int, float))}
    return TrackedRun(read_json(path)["id"], experiment["name"], folder, experiment, tags)


class Saved:
    """Takes the epochs of each checkpoint of a run: history.csv, and trackers if there are any.

    As a context it tells the trackers how the training has ended.
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
            asked = isinstance(error, (Stopped, KeyboardInterrupt))
            status = "FINISHED" if error is None else "KILLED" if asked else "FAILED"
            self._following(rows_of(self._history), status)


def forget(folder: Path) -> None:
    """Let a run that is replaced begin anew in trackers; rows of the old one stay in MLflow."""
    (folder / TRACKING).unlink(missing_ok=True)
    for path in event_files(folder / FOLDER):
        path.unlink()


def track_results(
    trackers: Sequence[Tracker], folder: Path, store: str, results: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
) -> None:  # fmt: skip
    """Give trackers the scores of the test split and the report of a finished run."""
    if not trackers:
        return
    run = tracked(folder, read_json(folder / "run.json"), store, about)
    scores = [
        (one["epoch"], {f"test/{one['checkpoint']}/{one['resolution']}": one["mean"]})
        for one in results
    ]
    files = [path for path in (folder / name for name in _KEPT) if path.is_file()]
    Following(trackers, run)([*rows_of(read_history(folder)), *scores], "FINISHED", files)
