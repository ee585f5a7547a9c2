"""One score for each sample."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.data import Pairs
from operators.norms import relative_l2


@torch.no_grad()
def predictions(
    predictor: nn.Module, pairs: Pairs, batch: int = 50
) -> Float[Tensor, "samples *grid c"]:
    """The predictor's u for every sample, in evaluation mode."""
    training = predictor.training
    predictor.eval()
    parts = [predictor(a, pairs.x) for a in pairs.a.split(batch)]
    predictor.train(training)
    return torch.cat(parts)


def scores(predictor: nn.Module, pairs: Pairs, batch: int = 50) -> Float[Tensor, " samples"]:
    """Relative L² error ‖p - u‖/‖u‖ of every sample, in float64."""
    return relative_l2(predictions(predictor, pairs, batch).double(), pairs.u.double())
