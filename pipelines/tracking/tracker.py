"""Interface of trackers, which write the epochs of a training to another tool."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from operators.training.fit import Epoch
from pdegen.ownership import write

MetricRow = tuple[int, Mapping[str, float]]  # epoch, counted from 1, and values by name
METRICS = tuple(field.name for field in fields(Epoch) if field.name != "epoch")
RUNNING = "RUNNING"  # later FINISHED, KILLED (stopped by request) or FAILED


class TrackerError(ValueError):
    """Raised if a tracker is unknown, missing or not writable. The message is a single line."""

    exit_status = 2


@dataclass(frozen=True)
class TrackedRun:
    """Description of a training that trackers receive.

    Args:
        id: Unique identifier. It stays the same if a training is resumed; `--overwrite` creates a
            new one.
        group: Name of the experiment. Tools show the trainings of a group together.
        declaration: The experiment, which trackers show as parameters.
        tags: Other text values by name.
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
    """A tool that shows trainings. The function `open` starts the output of one training."""

    name: str
    open: Callable[[TrackedRun], Callback]


def rows_of(history: Sequence[Epoch]) -> list[MetricRow]:
    """Convert epochs to rows for trackers, with one row per epoch."""
    return [(epoch.epoch, {name: getattr(epoch, name) for name in METRICS}) for epoch in history]


def flat(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten a nested declaration to a dict with dotted keys. None and empty tables are omitted.

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
    """Write history.csv, which has a row for each epoch.

    The columns are epoch, loss, score, lr and seconds. Numbers have all their digits. The file is
    replaced atomically: if writing raises OSError, an earlier file stays unchanged.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("epoch", *METRICS))
    rows.writerows([epoch.epoch, *(getattr(epoch, name) for name in METRICS)] for epoch in history)
    write(folder / TABLE, text.getvalue().encode())
