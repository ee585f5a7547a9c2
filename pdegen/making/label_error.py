"""The error of a recipe's labels, as a store states it: known beforehand, or found by workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from pdegen.equations.base import Problem, SampleError
from pdegen.making.pools import Pool
from pdegen.recipe import Recipe, recipe_folder

TABLE = "label_errors.json"  # beside the recipes; `python -m benchmarks.label_errors` writes it


def label_error(recipe: Recipe, workers: Pool) -> dict[str, Any]:
    """The attribute `label_error`, or nothing where the equation has no reference solution.

    Both ways give the same numbers, and so the same bytes: to four digits, which rounding errors
    of other machines do not reach.
    """
    problem = recipe.problem
    samples = range(min(problem.compared, recipe.samples))
    if not samples:
        return {}
    known = table().get(key(recipe), {}).get("relative_l2")
    errors = dict(enumerate(known)) if known else measured(recipe, samples, workers)
    found = [i for i in samples if i in errors]
    if not found:
        return {}
    return {
        "label_error": {
            "relative_l2": [errors[i] for i in found],
            "samples": found,
            "reference": problem.reference,
        }
    }


def measured(recipe: Recipe, samples: Sequence[int], workers: Pool) -> dict[int, float]:
    """By sample; those that cannot be computed are left out."""
    task = partial(_of_sample, recipe.problem, recipe.seed)
    return {i: error for i, error in workers.run(task, samples) if error is not None}


def key(recipe: Recipe) -> str:
    """SHA-256 of what the error depends on: neither the number of samples nor the layout."""
    problem = recipe.problem
    words = [problem.model_dump(mode="json"), problem.algorithm, recipe.seed]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def table() -> dict[str, Any]:
    """Errors of the first samples of recipes that come with the project, by their keys."""
    return json.loads((recipe_folder() / TABLE).read_text("utf-8"))


def _of_sample(problem: Problem, seed: int, sample: int) -> float | None:
    try:
        return float(f"{problem.label_error(seed, sample):.4g}")
    except SampleError:
        return None
