"""What is measured of a store's samples: the error of labels, known beforehand or found by workers,
and what it means where points do not determine inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial

import numpy as np

from pdegen.equations.base import Problem, SampleError
from pdegen.generation.pools import Pool
from pdegen.numerics.errors import SolveError
from pdegen.recipe import Recipe, recipe_folder
from pdegen.store.arrays import Json

_COMPARED = 4  # the first samples, whose labels are compared to those of interpolants
TABLE = "label_errors.json"  # beside the recipes; `python -m benchmarks.label_errors` writes it


def label_error(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `label_error`, or nothing where the equation has no reference solution.

    Both ways give the same numbers, and so the same bytes: to four digits, which rounding errors
    of other machines do not reach.
    """
    problem = recipe.problem
    samples = range(min(problem.compared_samples, recipe.samples))
    if not samples:
        return {}
    known = table().get(error_key(recipe), {}).get("relative_l2")
    errors = dict(enumerate(known)) if known else measured_errors(recipe, samples, workers)
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


def measured_errors(recipe: Recipe, samples: Sequence[int], workers: Pool) -> dict[int, float]:
    """By sample; those that cannot be computed are left out."""
    task = partial(_of_sample, recipe.problem, recipe.seed)
    return {i: error for i, error in workers.run(task, samples) if error is not None}


def error_key(recipe: Recipe) -> str:
    """SHA-256 of what the error depends on: neither the number of samples nor the layout."""
    problem = recipe.problem
    words = [problem.model_dump(mode="json"), problem.algorithm, recipe.seed]
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def table() -> Json:
    """Errors of the first samples of recipes that come with the project, by their keys."""
    return json.loads((recipe_folder() / TABLE).read_text("utf-8"))


def _of_sample(problem: Problem, seed: int, sample: int) -> float | None:
    try:
        return float(f"{problem.label_error(seed, sample):.4g}")
    except SampleError:
        return None


def sampled_inputs(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `sampled_inputs`, or nothing where the stored values determine the inputs.

    n points determine a function of wave numbers up to m where n is at least 2m + 1. On fewer
    points many functions have the same values, and the label is that of one of them. What this
    means is measured on the first samples: the relative L² difference of the label to the solution
    for the trigonometric interpolant of the stored input, to three digits.
    """
    problem = recipe.problem
    modes, points = problem.input_modes, problem.resolution
    if modes is None or points >= 2 * modes + 1:
        return {}
    samples = range(min(_COMPARED, recipe.samples))
    task = partial(interpolant_difference, problem, recipe.seed)
    found = dict(workers.run(task, samples))
    measured = [found[i] for i in samples if found[i] is not None]
    return {"sampled_inputs": {"points": points, "modes": modes, "relative_l2": measured}}


def interpolant_difference(problem: Problem, seed: int, sample: int) -> float | None:
    """Of one sample; None where one of both cannot be solved."""
    try:
        values = problem.compute(seed, range(sample, sample + 1))
        other = problem.target_of_interpolant(values["a"].astype(np.float64))
    except (SampleError, SolveError):
        return None
    label = values["u"].astype(np.float64)
    return float(f"{np.linalg.norm(label - other) / np.linalg.norm(label):.3g}")
