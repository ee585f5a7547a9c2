"""What a trained operator has to beat: predictions that do not look at the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pipelines.runs.finished import FinishedRun
from pipelines.runs.interfaces import agreement

MEAN, CONSTANT = "mean of the training targets", "constant, the mean over points too"


@dataclass(frozen=True)
class Measured:
    """One value for each test sample.

    Args:
        errors: Relative L² error.
        iou, hausdorff: Intersection over union of the phases and Hausdorff distance of the
            interfaces; None where the target is not a two-phase coefficient.
    """

    errors: np.ndarray
    iou: np.ndarray | None = None
    hausdorff: np.ndarray | None = None


def compared(run: FinishedRun) -> dict[str, Measured]:
    """The model and the baselines on the test samples, by name.

    The baselines are the mean function of the training targets and, where a two-phase coefficient
    is the target, their mean over all points as well.
    """
    found = {
        f"model ({run.checkpoint})": run.prediction.double(),
        MEAN: run.mean.expand_as(run.pairs.u),
    }
    if run.target_phases is not None:
        found[CONSTANT] = run.mean.mean().expand_as(run.pairs.u)
    return {name: _measured(run, prediction) for name, prediction in found.items()}


def _measured(run: FinishedRun, prediction: torch.Tensor) -> Measured:
    truth, values = run.pairs.u.double(), run.target_phases
    errors = run.errors(prediction)[:, 0]
    if values is None:
        return Measured(errors)
    return Measured(errors, *agreement(prediction[..., 0].numpy(), truth[..., 0].numpy(), values))
