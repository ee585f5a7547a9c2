"""Relative errors that exist: nan, of a target that is 0, is left out of all means; infinite
counts."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor


def defined(errors: Iterable[float]) -> list[float]:
    """The errors that exist.

    >>> defined([0.1, float("nan"), float("inf")])
    [0.1, inf]
    """
    return [float(error) for error in errors if not math.isnan(error)]


def over_defined(statistic: Callable[[list[float]], float], errors: Iterable[float]) -> float:
    """A statistic of the errors that exist; nan where none does.

    >>> over_defined(max, [0.1, float("nan"), 0.3]), over_defined(max, [float("nan")])
    (0.3, nan)
    """
    kept = defined(errors)
    return float(statistic(kept)) if kept else math.nan


def by_column(
    statistic: Callable[[list[float]], float], errors: Float[np.ndarray, "samples columns"]
) -> Float[np.ndarray, " columns"]:
    """`over_defined` of each column, such as that of a time."""
    return np.array([over_defined(statistic, column) for column in errors.T])


def mean_defined(errors: Float[Tensor, " samples"]) -> float:
    """Mean of the errors that exist; nan where none does."""
    return float(errors[~errors.isnan()].mean())


def undefined(samples: Sequence[int], errors: Sequence[float]) -> list[int]:
    """The numbers of the samples whose error does not exist.

    >>> undefined([20, 21, 22], [0.1, float("nan"), 0.3])
    [21]
    """
    return [int(n) for n, error in zip(samples, errors, strict=True) if math.isnan(error)]


def rising(errors: Iterable[float]) -> list[int]:
    """Places of the errors that exist, from the smallest to the largest.

    >>> rising([0.3, float("nan"), 0.1])
    [2, 0]
    """
    values = np.asarray(list(errors), float)
    order = np.argsort(values, kind="stable").tolist()  # nan comes last
    return order[: len(defined(values))]


def left_out(samples: Sequence[int]) -> str:
    """A sentence on samples that have no relative error; empty where there are none.

    >>> left_out([21])
    'Sample 21 has no relative error, as its target is 0; means leave it out.'
    >>> left_out(range(8))
    '8 samples have no relative error, as their targets are 0; means leave them out: 0, 1, 2, ...'
    """
    if not samples:
        return ""
    if len(samples) == 1:
        return f"Sample {samples[0]} has no relative error, as its target is 0; means leave it out."
    few = ", ".join(map(str, samples[:3])) + (", ..." if len(samples) > 3 else "")
    return (
        f"{len(samples)} samples have no relative error, as their targets are 0; means leave them "
        f"out: {few}"
    )
