"""Trackers that follow a training; whatever they do, the training goes on."""

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
    """The trackers of `--track`.

    Raises:
        TrackerError: If a word is unknown, its package is not installed, or its store cannot be
            reached. Nothing is written.

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
            raise TrackerError(f"--track {kind}:{uri}: its files are in RUN/tensorboard, no URI")
        if colon and not uri:
            raise TrackerError(f"--track {kind}: a URI is missing after the colon")
        if kinds.count(kind) > 1:
            raise TrackerError(f"--track {kind} is given twice: one of each kind is possible")
    return [mlflow(uri or None) if kind == "mlflow" else tensorboard() for kind, _, uri in pairs]


class Following:
    """Shows a training in trackers: calls take all rows so far, as `Callback`.

    A tracker that fails is left alone until the training ends, and then gets all that it lacks.
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
            except Exception as error:  # whatever a client raises must not end the training
                self._callbacks.pop(name, None)
                again = "by --resume" if name in self._failed else "at the end, or by --resume"
                self._failed.add(name)
                text = " ".join(str(error).split())[:300] or type(error).__name__
                _log.warning(
                    "%s failed: %s; what is missing there is written %s", name, text, again
                )
