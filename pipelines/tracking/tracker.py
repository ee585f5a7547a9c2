"""Interface of trackers, which show the epochs of a training in another tool."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from operators.training.files import write
from operators.training.fit import Epoch

MetricRow = tuple[int, Mapping[str, float]]  # epoch, counted from 1, and values by name
METRICS = tuple(field.name for field in fields(Epoch) if field.name != "epoch")
RUNNING = "RUNNING"  # later FINISHED, KILLED (stopped by request) or FAILED


class TrackerError(ValueError):
    """An unknown or missing tracker, or one that cannot be written; the message is one line."""

    exit_status = 2


@dataclass(frozen=True)
class TrackedRun:
    """Description of a training for trackers.

    Args:
        id: Unique identifier. A resumed training keeps it; `--overwrite` makes a new one.
        group: Name of the experiment; trainings of a group are shown together.
        declaration: The experiment, which trackers show as parameters.
        tags: Further text values by name.
    """

    id: str
    group: str
    folder: Path
    declaration: Mapping[str, object]
    tags: Mapping[str, str]


# Arguments: all rows so far, the status of the training, and files to keep. Each row is shown once.
Callback = Callable[[Sequence[MetricRow], str, Sequence[Path]], None]


@dataclass(frozen=True)
class Tracker:
    """A tool: its name, and a function that starts to show a training there."""

    name: str
    open: Callable[[TrackedRun], Callback]


def rows_of(history: Sequence[Epoch]) -> list[MetricRow]:
    """Rows for trackers, one for each epoch."""
    return [(epoch.epoch, {name: getattr(epoch, name) for name in METRICS}) for epoch in history]


def flat(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Values of a nested declaration by dotted key, without None and empty tables.

    >>> flat({"model": {"name": "fno", "modes": 8}, "noise": None})
    {'model.name': 'fno', 'model.modes': 8}
    """
    values: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            values[f"{prefix}{key}"] = value
    return values


TABLE = "history.csv"


def write_table(folder: Path, history: Sequence[Epoch]) -> None:
    """Write history.csv: a row for each epoch with epoch, loss, score, lr and seconds, numbers with
    all their digits. The file appears whole; an earlier one stays if writing raises OSError."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("epoch", *METRICS))
    rows.writerows([epoch.epoch, *(getattr(epoch, name) for name in METRICS)] for epoch in history)
    write(folder / TABLE, text.getvalue().encode())
