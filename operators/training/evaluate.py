"""Predictions for samples, and the error of each sample."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.data import Batch, Samples
from operators.norms import relative_error
from operators.posterior import FlowPosterior
from operators.training.step import AS_WRITTEN
from pdegen.domains import Box

_POINTS = 2**18  # points evaluated at a time, which bounds the memory on fine grids


def predictions(
    predictor: nn.Module, pairs: Samples, batch: int | None = None, **options: bool
) -> Float[Tensor, "samples *grid c"]:
    """Predictions for all samples in evaluation mode, computed in float32.

    Args:
        batch: Number of samples evaluated at a time.
        options: Further arguments of the predictor, such as `deviation`.
    """
    return torch.cat([p for p, _ in _predicted(predictor, pairs, batch, **options)])


def scores(
    predictor: nn.Module,
    pairs: Samples,
    batch: int | None = None,
    keep: Callable[[Tensor, Batch], object] = lambda p, batch: None,
) -> Float[Tensor, " samples"]:
    """Relative L² error ‖p - u‖/‖u‖ of every sample, in float64.

    Args:
        batch: Number of samples evaluated at a time.
        keep: Function (predictions, batch) that is called for each batch.
    """
    return errors(predictor, pairs, batch, keep=keep)[:, 0]


def selection_errors(predictor: nn.Module, pairs: Samples) -> Float[Tensor, " samples"]:
    """The errors whose mean selects an epoch: scores, or the losses of a `FlowPosterior`."""
    if isinstance(predictor, FlowPosterior):
        with AS_WRITTEN.products():
            return predictor.losses(pairs)
    return scores(predictor, pairs)


def errors(
    predictor: nn.Module,
    pairs: Samples,
    batch: int | None = None,
    *,
    order: int = 2,
    parts: int = 1,
    keep: Callable[[Tensor, Batch], object] = lambda p, batch: None,
) -> Float[Tensor, "samples parts"]:
    """Relative errors of every sample, in float64, for each of `parts` groups of channels.

    For `order` and `parts` see `relative_error`; for the other arguments see `scores`.
    """
    batches = []
    for p, part in _predicted(predictor, pairs, batch):
        keep(p, part)
        batches.append(errors_of(p, part, pairs, order, parts))
    return torch.cat(batches)


def errors_of(
    prediction: Tensor, batch: Batch, pairs: Samples, order: int = 2, parts: int = 1
) -> Float[Tensor, "batch parts"]:
    """Relative errors of predictions for a batch.

    An error is NaN if the target is 0, and infinite if the prediction is not finite.
    """
    weight = batch.weights(pairs.weight, pairs.y)
    weight = None if weight is None else weight.double()
    p, u = prediction.double(), batch.u.double()
    error = relative_error(p, u, weight, order, parts)
    if error.isfinite().all():
        return error
    defined = relative_error(torch.zeros_like(u), u, weight, order, parts).isfinite()
    return error.where(error.isfinite(), math.inf).where(defined, math.nan)


def check_defined(pairs: Samples) -> None:
    """Raise ValueError if all targets are 0, because no sample then has a relative error."""
    with closing(pairs.in_order(_batch(pairs))) as parts:
        for part in parts:
            if errors_of(torch.zeros_like(part.u), part, pairs).isfinite().any():
                return
    raise ValueError(f"the targets of all {len(pairs)} samples are 0: none has a relative error")


def _batch(pairs: Samples) -> int:
    """Default number of samples evaluated at a time."""
    return min(50, max(1, _POINTS // math.prod(pairs.domain.shape)))


def _predicted(
    predictor: nn.Module, pairs: Samples, batch: int | None, **options: bool
) -> Iterator[tuple[Tensor, Batch]]:
    """Pairs (predictions, batch) for all samples in order."""
    batch = batch or _batch(pairs)
    training = predictor.training
    predictor.eval()
    try:
        for part in pairs.in_order(batch):
            with torch.no_grad(), AS_WRITTEN.products():
                steps = part.u.shape[-1] // pairs.channels[1]
                several = {} if steps == 1 else {"steps": steps}
                weight = quadrature_of(predictor, part, pairs)
                p = predictor(part.a, *positions(part, pairs), **weight, **several, **options)
            yield p, part
    finally:
        predictor.train(training)


def positions(batch: Batch, pairs: Samples) -> tuple[Tensor | None, ...]:
    """The arguments x and y of an operator, and also its argument `mask` if a batch has padding.

    If the batch does not contain points, x and y are the points that all samples share.
    """
    pairs_of_points = zip((batch.x, batch.y), (pairs.x, pairs.y), strict=True)
    points = [common if local is None else local for local, common in pairs_of_points]
    return (*points, *(() if batch.mask is None else (batch.mask,)))


def quadrature_of(model: nn.Module, batch: Batch, pairs: Samples) -> dict[str, Tensor]:
    """The argument `weight` of an operator or predictor, as a dict of keyword arguments.

    If the batch does not contain weights, the argument is the tensor that all samples share. The
    dict is empty if the operator does not take weights. It is also empty for points of a box, which
    have equal weights.

    Raises:
        ValueError: If the operator takes weights, but the points of a mesh or cloud have none.
    """
    weight = pairs.weight if batch.weight is None else batch.weight
    takes_weights = getattr(getattr(model, "operator", model), "weights", False)
    if not takes_weights or (weight is None and isinstance(pairs.domain, Box)):
        return {}
    if weight is None:
        raise ValueError(
            "quadrature needs weights of the points, but these have none, or count alike"
        )
    return {"weight": weight}
