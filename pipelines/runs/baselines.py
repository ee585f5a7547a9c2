"""What a trained operator has to beat: predictions that do not learn."""

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

MEAN, CONSTANT = "mean of the training targets", "constant, the mean over points too"
IDENTITY = "identity, the last state that is known"
TRIVIAL = {"mean": MEAN, "identity": IDENTITY}


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

    The baselines are the mean function of the training targets; where the inputs are a state of the
    targets, that state; where a two-phase coefficient is the target, its mean over all points too.
    """
    found = {f"model ({run.checkpoint})": run.prediction.double(), **trivial_predictions(run)}
    if run.target_phases is not None:
        found[CONSTANT] = run.mean.mean().expand_as(run.pairs.u)
    return {name: _measured(run, prediction) for name, prediction in found.items()}


def trivial_predictions(run: FinishedRun) -> dict[str, Tensor]:
    """What the trivial predictors say of the test samples."""
    predictors = trivial(run.experiment, run.store, run.pairs, run.mean)
    return {TRIVIAL[name]: predictor(run.pairs.a) for name, predictor in predictors.items()}


def trivial(
    experiment: Experiment, store: Store, pairs: Samples, mean: Float[Tensor, "*grid c"]
) -> dict[str, Trivial]:
    """Predictors that do not learn: "mean", and "identity" where the inputs are a state."""
    found = {"mean": Trivial(lambda a: mean.to(a.device).expand(len(a), *mean.shape))}
    times = len(dict.fromkeys(channel.time for channel in pairs.target_channels)) or 1
    own, task, first = len(pairs.target_channels) // times, experiment.learned, pairs.first()
    if isinstance(task, Map) and not _are_states(experiment, store):
        return found
    told = experiment.noise is not None and experiment.noise.levels is not None

    def held(a: Tensor) -> Tensor | None:
        return task.held(a[..., : a.shape[-1] - told], own, times)  # the last is the noise level

    last = held(first.a)
    if last is not None and last.shape == first.u.shape and pairs.y is None and first.y is None:
        found["identity"] = Trivial(lambda a: _some(held(a)))
    return found


class Trivial(nn.Module):
    """A prediction that has no weights: a -> u."""

    def __init__(self, predict: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.predict = predict

    def forward(self, a: Tensor, *places: Tensor | None, steps: int = 1) -> Tensor:
        return self.predict(a)


def _are_states(experiment: Experiment, store: Store) -> bool:
    """Whether a map goes from a function to the same one at later times."""
    input, target = experiment.variables
    if not isinstance(input, str) or not isinstance(target, str):
        return False
    before, after = store.arrays[input], store.arrays[target]
    return "time" in after.metadata.coordinates and "time" not in before.dims


def _some(found: Tensor | None) -> Tensor:
    assert found is not None
    return found


def _measured(run: FinishedRun, prediction: torch.Tensor) -> Measured:
    truth, values = run.pairs.u.double(), run.target_phases
    errors = run.errors(prediction)[:, 0]
    if values is None:
        return Measured(errors)
    return Measured(errors, *agreement(prediction[..., 0].numpy(), truth[..., 0].numpy(), values))


_SOLVED = "u"  # what `error` and `label_error` of a store are of


def label_error(source: Source) -> float | None:
    """Mean relative L² error of the labels: over the test split where the solver states one for
    each sample, else over the samples that were compared to a reference.

    None where the store states none, as of exact solutions, or what is learned is not the solution.
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
