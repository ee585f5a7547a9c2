"""Cost of datasets of any size: measurements for the model of docs/scale.md.

    python -m benchmarks.scale [--shards 10000] [--json FILE]
    python -m benchmarks.scale --predict FILE      predict from measured costs

Measures seconds and bytes per sample of recipes by resolution, two worker processes against one,
the overhead of Dask per task, and the time and memory of stores with many shards of a tiny recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pdegen.generation.generate import Options, RecipeJob, _computed, _written, write
from pdegen.generation.pools import Pool, pool
from pdegen.recipe import Recipe, load_recipe
from pdegen.store import lock
from pdegen.store.writing import encoded, lay_out, write_encoded

RECIPES = [
    ("burgers-r10", {"resolution": 512}, 256),
    ("burgers-r10", {"resolution": 2048}, 256),
    ("burgers-r10", {}, 256),
    ("darcy-85", {}, 32),
    ("darcy-141", {}, 16),
    ("darcy-421", {}, 8),
]
TINY = {"resolution": 32, "solver.resolution": 64, "initial.modes": 8, "shard": 1}


def costs(folder: Path) -> Iterator[dict[str, Any]]:
    """Costs of one sample of each recipe on one core; store seconds are encoding and writing."""
    for name, overrides, samples in RECIPES:
        recipe = load_recipe(name).with_overrides({**overrides, "samples": samples})
        recipe = recipe.with_overrides({"shard": min(recipe.shard, samples)})
        job = RecipeJob(recipe, None)
        store = lay_out(str(folder / f"{name}-{recipe.problem.resolution}"), job.layout())
        job.compute(store, range(1))  # compiles
        start = time.perf_counter()
        values = job.compute(store, range(recipe.shard))
        computed = time.perf_counter()
        objects, record = encoded(store, 0, values, {})
        write_encoded(store, objects, record)
        written = time.perf_counter()
        stored = sum(store.objects.size(store.key(v, 0)) for v in store.variables)
        yield {
            "recipe": name,
            "resolution": recipe.problem.resolution,
            "seconds per sample": (computed - start) / recipe.shard,
            "store seconds per sample": (written - computed) / recipe.shard,
            "bytes per sample": stored / recipe.shard,
            "bytes per sample before compression": job.layout().bytes / samples,
            "record bytes per sample": len(record.encode()) / recipe.shard,
            "samples in a shard as shipped": load_recipe(name).shard,
        }


def nothing(number: int) -> int:
    return number


def overhead(workers: Pool, tasks: int) -> float:
    """Seconds of Dask per task without work."""
    start = time.perf_counter()
    for _ in workers.run(nothing, range(tasks)):
        pass
    return (time.perf_counter() - start) / tasks


def computed(workers: Pool, recipe: Recipe, folder: Path) -> float:
    """Seconds to compute and write all shards of a recipe."""
    job = RecipeJob(recipe, None)
    store = lay_out(str(folder), job.layout())
    with lock.locked(store.objects, job.identity) as mine:
        start = time.perf_counter()
        task = partial(_computed, job, store.url, False, mine)
        for _ in workers.overlapped(task, partial(_written, mine), range(store.shards)):
            pass
        return time.perf_counter() - start


def two_against_one(folder: Path, repeats: int) -> dict[str, Any]:
    """Times of one and of two worker processes, interleaved; starting them is not timed."""
    recipe = load_recipe("burgers-r10").with_overrides({"samples": 1536, "shard": 32})
    times: dict[int, list[float]] = {1: [], 2: []}
    overheads = []
    with pool("processes", 1) as one, pool("processes", 2) as two:
        for workers, count in ((one, 1), (two, 2)):
            computed(workers, recipe.with_overrides({"samples": 128}), folder / f"warm{count}")
        for repeat in range(repeats):
            for count, workers in ((1, one), (2, two)):
                store = folder / f"{count}-{repeat}"
                times[count].append(computed(workers, recipe, store))
            overheads.append(overhead(two, 1000))
    return {
        "recipe": f"burgers-r10, {recipe.samples} samples, shards of {recipe.shard}",
        "seconds with 1": times[1],
        "seconds with 2": times[2],
        "ratio of medians": median(times[1]) / median(times[2]),
        "overhead per shard": median(overheads),
    }


def memory() -> float:
    """Peak memory of this program so far, in MiB. The peak that `getrusage` states begins with the
    memory of the process that started the program."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def many_tasks(tasks: int) -> dict[str, Any]:
    """Cost of tasks without work through Dask's scheduler."""
    before = memory()
    with pool("processes", 2) as workers:
        seconds = overhead(workers, tasks)
    return {
        "tasks": tasks,
        "Dask seconds per task": seconds,
        "peak MiB before": before,
        "peak MiB with Dask's scheduler": memory(),
    }


