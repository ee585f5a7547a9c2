"""When a model has paid as the start of a classical inversion."""

from __future__ import annotations

import math
from dataclasses import replace

from pipelines.studies.noise import NoiseStudy
from pipelines.studies.noise_cells import Cell
from pipelines.studies.runner import How


def pays_after(study: NoiseStudy, part: Cell, how: How) -> float:
    """Number of inversions after which a corrected model has paid; infinite where it never does.

    N = (T_training + samples t_solve) / (t_alone - t_started)

    with the seconds t_solve of the recipe's solver for one of the samples that the training and the
    choice of its epoch need, and those of an inversion alone and from the model's answer, that
    answer included.

    Args:
        study: A finished one.
        part: The corrected model at a test level.
        how: Reads the rows, and makes those that are damaged.
    """
    assert study.inversions.corrector is not None
    alone = study.row(Cell(study.inversions.corrector, at=part.at), how)
    started = study.row(part, how)
    training = study.training(replace(part, corrected=False))
    spent = sum(epoch.seconds for epoch in training.finished() or ())
    spent += study.solved * started.solve_seconds
    saved = alone.inference_seconds - started.inference_seconds
    return spent / saved if saved > 0 else math.inf
