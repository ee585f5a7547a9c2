"""Whole jobs with one and several workers of each engine: `python -m benchmarks.workers`.

    python -m benchmarks.workers [--rounds 3] [--job burgers-r10=2048] ... [--json FILE]

Each row is a process of its own that makes the dataset, from the recipe to the sealed store, on a
disk below the working directory. Its seconds are those of the wall clock, with the start of
threads or processes; workers of a Dask scheduler and ranks of MPI are there before. All rows take
turns; medians. Processor seconds are those of the whole process and its children, imports
included: where they are equal and the seconds are not, something waited. Those of "processes" are
not known, for their parent is the server that forks them. Figures of several workers mean nothing
while other jobs hold the cores: the load is printed beside them.
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
from pdegen.generation.mpi import start_mpi
from pdegen.generation.network import certificates, tls_entries
from pdegen.recipe import load_recipe

ENGINES = [
    ("threads", 1), ("threads", 2), ("processes", 1), ("processes", 2), ("dask", 1), ("dask", 2),
    ("mpi", 1), ("mpi", 2), ("mpi", 4),
]  # fmt: skip
JOBS = {"burgers-r10": 2048, "darcy-421": 256}
_LIMIT = 180.0  # seconds of a row in one round
_RANKS = 2  # of MPI that do no work: one schedules, one drives


def missing(engine: str) -> str | None:
    """Why an engine cannot run here."""
    if engine != "mpi":
        return None
    absent = [name for name in ("mpi4py", "dask_mpi") if importlib.util.find_spec(name) is None]
    absent += [] if shutil.which("mpirun") else ["mpirun"]
    return f"{', '.join(absent)} not installed" if absent else None


def timed(engine: str, workers: int, recipe: str, samples: int, limit: float) -> dict[str, Any]:
    """Seconds of one job in a process of its own, or why there are none."""
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
    return {
        "seconds": float(done.stdout.split()[-1]),
        "command": time.perf_counter() - start,
        "processor": None if engine == "processes" else processor_time() - before,
        "load": os.getloadavg()[0],
    }


def processor_time() -> float:
    """Of the children of this process that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one(engine: str, workers: int, recipe: str, samples: int, url: str) -> None:
    """In the child: make the dataset, and print its seconds."""
    if engine == "mpi":
        start_mpi()  # goes on in the rank that drives
    with scheduler_of(engine, workers) as scheduler:
        chosen = load_recipe(recipe).with_overrides({"samples": samples})
        start = time.perf_counter()
        generate(chosen, url, scheduler=scheduler, workers=workers)
        print(time.perf_counter() - start)


@contextmanager
def scheduler_of(engine: str, workers: int) -> Iterator[str]:
    """What `generate` takes; for "dask" the address of a scheduler whose workers are there."""
    if engine != "dask":
        yield engine
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


def measured(jobs: dict[str, int], rounds: int, limit: float) -> list[dict[str, Any]]:
    """A row for each job, engine and number of workers."""
    rows = []
    for recipe, samples in jobs.items():
        found = {case: list[dict[str, Any]]() for case in ENGINES}
        for _ in range(rounds):
            for engine, workers in ENGINES:
                why = missing(engine)
                found[engine, workers].append(
                    {"why": why} if why else timed(engine, workers, recipe, samples, limit)
                )
        for (engine, workers), results in found.items():
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
    """Their median; None where they are not known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'job':24}{'engine':11}{'workers':>7}{'seconds':>9}{'one thread / this':>19}"
          f"{'processor s':>13}{'load':>6}")  # fmt: skip
    for row in rows:
        job = f"{row['recipe']}, {row['samples']}"
        print(f"{job:24}{row['engine']:11}{row['workers']:7}", end="")
        if "why" in row:
            print(f"  {row['why']}")
        else:
            processor = "-" if row["processor"] is None else f"{row['processor']:.2f}"
            print(f"{row['seconds']:9.2f}{row['one thread / this']:19.2f}"
                  f"{processor:>13}{row['load']:6.1f}")  # fmt: skip


def job_of(words: str) -> tuple[str, int]:
    """`RECIPE=SAMPLES`."""
    recipe, _, samples = words.partition("=")
    return recipe, int(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--job", type=job_of, action="append", metavar="RECIPE=SAMPLES")
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds of a row in a round")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, workers, recipe, samples, url = options.one
        one(engine, int(workers), recipe, int(samples), url)
        return
    rows = measured(dict(options.job or JOBS), options.rounds, options.limit)
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
