"""The splits of a store: disjoint ranges of its samples, by name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def splits_fault(splits: Mapping[str, Sequence[int]], samples: int) -> str | None:
    """Why ranges cannot be the splits of a store; None if they can.

    There is a split train. Each split has at least one sample of the store. Splits share no sample,
    because scores on training samples are meaningless. Samples may be in no split.

    Args:
        splits: First and one past the last sample of each split.
        samples: Number of samples in the store.

    >>> splits_fault({"train": (0, 6), "test": (7, 10)}, 10)
    >>> splits_fault({"train": (0, 6), "test": (5, 10)}, 10)
    'splits share no sample, got train [0, 6] and test [5, 10]'
    """
    if "train" not in splits:
        return f"splits has a range for train, got {', '.join(splits) or 'none'}"
    for name, (start, stop) in splits.items():
        if not 0 <= start < stop <= samples:
            return f"split {name} is a range of 0 to {samples}, got {[start, stop]}"
    ranges = sorted((start, stop, name) for name, (start, stop) in splits.items())
    for (start, stop, name), (next_start, next_stop, next_name) in itertools.pairwise(ranges):
        if next_start < stop:
            return (
                f"splits share no sample, got {name} {[start, stop]} and "
                f"{next_name} {[next_start, next_stop]}"
            )
    return None
