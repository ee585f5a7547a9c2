"""Measures time and memory at growing numbers of points, and fits their exponents."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators.training.step import return_memory
from pipelines.studies.cost import held_bytes

SHORTEST, LONGEST = 0.05, 2.0  # seconds of a repetition
_SIZES = 4  # the largest sizes that are kept
_REPEATS, _ENOUGH = 7, 0.5  # repetitions at most, and seconds after which none is added

THEORIES: Mapping[str, Callable[[float], float]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * math.log2(n),
    "n^1.5": lambda n: n**1.5,
    "n^2": lambda n: n**2,
}


@dataclass(frozen=True)
class Work:
    """The work at one size.

    Args:
        points: Number of points.
        run: Does the work once.
        peak: Returns the peak memory of the work in bytes.
    """

    points: int
    run: Callable[[], object]
    peak: Callable[[], int]


@dataclass(frozen=True)
class Case:
    """A solver or an operator whose cost is measured.

    Args:
        time, memory: Growth in theory, a key of `THEORIES`.
        why: What the growth in theory follows from.
        sizes: Growing sizes, such as numbers of points along an axis.
        make: Returns the work at a size.
        above: Why a measured exponent exceeds its theory; empty if none does.
        longest: Seconds of the longest repetition.
    """

    time: str
    memory: str
    why: str
    sizes: Sequence[int]
    make: Callable[[int], Work]
    above: str = ""
    longest: float = LONGEST


def seconds(run: Callable[[], object]) -> float:
    """Least processor time of several repetitions, after one that is not counted."""
    measured: list[float] = []
    for repetition in range(_REPEATS + 1):
        start = time.process_time()
        run()
        measured.append(time.process_time() - start)
        if repetition and (measured[0] > LONGEST or sum(measured[1:]) > _ENOUGH):
            break
    return min(measured[1:])


def allocated_bytes(run: Callable[[], object]) -> int:
    """Peak memory of the arrays that Python and NumPy allocate."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def resident_bytes(run: Callable[[], object]) -> int:
    """Growth of the peak resident memory, which includes memory that compiled code allocates."""
    return_memory()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    before = pages * 4096
    return max(0, held_bytes(run, torch.device("cpu")) - before)


def measured(case: Case) -> dict[str, Any]:
    """Points, seconds and bytes at the largest sizes, and the exponents.

    Sizes are measured in turn, until a repetition takes too long.
    """
    rows: list[tuple[int, float, int]] = []
    for size in case.sizes:
        work = case.make(size)
        taken = seconds(work.run)
        if taken > case.longest:
            break
        if taken >= SHORTEST:
            rows.append((work.points, taken, work.peak()))
    points, times, memory = zip(*rows[-_SIZES:], strict=True)
    return {
        "points": points,
        "seconds": [round(value, 4) for value in times],
        "MiB": [round(value / 2**20, 3) for value in memory],
        "time": round(slope(points, times), 2),
        "time in theory": round(slope(points, [THEORIES[case.time](n) for n in points]), 2),
        "memory": round(slope(points, memory), 2),
        "memory in theory": round(slope(points, [THEORIES[case.memory](n) for n in points]), 2),
    }


def slope(points: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of log values against log points.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 12)
    2.0
    """
    if len(points) < 2:
        return math.nan
    return float(np.polyfit(np.log(points), np.log(values), 1)[0])
