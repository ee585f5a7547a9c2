"""Options of an import, which describe the arrays of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ImportOptions:
    """The user's description of files that pdegen does not recognise. For recognised files, it
    replaces some of the defaults."""

    # names of the arrays in the file. The same name for both takes the first frame of a trajectory
    # as input and the others as target
    input: str | None = None
    target: str | None = None
    # grid: "periodic", "cell" or "nodal"; or one of these for each axis, as in "periodic,nodal"
    grid: str | None = None
    # number of samples of train (the first), validation (before test) and test (the last)
    splits: Mapping[str, int] | None = None
    # whether the axis of samples is the "first" or the "last"
    samples: Literal["first", "last"] = "first"
    # whether the axis of times is the "first" (after the samples) or the "last"
    times: Literal["first", "last"] | None = None
    # names of all axes, from "sample", "time", "channel", "x", "y", "z", in place of `samples` and
    # `times`; required for channels
    input_axes: tuple[str, ...] | None = None
    target_axes: tuple[str, ...] | None = None
    boundary: float | None = None  # known value of the target on the boundary
