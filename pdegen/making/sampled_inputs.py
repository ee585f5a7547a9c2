"""Stores whose points do not determine their inputs, and what this means for their labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pdegen.equations.base import Problem, SampleError
from pdegen.making.pools import Pool
from pdegen.numerics.failure import SolveError
from pdegen.recipe import Recipe

_COMPARED = 4  # the first samples


def sampled_inputs(recipe: Recipe, workers: Pool) -> dict[str, Any]:
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
    task = partial(difference, problem, recipe.seed)
    found = dict(workers.run(task, samples))
    measured = [found[i] for i in samples if found[i] is not None]
    return {"sampled_inputs": {"points": points, "modes": modes, "relative_l2": measured}}


def difference(problem: Problem, seed: int, sample: int) -> float | None:
    """Of one sample; None where one of both cannot be solved."""
    try:
        values = problem.compute(seed, range(sample, sample + 1))
        other = problem.of_interpolant(values["a"].astype(np.float64))
    except (SampleError, SolveError):
        return None
    label = values["u"].astype(np.float64)
    return float(f"{np.linalg.norm(label - other) / np.linalg.norm(label):.3g}")
