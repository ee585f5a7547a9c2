"""Cost and error of a sample of each recipe that is not a small form of another.

    python -m benchmarks.recipes [NAME ...] [--write]

Prints a line a recipe: the processor time of drawing, solving and estimating the error of a sample
on one thread, after the first one; and the median and the largest error of these samples, as the
solver estimates it, in the last frame if there are several. --write updates
`results/recipes.json`, from which the documentation has its table of equations.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from pdegen.recipe import load_recipe, recipe_names

RESULTS = Path(__file__).parent / "results" / "recipes.json"


def seconds() -> float:
    """Processor time of this process and its workers, also of those that ended."""
    used, own = 0.0, psutil.Process()
    for process in (own, *own.children(recursive=True)):
        used += sum(process.cpu_times()[:4])  # user and system, and those of ended children
    return used


def measured(name: str, count: int) -> dict[str, Any]:
    """Cost and error of the samples 1 ... count of a recipe, solved together."""
    recipe = load_recipe(name)
    problem, seed = recipe.problem, recipe.seed
    problem.solve_in_blocks(seed, range(1))  # compiles
    begun = seconds()
    values = problem.solve_in_blocks(seed, range(1, count + 1))
    line: dict[str, Any] = {"seconds a sample": (seconds() - begun) / count}
    if (error := values.get("error")) is not None:
        last = np.asarray(error).reshape(count, -1)[:, -1]
        line |= {"error": float(np.median(last)), "largest error": float(last.max())}
    return {"samples": count} | {key: float(f"{value:.3g}") for key, value in line.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__)
    parser.add_argument("names", nargs="*", help="recipes; by default all but the small forms")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="write the results")
    o = parser.parse_args()
    known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    with threadpool_limits(1):
        for name in o.names or [n for n in recipe_names() if not n.endswith("-quick")]:
            known[name] = measured(name, o.samples)
            print(json.dumps({name: known[name]}), flush=True)
            if o.write:
                RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
