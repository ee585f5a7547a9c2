"""Measurements on the samples of a store. They are the errors of the labels, and the effect of
inputs that have too few points to determine them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial

import numpy as np

from pdegen.equations.base import Problem, SampleError
from pdegen.generation.pools import Pool
from pdegen.numerics.device import SolveError
from pdegen.recipe import Recipe, recipe_folder
from pdegen.store.format import Json

_COMPARED = 4  # number of first samples whose labels are compared with those of interpolants
TABLE = "label_errors.json"  # beside the recipes; `python -m benchmarks.label_errors` writes it


def label_error(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `label_error`. Empty if the equation has no reference solution.

    The errors are read from the shipped table. If they are not in the table, workers compute them.
    Both give the same numbers, because errors are rounded to four digits. This removes the
    differences in rounding between machines.
    """
    problem = recipe.problem
    samples = range(min(problem.compared_samples, recipe.samples))
    if not samples:
        return {}
    shipped = table().get(error_key(recipe), {}).get("relative_l2")
    errors = dict(enumerate(shipped)) if shipped else measured_errors(recipe, samples, workers)
    solved = [i for i in samples if i in errors]
    if not solved:
        return {}
    return {
        "label_error": {
            "relative_l2": [errors[i] for i in solved],
            "samples": solved,
            "reference": problem.reference,
        }
    }


def measured_errors(recipe: Recipe, samples: Sequence[int], workers: Pool) -> dict[int, float]:
    """The label errors of samples. Keys are numbers of samples. Samples that cannot be computed are
    left out."""
    task = partial(_of_sample, recipe.problem, recipe.seed)
    return {i: error for i, error in workers.run(task, samples) if error is not None}


def error_key(recipe: Recipe) -> str:
    """SHA-256 of everything that the label errors depend on. It is the key of the errors in
    `table`."""
    problem = recipe.problem
    content = [problem.model_dump(mode="json"), problem.algorithm, recipe.seed]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def table() -> Json:
    """The label errors that pdegen ships, for the first samples of each recipe. Keys are those of
    `error_key`."""
    return json.loads((recipe_folder() / TABLE).read_text("utf-8"))


def _of_sample(problem: Problem, seed: int, sample: int) -> float | None:
    try:
        return float(f"{problem.of_sample(seed, sample).label_error(seed, sample):.4g}")
    except (SampleError, SolveError):
        return None


def sampled_inputs(recipe: Recipe, workers: Pool) -> Json:
    """The attribute `sampled_inputs`. Empty if the stored values determine the inputs.

    A function with wave numbers up to m is determined by its values at n points if n ≥ 2m + 1. With
    fewer points, many functions have the same values, but the label is the solution for only one of
    them. To show the effect, the label is compared with the solution for the trigonometric
    interpolant of the stored input. The attribute contains their relative L² differences for the
    first samples, rounded to three digits.
    """
    problem = recipe.problem
    modes, points = problem.input_modes, problem.resolution
    if modes is None or points >= 2 * modes + 1:
        return {}
    samples = range(min(_COMPARED, recipe.samples))
    task = partial(interpolant_difference, problem, recipe.seed)
    by_sample = dict(workers.run(task, samples))
    differences = [by_sample[i] for i in samples if by_sample[i] is not None]
    return {"sampled_inputs": {"points": points, "modes": modes, "relative_l2": differences}}


def interpolant_difference(problem: Problem, seed: int, sample: int) -> float | None:
    """Relative L² difference between the label of a sample and the solution for the interpolant of
    its input. None if one of these two cannot be computed."""
    try:
        values = problem.compute(seed, range(sample, sample + 1))
        a = values["a"].astype(np.float64)
        interpolated = problem.of_sample(seed, sample).target_of_interpolant(a)
    except (SampleError, SolveError):
        return None
    label = values["u"].astype(np.float64)
    return float(f"{np.linalg.norm(label - interpolated) / np.linalg.norm(label):.3g}")
