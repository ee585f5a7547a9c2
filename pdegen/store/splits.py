"""The splits of a store, which are named, disjoint ranges of its samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def splits_fault(splits: Mapping[str, Sequence[int]], samples: int) -> str | None:
    """The reason why some ranges cannot be the splits of a store. None if they can be.

    There must be a split named train. Each split must contain at least one sample. Splits must not
    overlap, because scores on training samples are meaningless. Some samples may be in no split.

    Args:
        splits: Range (start, stop) of the samples in each split, by name.
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
