"""Whole jobs with one and several workers of each engine: `python -m benchmarks.workers`.

    python -m benchmarks.workers [--long] [--rounds 3] [--job burgers-r10=2048] ... [--json FILE]

Each row is a separate process that generates the dataset, from the recipe to the sealed store, on a
disk below the working directory. With `--long` jobs take about 20 seconds with one thread, and only
engines of one machine run, with two workers. Rows are interleaved; figures are medians.

Seconds are wall time, with the start of threads or processes. The workers of a Dask scheduler and
the ranks of MPI are started before; the column "start" has the seconds of Dask. "one core" is one
thread that may use one core only; one thread alone may write its last shard on another core.
Processor seconds are those of the process and its children, with imports: if they agree and the
wall times do not, something waited. They are unknown for "processes", whose parent is the server
that forks them. Figures of several workers mean nothing on a busy machine: the load is printed
beside them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from pdegen.generation.generate import generate
from pdegen.generation.pools import certificates, start_mpi, tls_entries
from pdegen.recipe import load_recipe

ENGINES = [
    ("threads", 1), ("one core", 1), ("threads", 2), ("processes", 1), ("processes", 2),
    ("dask", 1), ("dask", 2), ("mpi", 1), ("mpi", 2), ("mpi", 4),
]  # fmt: skip
LONG_ENGINES = [
    ("threads", 1), ("one core", 1), ("threads", 2), ("processes", 2), ("dask", 2),
]  # fmt: skip
JOBS = {"burgers-r10": 2048, "darcy-421": 256}
LONG_JOBS = {"burgers-r10": 24576, "darcy-421": 768}
_LIMIT = 180.0  # seconds for a row in one round
_RANKS = 2  # MPI ranks without work: the scheduler and the driver


def missing(engine: str) -> str | None:
    """Reason why an engine cannot run here, or None."""
    if engine != "mpi":
        return None
    absent = [name for name in ("mpi4py", "dask_mpi") if importlib.util.find_spec(name) is None]
    absent += [] if shutil.which("mpirun") else ["mpirun"]
    return f"{', '.join(absent)} not installed" if absent else None


def timed(engine: str, workers: int, recipe: str, samples: int, limit: float) -> dict[str, Any]:
    """Seconds of one job in a new process, or the reason of its failure."""
    start, before = time.perf_counter(), processor_time()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        words = [engine, str(workers), recipe, str(samples), f"{folder}/store.zarr"]
        command = [sys.executable, "-m", "benchmarks.workers", "--one", *words]
        if engine == "mpi":
            ranks = str(workers + _RANKS)
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *command]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return {"why": f"more than {limit:.0f} s"}
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or ["no reason given"])[-1][:60]}
    seconds, begun = map(float, done.stdout.split()[-2:])
    return {
        "seconds": seconds,
        "start": begun if engine == "dask" else None,
        "command": time.perf_counter() - start,
        "processor": None if engine == "processes" else processor_time() - before,
        "load": os.getloadavg()[0],
    }


def processor_time() -> float:
    """Processor time of this process's ended children and of their descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_job(engine: str, workers: int, recipe: str, samples: int, url: str) -> None:
    """Generate the dataset. Prints the seconds of the job and of the start of its scheduler; runs
    in the child process."""
    if engine == "mpi":
        start_mpi()  # returns in the driving rank only
    if engine == "one core":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chosen = load_recipe(recipe).with_overrides({"samples": samples})
    before = time.perf_counter()
    with scheduler_of(engine, workers) as scheduler:
        start = time.perf_counter()
        generate(chosen, url, scheduler=scheduler, workers=workers)
        print(time.perf_counter() - start, start - before)


@contextmanager
def scheduler_of(engine: str, workers: int) -> Iterator[str]:
    """Value of `--scheduler`; for "dask", the address of a scheduler with started workers."""
    if engine != "dask":
        yield "threads" if engine == "one core" else engine
        return
    from dask import config
    from distributed import LocalCluster

    security = certificates()
    with (
        tempfile.TemporaryDirectory() as folder,
        config.set(tls_entries(security)),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", security=security,
            dashboard_address="127.0.0.1:0", local_directory=folder,
        ) as cluster,
    ):  # fmt: skip
        yield cluster.scheduler_address


def measured(
    jobs: dict[str, int], engines: list[tuple[str, int]], rounds: int, limit: float
) -> list[dict[str, Any]]:
    """One row per job, engine and number of workers."""
    rows = []
    for recipe, samples in jobs.items():
        results_of = {case: list[dict[str, Any]]() for case in engines}
        for _ in range(rounds):
            for engine, workers in engines:
                why = missing(engine)
                results_of[engine, workers].append(
                    {"why": why} if why else timed(engine, workers, recipe, samples, limit)
                )
        for (engine, workers), results in results_of.items():
            row = {"recipe": recipe, "samples": samples, "engine": engine, "workers": workers}
            failed = [result["why"] for result in results if "why" in result]
            keys = [] if failed else list(results[0])
            rows.append(
                {**row, **({"why": failed[0]} if failed else {}),
                 **{key: middle([result[key] for result in results]) for key in keys}}
            )  # fmt: skip
        alone = next(row.get("seconds") for row in rows if row["recipe"] == recipe)
        for row in rows:
            if row["recipe"] == recipe and alone and "seconds" in row:
                row["one thread / this"] = alone / row["seconds"]
    return rows


def middle(values: list[float | None]) -> float | None:
    """Median of the known values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'job':24}{'engine':11}{'workers':>7}{'seconds':>9}{'one thread / this':>19}"
          f"{'processor s':>13}{'start':>7}{'load':>6}")  # fmt: skip
    for row in rows:
        job = f"{row['recipe']}, {row['samples']}"
        print(f"{job:24}{row['engine']:11}{row['workers']:7}", end="")
        if "why" in row:
            print(f"  {row['why']}")
        else:
            processor, start = (
                "-" if row[key] is None else f"{row[key]:.2f}" for key in ("processor", "start")
            )
            print(f"{row['seconds']:9.2f}{row['one thread / this']:19.2f}"
                  f"{processor:>13}{start:>7}{row['load']:6.1f}")  # fmt: skip


def job_of(words: str) -> tuple[str, int]:
    """Recipe and number of samples from `RECIPE=SAMPLES`."""
    recipe, _, samples = words.partition("=")
    return recipe, int(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="jobs of about 20 seconds")
    parser.add_argument("--job", type=job_of, action="append", metavar="RECIPE=SAMPLES")
    parser.add_argument(
        "--limit", type=float, default=_LIMIT, help="largest number of seconds for a row in a round"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, workers, recipe, samples, url = options.one
        run_job(engine, int(workers), recipe, int(samples), url)
        return
    jobs = dict(options.job or (LONG_JOBS if options.long else JOBS))
    engines = LONG_ENGINES if options.long else ENGINES
    rows = measured(jobs, engines, options.rounds, options.limit)
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
