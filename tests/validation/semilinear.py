"""The error estimate of recipes of terms beside the error: `python -m tests.validation.semilinear`.

The error is the difference to a run on twice as many points along each axis with a quarter of the
step. Printed for each recipe: quantiles of estimate / error over the samples, and the share of the
samples in which it lies between 1/3 and 3.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.recipe import load_recipe
from tests.pdegen.test_semilinear_equations import distance, started

SAMPLES = {"kdv": 40, "kuramoto-sivashinsky": 40, "fisher-kpp": 40, "allen-cahn": 6,
           "swift-hohenberg": 6, "burgers-2d": 4, "gray-scott": 2}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(SAMPLES))
    parser.add_argument("--samples", type=int)
    asked = parser.parse_args()
    for name in asked.recipes:
        recipe, samples = load_recipe(name), range(asked.samples or SAMPLES.get(name, 4))
        problem = recipe.problem
        finer = {
            "dt": problem.solver.dt / 4,
            "problem.solver.resolution": 2 * problem.solver.resolution,
        }
        fine = recipe.with_overrides(finer).problem
        (v0, solver), (w0, fine_solver) = started(problem, samples), started(fine, samples)
        found = solver.solve(v0, list(problem.times))
        exact = fine_solver.solve(w0, list(problem.times)).v
        seen = fine.torus.to_modes(problem.torus.to_points(found.v, fine.torus.points))
        error = distance(fine.torus, seen, exact).max(axis=1)
        ratio = found.error.max(axis=1) / error
        least, low, median, high, most = np.quantile(ratio, [0, 0.05, 0.5, 0.95, 1])
        print(
            f"{name}: {len(ratio)} samples, median error {np.median(error):.1e}, estimate / error "
            f"{least:.3g} {low:.3g} {median:.3g} {high:.3g} {most:.3g}, within 3: "
            f"{np.mean((ratio > 1 / 3) & (ratio < 3)):.3g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
