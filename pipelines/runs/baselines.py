"""Baselines for a trained operator: the errors of trivial predictors and of the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.data import Map, Samples
from pdegen.store.reading import Store, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.runs.data import Source
from pipelines.runs.finished import FinishedRun
from pipelines.runs.interfaces import agreement

MEAN, CONSTANT = "mean of the training targets", "constant (mean over points too)"
IDENTITY = "identity (the last known state)"
TRIVIAL = {"mean": MEAN, "identity": IDENTITY}


@dataclass(frozen=True)
class Measured:
    """Errors of a method on the test samples.

    Args:
        errors: Relative L² error of each sample.
        iou, hausdorff: Intersection over union of the phases and Hausdorff distance of the
            interfaces for each sample. None if the target is not a two-phase coefficient.
    """

    errors: np.ndarray
    iou: np.ndarray | None = None
    hausdorff: np.ndarray | None = None


def compare_baselines(run: FinishedRun) -> dict[str, Measured]:
    """Errors of the model and of the baselines on the test samples, keyed by name.

    One baseline predicts the mean function of the training targets. If the targets are later
    states, another predicts the input state. If the target is a two-phase coefficient, a third
    predicts a constant: the mean of the training targets over samples and points.
    """
    predictions = {f"model ({run.checkpoint})": run.prediction.double(), **trivial_predictions(run)}
    if run.target_phases is not None:
        predictions[CONSTANT] = run.mean.mean().expand_as(run.pairs.u)
    return {name: _measured(run, prediction) for name, prediction in predictions.items()}


def trivial_predictions(run: FinishedRun) -> dict[str, Tensor]:
    """Predictions of the trivial predictors for the test samples, keyed by name."""
    predictors = trivial(run.experiment, run.store, run.pairs, run.mean)
    return {TRIVIAL[name]: predictor(run.pairs.a) for name, predictor in predictors.items()}


def trivial(
    experiment: Experiment, store: Store, pairs: Samples, mean: Float[Tensor, "*grid c"]
) -> dict[str, Trivial]:
    """The trivial predictors that apply to the data, keyed by name.

    "mean" predicts the mean training target. "identity" predicts the last state in the input. It
    applies only if that state has the shape of the target.
    """
    predictors = {"mean": Trivial(lambda a: mean.to(a.device).expand(len(a), *mean.shape))}
    times = len(dict.fromkeys(channel.time for channel in pairs.target_channels)) or 1
    components, task = len(pairs.target_channels) // times, experiment.learned
    first = pairs.first()
    if isinstance(task, Map) and not _are_states(experiment, store):
        return predictors
    has_level = experiment.noise is not None and experiment.noise.levels is not None

    def last_state(a: Tensor) -> Tensor | None:
        # the last channel is the noise level
        return task.persistence(a[..., : a.shape[-1] - has_level], components, times)

    last = last_state(first.a)
    if last is not None and last.shape == first.u.shape and pairs.y is None and first.y is None:
        predictors["identity"] = Trivial(lambda a: _present(last_state(a)))
    return predictors


class Trivial(nn.Module):
    """A predictor without weights, which maps inputs a to targets u."""

    def __init__(self, predict: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.predict = predict

    def forward(self, a: Tensor, *positions: Tensor | None, steps: int = 1) -> Tensor:
        return self.predict(a)


def _are_states(experiment: Experiment, store: Store) -> bool:
    """Whether the input is a single state and the target has later states."""
    input, target = experiment.variables
    if not isinstance(input, str) or not isinstance(target, str):
        return False
    before, after = store.arrays[input], store.arrays[target]
    return "time" in after.metadata.coordinates and "time" not in before.dims


def _present(state: Tensor | None) -> Tensor:
    assert state is not None
    return state


def _measured(run: FinishedRun, prediction: torch.Tensor) -> Measured:
    """Errors of predictions on the test samples."""
    truth, values = run.pairs.u.double(), run.target_phases
    errors = run.errors(prediction)[:, 0]
    if values is None:
        return Measured(errors)
    return Measured(errors, *agreement(prediction[..., 0].numpy(), truth[..., 0].numpy(), values))


_SOLVED = "u"  # the variable whose errors `error` and `label_error` of a store are


def label_error(source: Source) -> float | None:
    """Mean relative L² error of the labels.

    If the store has the solver's error of each sample, the mean is over the test split. Otherwise
    it is over the samples that were compared with a reference solution. Returns None if the store
    has no errors (for example of exact solutions), or if the target is not the solution u.
    """
    names, store = source.experiment.variables[1], open_sealed(source.url)
    if _SOLVED not in ((names,) if isinstance(names, str) else names):
        return None
    if "error" in store.variables:
        test = range(*store.metadata.splits["test"])
        values = np.asarray(store.values("error", test))
        values = values[np.isfinite(values)]
        return float(np.mean(values)) if len(values) else None
    measured = store.metadata.label_error
    return float(np.mean(measured.relative_l2)) if measured else None
