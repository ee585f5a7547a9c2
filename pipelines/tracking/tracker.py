"""What trackers are: functions that show the epochs of a training in another tool."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from operators.training.files import write
from operators.training.fit import Epoch

MetricRow = tuple[int, Mapping[str, float]]  # step, values by name; a step is an epoch, from 1 on
METRICS = tuple(field.name for field in fields(Epoch) if field.name != "epoch")
RUNNING = "RUNNING"  # later FINISHED, KILLED (asked to stop) or FAILED


class TrackerError(ValueError):
    """A tracker that is unknown, not installed, or cannot be written to; one line."""

    exit_status = 2


@dataclass(frozen=True)
class TrackedRun:
    """What trackers are told of a training beside its epochs.

    Args:
        id: Of this training alone; a resumed one keeps it, `--overwrite` makes another.
        group: Trainings that are shown together: the name of the experiment.
    """

    id: str
    group: str
    folder: Path
    declaration: Mapping[str, object]
    tags: Mapping[str, str]


# Takes all rows so far, the status of the training, and files to keep; it shows each row once.
Callback = Callable[[Sequence[MetricRow], str, Sequence[Path]], None]


@dataclass(frozen=True)
class Tracker:
    """A tool that can be written to: its name, and what opens a training there."""

    name: str
    open: Callable[[TrackedRun], Callback]


def rows_of(history: Sequence[Epoch]) -> list[MetricRow]:
    return [(epoch.epoch, {name: getattr(epoch, name) for name in METRICS}) for epoch in history]


def flat(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested declaration under dotted keys; None and empty tables are left out.

    >>> flat({"model": {"name": "fno", "modes": 8}, "noise": None})
    {'model.name': 'fno', 'model.modes': 8}
    """
    found: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[f"{prefix}{key}"] = value
    return found


TABLE = "history.csv"


def write_table(folder: Path, history: Sequence[Epoch]) -> None:
    """Let history.csv appear whole: epoch, loss, score, lr, seconds; a row for each epoch, numbers
    with as many digits as distinguish them. Raises OSError if it cannot be written; what was there
    before is left."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("epoch", *METRICS))
    rows.writerows([epoch.epoch, *(getattr(epoch, name) for name in METRICS)] for epoch in history)
    write(folder / TABLE, text.getvalue().encode())
