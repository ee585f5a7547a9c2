"""What is said by hand of a file; it goes before what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pdegen.foreign.plan import GridKind


@dataclass(frozen=True)
class Declaration:
    """How to read files that are not known, or otherwise than is known.

    Args:
        input, target: Names of the arrays in the file; one name for both takes the first frame of
            a trajectory as input and the others as target.
        grid: What the points of all axes are.
        splits: Sizes of train (from the front), validation (before test) and test (from the end).
        samples: Whether the axis of samples is the "first" or the "last".
        times: Whether the axis of times is the "first" (after the samples) or the "last".
    """

    input: str | None = None
    target: str | None = None
    grid: GridKind | None = None
    splits: Mapping[str, int] | None = None
    samples: Literal["first", "last"] = "first"
    times: Literal["first", "last"] | None = None
