"""The measurements of speed by their words, in full and small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError, near
from pipelines.measure import history, train
from pipelines.measure.generate import Generation
from pipelines.measure.read import Reading
from pipelines.measure.stream import Streaming
from pipelines.measure.train import TrainingFigures

Say = Callable[[str], None]


class Measurement(Protocol):
    """Measures on a device; says what it does, and leaves a trace where one is asked for."""

    def __call__(self, device: torch.device, say: Say, trace: Path | None) -> dict[str, Any]: ...


FULL: Mapping[str, Callable[[], Measurement]] = {
    "generate": Generation,
    "train": TrainingFigures,
    "read": Reading,
    "stream": Streaming,
}
QUICK: Mapping[str, Callable[[], Measurement]] = {
    "generate": lambda: Generation(
        pipe=load_recipe("pipe-quick"),
        job=512,
        growing=(64, 128, 256),
        darcy_growing=(8, 16, 32),
        memory=(256, 1024),
        rounds=5,
    ),
    "train": lambda: TrainingFigures(
        cases=(*train.BURGERS[:2], train.DARCY[0]), slope=train.SLOPE, rounds=5
    ),
    "read": lambda: Reading(samples=512, shard=64, alone=50, rounds=3),
    "stream": lambda: Streaming(rounds=1),
}
ON_DEVICE: Mapping[str, Callable[[], Measurement]] = {
    "generate": lambda: Generation(
        burgers_samples=2048,
        darcy_samples=2048,
        pipe_samples=60,
        growing=(512, 1024, 2048),
        darcy_growing=(512, 1024, 2048),
        rounds=5,
    ),
}


def chosen(word: str, device: torch.device, quick: bool) -> dict[str, Measurement]:
    """The measurements of a word; "all" is all.

    Raises:
        SchemaError: If it is unknown.
    """
    if word != "all" and word not in FULL:
        raise SchemaError(f"unknown measurement {word!r}: {near(word, [*FULL, 'all'])}")
    known = QUICK if quick else FULL if device.type == "cpu" else {**FULL, **ON_DEVICE}
    return {name: make() for name, make in known.items() if word in (name, "all")}


def run(
    word: str, device: torch.device, quick: bool, folder: Path, trace: Path | None, say: Say
) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Measure; name and figures of each measurement, and the file with its history.

    Args:
        word: Which; see `chosen`.
        device: By what.
        quick: Small ones, for a minute or a few.
        folder: Of the histories.
        trace: File for the Chrome trace of a few training steps; None for none.
        say: Called with what is measured now.

    Raises:
        SchemaError: If the word is unknown, the folder cannot be one, or a trace is asked for
            where nothing is trained; nothing is written.
    """
    measurements = chosen(word, device, quick)
    history.check_folder(folder)
    if trace is not None:
        if "train" not in measurements:
            raise SchemaError(f"--profile is a trace of training steps: bench train, not {word}")
        if trace.is_dir() or not trace.absolute().parent.is_dir():
            raise SchemaError(f"--profile {trace} is no file in a folder that exists")
    return _run(measurements, device, quick, folder, trace, say)


def _run(
    measurements: Mapping[str, Measurement], device: torch.device, quick: bool, folder: Path,
    trace: Path | None, say: Say,
) -> Iterator[tuple[str, dict[str, Any], Path]]:  # fmt: skip
    for name, measurement in measurements.items():
        figures = measurement(device, say, trace if name == "train" else None)
        path = history.append(folder, name, figures, device=device.type, quick=quick)
        yield name, figures, path
