"""The epochs of a training as a CSV file, which every run has."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from operators.training.files import write
from operators.training.fit import Epoch
from pipelines.tracking.tracker import METRICS

TABLE = "history.csv"


def write_table(folder: Path, history: Sequence[Epoch]) -> None:
    """Let history.csv appear whole: epoch, loss, score, lr, seconds; a row for each epoch, numbers
    with as many digits as distinguish them.

    Raises:
        OSError: If it cannot be written; what was there before is left.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("epoch", *METRICS))
    rows.writerows([epoch.epoch, *(getattr(epoch, name) for name in METRICS)] for epoch in history)
    write(folder / TABLE, text.getvalue().encode())
