"""Residuals of predictions in the equation of their store: a loss, a score and a correction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from operators.data import Map, Samples
from operators.data.opening import names_of
from operators.training.fit import Settings
from operators.training.losses import FlowMatching
from operators.training.step import Loss
from pdegen.equations.base import Problem
from pdegen.recipe import Recipe
from pdegen.schema import SchemaError
from pipelines.runs.data import Source

_FIFTH = 0.2  # of the steps: the residual of weights at random is far larger than their error

_Values = Float[Tensor, "batch *grid c"]


@dataclass(frozen=True)
class EquationResidual:
    """The relative residual of predictions in the scheme of the labels (`Problem.residual`)."""

    problem: Problem  # of the store
    names: tuple[str, ...]  # of the input variables, in the order of the channels

    @classmethod
    def of(cls, source: Source, pairs: Samples) -> EquationResidual:
        """The residual for predictions of the targets of `pairs`.

        Raises SchemaError, with the reason, if these predictions have no residual.
        """
        store, noise, used = source.store, source.noise, pairs.source
        if not store.metadata.recipe.problem:
            raise SchemaError(f"{store.url}: imported data have no residual")
        problem = Recipe.parse(store.raw_attributes["recipe"], store.url).problem
        inputs, targets = (tuple(names_of(names)) for names in source.experiment.variables)
        roles = {v.name: v.attributes.get("role") for v in problem.variables()}
        lacking = {n for n, role in roles.items() if role == "input"} - {*inputs}
        found, first, fault = cls(problem, inputs), pairs.first(), ""
        if not isinstance(source.task, Map):
            fault = "is for the task map"
        elif noise is not None and noise.on_inputs:
            fault = "needs inputs without noise"
        elif {used["resolution"], used["target_resolution"]} - {None} != {problem.resolution}:
            fault = f"needs all points of the store, resolution {problem.resolution}"
        elif (
            lacking
            or [roles[name] for name in targets] != ["target"]
            or found._of(first.a, first.u) is None
        ):
            fault = f"of {', '.join(targets)} from {', '.join(inputs)} does not exist"
        if fault:
            raise SchemaError(f"{store.url}: the residual of {problem.equation_name} {fault}")
        return found

    @classmethod
    def if_any(cls, source: Source, pairs: Samples) -> EquationResidual | None:
        """The residual for predictions of the targets of `pairs`; None if they have none."""
        try:
            return cls.of(source, pairs)
        except SchemaError:
            return None

    def _by_name(self, a: _Values) -> dict[str, Tensor]:
        # channels of parameters, which come last, have no names
        return dict(zip(self.names, a.unbind(-1), strict=False))

    def _of(self, a: _Values, prediction: _Values) -> Tensor | None:
        return self.problem.residual(self._by_name(a), prediction[..., 0])

    def __call__(self, a: _Values, prediction: _Values) -> Float[Tensor, " batch"]:
        """The residual of each sample, in float64."""
        residual = self._of(a, prediction)
        assert residual is not None
        return residual

    def corrected(self, a: _Values, prediction: _Values | None, steps: int) -> _Values:
        """Predictions after steps of the solver's conjugate gradients; None starts at the walls'
        value, without a model."""
        system = self.problem.system(self._by_name(a))
        assert system is not None
        start = prediction if prediction is not None else torch.full_like(a[..., :1], system.walls)
        return system.corrected(start[..., 0], steps)[..., None].to(start.dtype)


@dataclass(frozen=True)
class Correction:
    """Corrects predictions by steps of the solver, and keeps their residuals."""

    residual: EquationResidual
    steps: int
    # of each batch: before, after, and after as many steps without a model
    residuals: list[Float[Tensor, "batch 3"]] = field(default_factory=list[Tensor])

    def __call__(self, a: _Values, prediction: _Values) -> _Values:
        corrected, alone = (self.residual.corrected(a, p, self.steps) for p in (prediction, None))
        three = [self.residual(a, p) for p in (prediction, corrected, alone)]
        self.residuals.append(torch.stack(three, dim=1).cpu())
        return corrected

    def added(self, dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
        """Add the residuals to a dataset of corrected predictions. Returns the dataset and a line
        that summarises them."""
        residuals, name = torch.cat(self.residuals), next(iter(dataset.data_vars))
        before, after, alone = (f"{mean:.3e}" for mean in residuals.mean(dim=0).tolist())
        values, long_name = residuals[:, 1].numpy(), f"relative residual of {name}, as written"
        of_samples = {f"{name}_residual": ("sample", values, {"long_name": long_name})}
        return dataset.assign(of_samples).assign_attrs(corrected_steps=self.steps), (
            f"mean relative residual of {name}: {before}, after {self.steps} steps of the solver "
            f"{after}; after as many steps without a model {alone}"
        )


@dataclass(frozen=True)
class WithResidual:
    """The loss of the first samples of a batch, plus the mean residual of all, times a weight.

    The weight is 0 in the first fifth of the steps, and rises linearly in the second fifth.
    """

    loss: Loss  # of samples with labels
    residual: EquationResidual
    weight: float  # from then on
    labelled: int  # number of samples of a batch that have labels
    present: Tensor  # the weight in the present step; a CUDA graph reads it from memory

    def at(self, share: float) -> None:
        """Set the weight of the next step, after a share of the steps of the training."""
        self.present.fill_(self.weight * min(1.0, max(0.0, share / _FIFTH - 1)))

    def __call__(self, prediction: _Values, target: _Values, a: _Values) -> Tensor:
        first = slice(self.labelled)
        residual = self.residual(a, prediction).mean().to(prediction.dtype)
        return self.loss(prediction[first], target[first], a[first]) + self.present * residual


def with_residual(
    source: Source, pairs: Samples, settings: Settings, processes: int,
    on_labels: Callable[[str], None],
) -> tuple[Settings, Samples | None]:  # fmt: skip
    """Settings with the residual in the loss, and the samples without labels; unchanged settings
    and None if the experiment declares no residual.

    Args:
        pairs: The samples with labels.
        processes: Number of processes that share a batch.
        on_labels: Called with a line that states the residual of the labels.

    Raises:
        SchemaError: If the predictions have no residual, if that of the labels exceeds the aim, or
            if there are too few samples without labels.
    """
    term = source.experiment.training.residual
    if term is None:
        return settings, None
    if isinstance(settings.loss, FlowMatching):
        raise SchemaError("training.residual is for losses of predictions, not for the loss flow")
    residual = EquationResidual.of(source, pairs)
    of_labels = torch.cat([residual(part.a, part.u) for part in pairs.in_order(64)])
    mean = float(of_labels.mean())
    on_labels(f"residual of the labels: mean {mean:.3e}, largest {float(of_labels.max()):.3e}")
    if not mean <= term.aim:
        raise SchemaError(
            f"training.residual: the labels of {source.url} have the mean residual {mean:.3g}, at "
            f"most training.residual.aim = {term.aim:g} is allowed: leave the residual out, or "
            "refine the data"
        )
    present, labelled = torch.zeros((), device=pairs.device), settings.batch // processes
    loss = WithResidual(settings.loss, residual, term.weight, labelled, present)
    return replace(settings, loss=loss), source.unlabelled(pairs.device)
