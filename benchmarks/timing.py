"""Interleaved timing: on a shared machine only ratios within one run mean something."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def interleaved(
    jobs: Mapping[str, Callable[[], object]],
    rounds: int,
    repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of each job, one figure a round; all jobs take turns in every round, so
    that a slow spell of the machine meets all alike. For jobs of one thread `time.thread_time`
    leaves out the time that other processes took."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
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
    return statistics.median(a / b for a, b in pairs)


def write_result(name: str, figures: dict[str, Any]) -> None:
    """Print the figures, and keep them in benchmarks/results/NAME.json with what they ran on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    record = {
        "figures": figures,
        "commit": commit.stdout.strip(),
        "machine": platform.machine(),
        "versions": {package: version(package) for package in ("numpy", "torch", "zarr", "dask")},
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(record, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", "utf-8")
    print(text)
