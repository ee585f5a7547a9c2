"""Interleaved timing: on a shared machine only ratios within one run mean something."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from pipelines.studies.cost import Clock, clock_of

Jobs = Mapping[str, Callable[[], object]]
Say = Callable[[str], None]
Seconds = dict[str, list[float]]
_COPIED = 2**28  # bytes of the copy that measures the memory


def interleaved(
    jobs: Jobs, rounds: int, repeats: int = 1, clock: Clock = time.perf_counter
) -> Seconds:
    """Seconds per call of each job, one figure a round; all jobs take turns in every round, so
    that a slow spell of the machine meets all alike. For jobs of one thread `time.thread_time`
    leaves out the time that other processes took. Each job is called once before."""
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
    """Median over the rounds of job/baseline within a round."""
    pairs = zip(seconds[job], seconds[baseline], strict=True)
    return rounded(median(a / b for a, b in pairs))


def milliseconds(seconds: list[float]) -> float:
    """Their median."""
    return rounded(1e3 * median(seconds))


def rounded(value: float) -> float:
    """To four digits, as figures are kept."""
    return float(f"{value:.4g}")


def copy_speed(device: torch.device, rounds: int = 5, size: int = _COPIED) -> float:
    """GB that are read and as many that are written in a second, to copy so many bytes at once."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    copy = {"copy": lambda: target.copy_(source)}
    seconds = interleaved(copy, rounds, clock=clock_of(device))
    return rounded(size / 1e9 / median(seconds["copy"]))
