"""Threads spin before they sleep on an idle machine only, which changes no numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.cli.idleness import OtherPrograms


def counted(statistics: Path, busy: int) -> None:
    """Write times of all cores, of which the last one of this process was busy in `busy` ticks."""
    cores = sorted(os.sched_getaffinity(0))
    lines = [f"cpu{core} 10 0 5 {100 * (core + 1)} 7 0 0 0 0 0" for core in cores[:-1]]
    lines += [f"cpu{cores[-1]} {10 + busy} 0 5 900 7 0 0 0 0 0", "cpu999 9999 0 0 0 0 0 0 0 0 0"]
    statistics.write_text("\n".join(["cpu  0 0 0 0 0 0 0 0 0 0", *lines, "intr 1 2 3", ""]))


@pytest.mark.parametrize(("cores", "idle"), [(0.05, True), (1.0, False)])
def test_time_of_other_programs_is_compared_with_the_clock(cores, idle, tmp_path) -> None:
    statistics = tmp_path / "stat"
    counted(statistics, 0)
    others, start, own = OtherPrograms(statistics), time.monotonic(), time.process_time()
    time.sleep(0.2)
    seconds = cores * (time.monotonic() - start) + time.process_time() - own
    counted(statistics, round(seconds * os.sysconf("SC_CLK_TCK")))
    assert others.idle is idle


@pytest.mark.parametrize("content", [None, "cpu0 1 2\n", "cpu0 a b c d e f g h\n"])
def test_a_system_that_does_not_tell_is_taken_to_be_busy(content, tmp_path) -> None:
    statistics = tmp_path / "stat"
    if content is not None:
        statistics.write_text(content.replace("cpu0", f"cpu{min(os.sched_getaffinity(0))}"))
    assert not OtherPrograms(statistics).idle


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "7"}])
def test_settings_of_a_user_are_kept(given: dict[str, str]) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {key: v for key, v in os.environ.items() if key not in names} | given
    code = f"import os, pipelines.cli; print(*(os.environ.get(name) for name in {names}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    policy, spins = done.stdout.split()
    assert policy == given.get("OMP_WAIT_POLICY", "PASSIVE")
    assert spins in ((given["GOMP_SPINCOUNT"],) if given else ("1000", "None"))
