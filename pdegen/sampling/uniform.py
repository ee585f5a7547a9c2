"""Uniform random numbers in declared ranges; sample i is a function of (seed, i) alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator, Field

from pdegen.sampling.gaussian import NormalStream
from pdegen.schema import Positive


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    """[low, high] with low <= high."""  # `pdegen keys` prints this line
    if not pair[0] <= pair[1]:
        raise ValueError(f"a range is two numbers low <= high, got {list(pair)}")
    return pair


Finite = Annotated[float, Field(allow_inf_nan=False)]
Range = Annotated[tuple[Finite, Finite], Field(strict=False), AfterValidator(_rising)]
PositiveRange = Annotated[tuple[Positive, Positive], Field(strict=False), AfterValidator(_rising)]


def uniforms(seed: int, samples: Sequence[int], count: int) -> Float[np.ndarray, "batch count"]:
    """Independent uniform variates on (0, 1) of the samples with the given numbers.

    >>> uniforms(0, [3, 7], 4)[1:, :2] == uniforms(0, [7], 2)
    array([[ True,  True]])
    """
    return NormalStream(seed).uniforms_of(samples, count)


def placed(
    z: Float[np.ndarray, "batch count"], ranges: Iterable[tuple[float, float]]
) -> Float[np.ndarray, "count batch"]:
    """Map uniform variates z to the ranges: low + (high - low) z. The result has a row per range.

    >>> placed(np.array([[0.5, 0.0]]), [(1.0, 2.0), (3.0, 4.0)]).tolist()
    [[1.5], [3.0]]
    """
    low, high = np.array(list(ranges)).T
    return (low + (high - low) * z).T
