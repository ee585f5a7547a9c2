"""Stated errors of samples that differ in their parameters, beside the true errors:
`python -m tests.validation.parameters`.

For the first samples of burgers-nu and ns-nu: the stated error, largest over the times, divided by
the true one. The true error is the relative L² distance to the solution on twice the points along
each axis with half the time step, in float64.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from pdegen.equations.burgers.problem import Burgers
from pdegen.equations.vorticity.problem import Vorticity
from pdegen.recipe import Recipe, load_recipe
from tests.validation.stated import comparison

RECIPES = ("burgers-nu", "ns-nu")
_BLOCK = 8  # samples that are solved together


def burgers(problem: Burgers, seed: int, samples: range) -> tuple[np.ndarray, np.ndarray]:
    """u at the points of the solver, shape (batch, times, n), and the stated errors."""
    solver = problem.solver.build(problem.parameter_values(seed, samples)["viscosity"])
    u0 = problem.initial.build()(solver.grid, seed, samples)
    solution = solver.solve(u0, list(problem.times))
    return solution.u, solution.error


def vorticity(problem: Vorticity, seed: int, samples: range) -> tuple[np.ndarray, np.ndarray]:
    """w at the points of the solver, shape (batch, times, n, n), and the stated errors."""
    nu = problem.parameter_values(seed, samples)["viscosity"]
    flow, method = replace(problem.typical.flow, viscosity=nu), problem.solver
    v0 = problem.initial.build().coefficients(flow.torus, seed, samples)[:, None]
    solution = flow.solver(v0, method.dt, method.tolerance).solve(v0, problem.times)
    return flow.torus.to_points(solution.v[:, :, 0]), solution.error.max(axis=1)


def errors(recipe: Recipe, samples: range) -> tuple[np.ndarray, np.ndarray]:
    """The stated and the true errors of some samples."""
    problem = recipe.problem
    assert isinstance(problem, Burgers | Vorticity)
    solved = burgers if isinstance(problem, Burgers) else vorticity
    method = problem.solver.model_dump()
    finer = {"resolution": 2 * method["resolution"], "dt": method["dt"] / 2}
    solver = problem.solver.model_copy(update=finer)
    fine = problem.model_copy(update={"solver": solver})
    u, stated = solved(problem, recipe.seed, samples)  # pyright: ignore
    exact, _ = solved(fine, recipe.seed, samples)  # pyright: ignore
    every = (..., *[slice(None, None, 2)] * (u.ndim - 2))
    axes = tuple(range(2, u.ndim))
    distance = np.sqrt(np.sum((u - exact[every]) ** 2, axis=axes))
    return stated, (distance / np.sqrt(np.sum(u**2, axis=axes))).max(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--samples", type=int, default=40)
    asked = parser.parse_args()
    for name in asked.recipes:
        recipe = load_recipe(name)
        ranges = (range(k, min(k + _BLOCK, asked.samples)) for k in range(0, asked.samples, _BLOCK))
        stated, true = (
            np.concatenate(part)
            for part in zip(*(errors(recipe, samples) for samples in ranges), strict=True)
        )
        print(f"{name}: {comparison(stated, true)}", flush=True)


if __name__ == "__main__":
    main()