def many_shards(shards: int) -> dict[str, Any]:
    """Costs of a store with shards of one tiny sample, made by two threads in a new process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--tiny", str(shards)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def tiny_store(shards: int) -> dict[str, Any]:
    """The costs of `many_shards`, measured in this process."""
    job = RecipeJob(load_recipe("burgers-quick").with_overrides({**TINY, "samples": shards}), None)
    phases: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        url, start = f"{folder}/tiny.zarr", time.perf_counter()
        options = Options(workers=2, progress=lambda p: phases.update(made=p.seconds))
        store = write(job, url, options)
        whole = time.perf_counter() - start
        start = time.perf_counter()
        write(job, url, Options(workers=2, resume=True))
        return {
            "shards": shards,
            "store seconds per shard": phases["made"] / shards,
            "layout, second reading and seal, seconds per shard": (whole - phases["made"]) / shards,
            "resume seconds per shard": (time.perf_counter() - start) / shards,
            "record bytes": len(store.record(0).encode()),
            "peak MiB": memory(),
        }


def predicted(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Hours, bytes and the driver's memory for large datasets, from the measured costs.

    k workers compute and write N samples in N (c + w)/k seconds. The driver submits the N/m shards
    one after another, which is a lower bound of the total, and reads their records to seal.
    """
    measured = {(cost["recipe"], cost["resolution"]): cost for cost in result["costs"]}
    seal = result["many shards"][-1]["layout, second reading and seal, seconds per shard"]
    rows = []
    for name, resolution, samples in (
        ("burgers-r10", 8192, 10**6), ("burgers-r10", 512, 10**6), ("darcy-421", 421, 10**5),
    ):  # fmt: skip
        cost = measured[name, resolution]
        shards = -(-samples // cost["samples in a shard as shipped"])
        work = samples * (cost["seconds per sample"] + cost["store seconds per sample"])
        driver = shards * result["workers"]["overhead per shard"]
        rows += [
            {
                "recipe": name, "resolution": resolution, "samples": samples, "shards": shards,
                "workers": workers,
                "hours": (max(work / workers, driver) + shards * seal) / 3600,
                "bound by": "workers" if work / workers > driver else "driver",
                "GB": samples * cost["bytes per sample"] / 1e9,
                "GB of records": samples * cost["record bytes per sample"] / 1e9,
                "MB of the driver for statistics": samples * 3 * 16 / 1e6,
                "workers at which the driver is the limit": round(work / driver),
            }
            for workers in (1, 16, 128, 1024)
        ]  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=10_000, help="largest number of tiny shards")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--predict", type=Path)
    parser.add_argument("--tiny", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        print(json.dumps(tiny_store(options.tiny)))
        return
    if options.predict:
        print(json.dumps(predicted(json.loads(options.predict.read_text("utf-8"))), indent=1))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {
            "cores": len(os.sched_getaffinity(0)),
            "workers": two_against_one(folder, options.repeats),
            "costs": list(costs(folder)),
            "many tasks": many_tasks(options.shards),
            "many shards": [many_shards(n) for n in (options.shards // 10, options.shards)],
        }
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
