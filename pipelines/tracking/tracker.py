"""What every tracker is: a training's epochs, each written once, into a store of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from operators.training.fit import Epoch

MetricRow = tuple[int, Mapping[str, float]]  # step, values by name
METRICS = tuple(field.name for field in fields(Epoch) if field.name != "epoch")


class TrackerError(ValueError):
    """A tracker that is unknown, not installed, or cannot be written to; one line."""

    exit_status = 2


@dataclass(frozen=True)
class TrackedRun:
    """What trackers are told of a training beside its epochs.

    Args:
        id: Of this training alone; a resumed one keeps it, `--overwrite` makes another.
        group: Trainings that are shown together: the name of the experiment.
        folder: Of the run.
        declaration: The experiment, keys within keys.
        tags: What the data are, and what software and hardware trains.
    """

    id: str
    group: str
    folder: Path
    declaration: Mapping[str, Any]
    tags: Mapping[str, str]


class Session(ABC):
    """A training in the store of a tracker: its rows there, and what is known of it."""

    @abstractmethod
    def write(self, rows: Sequence[MetricRow]) -> None:
        """Write what the store does not have yet."""

    @abstractmethod
    def end(self, status: str) -> None:
        """Say how the training has ended: FINISHED, KILLED (asked to stop) or FAILED."""

    @abstractmethod
    def keep(self, files: Sequence[Path]) -> None:
        """Keep files of the run, where the store has a place for files."""


class Tracker(ABC):
    """Epochs -> rows of a store that other tools read; a step is an epoch, from 1 on.

    A tracker is given all epochs that a checkpoint holds, asks its store which are there, and
    writes the others. So a kill leaves no epoch twice, and a resumed training adds the missing
    ones.
    """

    name: str

    @abstractmethod
    def check(self) -> None:
        """Raise TrackerError where it cannot write; this writes nothing."""

    @abstractmethod
    def open(self, run: TrackedRun) -> Session:
        """Find the training in the store, or add it."""


def rows_of(history: Sequence[Epoch]) -> list[MetricRow]:
    """The rows of the epochs of a training."""
    return [(epoch.epoch, {name: getattr(epoch, name) for name in METRICS}) for epoch in history]


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested declaration under dotted keys; None and empty tables are left out.

    >>> flat({"model": {"name": "fno", "modes": 8}, "noise": None})
    {'model.name': 'fno', 'model.modes': 8}
    """
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[f"{prefix}{key}"] = value
    return found
