"""Interleaved timing: on a shared machine only ratios within one run are meaningful."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from pipelines.studies.cost import Clock, clock_of

Jobs = Mapping[str, Callable[[], object]]
Say = Callable[[str], None]
Seconds = dict[str, list[float]]
_COPIED = 2**28  # bytes copied to measure the memory bandwidth


def interleaved(
    jobs: Jobs, rounds: int, repeats: int = 1, clock: Clock = time.perf_counter
) -> Seconds:
    """Seconds per call of each job, one figure per round.

    All jobs run in every round, so that a slow spell of the machine affects all alike. For jobs of
    one thread the clock `time.thread_time` ignores other processes. Each job is called once before.
    """
    for job in jobs.values():
        job()
    seconds: Seconds = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = clock()
            for _ in range(repeats):
                job()
            seconds[name].append((clock() - start) / repeats)
    return seconds


def ratio(seconds: Mapping[str, list[float]], job: str, baseline: str) -> float:
    """Median over the rounds of the ratio job/baseline within a round."""
    pairs = zip(seconds[job], seconds[baseline], strict=True)
    return rounded(median(a / b for a, b in pairs))


def milliseconds(seconds: list[float]) -> float:
    """Median in milliseconds."""
    return rounded(1e3 * median(seconds))


def rounded(value: float) -> float:
    """The value rounded to four digits."""
    return float(f"{value:.4g}")


def copy_speed(device: torch.device, rounds: int = 5, size: int = _COPIED) -> float:
    """Speed of a copy of `size` bytes in GB/s; each byte is read and written."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copy = {"copy": lambda: target.copy_(source)}
    seconds = interleaved(copy, rounds, clock=clock_of(device))
    return rounded(size / 1e9 / median(seconds["copy"]))
