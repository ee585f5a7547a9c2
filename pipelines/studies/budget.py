"""Trainings with more and more epochs, until the validation error is flat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from operators.training.fit import TrainingError
from operators.training.identity import MADE_FROM, check_made_from, training_key
from pdegen.ownership import DamagedError, read_json, write_json
from pipelines.config.benchmark import Budget
from pipelines.runs.folder import declared_in

Ended = Literal["", "flat", "time"]
"""Why epochs were not doubled again: the error was flat, or there was no time. Empty without a
budget, or if the longest training diverged."""

LEARNED = 0.95
"""Share of the error of the best trivial predictor below which an operator has learned
something."""

_FILE = "processor.json"


def doubled(
    budget: Budget,
    epochs: int,
    train: Callable[[int], tuple[float, float]],
    trivial: Callable[[], float],
) -> tuple[int, Ended]:
    """The number of epochs with the smallest validation error, and why it was not doubled again.

    The result depends on the machine only if it is "time".

    Args:
        epochs: Number of epochs of the first training.
        train: Function of the number of epochs. It trains from the beginning, and returns the
            smallest validation error and the seconds spent.
        trivial: Function that returns the validation error of the best trivial predictor. Many
            operators learn nothing else in their first epochs, so only errors below `LEARNED` times
            that error are flat.

    Raises:
        TrainingError: If the first training fails. A longer one that fails is ignored.

    >>> errors = {10: 0.4, 20: 0.2, 40: 0.1, 80: 0.099, 160: 0.01}
    >>> doubled(Budget(seconds=1e9), 10, lambda epochs: (errors[epochs], epochs), lambda: 0.5)
    (80, 'flat')
    >>> doubled(Budget(seconds=100), 10, lambda epochs: (errors[epochs], epochs), lambda: 0.5)
    (40, 'time')
    """
    error, spent = train(epochs)
    best, total = (error, epochs), spent
    while total + 2 * spent <= budget.seconds:
        epochs *= 2
        try:
            longer, spent = train(epochs)
        except TrainingError:
            return best[1], ""
        total += spent
        best = min(best, (longer, epochs))
        if longer > (1 - budget.flat) * error and best[0] < LEARNED * trivial():
            return best[1], "flat"
        error = longer
    return best[1], "time"


@contextmanager
def count_time(folder: Path, begun: bool, device: torch.device) -> Iterator[None]:
    """Add the seconds of a training to those recorded in its folder, also if it is interrupted.

    They are processor time on a CPU and wall time on a GPU.

    Args:
        begun: Whether the folder contains this training. It goes on if it has a state. Otherwise
            the folder is replaced, and the recorded seconds do not count.
    """
    now = time.process_time if device.type == "cpu" else time.monotonic
    resumed = begun and (folder / "state.pt").exists()
    before, start = seconds(folder) if resumed else 0.0, now()
    try:
        yield
    finally:
        if (folder / "run.json").exists():  # else it failed, and its folder was removed
            key = training_key(declared_in(folder))
            write_json(folder / _FILE, {"seconds": before + now() - start, MADE_FROM: key})


def seconds(folder: Path) -> float:
    """Seconds of a training, recorded by `count_time`; 0 if there is no record, or one of another
    training."""
    try:
        content = read_json(folder / _FILE)
        check_made_from(folder / _FILE, content.get(MADE_FROM), training_key(declared_in(folder)))
        return float(content["seconds"])
    except (FileNotFoundError, DamagedError, KeyError):
        return 0.0
