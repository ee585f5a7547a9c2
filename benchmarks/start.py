"""Start-up cost: processor time of commands without their job, and of a worker process.

    python -m benchmarks.start [--repeats 3] [--json FILE]

Each command runs in a new process; its processor time is user and system time with its children.
The job is the time of the same command when it runs a second time in one process, after all
imports. The minimum of several repeats is used, since other load on the machine only adds time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdegen.generation.engines import pool

# Largest processor seconds of each command without its job.
LIMITS = {"--help": 0.6, "recipes": 1.5, "generate": 1.2, "info": 1.2, "verify": 1.2}
WORKER_LIMIT = 0.8
STORE = "store.zarr"
COMMANDS = {
    "--help": ["--help"],
    "recipes": ["recipes"],
    "generate": ["generate", "burgers-r10", "--samples", "64", "--overwrite", "--out", STORE],
    "info": ["info", STORE],
    "verify": ["verify", STORE],
}
_MAIN = "from pipelines.cli import main\nmain()"
_AGAIN = """
import contextlib, io, sys, time
from pipelines.cli import main
for _ in range(2):
    begun = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
print(time.process_time() - begun)
"""


def processor_time(words: Sequence[str], folder: Path) -> float:
    """Processor time of a command in a new process, from start to end."""
    command = [sys.executable, "-c", _MAIN, *words]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"pdegen {' '.join(words)} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def job_time(words: Sequence[str], folder: Path) -> float:
    """Processor time of a command when it runs a second time in one process."""
    command = [sys.executable, "-c", _AGAIN, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout)


def ready(_: int) -> float:
    """Processor time of a worker when it is ready to compute a shard; runs in the worker."""
    import time

    import pdegen.generation.generate  # noqa: F401

    return time.process_time()


def worker_time() -> float:
    """Processor time of a Dask worker process from its fork until it can compute a shard."""
    with pool("processes", 1) as processes:
        ((_, seconds),) = processes.run(ready, [0])
    return seconds


def measured(repeats: int) -> list[dict[str, Any]]:
    """Rows of processor seconds: one per command, and one for a worker process."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for name, words in COMMANDS.items():
            total = min(processor_time(words, folder) for _ in range(repeats))
            job = min(job_time(words, folder) for _ in range(repeats)) if STORE in words else 0.0
            rows.append({"what": name, "total": total, "job": job, "start": total - job,
                         "at most": LIMITS[name]})  # fmt: skip
    worker = min(worker_time() for _ in range(repeats))
    rows.append({"what": "a worker process", "total": worker, "job": 0.0, "start": worker,
                 "at most": WORKER_LIMIT})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measured(options.repeats)
    print(f"{'processor seconds':18}{'total':>8}{'job':>8}{'start':>8}{'at most':>9}")
    for row in rows:
        numbers = "".join(f"{row[key]:8.2f}" for key in ("total", "job", "start"))
        print(f"{row['what']:18}{numbers}{row['at most']:9.1f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    slow = [row["what"] for row in rows if row["start"] > row["at most"]]
    if slow:
        sys.exit(f"slower to start than allowed: {', '.join(slow)}")


if __name__ == "__main__":
    main()
