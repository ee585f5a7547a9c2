"""Stated errors of stretched sheets beside true ones: `python -m tests.validation.elasticity NAME`.

For random samples of the recipe NAME: the stated error of the von Mises stress, in relative L² over
the points, beside the distance to a solution on a mesh `--times` as fine as that of the label. The
mesh of the solver's reference is twice as fine.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.equations.elasticity.mesh import PointTransfer
from pdegen.equations.elasticity.problem import Elasticity
from pdegen.equations.elasticity.solver import Body, Recovery, von_mises
from pdegen.recipe import load_recipe


def true_error(
    problem: Elasticity, label: dict[str, np.ndarray], times: int
) -> tuple[float, float]:
    """True relative error of one sample: over the points, and weighted by area."""
    grading = (
        problem.grading and problem.grading + 2
    )  # the solver's reference has that of the label
    transfer = PointTransfer(problem.rings, times * problem.refinement, grading)
    void, sheet = problem.void.build(), problem.sheet(transfer.fine)
    coarse, body = (
        Body.of(rings, void.radius(label["theta"][None], rings.angles))
        for rings in (problem.rings, sheet.rings)
    )
    solution, points = sheet.solve(body).u, coarse.points
    if problem.stress == "recovered":
        places = transfer.places(body.nodes, points)
        gradient = Recovery(sheet.rings).gradient(body.nodes, solution, places)
    else:
        gradient = transfer.mean(transfer.values(body.nodes, points, solution)[1])
    u = von_mises(sheet.material.true_stress(gradient))[0]
    relative = []
    for weight in (np.ones(u.shape), coarse.weights[0]):
        error = np.sqrt(np.sum(weight * (label["u"] - u) ** 2) / np.sum(weight * u**2))
        relative.append(float(error))
    return relative[0], relative[1]


def errors(name: str, samples: list[int], times: int, refinement: int | None = None) -> np.ndarray:
    """Stated error, true error, and true error weighted by area, of each sample.

    `refinement` is that of the recipe if it is not given.
    """
    recipe = load_recipe(name)
    problem = (recipe.with_overrides({"refinement": refinement}) if refinement else recipe).problem
    assert isinstance(problem, Elasticity)
    rows = []
    for i in samples:
        label = {key: value[0] for key, value in problem.compute(0, range(i, i + 1)).items()}
        rows.append((float(label["error"]), *true_error(problem, label, times)))
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--refinement", type=int)
    options = parser.parse_args()
    chosen = np.random.default_rng(0).choice(2000, options.samples, replace=False)
    rows = errors(options.recipe, chosen.tolist(), options.times, options.refinement)
    ratio = rows[:, 0] / rows[:, 1]
    for label, values in (
        ("stated", rows[:, 0]), ("true", rows[:, 1]), ("true, by area", rows[:, 2]),
        ("stated over true", ratio),
    ):  # fmt: skip
        print(f"{label:16}: {values.min():.4f} to {values.max():.4f}, mean {values.mean():.4f}")
    print(f"within a factor of 2: {np.mean((ratio > 0.5) & (ratio < 2)):.0%}")


if __name__ == "__main__":
    main()
