"""How good the errors of stretched sheets are: `python -m tests.validation.elasticity elasticity`.

For random samples of a recipe: the error of von Mises's stress that the store states, in relative
L² over the points, beside the distance to a solution on a mesh that is `--times` as fine as that of
the label. The solver's own reference is twice as fine.
"""

from __future__ import annotations

import argparse

import numpy as np

from pdegen.equations.elasticity.material import von_mises
from pdegen.equations.elasticity.mesh import Places
from pdegen.equations.elasticity.problem import Elasticity
from pdegen.equations.elasticity.solver import Body
from pdegen.recipe import load_recipe


def true_error(
    problem: Elasticity, label: dict[str, np.ndarray], times: int
) -> tuple[float, float]:
    """Of one sample, over the points and weighted by area."""
    places = Places(problem.rings, times * problem.refinement)
    void, sheet = problem.void.build(), problem.sheet(places.fine)
    own, body = (
        Body.of(rings, void.radius(label["theta"][None], rings.angles))
        for rings in (problem.rings, sheet.rings)
    )
    _, gradient = places.values(body.nodes, own.points, sheet.solve(body).u)
    u = von_mises(sheet.material.true_stress(places.mean(gradient)))[0]
    found = []
    for weight in (np.ones(u.shape), own.weights[0]):
        off = np.sqrt(np.sum(weight * (label["u"] - u) ** 2) / np.sum(weight * u**2))
        found.append(float(off))
    return found[0], found[1]


def errors(name: str, samples: list[int], times: int, refinement: int = 1) -> np.ndarray:
    """For each sample: the error that is stated, the true one, and that weighted by area."""
    problem = load_recipe(name).with_overrides({"refinement": refinement}).problem
    assert isinstance(problem, Elasticity)
    found = []
    for i in samples:
        label = {key: value[0] for key, value in problem.compute(0, range(i, i + 1)).items()}
        found.append((float(label["error"]), *true_error(problem, label, times)))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--refinement", type=int, default=1)
    asked = parser.parse_args()
    chosen = np.random.default_rng(0).choice(2000, asked.samples, replace=False)
    found = errors(asked.recipe, chosen.tolist(), asked.times, asked.refinement)
    ratio = found[:, 0] / found[:, 1]
    for what, values in (
        ("stated", found[:, 0]), ("true", found[:, 1]), ("true, by area", found[:, 2]),
        ("stated over true", ratio),
    ):  # fmt: skip
        print(f"{what:16}: {values.min():.4f} to {values.max():.4f}, mean {values.mean():.4f}")
    print(f"within a factor of 2: {np.mean((ratio > 0.5) & (ratio < 2)):.0%}")


if __name__ == "__main__":
    main()
