"""Times and time steps in the declarations of evolution equations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from pdegen.numerics.device import Array
from pdegen.schema import NonNegative, Positive, brief

_MOST_STEPS = 10**7  # of a trajectory with the largest step: an hour on the smallest grids


def _increasing(times: tuple[float, ...]) -> tuple[float, ...]:
    """In increasing order."""  # `pdegen keys` prints this line
    if not all(a < b for a, b in pairwise(times)):
        raise ValueError(f"must increase, got {brief(list(times))}")
    return times


_List = (Field(min_length=1, strict=False), AfterValidator(_increasing))
Times = Annotated[tuple[Positive, ...], *_List]
TimesFromStart = Annotated[tuple[NonNegative, ...], *_List]


def checked_times(t: float | Sequence[float]) -> list[float]:
    """One or several times as a list.

    Raises ValueError if a time is negative or not finite, or if the times decrease.
    """
    times = [float(s) for s in np.atleast_1d(t)]
    if not all(np.isfinite(times)) or any(s < 0 for s in times) or times != sorted(times):
        raise ValueError(f"times must be >= 0 and must not decrease, got {t}")
    return times


def squeeze_single_time(u: Array) -> Array:
    """Values of shape (batch, times, ...), without the axis of times if there is one time only."""
    return u[:, 0] if u.shape[1] == 1 else u


def check_divides(resolution: int, solving: int) -> None:
    """Refuse a resolution of the output whose points are not points of the solver.

    Raises:
        ValueError: If the resolution is refused; the message has the nearest allowed ones.

    >>> check_divides(384, 2048)
    Traceback (most recent call last):
    ValueError: resolution must divide solver.resolution = 2048, for example 256 or 512, got 384
    """
    if solving % resolution:
        allowed = [n for n in range(4, solving + 1, 2) if solving % n == 0]
        near = sorted(sorted(allowed, key=lambda n: abs(n - resolution))[:2])
        raise ValueError(
            f"resolution must divide solver.resolution = {solving}, for example "
            f"{' or '.join(map(str, near))}, got {resolution}"
        )


def check_steps(dt: float, times: tuple[float, ...]) -> None:
    """Refuse a largest time step if every interval is shorter, or if it needs too many steps.

    Raises:
        ValueError: If the step is refused; the message has the limit for the step.
    """
    longest = max(np.diff(times, prepend=0.0))
    if dt > longest > 0:
        raise ValueError(
            f"solver.dt must be at most {longest:g}, the longest time between two of `times`, "
            f"got {dt:g}"
        )
    if times[-1] / dt > _MOST_STEPS:
        raise ValueError(
            f"solver.dt must be at least {times[-1] / _MOST_STEPS:.3g}: {dt:g} makes "
            f"{times[-1] / dt:.2g} steps, at most {_MOST_STEPS:,} are allowed"
        )
