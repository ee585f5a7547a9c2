"""Errors of solvers."""

from __future__ import annotations


class SolveError(ArithmeticError):
    """The sample `row` of a batch could not be solved; `reason` states the fault and a remedy."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"sample {row} of the batch: {reason}")
        self.row = row
        self.reason = reason


class MissingSolverError(RuntimeError):
    """A solver is not installed or cannot run; the message says, in one line, what to do."""

    exit_status = 2


class WorkerError(RuntimeError):
    """The process of a solver died, did not answer in time, or could not answer."""

    exit_status = 1
