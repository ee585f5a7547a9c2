"""Lets tests stop a job between computing a shard and writing it, in whatever process that is.

With PDEGEN_STALL naming a folder, shard 1 of seed 1 makes the file `stalled` there, and waits for
the file `go`. Imported by a job of a test, or preloaded by a worker of Dask.
"""

import os
import sys
import time
from pathlib import Path

from pdegen.generation.generate import RecipeJob, generate
from pdegen.recipe import load_recipe
from tests.pdegen.conftest import SMALL

_compute = RecipeJob.compute


def _stalling(job, store, samples):
    values = _compute(job, store, samples)
    folder = Path(os.environ["PDEGEN_STALL"])
    if job.recipe.seed == 1 and samples.start == SMALL["shard"] and not (folder / "go").exists():
        (folder / "stalled").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        (folder / "awake").touch()
    return values


if "PDEGEN_STALL" in os.environ:
    RecipeJob.compute = _stalling

if __name__ == "__main__":  # URL, scheduler: the small recipe with seed 1
    recipe = load_recipe("burgers-quick").with_overrides({**SMALL, "seed": 1})
    generate(recipe, sys.argv[1], scheduler=sys.argv[2], workers=1)
