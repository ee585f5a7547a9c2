"""What is said by hand of a file; it goes before what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ImportOptions:
    """How to read files that are not known, or otherwise than is known."""

    # input, target: names of the arrays in the file; one name for both takes the first frame of a
    # trajectory as input and the others as target
    input: str | None = None
    target: str | None = None
    # what the points are: "periodic", "cell" or "nodal"; or a word for each axis, as in
    # "periodic,nodal"
    grid: str | None = None
    # sizes of train (from the front), validation (before test) and test (from the end)
    splits: Mapping[str, int] | None = None
    # whether the axis of samples is the "first" or the "last"
    samples: Literal["first", "last"] = "first"
    # whether the axis of times is the "first" (after the samples) or the "last"
    times: Literal["first", "last"] | None = None
    # input_axes, target_axes: names of all axes, of "sample", "time", "channel", "x", "y", "z", in
    # place of `samples` and `times`; also where there are channels
    input_axes: tuple[str, ...] | None = None
    target_axes: tuple[str, ...] | None = None
    boundary: float | None = None  # the value that the target is known to have on the boundary
