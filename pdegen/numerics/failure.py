"""How a solver says that it cannot solve a sample."""

from __future__ import annotations


class SolveError(ArithmeticError):
    """A sample could not be solved.

    Attributes:
        row: Its place in the batch.
        reason: What went wrong and what to do, in words.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"sample {row} of the batch: {reason}")
        self.row = row
        self.reason = reason
