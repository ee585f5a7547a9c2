"""When a model has paid as the start of a classical inversion: solves saved, solves spent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import Cell
from pipelines.studies.row import Row
from pipelines.studies.runner import How


@dataclass(frozen=True)
class LearnedStart:
    """An inversion from the answer of a model, beside the same from nothing.

    One solve is that of the recipe, on its refined cells. Those of an inversion are of any size,
    most of them smaller: they are compared by their seconds.

    Args:
        name: Of the corrected model.
        level: Of the test samples.
        alone, started: The two.
        samples: Solved for the training, and to choose its epoch.
        training_seconds: Of the training.

    >>> alone = Row(solves=300, inference_seconds=0.5, solve_seconds=0.1)
    >>> started = Row(solves=100, inference_seconds=0.3, solve_seconds=0.1)
    >>> start = LearnedStart("corrected", 0.1, alone, started, samples=90, training_seconds=1.0)
    >>> start.saved_solves, round(start.saved, 9), start.spent, round(start.inversions, 9)
    (200.0, 2.0, 100.0, 50.0)
    """

    name: str
    level: float
    alone: Row
    started: Row
    samples: int
    training_seconds: float

    @property
    def saved_solves(self) -> float:
        """Of an inversion, whatever their size."""
        return self.alone.solves - self.started.solves

    @property
    def saved(self) -> float:
        """Seconds saved of an inversion, in solves of the recipe."""
        seconds = self.alone.inference_seconds - self.started.inference_seconds
        return seconds / self.started.solve_seconds

    @property
    def spent(self) -> float:
        """Samples solved, and the seconds of the training in solves of the recipe."""
        return self.samples + self.training_seconds / self.started.solve_seconds

    @property
    def inversions(self) -> float:
        """After how many inversions the start has paid; infinite where it never does."""
        return self.spent / self.saved if self.saved > 0 else math.inf


def learned_starts(study: NoiseStudy, how: How) -> list[LearnedStart]:
    """Of every corrected model of seed 0, at every test level."""
    found = list[LearnedStart]()
    for model in study.corrected:
        training = study.training(replace(model, corrected=False))
        seconds = sum(epoch.seconds for epoch in training.finished() or ())
        for level in study.test_levels:
            assert study.inversions.corrector is not None
            alone, started = Cell(study.inversions.corrector, at=level), replace(model, at=level)
            one, other = (study.row(part, how) for part in (alone, started))
            found.append(LearnedStart(model.name, level, one, other, study.solved, seconds))
    return [start for start in found if start.started.solve_seconds > 0]
