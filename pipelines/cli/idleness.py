"""Whether other programs use the processor, which decides how threads of OpenMP wait for work."""

import os
import time
from pathlib import Path

_STATISTICS = Path("/proc/stat")
_SLIGHT = 0.3  # cores that other programs may use on a machine that counts as idle


class OtherPrograms:
    """Processor time of other programs since the construction, on the cores of this process.

    Args:
        statistics: The file in which Linux counts the time of each core.
    """

    def __init__(self, statistics: Path = _STATISTICS) -> None:
        self._statistics, self._start = statistics, self._now(statistics)

    @property
    def idle(self) -> bool:
        """Whether other programs used at most 0.3 cores. False where the system does not tell."""
        now = self._now(self._statistics)
        if now is None or self._start is None:
            return False
        (busy, ours, elapsed) = (b - a for a, b in zip(self._start, now, strict=True))
        return busy - ours <= _SLIGHT * elapsed

    @staticmethod
    def _now(statistics: Path) -> tuple[float, float, float] | None:
        """Seconds in which cores were busy, seconds of this process, and the time."""
        try:
            cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
            lines = [line.split() for line in statistics.read_text().splitlines()]
            # user, nice, system, idle, waiting for disks, two kinds of interrupts, other guests
            times = [list(map(int, line[1:9])) for line in lines if line and line[0] in cores]
            ticks = sum(sum(time) - time[3] - time[4] for time in times)
            busy = ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return busy, time.process_time(), time.monotonic()
