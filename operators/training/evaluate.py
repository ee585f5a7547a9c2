"""One score for each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.data import Samples
from operators.norms import relative_l2
from operators.training.step import AS_WRITTEN

_POINTS = 2**18  # evaluated at a time: bounds the memory on fine grids


def predictions(
    predictor: nn.Module, pairs: Samples, batch: int | None = None
) -> Float[Tensor, "samples *grid c"]:
    """The predictor's u for every sample, in evaluation mode and float32, `batch` at a time."""
    return torch.cat([p for p, _ in _predicted(predictor, pairs, batch)])


def scores(
    predictor: nn.Module,
    pairs: Samples,
    batch: int | None = None,
    keep: Callable[[Tensor], object] = lambda p: None,
) -> Float[Tensor, " samples"]:
    """Relative L² error ‖p - u‖/‖u‖ of every sample, in float64; `keep` is given each batch of
    predictions."""
    found = []
    for p, u in _predicted(predictor, pairs, batch):
        keep(p)
        found.append(relative_l2(p.double(), u.double()))
    return torch.cat(found)


def _predicted(
    predictor: nn.Module, pairs: Samples, batch: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Predictions and targets in order."""
    batch = batch or min(50, max(1, _POINTS // pairs.x[..., 0].numel()))
    training = predictor.training
    predictor.eval()
    try:
        for part in pairs.parts(batch):
            with torch.no_grad(), AS_WRITTEN.products():
                p = predictor(part.a, pairs.x, pairs.y)
            yield p, part.u
    finally:
        predictor.train(training)
