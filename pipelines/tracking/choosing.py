"""The words of `--track` -> trackers."""

from __future__ import annotations

from collections.abc import Sequence

from pdegen.schema import near
from pipelines.tracking.mlflow import MLflowTracker
from pipelines.tracking.tensorboard import TensorBoardTracker
from pipelines.tracking.tracker import Tracker, TrackerError

KNOWN = ("tensorboard", "mlflow")


def trackers(words: Sequence[str]) -> list[Tracker]:
    """Trackers that can be written to.

    Args:
        words: "tensorboard", "mlflow" or "mlflow:URI", each at most once.

    Raises:
        TrackerError: If a word is unknown, its package is not installed, or its store cannot be
            reached. Nothing is written.

    >>> trackers(["wandb"])
    Traceback (most recent call last):
    pipelines.tracking.tracker.TrackerError: no tracker 'wandb': known: tensorboard, mlflow
    """
    found = [_tracker(word) for word in words]
    names = [tracker.name for tracker in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TrackerError(f"--track {min(twice)} is given twice: one of each kind is possible")
    for tracker in found:
        tracker.check()
    return found


def _tracker(word: str) -> Tracker:
    kind, colon, uri = word.partition(":")
    if kind not in KNOWN:
        raise TrackerError(f"no tracker {kind!r}: {near(kind, list(KNOWN))}")
    if colon and kind == "tensorboard":
        raise TrackerError(f"--track {word}: TensorBoard's files are in RUN/tensorboard, no URI")
    if colon and not uri:
        raise TrackerError(f"--track {word}: a URI is missing after the colon")
    return TensorBoardTracker() if kind == "tensorboard" else MLflowTracker(uri or None)
