"""Trackers that follow a training; whatever they do, the training goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from operators.training.fit import Epoch
from pipelines.tracking.tracker import MetricRow, Session, TrackedRun, Tracker, rows_of

_log = logging.getLogger(__name__)


class Following:
    """Gives trackers the epochs that a checkpoint holds.

    A tracker that fails is left alone until the training ends, and then gets all that it lacks.

    Args:
        trackers: Where the epochs are to be seen.
        run: Of which training.
    """

    def __init__(self, trackers: Sequence[Tracker], run: TrackedRun) -> None:
        self._run, self._trackers = run, trackers
        self._sessions: dict[str, Session] = {}
        self._failed: set[str] = set()

    def __call__(self, history: Sequence[Epoch]) -> None:
        """Write the epochs of a checkpoint."""
        rows = rows_of(history)
        for tracker in self._trackers:
            if tracker.name not in self._failed:
                self._do(tracker, lambda session: session.write(rows))

    def end(
        self, history: Sequence[Epoch], status: str,
        scores: Sequence[MetricRow] = (), files: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        """Write what is missing, and say how the training has ended.

        Args:
            history: Of all checkpoints.
            status: FINISHED, KILLED (asked to stop) or FAILED.
            scores: Of the test split, at the epochs of their checkpoints.
            files: Of the run, that are to be kept.
        """

        def last(session: Session) -> None:
            session.write([*rows_of(history), *scores])
            session.keep(files)
            session.end(status)

        for tracker in self._trackers:
            self._do(tracker, last)

    def _do(self, tracker: Tracker, action: Callable[[Session], None]) -> None:
        name = tracker.name
        try:
            if name not in self._sessions:
                self._sessions[name] = tracker.open(self._run)
            action(self._sessions[name])
        except Exception as error:  # whatever a client raises must not end the training
            self._sessions.pop(name, None)
            again = "by --resume" if name in self._failed else "at the end, or by --resume"
            self._failed.add(name)
            said = " ".join(str(error).split())[:300] or type(error).__name__
            _log.warning("%s failed: %s; what is missing there is written %s", name, said, again)
