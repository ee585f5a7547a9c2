"""Start-up cost: processor time of commands without their job, and of the first sample.

    python -m benchmarks.start [--repeats 3] [--json FILE] [--first]

Each command runs in a new process; its processor time is user and system time with its children.
The job is the time of the same command when it runs a second time in one process, after all
imports. The minimum of several repeats is used, since other load on the machine only adds time.

`--first` measures the first use of each equation instead: the processor time of a process that
draws and solves one sample, with an empty folder of compiled code, and with the code of that run.
The last row is the sum of two processes that start at once, as the workers of a job do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdegen.generation.pools import pool

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
# a recipe of each equation that needs no package from outside; dolfinx compiles darcy-inclusion
FIRST = (
    "airfoil-quick", "burgers-quick", "darcy-quick", "elasticity-quick", "inviscid-burgers-quick",
    "kdv", "ns-quick", "pipe-quick", "plasticity-quick", "pulses-quick", "shock-tube-quick",
)  # fmt: skip
COLUMNS = ("total", "job", "start", "at most")
FIRST_COLUMNS = ("first", "later", "compilation", "at most")
FIRST_LIMIT = 5.0  # largest processor seconds of the first sample
_MAIN = "from pipelines.cli import main\nmain()"
_FIRST = """
import sys
from pdegen.recipe import load_recipe
recipe = load_recipe(sys.argv[1])
recipe.problem.compute(recipe.seed, range(1))
"""
_AGAIN = """
import contextlib, io, sys, time
from pipelines.cli import main
for _ in range(2):
    begun = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
print(time.process_time() - begun)
"""


def processor_time(
    code: str, words: Sequence[str], folder: Path, count: int = 1, **environment: str
) -> float:
    """Processor time of code with these arguments, in all of `count` processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *words], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | environment,
        )
        for _ in range(count)
    ]  # fmt: skip
    seconds = 0.0
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with status {process.returncode}")
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


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
            total = min(processor_time(_MAIN, words, folder) for _ in range(repeats))
            job = min(job_time(words, folder) for _ in range(repeats)) if STORE in words else 0.0
            rows.append({"what": name, "total": total, "job": job, "start": total - job,
                         "at most": LIMITS[name]})  # fmt: skip
    worker = min(worker_time() for _ in range(repeats))
    rows.append({"what": "a worker process", "total": worker, "job": 0.0, "start": worker,
                 "at most": WORKER_LIMIT})  # fmt: skip
    return rows


def first_uses() -> list[dict[str, Any]]:
    """Rows of processor seconds until the first sample, for each equation and for two processes."""
    rows = [compiled_first(recipe) | {"at most": FIRST_LIMIT} for recipe in FIRST]
    return [*rows, compiled_first("plasticity-quick", count=2)]


def compiled_first(recipe: str, count: int = 1) -> dict[str, Any]:
    """Processor seconds with an empty folder of compiled code, and when it has the code."""
    with tempfile.TemporaryDirectory() as name:
        cache = {"NUMBA_CACHE_DIR": str(Path(name, "compiled"))}
        empty, *full = (
            processor_time(_FIRST, [recipe], Path(name), count, **cache) for _ in range(3)
        )
    what = recipe if count == 1 else f"{count} x {recipe}"
    return {"what": what, "first": empty, "later": min(full), "compilation": empty - min(full)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first", action="store_true", help="measure the first use of equations")
    options = parser.parse_args()
    rows = first_uses() if options.first else measured(options.repeats)
    key, columns = ("first", FIRST_COLUMNS) if options.first else ("start", COLUMNS)
    print(f"{'processor seconds':26}" + "".join(f"{name:>12}" for name in columns))
    for row in rows:
        numbers = "".join(f"{row[name]:12.2f}" if name in row else "" for name in columns)
        print(f"{row['what']:26}{numbers}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    slow = [row["what"] for row in rows if row[key] > row.get("at most", math.inf)]
    if slow:
        sys.exit(f"slower to start than allowed: {', '.join(slow)}")


if __name__ == "__main__":
    main()
