"""Output of a training to trackers. If a tracker fails, the training continues."""

import logging
from collections.abc import Sequence
from pathlib import Path

from pdegen.schema import near
from pipelines.tracking.mlflow import mlflow
from pipelines.tracking.tensorboard import tensorboard
from pipelines.tracking.tracker import (
    RUNNING,
    Callback,
    MetricRow,
    TrackedRun,
    Tracker,
    TrackerError,
)

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
