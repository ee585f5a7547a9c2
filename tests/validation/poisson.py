"""Stated errors of Poisson samples beside the true errors: `python -m tests.validation.poisson`.

For each recipe of Poisson's equation: the median and the largest stated relative L² error of all
samples, and for the first 40 samples the stated error divided by the true one. The true error is
the distance to the solution by the compact stencil on nodes four times finer. For Helmholtz'
equation also the distance of its solutions to those of Poisson's for the same sources.
"""

from __future__ import annotations

import numpy as np

from pdegen.equations.poisson.problem import PoissonEquation
from pdegen.equations.poisson.solver import SineSolver
from pdegen.recipe import Recipe, load_recipe
from tests.validation.stated import comparison

RECIPES = ("poisson", "poisson-128-published", "helmholtz-128-published")


def true_errors(recipe: Recipe, samples: range, finer: int = 4) -> np.ndarray:
    """Relative L² distances of stored values to the solution on finer nodes."""
    problem = recipe.problem
    assert isinstance(problem, PoissonEquation)
    field, n = problem.field.build(), problem.resolution
    basis = field.modes_at(problem.field.positions(n, finer))
    solver = SineSolver(finer * (n - 1) + 1, problem.wave_number, compact=True)
    u = problem.compute(recipe.seed, samples)["u"]
    errors = list[float]()
    for row, sample in enumerate(samples):
        f = basis @ field.coefficients(recipe.seed, [sample])[0] @ basis.T
        exact = solver(f)[::finer, ::finer]
        errors.append(float(np.linalg.norm(u[row] - exact) / np.linalg.norm(exact)))
    return np.array(errors)


def main() -> None:
    for name in RECIPES:
        recipe = load_recipe(name)
        problem, few = recipe.problem, range(40)
        assert isinstance(problem, PoissonEquation)
        values = problem.compute(recipe.seed, range(recipe.samples))
        stated = values["error"]
        print(f"{name}: median {np.median(stated):.2g}, largest {stated.max():.2g}")
        print(f"  {comparison(stated[: len(few)], true_errors(recipe, few))}", flush=True)
        if problem.wave_number:
            other = problem.model_copy(update={"wave_number": 0.0})
            u = other.compute(recipe.seed, few)["u"]
            distance = np.linalg.norm(values["u"][: len(few)] - u) / np.linalg.norm(u)
            print(f"  {100 * distance:.2g} % from the solutions of Poisson's equation")


if __name__ == "__main__":
    main()
