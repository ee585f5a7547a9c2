"""TensorBoard: event files in the folder of a run."""

from __future__ import annotations

import importlib
import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.tracking.tracker import MetricRow, Session, TrackedRun, Tracker, TrackerError

FOLDER = "tensorboard"
_NAME = "events.out.tfevents.{:010d}.pdegen"  # readers sort by name


class TensorBoardTracker(Tracker):
    """Rows -> RUN/tensorboard. TensorBoard has float32."""

    name = "tensorboard"

    def check(self) -> None:
        try:
            import tensorboard  # noqa: F401 (what follows needs it)
        except ImportError:
            raise TrackerError(
                "--track tensorboard needs TensorBoard: pip install 'pdegen-operators[track]'"
            ) from None

    def open(self, run: TrackedRun) -> Session:
        return _Files(run.folder / FOLDER)


class _Files(Session):
    """Event files are only appended to, and a kill may leave a record cut off, at which readers go
    on to the next file: each session writes a file of its own. A row is one record with a checksum,
    so it is there as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        files = event_files(folder)
        self._there = {place for path in files for place in _places(path)}
        numbers = [int(path.name.split(".")[3]) for path in files]
        self._path = folder / _NAME.format(max(numbers, default=0) + 1)

    def write(self, rows: Sequence[MetricRow]) -> None:
        new = [(step, self._absent(step, values)) for step, values in rows]
        events = [_event(step, values) for step, values in new if values]
        if not events:
            return
        first = (
            [] if self._path.exists() else [_messages("event").Event(file_version="brain.Event:2")]
        )
        with self._path.open("ab") as file:
            for event in (*first, *events):
                file.write(_record(event))
            file.flush()
            os.fsync(file.fileno())
        self._there |= {(name, step) for step, values in new for name in values}

    def _absent(self, step: int, values: Mapping[str, float]) -> dict[str, float]:
        return {name: v for name, v in values.items() if (name, step) not in self._there}

    def end(self, status: str) -> None:
        """TensorBoard does not say it."""

    def keep(self, files: Sequence[Path]) -> None:
        """TensorBoard has no place for files; the folder of the run has them."""


def event_files(folder: Path) -> list[Path]:
    """The event files of a training, in the order in which they are read."""
    return sorted(folder.glob(_NAME.format(0).replace("0" * 10, "[0-9]" * 10)))


def _places(path: Path) -> Iterator[tuple[str, int]]:
    """Names and steps of the values of an event file, up to a record that is cut off."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            yield value.tag, event.step


def _event(step: int, values: Mapping[str, float]) -> Any:
    summary = _messages("summary").Summary
    scalars = [summary.Value(tag=name, simple_value=value) for name, value in values.items()]
    return _messages("event").Event(
        wall_time=time.time(), step=step, summary=summary(value=scalars)
    )


def _messages(name: str) -> Any:
    """A module of TensorBoard whose classes exist only when it is imported."""
    return importlib.import_module(f"tensorboard.compat.proto.{name}_pb2")


def _record(event: Any) -> bytes:
    """An event as a record of its file, with checksums."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    RecordWriter(file).write(event.SerializeToString())
    return file.getvalue()
