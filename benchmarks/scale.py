"""Cost of datasets of any size: measurements for the model of docs/scale.md.

    python -m benchmarks.scale [--shards 100000] [--json FILE]
    python -m benchmarks.scale --predict FILE      predict from measured costs

Measures seconds and bytes per sample of recipes by resolution, the overhead of Dask and of the
store per shard, two worker processes against one, and a run of many shards without work.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pdegen.generation.engines import pool
from pdegen.generation.generate import Options, _computed, _written, write
from pdegen.generation.job import Job, RecipeJob
from pdegen.generation.pools import Pool
from pdegen.generation.recipe_arrays import provenance
from pdegen.recipe import Recipe, load_recipe
from pdegen.store import lock
from pdegen.store.layout import Layout
from pdegen.store.reading import Store
from pdegen.store.variables import Coordinate, Variable
from pdegen.store.writing import lay_out, write_shard

RECIPES = [
    ("burgers-r10", {"resolution": 512}, 256),
    ("burgers-r10", {"resolution": 2048}, 256),
    ("burgers-r10", {}, 256),
    ("darcy-85", {}, 32),
    ("darcy-141", {}, 16),
    ("darcy-421", {}, 8),
]


@dataclass(frozen=True)
class NoWork(Job):
    """A job that stores one number per sample."""

    samples: int

    @property
    def fingerprint(self) -> str:
        return f"no work, {self.samples}"

    def check(self) -> None: ...

    def layout(self) -> Layout:
        return Layout(
            samples=self.samples,
            shard=1,
            variables=(Variable("a", (), (), "float32"),),
            coordinates=(Coordinate("sample", ("sample",), np.arange(self.samples)),),
            attributes={
                "fingerprint": self.fingerprint, "recipe": {"name": "no-work"}, "title": "no work",
                "equation": "none", "splits": {"train": [0, self.samples]},
                "provenance": provenance(),
            },
        )  # fmt: skip

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        return {"a": np.arange(samples.start, samples.stop, dtype=np.float32)}

    def difference(self, store: Store) -> str:
        return "another size"


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
        record = write_shard(store, 0, values)
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
    """Peak memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def many_shards(folder: Path, shards: int) -> dict[str, Any]:
    """Costs of tasks without work: through Dask's scheduler, and as a whole store by threads."""
    before = memory()
    with pool("processes", 2) as workers:
        start = time.perf_counter()
        for _ in workers.run(nothing, range(shards)):
            pass
        through_dask = time.perf_counter() - start
    after_dask, url = memory(), str(folder / "many.zarr")
    phases: dict[str, float] = {}
    start = time.perf_counter()
    write(NoWork(shards), url, Options(workers=2, progress=lambda p: phases.update(made=p.seconds)))
    whole = time.perf_counter() - start
    start = time.perf_counter()
    store = write(NoWork(shards), url, Options(workers=2, resume=True))
    return {
        "shards": shards,
        "Dask seconds per task": through_dask / shards,
        "store seconds per shard": phases["made"] / shards,
        "seal and layout seconds": whole - phases["made"],
        "resume seconds per shard": (time.perf_counter() - start) / shards,
        "record bytes": len(store.record(0).encode()),
        "peak MiB of the driver before": before,
        "peak MiB of the driver with Dask's scheduler": after_dask,
        "peak MiB of the driver after all": memory(),
    }


def predicted(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Hours, bytes and the driver's memory for large datasets, from the measured costs.

    k workers compute and write N samples in N (c + w)/k seconds. The driver submits the N/m shards
    one after another, which is a lower bound of the total, and reads their records to seal.
    """
    measured = {(cost["recipe"], cost["resolution"]): cost for cost in result["costs"]}
    many = result["many shards"]
    seal = many["seal and layout seconds"] / many["shards"]
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
    parser.add_argument("--shards", type=int, default=100_000, help="number of shards without work")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--predict", type=Path)
    options = parser.parse_args()
    if options.predict:
        print(json.dumps(predicted(json.loads(options.predict.read_text("utf-8"))), indent=1))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {
            "cores": len(os.sched_getaffinity(0)),
            "workers": two_against_one(folder, options.repeats),
            "costs": list(costs(folder)),
            "many shards": many_shards(folder, options.shards),
        }
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
