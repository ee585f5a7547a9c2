"""Stated errors of Darcy samples beside the true errors: `python -m tests.validation.darcy`.

For the first samples of darcy-contrast and darcy-source: the stated relative L² error of u divided
by the true one. The true error is the distance of the stored values to the solution by harmonic
finite volumes on cells finer than those of the label by `--times`, for the same inputs.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.equations.darcy.problem import Darcy
from pdegen.recipe import Recipe, load_recipe
from tests.validation.stated import comparison

RECIPES = ("darcy-contrast", "darcy-source")


def errors(recipe: Recipe, samples: range, times: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The stated and the true errors of some samples.

    Args:
        times: How many times finer the cells of the true solution are; odd.
    """
    problem, stated, true = recipe.problem, list[float](), list[float]()
    assert isinstance(problem, Darcy)
    for i in samples:
        values = problem.compute(recipe.seed, range(i, i + 1))
        exact = problem.of_sample(recipe.seed, i).finer_solution(values, times)
        stated.append(float(values["error"][0]))
        true.append(float(np.linalg.norm(values["u"] - exact) / np.linalg.norm(exact)))
    return np.array(stated), np.array(true)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.recipes:
        stated, true = errors(load_recipe(name), range(asked.samples), asked.times)
        print(f"{name}: {comparison(stated, true)}", flush=True)


if __name__ == "__main__":
    main()
