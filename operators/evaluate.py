"""One score for each sample."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.data import Pairs
from operators.norms import relative_l2

_POINTS = 2**18  # evaluated at a time: bounds the memory on fine grids


@torch.no_grad()
def predictions(
    predictor: nn.Module, pairs: Pairs, batch: int | None = None
) -> Float[Tensor, "samples *grid c"]:
    """The predictor's u for every sample, in evaluation mode, `batch` at a time."""
    batch = batch or min(50, max(1, _POINTS // pairs.x[..., 0].numel()))
    training = predictor.training
    predictor.eval()
    parts = [predictor(a, pairs.x, pairs.y) for a in pairs.a.split(batch)]
    predictor.train(training)
    return torch.cat(parts)


def scores(
    predictor: nn.Module, pairs: Pairs, batch: int | None = None
) -> Float[Tensor, " samples"]:
    """Relative L² error ‖p - u‖/‖u‖ of every sample, in float64."""
    return relative_l2(predictions(predictor, pairs, batch).double(), pairs.u.double())
