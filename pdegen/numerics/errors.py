"""How a solver says that it cannot solve a sample, or anything."""

from __future__ import annotations


class SolveError(ArithmeticError):
    """The sample `row` of a batch could not be solved; `reason` says what went wrong and what to
    do."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"sample {row} of the batch: {reason}")
        self.row = row
        self.reason = reason


class MissingSolverError(RuntimeError):
    """A solver that is asked for is not installed; one line says how to install it."""

    exit_status = 2


class WorkerError(RuntimeError):
    """The process of a solver died, kept silent for too long, or could not answer."""

    exit_status = 1
