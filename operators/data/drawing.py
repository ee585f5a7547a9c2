"""Draws of samples from candidates with known probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples that were drawn from candidates.

    Args:
        numbers: Numbers of the samples, in the order of their use.
        probabilities: Probability π of each sample that it is drawn. If n of M candidates are
            drawn, means over the drawn samples with the weights n/(M π) are unbiased estimates of
            means over all candidates.
    """

    numbers: Int[Tensor, " n"]
    probabilities: Float[Tensor, " n"]


def inclusion(
    scores: Float[Tensor, " candidates"], count: int, uniform: float
) -> Float[Tensor, " candidates"]:
    """Probabilities π = n (λ/M + (1 - λ) s/Σs) that candidates are drawn, at most 1.

    The sum of the probabilities is n. If some would exceed 1, these are 1, and the others are
    larger by a common factor.

    Args:
        scores: Scores s >= 0 of the M candidates, in float64. Equal if all are 0.
        count: Number n of samples to draw.
        uniform: Share λ > 0 of the probability that all candidates have in common.

    >>> inclusion(torch.tensor([1.0, 1.0, 2.0, 12.0]), 2, 0.5)
    tensor([0.3125, 0.3125, 0.3750, 1.0000])
    """
    total = scores.sum()
    shares = scores / total if total > 0 else torch.full_like(scores, 1 / len(scores))
    shares = uniform / len(scores) + (1 - uniform) * shares
    certain = torch.zeros(len(scores), dtype=torch.bool)
    while True:
        rest = (count - certain.sum()) * shares / shares[~certain].sum()
        if not bool((excess := ~certain & (rest > 1)).any()):
            return rest.where(~certain, 1.0)
        certain |= excess


def systematic(
    probabilities: Float[Tensor, " candidates"], random: torch.Generator
) -> Int[Tensor, " n"]:
    """Indices of candidates, each drawn with its inclusion probability, in random order.

    No candidate is drawn twice. The sum of the probabilities is the number of drawn candidates.

    References: W. G. Madow, On the theory of systematic sampling II, 1949.
    """
    count = round(float(probabilities.sum()))
    order = torch.randperm(len(probabilities), generator=random)
    ends = probabilities[order].double().cumsum(0)
    ends *= count / ends[-1]
    start = torch.rand((), generator=random, dtype=torch.float64)
    rows = order[torch.searchsorted(ends, start + torch.arange(count), right=True)]
    return rows[torch.randperm(count, generator=random)]
