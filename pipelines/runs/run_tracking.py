"""Sends the identity, tags, epochs, scores and files of a run to TensorBoard or MLflow."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from operators.training.fit import Epoch, Stopped, read_history
from operators.training.identity import MADE_FROM, check_made_from, training_key
from pdegen.ownership import read_json, write_json
from pipelines.tracking.following import Following
from pipelines.tracking.tensorboard import FOLDER, event_files
from pipelines.tracking.tracker import TABLE, TrackedRun, Tracker, rows_of, write_table

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
