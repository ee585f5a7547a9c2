"""The parts of a noise study: a method, at a noise level."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.studies.levels import Trained, word

CONSTANT = "constant"


@dataclass(frozen=True)
class Cell:
    """A part of a noise study.

    Args:
        method: A classical method, or the level that a model was trained at, or the range of
            levels of one that is told them.
        seed: Of the training.
        at: The noise level of the test samples; None stands for the training itself.
        told: What a classical method, or such a model, is told of the level, as a multiple of it.
        corrected: Whether steps of a classical method follow a model's answer.
    """

    method: str | Trained
    seed: int = 0
    at: float | None = None
    told: float = 1.0
    corrected: bool = False

    @property
    def name(self) -> str:
        """Of the method, for people."""
        name = self.method if isinstance(self.method, str) else f"trained at {word(self.method)}"
        name += ", corrected" if self.corrected else ""
        return name if self.told == 1 else f"{name}, told {self.told:.2g} times it"
